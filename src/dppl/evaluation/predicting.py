"""What a classifier says of private records, so that each answer depends on its record alone.

A matrix product may round a row differently in another batch, and a record would then
move its neighbours across a decision boundary. Records are therefore predicted in
blocks of one fixed shape, the last of which is filled up with public rows, if a trial
on public rows shows the same bits at every place and next to odd rows. Linear
classifiers of dppl score them in integers, exactly in any order. Where the trial fails,
and where records are no array of numbers, each is predicted by itself.

A record for which a classifier raises is a miss. It is found by halving its block, and
stops no other record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl._metadata import depends_on_company
from dppl._types import Array, Flags, Float, Float32
from dppl.errors import InputError, ParameterError
from dppl.estimators import EmbeddingClassifier, PrivateSearch
from dppl.kernel.lattice import RowSource, iter_blocks
from dppl.kernel.lattice.stream import as_numpy, is_tensor
from dppl.kernel.outcomes import Guesses
from dppl.kernel.persons import checked_ids
from dppl.kernel.privacy.terms import Assumption, Term
from dppl.kernel.reading import (
    SeveralLabels,
    as_labels,
    as_rows,
    class_codes,
    public_classes,
)
from dppl.kernel.records import Parted
from dppl.training.classifier import PrivateClassifier
from dppl.training.items import check_items, embed_items

Ask: TypeAlias = Callable[[Any], Guesses]

# Rows of a block at most and at least, and about how many numbers it has.
_ROWS = 1024
_FEWEST_ROWS = 8
_NUMBERS = 2**22
_STEPS = 2.0**26  # of 1 in the integers that are multiplied
_AGREEMENT = 1e-5
MAX_LABELS = 5  # of a classifier of several labels that names no number
EXACT = Term(Assumption.PREDICTED_EXACTLY)
IN_BLOCKS = Term(Assumption.PREDICTED_IN_BLOCKS)
ONE_BY_ONE = Term(Assumption.PREDICTED_ONE_BY_ONE)
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
    labels: SeveralLabels


def several_labels(model: Any) -> Several | None:
    """Return how records have several labels for a fitted model, or None if each has one."""
    if isinstance(model, PrivateClassifier):
        model = model.model_
    if getattr(model, "several_labels", False):
        return Several(model.max_labels, SeveralLabels(model.separator))
    # OneVsRestClassifier
    return (
        Several(MAX_LABELS, SeveralLabels())
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
            _validate.positive_integer(max_labels=self.max_labels)

    @property
    def several_labels(self) -> bool:
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
    several = several_labels(model)
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
    """Score rows of a classifier of embeddings, by integers where its scores are linear."""
    linear = Linear.of(model)
    several = several_labels(model)
    scores: Callable[[Any], Float] = (
        model._class_scores if linear is None else linear.scores
    )
    sharpness = model._sharpness()
    features = model.lattice_.features

    def ask(block: Any) -> Guesses:
        unit = features(np.ascontiguousarray(block))
        logits = scores(unit)
        usable = unit.any(axis=1)
        predicted = logits.argmax(axis=1)
        if several is not None:
            return Guesses(np.where(usable, 0, -1), logits)
        logits = sharpness * (logits - logits.max(axis=1, keepdims=True))
        powers = np.exp(logits)
        return Guesses(
            np.where(usable, predicted, -1), powers / powers.sum(axis=1, keepdims=True)
        )

    public = _tried(ask, (model.n_features_in_,), kind)
    how = ONE_BY_ONE if public is None else IN_BLOCKS if linear is None else EXACT
    miss = Guesses(np.array([-1]), np.zeros((1, len(classes))))

    def guesses() -> Iterator[Guesses]:
        size = 1 if public is None else len(public)
        return (
            _surely(ask, as_numpy(block), public, miss)
            for block in iter_blocks(rows(), size)
        )

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
    several = several_labels(model)
    probabilities = several is None and hasattr(model, "predict_proba")
    expected = getattr(model, "n_features_in_", None)
    shape: Any = getattr(X, "shape", ())
    if expected is not None and len(shape) == 2 and shape[1] != expected:
        raise InputError(f"X has {shape[1]} features, but the fit had {expected}.")
    ask = partial(_predicted, model, classes, probabilities)
    if several is not None:
        ask = partial(_predicted_sets, model, len(classes))
    X = as_numpy(X) if is_tensor(X) else X
    # Whatever is no array of numbers has no public rows of its kind, and is predicted
    # one by one.
    public = None
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" and X.ndim > 1:
        public = _tried(ask, X.shape[1:], X.dtype)
    n = _length(X)
    rows = X.iloc if hasattr(X, "iloc") else X
    size = 1 if public is None else len(public)
    has_table = probabilities or several is not None
    miss = Guesses(np.array([-1]), np.zeros((1, len(classes))) if has_table else None)

    def guesses() -> Iterator[Guesses]:
        return (
            _surely(ask, rows[start : start + size], public, miss)
            for start in range(0, n, size)
        )

    how = ONE_BY_ONE if public is None else IN_BLOCKS
    return Predictor(model, classes, n, probabilities, how, guesses, several=several)


def _predicted_sets(model: Any, n_classes: int, rows: Any) -> Guesses:
    """Ask a classifier that answers with an indicator matrix, which may be sparse."""
    answer = model.predict(rows)
    sets = np.asarray(
        answer.toarray() if hasattr(answer, "toarray") else answer
    ).astype(bool)
    if sets.shape != (_length(rows), n_classes):
        raise InputError("predict must return a column for each class.")
    return _margins(sets)


def _predicted(model: Any, classes: Array, probabilities: bool, rows: Any) -> Guesses:
    """Ask a classifier about rows."""
    codes = class_codes(
        as_labels(model.predict(rows), np.empty((_length(rows), 0))), classes, "ignore"
    )
    if not probabilities:
        return Guesses(codes)
    table = np.ascontiguousarray(as_numpy(model.predict_proba(rows)), np.float64)
    if table.shape != (len(codes), len(classes)):
        raise InputError("predict_proba must return a column for each class.")
    return Guesses(codes, table)


def _length(rows: Any) -> int:
    """Return the number of rows, also of a sparse matrix."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _tried(ask: Ask, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array | None:
    """Return a block of public rows, if they get the same bits at other places and next to odd rows."""
    n = max(_FEWEST_ROWS, min(_ROWS, _NUMBERS // max(1, int(np.prod(shape)))))
    public = _made_up((n, *shape), kind)
    places = np.arange(n)
    expected = _answer(ask, public)

    def alike(
        found: Guesses | None, there: NDArray[np.intp], here: NDArray[np.intp]
    ) -> bool:
        if expected is None or found is None:
            return False
        return _bits(_taken(found, there)) == _bits(_taken(expected, here))

    def undisturbed(value: float) -> bool:
        rows = public.copy()
        others = places[1::2]
        rows[::2] = value
        found = _answer(ask, rows)
        return found is None or alike(
            found, others, others
        )  # rows that it refuses come next to no others

    # The same rows at three other places, and every other row next to neighbours that
    # leave the usual range.
    turned = (
        alike(_answer(ask, np.roll(public, by, axis=0)), (places + by) % n, places)
        for by in (1, 7, n // 2 + 3)
    )
    odd = (0, np.nan, np.inf, np.finfo(kind).max) if kind.kind == "f" else (0,)
    return public if all(turned) and all(map(undisturbed, odd)) else None


def _bits(guesses: Guesses) -> tuple[bytes, bytes]:
    table = guesses.table
    return guesses.predicted.tobytes(), b"" if table is None else table.tobytes()


def _taken(guesses: Guesses, places: Any) -> Guesses:
    table = guesses.table
    return Guesses(guesses.predicted[places], None if table is None else table[places])


def _surely(ask: Ask, rows: Any, public: Array | None, miss: Guesses) -> Guesses:
    """Ask about rows in a block of the shape of `public`, or about one row; each row that raises is a `miss`."""
    if public is None:
        return _answer(ask, rows) or miss
    n = len(rows)
    block = np.concatenate([rows, public[n:]])
    refused = np.zeros(len(public), bool)
    found = _answer(ask, block)
    # Some row raises: it becomes a public one, and the block has its shape again.
    if found is None:
        refused[:n] = _refused(ask, rows)
        block[refused] = public[refused]
        found = _answer(ask, block) or _taken(miss, np.zeros(len(public), np.intp))
    table = found.table
    table = None if table is None else np.where(refused[:, None], 0, table)
    return _taken(Guesses(np.where(refused, -1, found.predicted), table), slice(0, n))


def _refused(ask: Ask, rows: Any) -> Flags:
    """Mark the rows for which a classifier raises, by halves."""
    n = len(rows)
    if _answer(ask, rows) is not None:
        return np.zeros(n, bool)
    halves = (rows[: n // 2], rows[n // 2 :])
    return (
        np.ones(n, bool)
        if n == 1
        else np.concatenate([_refused(ask, half) for half in halves])
    )


def _answer(ask: Ask, rows: Any) -> Guesses | None:
    """Ask about rows; None if the classifier raises. Neither its errors nor its warnings, which may quote a record."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return ask(rows)
    except Exception:
        return None


def _made_up(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """Return public rows, the same for all records: in [-1, 1], or from 0 to 126 for integers."""
    waves = np.cos(np.arange(np.prod(shape), dtype=np.float64) ** 2).reshape(shape)
    return (waves if kind.kind == "f" else 63 * (1 + waves)).astype(kind)
