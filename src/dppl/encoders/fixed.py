"""Row independence: batches of fixed shapes, and a trial that shows whether they keep rows independent.

How a processor rounds a sum depends on the shape of the arrays, so in a batch of
varying size, or one padded to its longest text, a record would move the embeddings of
its neighbours by a rounding step, and the sensitivity that a guarantee rests on would
not hold. Here an example alone decides the shape of the batch that it is computed in:

* a batch of one shape has a full number of rows, or on a CPU a smaller power of two
  where that was tried and changed no bit, so that a single item costs little; what is
  missing is filled up with a copy of a row;
* the shape of a text follows from its number of tokens, rounded up
  (`dppl.encoders.tokens`);
* a batch is computed by one thread, and several batches at once, so the number of
  processors changes nothing;
* a long text is several pieces (`dppl.encoders.windows`), each computed as a text by
  itself, and their mean is taken text by text, in one order.

What is left is that a kernel might treat the places of a batch differently, or a model
remember what it has seen. `FixedShapeEncoder` tries that on synthetic rows when it is
made. Equal bits make it row independent. A difference in rounding makes it not so,
which tables then say. A larger one means that the model mixes its rows, as batch
normalisation in training mode or a quantisation of the whole batch does, and is
refused. So is a model that computes the same batch differently later.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from dppl._utils import validate
from dppl._utils.fingerprint import Fingerprint as Fingerprint
from dppl._utils.progress import progress
from dppl._utils.types import Array, Float, Float32
from dppl.encoders import trials
from dppl.encoders.windows import TextWindows
from dppl.errors import Argument, InputError, ParameterError

_ROUNDING = {
    "float32": 1e-4,
    "float16": 1e-2,
}  # it moves a row by no larger part of its largest coordinate
_TINY = np.finfo(np.float32).tiny
_MAX_WORKERS = 16  # each holds the activations of one batch
# From a shape, what is computed together in it (an item, and the number of its piece),
# and how that is done, to embeddings: computed now, or known.
Recall: TypeAlias = Callable[
    [Hashable, Sequence[tuple[int, int]], Callable[[], Float32]], Float32
]


@runtime_checkable
class Encoder(Protocol):
    """A frozen public encoder.

    Attributes
    ----------
    modality : str
        ``"image"`` or ``"text"``.
    dimension : int
        Length of an embedding.
    batch_rows : int
        Images that are computed at once; of texts, that many of 16 tokens, and of
        longer ones in proportion fewer.
    window : int
        Number of items that keep all processors busy in one call; no embedding depends
        on it.
    fingerprint : Fingerprint
    """

    modality: str
    dimension: int
    batch_rows: int
    window: int
    fingerprint: Fingerprint

    def prepare(self, item: Any) -> Any:
        """Turn one decoded RGB image of Pillow, or one str, into the model's input for it; threads may do this."""

    def encode_prepared(
        self, batch: Sequence[Any], progress: Callable[[int], object] | None = None
    ) -> Float32:
        """Return the embeddings, shape (len(batch), dimension), of what `prepare` returned.

        Parameters
        ----------
        batch : sequence
            What `prepare` returned, an item a record.
        progress : callable, default=None
            Called with the number of items that were finished since the last call.
        """

    def encode(self, batch: Sequence[Any]) -> Float32:
        """Return the embeddings, shape (len(batch), dimension), of images or texts."""


def check_batch(batch: Any) -> None:
    """Refuse one text or file where several are asked for: it is a sequence of characters, too."""
    if isinstance(batch, str | bytes):
        raise InputError(
            f"must be a sequence of images or texts; got one {type(batch).__name__}; put it into a list.",
            parameter="batch",
        )


@dataclass(kw_only=True)
class Adapter(ABC):
    """A frozen model: one item to an input, and a batch of a fixed shape to embeddings."""

    modality: ClassVar[str]
    library: str  # this and the next six are as in `Fingerprint`
    weights: str
    preprocessing: str
    pooling: str
    versions: str
    dtype: str = "float32"
    device: str = "cpu"
    prepare: Callable[
        [Any], Any
    ]  # one image or text to what `pieces` takes; raises where that fits no batch
    compute: Callable[
        [dict[str, Array]], Float32
    ]  # arrays of a full batch, by name, to embeddings
    batch_rows: int  # what to try if the user does not say
    only_rows: int | None = None  # the number of rows, of a model that takes no other
    # from a number of threads to a context of threads that compute batches
    pool: Callable[[int], AbstractContextManager[ThreadPoolExecutor]] = (
        ThreadPoolExecutor
    )
    state: Callable[[], str] = (
        str  # a digest of what the model could remember by; "" where that is nothing
    )
    # options of the URI by which a model of images loads its part for texts, if it has
    # one
    for_texts: Mapping[str, str] = field(default_factory=dict)

    @abstractmethod
    def shape_of(self, prepared: Any) -> Hashable:
        """Return the shape of the batch that a piece is computed in, by which `rows` and `forward` know it."""

    @abstractmethod
    def shapes(self) -> Sequence[Hashable]:
        """Return all shapes, the one that needs most memory first."""

    @abstractmethod
    def synthetic(self, shape: Any, count: int) -> list[Any]:
        """Return inputs of one shape that differ."""

    @abstractmethod
    def forward(self, inputs: Sequence[Any], shape: Any) -> Float32:
        """Embed a full batch."""

    def pieces(self, prepared: Any) -> Sequence[tuple[Any, float]]:
        """Return what an item is embedded as, each piece with its weight in the mean."""
        return [(prepared, 1.0)]

    def rows(self, shape: Any, batch_rows: int) -> int:
        """Return the number of rows in a batch of a shape."""
        return batch_rows

    def batch(self, batch_rows: int) -> str:
        """Describe the shapes of batches."""
        return f"{batch_rows} rows"


class FixedShapeEncoder:
    """An `Encoder` that computes rows in batches of fixed shapes.

    `batch_rows` is by default what fits into memory, tried on synthetic rows. A model
    that mixes the rows of a batch, changes while it computes, or overflows is refused.
    Without a trial only the last is seen.
    """

    def __init__(
        self,
        adapter: Adapter,
        uri: str,
        batch_rows: int | None = None,
        text_loader: Callable[..., Encoder] | None = None,
        *,
        trial: bool = True,
    ) -> None:
        if batch_rows is not None:
            validate.positive_integer(batch_rows=batch_rows)
        if adapter.only_rows and batch_rows not in (None, adapter.only_rows):
            raise ParameterError(
                f"batch_rows must be {adapter.only_rows}, the one number that {uri} takes."
            )
        self._adapter = adapter
        self._text_loader = text_loader
        self.modality = adapter.modality
        self.prepare = adapter.prepare
        self.text_windows: TextWindows | None = getattr(adapter, "windows", None)
        if hasattr(os, "sched_getaffinity"):
            processors = len(os.sched_getaffinity(0))
        else:
            processors = os.cpu_count() or 1
        # Threads that compute batches, one each.
        self.workers = 1
        if adapter.device == "cpu":
            self.workers = min(_MAX_WORKERS, processors)
        # By shape the numbers of rows below the full one that give the same bits.
        self._smaller: dict[Hashable, list[int]] = {}

        state = adapter.state()
        self.batch_rows, self.dimension = _fit(adapter, batch_rows)
        # Items to hand over in one call to keep all processors busy; texts fill batches
        # of many lengths.
        self.window = self.batch_rows * (
            128 if self.modality == "text" else self.workers
        )
        fields = (
            "library",
            "weights",
            "preprocessing",
            "pooling",
            "dtype",
            "device",
            "versions",
        )
        self.fingerprint = Fingerprint(
            uri=uri,
            batch=adapter.batch(self.batch_rows),
            row_independent=False,
            **{name: getattr(adapter, name) for name in fields},
        )
        moved, drift = self._tried() if trial else (0.0, 0.0)
        tolerance = _ROUNDING[adapter.dtype]
        # A kernel of a GPU may round differently in every run without any memory. On a
        # CPU none does. Not `>`: a NaN, such as of a batch of copies that is divided by
        # its spread, must not pass.
        if (
            not drift <= (0 if adapter.device == "cpu" else tolerance)
            or adapter.state() != state
        ):
            raise ParameterError(
                f"{uri} changes while it computes, so that an embedding would depend on what was embedded before it; "
                "dppl refuses such a model."
            )
        if not moved <= tolerance:
            raise ParameterError(
                f"{uri} mixes the rows of a batch, so that one record would change the embeddings of others; ",
                Argument("batch_rows", 1),
                " computes every row by itself.",
            )
        self.fingerprint = replace(
            self.fingerprint, row_independent=trial and moved == drift == 0
        )

        self.loader: Callable[[], Encoder] | None = (
            None  # loads this encoder again, from where its weights lie
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reloaded, (
            self.loader,
            self.fingerprint.text(),
        )  # a pickle holds no weights

    def __deepcopy__(self, memo: object) -> FixedShapeEncoder:
        return self  # frozen, so the copies that scikit-learn makes of parameters may share it

    def text_tower(self) -> Encoder | None:
        """Load what embeds texts into the space of these images; None where the model has no such part."""
        if self._text_loader is None:
            return None
        tower = self._text_loader(
            device=self.fingerprint.device, precision=self.fingerprint.dtype
        )
        if tower.dimension != self.dimension:
            raise ParameterError(
                f"{self.fingerprint.uri} embeds images into {self.dimension} numbers and texts into {tower.dimension}, "
                "so texts cannot describe images."
            )
        return tower

    def shape_of(self, prepared: Any) -> Hashable:
        """Return the shapes in which an item is computed: items of equal shapes share batches."""
        return tuple(
            self._adapter.shape_of(piece) for piece, _ in self._adapter.pieces(prepared)
        )

    def encode(self, batch: Sequence[Any]) -> Float32:
        """Embed images or texts."""
        check_batch(batch)
        return self.encode_prepared([self.prepare(item) for item in batch])

    def encode_prepared(
        self,
        batch: Sequence[Any],
        progress: Callable[[int], object] | None = None,
        recall: Recall | None = None,
    ) -> Float32:
        """Embed what `prepare` returned, and call `progress` with the number of items after each batch of the model.

        `recall` may know the embeddings of a batch of the model from an earlier run.
        """
        adapter = self._adapter
        pieces = [
            (owner, *piece)
            for owner, prepared in enumerate(batch)
            for piece in adapter.pieces(prepared)
        ]
        owners = np.array([owner for owner, _, _ in pieces], np.int64)
        ends = np.searchsorted(owners, np.arange(len(batch) + 1))
        by_shape: dict[Hashable, list[int]] = defaultdict(list)
        for place, (_, piece, _) in enumerate(pieces):
            by_shape[adapter.shape_of(piece)].append(place)
        parts = []
        for shape, places in by_shape.items():
            rows = adapter.rows(shape, self.batch_rows)
            parts += [
                (shape, rows, places[start : start + rows])
                for start in range(0, len(places), rows)
            ]

        def compute(part: tuple[Hashable, int, list[int]]) -> Float32:
            if recall is None:
                return forward(part)
            shape, _, places = part
            named = [
                (int(owners[place]), int(place - ends[owners[place]]))
                for place in places
            ]
            return recall(shape, named, lambda: forward(part))

        def forward(part: tuple[Hashable, int, list[int]]) -> Float32:
            shape, full, places = part
            inputs = [pieces[place][1] for place in places]
            rows = next(
                (rows for rows in self._smaller.get(shape, ()) if rows >= len(inputs)),
                full,
            )
            return adapter.forward(inputs + inputs[-1:] * (rows - len(inputs)), shape)[
                : len(inputs)
            ]

        embeddings = np.empty((len(pieces), self.dimension), np.float32)
        missing = np.bincount(owners, minlength=len(batch))  # pieces of each item
        with adapter.pool(self.workers) as pool:
            for (_, _, places), computed in zip(
                parts, pool.map(compute, parts), strict=True
            ):
                embeddings[places] = computed
                before = int(np.count_nonzero(missing))
                np.subtract.at(missing, owners[places], 1)
                if progress is not None:
                    progress(before - int(np.count_nonzero(missing)))
        if len(pieces) == len(batch):
            return embeddings
        weights = np.array([weight for _, _, weight in pieces])
        return np.stack(
            [
                _mean(embeddings[start:end], weights[start:end])
                for start, end in pairwise(ends)
            ]
        )

    def _tried(self) -> tuple[float, float]:
        """Return what `_try` does, now or in an earlier process on this machine."""
        shapes = self._adapter.shapes()
        place = trials.place_of(self.fingerprint)
        known = None if place is None else trials.recall(place)
        if known is not None and len(known) == len(shapes):
            # In the order of shapes, which the adapter decides.
            self._smaller = dict(zip(shapes, known, strict=True))
            return 0.0, 0.0
        with progress("trying the encoder on made-up rows, once on this machine"):
            found = self._try()
        if place is not None and found == (0.0, 0.0):
            trials.keep(place, [self._smaller.get(shape, []) for shape in shapes])
        return found

    def _try(self) -> tuple[float, float]:
        """Return how far place and company move synthetic rows, and how far they move when computed once more.

        Both are relative to the largest coordinate of the rows of one shape; NaN stays
        NaN.
        """
        shapes = self._adapter.shapes()
        ends = {shapes[0], shapes[-1]}
        first = {}
        moved = [0.0]
        drift: list[float] = []
        for shape in shapes:
            # Kernels are chosen by shape, so every shape with company is tried. Memory
            # is of the model and not of a shape, and shows at any two.
            rows = self._adapter.rows(shape, self.batch_rows)
            if rows == 1 and shape not in ends:
                continue
            count = max(2, rows)
            inputs = self._adapter.synthetic(shape, count)
            # All in order, and at each place another row, some of them twice, as in a
            # mixture of experts. Kernels treat places and numbers by fixed rules (a
            # remainder of a loop, a threshold): one other company shows them.
            own = np.arange(count)
            others = (own + 1 + own // 2) % count
            orders = [own, others]
            if rows > 1 and len(moved) == 1:
                # Two among copies of themselves, as where a batch is filled up, so that
                # a scale which others set shows. It is of the model and not of a
                # kernel, so one shape is enough.
                orders += [np.full(count, row) for row in (count // 2, count // 4)]
            order = np.stack(orders)
            computed = self.encode_prepared([inputs[i] for i in order.flat]).reshape(
                *order.shape, -1
            )
            # A row by itself has neither place nor company: what moves it is memory.
            (moved if rows > 1 else drift).append(
                _difference(computed, computed[0][order])
            )
            if (
                self._adapter.device == "cpu"
                and not self._adapter.only_rows
                and moved[-1] == 0
            ):
                self._smaller[shape] = powers = [
                    1 << bit for bit in range((rows - 1).bit_length())
                ]
                # The shortest rows and the longest; of one the longest, since few
                # numbers may agree by chance.
                few = {n: np.r_[own[: n // 2], own[n // 2 - n :]] for n in powers}
                self._smaller[shape] = [
                    n
                    for n in powers
                    if np.array_equal(
                        self.encode_prepared([inputs[i] for i in few[n]]),
                        computed[0][few[n]],
                    )
                ]
            if shape in ends:
                first[shape] = inputs, computed[0]
        for inputs, expected in list(first.values())[::-1]:  # other shapes came before
            drift.append(_difference(self.encode_prepared(inputs), expected))
        return float(np.max(moved)), float(np.max(drift))


def _mean(rows: Float32, weights: Float) -> Float32:
    """Return the embedding of an item from its pieces: the direction of their mean, and the mean of their lengths.

    So an encoder whose rows have length 1 gives a text of many windows length 1, too. A
    row at a time, and every sum in one order or rounded once: no bit depends on where
    the rows lie.
    """
    if len(rows) == 1:
        return np.asarray(rows[0])
    mean = np.zeros(rows.shape[1])
    length = 0.0
    with np.errstate(
        all="ignore"
    ):  # a row that is not finite makes one that cannot be used
        for row, weight in zip(
            rows.astype(np.float64), weights / math.fsum(weights), strict=True
        ):
            mean += weight * row
            length += weight * math.sqrt(math.fsum(row * row))
        own = math.sqrt(math.fsum(mean * mean))
        return np.asarray(mean * (length / own if own else 0.0), np.float32)


def _reloaded(loader: Callable[[], Encoder], fingerprint: str) -> Encoder:
    encoder = loader()
    if not encoder.fingerprint.same_function(Fingerprint.parse(fingerprint)):
        raise InputError(
            f"{encoder.fingerprint.uri} is not the encoder here that it was where it was pickled."
        )
    return encoder


def _difference(rows: Float32, expected: Float32) -> float:
    return float(np.abs(rows - expected).max() / max(np.abs(expected).max(), _TINY))


def _fit(adapter: Adapter, batch_rows: int | None) -> tuple[int, int]:
    """Return a number of rows that fits into memory and the dimension, found on synthetic rows."""
    rows = batch_rows or adapter.only_rows or adapter.batch_rows
    shape = adapter.shapes()[0]
    while True:
        try:
            embeddings = adapter.forward(
                adapter.synthetic(shape, adapter.rows(shape, rows)), shape
            )
        except Exception as error:
            # By the names that torch (on a GPU and on a CPU) and ONNX Runtime give a
            # lack of memory.
            lack = (
                isinstance(error, MemoryError)
                or "OutOfMemory" in type(error).__name__
                or "allocate" in str(error)
            )
            if not lack:
                raise
        else:
            if not np.isfinite(embeddings).all():
                raise ParameterError(
                    f"the encoder overflows in {adapter.dtype}; choose ",
                    Argument("precision", "float32"),
                    ".",
                )
            return rows, embeddings.shape[1]
        if rows in (1, batch_rows, adapter.only_rows):
            raise ParameterError(
                Argument("batch_rows", rows),
                " does not fit into memory; choose fewer.",
            )
        rows //= 2
