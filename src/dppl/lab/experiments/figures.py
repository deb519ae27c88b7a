"""Figures of the DPPL papers from any results file. Colours begin with Okabe and Ito's; markers differ too."""

from __future__ import annotations

import functools
import itertools
import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl._files import atomic_file
from dppl._optional import optional
from dppl.lab.experiments.methods import METHODS
from dppl.lab.experiments.series import AT_DELTA, TUNED, Panel, Series, epsilon_name

__all__ = ["BALANCED_LABEL", "BAND_NOTE", "MU_LABEL", "budget_panels", "heat_maps", "lines", "over_tasks", "save"]

LineStyle: TypeAlias = str | tuple[int, tuple[float, ...]]

# Okabe and Ito (2008), without the yellow, which is hard to see on white, and with black for one method alone.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# For every other round of lines.
_FURTHER_COLOURS = ("#332288", "#882255", "#999933", "#6B4423", "#7FC241", "#8C6BB1")
_FOREMOST, _BLACK = "softmax", "#000000"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
# One after the other, each with all colours of a palette. Dashes are kept for tuned lines, dots for references.
_LINE_STYLES: tuple[LineStyle, ...] = ("solid", (0, (7, 2, 1.5, 2)), (0, (7, 2, 1.5, 2, 1.5, 2)))
_DASHED, _REFERENCES = (0, (4, 2)), ((0, (1, 1)), (0, (1, 3)), (0, (1, 1, 3, 1)), (0, (3, 1, 1, 1, 1, 1)))
_GREY = "#555555"
_FONT_SIZE = 8.0
_SETTINGS = {
    "font.size": _FONT_SIZE,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "svg.hashsalt": "dppl",
    "svg.fonttype": "none",
}
# As its ticks: epsilons stand in brackets below.
MU_LABEL = f"mu (Gaussian DP)\n({AT_DELTA})"
BALANCED_LABEL = "balanced test accuracy"
_BAND = (0.25, 0.75)
# A heat map of more has no room for its values.
_PRINTED_TASKS = 12
# Letters in a line above a panel.
_WRAP = 36
BAND_NOTE = "Lines are medians over seeds, bands their quartiles."


class _Look(NamedTuple):
    color: str
    linestyle: LineStyle
    marker: str


Figure: TypeAlias = Any
P = ParamSpec("P")


def _styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with the settings of this module."""

    @functools.wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with optional("matplotlib", "Matplotlib", "lab").rc_context(_SETTINGS):
            return draw(*args, **kwargs)

    return styled


@_styled
def budget_panels(panels: Sequence[Panel], y_label: str) -> Figure:
    """Draw values over the budget: a panel each, a line for every series, the median of the seeds with a band.

    A budget of 0 has no place on a logarithmic scale; values there are dashed lines.
    """
    styles = _styles(one for _, several in panels for one in several)
    alone = {_alone(one) for _, several in panels for one in several if one.private and 0.0 in one.values}
    figure, axes = _axes(len(panels), [*styles, *alone])
    for axis, (title, several) in zip(axes, panels, strict=True):
        for one in several:
            _draw(axis, one, styles[one.label])
        axis.set_title(title)
        _budget_axis(axis)
        axis.set_ylim(0, 1.02)
    _label(figure, axes, MU_LABEL, y_label)
    return figure


@_styled
def lines(
    panels: Sequence[tuple[str, Mapping[str, Mapping[float, float]]]],
    x_label: str | None,
    y_label: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """Draw plain lines: panels of (title, values by x of every line); x is the budget if `x_label` is None."""
    names = list(dict.fromkeys(name for _, several in panels for name in several))
    looks = dict(zip(names, _every_look(), strict=False))
    figure, axes = _axes(len(panels), names)
    for axis, (title, several) in zip(axes, panels, strict=True):
        for name, values in several.items():
            places = sorted(values)
            axis.plot(places, [values[x] for x in places], label=name, markersize=4, **looks[name]._asdict())
        axis.set_title(title)
        # No name means the budget, whose axis has ticks of its own.
        if x_label is None:
            _budget_axis(axis)
        elif log_x:
            axis.set_xscale("log")
            _plain_ticks(axis.xaxis)
        else:
            axis.xaxis.set_major_locator(optional("matplotlib.ticker", "Matplotlib", "lab").MaxNLocator(integer=True))
        if log_y:
            axis.set_yscale("log")
            _plain_ticks(axis.yaxis)
    _label(figure, axes, MU_LABEL if x_label is None else x_label, y_label)
    return figure


@_styled
def over_tasks(panels: Sequence[tuple[str, Mapping[str, NDArray[np.float64]]]], y_label: str) -> Figure:
    """Draw values after each task: panels of (title, values of shape (n_seeds, n_tasks) of every line)."""
    names = list(dict.fromkeys(name for _, several in panels for name in several))
    looks = dict(zip(names, _every_look(), strict=False))
    figure, axes = _axes(len(panels), names)
    for axis, (title, several) in zip(axes, panels, strict=True):
        for name, values in several.items():
            places, mean = np.arange(1, values.shape[1] + 1), values.mean(axis=0)
            spread = values.std(axis=0, ddof=1 if len(values) > 1 else 0)  # as in tables
            axis.plot(places, mean, label=name, markersize=4, **looks[name]._asdict())
            axis.fill_between(places, mean - spread, mean + spread, color=looks[name].color, alpha=0.13, linewidth=0)
        axis.set_title(title)
        axis.xaxis.set_major_locator(optional("matplotlib.ticker", "Matplotlib", "lab").MaxNLocator(integer=True))
    _label(figure, axes, "tasks so far", y_label)
    return figure


@_styled
def heat_maps(maps: Sequence[tuple[str, NDArray[np.float64]]]) -> Figure:
    """Draw accuracies on task i (columns) after task t (rows): a map of (title, matrix) each, NaN left white.

    Colours span the values of all maps; those of few tasks are printed as well.
    """
    figure, axes = _axes(len(maps), [])
    # One scale for all maps, so that they can be compared.
    low, high = (float(bound([bound(matrix) for _, matrix in maps])) for bound in (np.nanmin, np.nanmax))
    for axis, (title, matrix) in zip(axes, maps, strict=True):
        edges = 0.5, len(matrix) + 0.5
        image = axis.imshow(matrix, vmin=low, vmax=high, cmap="viridis", extent=(*edges, *edges[::-1]), aspect="auto")
        if len(matrix) <= _PRINTED_TASKS:
            _print_values(axis, matrix, (low + high) / 2)
        axis.grid(visible=False)
        axis.set_title("\n".join(textwrap.wrap(title, _WRAP)))
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_locator(optional("matplotlib.ticker", "Matplotlib", "lab").MaxNLocator(integer=True))
    figure.colorbar(image, ax=axes, label="test accuracy")
    _label(figure, axes, "tested on task", "after task")
    return figure


def _print_values(axis: Any, matrix: NDArray[np.float64], middle: float) -> None:
    for (row, column), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            text = f"{value:.2f}".removeprefix("0")
            colour = "black" if value > middle else "white"
            axis.text(column + 1, row + 1, text, ha="center", va="center", color=colour, fontsize=0.75 * _FONT_SIZE)


def save(figure: Figure, folder: Path, stem: str) -> None:
    """Write a figure as PNG and as SVG."""
    with optional("matplotlib", "Matplotlib", "lab").rc_context(_SETTINGS):
        with atomic_file(folder / f"{stem}.png", overwrite=True) as file:
            figure.savefig(file, format="png", dpi=160)
        figure.set_layout_engine("none")  # all is in its place now, and finding the places takes most of the time
        with atomic_file(folder / f"{stem}.svg", overwrite=True) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})


def _axes(n_panels: int, labels: Collection[str]) -> tuple[Figure, list[Any]]:
    module = optional("matplotlib.figure", "Matplotlib", "lab")
    columns = min(n_panels, 4 if n_panels != 5 else 3)
    rows = math.ceil(n_panels / columns)
    width = max(3.2 * columns, 4.8, _entry_width(labels))
    height = 2.85 * rows + 0.7 + 0.18 * math.ceil(len(labels) / _per_row(width, labels))
    figure = module.Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    axes = list(grid.ravel())
    for empty in axes[n_panels:]:
        empty.remove()
    return figure, axes[:n_panels]


def _per_row(width: float, labels: Iterable[str]) -> int:
    """How many entries a legend of this width, in inches, holds side by side."""
    return max(1, int(width / _entry_width(labels)))


def _entry_width(labels: Iterable[str]) -> float:
    """Bound the width of a legend's entry, in inches, by the longest label.

    A letter is on average narrower than two thirds of the font size; a line and the gaps around it take seven and a
    half.
    """
    return _FONT_SIZE / 72 * (7.5 + 0.62 * max(map(len, labels), default=0))


def _label(figure: Figure, axes: Sequence[Any], x_label: str, y_label: str) -> None:
    """Name the outer axes, and put one legend for all panels below them."""
    for axis in axes:
        place = axis.get_subplotspec()
        if place.is_first_col():
            axis.set_ylabel(y_label)
        if place.rowspan.stop * place.get_gridspec().ncols + place.colspan.start >= len(axes):
            axis.set_xlabel(x_label)
    # A line that is in several panels has one entry in the legend.
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    columns = _per_row(figure.get_figwidth(), entries)
    if not entries:
        return
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False, handlelength=4.5
    )


def _styles(every: Iterable[Series]) -> dict[str, dict[str, Any]]:
    """Give every series its look; a tuned one takes that of its untuned sister, dashed and hollow."""
    several = list({one.label: one for one in every}.values())
    looks = _looks([one for one in several if one.private])
    references = cycle(_REFERENCES)
    styles: dict[str, dict[str, Any]] = {}
    for one in several:
        if not one.private:
            styles[one.label] = {"color": _GREY, "linestyle": next(references)}
            continue
        # Private methods have a colour and a marker; a tuned one is its untuned sister, dashed and hollow.
        styles[one.label] = {**looks[_untuned(one)]._asdict(), "markersize": 4, "linewidth": 1.4}
        if one.method == _FOREMOST:
            styles[one.label] |= {"linewidth": 2.0, "markersize": 5, "zorder": 3}
        if one.tuned:
            styles[one.label] |= {"linestyle": _DASHED, "markerfacecolor": "white"}
    return styles


def _every_look() -> list[_Look]:
    """Return different looks, the first twelve with different colours."""
    rounds = list(zip(_LINE_STYLES * 2, cycle((_COLOURS, _FURTHER_COLOURS)), strict=False))
    lines = [(style, colour) for style, colours in rounds for colour in colours]
    n_looks = math.lcm(len(lines), len(_MARKERS))
    pairs = itertools.islice(zip(cycle(lines), cycle(_MARKERS), strict=False), n_looks)
    return [_Look(colour, style, marker) for (style, colour), marker in pairs]


def _looks(several: Sequence[Series]) -> dict[str, _Look]:
    """Give the first series of a method the same look in all figures, and its other settings one of those left."""
    every = _every_look()
    own = dict(zip((name for name in METHODS if name != _FOREMOST), every, strict=False))
    own[_FOREMOST] = _Look(_BLACK, "solid", _MARKERS[-1])
    firsts = {one.method: _untuned(one) for one in reversed(several) if one.method in own}
    looks = {label: own[method] for method, label in firsts.items()}
    for one in several:
        if _untuned(one) not in looks:
            free = [look for look in every if look not in looks.values()]
            colours = {look.color for look in looks.values()}
            looks[_untuned(one)] = next((look for look in free if look.color not in colours), free[0])
    return looks


def _untuned(one: Series) -> str:
    return one.label.removesuffix(f" ({TUNED})")


def _draw(axis: Any, one: Series, style: dict[str, Any]) -> None:
    if not one.private:
        axis.axhline(sorted(one.at(0.0))[len(one.at(0.0)) // 2], label=one.label, linewidth=1.2, **style)
        return
    spent = replace(one, values={mu: values for mu, values in one.values.items() if mu})
    places, middle = spent.quantile(0.5)
    (_, low), (_, high) = spent.quantile(_BAND[0]), spent.quantile(_BAND[1])
    axis.plot(places, middle, label=one.label, **style)
    axis.fill_between(places, low, high, color=style["color"], alpha=0.13, linewidth=0)
    if 0.0 in one.values:
        alone = float(np.median(one.values[0.0]))
        axis.axhline(alone, label=_alone(one), color=style["color"], linestyle=_DASHED, linewidth=1.2)


def _alone(one: Series) -> str:
    return f"{one.label}, mu = 0"


def _budget_axis(axis: Any) -> None:
    """Make x a logarithmic scale of mu, each label with its epsilon below."""
    axis.set_xscale("log")
    _plain_ticks(axis.xaxis, lambda mu: f"{mu:,g}\n({epsilon_name(mu)})")


def _plain_ticks(axis: Any, text: Callable[[float], str] = lambda value: f"{value:,g}") -> None:
    """Label powers of ten as plain numbers, and more of a short scale."""
    ticker = optional("matplotlib.ticker", "Matplotlib", "lab")
    low, high = axis.get_view_interval()
    short = low > 0 and high / low < 60
    axis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5) if short else (1,)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(ticker.NullFormatter())
