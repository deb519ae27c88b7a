"""Cells of a table as the first nodes of a graph of ONNX: what `dppl.encoders.columns` does, on tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from itertools import product
from typing import Any

import numpy as np

from dppl.encoders.columns import (
    MISSING,
    NO,
    YES,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    YesNoColumn,
    blocks,
    resolutions,
)
from dppl.errors import InputError

# Of the input of each kind of column.
TYPES: dict[type, str] = {
    NumberColumn: "DOUBLE",
    CategoryColumn: "STRING",
    YesNoColumn: "STRING",
    DateColumn: "INT64",
}
OUTPUTS = ("label", "scores", "probabilities")
_FIRST_DAY = 719_162  # of 1970, counted from 1 January of the year 1, a Monday
_LAST_DAY = date.max.toordinal() - 1
_DAYS = {400: 146_097, 100: 36_524, 4: 1_461, 1: 365}  # by years
_LEAP_YEAR = date(2024, 1, 1)  # a Monday
# What a cell is.
_KNOWN, _UNKNOWN, _MISSING = 0.0, 1.0, 2.0


def rows(graph: Any, columns: Sequence[Column]) -> Any:
    """Append the map of cells, and return the rows, as float32 rounds them."""
    for column in columns:
        if column.name in OUTPUTS:
            raise InputError(
                f"column {column.name!r} has the name of an output of the graph; call it otherwise in the schema and "
                "in its tables."
            )
    parts = [
        _block(graph, one) * graph.number(norm) for one, _, norm in blocks(columns)
    ]
    joined = graph.node("Concat", *parts, axis=1)
    return graph.cast(graph.cast(joined, "FLOAT"), "DOUBLE")


def _block(graph: Any, column: Column) -> Any:
    match column:
        case NumberColumn():
            return _number(graph, column)
        case CategoryColumn():
            return _category(graph, column, len(column.values))
        case YesNoColumn():
            return _category(graph, column, 2)
        case DateColumn():
            return _date(graph, column)
    raise InputError(
        f"column {column.name!r} is a {column.kind}, which a graph of ONNX cannot read; predict with dppl, or train "
        "without this column."
    )


def _number(graph: Any, column: NumberColumn) -> Any:
    cells = _upright(graph, column.name)
    missing = graph.node("IsNaN", cells)
    for text in column.missing:
        with suppress(ValueError):  # of a text that is no number
            alike = graph.node("Equal", cells, graph.number(float(text)))
            missing = graph.node("Or", missing, alike)
    low, high = (graph.number(float(one)) for one in (column.low, column.high))
    value = graph.node("Where", missing, low, cells)
    value = graph.node("Min", graph.maximum(value, low), high)
    if column.log:
        scaled = value / graph.number(column.unit)
        away = graph.node("Abs", scaled)
        root = graph.node("Sqrt", scaled * scaled + graph.number(1.0))
        value = graph.node("Sign", scaled) * graph.node("Log", away + root)
    start, end = column.ends
    place = (value - graph.number(start)) / graph.number(end - start)
    what = graph.cast(missing, "DOUBLE") * graph.number(_MISSING)
    return _with_odd(graph, _curve(graph, place, column.values), what)


def _category(graph: Any, column: Any, n: int) -> Any:
    """Return one coordinate a value, or a curve of ranks; the table of texts is what the column says of each."""
    places = {}
    for text in _texts(column):
        odd = column.oddity(text)
        if odd == "missing":
            places[text] = n + 1
        elif odd is None:
            places[text] = int(column.read(text))
    place = graph.node(
        "LabelEncoder",
        column.name,
        domain="ai.onnx.ml",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=n,
    )
    if not getattr(column, "ordered", False):
        # Runtimes have this operator in single precision, in which 0 and 1 are exact.
        on = graph.constant("off and on", np.array([0, 1], np.float32))
        slots = graph.node("OneHot", place, graph.whole(n + 2), on, axis=1)
        return graph.cast(slots, "DOUBLE")
    rank = _upright(graph, graph.cast(place, "DOUBLE"))
    last = graph.number(n - 1.0)
    what = graph.maximum(rank - last, graph.number(_KNOWN))
    found = _curve(graph, graph.node("Min", rank, last) / last, n)
    return _with_odd(graph, found, what)


def _texts(column: Any) -> Iterator[str]:
    """Yield texts that may be values, or stand for missing ones."""
    for text in (*getattr(column, "values", ()), *column.missing):
        yield from (text, f"{text}.0")
    for word in sorted(MISSING | YES | NO):
        for letters in product(*zip(word, word.upper(), strict=True)):
            yield "".join(letters)
    yield from ("0.0", "1.0")


def _date(graph: Any, column: DateColumn) -> Any:
    """Return trend, season and weekday of days since 1 January 1970, of which the least int64 is a missing one."""
    zero = graph.whole(0)
    last = graph.whole(_LAST_DAY)
    missing = graph.node("Equal", column.name, graph.whole(np.iinfo(np.int64).min))
    day = graph.whole(_FIRST_DAY) + graph.node("Where", missing, zero, column.name)
    within = graph.node("Min", graph.maximum(day, zero), last)
    unknown = graph.node("Not", graph.node("Equal", day, within))
    what = graph.cast(unknown, "DOUBLE") * graph.number(_UNKNOWN) + graph.cast(
        missing, "DOUBLE"
    ) * graph.number(_MISSING)
    # The rules of leap years: an era, its century, four years, and the year in them.
    left = graph.node("Mod", within, graph.whole(_DAYS[400]))
    century = graph.node("Min", left / graph.whole(_DAYS[100]), graph.whole(3))
    left = left - century * graph.whole(_DAYS[100])
    left = graph.node("Mod", left, graph.whole(_DAYS[4]))
    year = graph.node("Min", left / graph.whole(_DAYS[1]), graph.whole(3))
    of_year = left - year * graph.whole(_DAYS[1])
    low, high = (
        date.fromisoformat(one).toordinal() - 1 for one in (column.low, column.high)
    )
    cut = graph.node("Min", graph.maximum(within, graph.whole(low)), graph.whole(high))
    place = graph.cast(cut - graph.whole(low), "DOUBLE") / graph.number(
        float(high - low)
    )
    trend = _curve(graph, _upright(graph, place), None)
    # All days of a year, as the column lays them out.
    days = column.lay_out([_LEAP_YEAR + timedelta(day) for day in range(366)])
    wide = column.labels.index("sin")
    week = column.labels.index("Mon")
    season = graph.node("Gather", graph.constant("season", days[:, wide:week]), of_year)
    weekday = graph.node(
        "Gather",
        graph.constant("week", days[:7, week:]),
        graph.node("Mod", within, graph.whole(7)),
    )
    third = graph.number(float(np.sqrt(1 / 3)))
    found = graph.node("Concat", trend * third, season, weekday, axis=1)
    return _with_odd(graph, found, _upright(graph, what))


def _curve(graph: Any, place: Any, values: int | None) -> Any:
    scales = resolutions(values)
    parts = []
    for knots in scales:
        at = place * graph.number(knots - 1.0)
        tops = graph.constant(f"knots{knots}", np.arange(float(knots)))
        away = graph.node("Abs", at - tops)
        hats = graph.maximum(graph.number(1.0) - away, graph.number(0.0))
        norm = graph.length(hats) * graph.number(float(np.sqrt(len(scales))))
        parts.append(hats / norm)
    return graph.node("Concat", *parts, axis=1)


def _with_odd(graph: Any, found: Any, what: Any) -> Any:
    """Return a block: what is found of a known cell, or one of the last two coordinates."""
    known, unknown, missing = (
        graph.cast(graph.node("Equal", what, graph.number(one)), "DOUBLE")
        for one in (_KNOWN, _UNKNOWN, _MISSING)
    )
    return graph.node("Concat", found * known, unknown, missing, axis=1)


def _upright(graph: Any, cells: Any) -> Any:
    """Return cells as rows of one."""
    return graph.node("Unsqueeze", cells, graph.constant("column", [1]))
