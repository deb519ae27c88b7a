"""What each column of a table adds to the scores, as a page shows it: curves and bars with the band of their noise."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dppl.encoders.columns import SCHEME
from dppl.methods import load
from dppl.statement.data import uri_of
from dppl.training.shapes import schema_of, shapes

_MOST_NUMBERS = 40_000  # in a report
_MOST_LINES = 6  # in a chart, which has as many colours
_MOST_BARS = 12
_STDS = 2  # of the noise, in a band


def shapes_of(path: Path, description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the shapes of a model file, those that tell most first, as many as fit; None for a model without."""
    if not uri_of(description["encoder"]).startswith(SCHEME):
        return None
    model = load(path)
    if schema_of(model) is None:
        return None
    found = shapes(model)
    listed = sorted(found["shapes"], key=_spread, reverse=True)
    numbers = 0
    kept: list[Any] = []
    for one in listed:
        numbers += 2 * len(one["points"]) * len(found["classes"])
        if numbers > _MOST_NUMBERS and kept:
            break
        kept.append(one)
    found["classes"] = list(map(str, found["classes"]))
    return {**found, "shapes": kept, "n_left_out": len(listed) - len(kept)}


def _spread(shape: Mapping[str, Any]) -> float:
    """Return how far the scores of a shape go apart, the most of all classes; gaps do not count where there is more."""
    points = shape["points"][:-2] or shape["points"]
    each = zip(*(point["scores"] for point in points), strict=True)
    return float(max(max(scores) - min(scores) for scores in each))


def drawn(content: Mapping[str, Any]) -> dict[str, Any]:
    """Place the shapes of a report in unit squares, all on one scale of scores."""
    classes = content["classes"]
    names = classes[:_MOST_LINES]
    if len(classes) == 2:  # the second's score minus the first's says it all
        names = classes[1:]
    of_shapes = []
    for one in content["shapes"]:
        series = {}
        for number, name in enumerate(names):
            series[name] = _points(one, number, len(classes))
        of_shapes.append(series)
    most = 1e-9
    for series in of_shapes:
        for points in series.values():
            for point in points:
                most = max(most, abs(point["score"]) + point["band"])
    length = max(content["length"], 1e-9)
    return {
        "names": names,
        "most": most / length,
        "charts": [
            _chart(one, series, most, length)
            for one, series in zip(content["shapes"], of_shapes, strict=True)
        ],
        "n_classes_left_out": max(len(classes) - _MOST_LINES, 0),
    }


def _points(
    shape: Mapping[str, Any], number: int, n_classes: int
) -> list[dict[str, Any]]:
    """Return cell, place, score and half of the band at each point of a class."""
    points = []
    for point in shape["points"]:
        scores = point["scores"]
        noise = point["noise"] or [0.0] * n_classes
        if n_classes == 2:
            score = scores[1] - scores[0]
            band = math.hypot(*noise)  # noises of two classes are independent
        else:
            score = scores[number]
            band = noise[number]
        points.append({**point, "score": score, "band": _STDS * band})
    return points


def _chart(
    shape: Mapping[str, Any],
    series: Mapping[str, list[dict[str, Any]]],
    most: float,
    length: float,
) -> dict[str, Any]:
    """Place a curve, and below it bars; text for a screen reader says what is seen."""

    def height(score: float) -> float:
        return 0.5 + score / most / 2

    title = f"{shape['column']} {shape['part']}".rstrip()
    curves = []
    said = [title]
    for name, points in series.items():
        along = [point for point in points if point["place"] is not None]
        line = []
        below = []
        above = []
        for one in along:
            place = one["place"]
            score = one["score"]
            band = one["band"]
            line.append((place, height(score)))
            below.append((place, height(score - band)))
            above.append((place, height(score + band)))
        if along:
            curves.append({"line": line, "band": below + above[::-1]})
            ends = min(along, key=_score), max(along, key=_score)
            said += [
                f"{name}: {one['score'] / length:+.2f} at {one['cell']}."
                for one in ends
            ]
    rows = []
    for bars in zip(*series.values(), strict=True):
        if bars[0]["place"] is None:
            placed = [
                {
                    "at": height(one["score"]),
                    "half": one["band"] / most / 2,
                    "text": f"{one['score'] / length:+.2f}",
                }
                for one in bars
            ]
            rows.append({"cell": bars[0]["cell"], "bars": placed})
    n_left_out = max(len(rows) - _MOST_BARS, 0)
    if n_left_out:  # the last two are for values that are not foreseen or missing
        rows = rows[: _MOST_BARS - 2] + rows[-2:]
    return {
        "title": title,
        "ends": shape["ends"],
        "curves": curves,
        "rows": rows,
        "n_left_out": n_left_out,
        "description": " ".join(said),
    }


def _score(point: Mapping[str, Any]) -> float:
    score: float = point["score"]
    return score
