"""Where lines and ticks of a chart stand: the macro ``chart`` of parts.html draws them as SVG, coloured by style.css.

A chart is one image to a screen reader, which reads its description; the page gives the numbers in a table as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Axis", "Line", "chart"]

# Edges of the field in units of the view box, which on a telephone are about pixels.
_LEFT, _RIGHT, _TOP, _FOOT = 54, 374, 10, 236


@dataclass(frozen=True, slots=True)
class Axis:
    """The x-axis: its label, its ends, its ticks with texts of one line or two, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of shares, with quartiles around it and markers where there are some.

    Its look is the number of its colour, or None for a thin grey line to compare with.
    """

    points: Sequence[tuple[float, float]]
    look: int | None
    band: Sequence[tuple[float, float, float]] = ()
    markers: bool = False
    strong: bool = False


def chart(
    lines: Iterable[Line], axis: Axis, label: str, description: str, mark: tuple[float, str] | None = None
) -> dict[str, Any]:
    """Place the parts of a chart of shares, from 0 to 1, over an axis; `mark` names one place on it."""

    def left(value: float) -> float:
        low, high, at = (math.log(x) if axis.log else x for x in (axis.low, axis.high, max(value, axis.low)))
        return round(_LEFT + min((at - low) / (high - low), 1.0) * (_RIGHT - _LEFT), 1)

    def top(share: float) -> float:
        return round(_FOOT - share * (_FOOT - _TOP), 1)

    def path(points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{left(x):g} {top(y):g}" for x, y in points)

    ticks = [(left(value), text.split("\n")) for value, text in axis.ticks]
    return {
        "description": description,
        "labels": (axis.label, label),
        "ticks": ticks,
        "n_lines": max(len(texts) for _, texts in ticks),
        "shares": [(top(share), f"{100 * share:g} %") for share in (0, 0.25, 0.5, 0.75, 1)],
        "mark": None if mark is None else (left(mark[0]), mark[1]),
        "lines": [
            {
                "look": line.look,
                "strong": line.strong,
                "path": path(line.points),
                # The upper edge from left to right, and the lower one back.
                "band": path([(x, high) for x, _, high in line.band] + [(x, low) for x, low, _ in line.band[::-1]]),
                "has_band": bool(line.band),
                "markers": [(left(x), top(y)) for x, y in line.points] if line.markers else [],
            }
            for line in lines
        ],
    }
