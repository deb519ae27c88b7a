"""What a classifier says of private records, so that each answer depends on its record alone.

A matrix product may round a row differently at another place of its block, which no
comparison of labels shows, and a classifier may remember or compare rows. So a block is
only scored where dppl does the arithmetic: linear scores of embeddings, in integers,
which are exact in any order. Whatever else predicts is asked about one record at a
time, each time as a fresh copy, which has seen no other record. A classifier that is
not dppl's gets the record rebuilt from its values (`dppl.evaluation.one_record`).

A copy shares what lies outside of it, such as class attributes and global variables.
That this does not matter is assumed. A classifier that shows on public rows that it
does is refused before anything is charged.

A record for which a classifier raises is a miss, and no other record becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from dppl._utils import validate
from dppl._utils.metadata import depends_on_company
from dppl._utils.types import Array, Flags, Float, Float32
from dppl.errors import InputError, ParameterError
from dppl.evaluation.muted import muted, stops
from dppl.evaluation.one_record import rebuilt
from dppl.kernel.lattice import RowSource, iter_blocks
from dppl.kernel.lattice.stream import as_numpy, is_tensor
from dppl.kernel.persons import checked_ids
from dppl.kernel.privacy.terms import Assumption, Term
from dppl.kernel.queries.outcomes import Guesses
from dppl.kernel.reading import (
    MultiLabel,
    as_labels,
    as_rows,
    check_kind,
    class_codes,
    public_classes,
)
from dppl.kernel.records import Parted
from dppl.methods import EmbeddingClassifier, PrivateSearch
from dppl.training.classifier import PrivateClassifier
from dppl.training.items import check_items, embed_items

# What a classifier, or a fresh copy of it, says of rows.
Ask: TypeAlias = Callable[[Any, Any], Guesses]

_ROWS = 1024  # of a block
_STEPS = 2.0**26  # of 1 in the integers that are multiplied
_AGREEMENT = 1e-5
_PUBLIC_ROWS = 4
MAX_LABELS = 5  # of a classifier of several labels that names no number
EXACT = Term(Assumption.PREDICTED_EXACTLY)
ONE_BY_ONE = Term(Assumption.PREDICTED_ONE_BY_ONE)
FRESH = Term(Assumption.PREDICTED_BY_COPIES)
SEEN = Term(Assumption.PREDICTED_BY_TRIED_COPIES)
GIVEN = Term(Assumption.PREDICTED_ELSEWHERE)


class Predicts(Protocol):
    """A fitted classifier. `predict_proba` is used if there is one."""

    classes_: Any

    def predict(self, X: Any) -> Any:
        """Return a label for each record."""


@dataclass(frozen=True, slots=True)
class Several:
    """How many labels of a record count, and how they are given."""

    max_labels: int
    labels: MultiLabel


def multilabel(model: Any) -> Several | None:
    """Return how records have several labels for a fitted model, or None if each has one."""
    if isinstance(model, PrivateClassifier):
        model = model.model_
    if getattr(model, "multilabel", False):
        return Several(model.max_labels, MultiLabel(model.separator))
    # OneVsRestClassifier
    return (
        Several(MAX_LABELS, MultiLabel())
        if getattr(model, "multilabel_", False)
        else None
    )


@dataclass(frozen=True, slots=True, eq=False)
class AlreadyPredicted:
    """A table of predictions as a classifier: `X` is then predicted labels (n,) or probabilities (n, n_classes).

    With `max_labels` a record has several labels, and `X` is sets of them: an indicator
    matrix (n, n_classes), lists of labels, or texts.

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        The public class list, in the order of the columns of probabilities.
    model : object, default=None
        What made the predictions, for its guarantee and its hash.
    max_labels : int, default=None
        So many labels of a record count, true and predicted ones each. None is for one
        label a record.
    separator : str, default=None
        What texts of several labels are split at.
    """

    classes: Any
    model: Any = None
    max_labels: int | None = None
    separator: str | None = None

    def __post_init__(self) -> None:
        if self.max_labels is not None:
            validate.positive_integer(max_labels=self.max_labels)

    @property
    def multilabel(self) -> bool:
        """Whether a record has several labels."""
        return self.max_labels is not None

    @property
    def classes_(self) -> Array:
        """The class list."""
        return np.asarray(self.classes)

    def predict(self, X: Any) -> Any:
        """Return labels as they are, and the class of the largest probability."""
        table = np.asarray(X)
        return (
            X if table.ndim == 1 else self.classes_[np.nan_to_num(table).argmax(axis=1)]
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Predictor:
    """A classifier and private records, of which only the shape has been looked at."""

    model: Any  # what has a guarantee, or None
    classes: Array  # shape (n_classes,)
    n: int  # how many records; private
    probabilities: bool  # whether it says them
    assumption: Term[Assumption]
    guesses: Callable[[], Iterator[Guesses]]  # reads the records
    mixes: bool = False  # whether embeddings may depend on others by rounding
    several: Several | None = None  # how records have several labels, if they have


def predictor_of(model: Any, X: Any) -> Predictor:
    """Settle from public facts how the records are predicted."""
    if isinstance(X, Parted):
        raise InputError("X must be in one place, and not a table in parts.")
    if isinstance(model, Predictor):
        return model
    if isinstance(model, AlreadyPredicted):
        return _given(model, X)
    if isinstance(model, PrivateSearch):
        model = model.best_estimator_
    classes = _classes_of(model)
    # Of raw items the kind is looked at here; they are embedded when guesses are asked
    # for.
    if isinstance(model, PrivateClassifier):
        inner = model.model_
        encoder = model._loaded()
        check_items(encoder.modality, X, "X")
        one = _embedded(
            inner,
            classes,
            len(X),
            np.dtype(np.float32),
            partial(embed_items, encoder, X, "X"),
        )
        return replace(one, mixes=not encoder.fingerprint.row_independent)
    mixes = depends_on_company(X)
    if isinstance(model, EmbeddingClassifier):
        model._check_continues(X)
        source = as_rows(X)
        kind = getattr(source, "dtype", np.dtype(np.float64))
        return replace(
            _embedded(model, classes, source.shape[0], kind, lambda: source),
            mixes=mixes,
        )
    return replace(_foreign(model, classes, X), mixes=mixes)


def _classes_of(model: Any) -> Array:
    """Return the class list of a classifier in its order; one that has none is refused."""
    classes = getattr(model, "classes_", None)
    if classes is None or not hasattr(model, "predict"):
        raise ParameterError(
            f"must be a fitted classifier with classes_ and predict, or for a table of predictions "
            f"AlreadyPredicted(classes); got {type(model).__name__}.",
            parameter="model",
        )
    public_classes(classes)
    return np.asarray(classes)


def _given(model: AlreadyPredicted, X: Any) -> Predictor:
    """Read a table of predictions."""
    classes = _classes_of(model)
    several = multilabel(model)
    if several is not None:
        sets = several.labels.checked(X, np.empty((_length(X), 0)), ("y", "X"))
        several.labels.read(sets[:0], classes)  # compares shapes

        def known() -> Iterator[Guesses]:
            yield _margins(several.labels.read(sets, classes)[0])

        return Predictor(
            model.model, classes, len(sets), False, GIVEN, known, several=several
        )
    # Probabilities, a column for each class; or else labels.
    table: Array = np.empty(())
    with suppress(Exception):  # raised below, without the number of rows
        table = as_numpy(X) if is_tensor(X) else np.asarray(X)
    if table.ndim == 2 and table.shape[1] == len(classes) and table.dtype.kind in "fiu":
        table = table.astype(np.result_type(table.dtype, np.float32), copy=False)
        return Predictor(
            model.model, classes, len(table), True, GIVEN, partial(_likeliest, table)
        )
    if table.ndim != 1:
        raise InputError(
            f"X must be predicted labels of shape (n,) or probabilities of shape (n, {len(classes)})."
        )
    labels = as_labels(X, np.empty((len(table), 0)), ("y", "X"))
    check_kind(labels, classes, "X")

    def compared() -> Iterator[Guesses]:
        yield Guesses(class_codes(labels, classes, "ignore"))

    return Predictor(model.model, classes, len(table), False, GIVEN, compared)


def labels_and_ids(
    predictor: Predictor, y: Any, groups: Any
) -> tuple[Any, Array | None]:
    """Return labels, or sets of labels, and ids of persons, of which only shapes and kinds have been looked at."""
    shape = np.empty((predictor.n, 0))
    if predictor.several is None:
        labels = as_labels(y, shape)
        check_kind(labels, predictor.classes)
    else:
        labels = predictor.several.labels.checked(y, shape)
        predictor.several.labels.read(labels[:0], predictor.classes)  # compares shapes
    return labels, None if groups is None else checked_ids(groups, shape)


def _margins(sets: Flags) -> Guesses:
    """Return what a classifier says that names sets of labels alone, of which the first in the list come first."""
    return Guesses(np.zeros(len(sets), np.intp), np.where(sets, 1.0, -1.0))


def _likeliest(table: Array) -> Iterator[Guesses]:
    for block in iter_blocks(table, _ROWS):
        known = ~np.isnan(block).any(axis=1)
        yield Guesses(
            np.where(known, np.where(known[:, None], block, 0).argmax(axis=1), -1),
            block,
        )


def _embedded(
    model: EmbeddingClassifier,
    classes: Array,
    n: int,
    kind: np.dtype[Any],
    rows: Callable[[], RowSource],
) -> Predictor:
    """Score rows of a classifier of embeddings, in blocks of integers where its scores are linear."""
    linear = Linear.of(model)
    several = multilabel(model)
    sharpness = model._sharpness()
    features = model.lattice_.features

    def ask(scored: Any, block: Any) -> Guesses:
        unit = features(np.array(block, order="C"))  # a view leads to other rows
        usable = unit.any(axis=1)
        logits = scored.scores(unit) if linear else scored._class_scores(unit)
        if several is not None:
            return Guesses(np.where(usable, 0, -1), logits)
        # Row by row: `exp` may round a number differently at another place.
        table = np.empty(logits.shape)
        for place, row in enumerate(logits):
            powers = np.exp(sharpness * (row - row.max()))
            table[place] = powers / powers.sum()
        return Guesses(np.where(usable, logits.argmax(axis=1), -1), table)

    miss = Guesses(np.array([-1]), np.zeros((1, len(classes))))
    shape = (model.n_features_in_,)
    how = EXACT if linear else _assumed_of(model, ask, shape, kind, miss)

    def guesses() -> Iterator[Guesses]:
        for block in map(as_numpy, iter_blocks(rows(), _ROWS)):
            found = _asked(linear, ask, block) if linear else None
            yield found or _one_by_one(linear or model, ask, block, miss)

    return Predictor(model, classes, n, several is None, how, guesses, several=several)


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
        longest = float(np.sqrt(np.square(weights).sum(axis=0)).max()) or 1.0
        scale = 2.0 ** np.floor(np.log2(_STEPS / longest))
        linear = cls(
            np.rint(weights * scale), np.asarray(offsets, np.float64), _STEPS * scale
        )
        features = model.lattice_.features(
            _made_up((16, model.n_features_in_), np.dtype(np.float64))
        )
        expected = model._class_scores(features)
        within = _AGREEMENT * longest
        return (
            linear
            if np.allclose(
                linear.scores(features), expected, rtol=_AGREEMENT, atol=within
            )
            else None
        )

    def scores(self, features: Float32) -> Float:
        """Return scores of unit rows, shape (n, n_classes)."""
        rows = np.rint(features.astype(np.float64) * _STEPS)
        return np.asarray(rows @ self.weights / self.unit + self.offsets)


def _foreign(model: Any, classes: Array, X: Any) -> Predictor:
    """Predict by any other classifier."""
    several = multilabel(model)
    probabilities = several is None and hasattr(model, "predict_proba")
    expected = getattr(model, "n_features_in_", None)
    shape: Any = getattr(X, "shape", ())
    if expected is not None and len(shape) == 2 and shape[1] != expected:
        raise InputError(f"X has {shape[1]} features, but the fit had {expected}.")
    ask = partial(_predicted, classes, probabilities)
    if several is not None:
        ask = partial(_predicted_sets, len(classes))
    has_table = probabilities or several is not None
    miss = Guesses(np.array([-1]), np.zeros((1, len(classes))) if has_table else None)
    rows = _sliceable(X)
    # Whatever is no array of numbers has no public rows of its kind.
    public = None
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub" and rows.ndim > 1:
        public = rows.shape[1:]
    how = _assumed_of(model, ask, public, getattr(rows, "dtype", None), miss)
    n = _length(X)

    def guesses() -> Iterator[Guesses]:
        return (
            _one_by_one(model, ask, _part(rows, start, start + _ROWS), miss)
            for start in range(0, n, _ROWS)
        )

    return Predictor(model, classes, n, probabilities, how, guesses, several=several)


def _sliceable(X: Any) -> Any:
    """Return records as something of which slices are records, too."""
    if is_tensor(X):
        return as_numpy(X)
    if hasattr(X, "tocsr"):  # other sparse matrices have no slices
        return X.tocsr()
    known = isinstance(X, np.ndarray | list | tuple) or hasattr(X, "iloc")
    if known and not _has_fields(X):
        return X
    raise InputError(
        "X must be an array, a frame of pandas, a sparse matrix or a list of records; "
        f"got {'an array with fields' if _has_fields(X) else type(X).__name__}."
    )


def _has_fields(X: Any) -> bool:
    return getattr(getattr(X, "dtype", None), "names", None) is not None


def _part(rows: Any, start: int, stop: int) -> Any:
    """Return some records, counted from 0 also in a frame whose index has other numbers."""
    return (rows.iloc if hasattr(rows, "iloc") else rows)[start:stop]


def _predicted_sets(n_classes: int, model: Any, rows: Any) -> Guesses:
    """Ask a classifier that answers with an indicator matrix, which may be sparse."""
    answer = model.predict(rebuilt(rows))
    sets = np.asarray(
        answer.toarray() if hasattr(answer, "toarray") else answer
    ).astype(bool)
    if sets.shape != (_length(rows), n_classes):
        raise InputError("predict must return a column for each class.")
    return _margins(sets)


def _predicted(classes: Array, probabilities: bool, model: Any, rows: Any) -> Guesses:
    """Ask a classifier about rows."""
    codes = class_codes(
        as_labels(model.predict(rebuilt(rows)), np.empty((_length(rows), 0))),
        classes,
        "ignore",
    )
    if not probabilities:
        return Guesses(codes)
    table = np.ascontiguousarray(
        as_numpy(model.predict_proba(rebuilt(rows))), np.float64
    )
    if table.shape != (len(codes), len(classes)):
        raise InputError("predict_proba must return a column for each class.")
    return Guesses(codes, table)


def _length(rows: Any) -> int:
    """Return the number of rows, also of a sparse matrix."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _assumed_of(
    model: Any, ask: Ask, shape: tuple[int, ...] | None, kind: Any, miss: Guesses
) -> Term[Assumption]:
    """Return what is assumed of a classifier that is asked about one record at a time.

    One that cannot be copied is refused, and so is one that says something else of a
    public row after it has been asked about others. Of records without a shape there
    are no public rows.
    """
    try:
        deepcopy(model)
    except Exception:
        raise ParameterError(
            "must be a classifier that copy.deepcopy can copy, since each record is "
            f"predicted by a fresh copy; got {type(model).__name__}. Predict each record "
            "by itself, and evaluate the table by AlreadyPredicted(classes).",
            parameter="model",
        ) from None
    if shape is None:
        return FRESH
    odd = (0, np.nan, np.inf, np.finfo(kind).max) if kind.kind == "f" else (0,)
    public = np.concatenate(
        [
            _made_up((_PUBLIC_ROWS, *shape), kind),
            *(np.full((1, *shape), value, kind) for value in odd),
        ]
    )
    first = _one_by_one(model, ask, public, miss)
    again = _one_by_one(model, ask, public[::-1], miss)
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
    return SEEN


def _one_by_one(model: Any, ask: Ask, rows: Any, miss: Guesses) -> Guesses:
    """Ask about each of some rows alone; each that raises is a `miss`."""
    some = [
        _asked(model, ask, _part(rows, place, place + 1)) or miss
        for place in range(_length(rows))
    ]
    tables = [one.table for one in some if one.table is not None]
    predicted = np.concatenate([one.predicted for one in some])
    return Guesses(predicted, np.concatenate(tables) if tables else None)


def _asked(model: Any, ask: Ask, rows: Any) -> Guesses | None:
    """Ask a fresh copy of a classifier about rows; None if it raises.

    Its errors are not shown, nor what `muted` hides: both may quote a record, and are
    as often as there are records. Whatever it raises by itself is a miss, also what
    else would end the run; a signal ends it.
    """
    found = None
    with stops() as raised, suppress(BaseException), muted():
        found = ask(deepcopy(model), rows)
    if raised:
        raise raised[0]
    return found


def _made_up(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """Return public rows, the same for all records: in [-1, 1], or from 0 to 126 for integers."""
    waves = np.cos(np.arange(np.prod(shape), dtype=np.float64) ** 2).reshape(shape)
    return (waves if kind.kind == "f" else 63 * (1 + waves)).astype(kind)
