"""The gradient of a network as a query: the one file of `dppl.finetune` that holds private records.

The module is called under `torch.func.vmap` on one record alone, so nothing in it can
mix records. Its trained layers are watched: as soon as the backward pass has the slope
at the output of one, the gradients of its trained coordinates follow from the slope and
from what it was given (`backward`), and the slope is forgotten. So memory grows with
activations and trained coordinates, and not with the number of weights.
"""

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dppl._utils.optional import optional
from dppl.encoders.frozen import exact_products
from dppl.errors import InputError, ParameterError, WeakBudgetWarning
from dppl.finetune.backward import add_gradients, freeze_normalisation, watch
from dppl.finetune.schedule import statistic_of
from dppl.finetune.weights import WeightSelection, is_convolution, set_weights, sizes_of
from dppl.kernel import reading
from dppl.kernel.checking import are_known, refuse_unusable_records
from dppl.kernel.lattice.joint import Persons
from dppl.kernel.lattice.stream import as_numpy, is_tensor
from dppl.kernel.measure import Calibrated, Measure
from dppl.kernel.mechanisms import Randomness, RoundedGaussian, SampledGaussian
from dppl.kernel.persons import are_missing, entered, ids_of_fit, person_codes
from dppl.kernel.privacy import Budget, GaussianDP
from dppl.kernel.privacy.rounding import root_below
from dppl.kernel.privacy.sensitivity import RADIUS
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import ADD_REMOVE, OwnAnswer, shaped
from dppl.kernel.reading import Codes, UnknownLabels
from dppl.kernel.records import HeldRecords, Records

# Rows are scaled this much shorter than the radius, so that rounding makes none of them
# too long.
_SLACK = 2.0**-10
# Numbers of rows that are rounded or added up at a time; so many of float64 stay in the
# cache of a core.
_CHUNK = 1 << 17
# Largest difference from a plain backward pass, relative to the gradient's largest
# coordinate.
_TOLERANCE = 1e-3


def noise_within(
    budget: Budget, times: int, sampling_rate: float, mu: float = 0.0
) -> RoundedGaussian | SampledGaussian:
    """Return the least noise of so many steps within a budget, of which other releases cost `mu`."""
    squared_norm = Fraction(RADIUS**2)
    if sampling_rate < 1:
        return SampledGaussian.within(budget, squared_norm, times, sampling_rate, mu)
    if mu:
        budget = GaussianDP(
            root_below(
                Fraction(budget.gaussian_allowance().mu) ** 2 - Fraction(mu) ** 2
            )
        )
    return RoundedGaussian.within(budget, squared_norm, times)


class NetworkGradients(OwnAnswer):
    """The sum over records of the clipped gradient of the cross-entropy in the trained weights of a network.

    **Reach.** Let g be the gradient at one record in all trained weights jointly, C the
    clip and R = 2²². The record adds the integer row q = round(g·r/max(‖g‖, C)) with r
    = R·(1 - 2⁻¹⁰). Its length is not left to floats: a coordinate is a float32 of 24
    bits, so its square is exact in float64. So is a sum of them below 2⁵³, and as no
    term is negative, a longer sum cannot come out below that. A row for which Σq² ≤ R²
    does not come out true, as with a coordinate that is not a number, becomes zero. So
    ‖q‖ ≤ R whatever the network computes, sums of rows are exact integers, and one
    record that is added or removed moves the sum by R at most, if the rows of all
    others stay what they were.

    They do: the network sees each record alone (`vmap`), in blocks of a fixed shape. In
    blocks of more than one a kernel may still round a record differently in another
    batch, which the statement names; ``block=1`` rules it out.

    With `sampling_rate` below 1 each ask sums over a new Poisson sample: a record is in
    it by 32 separate fair coins.

    **Persons.** The rows of a person add up to an integer vector S, in float64 without
    rounding. The person adds trunc(S·w) with w ≤ R/‖S‖, and zero if that is not at most
    R long, by the check above. Below that limit m equal rows count as one
    (`dppl.kernel.lattice.joint`). Coins are tossed for persons.

    `clip` is the longest gradient that keeps its length; `shape` is a record's,
    `integral` says that records hold whole numbers, and `mu` what is released besides,
    within the same budget. An ask is at the values of all that is `kept`: the trained
    weights, and what others may set. The module is copied, with weights of this
    `precision`. Rows are float32 in each, so the sensitivity does not depend on it, nor on
    `keep_filters`, which is for gradients.
    """

    needs_rows = True
    whole_persons = True

    def __init__(
        self,
        module: Any,
        selection: WeightSelection,
        *,
        clip: float,
        shape: tuple[int, ...],
        integral: bool = False,
        block: int = 32,
        sampling_rate: float = 1.0,
        mu: float = 0.0,
        kept: WeightSelection | None = None,
        precision: str = "float32",
        keep_filters: bool = False,
    ) -> None:
        self._torch = optional("torch", "torch", "torch")
        kind = getattr(self._torch, precision)
        self.module = deepcopy(module).requires_grad_(False).to(kind)
        self.selection = selection
        self._kept = selection if kept is None else kept
        self.sampling_rate = sampling_rate
        self._clip = clip
        self._block = block
        self._mu = mu
        self._device = next(self.module.parameters()).device
        self._dtype = self._torch.int64 if integral else kind
        freeze_normalisation(self._torch, self.module)
        # Trained positions by layer and parameter, and which part of a row they have.
        self._layers: dict[str, dict[str, Any]] = {}
        self._parts: dict[str, dict[str, slice]] = {}
        self.size = 0  # number of trained weights
        for (name, places), length in zip(
            selection.items(), sizes_of(self.module, selection), strict=True
        ):
            layer, _, own = name.rpartition(".")
            index = None
            if places is not None:
                index = self._torch.from_numpy(places).to(self._device)
            self._layers.setdefault(layer, {})[own] = index
            self._parts.setdefault(layer, {})[own] = slice(
                self.size, self.size + length
            )
            self.size += length
        self._filters = [
            layer
            for layer, places in self._layers.items()
            if keep_filters
            and is_convolution(self.module.get_submodule(layer))
            and places.get("weight", 0) is None
        ]
        self.n_outputs = 0  # which the trial learns
        self.row_independent = block == 1
        self._try(shape)

    @property
    def statistic(self) -> Term[Statistic]:
        """The sum, with the number of weights."""
        return statistic_of(self.size)

    @property
    def unit(self) -> float:
        """The length of a gradient of length 1."""
        return RADIUS / self._clip

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> RoundedGaussian | SampledGaussian:
        """Return the noise; sums over samples have their own accounting."""
        if relation != ADD_REMOVE:
            raise ParameterError(
                "gradients of networks are accounted under add-remove only"
            )
        return noise_within(budget, times, self.sampling_rate, self._mu)

    def answer(
        self, mechanism: Any, records: Records, source: Randomness, *, weights: Any
    ) -> NDArray[np.int64]:
        """Return the sum at these trained weights with noise, over a new sample."""
        assert isinstance(records, HeldRecords)  # needs_rows says so
        taken = None
        if isinstance(mechanism, SampledGaussian):
            whose = records.persons
            if whose is None:
                n_units = len(records.codes)
            else:
                n_units = int(whose.numbers.max(initial=-1)) + 1
            taken = mechanism.sample(n_units, source)
            mechanism = mechanism.each
            if whose is not None:
                taken = taken[whose.numbers]
        exact = self.exact_sum(records, weights=weights, taken=taken)
        released: NDArray[np.int64] = mechanism.release(exact, source)
        return released

    def exact_sum(
        self, records: Records, *, weights: Any, taken: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return the sum over the records that are taken, all by default."""
        assert isinstance(records, HeldRecords)
        size = sum(sizes_of(self.module, self._kept))
        set_weights(
            self.module, self._kept, shaped("weights", weights, size).astype(np.float32)
        )
        inputs: Any = records.rows
        included = records.codes >= 0
        if taken is not None:
            included = included & taken
        if records.persons is not None:
            return self._sum_of_persons(records, included)
        places = np.flatnonzero(included)
        total = np.zeros(self.size, np.int64)
        for start in range(0, len(places), self._block):
            part = places[start : start + self._block]
            total += self.block_sum(inputs[part], records.codes[part])
        return total

    def _sum_of_persons(
        self, records: HeldRecords, included: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return the sum over persons of what all of their records add, clipped as one record is."""
        assert records.persons is not None
        inputs: Any = records.rows
        numbers = records.persons.numbers
        order = Persons.of(included, numbers).order
        last = np.diff(numbers[order], append=-1) != 0
        total = np.zeros(self.size, np.int64)
        joint = np.zeros(self.size)
        own = 0
        for start in range(0, len(order), self._block):
            part = order[start : start + self._block]
            rows = self._block_rows(inputs[part], records.codes[part])
            for row, ends in zip(
                rows[: len(part)], last[start : start + len(part)].tolist(), strict=True
            ):
                row = row.double().cpu().numpy()
                joint += row  # integers below 2⁵³
                own += int(row @ row)
                if ends:
                    total += _shortened(joint, own)
                    joint = np.zeros(self.size)
                    own = 0
        return total

    def block_sum(self, inputs: NDArray[Any], codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the sum of the integer rows of at most a block of records."""
        rows = self._block_rows(inputs, codes)
        n = len(inputs)
        # Sums of fewer than 2³¹ integers below 2²² are exact in float64.
        sums = [columns[:n].double().sum(0) for columns in _column_chunks(rows)]
        return np.concatenate([part.cpu().numpy() for part in sums]).astype(np.int64)

    def _block_rows(self, inputs: NDArray[Any], codes: NDArray[Any]) -> Any:
        """Return the integer rows of a block; beyond its records they hold nothing of use."""
        y = self._torch.zeros(self._block, dtype=self._torch.int64)
        y[: len(inputs)] = self._torch.as_tensor(codes)
        return self.integers(self._padded(inputs), y.to(self._device))

    def _padded(self, inputs: NDArray[Any]) -> Any:
        """Return a block of fixed shape: places without a record stay zero, and their rows are not used."""
        x = self._torch.zeros((self._block, *inputs.shape[1:]), dtype=self._dtype)
        x[: len(inputs)] = self._torch.as_tensor(inputs).to(self._dtype)
        return x.to(self._device)

    def integers(self, x: Any, y: Any) -> Any:
        """Return the integer row of each record, shape (block, size), as float32, which holds integers up to 2²⁴."""
        torch = self._torch
        rows = self.rows(x, y)
        for layer in self._filters:
            self._spare(layer, rows)
        lengths = [
            torch.linalg.vector_norm(columns, dim=1, keepdim=True).double()
            for columns in _column_chunks(rows)
        ]
        norm = torch.linalg.vector_norm(torch.cat(lengths, 1), dim=1, keepdim=True)
        scale = (RADIUS * (1 - _SLACK) / norm.clamp(min=self._clip)).float()
        squared = torch.zeros_like(norm)
        for columns in _column_chunks(
            rows
        ):  # in place: with many trained weights this is most of the memory
            columns.mul_(scale).round_()  # trunc_ takes ten times as long
            squared += columns.double().square_().sum(1, keepdim=True)
        # The exact check on which the sensitivity rests: a row that is too long, or holds
        # what is no number, becomes zero.
        return rows.index_fill_(
            0, (~(squared <= float(RADIUS) ** 2)).nonzero()[:, 0], 0.0
        )

    def _spare(self, layer: str, rows: Any) -> None:
        """Take out of gradients what moves means and deviations of filters, so that the clip is not spent on it."""
        filters = self.module.get_submodule(layer).weight.flatten(1).float()
        filters = self._torch.nn.functional.normalize(
            filters - filters.mean(1, keepdim=True)
        )
        own = rows[:, self._parts[layer]["weight"]].view(len(rows), *filters.shape)
        own -= own.mean(2, keepdim=True)
        own -= (own * filters).sum(2, keepdim=True) * filters

    def features(
        self, inputs: NDArray[Any], layer: str, weights: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return what a layer is given for each record at these trained weights, shape (n, width); private."""
        torch = self._torch
        seen = list[Any]()
        set_weights(self.module, self._kept, weights)

        def of_one(x: Any) -> Any:
            seen.clear()
            self.module(x[None])
            (given,) = seen
            return given[0]

        # First of all hooks: one of a head centres what it is given.
        watched = self.module.get_submodule(layer).register_forward_pre_hook(
            lambda _, args: seen.append(args[0]), prepend=True
        )
        blocks = [
            np.empty((0, self.module.get_submodule(layer).in_features), np.float32)
        ]
        with watched, torch.no_grad(), self._exact_kernels():
            for start in range(0, len(inputs), self._block):
                part = inputs[start : start + self._block]
                found = torch.func.vmap(of_one)(self._padded(part))[: len(part)]
                blocks.append(found.float().cpu().numpy())
        return np.concatenate(blocks)

    def rows(self, x: Any, y: Any) -> Any:
        """Return the gradient of each record, unclipped, shape (block, size)."""
        torch = self._torch
        rows = torch.zeros(len(x), self.size, device=x.device)

        def loss(x: Any, y: Any, zeros: Any) -> Any:
            def see(layer: str, args: tuple[Any, ...], output: Any) -> Any:
                return watch(
                    torch, args[0], output, zeros, partial(self._add, rows, layer)
                )

            with self._hooked(see):
                return self._cross_entropy(x, y)

        if (
            x.dim() == 4 and x.dtype == torch.float32
        ):  # images, which convolutions take faster with channels last
            x = x.to(memory_format=torch.channels_last)
        with self._exact_kernels():
            losses = torch.func.vmap(loss)(
                x, y, torch.zeros(len(x), device=x.device, requires_grad=True)
            )
            # Losses are of one record each, so the slopes of their sum are the slopes
            # of each record.
            losses.sum().backward()
        return rows

    def _add(self, rows: Any, layer: str, given: Any, slope: Any) -> None:
        """Add the gradients of one call of a layer; one that is called twice adds twice."""
        module = self.module.get_submodule(layer)
        places = self._layers[layer]
        parts = {own: rows[:, part] for own, part in self._parts[layer].items()}
        add_gradients(self._torch, module, places, given, slope, parts)

    @contextmanager
    def _exact_kernels(self) -> Iterator[None]:
        attention = import_module("torch.nn.attention")
        # The fast kernels of attention do not run under vmap.
        with (
            exact_products(self._torch, self._device.type),
            attention.sdpa_kernel(attention.SDPBackend.MATH),
        ):
            yield

    def _cross_entropy(self, x: Any, y: Any) -> Any:
        return self._torch.nn.functional.cross_entropy(
            logits_of(self.module(x[None])), y[None]
        )

    @contextmanager
    def _hooked(
        self, hook: Callable[[str, tuple[Any, ...], Any], Any]
    ) -> Iterator[None]:
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

    def _try(self, shape: tuple[int, ...]) -> None:
        """Try synthetic records: gradients must be as in a plain backward pass, and nothing may be remembered."""
        torch = self._torch
        # A copy with moved weights: a new head of zeros would hide the layers below it.
        own = self.module
        self.module = deepcopy(self.module)
        for name in self.selection:
            weight = self.module.get_parameter(name)
            step = 0.05 * (1 + 0.7 * torch.arange(weight.numel())).sin()
            weight.data += step.reshape(weight.shape).to(weight)
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        generators = _generators()
        try:
            x = (
                torch.arange(self._block * int(np.prod(shape)))
                .reshape(self._block, *shape)
                .to(self._device)
            )
            if self._dtype == torch.int64:
                x = x % 2
            else:
                x = (0.7 * x).sin().to(self._dtype)
            y = torch.zeros(self._block, dtype=torch.int64, device=self._device)
            self._see_layers(x[0])
            self.integers(x, y)
            if _generators() != generators:
                raise ValueError(
                    "it draws random numbers, which the records of a block would share"
                )
            if any(
                not torch.equal(buffers[name], buffer)
                for name, buffer in self.module.named_buffers()
            ):
                raise ValueError("it remembers what it has seen, in a buffer")
            self.module.float()  # bfloat16 is too coarse for the comparison, and the rules are the same
            self._compare_with_backward(
                x[0] if self._dtype == torch.int64 else x[0].float(), y[0]
            )
        except (
            RuntimeError,
            TypeError,
            ValueError,
            IndexError,
        ) as error:  # on synthetic records: nothing private
            problem = str(error).partition("\n")[0]
            raise ParameterError(
                f"the module cannot be trained record by record on shape {shape}: {problem}."
            ) from None
        self.module = own

    def _see_layers(self, x: Any) -> None:
        """Note how many logits there are, and see that each trained layer is called with one tensor and returns one."""
        torch = self._torch
        called = set[str]()

        def see(layer: str, args: tuple[Any, ...], output: Any) -> Any:
            if len(args) != 1 or not all(
                isinstance(value, torch.Tensor) for value in (args[0], output)
            ):
                raise TypeError(
                    f"layer {layer!r} must take one tensor and return one to be trained"
                )
            called.add(layer)
            return output

        with self._hooked(see), torch.no_grad():
            self.n_outputs = logits_of(self.module(x[None])).shape[-1]
        if missing := set(self._layers) - called:
            raise ValueError(f"layer {min(missing)!r} takes no part in its output")

    def _compare_with_backward(self, x: Any, y: Any) -> None:
        """Compare the gradient at one record with a plain backward pass, which knows of no layers."""
        row = self.rows(x[None], y[None])[0]
        weights = [
            self.module.get_parameter(name).requires_grad_() for name in self.selection
        ]
        with exact_products(self._torch, self._device.type):
            plain = [
                part.flatten()
                for part in self._torch.autograd.grad(
                    self._cross_entropy(x, y), weights
                )
            ]
        largest = max(float(part.abs().max()) for part in plain)
        for name, whole in zip(self.selection, plain, strict=True):
            layer, _, own = name.rpartition(".")
            index = self._layers[layer][own]
            part = row[self._parts[layer][own]]
            difference = (whole if index is None else whole[index]) - part
            if not difference.abs().max() <= _TOLERANCE * largest:  # or not a number
                raise ValueError(
                    "a trained weight is used outside its layer's own call, or the input of its layer is written over"
                )


class PrivateRecords:
    """Private records with their labels, checked by shapes and types, which are public.

    They are read only when `counter` opens access to them. `recode` changes the codes
    of the classes.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        classes: NDArray[Any],
        unknown_labels: UnknownLabels | Literal["strict"],
        recode: Callable[[Codes], Codes] | None = None,
        groups: Any = None,
    ) -> None:
        self.inputs = as_inputs(X)
        self.ids = ids_of_fit(groups, self.inputs, None)
        self.labels = reading.as_labels(y, self.inputs)
        reading.check_kind(self.labels, classes)
        # Of one record; both are public.
        self.shape = self.inputs.shape[1:]
        self.integral = self.inputs.dtype.kind in "iu"
        self._classes = classes
        self._unknown_labels = unknown_labels
        self._recode = recode

    def counter(
        self,
        measurements: Mapping[str, Calibrated],
        random_state: int | None,
        used: int,
    ) -> Measure:
        """Read the labels, and open access to the gradients; `used` says how many asks are spent."""
        unknown: UnknownLabels = (
            "ignore" if self._unknown_labels == "ignore" else "error"
        )
        codes = reading.class_codes(self.labels, self._classes, unknown)
        if (
            self._recode is not None
        ):  # each code by itself, so one record changes no other
            codes = self._recode(codes)
        records = HeldRecords(self.inputs, codes)
        if self.ids is not None:
            numbers = person_codes(self.ids)
            records = entered(records, numbers, len(self._classes), None, whole=True)
        return Measure(
            measurements, records, random_state, dict.fromkeys(measurements, used)
        )

    def fit_head(
        self,
        model: Any,
        network: NetworkGradients,
        layer: str,
        weights: NDArray[np.float32],
    ) -> None:
        """Fit a model on what a layer is given for these records."""
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", WeakBudgetWarning
            )  # of a part of the budget
            model.fit(
                network.features(self.inputs, layer, weights),
                self.labels,
                groups=self.ids,
            )

    def refuse_unusable(self) -> None:
        """Stop a strict fit at a number that is not finite or a label that is not in the list."""
        if self._unknown_labels == "strict":
            usable = np.array(
                [np.isfinite(record).all() for record in self.inputs], bool
            )
            usable &= are_known(self.labels, self._classes)
            if self.ids is not None:
                usable &= ~are_missing(self.ids)
            refuse_unusable_records(int(usable.sum()), len(usable))


def as_inputs(X: Any) -> NDArray[Any]:
    """Return records as an array of numbers whose first axis counts them. Messages show no value."""
    try:
        records = as_numpy(X) if is_tensor(X) else np.asarray(X)
    except Exception:
        records = np.empty(0)  # refused below, without an exception that quotes values
    if (
        records.ndim < 2
        or records.dtype.kind not in "fiub"
        or records.dtype.char == "g"
        or 0 in records.shape[1:]
    ):
        raise InputError(
            "X must be an array of numbers of shape (n_records, ...), all records of one shape."
        )
    return records.astype(records.dtype.newbyteorder("="), copy=False)


def logits_of(output: Any) -> Any:
    """Return the logits in what a module returns: models of transformers keep them under that name."""
    return getattr(output, "logits", output).float()


def _generators() -> tuple[Any, ...]:
    """Return the states of the global generators of Python and NumPy, which a draw changes; vmap refuses torch's."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes(), state[2:]


def _shortened(joint: NDArray[np.float64], own: int) -> NDArray[np.int64]:
    """Return what a person adds, from the sum of their rows and the sum of the squares of these."""
    squared = float(joint @ joint)
    share = 1.0
    if squared:
        share = min(1.0, own / squared, RADIUS * (1 - 1e-9) / math.sqrt(squared))
    added = np.trunc(joint * share)
    # As of a single record: exact below 2⁵³, and not below what is longer.
    if np.square(added).sum() <= float(RADIUS) ** 2:
        return added.astype(np.int64)
    return np.zeros(len(added), np.int64)


def _column_chunks(rows: Any) -> Any:
    """Split rows into a few columns at a time: a sum in float64 copies what it adds up."""
    return rows.split(max(1, _CHUNK // len(rows)), 1)
