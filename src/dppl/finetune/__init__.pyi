from .layers import to_group_norm as to_group_norm
from .selection import select_weights as select_weights
from .sparse import SparseFinetuner as SparseFinetuner
from .trainer import Recipe as Recipe
