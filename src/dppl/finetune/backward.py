"""Per-record gradients with respect to the trained weights of one layer.

The first axis of every array is that of records; nothing here sums over it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

# Bytes of a chunk of records: what stays in the cache of a core.
_CHUNK = 1 << 20

# From the input of a layer and the slope (the gradient at its output), both of shape
# (n, ...), to the gradients of its parameters, (n, size).
BackwardRule: TypeAlias = Callable[[Any, Any], dict[str, Any]]


def watch(
    torch: Any, given: Any, output: Any, zeros: Any, keep: Callable[[Any, Any], None]
) -> Any:
    """Have the backward pass call `keep(given, slope)` with the input of a layer and the slope at its output.

    This runs under vmap, where a tensor of one record wraps the tensor of all: the
    latter is kept and hooked. `zeros` holds a zero for each record, which requires a
    gradient. Returns the output to pass on.
    """
    functorch = torch._C._functorch

    def whole(wrapped: Any) -> Any:
        place = functorch.maybe_get_bdim(wrapped)
        if place < 0:  # the same for all records
            return wrapped.expand(len(whole(zeros)), *wrapped.shape)
        return functorch.get_unwrapped(wrapped).movedim(place, 0)

    hooked = whole(output)
    if (
        not hooked.requires_grad
    ):  # nor does any earlier weight: the backward pass ends here
        hooked = whole(output := output + zeros)
    # A view loses its hook when it is overwritten in place; its base does not.
    base = hooked if hooked._base is None else hooked._base
    shape = hooked.shape
    if not _in_same_order(base, hooked):
        base = whole(output := output + 0)
    held = [whole(given).detach()]  # until the backward pass has used it
    base.register_hook(lambda slope: keep(held.pop(), slope.reshape(shape)))
    return output


def _in_same_order(base: Any, view: Any) -> bool:
    """Whether a view holds every element of its base, in an order that `reshape` keeps."""
    if view.numel() != base.numel():
        return False
    if view.is_contiguous() and base.is_contiguous():
        return True
    return _steps(view) == _steps(base)


def _steps(tensor: Any) -> list[tuple[int, int]]:
    """Return size and stride of each axis that has more than one place."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return [(size, stride) for size, stride in axes if size > 1]


def add_gradients(
    torch: Any,
    layer: Any,
    places: Mapping[str, Any],
    given: Any,
    slope: Any,
    rows: Mapping[str, Any],
) -> None:
    """Add the per-record gradients of one call of a layer to `rows`, for each parameter of shape (n, trained).

    `places` holds the flat positions of each parameter that are trained; None is all.
    Records are processed in chunks.
    """
    size = max(
        given[0].numel(), sum(layer.get_parameter(own).numel() for own in places)
    )
    rule: BackwardRule = partial(_by_vjp, torch, layer, places)
    if type(layer) is torch.nn.Linear:
        rule = partial(_of_linear, torch, layer, places)
    elif "forward" in vars(layer) and len(given[0]) == 1:
        rule = partial(_of_frozen, torch, layer, places)
    elif _is_plain_convolution(torch, layer, given):
        rule, size = _of_convolution(torch, layer, places, given, slope)
    step = max(1, _CHUNK // (size * given.element_size()))
    for start in range(0, len(given), step):
        part = slice(start, start + step)
        for own, gradient in rule(given[part], slope[part]).items():
            rows[own][part] += gradient


def _by_vjp(
    torch: Any, layer: Any, places: Mapping[str, Any], given: Any, slope: Any
) -> dict[str, Any]:
    """Run the layer again for each record, and pull its gradient back (VJP): for layers of any kind."""
    func = torch.func
    weights = {own: layer.get_parameter(own).detach() for own in places}

    def one_record(given: Any, slope: Any) -> dict[str, Any]:
        _, pull = func.vjp(
            lambda weights: func.functional_call(layer, weights, (given,)), weights
        )
        (gradient,) = pull(slope)
        return {
            own: _taken(part.flatten(), places[own]) for own, part in gradient.items()
        }

    gradients: dict[str, Any] = func.vmap(one_record)(given, slope)
    return gradients


def _of_linear(
    torch: Any, layer: Any, places: Mapping[str, Any], given: Any, slope: Any
) -> dict[str, Any]:
    n = len(given)
    found = dict[str, Any]()
    slope = slope.reshape(n, -1, layer.out_features)
    if "weight" in places:
        products = torch.bmm(
            slope.transpose(1, 2), given.reshape(n, -1, layer.in_features)
        )
        found["weight"] = _taken(products.flatten(1), places["weight"])
    if "bias" in places:
        found["bias"] = _taken(slope.sum(1), places["bias"])
    return found


def _of_frozen(
    torch: Any, layer: Any, places: Mapping[str, Any], given: Any, slope: Any
) -> dict[str, Any]:
    given, slope = (
        tensor.reshape(len(given), layer.num_features, -1) for tensor in (given, slope)
    )
    shift = slope.sum(2, dtype=torch.float32)
    scale = (given * slope).sum(2, dtype=torch.float32) - layer.running_mean * shift
    scale *= (layer.running_var + layer.eps).rsqrt()
    return {
        own: _taken({"weight": scale, "bias": shift}[own], index)
        for own, index in places.items()
    }


def _is_plain_convolution(torch: Any, layer: Any, given: Any) -> bool:
    """Whether a layer is an ungrouped 2D convolution with zero padding, of one image a record."""
    return (
        type(layer) is torch.nn.Conv2d
        and (layer.groups, layer.padding_mode) == (1, "zeros")
        and not isinstance(layer.padding, str)
        and given.shape[1:-3].numel() == 1
    )


def _of_convolution(
    torch: Any, layer: Any, places: Mapping[str, Any], given: Any, slope: Any
) -> tuple[BackwardRule, int]:
    """Return the rule, and how many numbers it holds for a record.

    The filter weight at (channel, i, j) multiplies one window of the padded image, as
    large as the output. Its gradient is the inner product of the slope with that
    window; only the windows of trained weights are taken.
    """
    n_columns = layer.weight[0].numel()
    height, width = layer.kernel_size
    trained = places.get("weight")
    columns = torch.arange(n_columns, device=given.device)
    picked = None
    if trained is not None:
        columns, within = torch.unique(trained % n_columns, return_inverse=True)
        picked = within * layer.out_channels + trained // n_columns
    # Offsets and strides of the windows in the padded image, which is contiguous.
    inside = [
        slice(start, start + size)
        for start, size in zip(layer.padding, given.shape[-2:], strict=True)
    ]
    rows, across = (
        size + 2 * padding
        for size, padding in zip(given.shape[-2:], layer.padding, strict=True)
    )
    i = columns // width % height
    j = columns % width
    starts = (
        columns // (height * width) * rows + i * layer.dilation[0]
    ) * across + j * layer.dilation[1]
    steps = (layer.stride[0] * across, layer.stride[1])
    sizes = slope.shape[-2:]
    last = sum(step * (size - 1) for step, size in zip(steps, sizes, strict=True))

    def rule(given: Any, slope: Any) -> dict[str, Any]:
        n = len(given)
        found = dict[str, Any]()
        slope = slope.reshape(n, layer.out_channels, -1)
        if "weight" in places:
            # One copy, where `pad` would make one with channels last and another in
            # this order.
            image = given.new_zeros(n, layer.in_channels, rows, across)
            image[(..., *inside)] = given.reshape(n, *given.shape[-3:])
            windows = image.as_strided((image.numel() - last, *sizes), (1, *steps))
            begin = (
                image[0].numel() * torch.arange(n, device=given.device)[:, None]
                + starts
            )
            taken = windows.index_select(0, begin.flatten()).view(n, len(starts), -1)
            # `bmm` is faster with the longer factor first.
            if picked is None:
                left, right = slope, taken
            else:
                left, right = taken, slope
            found["weight"] = _taken(
                torch.bmm(left, right.transpose(1, 2)).flatten(1), picked
            )
        if "bias" in places:
            found["bias"] = _taken(slope.sum(2), places["bias"])
        return found

    return rule, len(columns) * sizes.numel()


def _taken(gradient: Any, places: Any) -> Any:
    """Take trained positions along the last axis."""
    if places is None:
        return gradient
    return gradient.index_select(-1, places)


def freeze_normalisation(torch: Any, module: Any) -> None:
    """Make batch normalisation with frozen statistics one multiply-add, under vmap and in the backward pass."""
    kinds = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    for layer in module.modules():
        if type(layer) in kinds and not layer.training and layer.track_running_stats:
            layer.forward = partial(_normalised, layer)


def _normalised(layer: Any, x: Any) -> Any:
    scale = (layer.running_var + layer.eps).rsqrt()
    shift = -layer.running_mean * scale
    if layer.affine:
        scale = scale * layer.weight
        shift = shift * layer.weight + layer.bias
    shape = (-1, *[1] * (x.dim() - 2))
    return shift.view(shape).addcmul(x, scale.view(shape))
