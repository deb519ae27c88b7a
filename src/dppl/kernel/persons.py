"""Persons with all of their records, which together move a fit as one record does.

Either they become one row, a function of that person's records alone: integers are
added, in any order. Then one person more is one row more, and every mechanism keeps the
sensitivity and the noise that it has for single records.

Or all of them enter (`WholePersons`), which loses neither how they differ nor other
classes. In counts they share the weight of one record, and what they add to a gradient
together is clipped as what one record adds (`dppl.kernel.lattice.joint`): either way a
function of this person's records alone, the same in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.kernel import reading
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.joint import Persons
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.privacy.sensitivity import LARGEST
from dppl.kernel.reading import Codes

# What ids are, in messages.
ID_KINDS = "texts, integers, decimals without a fraction, dates, UUIDs or bytes"
CAST = "cast it to text, or whole numbers to int64 (in pandas to Int64)"
_NO_IDS = f"groups must be ids that can be compared by value: {ID_KINDS}; write them as texts or integers."
_BYTES = ("binary", "large_binary", "binary_view")
_NO_IDS_OF_FRAMES = (
    *("Float", "Boolean", "Datetime", "Time", "Duration", "List", "Array", "Struct"),
    *("Null", "interval", "period"),
)
# A few characters such as 1E+999999999 may say a number of a billion digits.
_LONGEST_DECIMAL = 1000
_READ_ROWS = 8192
Int64 = NDArray[np.int64]
Integers = NDArray[np.signedinteger[Any]]


def ids_of_fit(
    groups: Any, rows: RowSource, max_classes: int | None
) -> NDArray[Any] | None:
    """Return the `checked_ids` of a fit, if it has any; `max_classes` is for these only."""
    if max_classes is not None:
        validate.positive_integer(max_classes_per_person=max_classes)
        if groups is None:
            name = "max_classes_per_person"
            raise ParameterError(
                f"is for fits with ids of persons (groups); got {max_classes}.",
                parameter=name,
            )
    if groups is None:
        return None
    return checked_ids(groups, rows)


def checked_ids(groups: Any, rows: RowSource) -> NDArray[Any]:
    """Return person ids as a vector with one id per row; masked ones are None.

    Types are looked at, and no value: a type that holds no ids is refused while nothing
    is charged.
    """
    if hasattr(groups, "iloc") and groups.ndim == 2 and groups.shape[1] == 1:
        groups = groups.iloc[:, 0]  # as an array it would have a type of NumPy's
    kind = _check_type(groups)
    if kind == "dates":
        groups = days_of(groups)
    if isinstance(groups, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(groups)
        groups = texts_apart(np.ma.getdata(groups)).astype(object)
        groups[mask] = None
    elif isinstance(groups, np.ndarray):
        groups = texts_apart(groups)
    ids = reading.as_labels(groups, rows, ("X", "groups"))
    _check_type(ids)
    return ids


def texts_apart(ids: NDArray[Any]) -> NDArray[Any]:
    """Return dates, and texts, as objects that are alike only if they are, whatever the others of the array are."""
    if ids.dtype.kind == "T":
        missing = getattr(ids.dtype, "na_object", None)
        ids = ids.astype(object)
        # A text is what NumPy calls a missing one then, like any other.
        ids[[one is missing and not isinstance(one, str) for one in ids.tolist()]] = (
            None
        )
    if ids.dtype.kind == "M" and holds_ids(ids.dtype):
        # Python would have integers for days that are in no year from 1 to 9999.
        texts = np.datetime_as_string(ids).astype(object)
        texts[np.isnat(ids)] = None
        return texts
    if ids.dtype.kind != "U" or not ids.dtype.itemsize:
        return ids
    ids = np.ascontiguousarray(ids, ids.dtype.newbyteorder("="))
    numbers = ids[..., None].view(np.uint32)
    wrong = (numbers > sys.maxunicode).any(axis=-1)
    whole = np.where(numbers > sys.maxunicode, 0, numbers).view(ids.dtype)[..., 0]
    whole = whole.astype(object)
    # No texts, and therefore bytes.
    whole[wrong] = [one.tobytes() for one in numbers[wrong]]
    return whole


def days_of(column: Any) -> NDArray[np.datetime64]:
    """Return dates of Arrow's as NumPy's: Python has none of far years, and Arrow no texts of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if hasattr(column, "array"):  # of a frame
        column = pa.array(column)
    if hasattr(column.type, "run_end_type"):
        column = pc.run_end_decode(column)
    days = column.cast(reading.value_type(column.type)).cast(pa.date32(), safe=False)
    return np.asarray(days).astype("M8[D]")


def _check_type(column: Any) -> object:
    """Refuse a column of ids whose type says that it holds none; lists, and arrays of objects, say nothing.

    Returns the `id_kind` of a column of Arrow's.
    """
    # Of the class: a frame's column has its items as attributes.
    arrow = hasattr(type(column), "type") and hasattr(column, "to_pylist")
    kind: Any = column.type if arrow else getattr(column, "dtype", None)
    fits: object = True
    if not arrow and hasattr(kind, "pyarrow_dtype"):
        arrow = True
        kind = kind.pyarrow_dtype
    if arrow:
        fits = id_kind(kind)
    elif kind is not None:
        kind = getattr(getattr(kind, "categories", None), "dtype", kind)
        if isinstance(kind, np.dtype):
            fits = holds_ids(kind)
        else:
            fits = _frames_ids(kind)
    if not fits:
        name = type_of_ids(kind)
        raise InputError(f"must be {ID_KINDS}; got {name}; {CAST}.", parameter="groups")
    return fits


def id_kind(kind: Any) -> str | None:
    """Return which ids a type of Arrow's holds; None for a type that holds none.

    Types decide, since a value is private. A float cannot hold all integers, and a time
    is written in several units and zones.
    """
    import pyarrow as pa  # here, because arrays of NumPy need none of it

    kind = reading.value_type(kind)
    name = str(kind)
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return "integers"
    if name in ("string", "large_string", "string_view"):
        return "texts"
    if pa.types.is_fixed_size_binary(kind) or name in _BYTES:
        return "bytes"
    if pa.types.is_date(kind):
        return "dates"
    if name == "extension<arrow.uuid>":
        return "UUIDs"
    return None


def holds_ids(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a type of NumPy's hold ids."""
    if dtype.kind == "M":
        return np.datetime_data(dtype)[0] == "D"
    return dtype.kind in "iuOSTU" or (dtype.kind == "V" and dtype.names is None)


def _frames_ids(kind: Any) -> bool:
    """Return whether columns of another type hold ids, as far as it says so."""
    if getattr(kind, "scale", 0):  # a decimal with a fraction
        return False
    return getattr(kind, "kind", "O") in "iuOSTU" and not str(kind).startswith(
        _NO_IDS_OF_FRAMES
    )


def type_of_ids(kind: Any) -> str:
    """Return a type as messages name it, without the width of texts and bytes: that is the length of the longest."""
    return {"S": "bytes", "V": "records"}.get(getattr(kind, "kind", ""), str(kind))


def id_text(one: Any) -> str | None:
    """Return the text that all ids of one person have and no other's; None for an id that names nobody.

    An integer is its digits, and so is a decimal of the same value; a date is as in ISO
    8601, a UUID as it is usually written, and bytes are the text that they encode. NULs
    at the end, which types of a fixed width add and NumPy drops, do not count. What
    could name one person in several ways is no id, and raises `TypeError`.
    """
    one = _plain(one)
    if isinstance(one, bytes):
        one = one.decode("utf-8", "surrogateescape")
    if isinstance(one, str):
        one = one.rstrip("\0")
        return one if one.strip() else None
    if isinstance(one, int) and not isinstance(one, bool):
        return str(one)
    if _is_missing(one):
        return None
    if isinstance(one, Decimal) and _is_whole(one):
        return str(int(one))
    if isinstance(one, UUID):
        return str(one)
    if type(one) is date:
        return one.isoformat()
    raise TypeError("no id that has one value")


def _is_whole(one: Decimal) -> bool:
    return abs(one.adjusted()) < _LONGEST_DECIMAL and one == one.to_integral_value()


def _is_missing(one: Any) -> bool:
    try:
        return one is None or bool(one != one)
    except TypeError:  # missing in pandas
        return True


def _plain(one: Any) -> Any:
    """Return an item of NumPy's or Arrow's, and one of a type made from a text or integer, as the value that it has."""
    if type(one) in (str, int):
        return one
    if one is np.ma.masked:
        return None
    if isinstance(one, np.datetime64 | np.timedelta64):
        # As Python's some would be integers, in their unit.
        if np.isnat(one):
            return None
        return str(one) if holds_ids(one.dtype) else one
    if isinstance(one, np.generic):
        one = one.item()
    elif hasattr(one, "as_py"):
        one = one.as_py()
    if isinstance(one, bool):
        return one
    # By the methods of the built-in type: those of a subclass are code of others.
    if isinstance(one, str):
        return str.__str__(one)
    if isinstance(one, int):
        return int.__int__(one)
    return one


def entered(
    held: Any, numbers: Codes, n_classes: int, max_classes: int | None, *, whole: bool
) -> Any:
    """Return the `HeldRecords` of numbered persons: all of their records, or one row a class."""
    if whole:
        persons = WholePersons.of(held.codes, numbers, n_classes, max_classes)
        return replace(held, codes=persons.codes, persons=persons)
    rows, codes = rows_of_persons(
        held.rows, held.codes, numbers, n_classes, max_classes or 1
    )
    return replace(held, rows=rows, codes=codes)


def person_codes(ids: NDArray[Any]) -> Codes:
    """Return the number of each record's person, in the order in which ids first occur.

    Ids are matched one by one, by `id_text`. None, NaN and texts of white space alone
    name nobody, and each of them is a separate person. Whatever else has a text is an
    id, also one that only looks missing, such as a text of zero-width characters.
    """
    numbers: dict[Hashable, int] = {}
    with suppress(Exception):  # raised below, without one that could quote an id
        codes = np.empty(len(ids), np.intp)
        place = 0
        # Not all as Python objects at once, which take many times the room.
        for block in iter_blocks(ids, _READ_ROWS):
            for one in block.tolist():
                text = id_text(one)
                # A new object equals no other: a missing id is a person of its own.
                name = object() if text is None else text
                codes[place] = numbers.setdefault(name, len(numbers))
                place += 1
        return codes
    raise InputError(_NO_IDS)


def are_missing(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark ids that name nobody, each of which is a separate person."""
    with suppress(Exception):  # raised below, without one that could quote an id
        return np.fromiter(
            (id_text(one) is None for one in ids.tolist()), bool, len(ids)
        )
    raise InputError(_NO_IDS)


def id_bytes(one: Any) -> bytes | None:
    """Return `id_text` as bytes."""
    with suppress(Exception):  # raised below, without one that could quote an id
        text = id_text(one)
        if text is None:
            return None
        return b"t" + text.encode("utf-8", "surrogatepass")
    raise InputError(_NO_IDS)


def rows_of_persons(
    source: RowSource,
    codes: Codes,
    persons: Codes,
    n_classes: int,
    max_classes: int = 1,
) -> tuple[Int8, Codes]:
    """Reduce each person to one lattice row a class: the sum of their rows of it, shrunk to the norm of one.

    Returns int8 rows, which other lattices take as they do rows of floats, and their
    classes. A code of -1 marks a row without class or use. The classes have most of the
    person's rows, and the first of several. A sum that is a lattice row itself stays as
    it is, such as a single record; another one becomes the lattice row of its
    direction.

    `source` is read once, in blocks. Memory holds the result, and a sum of small
    integers for each row of it that is not complete: few where the rows of a person are
    adjacent, else nearly one for each person of several records.
    """
    classes, counts, order = classes_of_persons(codes, persons, n_classes, max_classes)
    return _added(Lattice(source.shape[1]), source, order, counts), classes


def classes_of_persons(
    codes: Codes, persons: Codes, n_classes: int, max_classes: int = 1
) -> tuple[Codes, Int64, Int64]:
    """Return the classes in which each person counts, the numbers of their records, and which records these are.

    These are in the order of the classes and persons. A code of -1 does not count.
    """
    counted = np.flatnonzero(codes >= 0)
    pair = persons[counted] * n_classes + codes[counted]
    pairs, counts = np.unique(pair, return_counts=True)
    chosen = _most_frequent(*np.divmod(pairs, n_classes), counts, max_classes)
    order = counted[np.argsort(pair, kind="stable")[np.repeat(chosen, counts)]]
    return pairs[chosen] % n_classes, counts[chosen], order


def _most_frequent(
    persons: Codes, codes: Codes, counts: Int64, max_classes: int
) -> NDArray[np.bool_]:
    """Mark classes of each person, those with most rows and the first of several; persons are sorted."""
    ranked = np.lexsort((codes, -counts, persons))
    first = np.flatnonzero(np.diff(persons, prepend=-1))
    rank = np.arange(len(persons)) - np.repeat(
        first, np.diff(first, append=len(persons))
    )
    chosen = np.zeros(len(persons), bool)
    chosen[ranked[rank < max_classes]] = True
    return chosen


def _added(lattice: Lattice, source: RowSource, order: Int64, counts: Int64) -> Int8:
    """Add so many rows each, in this order, as they are read, and shrink a sum as soon as its last row was."""
    out = np.empty((len(counts), lattice.dim), np.int8)
    places = np.full(source.shape[0], -1, np.intp)
    places[order] = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    first = order[ends - counts]
    last = order[ends - 1]
    # Sums that are not complete, in the smallest integers that hold the longest.
    small = np.min_scalar_type(-LARGEST * int(counts.max(initial=1)))
    held: dict[int, Integers] = {}
    start = 0
    for rows in lattice.blocks(source, _READ_ROWS):
        stop = start + len(rows)
        # The places of the result to which these rows add, and the sum of the rows of
        # each.
        counted = start + np.flatnonzero(places[start:stop] >= 0)
        in_turn = counted[np.argsort(places[counted], kind="stable")]
        begins = np.flatnonzero(np.diff(places[in_turn], prepend=-1))
        here = places[in_turn[begins]]
        dtype = np.promote_types(small, np.int32)
        sums = np.add.reduceat(rows[in_turn - start], begins, axis=0, dtype=dtype)
        for row in np.flatnonzero(first[here] < start).tolist():
            sums[row] += held.pop(int(here[row]))
        unfinished = last[here] >= stop
        for row in np.flatnonzero(unfinished).tolist():
            held[int(here[row])] = sums[row].astype(small)
        alone = counts[here] == 1
        out[here[alone]] = sums[alone]
        done = ~(unfinished | alone)
        out[here[done]] = _shrunk(lattice, sums[done])
        start = stop
    return out


def _shrunk(lattice: Lattice, sums: Integers) -> Int8:
    """Return sums that are lattice rows as they are, and the lattice rows of the directions of all others."""
    out = np.clip(sums, -LARGEST, LARGEST).astype(np.int8)
    long = (lattice.transform(out) != sums).any(axis=1)
    out[long] = lattice.transform(sums[long])
    return out


@dataclass(slots=True, eq=False, repr=False)
class WholePersons:
    """The person of each record."""

    codes: Codes  # shape (n_records,); class of each record; -1 for those that do not count
    numbers: Codes  # shape (n_records,); person of each record, from 0
    sizes: Int64 = field(
        init=False
    )  # shape (n_persons,); how many records of each count, and at least 1
    in_turn: Persons = field(init=False)  # those that count, one person after the other

    def __post_init__(self) -> None:
        counted = self.codes >= 0
        self.sizes = np.maximum(np.bincount(self.numbers, counted).astype(np.int64), 1)
        self.in_turn = Persons.of(counted, self.numbers)

    @classmethod
    def of(
        cls,
        codes: Codes,
        numbers: Codes,
        n_classes: int,
        max_classes: int | None = None,
    ) -> Self:
        """Count only records of the `max_classes` classes of each person in which they have most records."""
        if max_classes is None:
            return cls(codes, numbers)
        _, _, kept = classes_of_persons(codes, numbers, n_classes, max_classes)
        limited = np.full_like(codes, -1)
        limited[kept] = codes[kept]
        return cls(limited, numbers)

    def number(self) -> int:
        """Return the number of persons with a record that counts."""
        return int(np.count_nonzero(np.bincount(self.numbers, self.codes >= 0)))

    def right(self, records: NDArray[np.bool_]) -> int:
        """Return the number of persons of whose records at least half are among these."""
        hits = np.bincount(self.numbers, records & (self.codes >= 0))
        return int(np.count_nonzero((hits > 0) & (2 * hits >= self.sizes)))

    def shares(self, weights: Int64, part: slice = slice(None)) -> Int64:
        """Return for each record its part of the weight of its class: shares of a person add up to one at most."""
        codes = self.codes[part]
        return np.where(codes >= 0, weights[codes] // self.sizes[self.numbers[part]], 0)
