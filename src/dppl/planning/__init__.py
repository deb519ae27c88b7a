"""What a budget buys, from public numbers alone."""

from dppl.planning.plan import (
    BudgetPlan,
    ClassExpectation,
    Gain,
    is_worth_training,
    plan_budget,
)

__all__ = ["BudgetPlan", "ClassExpectation", "Gain", "is_worth_training", "plan_budget"]
