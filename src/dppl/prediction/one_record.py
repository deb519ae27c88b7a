"""What a classifier says of private records, so that each answer depends on its record alone.

A matrix product may round a row differently at another place of its block, which no
comparison of labels shows, and a classifier may remember or compare rows. So a block is
only scored where dppl does the arithmetic: linear scores of embeddings, in integers,
which are exact in any order. Whatever else predicts is asked about one record at a
time, each time as a fresh copy, which has seen no other record. A classifier that is
not dppl's gets the record rebuilt from its values (`dppl.prediction.rebuilt`).

A copy shares what lies outside of it, such as class attributes, global variables, the
time and who calls it. That this does not matter is assumed, except that global
generators of random numbers start anew with each record. A classifier that shows on
public rows that it remembers or draws is refused before anything is charged.

A record for which a classifier raises is a miss, and no other record becomes one.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from dppl._utils.types import Array, Flags, Float, Float32
from dppl.errors import InputError, ParameterError
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import iter_blocks
from dppl.kernel.lattice.stream import as_numpy
from dppl.kernel.privacy.terms import Assumption, Term
from dppl.kernel.queries.outcomes import Guesses
from dppl.kernel.reading import as_labels, class_codes
from dppl.methods import EmbeddingClassifier
from dppl.prediction.muted import muted, stops
from dppl.prediction.rebuilt import rebuilt

# What a classifier, or a fresh copy of it, says of rows.
Ask: TypeAlias = Callable[[Any, Any], Guesses]

_ROWS = 1024  # of a block
# Grid steps of 1 in rows and weights: products of 2²⁶·2²⁶ stay below 2⁵³.
_STEPS = 2.0**26
# Relative error up to which a model's scores count as linear.
_AGREEMENT = 1e-5
_PUBLIC_ROWS = 4
_ODD = (0, np.nan, np.inf, np.finfo(np.float64).max)
EXACT = Term(Assumption.PREDICTED_EXACTLY)
ONE_BY_ONE = Term(Assumption.PREDICTED_ONE_BY_ONE)
FRESH = Term(Assumption.PREDICTED_BY_COPIES)
SEEN = Term(Assumption.PREDICTED_BY_TRIED_COPIES)
GIVEN = Term(Assumption.PREDICTED_ELSEWHERE)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OneRecord:
    """Answers about blocks of records, each about its record alone, and what that assumes of the classifier."""

    assumption: Term[Assumption]
    guesses: Callable[[Iterable[Any]], Iterator[Guesses]]


def of_embeddings(model: EmbeddingClassifier, *, multilabel: bool) -> OneRecord:
    """Score rows of embeddings: blocks of integers if scores are linear, else by fresh copies."""
    linear = Linear.of(model)
    sharpness = model._sharpness()
    features = model.lattice_.features

    def ask(scored: Any, block: Any) -> Guesses:
        unit = features(np.array(block, order="C"))  # a view leads to other rows
        usable = unit.any(axis=1)
        if linear:
            logits = scored.scores(unit)
        else:
            logits = scored._class_scores(unit)
        if multilabel:
            return Guesses(np.where(usable, 0, -1), logits)
        # Row by row: `exp` may round a number differently at another place.
        table = np.empty(logits.shape)
        for place, row in enumerate(logits):
            powers = np.exp(sharpness * (row - row.max()))
            table[place] = powers / powers.sum()
        return Guesses(np.where(usable, logits.argmax(axis=1), -1), table)

    miss = _miss(len(model.classes_))
    if linear is None:
        return _by_copies(model, [ask], miss, (model.n_features_in_,))

    def guesses(blocks: Iterable[Array]) -> Iterator[Guesses]:
        for block in blocks:
            # Exact integers: whole blocks give the same bits as single rows. If a block
            # raises, only its record that does so may become a miss.
            found = _asked(linear, ask, block)
            yield found or _one_by_one(linear, ask, block, miss)

    return OneRecord(EXACT, guesses)


def of_others(
    model: Any,
    classes: Array,
    shape: tuple[int, ...] | None,
    *,
    probabilities: bool,
    multilabel: bool,
) -> OneRecord:
    """Ask a fresh copy of any classifier about each record, which is of this shape, or of no shape."""
    ask: Callable[..., Guesses]
    if multilabel:
        miss = _miss(len(classes))
        ask = partial(_predicted_sets, len(classes))
    else:
        miss = _miss(len(classes) if probabilities else None)
        ask = partial(_predicted, classes, probabilities)
    # Networks may take single precision only.
    asks = [partial(ask, precision) for precision in (np.float64, np.float32)]
    return _by_copies(model, asks, miss, shape)


def _by_copies(
    model: Any, asks: Sequence[Ask], miss: Guesses, shape: tuple[int, ...] | None
) -> OneRecord:
    """Ask fresh copies in the first of some ways in which public rows are answered."""
    # Which way is settled on public rows: choosing it by private ones would tell of them.
    ask, assumption = _tried(model, asks, shape, miss)

    def guesses(blocks: Iterable[Any]) -> Iterator[Guesses]:
        for block in blocks:
            yield _one_by_one(model, ask, block, miss)

    return OneRecord(assumption, guesses)


def of_network(probabilities: Callable[[Array], Any]) -> OneRecord:
    """Ask a network about one row at a time: it may round a row differently in another batch."""

    def guesses(blocks: Iterable[Array]) -> Iterator[Guesses]:
        for block in blocks:
            for place in range(len(block)):
                row = probabilities(block[place : place + 1])
                table = np.asarray(row, np.float64)
                yield Guesses(table.argmax(axis=1), table)

    return OneRecord(ONE_BY_ONE, guesses)


def of_labels(classes: Array) -> OneRecord:
    """Compare labels that were predicted elsewhere with the class list."""

    def guesses(blocks: Iterable[Array]) -> Iterator[Guesses]:
        for block in blocks:
            yield Guesses(class_codes(block, classes, "ignore"))

    return OneRecord(GIVEN, guesses)


def of_sets(sets: MultiLabel, classes: Array) -> OneRecord:
    """Read sets of labels that were predicted elsewhere."""

    def guesses(blocks: Iterable[Array]) -> Iterator[Guesses]:
        for block in blocks:
            yield _margins(sets.read(block, classes)[0])

    return OneRecord(GIVEN, guesses)


def of_probabilities() -> OneRecord:
    """Take the likeliest class by probabilities that were computed elsewhere; NaN is a miss."""

    def guesses(tables: Iterable[Array]) -> Iterator[Guesses]:
        for rows in chain.from_iterable(iter_blocks(table, _ROWS) for table in tables):
            # In one precision, whatever holds all of them.
            block = np.asarray(rows, np.float64)
            known = np.asarray(~np.isnan(block).any(axis=1))
            likeliest = np.where(known[:, None], block, 0).argmax(axis=1)
            yield Guesses(np.where(known, likeliest, -1), block)

    return OneRecord(GIVEN, guesses)


def with_misses(some: Iterable[Guesses], usable: Flags, n_classes: int) -> Guesses:
    """Return guesses about all records, of which those that are not `usable` are misses."""
    predicted = np.full(len(usable), -1, np.intp)
    table = np.zeros((len(usable), n_classes))
    places = np.flatnonzero(usable)
    start = 0
    for one in some:
        here = places[start : start + len(one.predicted)]
        predicted[here] = one.predicted
        table[here] = one.table
        start += len(here)
    return Guesses(predicted, table)


def _miss(n_classes: int | None) -> Guesses:
    """Return what is said of a record that could not be scored."""
    table = None
    if n_classes is not None:
        table = np.zeros((1, n_classes))
    return Guesses(np.array([-1]), table)


def length(rows: Any) -> int:
    """Return the number of rows, also of a sparse matrix."""
    if hasattr(rows, "shape"):
        return int(rows.shape[0])
    return len(rows)


def part(rows: Any, start: int, stop: int) -> Any:
    """Return some records, counted from 0 also in a frame whose index has other numbers."""
    return (rows.iloc if hasattr(rows, "iloc") else rows)[start:stop]


def _margins(sets: Flags) -> Guesses:
    """Return what a classifier says that names sets of labels alone, of which the first in the list come first."""
    return Guesses(np.zeros(len(sets), np.intp), np.where(sets, 1.0, -1.0))


def _predicted_sets(n_classes: int, precision: Any, model: Any, rows: Any) -> Guesses:
    """Ask a classifier that answers with an indicator matrix, which may be sparse."""
    answer = model.predict(rebuilt(rows, precision))
    sets = np.asarray(
        answer.toarray() if hasattr(answer, "toarray") else answer
    ).astype(bool)
    if sets.shape != (length(rows), n_classes):
        raise InputError("predict must return a column for each class.")
    return _margins(sets)


def _predicted(
    classes: Array, probabilities: bool, precision: Any, model: Any, rows: Any
) -> Guesses:
    """Ask a classifier about rows."""
    labels = as_labels(
        model.predict(rebuilt(rows, precision)), np.empty((length(rows), 0))
    )
    codes = class_codes(labels, classes, "ignore")
    if not probabilities:
        return Guesses(codes)
    answer = as_numpy(model.predict_proba(rebuilt(rows, precision)))
    # Copied: a classifier may write its next answer to the same place.
    table = np.array(answer, np.float64, order="C")
    if table.shape != (len(codes), len(classes)):
        raise InputError("predict_proba must return a column for each class.")
    return Guesses(codes, table)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Linear:
    """Scores that are linear in unit rows, in integers.

    Rows and weights are rounded to steps of 2⁻²⁶ of the longest. By Cauchy and Schwarz
    every sum of their products, over any of the coordinates, is below 2⁵³: a matrix
    product of such integers is exact in float64, in any order.
    """

    weights: Float  # shape (dim, n_classes), integers
    offsets: Float  # shape (n_classes,)
    unit: float  # steps of a score of 1

    @classmethod
    def of(cls, model: EmbeddingClassifier) -> Linear | None:
        """Read weights and offsets off the scores of unit vectors; None if scores of other rows do not follow."""
        dim = model.lattice_.dim
        offsets = model._class_scores(np.zeros((1, dim), np.float32))[0]
        weights = model._class_scores(np.eye(dim, dtype=np.float32)) - offsets
        # Scores are W·u + b: b at u = 0, and a column of W at each axis.
        longest = float(np.sqrt(np.square(weights).sum(axis=0)).max()) or 1.0
        scale = 2.0 ** np.floor(np.log2(_STEPS / longest))
        linear = cls(
            np.rint(weights * scale), np.asarray(offsets, np.float64), _STEPS * scale
        )
        features = model.lattice_.features(_made_up((16, model.n_features_in_)))
        expected = model._class_scores(features)
        within = _AGREEMENT * longest
        if np.allclose(linear.scores(features), expected, rtol=_AGREEMENT, atol=within):
            return linear
        return None

    def scores(self, features: Float32) -> Float:
        """Return scores of unit rows, shape (n, n_classes)."""
        rows = np.rint(features.astype(np.float64) * _STEPS)
        return np.asarray(rows @ self.weights / self.unit + self.offsets)


def _tried(
    model: Any, asks: Sequence[Ask], shape: tuple[int, ...] | None, miss: Guesses
) -> tuple[Ask, Term[Assumption]]:
    """Return how to ask a classifier about one record at a time, and what is assumed of it.

    One that cannot be copied is refused, and so is one that says something else of a
    public row after it has been asked about others, or with other random numbers. Of
    records without a shape there are no public rows.
    """
    copied = model
    with suppress(Exception):
        copied = deepcopy(model)
    if copied is model:
        raise ParameterError(
            "must be a classifier that copy.deepcopy can copy, since each record is "
            f"predicted by a fresh copy; got {type(model).__name__}. Predict each record "
            "by itself, and evaluate the table by AlreadyPredicted(classes).",
            parameter="model",
        )
    if shape is None:
        return asks[0], FRESH
    public = np.concatenate(
        [
            _made_up((_PUBLIC_ROWS, *shape)),
            *(np.full((1, *shape), value) for value in _ODD),
        ]
    )
    for ask in asks:
        first = _one_by_one(model, ask, public, miss)
        if (first.predicted >= 0).any():
            break
    else:
        return asks[0], FRESH
    again = _one_by_one(model, ask, public[::-1], miss, seed=1)
    same = np.array_equal(first.predicted, again.predicted[::-1])
    if same and first.table is not None and again.table is not None:
        # Threads may add in any order.
        same = np.allclose(first.table, again.table[::-1], equal_nan=True)
    if not same:
        raise ParameterError(
            "must say the same of a record whatever it was asked before; on public rows "
            f"{type(model).__name__} did not. If it draws at random, set its random_state.",
            parameter="model",
        )
    return ask, SEEN


def _one_by_one(
    model: Any, ask: Ask, rows: Any, miss: Guesses, seed: int = 0
) -> Guesses:
    """Ask about each of some rows alone; each that raises is a `miss`."""
    some = [
        _asked(model, ask, part(rows, place, place + 1), seed) or miss
        for place in range(length(rows))
    ]
    tables = [one.table for one in some if one.table is not None]
    predicted = np.concatenate([one.predicted for one in some])
    return Guesses(predicted, np.concatenate(tables) if tables else None)


def _asked(model: Any, ask: Ask, rows: Any, seed: int = 0) -> Guesses | None:
    """Ask a fresh copy of a classifier about rows; None if it raises.

    Its errors are not shown, nor what `muted` hides: both may quote a record, and are
    as often as there are records. Whatever it raises by itself is a miss, also what
    else would end the run; a signal ends it.
    """
    found = None
    with stops() as raised, suppress(BaseException), muted(), _seeded(seed):
        found = ask(deepcopy(model), rows)
    if raised:
        raise raised[0] from None  # not with an error that quotes the record
    return found


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Start global generators of random numbers anew, and let them go on afterwards."""
    # A draw that follows from how many records came before would tell how many there are.
    generators: list[tuple[Any, Any, Any]] = [
        (random.seed, random.getstate, random.setstate),
        (np.random.seed, np.random.get_state, np.random.set_state),
    ]
    # Only if somebody has loaded it: nothing else could have drawn from it.
    if torch := sys.modules.get("torch"):
        start = torch.default_generator.manual_seed
        generators.append((start, torch.get_rng_state, torch.set_rng_state))
    before = [state() for _, state, _ in generators]
    try:
        for start, _, _ in generators:
            start(seed)
        yield
    finally:
        for (_, _, go_on), state in zip(generators, before, strict=True):
            go_on(state)


def _made_up(shape: tuple[int, ...]) -> Array:
    """Return public rows in [-1, 1], the same for all records."""
    return np.cos(np.arange(np.prod(shape), dtype=np.float64) ** 2).reshape(shape)
