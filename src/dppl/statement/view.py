"""The parts of a page that its content does not hold as they are drawn: no number is recomputed here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dppl.statement.rendering import at_most

_MATRIX = 20  # classes in the confusion matrix
_DECADES = 4  # of the logarithmic scale of false alarms


def view(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the charts of a page, and the confusion matrix if the model was evaluated."""
    evaluation = content["evaluation"]
    return {
        "charts": _charts(content["guarantee"]["curve"]),
        "matrix": None if evaluation is None else _matrix(evaluation),
    }


def _charts(curve: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Place the trade-off curve twice in a unit square: over all false-alarm rates, and where they are rare."""
    # A screen reader hears three points of the curve; the table below it has all.
    near = [min(curve, key=lambda point: abs(math.log(point[0] / rate))) for rate in (0.001, 0.01, 0.1)]
    text = " ".join(
        f"At a false-alarm rate of {100 * rate:g} % an attacker finds at most {at_most(power)} of the members."
        for rate, power in near
    )
    # An attacker who suspects everybody finds all members, so the curve ends at (1, 1).
    points = [*curve, (1.0, 1.0)]
    logs = [rate / 40 for rate in range(41)]
    return [
        {
            "title": "At all false-alarm rates",
            "description": f"Trade-off curve. {text}",
            "line": [(0.0, curve[0][1]), *points],
            "guessing": [(0.0, 0.0), (1.0, 1.0)],
            "ticks": [(share, f"{100 * share:g} %") for share in (0, 0.25, 0.5, 0.75, 1)],
        },
        {
            "title": "At rare false alarms (logarithmic scale)",
            "description": f"The same curve on a logarithmic scale of false alarms. {text}",
            "line": [(1 + math.log10(rate) / _DECADES, power) for rate, power in points],
            "guessing": [(x, 10 ** (_DECADES * (x - 1))) for x in logs],
            "ticks": [(k / _DECADES, f"{100 * 10 ** (k - _DECADES):g} %") for k in range(_DECADES + 1)],
        },
    ]


def _matrix(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the confusion matrix of the classes in the largest confusions, in that order."""
    measured, confusions = [one for one in evaluation["per_class"] if one["n"]], evaluation["confusions"]
    order = dict.fromkeys(name for one in confusions for name in (one["class"], one["predicted"]))
    order |= dict.fromkeys(one["class"] for one in measured)
    names = list(order)[:_MATRIX]
    # The diagonal follows from sizes and accuracies; confusions list the rest.
    sizes = {one["class"]: one["n"] for one in measured}
    counts = {(one["class"], one["predicted"]): one["n"] for one in confusions}
    counts |= {(one["class"], one["class"]): round(one["n"] * one["accuracy"]) for one in measured}
    rows = []
    for name in names:
        cells = []
        for other in names:
            n, size = counts.get((name, other), 0), sizes.get(name, 0)
            # A cell is shaded by its share of the class: none, up to 10, 30, 60 and 100 %.
            shade = sum(size and n / size > bound for bound in (0.0, 0.1, 0.3, 0.6))
            cells.append({"n": n, "style": f"h{shade}" + " right" * (name == other)})
        rows.append({"class": name, "cells": cells})
    return {"names": names, "rows": rows, "whole": len(order) <= _MATRIX}
