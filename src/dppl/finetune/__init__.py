"""Private training of weights of a public network: sparse fine-tuning. Needs torch."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.finetune.layers import to_group_norm
    from dppl.finetune.selection import select_weights
    from dppl.finetune.sparse import SparseFinetuner
    from dppl.finetune.trainer import Recipe

__all__ = ["Recipe", "SparseFinetuner", "select_weights", "to_group_norm"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "to_group_norm": "dppl.finetune.layers",
        "select_weights": "dppl.finetune.selection",
        "SparseFinetuner": "dppl.finetune.sparse",
        "Recipe": "dppl.finetune.trainer",
    },
)
