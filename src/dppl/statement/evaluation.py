"""A private evaluation in words, for the command line, the card and the page of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dppl.errors import InputError
from dppl.evaluation import Estimate, Evaluation, OfLabels
from dppl.statement import words

_SAME = "evaluate this model: dppl evaluate MODEL DATA --private ... --out FILE."
_REMEMBER = "what you choose by these numbers looks better on these records than it is; measure it on others."


def is_private(results: Mapping[str, Any] | Evaluation) -> bool:
    """Return whether results are a private evaluation, which has a guarantee, and not exact numbers."""
    return isinstance(results, Evaluation) or (isinstance(results, Mapping) and "guarantee" in results)


def facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return what is said of all records, as names and values."""
    if evaluation.labels is not None:
        return _facts_of_labels(evaluation, evaluation.labels)
    rows = [
        (f"{evaluation.counted} tested", f"about {evaluation.n}"),
        ("accuracy", str(evaluation.accuracy)),
        (f"label in the best {evaluation.top_k}", evaluation.top_k_accuracy),
        ("balanced accuracy", str(evaluation.balanced_accuracy)),
        ("AUROC", evaluation.auroc),
        ("confidence above accuracy", evaluation.calibration_gap),
    ]
    return [(name, str(value)) for name, value in rows if value is not None]


def _facts_of_labels(evaluation: Evaluation, labels: OfLabels) -> list[tuple[str, str]]:
    """Return what is said of all records where one has several labels."""
    rows = [
        (f"{evaluation.counted} tested", f"about {evaluation.n}"),
        ("F1, mean of all labels", labels.macro_f1),
        ("F1 of all labels together", labels.f1),
        ("their precision", labels.precision),
        ("their recall", labels.recall),
        ("mean recall of labels", evaluation.balanced_accuracy),
        ("all labels right", evaluation.accuracy),
        (
            "labels of a record",
            f"the first {labels.max_labels} true and the likeliest {labels.max_labels} predicted count",
        ),
    ]
    return [(name, str(value)) for name, value in rows]


def per_class(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row for each class, in the order of the class list, which no result decides."""
    shown = {"recall": "recall", "precision": "precision", "n": evaluation.counted}
    if evaluation.labels is not None:
        shown = {"f1": "F1", **shown}
    names = [name for name in shown if any(getattr(one, name) is not None for one in evaluation.per_class)]
    rows = [[str(one.label), *(str(getattr(one, name)) for name in names)] for one in evaluation.per_class]
    return ["class", *(shown[name] for name in names)], rows


def guarantee(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return what the evaluation promises to the records that were tested, and what it costs with the model."""
    promise = words.in_short(evaluation.guarantee)[:-1]
    if evaluation.together is not None:
        together = str(evaluation.together).removeprefix("together with the model ")
        promise.append(("With the model", f"{together}."))
    return [*promise, ("Remember", _REMEMBER)]


def of_model(content: Mapping[str, Any] | Evaluation, classes: Sequence[Any], sha256: str) -> dict[str, Any]:
    """Return what a page says of a private evaluation, which must be of a model with these classes."""
    try:
        evaluation = content if isinstance(content, Evaluation) else Evaluation.from_dict(dict(content))
    except (KeyError, TypeError, ValueError):
        raise InputError(f"the evaluation lacks a field, or a field has another form; {_SAME}") from None
    if list(map(str, evaluation.classes)) != list(map(str, classes)):
        raise InputError(f"the evaluation is of a model with other classes; {_SAME}")
    return {
        "confidence": evaluation.confidence,
        "counted": evaluation.counted,
        "fit_for_release": evaluation.guarantee.fit_for_release,
        # Of a table of predictions nobody knows which file made it.
        "same_file": None if evaluation.model_sha256 is None else evaluation.model_sha256 == sha256,
        "facts": [list(row) for row in facts(evaluation)],
        "per_class": [
            {"class": str(one.label), "n": str(one.n), "recall": _shown(one.recall), "precision": _shown(one.precision)}
            for one in evaluation.per_class
        ],
        "guarantee": [list(row) for row in guarantee(evaluation)],
    }


def _shown(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {**estimate.to_dict(), "text": str(estimate)}
