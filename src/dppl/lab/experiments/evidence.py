"""Balanced accuracies over the budget from a results file of an experiment, as a report of a model shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dppl.errors import InputError
from dppl.lab.experiments.config import NO_NOISE
from dppl.lab.experiments.methods import ALL_METHODS
from dppl.lab.experiments.results import DONE, Result, read_results
from dppl.lab.experiments.series import (
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
from dppl.lab.experiments.streams import Stream

__all__ = ["accuracy_over_budget", "finished_cells"]

_BAND = (0.25, 0.5, 0.75)


def finished_cells(path: Path) -> list[Result]:
    """Return the finished cells of a results file."""
    return [one for one in read_results(path) if one["status"] == DONE]


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
