"""Tables of predictions that were made elsewhere, as classifiers of their own records."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from dppl._utils import validate
from dppl._utils.types import Array
from dppl.errors import InputError
from dppl.kernel.lattice.stream import as_numpy, is_tensor
from dppl.kernel.reading import as_labels, check_kind
from dppl.prediction.one_record import (
    OneRecord,
    length,
    of_labels,
    of_probabilities,
    of_sets,
)
from dppl.prediction.pending import (
    LabelSets,
    PendingPredictions,
    class_list,
    label_sets,
    pending,
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
        if table.ndim == 1:
            return X
        return self.classes_[np.nan_to_num(table).argmax(axis=1)]


def predictions_of(model: Any, X: Any) -> PendingPredictions:
    """Settle from public facts how the records are predicted, or read what is said of them."""
    if isinstance(model, PendingPredictions):
        return model
    if not isinstance(model, AlreadyPredicted):
        return pending(model, X)
    classes = class_list(model)
    several = label_sets(model)
    if several is not None:
        sets = several.labels.checked(X, np.empty((length(X), 0)), ("y", "X"))
        several.labels.read(sets[:0], classes)  # compares shapes
        return _given(model, of_sets(several.labels, classes), sets, several=several)
    # Probabilities, a column for each class; or else labels.
    table: Array = np.empty(())
    with suppress(Exception):  # raised below, without the number of rows
        table = as_numpy(X) if is_tensor(X) else np.asarray(X)
    if table.ndim == 2 and table.shape[1] == len(classes) and table.dtype.kind in "fiu":
        return _given(model, of_probabilities(), table, probabilities=True)
    if table.ndim != 1:
        raise InputError(
            f"X must be predicted labels of shape (n,) or probabilities of shape (n, {len(classes)})."
        )
    labels = as_labels(X, np.empty((len(table), 0)), ("y", "X"))
    check_kind(labels, classes, "X")
    return _given(model, of_labels(classes), labels)


def _given(
    model: AlreadyPredicted,
    one_record: OneRecord,
    table: Array,
    *,
    probabilities: bool = False,
    several: LabelSets | None = None,
) -> PendingPredictions:
    return PendingPredictions(
        model.model,
        model.classes_,
        len(table),
        probabilities,
        one_record.assumption,
        lambda: one_record.guesses([table]),
        several=several,
    )
