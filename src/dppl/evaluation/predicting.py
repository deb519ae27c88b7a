"""What a classifier says of private records, so that each answer depends on its record alone.

A matrix product may round a row differently in another batch, and a record would then move its neighbours across a
decision boundary. Three ways do not:

* linear classifiers of dppl score rows in integers, exactly, in any order;
* others predict in blocks of one fixed shape, whose last block is padded with public rows, if a trial on public rows
  shows the same bits at every place and next to any others;
* else each record is predicted by itself.

A record for which a classifier raises is a miss. It is found by halving its block, and stops no other record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError, ParameterError
from dppl.estimators import EmbeddingClassifier, PrivateSearch
from dppl.kernel.lattice import RowSource, iter_blocks
from dppl.kernel.lattice.stream import as_numpy, is_tensor
from dppl.kernel.outcomes import Guesses
from dppl.kernel.reading import as_labels, as_rows, class_codes, public_classes
from dppl.kernel.records import Parted
from dppl.training.classifier import PrivateClassifier
from dppl.training.items import embed_items

Float: TypeAlias = NDArray[np.float64]

# Rows of a block, and steps of 1 in the integers that are multiplied.
_ROWS, _STEPS = 1024, 2.0**26
_AGREEMENT = 1e-5
EXACT = "each prediction is a function of its record alone: scores are exact integers"
IN_BLOCKS = (
    "each prediction is a function of its record alone: blocks have one shape, and a trial on public rows showed the "
    "same bits at every place"
)
ONE_BY_ONE = "each prediction is a function of its record alone: records are predicted one at a time"
GIVEN = "each prediction is a function of its record alone, which whoever made the table of predictions has to know"


class Predicts(Protocol):
    """A fitted classifier. `predict_proba` is used if there is one."""

    classes_: Any

    def predict(self, X: Any) -> Any:
        """Return a label for each record."""


@dataclass(frozen=True, slots=True, eq=False)
class AlreadyPredicted:
    """A table of predictions as a classifier: `X` is then predicted labels (n,) or probabilities (n, n_classes).

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        The public class list, in the order of the columns of probabilities.
    model : object, default=None
        What made the predictions, for its guarantee and its hash.
    """

    classes: Any
    model: Any = None

    @property
    def classes_(self) -> NDArray[Any]:
        """The class list."""
        return np.asarray(self.classes)

    def predict(self, X: Any) -> Any:
        """Return labels as they are, and the class of the largest probability."""
        table = np.asarray(X)
        return X if table.ndim == 1 else self.classes_[np.nan_to_num(table).argmax(axis=1)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Predictor:
    """A classifier and private records, of which only the shape has been looked at."""

    model: Any  # what has a guarantee, or None
    classes: NDArray[Any]  # shape (n_classes,)
    n: int  # how many records; private
    probabilities: bool  # whether it says them
    assumption: str
    guesses: Callable[[], Iterator[Guesses]]  # reads the records


def predictor_of(model: Any, X: Any) -> Predictor:
    """Settle from public facts how the records are predicted."""
    if isinstance(X, Parted):
        raise InputError("X must be in one place, and not a table in parts.")
    if isinstance(model, AlreadyPredicted):
        return _given(model, X)
    if isinstance(model, PrivateSearch):
        model = model.best_estimator_
    classes = _classes_of(model)
    if isinstance(model, PrivateClassifier):
        inner, encoder = model.model_, model._loaded()
        linear = _Linear.of(inner)
        if linear is not None:
            after_encoder = partial(_embedded, linear, encoder, X)
            return Predictor(inner, classes, len(X), True, EXACT, after_encoder)
    linear = _Linear.of(model) if isinstance(model, EmbeddingClassifier) else None
    if linear is not None:
        rows = as_rows(X)
        model._check_continues(X)
        return Predictor(model, classes, rows.shape[0], True, EXACT, partial(linear.guesses, rows))
    return _foreign(model, classes, X)


def _embedded(linear: _Linear, encoder: Any, X: Any) -> Iterator[Guesses]:
    yield from linear.guesses(embed_items(encoder, X, "X"))


def _classes_of(model: Any) -> NDArray[Any]:
    """Return the class list of a classifier in its order; one that has none is refused."""
    classes = getattr(model, "classes_", None)
    if classes is None or not hasattr(model, "predict"):
        raise ParameterError("must be a fitted classifier with classes_ and predict.", parameter="model")
    public_classes(classes)
    return np.asarray(classes)


def _given(model: AlreadyPredicted, X: Any) -> Predictor:
    classes = _classes_of(model)
    table = np.asarray(X)
    if table.ndim == 2 and table.shape[1] == len(classes) and table.dtype.kind in "fiu":

        def read() -> Iterator[Guesses]:
            for block in iter_blocks(table, _ROWS):
                known = ~np.isnan(block).any(axis=1)
                yield Guesses(np.where(known, np.where(known[:, None], block, 0).argmax(axis=1), -1), block)

        return Predictor(model.model, classes, len(table), True, GIVEN, read)
    if table.ndim != 1:
        raise InputError(
            f"X must be predicted labels (n,) or probabilities (n, {len(classes)}); got {table.ndim} dimensions or "
            "another number of columns."
        )
    labels = as_labels(X, np.empty((len(table), 0)), ("y", "X"))

    def compare() -> Iterator[Guesses]:
        yield Guesses(class_codes(labels, classes, "ignore"))

    return Predictor(model.model, classes, len(table), False, GIVEN, compare)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Linear:
    """Scores that are linear in unit rows, in integers.

    Rows and weights are rounded to steps of 2⁻²⁶ of the longest. By Cauchy and Schwarz every sum of their products,
    over any of the coordinates, is below 2⁵³: a matrix product of such integers is exact in float64, in any order.
    """

    model: EmbeddingClassifier
    weights: Float  # shape (dim, n_classes), integers
    offsets: Float  # shape (n_classes,)
    unit: float  # steps of a score of 1

    @classmethod
    def of(cls, model: EmbeddingClassifier) -> _Linear | None:
        """Read weights and offsets off the scores of unit vectors; None if scores of other rows do not follow."""
        dim = model.lattice_.dim
        offsets = model._class_scores(np.zeros((1, dim), np.float32))[0]
        weights = model._class_scores(np.eye(dim, dtype=np.float32)) - offsets
        longest = float(np.sqrt(np.square(weights).sum(axis=0)).max()) or 1.0
        scale = 2.0 ** np.floor(np.log2(_STEPS / longest))
        linear = cls(model, np.rint(weights * scale), np.asarray(offsets, np.float64), _STEPS * scale)
        features = model.lattice_.features(_made_up((16, model.n_features_in_)))
        alike = np.allclose(
            linear.scores(features), model._class_scores(features), rtol=_AGREEMENT, atol=_AGREEMENT * longest
        )
        return linear if alike else None

    def scores(self, features: NDArray[np.float32]) -> Float:
        """Return scores of unit rows, shape (n, n_classes)."""
        rows = np.rint(features.astype(np.float64) * _STEPS)
        return np.asarray(rows @ self.weights / self.unit + self.offsets)

    def guesses(self, source: RowSource) -> Iterator[Guesses]:
        """Predict rows, of which those without a direction cannot be scored."""
        sharpness = self.model._sharpness()
        for block in iter_blocks(source, _ROWS):
            features = self.model.lattice_.features(np.ascontiguousarray(as_numpy(block)))
            scores = self.scores(features)
            logits = sharpness * scores
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            usable = features.any(axis=1)
            yield Guesses(np.where(usable, scores.argmax(axis=1), -1), powers / powers.sum(axis=1, keepdims=True))


def _foreign(model: Any, classes: NDArray[Any], X: Any) -> Predictor:
    """Predict in blocks of one shape, or one at a time."""
    ask = _Asking(model, classes, hasattr(model, "predict_proba"))
    if is_tensor(X):
        X = as_numpy(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" and X.ndim > 1:
        public = _made_up((_ROWS, *X.shape[1:])).astype(X.dtype)
        if _passes_trial(ask, public):

            def in_blocks() -> Iterator[Guesses]:
                return (_surely(ask, X[start : start + _ROWS], public) for start in range(0, len(X), _ROWS))

            return Predictor(model, classes, len(X), ask.probabilities, IN_BLOCKS, in_blocks)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    rows = X.iloc if hasattr(X, "iloc") else X

    def singly() -> Iterator[Guesses]:
        return (_surely(ask, rows[place : place + 1], None) for place in range(n))

    return Predictor(model, classes, n, ask.probabilities, ONE_BY_ONE, singly)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Asking:
    """Asks a classifier, whose warnings and answers of another shape tell nobody anything."""

    model: Any
    classes: NDArray[Any]
    probabilities: bool

    def __call__(self, rows: Any) -> Guesses:
        n = len(rows)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            codes = class_codes(as_labels(self.model.predict(rows), np.empty((n, 0))), self.classes, "ignore")
            if not self.probabilities:
                return Guesses(codes)
            table = np.asarray(as_numpy(self.model.predict_proba(rows)), np.float64)
        if table.shape != (n, len(self.classes)):
            raise InputError("predict_proba must return a column for each class.")
        return Guesses(codes, table)


def _passes_trial(ask: _Asking, public: NDArray[Any]) -> bool:
    """Whether public rows get the same bits at other places of a block, and next to other rows."""
    try:
        expected = ask(public)
        order = np.arange(len(public))
        for turn in (1, 7, len(public) // 2 + 3):
            if not _same(ask(np.roll(public, turn, axis=0)), expected, (order - turn) % len(public)):
                return False
        beside = public.copy()
        beside[::2] = 0
        found = ask(beside)
        odd = order[1::2]
        return _same(_taken(found, odd), expected, odd)
    except Exception:  # whatever it is, it is about public rows
        return False


def _same(found: Guesses, expected: Guesses, places: NDArray[np.intp]) -> bool:
    others = _taken(expected, places)
    if found.probabilities is None or others.probabilities is None:
        return np.array_equal(found.predicted, others.predicted)
    return np.array_equal(found.predicted, others.predicted) and bool(
        (found.probabilities.view(np.int64) == others.probabilities.view(np.int64)).all()
    )


def _taken(guesses: Guesses, places: Any) -> Guesses:
    table = guesses.probabilities
    return Guesses(guesses.predicted[places], None if table is None else np.ascontiguousarray(table[places]))


def _surely(ask: _Asking, rows: Any, public: NDArray[Any] | None) -> Guesses:
    """Ask about rows in a block of the shape of `public`, or as they are; rows that raise are misses."""
    n = len(rows)
    try:
        if public is None:
            return ask(rows)
        block = public.copy()
        block[:n] = rows
        return _taken(ask(block), slice(0, n))
    except Exception:  # an error of a record may quote it
        if n > 1:
            halves = [_surely(ask, part, public) for part in (rows[: n // 2], rows[n // 2 :])]
            tables = [half.probabilities for half in halves if half.probabilities is not None]
            return Guesses(
                np.concatenate([half.predicted for half in halves]), np.concatenate(tables) if tables else None
            )
        table = np.zeros((n, len(ask.classes))) if ask.probabilities else None
        return Guesses(np.full(n, -1, np.intp), table)


def _made_up(shape: tuple[int, ...]) -> Float:
    """Return public rows, the same for all records."""
    return np.cos(np.arange(np.prod(shape), dtype=np.float64) ** 2).reshape(shape)
