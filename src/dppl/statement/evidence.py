"""An evaluation of a model by `dppl evaluate --json`.

No guarantee covers these numbers: they say how good a model is, and depend on the records that somebody measured on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dppl.errors import InputError
from dppl.metrics import minority_classes

_NUMBERS = ("n", "n_unknown_labels", "n_unusable", "accuracy", "balanced_accuracy", "minority_accuracy", "chance")


def read_evaluation(path: Path) -> dict[str, Any]:
    """Return the evaluation that a file holds."""
    if not path.is_file():
        raise InputError(f"there is no results file {path}; `dppl evaluate --json` writes one.")
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError:
        raise InputError(f"{path} does not hold what `dppl evaluate --json` writes.") from None
    return content


def evaluation_of(content: Mapping[str, Any], classes: Sequence[Any]) -> dict[str, Any]:
    """Return accuracies by class and confusions from an evaluation of a model with `classes`."""
    try:
        numbers = {name: None if content[name] is None else content[name] + 0 for name in _NUMBERS}
        sizes = {str(one["class"]): one["n"] + 0 for one in content["per_class"]}
        accuracies = {str(one["class"]): one["accuracy"] + 0 for one in content["per_class"] if one["n"]}
        confusions = [
            {
                "class": str(one["class"]),
                "predicted": str(one["predicted"]),
                "n": one["n"],
                "share": one["n"] / sizes[str(one["class"])],
            }
            for one in content["confusions"]
        ]
    except (KeyError, TypeError, ZeroDivisionError):
        raise InputError(
            "the evaluation lacks a field, or a field has another form; make it again with this version of dppl: "
            "dppl evaluate MODEL DATA --json."
        ) from None
    if list(sizes) != [str(name) for name in classes]:
        raise InputError("the evaluation is of a model with other classes; evaluate this model.")
    # The smallest quarter of the classes that have records here, as experiments count minorities.
    measured = list(accuracies)
    smallest = {measured[place] for place in minority_classes([sizes[name] for name in measured])}
    per_class = [
        {"class": name, "n": n, "accuracy": accuracies.get(name), "minority": name in smallest}
        for name, n in sizes.items()
    ]
    return {**numbers, "per_class": per_class, "confusions": confusions}
