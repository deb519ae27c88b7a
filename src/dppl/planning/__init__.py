"""What a budget buys, from public numbers alone."""

from dppl.planning.plan import IN_PART, NO, YES, BudgetPlan, ClassExpectation, Gain, plan_budget

__all__ = ["IN_PART", "NO", "YES", "BudgetPlan", "ClassExpectation", "Gain", "plan_budget"]
