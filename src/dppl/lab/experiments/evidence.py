"""Balanced accuracies over the budget from a results file of an experiment, as a report of a model shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dppl.errors import InputError
from dppl.lab.experiments.config import NO_NOISE
from dppl.lab.experiments.figures import Line, quartiles
from dppl.lab.experiments.frame import by, default_settings, frame, lines, ratios
from dppl.lab.experiments.methods import ALL_METHODS
from dppl.lab.experiments.names import epsilon_name
from dppl.lab.experiments.results import DONE, Result, read_results
from dppl.lab.experiments.streams import Stream

__all__ = ["accuracy_over_budget", "finished_cells"]


def finished_cells(path: Path) -> list[Result]:
    """Return the finished cells of a results file."""
    return [one for one in read_results(path) if one["status"] == DONE]


def accuracy_over_budget(done: list[Result], estimator: str, file: str) -> dict[str, Any]:
    """Return balanced test accuracies over the budget: for each data set, stream and imbalance a panel with lines.

    Those of a stream are of the model after its last task. The lines of the estimator's own method are marked.
    """
    own = {name for name, method in ALL_METHODS.items() if method.estimator == estimator}
    try:
        known = [_as_reference(result) for result in done if result["cell"]["method"] in ALL_METHODS]
        return {"file": file, "panels": list(_panels(known, own))}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise InputError(f"{file} has a line that is no result of an experiment; restore the file.") from None


def _panels(done: list[Result], own: set[str]) -> Iterator[dict[str, Any]]:
    if not done:
        return
    rows = frame(done)
    rows["stream"] = [f"after {Stream(**c['stream']).name}" if "stream" in c else "" for c in rows["cell"]]
    for (dataset, encoder, stream), group in by(rows, "dataset", "encoder", "stream"):
        for ratio, one in ratios(default_settings(group)).items():
            name = ", ".join(filter(None, (dataset, encoder, stream, ratio)))
            drawn = [_line(line, own) for line in lines(one)]
            if drawn:
                yield {"name": name, "seeds": one["seed"].nunique(), "lines": drawn}


def _as_reference(result: Result) -> Result:
    """Return what streams fit without noise, at a mu beyond all use, as a reference without a budget."""
    if result["cell"]["budget"] != {"mu": NO_NOISE}:
        return result
    return {**result, "notion": "none", "adjacency": None, "cell": {**result["cell"], "budget": None}}


def _line(one: Line, own: set[str]) -> dict[str, Any]:
    points = [(mu, quartiles(values), len(values)) for mu, values in sorted(one.values.items())]
    return {
        "label": one.label,
        "private": one.private,
        "tuned": one.tuned,
        "own": one.method in own,
        "points": [
            {"mu": mu, "epsilon": epsilon_name(mu), "low": low, "median": median, "high": high, "n": n}
            for mu, (low, median, high), n in points
        ],
    }
