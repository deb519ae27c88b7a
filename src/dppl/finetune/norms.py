"""Batch normalisation becomes group normalisation, before a network is trained on public data."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dppl import _validate
from dppl._optional import optional
from dppl.finetune.selection import check_module

__all__ = ["to_group_norm"]


def to_group_norm(module: Any, groups: int = 32) -> Any:
    """Return a copy in which group normalisation takes the place of batch normalisation, to be pre-trained then.

    Batch normalisation mixes the records of a batch and remembers statistics of what it has seen. Scale and shift are
    carried over; running statistics have no place to go, so the copy has to be trained on public data again.

    Activations that write over their input are told not to: a converted layer may need it for its gradient.

    Parameters
    ----------
    module : torch.nn.Module
        It is not changed.
    groups : int, default=32
        Number of groups; of a layer whose channels it does not divide, the largest smaller number that does.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    ParameterError
        If `module` is no module of torch, or `groups` not an integer of at least 1.
    """
    check_module(module)
    _validate.positive_integer(groups=groups)
    torch = optional("torch", "torch", "torch")
    return _converted(torch, deepcopy(module), groups)


def _converted(torch: Any, module: Any, groups: int) -> Any:
    if getattr(module, "inplace", False) is True:
        module.inplace = False
    if not isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        for name, child in module.named_children():
            setattr(module, name, _converted(torch, child, groups))
        return module
    channels = module.num_features
    divisor = next(count for count in range(min(groups, channels), 0, -1) if channels % count == 0)
    norm = torch.nn.GroupNorm(divisor, channels, eps=module.eps, affine=module.affine)
    if module.affine:
        norm.weight, norm.bias = module.weight, module.bias
    return norm.train(module.training)
