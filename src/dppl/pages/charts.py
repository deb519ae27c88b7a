"""Charts as inline SVG, drawn without a plot library. Colours are those of ``style.css``, in its light or dark form.

A chart is one image to a screen reader, which reads its description; the page gives the numbers in a table as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Axis", "Line", "bar", "chart", "swatch"]

# In units of the view box, which on a telephone are about pixels.
_WIDTH, _LEFT, _RIGHT, _TOP, _FOOT = 400.0, 54.0, 26.0, 10.0, 236.0  # the foot is where the x-axis is
_LINE_HEIGHT = 15.0
_EMPTY = Markup("")
_MARKERS = ("circle", "square", "diamond")
# So many looks differ in colour; further ones repeat them with other dashes.
_COLOURS = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale with its ticks.

    Parameters
    ----------
    label : str
    low, high : float
        Ends of the scale; above 0 on a logarithmic one.
    ticks : sequence of (float, str)
        Where they stand and what they say; a line break begins a second line.
    log : bool, default=False
    """

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high end, and not beyond."""
        low, high, value = (math.log(x) if self.log else x for x in (self.low, self.high, max(value, self.low)))
        return min((value - low) / (high - low), 1.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    Parameters
    ----------
    points : sequence of (x, y)
    look : int or None
        Number of its colour and marker; None is a thin grey line for comparison.
    band : sequence of (x, low, high), default=()
    markers : bool, default=False
    strong : bool, default=False
        Whether it is the one that the chart is about.
    """

    points: Sequence[tuple[float, float]]
    look: int | None
    band: Sequence[tuple[float, float, float]] = ()
    markers: bool = False
    strong: bool = False


def chart(
    lines: Sequence[Line], x: Axis, y: Axis, description: str, *, mark: tuple[float, str] | None = None
) -> Markup:
    """Return a chart.

    Parameters
    ----------
    lines : sequence of Line
        Later ones lie above.
    x, y : Axis
    description : str
        What a screen reader says in its place.
    mark : (float, str), default=None
        A place on the x-axis with a vertical line, and its name.
    """
    height = _FOOT + _LINE_HEIGHT * (_tick_lines(x) + 1) + 12
    head = Markup('<svg class="chart" role="img" viewBox="0 0 {} {}" aria-label="{}">').format(
        _short(_WIDTH), _short(height), description
    )
    parts = [*_x_axis(x), *_y_axis(y), *_marked(mark, x)]
    parts += [_band(line, x, y) for line in lines if line.band]
    parts += [part for line in lines for part in _drawn(line, x, y)]
    return Markup("{}{}</svg>").format(head, _joined(parts))


def bar(share: float) -> Markup:
    """Return a bar of this share of its full width; the number beside it says the same."""
    return Markup(
        '<svg class="bar" aria-hidden="true" viewBox="0 0 100 8" preserveAspectRatio="none">'
        '<rect class="rest" width="100" height="8"/><rect width="{}" height="8"/></svg>'
    ).format(_short(100 * min(max(share, 0.0), 1.0)))


def swatch(look: int | None) -> Markup:
    """Return what a line of this look looks like, for a legend."""
    middle = _EMPTY if look is None else _marker(look, 16, 6)
    return Markup(
        '<svg class="swatch" aria-hidden="true" viewBox="0 0 32 12"><path class="{}" d="M1 6H31"/>{}</svg>'
    ).format(_class(look), middle)


def _tick_lines(axis: Axis) -> int:
    return max((text.count("\n") + 1 for _, text in axis.ticks), default=0)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (_WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return _FOOT - axis.place(value) * (_FOOT - _TOP)


def _x_axis(axis: Axis) -> list[Markup]:
    parts = []
    for value, text in axis.ticks:
        place = _short(_x(axis, value))
        parts.append(Markup('<path class="grid" d="M{} {}V{}"/>').format(place, _short(_TOP), _short(_FOOT)))
        for number, line in enumerate(text.split("\n")):
            at = _short(_FOOT + (number + 1) * _LINE_HEIGHT)
            parts.append(Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(place, at, line))
    middle, below = (_LEFT + _WIDTH - _RIGHT) / 2, _FOOT + (_tick_lines(axis) + 1) * _LINE_HEIGHT + 4
    label = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>')
    parts.append(label.format(_short(middle), _short(below), axis.label))
    return parts


def _y_axis(axis: Axis) -> list[Markup]:
    parts = []
    for value, text in axis.ticks:
        place = _y(axis, value)
        ends = _short(_LEFT), _short(place), _short(_WIDTH - _RIGHT)
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(*ends))
        at = _short(_LEFT - 6), _short(place + 4)
        parts.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(*at, text))
    middle = _short((_TOP + _FOOT) / 2)
    parts.append(
        Markup('<text transform="translate(12 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
            middle, axis.label
        )
    )
    return parts


def _marked(mark: tuple[float, str] | None, axis: Axis) -> list[Markup]:
    if mark is None:
        return []
    value, text = mark
    place = _x(axis, value)
    right = place > _WIDTH / 2
    return [
        Markup('<path class="mark" d="M{} {}V{}"/>').format(_short(place), _short(_TOP), _short(_FOOT)),
        Markup('<text class="mark" x="{}" y="{}" text-anchor="{}">{}</text>').format(
            _short(place - 4 if right else place + 4), _short(_FOOT - 6), "end" if right else "start", text
        ),
    ]


def _drawn(line: Line, x: Axis, y: Axis) -> list[Markup]:
    places = [(_x(x, at), _y(y, value)) for at, value in line.points]
    path = "L".join(f"{_short(left)} {_short(top)}" for left, top in places)
    strong = " strong" if line.strong else ""
    parts = [Markup('<path class="{}" d="M{}"/>').format(_class(line.look) + strong, path)] if places else []
    if line.markers and line.look is not None:
        parts += [_marker(line.look, left, top) for left, top in places]
    return parts


def _band(line: Line, x: Axis, y: Axis) -> Markup:
    upper = [f"{_short(_x(x, at))} {_short(_y(y, high))}" for at, _, high in line.band]
    lower = [f"{_short(_x(x, at))} {_short(_y(y, low))}" for at, low, _ in reversed(line.band)]
    look = 0 if line.look is None else line.look % _COLOURS
    return Markup('<path class="band s{}" d="M{}Z"/>').format(look, "L".join(upper + lower))


def _marker(look: int, left: float, top: float) -> Markup:
    shapes = {
        "circle": "M{l} {y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
        "square": "M{l} {t}h7v7h-7Z",
        "diamond": "M{x} {t}l3.5 3.5l-3.5 3.5l-3.5 -3.5Z",
    }
    path = shapes[_MARKERS[look % len(_MARKERS)]].format(
        l=_short(left - 3.5), t=_short(top - 3.5), x=_short(left), y=_short(top)
    )
    return Markup('<path class="marker s{}" d="{}"/>').format(look % _COLOURS, path)


def _class(look: int | None) -> str:
    if look is None:
        return "line rule"
    return f"line s{look % _COLOURS}" + (" dashed" if look >= _COLOURS else "")


def _joined(parts: Sequence[Markup]) -> Markup:
    return _EMPTY.join(parts)


def _short(value: float) -> str:
    """Write a coordinate with one digit, which is finer than any screen shows."""
    return f"{value:.1f}".removesuffix(".0")
