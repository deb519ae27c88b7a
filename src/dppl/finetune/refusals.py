"""Networks that cannot be trained privately as they are."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from dppl._optional import optional
from dppl.errors import ParameterError
from dppl.finetune.selection import Selection

__all__ = ["refuse"]


def refuse(module: Any, selection: Selection) -> None:
    """Refuse what would let a record reach more than its own gradient, and masks that cannot be kept."""
    torch = optional("torch", "torch", "torch")
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.modules.batchnorm._NormBase):
            _refuse_statistics(torch, name, layer)
        if isinstance(layer, torch.nn.modules.dropout._DropoutNd) and layer.training and layer.p > 0:
            raise ParameterError(
                f"layer {name!r} drops at random, by a draw that all records of a batch may share; switch it off with "
                "eval(), or set p to 0."
            )
    _refuse_tied(module, selection)


def _refuse_statistics(torch: Any, name: str, layer: Any) -> None:
    batch = isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
    if layer.training and layer.track_running_stats:
        raise ParameterError(
            f"layer {name!r} updates running statistics, which would let records out without noise. Convert the module "
            "with to_group_norm before its public training, or keep its public statistics with eval()."
        )
    if batch and (layer.training or layer.running_mean is None):
        raise ParameterError(
            f"layer {name!r} normalises with statistics of the batch, so that a record would change the gradients of "
            "others. Convert the module with to_group_norm before its public training."
        )


def _refuse_tied(module: Any, selection: Selection) -> None:
    names = defaultdict(list)
    for name, weight in module.named_parameters(remove_duplicate=False):
        names[weight.untyped_storage().data_ptr()].append(name)
    for shared in names.values():
        if len(shared) > 1 and any(name in selection for name in shared):
            raise ParameterError(
                f"parameters {shared[0]!r} and {shared[1]!r} share their weights, which training one of them would "
                "split. Train neither, or give one a copy."
            )
