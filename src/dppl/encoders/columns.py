"""Rows of a table as vectors: a public schema lays them out, and no value of the data has a say in it.

Each column is a block of coordinates of unit norm, and what a cell fills in depends on
that cell alone:

* a number between public bounds: linear B-splines ("hats") at 2, 3, 5 and 9 even knots,
  from coarse to fine, so that a record speaks for its neighbourhood at every scale; up
  to nine whole numbers get a coordinate each at the finest; ``log`` places a number by
  asinh, linear below a thousandth of the larger bound;
* a category, or yes and no: a coordinate for each listed value; an ordered one is a
  number, its rank;
* a date: the hats of its place between two dates, two harmonics of the year, and the
  weekday, a third of the squared norm each;
* a code with too many values to list: it and its words, hashed into 64 coordinates;
* a text: its embedding by an encoder of texts.

A value that is missing, and one that the schema does not foresee, have a coordinate of
their own in each block. Numbers beyond the bounds are cut to them. All blocks weigh
alike, except that texts have half of the squared norm. A row has unit norm.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dppl._utils.fingerprint import Fingerprint
from dppl._utils.outside import parse_json
from dppl._utils.types import Float, Float32
from dppl.encoders.fixed import Encoder, check_batch
from dppl.errors import InputError, ParameterError

LIBRARY = "dppl.columns 1"  # the version of the map: another map is another encoder
SCHEME = "columns:"
_KNOTS = (2, 3, 5, 9)
_HASHED = 64
_MOST_COLUMNS = 4096
_MOST_WIDTH = 1 << 16
_WINDOW = 4096
# Of bounds, and of what lies between them as a share of the larger.
_LARGEST = 1e300
_NARROWEST = 1e-9
MISSING = frozenset({"", "nan", "none", "null", "nat", "<na>"})
YES = frozenset({"yes", "y", "true", "t", "1", "ja", "j", "oui", "o"})
NO = frozenset({"no", "n", "false", "f", "0", "nein", "non"})
_WAVES = (math.sin, math.cos)
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
ODDITIES = ("missing", "unknown", "beyond the bounds")
_FORMS = (
    "two numbers, two dates, a list of texts, yes/no, code, text, or a table with range, order, values or text, "
    "and perhaps scale, decimal and missing"
)


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A column of a schema: how each cell fills its block."""

    kind: ClassVar[str]
    name: str
    missing: tuple[str, ...] = ()  # what stands for a missing value, besides none

    @property
    @abstractmethod
    def labels(self) -> list[str]:
        """What each coordinate of the block stands for, without those of unknown and missing values."""

    @abstractmethod
    def read(self, text: str) -> Any:
        """Return the value of a cell; None if the schema does not foresee it."""

    @abstractmethod
    def lay_out(self, values: Sequence[Any]) -> Float:
        """Return a row of unit norm for each value that `read` returned, as `labels` name its coordinates."""

    @cached_property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.labels) + 2

    def block(self, cells: Sequence[str]) -> Float:
        """Return the coordinates of any cells, shape (len(cells), width), each a function of its cell alone."""
        # Each step is of one number, and none adds up along an axis, so that no bit
        # depends on how many cells there are.
        block = np.zeros((len(cells), self.width))
        values = {}
        for place, cell in enumerate(cells):
            text = cell.strip()
            # A gap and a surprise are values like others: no cell stops a run or is left
            # out, and the block has unit norm all the same.
            if self._is_missing(text):
                block[place, -1] = 1.0
            elif (value := self.read(text)) is None:
                block[place, -2] = 1.0
            else:
                values[place] = value
        if values:
            block[list(values), :-2] = self.lay_out(list(values.values()))
        return block

    def oddity(self, cell: str) -> str | None:
        """Return what is odd about a cell, for its owner: that it is missing, unknown, or beyond the bounds."""
        text = cell.strip()
        if self._is_missing(text):
            return "missing"
        if self.read(text) is None:
            return "unknown"
        return "beyond the bounds" if self._is_beyond(text) else None

    def _is_beyond(self, text: str) -> bool:
        return False

    def _is_missing(self, text: str) -> bool:
        if text.lower() in MISSING:
            return True
        return bool(self.missing) and _whole(text) in self.missing

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds the column, JSON-ready."""
        return {"kind": self.kind} | asdict(self)


@dataclass(frozen=True, kw_only=True)
class NumberColumn(Column):
    """Numbers between public bounds."""

    kind = "number"
    low: float
    high: float
    log: bool = False
    comma: bool = False  # whether texts have a decimal comma, as in 1.234,5

    def __post_init__(self) -> None:
        # Each bound is a float, and so is all that is computed of them: a cell must find
        # no bounds that it cannot be placed between.
        if not -_LARGEST <= self.low < self.high <= _LARGEST:
            raise _error(
                self.name,
                "two bounds, the first below the second, from -1e300 to 1e300",
            )
        low, high = map(float, (self.low, self.high))
        if high - low < _NARROWEST * max(abs(low), abs(high), _NARROWEST):
            raise _error(self.name, "two bounds that are further apart")

    @cached_property
    def values(self) -> int | None:
        """How many whole numbers lie between whole bounds, where they are few."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        n = int(self.high - self.low) + 1
        return n if whole and not self.log and n <= _KNOTS[-1] else None

    @property
    def labels(self) -> list[str]:
        """Knots of each resolution."""
        return _curve_labels(self.values)

    def read(self, text: str) -> float | None:
        """Return the place of a number."""
        try:
            value = float(self._pointed(text))
        except ValueError:
            return None
        if math.isnan(value):  # in a spelling that is not among the missing ones
            return None
        return self.place(value)

    def lay_out(self, values: Sequence[float]) -> Float:
        """Return the hats at places."""
        return curve(values, self.values)

    def _is_missing(self, text: str) -> bool:
        return super()._is_missing(self._pointed(text))

    def _is_beyond(self, text: str) -> bool:
        return not self.low <= float(self._pointed(text)) <= self.high

    def _pointed(self, text: str) -> str:
        """Return a number with a decimal point; without a comma it has one, as numbers that are no texts do."""
        if self.comma and "," in text:
            return text.replace(".", "").replace(",", ".")
        return text

    def place(self, value: float) -> float:
        """Return where a number lies between the bounds, from 0 to 1."""
        low, high = self.ends
        # Cut and not refused, since what one record holds must change no other row.
        within = min(max(value, self.low), self.high)
        return (self._scaled(within) - low) / (high - low)

    def at(self, place: float) -> float:
        """Return the number at a place."""
        low, high = self.ends
        scaled = low + (high - low) * place
        if self.log:
            return math.sinh(scaled) * self.unit
        return scaled

    def _scaled(self, value: float) -> float:
        return math.asinh(value / self.unit) if self.log else float(value)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The bounds on the scale of places."""
        return self._scaled(self.low), self._scaled(self.high)

    @cached_property
    def unit(self) -> float:
        """Where the scale turns from linear to logarithmic: counts do so at 1."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return max(abs(self.low) / 1000, abs(self.high) / 1000, 1.0 if whole else 0.0)


@dataclass(frozen=True, kw_only=True)
class CategoryColumn(Column):
    """Values of a public list; with an order, near ones are alike."""

    kind = "category"
    values: tuple[str, ...]
    ordered: bool = False

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise _error(self.name, "a list of two or more different values")

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {value: rank for rank, value in enumerate(self.values)}

    @property
    def labels(self) -> list[str]:
        """The values, or the knots of each resolution of their ranks."""
        if self.ordered:
            return _curve_labels(len(self.values))
        return list(self.values)

    def read(self, text: str) -> int | None:
        """Return the rank of a listed value."""
        rank = self._ranks.get(text)
        return self._ranks.get(_whole(text)) if rank is None else rank

    def lay_out(self, values: Sequence[int]) -> Float:
        """Return the coordinate of each rank, or the hats there."""
        if not self.ordered:
            return _one_hot(values, len(self.values))
        last = len(self.values) - 1
        return curve([rank / last for rank in values], last + 1)

    def _is_missing(self, text: str) -> bool:
        # A listed value may be called "none".
        return text not in self._ranks and super()._is_missing(text)


@dataclass(frozen=True, kw_only=True)
class YesNoColumn(Column):
    """Truth values: yes, true, 1 and their opposites, in any case."""

    kind = "yes/no"

    @property
    def labels(self) -> list[str]:
        """No and yes."""
        return ["no", "yes"]

    def read(self, text: str) -> bool | None:
        """Return a truth value."""
        said = _whole(text).lower()
        return said in YES if said in YES | NO else None

    def lay_out(self, values: Sequence[bool]) -> Float:
        """Return the coordinate of each truth value."""
        return _one_hot(values, 2)


@dataclass(frozen=True, kw_only=True)
class DateColumn(Column):
    """Dates between two public ones, as ISO 8601 or as DD.MM.YYYY; a time of the day is not used."""

    kind = "date"
    low: str
    high: str

    def __post_init__(self) -> None:
        if not self._bounds[0] < self._bounds[1]:
            raise _error(self.name, "two dates, the first before the second")

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        low, high = (
            date.fromisoformat(one).toordinal() for one in (self.low, self.high)
        )
        return low, high

    @property
    def labels(self) -> list[str]:
        """Knots of the trend, harmonics of the year, and weekdays."""
        season = ["sin", "cos", "sin 2", "cos 2"]
        return [*_curve_labels(None), *season, *_WEEKDAYS]

    def read(self, text: str) -> date | None:
        """Return a date."""
        return _day(text)

    def lay_out(self, values: Sequence[date]) -> Float:
        """Return trend, season and weekday of dates, each of a third of the squared norm."""
        low, high = self._bounds
        places = []
        waves = []
        for day in values:
            within = min(max(day.toordinal(), low), high)
            places.append((within - low) / (high - low))
            # Of 366 days, so that no two days of a leap year fall on one place.
            angle = 2 * math.pi * day.timetuple().tm_yday / 366
            waves.append([wave(k * angle) for k in (1, 2) for wave in _WAVES])
        week = _one_hot([day.weekday() for day in values], len(_WEEKDAYS))
        season = np.array(waves) / math.sqrt(2)
        return math.sqrt(1 / 3) * np.hstack([curve(places, None), season, week])

    def _is_beyond(self, text: str) -> bool:
        day = _day(text)
        low, high = self._bounds
        return day is not None and not low <= day.toordinal() <= high


@dataclass(frozen=True, kw_only=True)
class CodeColumn(Column):
    """Values that are too many to list: each, and each of its words, hashed to a public coordinate and sign."""

    kind = "code"

    @property
    def labels(self) -> list[str]:
        """Numbers of the coordinates."""
        return [f"slot {place}" for place in range(_HASHED)]

    def read(self, text: str) -> dict[int, float] | None:
        """Return the coordinates of a code and of its words, those that are not zero."""
        counts: dict[int, int] = {}
        whole = text.lower()
        for part in sorted({whole, *re.findall(r"\w+", whole)}):
            # The sign makes words that share a place cancel on average (Weinberger et al.
            # 2009, arXiv:0902.2206), and the name lets other words meet in other columns.
            named = f"{self.name}:{part}".encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(named, digest_size=8)
            number = int.from_bytes(digest.digest(), "big")
            place = number % _HASHED
            counts[place] = counts.get(place, 0) + (1 if number >> 63 else -1)
        norm = math.sqrt(sum(count * count for count in counts.values()))
        if not norm:  # parts may cancel each other
            return None
        return {place: count / norm for place, count in counts.items()}

    def lay_out(self, values: Sequence[dict[int, float]]) -> Float:
        """Return the coordinates of codes."""
        rows = np.zeros((len(values), _HASHED))
        for row, value in zip(rows, values, strict=True):
            row[list(value)] = list(value.values())
        return rows


@dataclass(frozen=True, kw_only=True)
class TextColumn(Column):
    """Texts, which a public encoder embeds; an empty one is missing."""

    kind = "text"
    encoder: str = "minilm"
    dimension: int = 0  # of the encoder; known once it is loaded

    def __post_init__(self) -> None:
        if self.encoder.startswith(("python:", SCHEME)):
            raise _error(self.name, "an encoder of texts that is no code")

    @property
    def labels(self) -> list[str]:
        """Numbers of the coordinates of the embedding."""
        return [str(place) for place in range(self.dimension)]

    def read(self, text: str) -> str:
        """Return the text."""
        return text

    def lay_out(self, values: Sequence[str]) -> Float:
        """Return zeros: the encoder fills the block."""
        return np.zeros((len(values), self.dimension))


_KINDS = {
    one.kind: one
    for one in (
        NumberColumn,
        CategoryColumn,
        YesNoColumn,
        DateColumn,
        CodeColumn,
        TextColumn,
    )
}


def curve(places: Sequence[float], values: int | None) -> Float:
    """Return the hats at places from 0 to 1, coarse to fine, of unit norm; `values` of them at the finest if few."""
    scales = resolutions(values)
    n = len(scales)
    rows = np.zeros((len(places), sum(scales)))
    every = np.arange(len(places))
    start = 0
    for knots in scales:
        at = np.array(places) * (knots - 1)
        left = np.minimum(at.astype(int), knots - 2)
        over = at - left
        # The two hats that are not zero add up to 1, and are scaled to unit norm, so
        # that every number weighs alike.
        under = 1 - over
        norm = np.sqrt((under * under + over * over) * n)
        rows[every, start + left] = under / norm
        rows[every, start + left + 1] = over / norm
        start += knots
    return rows


def _one_hot(ranks: Sequence[int], n: int) -> Float:
    rows = np.zeros((len(ranks), n))
    rows[np.arange(len(ranks)), np.array(ranks, int)] = 1.0
    return rows


def resolutions(values: int | None) -> tuple[int, ...]:
    """Return the numbers of knots of a curve."""
    if values is None:
        return _KNOTS
    return (*(knots for knots in _KNOTS if knots < values), values)


def _curve_labels(values: int | None) -> list[str]:
    return [
        f"{place}/{knots - 1}"
        for knots in resolutions(values)
        for place in range(knots)
    ]


def _whole(text: str) -> str:
    """Return a number without fraction as an integer, as tables write 3.0 where one is missing; other texts as they are."""
    try:
        value = float(text)
    except ValueError:
        return text
    return str(int(value)) if value.is_integer() else text


def _day(text: str) -> date | None:
    if match := _DOTTED.match(text):
        day, month, year = map(int, match.groups())
        text = f"{year:04}-{month:02}-{day:02}"
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        return None


def _error(name: str, wanted: str) -> InputError:
    return InputError(f"column {name!r} of the schema must have {wanted}.")


def read_schema(path: Path) -> tuple[Column, ...]:
    """Read a schema of TOML, one line a column; the form of a value says what the column is."""
    if not path.is_file():
        raise InputError(f"there is no schema {path}.")
    try:
        # The schema is public, so an error may quote it.
        lines = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} must be a schema of TOML: {error}. A name with spaces or signs stands in quotes, a date is "
            "2024-12-31, and a number has no thousands separator but _."
        ) from None
    columns = tuple(_column(name, value) for name, value in lines.items())
    _check(columns, str(path))
    return columns


def _check(columns: Sequence[Column], where: str) -> None:
    if not 0 < len(columns) <= _MOST_COLUMNS:
        raise InputError(f"{where} must have from 1 to {_MOST_COLUMNS} columns.")
    if sum(column.width for column in columns) > _MOST_WIDTH:
        raise InputError(
            f"{where} must have at most {_MOST_WIDTH} coordinates; shorten its lists of values, or call them code."
        )


def _column(name: str, value: Any) -> Column:
    """Return the column that a line of a schema describes."""
    options = dict(value) if isinstance(value, dict) else {"is": value}
    missing = options.pop("missing", [])
    log = options.pop("scale", "linear")
    decimal = options.pop("decimal", ".")
    if (
        not isinstance(missing, list)
        or log not in ("linear", "log")
        or decimal not in (".", ",")
        or len(options) != 1
    ):
        raise _error(name, _FORMS)
    common: Any = {"name": name, "missing": tuple(_whole(str(one)) for one in missing)}
    ((form, given),) = options.items()
    if (log == "log" or decimal == ",") and not _are(given, int, float):
        raise _error(name, "two numbers where it has a scale or a decimal comma")
    match form, given:
        case (("is" | "range"), [low, high]) if _are(given, int, float):
            how = {"log": log == "log", "comma": decimal == ","}
            return NumberColumn(low=low, high=high, **how, **common)
        case (("is" | "range"), [low, high]) if _are(given, date):
            return DateColumn(low=_iso(low), high=_iso(high), **common)
        case (("is" | "values" | "order"), [*values]) if _are(values, str, int):
            texts = tuple(str(one).strip() for one in values)
            return CategoryColumn(values=texts, ordered=form == "order", **common)
        case "text", str(encoder):
            return TextColumn(encoder=encoder, **common)
        case "is", "?":
            raise InputError(
                f"column {name!r} of the schema must be filled in, from knowledge and not from the data: {_FORMS}; or "
                "remove it."
            )
        case "is", "yes/no" | "code" | "text":
            return _KINDS[given](**common)
    raise _error(name, _FORMS)


def _are(values: Any, *kinds: type) -> bool:
    """Return whether all values are of some types; a truth value is no number here."""
    return isinstance(values, list) and all(
        isinstance(one, kinds) and not isinstance(one, bool) for one in values
    )


def _iso(day: date) -> str:
    return (day.date() if isinstance(day, datetime) else day).isoformat()


class ColumnsEncoder:
    """An `Encoder` of rows of a table, whose columns a public schema describes."""

    modality = "row"
    batch_rows = 1

    def __init__(
        self,
        columns: Sequence[Column],
        name: str,
        load_texts: Callable[[str], Encoder],
    ) -> None:
        loaded = {
            one.encoder: load_texts(one.encoder)
            for one in columns
            if isinstance(one, TextColumn)
        }
        self._encoders = loaded
        self.columns = tuple(_sized(one, loaded) for one in columns)
        _check(self.columns, name)
        self.dimension = sum(column.width for column in self.columns)
        self._layout = list(blocks(self.columns))
        self._texts = []
        for column, start, weight in self._layout:
            if isinstance(column, TextColumn):
                self._texts.append((column, start, weight))
        self.window = min([_WINDOW, *(one.window for one in loaded.values())])
        texts = [one.fingerprint for one in loaded.values()]
        # What decides an embedding of a text, and not where or by which version.
        named = [
            [one.weights, one.preprocessing, one.pooling, one.dtype] for one in texts
        ]
        self.fingerprint = Fingerprint(
            uri=f"{SCHEME}{name}",
            library=LIBRARY,
            weights=hashlib.sha256(json.dumps(named).encode()).hexdigest(),
            # The schema itself, so that a model file is all that predicting needs.
            preprocessing=json.dumps([one.spec() for one in self.columns]),
            pooling="blocks of unit norm",
            dtype="float32",
            device=texts[0].device if texts else "cpu",
            batch="a row by itself",
            versions="; ".join(sorted({one.versions for one in texts})),
            row_independent=all(one.row_independent for one in texts),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns that a row must have."""
        return tuple(column.name for column in self.columns)

    @property
    def coordinates(self) -> list[tuple[str, str]]:
        """Column and meaning of each coordinate of a row."""
        return [
            (column.name, label)
            for column in self.columns
            for label in [*column.labels, "unknown", "missing"]
        ]

    @property
    def reads_texts(self) -> bool:
        """Whether a column is embedded by another encoder."""
        return bool(self._texts)

    def prepare(self, item: Mapping[str, str]) -> Any:
        """Return the cells of a row, and its texts as their encoders take them."""
        cells = [item[name] for name in self.names]
        texts = []
        for column, start, weight in self._texts:
            cell = item[column.name]
            if column.oddity(cell) is None:
                prepared = self._encoders[column.encoder].prepare(cell)
                texts.append((start, weight, column.encoder, prepared))
        return cells, texts

    def encode_prepared(
        self, batch: Sequence[Any], progress: Callable[[int], object] | None = None
    ) -> Float32:
        """Return the rows, shape (len(batch), dimension), of what `prepare` returned."""
        rows = np.zeros((len(batch), self.dimension), np.float32)
        columns = zip(*(cells for cells, _ in batch), strict=True)
        for cells, (column, start, weight) in zip(columns, self._layout, strict=False):
            # Most cells are in many rows, and each is laid out once.
            places: dict[str, int] = defaultdict(count().__next__)
            taken = [places[cell] for cell in cells]
            block = (weight * column.block(list(places))).astype(np.float32)
            rows[:, start : start + column.width] = block[taken]
        for uri, encoder in self._encoders.items():
            waiting = [
                (row, start, weight, prepared)
                for row, (_, texts) in zip(rows, batch, strict=True)
                for start, weight, named, prepared in texts
                if named == uri
            ]
            if not waiting:
                continue
            embedded = encoder.encode_prepared([text for *_, text in waiting])
            for (row, start, weight, _), own in zip(waiting, embedded, strict=True):
                # Every sum in one order or rounded once: no bit depends on the batch.
                exact = own.astype(np.float64)
                norm = math.sqrt(math.fsum(exact * exact))
                row[start : start + len(own)] = (
                    exact * (weight / norm) if norm else np.nan
                )
        if progress is not None:
            progress(len(batch))
        return rows

    def encode(self, batch: Sequence[Mapping[str, str]]) -> Float32:
        """Embed rows, each a mapping from column to the text of its cell."""
        check_batch(batch)
        return self.encode_prepared([self.prepare(item) for item in batch])


def blocks(columns: Sequence[Column]) -> Iterator[tuple[Column, int, float]]:
    """Yield each column with its first coordinate and its norm; texts have half of the squared norm."""
    n_texts = sum(isinstance(column, TextColumn) for column in columns)
    n_others = len(columns) - n_texts
    # Where there are both, half for each side lost least whichever of them says more.
    halves = 0.5 if n_texts and n_others else 1.0
    of_texts = halves / max(n_texts, 1)
    of_others = halves / max(n_others, 1)
    start = 0
    for column in columns:
        share = of_texts if isinstance(column, TextColumn) else of_others
        yield column, start, math.sqrt(share)
        start += column.width


def _sized(column: Column, encoders: Mapping[str, Encoder]) -> Column:
    if not isinstance(column, TextColumn):
        return column
    encoder = encoders[column.encoder]
    if encoder.modality != "text":
        raise _error(column.name, "an encoder of texts")
    return replace(column, dimension=encoder.dimension)


def rebuild(
    fingerprint: Fingerprint, load_texts: Callable[[str], Encoder]
) -> ColumnsEncoder:
    """Rebuild an encoder from its fingerprint, which holds the whole schema."""
    columns = columns_of(fingerprint) or ()
    return ColumnsEncoder(columns, fingerprint.uri.removeprefix(SCHEME), load_texts)


def schema_in(name: str | None, width: int) -> tuple[Column, ...] | None:
    """Return the schema that the name of an encoder holds, of rows of this width; None for any other name."""
    try:
        columns = columns_of(Fingerprint.parse(name or ""))
    except InputError:
        return None
    # A file may state any encoder.
    if sum(column.width for column in columns or ()) != width:
        return None
    return columns


def columns_of(fingerprint: Fingerprint) -> tuple[Column, ...] | None:
    """Read the schema that a fingerprint holds; None for another encoder."""
    if not fingerprint.uri.startswith(SCHEME):
        return None
    # A model file may hold anything, and each column checks what it is made of.
    try:
        specs = parse_json(fingerprint.preprocessing)
        return tuple(_KINDS[one.pop("kind")](**_tuples(one)) for one in specs)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            "the fingerprint of the encoder holds no schema of this version of dppl."
        ) from None


def _tuples(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(map(str, value)) if isinstance(value, list) else value
        for name, value in spec.items()
    }


def load(uri: str, load_texts: Callable[[str], Encoder]) -> ColumnsEncoder:
    """Load the encoder of a schema by its URI, ``columns:FILE``."""
    path = place_of(uri)
    return ColumnsEncoder(read_schema(path), path.name, load_texts)


def place_of(uri: str) -> Path:
    """Return the file of the schema that a URI names."""
    path = uri.removeprefix(SCHEME)
    if not path:
        raise ParameterError(
            "must be columns:SCHEMA, a file of TOML.", parameter="encoder"
        )
    return Path(path)
