"""What was measured of a model or its method: `dppl evaluate --json`, `dppl bench run` and `dppl continual run`.

No guarantee covers these numbers: they say how good a model is, and depend on the records that somebody measured on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dppl.errors import InputError
from dppl.experiments.config import NO_NOISE
from dppl.experiments.methods import ALL_METHODS
from dppl.experiments.metrics import minority_classes
from dppl.experiments.results import DONE, Result, read_results
from dppl.experiments.series import (
    Series,
    dataset_name,
    default_settings,
    encoder_name,
    epsilon_name,
    grouped,
    ratio_name,
    ratios,
    series,
)
from dppl.experiments.streams import Stream

__all__ = ["accuracy_over_budget", "evaluation_of", "read_evidence"]

_BAND = (0.25, 0.5, 0.75)
_SHARES = ("accuracy", "chance")
_SHARES_OR_NONE = ("balanced_accuracy", "minority_accuracy")
_COUNTS = ("n", "n_unknown_labels", "n_unusable")
_WRITERS = "`dppl evaluate --json`, `dppl bench run` or `dppl continual run`"


def read_evidence(path: Path) -> dict[str, Any] | list[Result]:
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
    done = [one for one in read_results(path) if one["status"] == DONE]
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
    sizes = {name: n for name, n, _ in each}
    if any(not {one, other} <= sizes.keys() or n > sizes[one] for one, other, n in pairs):
        raise InputError("the evaluation has confusions that its classes cannot have; make it again.")
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


def accuracy_over_budget(done: list[Result], estimator: str, file: str) -> dict[str, Any]:
    """Return balanced test accuracies over the budget: for each data set, stream and imbalance a panel with lines.

    Those of a stream are of the model after its last task. The lines of the estimator's own method are marked.

    Those of a stream are of the model after its last task.
    """
    own = {name for name, method in ALL_METHODS.items() if method.estimator == estimator}
    try:
        return {"file": file, "panels": list(_panels(done, own))}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise InputError(f"{file} has a line that is no result of an experiment; restore the file.") from None


def _panels(done: list[Result], own: set[str]) -> Iterator[dict[str, Any]]:
    for (dataset, encoder, stream), results in grouped(done, _task).items():
        for ratio, group in ratios(default_settings(results)).items():
            lines = [_line(one, own) for one in series(map(_as_reference, group)) if one.method in ALL_METHODS]
            if lines:
                name = ", ".join(filter(None, (dataset, encoder, stream, ratio_name(ratio))))
                yield {"name": name, "seeds": len({result["cell"]["seed"] for result in group}), "lines": lines}


def _task(result: Result) -> tuple[str, str, str]:
    cell = result["cell"]
    stream = f"after {Stream(**cell['stream']).name}" if "stream" in cell else ""
    return dataset_name(cell), encoder_name(cell), stream


def _as_reference(result: Result) -> Result:
    """Return what streams fit without noise, at a mu beyond all use, as a reference without a budget."""
    if result["cell"]["budget"] != {"mu": NO_NOISE}:
        return result
    return {**result, "e": None, "notion": "none", "adjacency": None, "cell": {**result["cell"], "budget": None}}


def _line(one: Series, own: set[str]) -> dict[str, Any]:
    return {
        "label": one.label,
        "private": one.private,
        "tuned": one.tuned,
        "own": one.method in own,
        "points": [_point(mu, values) for mu, values in sorted(one.values.items())],
    }


def _point(mu: float, values: list[float]) -> dict[str, Any]:
    low, median, high = (float(np.quantile(values, share)) for share in _BAND)
    return {"mu": mu, "epsilon": epsilon_name(mu), "low": low, "median": median, "high": high, "n": len(values)}
