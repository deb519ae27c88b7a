"""Which weights of a network are trained, decided from the public network alone."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl.encoders.frozen import tensors_digest
from dppl.errors import ParameterError
from dppl.kernel.lattice.stream import as_numpy

WeightKind: TypeAlias = Literal["head", "norm", "conv"]
PARTS: tuple[WeightKind, ...] = get_args(WeightKind)
# A parameter's name to the flat positions that are trained, in ascending order; None is
# all of them.
WeightSelection: TypeAlias = Mapping[str, NDArray[np.int64] | None]


def select_weights(
    module: Any,
    train: Collection[WeightKind] = PARTS,
    *,
    sparsity: float = 0.01,
    head: str | None = None,
) -> dict[str, NDArray[np.int64] | None]:
    """Choose the weights that sparse fine-tuning trains.

    Luo, Wu, Adeli, Fei-Fei (CVPR 2021), section 4.4, Procedures 1 and 2. A
    normalisation layer is one of torch, or of a class whose name ends in "Norm". Only
    weights of convolutions are among the largest, not their biases.

    Parameters
    ----------
    module : torch.nn.Module
        Public: what is chosen depends on its weights.
    train : collection of {"head", "norm", "conv"}
        Which parts: all of the head, scale and shift of all normalisation layers, and
        the largest weights of all convolutions. ``("head", "norm")`` is FiLM.
    sparsity : float, default=0.01
        Share of the convolutions' weights, above 0 and at most 1: the largest in
        magnitude over all convolutions together, rounded to a whole number and at least
        one. Of equal ones the earlier counts as larger.
    head : str, default=None
        Name of the last linear layer, where it is not the one that the module holds
        last.

    Returns
    -------
    dict of str to ndarray of int64, or None
        For each parameter that is trained the flat positions of its trained weights;
        None is all.

    Raises
    ------
    ParameterError
        If a parameter breaks its rule, or the module has no such part.
    """
    check_module(module)
    if isinstance(train, str) or not isinstance(train, Collection) or not train:
        raise ParameterError(
            f"must name parts among {', '.join(PARTS)}, as in ('head', 'norm'); got {train!r}.",
            parameter="train",
        )
    for part in train:
        validate.one_of(PARTS, train=part)
    if sparsity != 1:
        validate.open_unit(sparsity=sparsity)
    chosen: dict[str, NDArray[np.int64] | None] = {}
    if "head" in train:
        chosen |= dict.fromkeys(_parameters(module, [head_of(module, head)], "head"))
    if "norm" in train:
        torch = optional("torch", "torch", "torch")
        kinds = (
            torch.nn.modules.batchnorm._NormBase,
            torch.nn.LayerNorm,
            torch.nn.GroupNorm,
        )
        layers = [
            name
            for name, layer in module.named_modules()
            if isinstance(layer, kinds) or type(layer).__name__.endswith("Norm")
        ]
        chosen |= dict.fromkeys(_parameters(module, layers, "norm"))
    if "conv" in train:
        chosen |= _largest(module, sparsity)
    return {
        name: chosen[name] for name, _ in module.named_parameters() if name in chosen
    }


def check_module(module: Any) -> None:
    """Accept only a module of torch."""
    if not isinstance(module, optional("torch", "torch", "torch").nn.Module):
        raise ParameterError(
            f"must be the public network, a torch.nn.Module; got a {type(module).__name__}.",
            parameter="module",
        )


def head_of(module: Any, head: str | None = None) -> str:
    """Return the name of the head: the one given, or the last linear layer's."""
    check_module(module)
    torch = optional("torch", "torch", "torch")
    linear = [
        name
        for name, layer in module.named_modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    last = linear[-1] if linear else None
    if (head or last) in linear:
        return str(head or last)
    if linear:
        which = f"such as {last!r}"
    else:
        which = "which has none; leave 'head' out of train, or add one"
    raise ParameterError(
        f"must name a linear layer of the module, {which}.", parameter="head"
    )


def sizes_of(module: Any, selection: WeightSelection) -> list[int]:
    """Return the number of trained weights of each parameter."""
    return [
        _tensor(module, name).numel() if p is None else len(p)
        for name, p in selection.items()
    ]


def weights_of(module: Any, selection: WeightSelection) -> NDArray[np.float32]:
    """Return the trained weights of a module, in the order of `selection`."""
    flat = [as_numpy(_tensor(module, name)).reshape(-1) for name in selection]
    trained = [
        part if p is None else part[p]
        for part, p in zip(flat, selection.values(), strict=True)
    ]
    return np.concatenate(trained, dtype=np.float32)


def set_weights(
    module: Any, selection: WeightSelection, values: NDArray[np.float32]
) -> None:
    """Write trained weights, in the order of `selection`, to their places in a module; no other weight is touched."""
    torch = optional("torch", "torch", "torch")
    parts = np.split(values, np.cumsum(sizes_of(module, selection))[:-1])
    for (name, places), part in zip(selection.items(), parts, strict=True):
        weight = _tensor(module, name).data
        flat = weight.reshape(-1)  # a copy, where the weights do not lie in one piece
        flat[... if places is None else torch.from_numpy(places).to(weight.device)] = (
            torch.from_numpy(part).to(weight)
        )
        weight.copy_(flat.reshape(weight.shape))


def keep_filters(
    module: Any, selection: WeightSelection, values: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Give each filter of convolutions that are trained as a whole the mean and deviation that it has in the module."""
    parts = np.split(values, np.cumsum(sizes_of(module, selection))[:-1])
    for (name, places), part in zip(selection.items(), parts, strict=True):
        layer = module.get_submodule(name.rpartition(".")[0])
        if places is None and name.endswith("weight") and is_convolution(layer):
            own = (
                as_numpy(layer.weight).reshape(len(layer.weight), -1).astype(np.float64)
            )
            filters = part.reshape(own.shape)
            filters -= filters.mean(1, keepdims=True)
            deviation = filters.std(1, keepdims=True)
            filters *= np.divide(
                own.std(1, keepdims=True),
                deviation,
                out=0 * deviation,
                where=deviation > 0,
            )
            filters += own.mean(1, keepdims=True)
    return values


def is_convolutional(module: Any) -> bool:
    """Whether most weights of a module are filters of convolutions."""
    filters = [
        layer.weight.numel() for layer in module.modules() if is_convolution(layer)
    ]
    return bool(
        2 * sum(filters) > sum(weight.numel() for weight in module.parameters())
    )


def is_convolution(layer: Any) -> bool:
    """Whether a layer convolves."""
    return isinstance(
        layer, optional("torch", "torch", "torch").nn.modules.conv._ConvNd
    )


def _tensor(module: Any, name: str) -> Any:
    """Return a parameter or a buffer, such as the centre of a head."""
    layer, _, own = name.rpartition(".")
    return getattr(module.get_submodule(layer), own)


def _parameters(module: Any, layers: list[str], part: WeightKind) -> list[str]:
    """Return the parameters that the layers of a part hold themselves, by the names that the module gives them."""
    names = [
        f"{layer}.{name}".lstrip(".")
        for layer in layers
        for name, _ in module.get_submodule(layer).named_parameters(recurse=False)
        if part != "conv" or name.endswith("weight")
    ]
    if not names:
        raise ParameterError(
            f"the module has no weights of the part {part!r}; leave it out.",
            parameter="train",
        )
    return names


def _largest(module: Any, sparsity: float) -> dict[str, NDArray[np.int64] | None]:
    """Return where the largest weights of all convolutions are: one threshold, and ties by position."""
    torch = optional("torch", "torch", "torch")
    layers = [name for name, layer in module.named_modules() if is_convolution(layer)]
    names = _parameters(module, layers, "conv")
    sizes = [
        module.get_parameter(name)
        .detach()
        .abs()
        .flatten()
        .to("cpu", torch.float64)
        .numpy()
        for name in names
    ]
    every = np.concatenate(sizes)
    if not np.isfinite(every).all():
        raise ParameterError("module holds weights that are not finite.")
    # The count-th largest is the threshold; of weights equal to it, the first are taken
    # until there are `count`.
    count = max(1, round(sparsity * len(every)))
    threshold = np.partition(every, len(every) - count)[len(every) - count]
    taken = every > threshold
    taken[np.flatnonzero(every == threshold)[: count - int(taken.sum())]] = True
    masks = np.split(taken, np.cumsum([len(size) for size in sizes])[:-1])
    taken_of = [
        (name, mask) for name, mask in zip(names, masks, strict=True) if mask.any()
    ]
    return {
        name: None if mask.all() else np.flatnonzero(mask) for name, mask in taken_of
    }


def module_digest(module: Any) -> str:
    """Return the SHA-256 of the weights and buffers of a module, with their names."""
    return tensors_digest("", module.state_dict().items())
