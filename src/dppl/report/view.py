"""What of a report's content a page shows at once, and its charts: nothing here computes a number anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from dppl.kernel.privacy.budgets import USUAL_DELTA, rounded_up
from dppl.pages import Axis, Line, bar, breakable, chart, swatch

__all__ = ["view"]

# Rows that stand open. The next ones are folded, as many as fit into so many bytes, so that a page stays under 500 kB
# whatever the classes are called; the JSON form has all.
_OPEN_CLASSES, _OPEN_CONFUSIONS, _OPEN_PANELS = 20, 15, 4
_CLASS_BYTES, _CONFUSION_BYTES, _SELECTED_BYTES = 150_000, 25_000, 60_000
# The list of classes is short where a table has most of them.
_NAME_BYTES, _NAME_BYTES_BESIDE_A_TABLE = 100_000, 25_000
_PANELS, _LINES, _MATRIX, _RELEASES, _CHARGES = 12, 6, 20, 40, 30
# Of a row beside the names in it, and of an entry of a list.
_ROW_BYTES, _ENTRY_BYTES = 130, 40
_LETTERS = 60
_SHARES = [(place / 4, f"{25 * place} %") for place in range(5)]
_RARE = [(1e-4, "0.01 %"), (1e-3, "0.1 %"), (1e-2, "1 %"), (1e-1, "10 %"), (1.0, "100 %")]
_GUESSING = [10 ** (place / 10) for place in range(-40, 1)]


def view(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the templates show beside the content."""
    classes, selected = content["model"]["classes"], content["model"]["selected"]
    most = _NAME_BYTES if content["evaluation"] is None else _NAME_BYTES_BESIDE_A_TABLE
    named = fitting(classes, most, lambda name: [name], _ENTRY_BYTES)
    releases = content["guarantee"]["releases"]
    return {
        "short": short,
        "percent": percent,
        "at_most": at_most,
        "classes": {"named": named, "rest": len(classes) - len(named)},
        "selected": [] if selected is None else _fitting_rows(zip(classes, selected, strict=True)),
        "releases": {"shown": releases[:_RELEASES], "rest": max(len(releases) - _RELEASES, 0)},
        "curves": _curves(content["guarantee"]),
        "ledger": None if content["ledger"] is None else _ledger(content["ledger"]),
        "accuracy": _accuracy(content["accuracy"], content["guarantee"]["mu"]),
        "evaluation": None if content["evaluation"] is None else _evaluation(content["evaluation"]),
        **_rows(content),
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


def _fitting_rows(rows: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    joined = [(name, ", ".join(short(one) for one in several[:10])) for name, several in rows]
    return fitting(joined, _SELECTED_BYTES, lambda row: [row[0], *row[1].split(", ")])


def short(name: str) -> str:
    """Cut a long name; the JSON form has all of it."""
    return name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"


def percent(share: float | None) -> str:
    """Write a share with one digit; a dash where there is none.

    >>> percent(0.9876), percent(1.0), percent(None)
    ('98.8 %', '100 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f}".removesuffix(".0") + " %"


def at_most(share: float) -> str:
    """Write a bound, rounded up to a hundredth of a per cent.

    >>> at_most(0.018251), at_most(0.9999999)
    ('1.83 %', '100 %')
    """
    return f"{min(math.ceil(10_000 * share), 10_000) / 100:g} %"


def _rows(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of the Markdown form."""
    guarantee, evaluation, gallery = content["guarantee"], content["evaluation"], content["gallery"]
    rows: dict[str, Any] = {
        "curve_rows": [(f"{100 * rate:.3g} %", at_most(found)) for rate, found in guarantee["curve"]],
        "release_rows": [_release(one) for one in guarantee["releases"]],
    }
    if evaluation is not None:
        shown = sorted((one for one in evaluation["per_class"] if one["n"]), key=_by_accuracy)
        rows["class_rows"] = [
            (short(one["class"]) + " (minority)" * one["minority"], one["n"], percent(one["accuracy"])) for one in shown
        ]
        rows["confusion_rows"] = [
            (short(one["class"]), short(one["predicted"]), one["n"], percent(one["share"]))
            for one in evaluation["confusions"][:_OPEN_CONFUSIONS]
        ]
    if gallery is not None:
        rows["gallery_rows"] = [
            (short(one["class"]), " / ".join(item.get("text", item["id"]) for item in one["items"]))
            for one in gallery["classes"]
        ]
    return rows


def _release(one: Mapping[str, Any]) -> tuple[str, str, str]:
    several = one["times"] > 1
    return (
        f"{one['times']} times: " * several + f"{one['statistic']}, by the {one['drawn']}",
        ", ".join([f"{one['norm']} sensitivity {one['sensitivity']}", *one["parameters"]]),
        ", ".join(one["cost"]) + " each" * several,
    )


def _by_accuracy(one: Mapping[str, Any]) -> tuple[float, str]:
    return one["accuracy"], one["class"]


def _curves(guarantee: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Draw the trade-off curve twice: as a whole, and where false alarms are rare."""
    curve = [(rate, found) for rate, found in guarantee["curve"]]
    found = Axis("members found, at most", 0.0, 1.0, _SHARES)
    texts = (
        f"At a false-alarm rate of {100 * rate:g} % an attacker finds at most {at_most(power)} of the members."
        for rate, power in _near(curve, (0.001, 0.01, 0.1))
    )
    said = " ".join(texts)
    all_rates = Axis("false alarms among others", 0.0, 1.0, _SHARES)
    rarely = Axis("false alarms among others (logarithmic)", 1e-4, 1.0, _RARE, log=True)
    whole = [(0.0, curve[0][1]), *curve, (1.0, 1.0)]
    return [
        {
            "name": "At all false-alarm rates",
            "chart": chart(
                [Line([(0, 0), (1, 1)], None), Line(whole, 0, strong=True)],
                all_rates,
                found,
                f"Trade-off curve. {said}",
            ),
        },
        {
            "name": "At rare false alarms",
            "chart": chart(
                [Line([(x, x) for x in _GUESSING], None), Line([*curve, (1.0, 1.0)], 0, strong=True)],
                rarely,
                found,
                f"The same curve with a logarithmic scale of false alarms. {said}",
            ),
        },
    ]


def _near(curve: Sequence[tuple[float, float]], rates: Sequence[float]) -> list[tuple[float, float]]:
    return [min(curve, key=lambda point: abs(math.log(point[0] / rate))) for rate in rates]


def _ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """Return the charge that paid, and the latest others."""
    own = [one for one in ledger["releases"] if one["number"] == ledger["number"]]
    others = [one for one in ledger["releases"] if one["number"] != ledger["number"]][-_CHARGES:]
    shown = sorted([*own, *others], key=lambda one: int(one["number"]))
    return {"bar": bar(ledger["share"]), "shown": shown, "rest": len(ledger["releases"]) - len(shown)}


def _accuracy(accuracy: Mapping[str, Any] | None, mu: float | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    looks: dict[str, int] = {}
    panels = [_panel(one, mu, looks) for one in accuracy["panels"][:_PANELS]]
    return {
        "open": panels[:_OPEN_PANELS],
        "folded": panels[_OPEN_PANELS:],
        "rest": max(len(accuracy["panels"]) - _PANELS, 0),
    }


def _panel(panel: Mapping[str, Any], mu: float | None, looks: dict[str, int]) -> dict[str, Any]:
    """Draw the model's own method, the best of the others, and the best reference without privacy.

    A line keeps its look in all panels; `looks` grows by those that are new.
    """
    lines = [one for one in panel["lines"] if one["private"] and any(point["mu"] for point in one["points"])]
    references = [one for one in panel["lines"] if not one["private"]]
    places = sorted({point["mu"] for one in lines for point in one["points"] if point["mu"]})
    epsilons = {point["mu"]: point["epsilon"] for one in lines for point in one["points"]}
    drawn = _drawn(lines, places, mu)
    for one in drawn:
        looks.setdefault(one["label"], len(looks))
    best = max(references, key=_mean, default=None)
    legend = [{"swatch": swatch(looks[one["label"]]), "label": one["label"], "own": one["own"]} for one in drawn]
    if best is not None:
        legend.append({"swatch": swatch(None), "label": best["label"], "own": False})
    shown = [*drawn, *references, *(one for one in lines if one not in drawn)]
    return {
        "name": panel["name"],
        "seeds": panel["seeds"],
        "chart": _over_budget(drawn, best, _budgets(places, epsilons, mu), mu, looks) if drawn else None,
        "legend": legend,
        "header": ["method", *(f"mu {place:g} (epsilon {epsilons[place]})" for place in places)],
        "rows": [[one["label"], *(_cell(one, place) for place in places)] for one in shown],
    }


def _drawn(lines: Sequence[Mapping[str, Any]], places: Sequence[float], mu: float | None) -> list[Mapping[str, Any]]:
    """Return the lines for a chart, those of the model's method first and then the best at its budget.

    What was tuned on private records is for the table, which says so, and so is what has few budgets.
    """
    near = min(places, key=lambda place: abs(math.log(place / (mu or 1.0))), default=0.0)
    able = [one for one in lines if not one["tuned"] and (one["own"] or 2 * len(one["points"]) >= len(places))]
    return sorted(able, key=lambda one: (not one["own"], -_at(one, near)))[:_LINES]


def _over_budget(
    lines: Sequence[Mapping[str, Any]],
    reference: Mapping[str, Any] | None,
    x: Axis,
    mu: float | None,
    looks: Mapping[str, int],
) -> str:
    shapes = [_line(one, looks[one["label"]]) for one in reversed(lines)]
    if reference is not None:
        shapes.insert(0, Line([(x.low, _mean(reference)), (x.high, _mean(reference))], None))
    said = "; ".join(f"{one['label']}: {_ends(one)}" for one in lines)
    mark = None if mu is None or not x.low <= mu <= x.high else (mu, "this model")
    y = Axis("balanced accuracy", 0.0, 1.0, _SHARES)
    return chart(shapes, x, y, f"Balanced accuracy over the budget. {said}", mark=mark)


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


def _line(one: Mapping[str, Any], look: int) -> Line:
    points = [point for point in one["points"] if point["mu"]]
    return Line(
        [(point["mu"], point["median"]) for point in points],
        look,
        [(point["mu"], point["low"], point["high"]) for point in points] if len(points) > 1 else (),
        markers=True,
        strong=one["own"],
    )


def _at(one: Mapping[str, Any], mu: float) -> float:
    return next((float(point["median"]) for point in one["points"] if point["mu"] == mu), 0.0)


def _mean(one: Mapping[str, Any]) -> float:
    return fmean(point["median"] for point in one["points"])


def _ends(one: Mapping[str, Any]) -> str:
    points = [point for point in one["points"] if point["mu"]]
    first, last = (f"{percent(point['median'])} at mu {point['mu']:g}" for point in (points[0], points[-1]))
    return f"{first}, {last}"


def _cell(one: Mapping[str, Any], place: float) -> str:
    for point in one["points"]:
        if point["mu"] == place or not one["private"]:
            spread = f" ({percent(point['low'])} to {percent(point['high'])})" if point["n"] > 1 else ""
            return percent(point["median"]) + spread
    return "–"


def _evaluation(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    measured = [one for one in evaluation["per_class"] if one["n"]]
    rows = sorted(measured, key=_by_accuracy)
    folded = fitting(rows[_OPEN_CLASSES:], _CLASS_BYTES, lambda one: [one["class"]])
    confusions = evaluation["confusions"]
    more = fitting(confusions[_OPEN_CONFUSIONS:], _CONFUSION_BYTES, lambda one: [one["class"], one["predicted"]])
    return {
        "open": [{**one, "bar": bar(one["accuracy"])} for one in rows[:_OPEN_CLASSES]],
        "folded": [{**one, "bar": ""} for one in folded],
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
    sizes = {one["class"]: one["n"] for one in measured}
    counts = {(one["class"], one["predicted"]): one["n"] for one in confusions}
    counts |= {(one["class"], one["class"]): round(one["n"] * one["accuracy"]) for one in measured}
    rows = [
        {
            "class": name,
            "cells": [_shade(counts.get((name, other), 0), sizes.get(name, 0), name == other) for other in names],
        }
        for name in names
    ]
    numbered = any(len(name) > 3 for name in names)  # columns have no room for more
    return {"names": names, "rows": rows, "whole": len(order) <= _MATRIX, "numbered": numbered}


def _shade(n: int, size: int, right: bool) -> dict[str, Any]:
    """Return a cell with its shade, by the share of the class: none, up to 10, 30, 60 and 100 %."""
    share = n / size if size else 0.0
    level = sum(share > bound for bound in (0.0, 0.1, 0.3, 0.6))
    return {"n": n, "style": f"h{level}" + (" right" if right else "")}
