"""Figures of the DPPL papers from any results file. Colours begin with Okabe and Ito's; markers differ too."""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dppl._utils.files import atomic_file
from dppl._utils.optional import optional
from dppl._utils.types import Float
from dppl.lab.experiments.names import AT_DELTA, TUNED, epsilon_name

# Okabe and Ito (2008), without the yellow, which is hard to see on white, and six that
# differ from them.
_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#332288", "#882255", "#999933", "#6B4423", "#7FC241", "#8C6BB1"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
# Dashes are for tuned lines only, dots for references.
_STROKES: tuple[Any, ...] = ("solid", (0, (7, 2, 1.5, 2)), (0, (7, 2, 1.5, 2, 1.5, 2)))
_DASHED = (0, (4, 2))
_DOTS = ((0, (1, 1)), (0, (1, 3)), (0, (1, 1, 3, 1)), (0, (3, 1, 1, 1, 1, 1)))
_FOREMOST = "softmax"
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
# Like the ticks: mu, and below it epsilon in brackets.
_MU_LABEL = f"mu (Gaussian DP)\n({AT_DELTA})"
BALANCED_LABEL = "balanced test accuracy"
BAND_NOTE = "Lines are medians over seeds, bands their quartiles."
# With more tasks, the cells of a heat map have no room for values.
_PRINTED_TASKS = 12
# Letters in a line above a panel.
_WRAP = 36

MatplotlibFigure: TypeAlias = Any
Style: TypeAlias = dict[str, Any]
Spread: TypeAlias = Callable[[Sequence[float]], tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure, or one row of a table."""

    label: str
    # values of the seeds by x, which is mu if nothing else is said; references have one
    # x, 0, for all budgets
    values: Mapping[float, Sequence[float]]
    method: str = ""  # name in `ALL_METHODS`
    private: bool = True  # False for references
    tuned: bool = False  # whether hyper-parameters were chosen on private data


Panel: TypeAlias = tuple[str, Sequence[Line]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with its title; its files are ``stem`` with .png and .svg."""

    stem: str
    title: str
    note: str
    figure: Any


MarkdownPart: TypeAlias = str | Picture  # of a report in Markdown


def slug(*names: str) -> str:
    """Make part of a file's name."""
    return "-".join(re.findall(r"[^\W_]+", "-".join(names).lower()))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of the seeds."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


def deviations(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of the seeds, and a standard deviation on either side, as in tables."""
    mean = float(np.mean(values))
    spread = 0.0
    if len(values) > 1:
        spread = float(np.std(values, ddof=1))
    return mean - spread, mean, mean + spread


def draw(
    panels: Sequence[Panel],
    y_label: str,
    x_label: str | None = None,
    *,
    summary: Spread = quartiles,
    log_x: bool = False,
    log_y: bool = False,
) -> MatplotlibFigure:
    """Draw a panel for each title; x is the budget unless it has a label, and a budget of 0 is a dashed line."""
    on_budgets = x_label is None
    every = [one for _, several in panels for one in several]
    with optional("matplotlib", "Matplotlib", "lab").rc_context(_SETTINGS):
        styles = line_styles(every)
        at_zero = {
            _at_zero(one.label)
            for one in every
            if on_budgets and one.private and 0 in one.values
        }
        figure, axes, entries_a_row = _axes(
            len(panels), x_label or _MU_LABEL, y_label, [*styles, *at_zero]
        )
        # A line that is in several panels has one entry in the legend.
        entries: dict[str, Any] = {}
        for axis, (title, several) in zip(axes, panels, strict=True):
            for one in several:
                _draw_line(axis, one, styles[one.label], summary, on_budgets)
            axis.set_title(title)
            # Budgets have their epsilons below; whole numbers are as they are.
            if on_budgets or log_x:
                axis.set_xscale("log")
            if on_budgets:
                _plain_ticks(axis.xaxis, lambda mu: f"{mu:,g}\n({epsilon_name(mu)})")
            elif log_x:
                _plain_ticks(axis.xaxis)
            else:
                axis.xaxis.set_major_locator(_ticker().MaxNLocator(integer=True))
            if log_y:
                axis.set_yscale("log")
                _plain_ticks(axis.yaxis)
            elif on_budgets:
                axis.set_ylim(0, 1.02)
            handles, labels = axis.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        look = {"loc": "outside lower center", "frameon": False, "handlelength": 4.5}
        figure.legend(entries.values(), entries.keys(), ncols=entries_a_row, **look)
        return figure


def _draw_line(
    axis: Any, one: Line, style: Style, summary: Spread, on_budgets: bool
) -> None:
    if not one.private:
        # The lower of two middle seeds is a value that was measured.
        axis.axhline(
            sorted(one.values[0.0])[len(one.values[0.0]) // 2],
            label=one.label,
            linewidth=1.2,
            **style,
        )
        return
    places = [x for x in sorted(one.values) if x or not on_budgets]
    low, middle, high = (
        np.array([summary(one.values[x]) for x in places]).reshape(-1, 3).T
    )
    axis.plot(places, middle, label=one.label, **style)
    axis.fill_between(places, low, high, color=style["color"], alpha=0.13, linewidth=0)
    if on_budgets and 0.0 in one.values:
        look = {"color": style["color"], "linestyle": _DASHED, "linewidth": 1.2}
        axis.axhline(
            float(np.median(one.values[0.0])), label=_at_zero(one.label), **look
        )


def _at_zero(label: str) -> str:
    return f"{label}, mu = 0"


def heat_maps(maps: Sequence[tuple[str, Float]]) -> MatplotlibFigure:
    """Draw accuracies on task i (columns) after task t (rows): a map of (title, matrix) each, NaN white."""
    with optional("matplotlib", "Matplotlib", "lab").rc_context(_SETTINGS):
        figure, axes, _ = _axes(len(maps), "tested on task", "after task")
        # One scale for all maps, so that they can be compared.
        low, high = (
            float(bound([bound(matrix) for _, matrix in maps]))
            for bound in (np.nanmin, np.nanmax)
        )
        for axis, (title, matrix) in zip(axes, maps, strict=True):
            edges = 0.5, len(matrix) + 0.5
            extent = (*edges, *edges[::-1])
            image = axis.imshow(
                matrix,
                vmin=low,
                vmax=high,
                cmap="viridis",
                extent=extent,
                aspect="auto",
            )
            for (row, column), value in (
                np.ndenumerate(matrix) if len(matrix) <= _PRINTED_TASKS else ()
            ):
                if not np.isnan(value):
                    look = {
                        "color": "black" if value > (low + high) / 2 else "white",
                        "fontsize": 0.75 * _FONT_SIZE,
                    }
                    text = f"{value:.2f}".removeprefix("0")
                    axis.text(
                        column + 1, row + 1, text, ha="center", va="center", **look
                    )
            axis.grid(visible=False)
            axis.set_title("\n".join(textwrap.wrap(title, _WRAP)))
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_locator(_ticker().MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, label="test accuracy")
        return figure


def scatter(several: Sequence[tuple[str, Mapping[str, Any]]]) -> MatplotlibFigure:
    """Draw true and private means over training rows, and beside them the test rows: two panels a budget."""
    with optional("matplotlib", "Matplotlib", "lab").rc_context(_SETTINGS):
        figure, axes, _ = _axes(
            2 * len(several), "first axis", "second axis", columns=2, sharey=False
        )
        for place, (title, points) in enumerate(several):
            left, right = axes[2 * place : 2 * place + 2]
            true, private = (np.array(points[kind]) for kind in ("true", "private"))
            colours = np.resize(_COLOURS, len(true))
            dots = {"s": 4, "alpha": 0.25, "linewidths": 0}
            left.scatter(
                *np.array(points["train"]).T, c=colours[points["train_codes"]], **dots
            )
            for start, end, colour in zip(true, private, colours, strict=True):
                arrow = {
                    "arrowstyle": "->",
                    "color": colour,
                    "shrinkA": 0,
                    "shrinkB": 0,
                }
                left.annotate("", end, start, arrowprops=arrow)
            left.scatter(*true.T, c=colours, edgecolors="black", linewidths=0.5, s=22)
            left.update_datalim(private)
            left.autoscale_view()
            left.set_title(f"{title}\ntrue means (not private, public data) to private")
            test, is_right = np.array(points["test"]), np.array(points["right"])
            for chosen, colour, marker in ((is_right, 2, "o"), (~is_right, 1, "^")):
                look = {"c": _COLOURS[colour], "marker": marker, **dots, "s": 8}
                right.scatter(*test[chosen].T, **look)
            right.scatter(*private.T, c="black", marker="x", s=26)
            right.set_title(f"{title}\nprivate means and test rows")
        return figure


def save(figure: MatplotlibFigure, folder: Path, stem: str) -> None:
    """Write a figure as PNG and as SVG."""
    with optional("matplotlib", "Matplotlib", "lab").rc_context(_SETTINGS):
        with atomic_file(folder / f"{stem}.png", overwrite=True) as file:
            figure.savefig(file, format="png", dpi=160)
        figure.set_layout_engine(
            "none"
        )  # the layout is final now; computing it takes most of the time
        with atomic_file(folder / f"{stem}.svg", overwrite=True) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})


def line_styles(every: Iterable[Line]) -> dict[str, Style]:
    """Give every line its look; a tuned one looks like its untuned sister, dashed and hollow."""
    dots = cycle(_DOTS)
    styles = dict[str, Style]()
    looks = dict[str, Style]()
    for one in {one.label: one for one in every}.values():
        untuned = one.label.removesuffix(f" ({TUNED})")
        place = len(looks)
        if not one.private:
            styles[one.label] = {"color": "#555555", "linestyle": next(dots)}
            continue
        if untuned not in looks:
            looks[untuned] = {
                "color": _COLOURS[place % len(_COLOURS)],
                "linestyle": _STROKES[place // len(_COLOURS) % len(_STROKES)],
                "marker": _MARKERS[place % len(_MARKERS)],
                "markersize": 4,
                "linewidth": 1.4,
            }
            # The first line of the default method is in front of all others, and alone
            # in black.
            if one.method == _FOREMOST and not any(
                look["color"] == "black" for look in looks.values()
            ):
                looks[untuned] |= {
                    "color": "black",
                    "linewidth": 2.0,
                    "markersize": 5,
                    "zorder": 3,
                }
        if one.tuned:
            hollow = {"linestyle": _DASHED, "markerfacecolor": "white"}
        else:
            hollow = {}
        styles[one.label] = looks[untuned] | hollow
    return styles


def _axes(
    n_panels: int,
    x_label: str,
    y_label: str,
    entries: Sequence[str] = (),
    *,
    columns: int | None = None,
    sharey: bool = True,
) -> tuple[MatplotlibFigure, list[Any], int]:
    """Return a figure with room for a legend of these entries below, its panels, and how many entries a row takes."""
    # Four panels a row; five look better as three and two.
    columns = columns or min(n_panels, 4 if n_panels != 5 else 3)
    rows = math.ceil(n_panels / columns)
    # A letter is on average narrower than two thirds of the font size; a line and its
    # gaps take seven and a half.
    entry = _FONT_SIZE / 72 * (7.5 + 0.62 * max(map(len, entries), default=0))
    width = max(3.2 * columns, 4.8, entry)
    height = 2.85 * rows + 0.7 + 0.18 * math.ceil(len(entries) / int(width / entry))
    module = optional("matplotlib.figure", "Matplotlib", "lab")
    figure = module.Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).ravel())
    for empty in axes[n_panels:]:
        empty.remove()
    axes = axes[:n_panels]
    for left in axes[::columns]:
        left.set_ylabel(y_label)
    for lowest in axes[-columns:]:
        lowest.set_xlabel(x_label)
    return figure, axes, int(width / entry)


def _ticker() -> Any:
    return optional("matplotlib.ticker", "Matplotlib", "lab")


def _plain_ticks(
    axis: Any, text: Callable[[float], str] = lambda value: f"{value:,g}"
) -> None:
    """Label powers of ten as plain numbers, and more of a short scale."""
    low, high = axis.get_view_interval()
    # Below two decades powers of ten alone would be one label or two.
    short = low > 0 and high / low < 60
    axis.set_major_locator(
        _ticker().LogLocator(base=10, subs=(1, 2, 5) if short else (1,))
    )
    axis.set_major_formatter(_ticker().FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(_ticker().NullFormatter())
