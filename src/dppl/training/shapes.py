"""What each column of a table adds to the scores of a linear model: curves and bars, with the noise in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np

from dppl.encoders.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
    YesNoColumn,
    blocks,
    schema_in,
)
from dppl.errors import InputError, ParameterError
from dppl.methods.base import Classifier
from dppl.methods.released import ReleasedClassifier

# Places on a curve, of which each hat's top is one.
_EVENLY = [at / 40 for at in range(41)]
_NEW_YEAR = date(2024, 1, 1)  # of a leap year, and a Monday


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell on a shape."""

    name: str
    text: str
    place: float | None = None  # on a curve, from 0 to 1; None is a bar


@dataclass(frozen=True, slots=True)
class _Part:
    """A block, or a part of it that is a shape by itself."""

    name: str
    start: int
    cells: Sequence[_Cell]
    ends: tuple[str, str] | None = None


def shapes(
    model: ReleasedClassifier, cells: Mapping[str, Sequence[Any]] | None = None
) -> dict[str, Any]:
    """Return what each column adds to the scores; see `PrivateClassifier.shapes`."""
    columns = schema_of(model)
    if columns is None or not isinstance(model, Classifier):
        raise InputError(
            "shapes are of linear models of the rows of a table (encoder columns:SCHEMA), such as those of method "
            f"auto; this is a {type(model).__name__} of other rows or with other scores."
        )
    center = np.zeros(model.n_features_in_)
    if model.lattice_.center is not None:
        center = np.asarray(model.lattice_.center, np.float64)
    if cells is not None:
        _check(cells, columns)
    found = []
    for column, start, norm in blocks(columns):
        if cells is not None and column.name not in cells:
            continue
        parts = _parts(column)
        stops = [part.start for part in parts[1:]]
        for part, stop in zip(parts, [*stops, column.width], strict=True):
            at = slice(start + part.start, start + stop)
            listed = part.cells
            if cells is not None:
                listed = _bars(map(str, cells[column.name]))
            filled = column.block([cell.text for cell in listed])
            names = [(cell.name, cell.place) for cell in listed]
            if cells is None and stop == column.width:
                filled = np.vstack([filled, np.eye(column.width)[-2:]])
                names += [("unknown", None), ("missing", None)]
            away = norm * filled[:, part.start : stop] - center[at]
            lengths = np.linalg.norm(away, axis=1)
            values: dict[str, Any] = {
                "scores": (away @ model.coef_[:, at].T).tolist(),
                "noise": [None] * len(names),
                "square": np.square(lengths).tolist(),
            }
            if model.coef_noise_ is not None:
                values["noise"] = np.outer(lengths, model.coef_noise_).tolist()
            points = []
            for number, (cell, place) in enumerate(names):
                point: dict[str, Any] = {"cell": cell, "place": place}
                for name, each in values.items():
                    point[name] = each[number]
                points.append(point)
            ends = None
            if cells is None and part.ends is not None:
                ends = list(part.ends)
            found.append(
                {
                    "column": column.name,
                    "part": part.name,
                    "ends": ends,
                    "points": points,
                }
            )
    # Of rows of length 1 about their mean, the mean of squares; the released mean is
    # that but for noise and weights of classes.
    length = math.sqrt(max(1 - float(center @ center), 0.0))
    return {
        "classes": model.classes_.tolist(),
        "offsets": model.intercept_.tolist(),
        "length": length,
        "shapes": found,
    }


def schema_of(model: ReleasedClassifier) -> tuple[Column, ...] | None:
    """Return the schema by which a model has shapes; None for a model without."""
    # Pooled and turned rows mix columns.
    mixed = model.lattice_.pool > 1 or model.lattice_.rotation is not None
    if not isinstance(model, Classifier) or mixed:
        return None
    return schema_in(model.encoder_, model.n_features_in_)


def _check(cells: Mapping[str, Sequence[Any]], columns: Sequence[Column]) -> None:
    known = {one.name for one in columns if not isinstance(one, TextColumn)}
    others = sorted(set(cells) - known)
    if others:
        raise ParameterError(
            f"must name columns of the schema that are not texts; it names {others[0]!r}.",
            parameter="cells",
        )


def _parts(column: Column) -> list[_Part]:
    """Return the parts of a column, with cells that are spread over what the schema foresees."""
    match column:
        case NumberColumn(values=None):
            cells = []
            for place in _EVENLY:
                value = column.at(place)
                cells.append(_Cell(f"{value:.4g}", repr(value), place))
            ends = f"{column.low:g}", f"{column.high:g}"
            return [_Part("", 0, cells, ends)]
        case NumberColumn():
            whole = range(int(column.low), int(column.high) + 1)
            return [_Part("", 0, _bars(map(str, whole)))]
        case CategoryColumn():
            return [_Part("", 0, _bars(column.values))]
        case YesNoColumn():
            return [_Part("", 0, _bars(column.labels))]
        case DateColumn():
            return _parts_of_dates(column)
    return [_Part("", 0, ())]  # of codes and texts no values are listed


def _parts_of_dates(column: DateColumn) -> list[_Part]:
    """Return trend, season and weekday, which add up."""
    first = date.fromisoformat(column.low)
    last = date.fromisoformat(column.high)
    trend = list(_days(first, last))
    year = _days(_NEW_YEAR, date(_NEW_YEAR.year, 12, 31))
    season = [replace(day, name=day.name[5:]) for day in year]
    at = column.labels.index("Mon")
    week = []
    for number, name in enumerate(column.labels[at:]):
        day = _NEW_YEAR + timedelta(number)
        week.append(_Cell(name, day.isoformat()))
    return [
        _Part(
            "trend",
            0,
            trend,
            (column.low, column.high),
        ),
        _Part(
            "season",
            column.labels.index("sin"),
            season,
            ("1 January", "31 December"),
        ),
        _Part("weekday", at, week),
    ]


def _days(first: date, last: date) -> Iterator[_Cell]:
    """Yield days at even places."""
    n_days = (last - first).days
    for place in _EVENLY:
        day = first + timedelta(round(n_days * place))
        yield _Cell(day.isoformat(), day.isoformat(), place)


def _bars(cells: Iterable[str]) -> list[_Cell]:
    return [_Cell(cell, cell) for cell in cells]
