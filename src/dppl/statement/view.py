"""What of a statement a page shows at once, and its charts: nothing here recomputes a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from dppl.kernel.privacy.budgets import USUAL_DELTA, rounded_up
from dppl.statement.charts import Axis, Line, chart
from dppl.statement.rendering import at_most, breakable, percent, short

__all__ = ["view"]

# Rows that stand open. The next ones are folded, as many as fit into so many bytes, so that a page stays under 500 kB
# whatever the classes are called; the JSON form has all.
_OPEN_CLASSES, _OPEN_CONFUSIONS = 20, 15
_CLASS_BYTES, _CONFUSION_BYTES, _SELECTED_BYTES = 150_000, 25_000, 60_000
# The list of classes is short where a table has most of them.
_NAME_BYTES, _NAME_BYTES_WITH_A_TABLE = 100_000, 25_000
_PANELS, _LINES, _MATRIX, _CHARGES = 12, 6, 20, 30
# Of a row around the names in it, and of an entry of a list.
_ROW_BYTES, _ENTRY_BYTES = 130, 40
_SHARES = [(place / 4, f"{25 * place} %") for place in range(5)]
_RARE = [(1e-4, "0.01 %"), (1e-3, "0.1 %"), (1e-2, "1 %"), (1e-1, "10 %"), (1.0, "100 %")]
_GUESSING = [10 ** (place / 10) for place in range(-40, 1)]


def view(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what templates show that the content does not hold as it is."""
    classes, selected, ledger = content["model"]["classes"], content["model"]["selected"], content["ledger"]
    evaluation, accuracy = content["evaluation"], content["accuracy"]
    looks: dict[str, int] = {}
    rows = [(name, ", ".join(map(short, several[:10]))) for name, several in zip(classes, selected or [], strict=False)]
    return {
        "classes": fitting(
            classes, _NAME_BYTES if evaluation is None else _NAME_BYTES_WITH_A_TABLE, lambda name: [name], _ENTRY_BYTES
        ),
        "selected": fitting(rows, _SELECTED_BYTES, lambda row: [row[0], *row[1].split(", ")]),
        "curves": _curves(content["guarantee"]["curve"]),
        # The charge that paid, and the latest others.
        "charges": []
        if ledger is None
        else [
            one
            for place, one in enumerate(ledger["releases"], _CHARGES - len(ledger["releases"]))
            if place >= 0 or one["number"] == ledger["number"]
        ],
        "panels": []
        if accuracy is None
        else [_panel(one, content["guarantee"]["mu"], looks) for one in accuracy["panels"][:_PANELS]],
        "evaluation": None if evaluation is None else _evaluation(evaluation),
    }


def fitting(
    rows: Sequence[Any], n_bytes: int, names: Callable[[Any], Iterable[str]], row_bytes: int = _ROW_BYTES
) -> list[Any]:
    """Return the first rows, as many as fit with `row_bytes` each and their names."""
    kept = []
    for row in rows:
        n_bytes -= row_bytes + sum(len(breakable(short(name)).encode("utf-8")) for name in names(row))
        if n_bytes < 0:
            break
        kept.append(row)
    return kept


def _curves(curve: Sequence[Sequence[float]]) -> list[tuple[str, dict[str, Any]]]:
    """Draw the trade-off curve twice: as a whole, and where false alarms are rare."""
    points = [(rate, power) for rate, power in curve]
    # A screen reader hears three points of the curve; the table below it has all.
    near = (min(points, key=lambda point: abs(math.log(point[0] / rate))) for rate in (0.001, 0.01, 0.1))
    said = " ".join(
        f"At a false-alarm rate of {100 * rate:g} % an attacker finds at most {at_most(power)} of the members."
        for rate, power in near
    )
    label = "members found, at most"
    # Any guess finds all members where it suspects everybody, so the curve ends at (1, 1).
    whole = Line([(0.0, points[0][1]), *points, (1.0, 1.0)], 0, strong=True)
    rare = Line([*points, (1.0, 1.0)], 0, strong=True)
    guessing = Line([(0, 0), (1, 1)], None), Line([(x, x) for x in _GUESSING], None)
    all_rates = Axis("false alarms among others", 0.0, 1.0, _SHARES)
    rarely = Axis("false alarms among others (logarithmic)", 1e-4, 1.0, _RARE, log=True)
    logarithmic = f"The same curve with a logarithmic scale of false alarms. {said}"
    return [
        ("At all false-alarm rates", chart([guessing[0], whole], all_rates, label, f"Trade-off curve. {said}")),
        ("At rare false alarms", chart([guessing[1], rare], rarely, label, logarithmic)),
    ]


def _panel(panel: Mapping[str, Any], mu: float | None, looks: dict[str, int]) -> dict[str, Any]:
    """Draw the model's own method, the best of the others, and the best reference without privacy.

    A line keeps its look in all panels; `looks` grows by those that are new.
    """
    lines = [one for one in panel["lines"] if one["private"] and any(point["mu"] for point in one["points"])]
    references = [one for one in panel["lines"] if not one["private"]]
    points = {one["label"]: {point["mu"]: point for point in one["points"] if point["mu"]} for one in lines}
    epsilons = {place: point["epsilon"] for some in points.values() for place, point in some.items()}
    places = sorted(epsilons)
    # First the model's method, then the best at its budget. What was tuned on private records is for the table, which
    # says so, and so is what has few budgets.
    near = min(places, key=lambda place: abs(math.log(place / (mu or 1.0))), default=0.0)
    able = [one for one in lines if not one["tuned"] and (one["own"] or 2 * len(one["points"]) >= len(places))]
    at_budget = {label: some[near]["median"] if near in some else 0.0 for label, some in points.items()}
    drawn = sorted(able, key=lambda one: (not one["own"], -at_budget[one["label"]]))[:_LINES]
    for one in drawn:
        looks.setdefault(one["label"], len(looks))
    legend: list[tuple[int | None, str, bool]] = [(looks[one["label"]], one["label"], one["own"]) for one in drawn]
    best = max(((fmean(point["median"] for point in one["points"]), one["label"]) for one in references), default=None)
    if best is not None:
        legend.append((None, best[1], False))
    picture = None
    if drawn:
        x = _budgets(places, epsilons, mu)
        shapes = [] if best is None else [Line([(x.low, best[0]), (x.high, best[0])], None)]
        said: list[str] = []
        for one in reversed(drawn):  # the first is drawn on top
            some = list(points[one["label"]].items())
            band = [(place, point["low"], point["high"]) for place, point in some] if len(some) > 1 else ()
            curve = [(place, point["median"]) for place, point in some]
            shapes.append(Line(curve, looks[one["label"]], band, markers=True, strong=one["own"]))
            ends = ", ".join(f"{percent(value)} at mu {place:g}" for place, value in (curve[0], curve[-1]))
            said.insert(0, f"{one['label']}: {ends}")
        mark = None if mu is None or not x.low <= mu <= x.high else (mu, "this model")
        description = f"Balanced accuracy over the budget. {'; '.join(said)}"
        picture = chart(shapes, x, "balanced accuracy", description, mark)
    shown = [*drawn, *references, *(one for one in lines if one not in drawn)]
    return {
        "name": panel["name"],
        "seeds": panel["seeds"],
        "chart": picture,
        "legend": legend,
        "header": ["method", *(f"mu {place:g} (epsilon {epsilons[place]})" for place in places)],
        "rows": [[one["label"], *(_cell(one, place) for place in places)] for one in shown],
    }


def _budgets(places: Sequence[float], epsilons: Mapping[float, str], mu: float | None) -> Axis:
    """Return the scale of mu: every budget a tick with its epsilon below, but where they would run into each other."""
    low, high = 0.85 * places[0], 1.15 * places[-1]
    if mu is not None and places[0] / 4 <= mu <= 4 * places[-1]:
        low, high = min(low, 0.85 * mu), max(high, 1.15 * mu)
    ticks: list[tuple[float, str]] = []
    last = -1.0
    for place in places:
        at = math.log(place / low) / math.log(high / low)
        if at - last > 0.15:
            ticks.append((place, f"{place:g}\n({epsilons[place]})"))
            last = at
    return Axis(f"mu (epsilon at delta = {rounded_up(USUAL_DELTA)})", low, high, ticks, log=True)


def _cell(one: Mapping[str, Any], place: float) -> str:
    for point in one["points"]:
        if point["mu"] == place or not one["private"]:
            spread = f" ({percent(point['low'])} to {percent(point['high'])})" if point["n"] > 1 else ""
            return percent(point["median"]) + spread
    return "–"


def _evaluation(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    # A class without records has no accuracy to show.
    measured = [one for one in evaluation["per_class"] if one["n"]]
    rows = sorted(measured, key=lambda one: (one["accuracy"], one["class"]))
    # The lowest accuracies stand open: those are what a reader must not miss.
    folded = fitting(rows[_OPEN_CLASSES:], _CLASS_BYTES, lambda one: [one["class"]])
    confusions = evaluation["confusions"]
    more = fitting(confusions[_OPEN_CONFUSIONS:], _CONFUSION_BYTES, lambda one: [one["class"], one["predicted"]])
    return {
        "open": rows[:_OPEN_CLASSES],
        "folded": folded,
        "rest": max(len(rows) - _OPEN_CLASSES, 0) - len(folded),
        "unmeasured": len(evaluation["per_class"]) - len(measured),
        "n_minority": sum(one["minority"] for one in measured),
        "confusions": confusions[:_OPEN_CONFUSIONS],
        "more_confusions": more,
        "confusions_left_out": max(len(confusions) - _OPEN_CONFUSIONS, 0) - len(more),
        "matrix": _matrix(measured, confusions),
    }


def _matrix(measured: Sequence[Mapping[str, Any]], confusions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the confusion matrix of the classes in the largest confusions, in that order."""
    order = dict.fromkeys(name for one in confusions for name in (one["class"], one["predicted"]))
    order |= dict.fromkeys(one["class"] for one in measured)
    names = list(order)[:_MATRIX]
    # The diagonal follows from sizes and accuracies; confusions list the rest.
    sizes = {one["class"]: one["n"] for one in measured}
    counts = {(one["class"], one["predicted"]): one["n"] for one in confusions}
    counts |= {(one["class"], one["class"]): round(one["n"] * one["accuracy"]) for one in measured}
    rows = []
    for name in names:
        size = sizes.get(name, 0)
        cells = [(counts.get((name, other), 0), name == other) for other in names]
        # A cell is shaded by its share of the class: none, up to 10, 30, 60 and 100 %.
        shades = [sum(size and n / size > bound for bound in (0.0, 0.1, 0.3, 0.6)) for n, _ in cells]
        rows.append(
            {
                "class": name,
                "cells": [
                    {"n": n, "style": f"h{shade}" + " right" * right}
                    for (n, right), shade in zip(cells, shades, strict=True)
                ],
            }
        )
    numbered = any(len(name) > 3 for name in names)  # columns have no room for more
    return {"names": names, "rows": rows, "whole": len(order) <= _MATRIX, "numbered": numbered}
