"""Row independence: batches of fixed shapes, and the check that they do what they should.

How a processor rounds a sum depends on the shape of the arrays, so in a batch of varying size, or one padded to its
longest text, a record would move the embeddings of its neighbours by a rounding step, and the sensitivity that a
guarantee rests on would not hold. Here an example alone decides the shape of the batch that it is computed in:

* a batch of one shape class always has the same number of rows; what is missing is filled up with a copy of a row;
* the class of a text is its number of tokens, rounded up (`dppl.encoders.tokens`);
* a batch is computed by one thread, and several batches at once, so the number of processors changes nothing.

What is left is that a kernel might treat the places of a batch differently, or a model remember what it has seen.
`FixedShapeEncoder` tries that on synthetic rows when it is made: a row among copies of itself, among several sets of
others, in other places, and once more when all shapes have been computed. Equal bits make it row independent. A
difference in rounding makes it not so, which tables then say. A larger one means that the model mixes its rows, as
batch normalisation in training mode or a quantisation of the whole batch does, and is refused. So is a model that
computes the same batch differently later.

On a CPU all shapes with more than one row are tried at the first load, and what was found is kept
(`dppl.encoders.verdicts`); later loads try the usual shapes again. On other devices every load tries them all.

A single text would be computed among many copies of itself. Whoever predicts takes `for_prediction` of an encoder: it
computes what does not fill a batch in short batches, if these gave the bits of full ones for every shape and row that
was tried. So a prediction depends on no company either. A fit, whose guarantee rests on fixed shapes, uses none of
them; one on embeddings of such an encoder lists that as not covered.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pickle import PicklingError
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl.encoders import verdicts
from dppl.encoders.encoder import Encoder, Fingerprint
from dppl.errors import InputError, ParameterError

_ROUNDING = {"float32": 1e-4, "float16": 1e-2}  # it moves a row by no larger part of its largest coordinate
_TINY = np.finfo(np.float32).tiny
_MOST_WORKERS = 16  # each holds the activations of one batch
_MOST_SHORT = 8  # short batches in the place of one full batch, which costs less than more of them
_COMPANIES = 2  # sets of rows, drawn with repetition, to try rows among


@dataclass(kw_only=True)
class Network(ABC):
    """A model as an adapter supplies it: one item to an input, one batch of a fixed shape to embeddings."""

    modality: ClassVar[str]
    library: str  # library, weights, preprocessing, pooling, versions, dtype, device: as in `Fingerprint`
    weights: str
    preprocessing: str
    pooling: str
    versions: str
    dtype: str = "float32"
    device: str = "cpu"
    prepare: Callable[[Any], Any]  # one image or text to an input
    compute: Callable[[dict[str, NDArray[Any]]], NDArray[np.float32]]  # arrays of a full batch, by name, to embeddings
    batch_rows: int  # what to try if the user does not say
    only_rows: int | None = None  # the number of rows, of a model that takes no other
    # from a number of threads to a context of threads that compute batches
    pool: Callable[[int], AbstractContextManager[ThreadPoolExecutor]] = ThreadPoolExecutor
    state: Callable[[], str] = str  # a digest of what the model could remember by; "" where that is nothing
    # options of the URI by which a model of images loads its part for texts, if it has one
    for_texts: Mapping[str, str] = field(default_factory=dict)

    @abstractmethod
    def shape_class(self, prepared: Any) -> Hashable:
        """Return what decides the shape of the batch that an input is computed in."""

    @abstractmethod
    def forward(self, inputs: Sequence[Any], shape: Any) -> NDArray[np.float32]:
        """Embed a full batch of one shape class."""

    @abstractmethod
    def shapes(self) -> Sequence[Hashable]:
        """Return usual shape classes, the one that needs most memory first."""

    def all_shapes(self) -> Sequence[Hashable]:
        """Return all shape classes."""
        return self.shapes()

    @abstractmethod
    def synthetic(self, shape: Any, count: int) -> list[Any]:
        """Return inputs of one class that differ."""

    def input(self, item: Any) -> Any:
        """Prepare an item, and raise any error if what comes out fits no batch."""
        return self.prepare(item)

    def rows(self, shape: Any, batch_rows: int) -> int:
        """Return the number of rows in a batch of a class."""
        return batch_rows

    def short_rows(self, shape: Any, batch_rows: int) -> int:
        """Return the number of rows in a short batch of a class; a full one means that there are none."""
        return self.rows(shape, batch_rows)

    def batch(self, batch_rows: int) -> str:
        """Describe the shapes of batches."""
        return f"{batch_rows} rows"

    @property
    def workers(self) -> int:
        """Number of batches to compute at once."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(_MOST_WORKERS, processors) if self.device == "cpu" else 1


class FixedShapeEncoder:
    """An `Encoder` that computes rows in batches of fixed shapes.

    A pickle of it is its `loader`, called with device, precision and batch_rows. `batch_rows` is by default what fits
    into memory, tried on synthetic rows. `predicting` says that no private record will ever be embedded for a fit: then
    what was found at an earlier load counts without another trial. A model that mixes the rows of a batch, changes
    while it computes, or overflows is refused.
    """

    def __init__(
        self,
        network: Network,
        uri: str,
        batch_rows: int | None = None,
        loader: Callable[..., Encoder] | None = None,
        text_loader: Callable[..., Encoder] | None = None,
        predicting: bool = False,
    ) -> None:
        if batch_rows is not None:
            _validate.positive_integer(batch_rows=batch_rows)
        if network.only_rows and batch_rows not in (None, network.only_rows):
            raise ParameterError(f"batch_rows must be {network.only_rows}, the one number that {uri} takes.")
        self._network, self._loader, self._text_loader = network, loader, text_loader
        self.modality = network.modality
        self._sparing = self._untried = False
        state = network.state()
        self.batch_rows, self.dimension = _fit(network, batch_rows)
        fingerprint = Fingerprint(
            uri=uri,
            library=network.library,
            weights=network.weights,
            preprocessing=network.preprocessing,
            pooling=network.pooling,
            dtype=network.dtype,
            device=network.device,
            batch=network.batch(self.batch_rows),
            versions=network.versions,
            row_independent=False,  # until it was tried
        )
        usual = network.shapes()
        # A row alone in its batch has neither company nor place.
        more = [shape for shape in network.all_shapes() if network.rows(shape, self.batch_rows) > 1]
        more = [shape for shape in more if shape not in usual]
        keeps = bool(more) and network.device == "cpu"  # a fingerprint does not tell one GPU from another
        # A long and a short row: other kernels, which were not tried, give them other bits.
        ends = (usual[0], usual[-1]) if keeps else ()
        bits = self.encode_prepared([network.synthetic(shape, 1)[0] for shape in ends])
        known = verdicts.known(fingerprint, bits) if keeps else None
        shapes = [*usual, *more] if known is None else [] if predicting else usual
        self._untried = not shapes
        difference, steady, short = self._tried(shapes) if shapes else (0.0, True, True)
        if not steady or network.state() != state:
            raise ParameterError(
                f"{uri} changes while it computes, so that an embedding would depend on what was embedded before it; "
                "dppl refuses such a model."
            )
        if difference > _ROUNDING[network.dtype]:
            raise ParameterError(
                f"{uri} mixes the rows of a batch, so that one record would change the embeddings of others; "
                "batch_rows=1 computes every row by itself."
            )
        found = verdicts.Verdict(row_independent=difference == 0, short=keeps and short and difference == 0)
        if keeps and known is None:
            verdicts.keep(fingerprint, bits, found)
        known = known or found
        self.fingerprint = replace(fingerprint, row_independent=found.row_independent and known.row_independent)
        self._short = found.short and known.short

    def __copy__(self) -> FixedShapeEncoder:
        return self

    def __deepcopy__(self, memo: object) -> FixedShapeEncoder:
        return self  # frozen, so that the copies which scikit-learn makes of parameters may share it

    def __reduce__(self) -> tuple[Callable[..., Encoder], tuple[Callable[[], Encoder], str]]:
        if self._loader is None:
            raise PicklingError("only an encoder that load_encoder made can be pickled: it is loaded again elsewhere.")
        device, precision = self.fingerprint.device, self.fingerprint.dtype
        again = partial(self._loader, device=device, precision=precision, batch_rows=self.batch_rows)
        return _loaded_again, (again, self.fingerprint.text())

    @property
    def spares(self) -> bool:
        """Whether it is for predictions: in short batches, or without a trial of its own. A fit says so."""
        return self._sparing or self._untried

    @property
    def window(self) -> int:
        """Items to hand over in one call to keep all processors busy."""
        batches = 128 if self.modality == "text" else self._network.workers  # texts fill batches of many lengths
        return self.batch_rows * batches

    def text_tower(self) -> Encoder | None:
        """Load what embeds texts into the space of these images; None where the model has no such part."""
        if self._text_loader is None:
            return None
        tower = self._text_loader(device=self.fingerprint.device, precision=self.fingerprint.dtype)
        if tower.dimension != self.dimension:
            raise ParameterError(
                f"{self.fingerprint.uri} embeds images into {self.dimension} numbers and texts into {tower.dimension}, "
                "so texts cannot describe images."
            )
        return tower

    def for_prediction(self) -> FixedShapeEncoder:
        """Return this encoder with short batches for few items, where they were found to change no bit."""
        return self._spared() if self._short else self

    def _spared(self) -> FixedShapeEncoder:
        other = object.__new__(FixedShapeEncoder)
        vars(other).update(vars(self), _sparing=True)
        return other

    def prepare(self, item: Any) -> Any:
        """Turn one RGB image of Pillow, or one str, into the model's input for it."""
        return self._network.input(item)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Embed images or texts."""
        return self.encode_prepared([self.prepare(item) for item in batch])

    def encode_prepared(
        self, batch: Sequence[Any], progress: Callable[[int], object] | None = None
    ) -> NDArray[np.float32]:
        """Embed what `prepare` returned, and call `progress` with the number of rows after each batch of the model."""
        embeddings = np.empty((len(batch), self.dimension), np.float32)
        chunks = list(self._chunks(batch))
        with self._network.pool(self._network.workers) as pool:
            computed = pool.map(lambda chunk: self._compute([batch[i] for i in chunk[2]], *chunk[:2]), chunks)
            for (_, _, indices), rows in zip(chunks, computed, strict=True):
                embeddings[indices] = rows
                if progress is not None:
                    progress(len(indices))
        return embeddings

    def _chunks(self, batch: Sequence[Any]) -> Iterator[tuple[Hashable, int, list[int]]]:
        """Yield for each batch to compute its class, its number of rows, and the places of the items in it."""
        classes: dict[Hashable, list[int]] = defaultdict(list)
        for i, prepared in enumerate(batch):
            classes[self._network.shape_class(prepared)].append(i)
        for shape, indices in classes.items():
            full = self._network.rows(shape, self.batch_rows)
            for start in range(0, len(indices), full):
                chunk = indices[start : start + full]
                rows = self._rows_for(len(chunk), shape, full)
                yield from ((shape, rows, chunk[first : first + rows]) for first in range(0, len(chunk), rows))

    def _rows_for(self, count: int, shape: Hashable, full: int) -> int:
        if not self._sparing or count == full:
            return full
        short = self._network.short_rows(shape, self.batch_rows)
        return short if count <= _MOST_SHORT * short else full

    def _compute(self, inputs: list[Any], shape: Hashable, rows: int) -> NDArray[np.float32]:
        missing = rows - len(inputs)
        return self._network.forward(inputs + inputs[-1:] * missing, shape)[: len(inputs)]

    def _tried(self, shapes: Sequence[Hashable]) -> tuple[float, bool, bool]:
        """Return how far place and company move synthetic rows, if the model is steady, and if short batches agree.

        The first is relative to the largest coordinate of the rows of one class.
        """
        inputs: list[Any] = []
        classes, alone = [], []
        for shape in shapes:
            full = self._network.rows(shape, self.batch_rows)
            count = max(2, full)
            alone += [full == 1] * count  # neither company nor place: what moves them is memory
            classes.append(np.arange(len(inputs), len(inputs) + count))
            inputs += self._network.synthetic(shape, count)
        order = np.stack([np.concatenate(trial) for trial in _trials(classes)])
        rows = self.encode_prepared([inputs[i] for i in order.reshape(-1)]).reshape(*order.shape, -1)
        moved = np.abs(rows - rows[0][order]).max(axis=2)
        scale = np.concatenate([np.full(len(one), np.abs(rows[0][one]).max()) for one in classes])
        difference = float((moved / np.maximum(scale, _TINY)).max())
        later = np.concatenate(classes[::-1])  # other classes come before
        again = self.encode_prepared([inputs[i] for i in later])
        drift = float((np.abs(again - rows[0][later]).max(axis=1) / np.maximum(scale[later], _TINY)).max())
        if self._network.device != "cpu":  # a kernel there may round differently in every run, without any memory
            return max(difference, drift), drift <= _ROUNDING[self._network.dtype], False
        steady = not (moved[:, alone] > 0).any() and drift == 0
        return difference, steady, self._same_when_short(shapes, inputs, classes, rows[0])

    def _same_when_short(
        self, shapes: Sequence[Hashable], inputs: list[Any], classes: list[NDArray[np.intp]], rows: NDArray[np.float32]
    ) -> bool:
        """Return whether synthetic rows have in short batches the bits of full ones, which `rows` are."""
        sparing = self._spared()
        fitting = [self._network.short_rows(shape, self.batch_rows) for shape in shapes]
        for choose in _SHORT_TRIALS:
            some = np.concatenate([one[choose(len(one), count)] for one, count in zip(classes, fitting, strict=True)])
            if (sparing.encode_prepared([inputs[i] for i in some]) != rows[some]).any():
                return False
        return True


def for_prediction(encoder: Encoder) -> Encoder:
    """Return an encoder for predictions, which spares few items the cost of a full batch where that moves no bit.

    It is for rows that no guarantee is about; an encoder without short batches is returned as it is.
    """
    return encoder.for_prediction() if isinstance(encoder, FixedShapeEncoder) else encoder


def _loaded_again(loader: Callable[[], Encoder], fingerprint: str) -> Encoder:
    encoder = loader()
    if not encoder.fingerprint.same_function(Fingerprint.parse(fingerprint)):
        raise InputError(f"{encoder.fingerprint.uri} is not the encoder here that it was where it was pickled.")
    return encoder


def _trials(classes: list[NDArray[np.intp]]) -> Iterator[list[NDArray[np.intp]]]:
    """Yield rows of each class to compute together: all of them first, then in other company and places.

    A trial fills one batch of each class, so that several trials may be computed in one call.
    """
    yield classes
    for parts in (2, 4):  # in the middle stands an image that is almost black: a scale that others set shows
        yield [np.full(len(one), one[len(one) // parts]) for one in classes]
    for seed in range(_COMPANIES):  # every place gets another row than its own, so that two rows change places
        steps = (1 + drawn(len(one), len(one) - 1, seed) for one in classes)
        yield [one[(np.arange(len(one)) + step) % len(one)] for one, step in zip(classes, steps, strict=True)]


# Which of the n rows of a class to compute in a short batch: the first, the last, one among copies, and drawn ones.
_SHORT_TRIALS: tuple[Callable[[int, int], Any], ...] = (
    lambda n, count: slice(count),
    lambda n, count: slice(n - count, n),
    lambda n, count: slice(n // 2, n // 2 + 1),
    lambda n, count: drawn(count, n, 0),
    lambda n, count: drawn(count, n, 1),
)


def drawn(count: int, below: int, seed: int) -> NDArray[np.intp]:
    """Return numbers below one, with repetition, and always the same ones: a generator is for noise."""
    digits = np.frombuffer(hashlib.shake_128(seed.to_bytes(4)).digest(4 * count), "<u4")
    return (digits % below).astype(np.intp)


def _fit(network: Network, batch_rows: int | None) -> tuple[int, int]:
    """Return a number of rows that fits into memory and the dimension, found on synthetic rows."""
    rows = batch_rows or network.only_rows or network.batch_rows
    shape = network.shapes()[0]
    while True:
        try:
            embeddings = network.forward(network.synthetic(shape, network.rows(shape, rows)), shape)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
        else:
            if not np.isfinite(embeddings).all():
                raise ParameterError(f"the encoder overflows in {network.dtype}; choose precision='float32'.")
            return rows, embeddings.shape[1]
        if rows in (1, batch_rows, network.only_rows):
            raise ParameterError(f"batch_rows={rows} does not fit into memory; choose fewer.")
        rows //= 2


def _is_out_of_memory(error: Exception) -> bool:
    """Tell by the names that torch (on a GPU and on a CPU) and ONNX Runtime give it."""
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "allocate" in str(error)
