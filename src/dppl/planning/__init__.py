"""What a budget buys, from public numbers alone."""

from dppl.planning.plan import BudgetPlan, ClassExpectation, Gain, plan_budget

__all__ = ["BudgetPlan", "ClassExpectation", "Gain", "plan_budget"]
