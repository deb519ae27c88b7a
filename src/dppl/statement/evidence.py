"""What was measured of a model or its method: `dppl evaluate --json` and `dppl bench`.

No guarantee covers these numbers: they say how good a model is, and depend on the records that somebody measured on.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dppl.errors import InputError
from dppl.metrics import minority_classes

__all__ = ["accuracy_over_budget", "evaluation_of", "read_evidence"]

_SHARES = ("accuracy", "chance")
_SHARES_OR_NONE = ("balanced_accuracy", "minority_accuracy")
_COUNTS = ("n", "n_unknown_labels", "n_unusable")
_WRITERS = "`dppl evaluate --json` or `dppl bench`"


def read_evidence(path: Path) -> dict[str, Any] | list[dict[str, Any]]:
    """Return what a results file holds: an evaluation, or the finished cells of an experiment."""
    if not path.is_file():
        raise InputError(f"there is no results file {path}; {_WRITERS} writes one.")
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if isinstance(found, dict) and "per_class" in found:
        return found
    if found is not None and not (isinstance(found, dict) and "cell" in found):
        raise InputError(f"{path} holds JSON, but not what {_WRITERS} writes.")
    done: list[dict[str, Any]] = _lab().finished_cells(path)
    if not done:
        raise InputError(f"{path} holds no finished cell of an experiment; run it first.")
    return done


def evaluation_of(found: Mapping[str, Any], classes: Sequence[Any]) -> dict[str, Any]:
    """Return accuracies by class and confusions from what `dppl evaluate --json` printed of a model with `classes`."""
    try:
        each = [(str(one["class"]), _count(one["n"]), _share(one["accuracy"], one["n"])) for one in found["per_class"]]
        numbers = {name: _count(found[name]) for name in _COUNTS} | {name: _share(found[name]) for name in _SHARES}
        numbers |= {name: _share(found[name], found[name] is not None) for name in _SHARES_OR_NONE}
        pairs = [(str(one["class"]), str(one["predicted"]), _count(one["n"], 1)) for one in found["confusions"]]
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "the evaluation lacks a part, or has another in its place; make it again with this version of dppl: "
            "dppl evaluate MODEL DATA --json."
        ) from None
    if [name for name, _, _ in each] != [str(name) for name in classes]:
        raise InputError("the evaluation is of a model with other classes; evaluate this model.")
    # No class can be taken for others more often than it has records.
    sizes = {name: n for name, n, _ in each}
    if any(not {one, other} <= sizes.keys() or n > sizes[one] for one, other, n in pairs):
        raise InputError("the evaluation has confusions that its classes cannot have; make it again.")
    # The smallest quarter of the classes that have records here, as experiments count minorities.
    measured = [name for name, n, _ in each if n]
    smallest = {measured[place] for place in minority_classes([sizes[name] for name in measured])}
    return {
        **numbers,
        "per_class": [
            {"class": name, "n": n, "accuracy": accuracy, "minority": name in smallest} for name, n, accuracy in each
        ],
        "confusions": [{"class": one, "predicted": other, "n": n, "share": n / sizes[one]} for one, other, n in pairs],
    }


def _count(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError
    return value


def _share(value: Any, there: object = True) -> float | None:
    """Return a share of records; None where there are none to have one."""
    if value is None and not there:
        return None
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError
    return float(value)


def accuracy_over_budget(done: list[dict[str, Any]], estimator: str, file: str) -> dict[str, Any]:
    """Return balanced test accuracies over the budget, with those of the estimator's own method marked."""
    accuracy: dict[str, Any] = _lab().accuracy_over_budget(done, estimator, file)
    return accuracy


def _lab() -> Any:
    """Import what reads experiments; by name, because nothing here depends on it."""
    return importlib.import_module("dppl.lab.experiments.evidence")
