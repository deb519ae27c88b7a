from .layers import to_group_norm as to_group_norm
from .sparse import SparseFinetuner as SparseFinetuner
from .trainer import Recipe as Recipe
from .weights import select_weights as select_weights
from .worth import is_worth_training as is_worth_training
