"""What a budget buys, from public numbers alone."""

from dppl.planning.plan import BudgetPlan, ClassExpectation, Gain, parts_to_train, plan_budget

__all__ = ["BudgetPlan", "ClassExpectation", "Gain", "parts_to_train", "plan_budget"]
