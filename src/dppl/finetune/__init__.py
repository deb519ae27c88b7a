"""Private training of weights of a public network: sparse fine-tuning, FiLM, and the trainer beneath. Needs torch."""

from dppl.finetune.film import FilmEnsemble
from dppl.finetune.norms import to_group_norm
from dppl.finetune.selection import select_weights
from dppl.finetune.sparse import SparseFinetuner
from dppl.finetune.trainer import DPTrainer

__all__ = ["DPTrainer", "FilmEnsemble", "SparseFinetuner", "select_weights", "to_group_norm"]
