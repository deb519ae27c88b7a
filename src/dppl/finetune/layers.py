"""Layers that cannot be trained privately as they are: refused, or converted before a public training."""

from collections import defaultdict
from copy import deepcopy
from typing import Any

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl.errors import ParameterError
from dppl.finetune.weights import WeightSelection, check_module


def refuse(module: Any, selection: WeightSelection) -> None:
    """Refuse what would let a record reach more than its own gradient, and masks that cannot be kept."""
    torch = optional("torch", "torch", "torch")
    kinds = torch.nn.modules.batchnorm
    for name, layer in module.named_modules():
        statistics = isinstance(layer, kinds._NormBase)
        batch = isinstance(layer, kinds._BatchNorm)
        if statistics and layer.training and layer.track_running_stats:
            problem = (
                "updates running statistics, which would let records out without noise"
            )
        elif batch and (layer.training or layer.running_mean is None):
            problem = "normalises with statistics of the batch, so that a record would change the gradients of others"
        elif (
            isinstance(layer, torch.nn.modules.dropout._DropoutNd)
            and layer.training
            and layer.p > 0
        ):
            problem = "drops at random, by a draw that all records of a batch may share"
        else:
            continue
        raise ParameterError(
            f"layer {name!r} {problem}. Convert batch normalisation with to_group_norm before the public training; "
            "eval() switches dropout and the updates of statistics off."
        )
    # Two parameters on the same memory move together until one is written to.
    names = defaultdict(list)
    for name, weight in module.named_parameters(remove_duplicate=False):
        names[weight.untyped_storage().data_ptr()].append(name)
    for shared in names.values():
        if len(shared) > 1 and any(name in selection for name in shared):
            raise ParameterError(
                f"parameters {shared[0]!r} and {shared[1]!r} share their weights, which training one of them would "
                "split. Train neither, or give one a copy."
            )


def to_group_norm(module: Any, groups: int = 32) -> Any:
    """Return a copy in which group normalisation takes the place of batch normalisation, to be pre-trained then.

    Batch normalisation mixes the records of a batch and remembers statistics of what it
    has seen. Scale and shift are carried over; running statistics have no place to go,
    so the copy has to be trained on public data again. Activations no longer write over
    their input, which a converted layer may need for its gradient.

    Parameters
    ----------
    module : torch.nn.Module
        It is not changed.
    groups : int, default=32
        Number of groups; of a layer whose channels it does not divide, the largest
        smaller number that does.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    ParameterError
        If `module` is no module of torch, or `groups` not an integer of at least 1.
    """
    check_module(module)
    validate.positive_integer(groups=groups)
    return _converted(optional("torch", "torch", "torch"), deepcopy(module), groups)


def _converted(torch: Any, module: Any, groups: int) -> Any:
    if getattr(module, "inplace", False) is True:
        module.inplace = False
    if not isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        for name, child in module.named_children():
            setattr(module, name, _converted(torch, child, groups))
        return module
    channels = module.num_features
    divisor = next(
        count for count in range(min(groups, channels), 0, -1) if channels % count == 0
    )
    norm = torch.nn.GroupNorm(divisor, channels, eps=module.eps, affine=module.affine)
    if module.affine:
        norm.weight = module.weight
        norm.bias = module.bias
    return norm.train(module.training)
