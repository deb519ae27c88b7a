"""Gradients of single records, clipped and rounded to integers, a block of records at a time.

The module is called under `torch.func.vmap` on one record alone, so nothing in it can mix records. Its trained layers
are hooked: their inputs are kept, and zeros that are added to their outputs get the gradients there. A layer's
gradients follow from the two, a few records at a time, and only the trained coordinates are kept. So memory grows with
activations and trained coordinates, and not with the number of weights.

Clipped gradients become integer rows whose length is checked in exact arithmetic, so sums and sensitivities are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.errors import ParameterError
from dppl.finetune.augmentation import drawn_so_far
from dppl.finetune.selection import Selection

__all__ = ["RADIUS", "RecordGradients", "logits_of"]

# Length of the longest integer row: a gradient of the clipping norm, in steps of rounding.
RADIUS = 2**22
# So much shorter than the clipping norm a row is made that no rounding of its norm lets it be longer.
_SLACK = 2.0**-10
# Weights of one layer's gradients at a time, over all records.
_AT_A_TIME = 1 << 22
# Largest difference to a plain backward pass, as a part of the gradient's largest coordinate.
_AGREEMENT = 1e-3


class RecordGradients:
    """Clipped gradients of the cross-entropy at single records, for the trained weights of a module.

    No parameter of the module requires a gradient. `clip` is the longest gradient, over all trained weights together,
    that keeps its length; `shape` is that of one record. Rows are independent in a block of one: in larger blocks
    kernels may round a record differently in another place or company.
    """

    squared_sensitivity = Fraction(RADIUS) ** 2

    def __init__(
        self, module: Any, selection: Selection, *, clip: float, shape: tuple[int, ...], integral: bool, block: int
    ) -> None:
        self._torch = optional("torch", "torch", "torch")
        self.module, self._clip, self._block = module, clip, block
        self._device = next(module.parameters()).device
        self._dtype = self._torch.int64 if integral else self._torch.float32
        self._layers: dict[str, dict[str, Any]] = {}
        for name, places in selection.items():
            layer, _, own = name.rpartition(".")
            index = None if places is None else self._torch.from_numpy(places).to(self._device)
            self._layers.setdefault(layer, {})[own] = index
        self._order = [name.rpartition(".")[::2] for name in selection]
        self.size = sum(
            module.get_parameter(name).numel() if places is None else len(places) for name, places in selection.items()
        )
        self.n_outputs = 0
        self._shapes: list[tuple[int, ...]] = []
        self._calls: list[str] = []
        self.row_independent = block == 1
        self._try(selection, shape)

    def sum(
        self, records: NDArray[Any], codes: NDArray[np.intp], augment: Callable[[Any], None] | None
    ) -> NDArray[Any]:
        """Return the sum, int64 of shape (size,), of the integer rows of at most a block of records.

        `codes` are places of classes; `augment` changes a tensor of records in place, each by itself.
        """
        torch = self._torch
        # A block of fixed shape: what is missing stays zero, and its rows are left out.
        x = torch.zeros((self._block, *records.shape[1:]), dtype=self._dtype)
        y = torch.zeros(self._block, dtype=torch.int64)
        x[: len(records)] = torch.as_tensor(records).to(self._dtype)
        y[: len(records)] = torch.as_tensor(codes)
        if augment is not None:
            augment(x[: len(records)])
        rows = self.integers(x.to(self._device), y.to(self._device))
        sums = [columns[: len(records)].double().sum(0) for part in rows for columns in _in_parts(part)]
        return np.concatenate([part.cpu().numpy() for part in sums]).astype(np.int64)

    def integers(self, x: Any, y: Any) -> list[Any]:
        """Return integer rows of length at most `RADIUS`: gradients, clipped over all trained weights together.

        One tensor of shape (block, ...) for each parameter; float32 holds integers exactly up to 2²⁴.

        A row with NaN or infinity is zero.
        """
        torch = self._torch
        rows = self.rows(x, y)
        norm = sum(torch.linalg.vector_norm(part, dim=1).double().square() for part in rows).sqrt()
        scale = (RADIUS * (1 - _SLACK) / norm.clamp(min=self._clip)).float()[:, None]
        for part in rows:  # in place: with many trained weights this is most of the memory
            part.mul_(scale).nan_to_num_(0.0, 0.0, 0.0).clamp_(-RADIUS, RADIUS).trunc_()
        # Squares up to 2⁴⁴ and their sums up to 2⁵³ are exact in float64, and larger sums cannot come out below that.
        squared = sum(columns.double().square().sum(1) for part in rows for columns in _in_parts(part))
        short = (squared <= float(RADIUS) ** 2).float()[:, None]
        return [part.mul_(short) for part in rows]

    def rows(self, x: Any, y: Any) -> list[Any]:
        """Return the gradient of each record, unclipped: for each parameter a tensor of shape (block, trained)."""
        torch = self._torch
        zeros = [torch.zeros((), device=x.device).expand(len(x), *shape).requires_grad_() for shape in self._shapes]
        attention = import_module("torch.nn.attention")  # whose fast kernels take no single records
        with attention.sdpa_kernel(attention.SDPBackend.MATH):
            losses, inputs = torch.func.vmap(self._loss)(x, y, zeros)
        slopes = torch.autograd.grad(losses.sum(), zeros)
        found: dict[tuple[str, str], Any] = {}
        for layer, given, slope in zip(self._calls, inputs, slopes, strict=True):
            for own, part in self._of_layer(layer, given.detach(), slope).items():
                key = (layer, own)
                found[key] = found[key] + part if key in found else part
        return [found[key] for key in self._order]

    def _of_layer(self, layer: str, given: Any, slope: Any) -> dict[str, Any]:
        """Return the gradients of one call of a layer, a few records at a time, at the trained coordinates only."""
        func, module, places = self._torch.func, self.module.get_submodule(layer), self._layers[layer]
        weights = {own: module.get_parameter(own).detach() for own in places}

        def of_record(given: Any, slope: Any) -> dict[str, Any]:
            _, pull = func.vjp(lambda weights: func.functional_call(module, weights, (given,)), weights)
            (gradient,) = pull(slope)
            flat = {own: part.flatten() for own, part in gradient.items()}
            return {own: part if places[own] is None else part[places[own]] for own, part in flat.items()}

        chunk = max(1, _AT_A_TIME // sum(weight.numel() for weight in weights.values()))
        found: dict[str, Any] = func.vmap(of_record, chunk_size=min(chunk, len(given)))(given, slope)
        return found

    def _loss(self, x: Any, y: Any, zeros: list[Any]) -> tuple[Any, list[Any]]:
        """Return the loss at one record, and the inputs of the hooked layers."""
        inputs: list[Any] = []

        def keep(layer: str, args: tuple[Any, ...], output: Any) -> Any:
            inputs.append(args[0])
            return output + zeros[len(inputs) - 1]

        with self._hooked(keep):
            return self._cross_entropy(x, y), inputs

    def _cross_entropy(self, x: Any, y: Any) -> Any:
        return self._torch.nn.functional.cross_entropy(self._logits(x), y[None])

    def _logits(self, x: Any) -> Any:
        return logits_of(self.module(x[None]))

    @contextmanager
    def _hooked(self, hook: Callable[[str, tuple[Any, ...], Any], Any]) -> Iterator[None]:
        handles = [
            self.module.get_submodule(layer).register_forward_hook(
                lambda _, args, output, layer=layer: hook(layer, args, output)
            )
            for layer in self._layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _try(self, selection: Selection, shape: tuple[int, ...]) -> None:
        """Try synthetic records: that gradients are those of a plain backward pass, and that nothing is remembered."""
        torch = self._torch
        kept, self.module = self.module, _moved(self.module, selection)
        x = torch.arange(self._block * int(np.prod(shape))).reshape(self._block, *shape).to(self._device)
        x = x % 2 if self._dtype == torch.int64 else (0.7 * x).sin()
        y = torch.zeros(self._block, dtype=torch.int64, device=self._device)
        problem = None
        before, drawn = {name: buffer.clone() for name, buffer in self.module.named_buffers()}, drawn_so_far()
        try:
            self._see_layers(x[0])
            self.integers(x, y)
            if drawn_so_far() != drawn:
                problem = "it draws random numbers, which the records of a block would share"
            elif not self._agrees(x[0], y[0]):
                problem = (
                    "a trained weight is used outside its layer's own call, or the input of its layer is written over"
                )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:  # on synthetic records: nothing private
            problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        if problem is None and any(not torch.equal(before[name], b) for name, b in self.module.named_buffers()):
            problem = "it remembers what it has seen, in a buffer"
        self.module = kept
        if problem is not None:
            raise ParameterError(f"the module cannot be trained record by record on shape {shape}: {problem}.")

    def _see_layers(self, x: Any) -> None:
        """Note in what order hooked layers are called, and what shapes they return."""
        torch = self._torch

        def see(layer: str, args: tuple[Any, ...], output: Any) -> Any:
            if len(args) != 1 or not all(isinstance(value, torch.Tensor) for value in (args[0], output)):
                raise TypeError(f"layer {layer!r} must take one tensor and return one to be trained")
            self._calls.append(layer)
            self._shapes.append(tuple(output.shape))
            return output

        with self._hooked(see), torch.no_grad():
            self.n_outputs = self._logits(x).shape[-1]
        if missing := set(self._layers) - set(self._calls):
            raise ValueError(f"layer {min(missing)!r} takes no part in its output")

    def _agrees(self, x: Any, y: Any) -> bool:
        """Tell whether a plain backward pass finds the same gradient."""
        rows = self.rows(x[None], y[None])
        weights = [self.module.get_submodule(layer).get_parameter(own) for layer, own in self._order]
        for weight in weights:
            weight.requires_grad_()
        plain = self._torch.autograd.grad(self._cross_entropy(x, y), weights)
        largest = max(float(whole.abs().max()) for whole in plain)
        for (layer, own), whole, row in zip(self._order, plain, rows, strict=True):
            places = self._layers[layer][own]
            part = whole.flatten() if places is None else whole.flatten()[places]
            if not (part - row[0]).abs().max() <= _AGREEMENT * largest:
                return False
        return True


def _in_parts(rows: Any) -> Any:
    """Return a few columns at a time: sums in float64 copy what they add up."""
    return rows.split(max(1, _AT_A_TIME // len(rows)), 1)


def logits_of(output: Any) -> Any:
    """Return the logits in what a module returns, as those of transformers do, under that name."""
    return getattr(output, "logits", output).float()


def _moved(module: Any, selection: Selection) -> Any:
    """Return a copy whose trained weights lie a little elsewhere: a new head of zeros would hide the layers below."""
    module = deepcopy(module)
    for name in selection:
        weight = module.get_parameter(name)
        step = 0.05 * (1 + 0.7 * optional("torch", "torch", "torch").arange(weight.numel())).sin()
        weight.data += step.reshape(weight.shape).to(weight)
    return module
