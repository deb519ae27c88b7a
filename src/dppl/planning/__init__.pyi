from .budget_plan import BudgetPlan as BudgetPlan
from .budget_plan import ClassExpectation as ClassExpectation
from .budget_plan import Gain as Gain
from .budget_plan import plan_budget as plan_budget
from .evaluation_plan import EvaluationPlan as EvaluationPlan
from .evaluation_plan import plan_evaluation as plan_evaluation
