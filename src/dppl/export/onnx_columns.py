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
_NO_DAY = int(np.iinfo(np.int64).min)  # as NumPy has it
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
    parts = []
    for column, _, norm in blocks(columns):
        parts.append(_block(graph, column) * norm)
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
            alike = graph.node("Equal", cells, float(text))
            missing = graph.node("Or", missing, alike)
    low = float(column.low)
    value = graph.node("Where", missing, low, cells)
    value = graph.node("Max", value, low)
    value = graph.node("Min", value, float(column.high))
    if column.log:
        value = _asinh(graph, value / column.unit)
    start, end = column.ends
    place = (value - start) / (end - start)
    what = graph.cast(missing, "DOUBLE") * _MISSING
    found = _curve(graph, place, column.values)
    return _with_odd(graph, found, what)


def _asinh(graph: Any, value: Any) -> Any:
    """Return what runtimes have in single precision alone."""
    root = graph.node("Sqrt", value * value + 1.0)
    away = graph.node("Abs", value)
    return graph.node("Sign", value) * graph.node("Log", away + root)


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
        slots = graph.node("OneHot", place, n + 2, on, axis=1)
        return graph.cast(slots, "DOUBLE")
    rank = _upright(graph, graph.cast(place, "DOUBLE"))
    last = n - 1.0
    what = graph.node("Max", rank - last, _KNOWN)
    within = graph.node("Min", rank, last)
    found = _curve(graph, within / last, n)
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
    missing = graph.node("Equal", column.name, _NO_DAY)
    day = graph.node("Where", missing, 0, column.name) + _FIRST_DAY
    within = _between(graph, day, 0, _LAST_DAY)
    known = graph.node("Equal", day, within)
    unknown = graph.node("Not", known)
    what = graph.cast(unknown, "DOUBLE") * _UNKNOWN
    what = what + graph.cast(missing, "DOUBLE") * _MISSING
    # The rules of leap years: an era, its century, four years, and the year in them.
    left = graph.node("Mod", within, _DAYS[400])
    century = graph.node("Min", left / _DAYS[100], 3)
    left = left - century * _DAYS[100]
    left = graph.node("Mod", left, _DAYS[4])
    year = graph.node("Min", left / _DAYS[1], 3)
    of_year = left - year * _DAYS[1]
    low = date.fromisoformat(column.low).toordinal() - 1
    high = date.fromisoformat(column.high).toordinal() - 1
    cut = _between(graph, within, low, high)
    place = graph.cast(cut - low, "DOUBLE") / float(high - low)
    trend = _curve(graph, _upright(graph, place), None)
    # All days of a year, as the column lays them out.
    days = column.lay_out([_LEAP_YEAR + timedelta(day) for day in range(366)])
    wide = column.labels.index("sin")
    week = column.labels.index("Mon")
    seasons = graph.constant("seasons", days[:, wide:week])
    season = graph.node("Gather", seasons, of_year)
    weekdays = graph.constant("weekdays", days[:7, week:])
    weekday = graph.node("Mod", within, 7)
    weekday = graph.node("Gather", weekdays, weekday)
    third = float(np.sqrt(1 / 3))
    found = graph.node("Concat", trend * third, season, weekday, axis=1)
    return _with_odd(graph, found, _upright(graph, what))


def _between(graph: Any, value: Any, low: int, high: int) -> Any:
    return graph.node("Min", graph.node("Max", value, low), high)


def _curve(graph: Any, place: Any, values: int | None) -> Any:
    scales = resolutions(values)
    root = float(np.sqrt(len(scales)))
    parts = []
    for knots in scales:
        tops = graph.constant(f"knots{knots}", np.arange(float(knots)))
        away = graph.node("Abs", place * (knots - 1.0) - tops)
        hats = graph.node("Sub", 1.0, away)
        hats = graph.node("Max", hats, 0.0)
        parts.append(hats / (graph.length(hats) * root))
    return graph.node("Concat", *parts, axis=1)


def _with_odd(graph: Any, found: Any, what: Any) -> Any:
    """Return a block: what is found of a known cell, or one of the last two coordinates."""
    flags = []
    for one in (_KNOWN, _UNKNOWN, _MISSING):
        flag = graph.node("Equal", what, one)
        flags.append(graph.cast(flag, "DOUBLE"))
    known, *odd = flags
    return graph.node("Concat", found * known, *odd, axis=1)


def _upright(graph: Any, cells: Any) -> Any:
    """Return cells as rows of one."""
    return graph.node("Unsqueeze", cells, graph.constant("column", [1]))
