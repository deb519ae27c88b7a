"""How good predictions are, over all records and class by class.

These are plain numbers without protection: computed on private records, they are not
covered by any guarantee.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils import validate
from dppl._utils.types import Array, Flags, Float
from dppl.errors import InputError, ParameterError
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.persons import checked_ids, person_codes
from dppl.kernel.reading import as_labels, class_codes

__all__ = [
    "accuracy",
    "balanced_accuracy",
    "calibration_error",
    "class_accuracies",
    "class_sizes",
    "confusions",
    "difference_error",
    "evaluate",
    "evaluate_several",
    "is_ahead",
    "minority_accuracy",
    "minority_classes",
    "person_accuracies",
    "standard_error",
]


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the share of records whose predicted label is the true one.

    >>> accuracy(["a", "a", "b", "c"], ["a", "b", "b", "a"])
    0.5
    """
    truth, predicted = _labels(y_true, y_pred)
    return float((truth == predicted).mean())


def class_sizes(y: ArrayLike, classes: ArrayLike) -> NDArray[np.int64]:
    """Return the number of records of each class, in the order of `classes`.

    >>> class_sizes(["b", "b", "x"], ["a", "b"]).tolist()
    [0, 2]
    """
    names, counts = np.unique(np.asarray(y), return_counts=True)
    count_of = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return np.array(
        [count_of.get(name, 0) for name in np.asarray(classes).tolist()], np.int64
    )


def class_accuracies(y_true: ArrayLike, y_pred: ArrayLike, classes: ArrayLike) -> Float:
    """Return the accuracy on the records of each class, its recall, in the order of `classes`; NaN without records.

    >>> class_accuracies(["a", "a", "b"], ["a", "b", "b"], ["a", "b", "c"])
    array([0.5, 1. , nan])
    """
    truth, predicted = _labels(y_true, y_pred)
    sizes = class_sizes(truth, classes)
    correct = class_sizes(truth[truth == predicted], classes)
    return np.asarray(
        np.divide(correct, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    )


def confusions(
    y_true: ArrayLike, y_pred: ArrayLike, classes: ArrayLike
) -> list[tuple[Any, Any, int]]:
    """Return the pairs of a class in `classes` and the one it is taken for, with their records, the most first.

    >>> confusions(["a", "b", "b", "b"], ["a", "a", "c", "c"], ["a", "b", "c"])
    [('b', 'c', 2), ('b', 'a', 1)]
    """
    truth, predicted = _labels(y_true, y_pred)
    place = {name: number for number, name in enumerate(np.asarray(classes).tolist())}
    pairs = Counter(zip(truth.tolist(), predicted.tolist(), strict=True))
    wrong = [
        (a, b, n) for (a, b), n in pairs.items() if a != b and a in place and b in place
    ]
    # Of equally frequent pairs, the order of the classes decides.
    return sorted(wrong, key=lambda pair: (-pair[2], place[pair[0]], place[pair[1]]))


def balanced_accuracy(
    y_true: ArrayLike, y_pred: ArrayLike, classes: ArrayLike
) -> float:
    """Return the mean of the class accuracies over the classes with records; NaN if there is none.

    >>> balanced_accuracy(["a", "a", "a", "b"], ["a", "a", "a", "a"], ["a", "b"])
    0.5
    """
    each = class_accuracies(y_true, y_pred, classes)
    measured = each[~np.isnan(each)]
    if len(measured):
        return float(measured.mean())
    return float("nan")


def calibration_error(
    y_true: ArrayLike, probabilities: ArrayLike, classes: ArrayLike, n_bins: int = 15
) -> float:
    """Return the expected calibration error of the largest probability, with classes weighing alike.

    Records are put in bins of equal width by the largest of their probabilities. The
    error is the sum over bins of their weight times the difference of accuracy and mean
    confidence (Guo et al. 2017, arXiv:1706.04599, equation 3). Each record weighs one
    over the number of records of its class, as in `balanced_accuracy`.

    >>> round(calibration_error(["a", "b"], [[0.75, 0.25], [0.75, 0.25]], ["a", "b"]), 3)
    0.25
    """
    validate.positive_integer(n_bins=n_bins)
    columns = np.asarray(classes)
    rows = np.asarray(probabilities, np.float64)
    truth, predicted = _labels(y_true, columns[rows.argmax(axis=1)])
    confidence = rows.max(axis=1)
    _, codes, sizes = np.unique(truth, return_inverse=True, return_counts=True)
    weights = 1 / (len(sizes) * sizes[codes])
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    gaps = np.bincount(bins, weights * ((truth == predicted) - confidence))
    return float(np.abs(gaps).sum())


def minority_classes(sizes: ArrayLike, share: float = 0.25) -> NDArray[np.intp]:
    """Return the positions of the smallest classes, smallest first; none where all have one size.

    `share` of them is taken, rounded down, but at least one. DPPL, arXiv:2406.08039,
    reports on the smallest 25 %.

    >>> minority_classes([9, 2, 7, 2, 8, 5, 6, 4]).tolist()
    [1, 3]
    """
    if not 0 < share <= 1:
        raise ParameterError(f"share must be above 0 and at most 1; got {share!r}.")
    counts = np.asarray(sizes)
    if not len(counts) or (counts == counts[0]).all():
        return np.empty(0, np.intp)
    return np.argsort(counts, kind="stable")[: max(1, int(share * len(counts)))]


def minority_accuracy(
    y_true: ArrayLike, y_pred: ArrayLike, classes: ArrayLike
) -> float | None:
    """Return the mean of the class accuracies over `minority_classes`; None where all sizes in `y_true` are equal.

    >>> minority_accuracy(["a", "a", "b"], ["a", "a", "a"], ["a", "b"])
    0.0
    """
    each = class_accuracies(y_true, y_pred, classes)
    sizes = class_sizes(y_true, classes)
    measured = sizes > 0
    smallest = minority_classes(sizes[measured])
    if len(smallest):
        return float(each[measured][smallest].mean())
    return None


def person_accuracies(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike) -> Float:
    """Return the accuracy on the records of each person; its mean counts every person once, whatever their records.

    Persons come in the order in which ids first occur; each missing id is a separate
    person.

    >>> person_accuracies(["a", "a", "b", "c"], ["a", "b", "b", "a"], ["u", "u", "v", None])
    array([0.5, 1. , 0. ])
    """
    truth, predicted = _labels(y_true, y_pred)
    persons = person_codes(checked_ids(groups, np.empty((len(truth), 1), np.int8)))
    return np.asarray(np.bincount(persons, truth == predicted) / np.bincount(persons))


def evaluate(
    y_true: Sequence[Any],
    y_pred: Sequence[Any],
    classes: Array,
    groups: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Compare predictions with labels, over all records and class by class; return what `dppl evaluate --json` prints.

    In the accuracy a label outside `classes` counts as a wrong prediction; means over
    classes omit it. A prediction of None is of a record that cannot be used. `groups`
    are ids of persons.
    """
    usable = [place for place, label in enumerate(y_pred) if label is not None]
    if not usable:
        raise InputError("there is nothing to evaluate, since no record can be used.")
    # From here on classes are numbers, for labels of files and of models may differ in
    # type.
    codes = np.arange(len(classes))
    names = classes.tolist()
    chance = 1 / len(classes)
    rows = np.empty((len(usable), 1))
    truth, predicted = (
        class_codes(
            as_labels([labels[place] for place in usable], rows), classes, "ignore"
        )
        for labels in (y_true, y_pred)
    )
    sizes = class_sizes(truth, codes).tolist()
    each = class_accuracies(truth, predicted, codes).tolist()
    report = {
        "balanced_accuracy": _or_none(balanced_accuracy(truth, predicted, codes)),
        "accuracy": accuracy(truth, predicted),
        "minority_accuracy": minority_accuracy(truth, predicted, codes),
        "n": len(truth),
        "n_unknown_labels": len(truth) - sum(sizes),
        "n_unusable": len(y_pred) - len(usable),
        "chance": chance,
        "at_or_below_chance": [
            name for name, value in zip(names, each, strict=True) if value <= chance
        ],
        "per_class": [
            {"class": name, "n": size, "accuracy": _or_none(value)}
            for name, size, value in zip(names, sizes, each, strict=True)
        ],
        "confusions": [
            {"class": names[one], "predicted": names[other], "n": n}
            for one, other, n in confusions(truth, predicted, codes)
        ],
    }
    return report | _of_persons(truth == predicted, groups, usable)


def evaluate_several(
    y_true: Sequence[Any],
    y_pred: Sequence[Any],
    classes: Array,
    several: MultiLabel,
    groups: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Compare labels where a record may have several; return what `evaluate` does, and F1.

    Accuracy is the share of records whose labels are all right, and no other is
    predicted; of a class, it is its recall. Means over classes omit those without a
    record. Other arguments are as for `evaluate`.
    """
    usable = [place for place, labels in enumerate(y_pred) if labels is not None]
    if not usable:
        raise InputError("there is nothing to evaluate, since no record can be used.")
    rows = np.empty((len(usable), 1))
    (truth, known), (predicted, _) = (
        several.read(
            several.checked([labels[place] for place in usable], rows), classes
        )
        for labels in (y_true, y_pred)
    )
    found, missed, false = (
        (one & two).sum(axis=0)
        for one, two in ((truth, predicted), (truth, ~predicted), (~truth, predicted))
    )
    sizes = (found + missed).tolist()
    recall = _share(found, missed)
    precision = _share(found, false)
    f1 = np.where(
        found + missed > 0,
        2 * found / np.maximum(2 * found + missed + false, 1),
        np.nan,
    )
    has_records = np.array(sizes) > 0
    smallest = minority_classes(np.array(sizes)[has_records])
    right = (truth == predicted).all(axis=1)
    report = {
        "balanced_accuracy": _or_none(_mean(recall[has_records])),
        "accuracy": float(right.mean()),
        "minority_accuracy": _or_none(_mean(recall[has_records][smallest])),
        "macro_f1": _or_none(_mean(f1[has_records])),
        "micro_f1": float(2 * found.sum() / max(1, (2 * found + missed + false).sum())),
        "n": len(truth),
        "n_unknown_labels": int((~known).sum()),
        "n_unusable": len(y_pred) - len(usable),
        "chance": None,
        "at_or_below_chance": [],
        "per_class": [
            {
                "class": name,
                "n": n,
                "accuracy": _or_none(one),
                "precision": _or_none(other),
                "f1": _or_none(both),
            }
            for name, n, one, other, both in zip(
                classes.tolist(),
                sizes,
                recall.tolist(),
                precision.tolist(),
                f1.tolist(),
                strict=True,
            )
        ],
        "confusions": [],
    }
    return report | _of_persons(right, groups, usable)


def _of_persons(
    right: Flags, groups: Sequence[Any] | None, usable: list[int]
) -> dict[str, Any]:
    """Return the accuracy in which every person counts once, if there are ids."""
    if groups is None:
        return {}
    each = person_accuracies(
        np.ones(len(right), bool), right, [groups[place] for place in usable]
    )
    return {"person_accuracy": float(each.mean()), "n_persons": len(each)}


def _share(hits: NDArray[np.int64], others: NDArray[np.int64]) -> Float:
    n = hits + others
    return np.asarray(np.divide(hits, n, out=np.full(len(n), np.nan), where=n > 0))


def _mean(values: Float) -> float:
    return float(values.mean()) if len(values) else math.nan


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; None for fewer than two values, which show no spread."""
    if len(values) < 2:
        return None
    return float(stdev(values) / len(values) ** 0.5)


def difference_error(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the standard error of the difference of two means of independent values; None where one has none."""
    error = standard_error(values)
    other = standard_error(others)
    if error is None or other is None:
        return None
    return float(np.hypot(error, other))


def is_ahead(values: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether one mean is above another by more than two standard errors of their difference.

    >>> is_ahead([0.5, 0.6], [0.2, 0.3]), is_ahead([0.5, 0.6], [0.4, 0.5]), is_ahead([0.6], [0.2])
    (True, False, False)
    """
    error = difference_error(values, others)
    return error is not None and fmean(values) - fmean(others) > 2 * error


def _labels(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Array, Array]:
    truth = np.asarray(y_true)
    predicted = np.asarray(y_pred)
    if truth.ndim != 1 or truth.shape != predicted.shape:
        raise InputError(
            "true and predicted labels must be two vectors of one length; their shapes differ."
        )
    if not len(truth):
        raise InputError("an accuracy needs at least one record; there is none.")
    return truth, predicted
