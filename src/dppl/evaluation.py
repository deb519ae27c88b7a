"""How good a model is on labelled records, as one report; figures of private records are covered by no guarantee."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import metrics
from dppl.kernel.reading import as_labels, class_codes

__all__ = ["evaluate"]


def evaluate(
    y_true: ArrayLike, y_pred: ArrayLike, classes: NDArray[Any], groups: ArrayLike | None = None
) -> dict[str, Any]:
    """Compare predictions with labels, over all records and class by class; return what `dppl evaluate --json` prints.

    A label outside `classes`, which are those of the model, counts as a wrong prediction in the accuracy; means over
    classes leave it out. `groups` are ids of persons, for the mean over persons of their share of right records.
    """
    codes, names, chance = np.arange(len(classes)), classes.tolist(), 1 / len(classes)
    truth, predicted = (
        class_codes(as_labels(labels, np.empty((len(labels), 1))), classes, "ignore")  # type: ignore[arg-type]
        for labels in (y_true, y_pred)
    )
    sizes = metrics.class_sizes(truth, codes).tolist()
    each = metrics.class_accuracies(truth, predicted, codes).tolist()
    report = {
        "balanced_accuracy": _or_none(metrics.balanced_accuracy(truth, predicted, codes)),
        "accuracy": metrics.accuracy(truth, predicted),
        "minority_accuracy": metrics.minority_accuracy(truth, predicted, codes),
        "n": len(truth),
        "n_unknown_labels": len(truth) - sum(sizes),
        "chance": chance,
        "at_or_below_chance": [name for name, value in zip(names, each, strict=True) if value <= chance],
        "per_class": [
            {"class": name, "n": size, "accuracy": _or_none(value)}
            for name, size, value in zip(names, sizes, each, strict=True)
        ],
        "confusions": [
            {"class": names[one], "predicted": names[other], "n": n}
            for one, other, n in metrics.confusions(truth, predicted, codes)
        ],
    }
    if groups is not None:
        accuracies = metrics.person_accuracies(truth, predicted, groups)
        report |= {"person_accuracy": float(accuracies.mean()), "n_persons": len(accuracies)}
    return report


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
