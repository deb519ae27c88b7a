"""Private test records and what predicts them, of which only public facts are settled before they are paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from dppl._utils.metadata import depends_on_company
from dppl._utils.types import Array
from dppl.errors import InputError, ParameterError
from dppl.finetune.tune import Finetuned
from dppl.io.tables.shards import Window
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import iter_blocks
from dppl.kernel.lattice.stream import as_numpy, is_tensor
from dppl.kernel.persons import checked_ids
from dppl.kernel.privacy.terms import Assumption, Term
from dppl.kernel.queries.outcomes import Guesses
from dppl.kernel.reading import (
    as_labels,
    as_rows,
    check_kind,
    public_classes,
)
from dppl.kernel.records import Parted
from dppl.methods import EmbeddingClassifier, PrivateSearch
from dppl.prediction.one_record import (
    OneRecord,
    length,
    of_embeddings,
    of_network,
    of_others,
    part,
    with_misses,
)
from dppl.prediction.predictor import Predictor
from dppl.prediction.rebuilt import NUMBERS
from dppl.training.classifier import PrivateClassifier
from dppl.training.items import check_items, embed_items

_ROWS = 1024  # of a block
MAX_LABELS = 5  # of a multi-label classifier that names no number


class Predicts(Protocol):
    """A fitted classifier. `predict_proba` is used if there is one."""

    classes_: Any

    def predict(self, X: Any) -> Any:
        """Return a label for each record."""


@dataclass(frozen=True, slots=True)
class LabelSets:
    """How many labels of a record count, and how they are given."""

    max_labels: int
    labels: MultiLabel


def label_sets(model: Any) -> LabelSets | None:
    """Return how records have labels for a fitted multi-label model, or None if each has one."""
    if isinstance(model, PrivateClassifier):
        model = model.model_
    if getattr(model, "multilabel", False):
        return LabelSets(model.max_labels, MultiLabel(model.separator))
    # OneVsRestClassifier
    if getattr(model, "multilabel_", False):
        return LabelSets(MAX_LABELS, MultiLabel())
    return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PendingPredictions:
    """A classifier and private records, of which only the shape has been looked at."""

    model: Any  # what has a guarantee, or None
    classes: Array  # shape (n_classes,)
    n: int  # how many records; private
    probabilities: bool  # whether it says them
    assumption: Term[Assumption]
    guesses: Callable[[], Iterator[Guesses]]  # reads the records
    mixes: bool = False  # whether embeddings may depend on others by rounding
    several: LabelSets | None = None  # of a multi-label classifier

    def labels_and_ids(self, y: Any, groups: Any) -> tuple[Any, Array | None]:
        """Return labels, or sets of labels, and ids of persons, of which only shapes and kinds have been looked at."""
        shape = np.empty((self.n, 0))
        if self.several is None:
            labels = as_labels(y, shape)
            check_kind(labels, self.classes)
        else:
            labels = self.several.labels.checked(y, shape)
            self.several.labels.read(labels[:0], self.classes)  # compares shapes
        return labels, None if groups is None else checked_ids(groups, shape)


def pending(model: Any, X: Any) -> PendingPredictions:
    """Settle from public facts how the records are predicted."""
    if isinstance(X, Parted):
        raise InputError("X must be in one place, and not a table in parts.")
    if isinstance(model, PrivateSearch):
        model = model.best_estimator_
    classes = class_list(model)
    if isinstance(model, PrivateClassifier):
        # Of raw items the kind is looked at here; they are embedded when guesses are
        # asked for.
        encoder = model._loaded()
        check_items(encoder, X, "X")
        return _of_embeddings(
            model.model_,
            len(X),
            partial(embed_items, encoder, X, "X"),
            mixes=not encoder.fingerprint.row_independent,
        )
    mixes = depends_on_company(X)
    if isinstance(model, EmbeddingClassifier):
        model._check_continues(X)
        source = as_rows(X)
        return _of_embeddings(model, source.shape[0], lambda: source, mixes=mixes)
    return _of_others(model, classes, X, mixes=mixes)


def pending_of_windows(
    model: EmbeddingClassifier | Finetuned,
    windows: Callable[[], Iterable[Window]],
    n: int,
    predictor: Predictor,
) -> PendingPredictions:
    """Settle how raw images or texts are predicted, of which `n`, their number, is all that is known.

    A record that cannot be embedded is a miss. `windows` embeds them, or reads their
    embeddings; a window is predicted and forgotten.
    """
    encoder = predictor.encoder
    n_classes = len(model.classes_)
    several = label_sets(model)
    one_record: OneRecord
    if isinstance(model, Finetuned):
        one_record = of_network(lambda row: predictor.classify(row).probabilities)
    else:
        one_record = of_embeddings(model, multilabel=several is not None)

    def guesses() -> Iterator[Guesses]:
        left = n
        for window in windows():
            left -= len(window.usable)
            if left < 0:
                break
            rows = [np.stack(window.rows)] if window.rows else []
            usable = np.array(window.usable, bool)
            yield with_misses(one_record.guesses(rows), usable, n_classes)
        if left:
            raise InputError(
                "the records must not change while they are read; they did; evaluate again."
            )

    return PendingPredictions(
        model,
        model.classes_,
        n,
        several is None,
        one_record.assumption,
        guesses,
        mixes=not encoder.fingerprint.row_independent,
        several=several,
    )


def class_list(model: Any) -> Array:
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


def _of_embeddings(
    model: EmbeddingClassifier,
    n: int,
    rows: Callable[[], Any],
    *,
    mixes: bool,
) -> PendingPredictions:
    """Predict by a classifier of embeddings."""
    several = label_sets(model)
    one_record = of_embeddings(model, multilabel=several is not None)

    def guesses() -> Iterator[Guesses]:
        return one_record.guesses(map(as_numpy, iter_blocks(rows(), _ROWS)))

    return PendingPredictions(
        model,
        np.asarray(model.classes_),
        n,
        several is None,
        one_record.assumption,
        guesses,
        mixes,
        several,
    )


def _of_others(
    model: Any, classes: Array, X: Any, *, mixes: bool
) -> PendingPredictions:
    """Predict by any other classifier."""
    several = label_sets(model)
    probabilities = several is None and hasattr(model, "predict_proba")
    expected = getattr(model, "n_features_in_", None)
    shape: Any = getattr(X, "shape", ())
    if expected is not None and len(shape) == 2 and shape[1] != expected:
        raise InputError(f"X has {shape[1]} features, but the fit had {expected}.")
    rows = _sliceable(X)
    has_rows = isinstance(rows, np.ndarray) and rows.ndim > 1
    one_record = of_others(
        model,
        classes,
        rows.shape[1:] if has_rows else None,
        probabilities=probabilities,
        multilabel=several is not None,
    )
    n = length(X)

    def blocks() -> Iterable[Any]:
        return (part(rows, start, start + _ROWS) for start in range(0, n, _ROWS))

    return PendingPredictions(
        model,
        classes,
        n,
        probabilities,
        one_record.assumption,
        lambda: one_record.guesses(blocks()),
        mixes,
        several,
    )


def _sliceable(X: Any) -> Any:
    """Return records as something of which slices are records, too."""
    if is_tensor(X):
        X = as_numpy(X)
    if isinstance(X, list | tuple):
        X = list(X)
        if not any(isinstance(one, np.ndarray) or is_tensor(one) for one in X):
            return X
    if hasattr(X, "iloc"):
        types = X.dtypes if X.ndim == 2 else [X.dtype]
        if all(getattr(one, "kind", "O") != "m" for one in types):
            return X
    if isinstance(X, np.ndarray) and _says_little(X):
        return X
    if hasattr(X, "tocsr") and X.ndim == 2:  # other sparse matrices have no slices
        return X.tocsr()
    kind = type(X).__name__
    if isinstance(X, np.ndarray):
        kind += f" of {X.dtype.type.__name__} of {X.ndim} dimensions"
    raise InputError(
        "X must be an array of rows of numbers, a one-dimensional array of texts, an "
        "array of objects, a frame of pandas without time differences, a sparse matrix, "
        f"or a list of texts, numbers, lists or dictionaries; got a {kind}. Make a frame, "
        "or numpy.array(records, dtype=object), and numbers of time differences."
    )


def _says_little(X: Array) -> bool:
    """Return whether a value in an array does not follow from other records.

    NumPy turns numbers, times and bytes into texts where one is a text, and time
    differences into others of a finer unit.
    """
    if isinstance(X, np.ma.MaskedArray):
        return False
    kind = X.dtype.kind
    if kind in NUMBERS:
        return X.ndim > 1
    return kind == "O" or (kind in "UT" and X.ndim == 1)
