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

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl.errors import InputError, ParameterError
from dppl.kernel import reading
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.joint import Persons
from dppl.kernel.lattice.lattice import LARGEST, Int8
from dppl.kernel.reading import Codes

_NO_IDS = "groups must be ids that can be compared by value, such as texts or integers; write them as one of these."
_READ_ROWS = 8192
# A part of a tuple that is missing, which is like any other such part: the whole is an
# id.
_MISSING_PART = object()
Int64 = NDArray[np.int64]
Integers = NDArray[np.signedinteger[Any]]


def ids_of_fit(
    groups: Any, rows: RowSource, max_classes: int | None
) -> NDArray[Any] | None:
    """Return the `checked_ids` of a fit, if it has any; `max_classes` is for these only."""
    if max_classes is not None:
        _validate.positive_integer(max_classes_per_person=max_classes)
        if groups is None:
            name = "max_classes_per_person"
            raise ParameterError(
                f"is for fits with ids of persons (groups); got {max_classes}.",
                parameter=name,
            )
    return None if groups is None else checked_ids(groups, rows)


def checked_ids(groups: Any, rows: RowSource) -> NDArray[Any]:
    """Return person ids as a vector with one id per row; masked ones are None."""
    if isinstance(groups, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(groups)
        groups = texts_apart(np.ma.getdata(groups)).astype(object)
        groups[mask] = None
    elif isinstance(groups, np.ndarray):
        groups = texts_apart(groups)
    ids = reading.as_labels(groups, rows, ("X", "groups"))
    if (
        ids.dtype.kind in "mM"
    ):  # a list of them may hold numbers, also for those that are missing
        missing = np.isnat(ids)
        ids = ids.astype(np.int64).astype(object)
        ids[missing] = None
    return ids


def texts_apart(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids of which those that are not Unicode are bytes: as texts some would be alike, or no texts at all."""
    if ids.dtype.kind != "U":
        return ids
    characters = reading.characters_only(ids)
    whole = characters.astype(object)
    wrong = characters != ids
    if wrong.any():
        whole[wrong] = [bytes(one) for one in ids[wrong].view(f"V{ids.dtype.itemsize}")]
    return whole


def person_codes(ids: NDArray[Any]) -> Codes:
    """Return the number of each record's person, in the order in which ids first occur.

    Ids are matched one by one, as labels are: a whole number and its text name the same
    person. None, NaN and empty texts name nobody, and each of them is a separate
    person. All else is an id, also what only looks missing: texts of NUL or of
    zero-width characters, and tuples, whose parts are matched as ids are, with missing
    parts.
    """
    numbers: dict[Hashable, int] = {}
    codes = None
    with suppress(Exception):  # raised below, without one that could quote an id
        # Not all as Python objects at once, which take many times the room.
        keys = (
            _key(one)
            for block in iter_blocks(ids, _READ_ROWS)
            for one in block.tolist()
        )
        codes = np.fromiter(
            (numbers.setdefault(key, len(numbers)) for key in keys), np.intp, len(ids)
        )
    if codes is None:
        raise InputError(_NO_IDS)
    return codes


def are_missing(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark ids that name nobody, each of which is a separate person."""
    return np.fromiter(
        (type(_key(one)) is object for one in ids.tolist()), bool, len(ids)
    )


def id_bytes(one: Any) -> bytes | None:
    """Return bytes that the ids of one person share and no other id has; None for an id that names nobody."""
    with suppress(Exception):  # raised below, without one that could quote an id
        return _as_bytes(_key(one))
    raise InputError(_NO_IDS)


def _as_bytes(key: Any) -> bytes | None:
    """Write what an id is matched by; its type comes first, since values of several types may look alike."""
    if type(key) is object:
        return None
    if isinstance(key, tuple):
        parts = [
            b"" if part is _MISSING_PART else _as_bytes(part) or b"" for part in key
        ]
        return b"(" + b"".join(len(part).to_bytes(8) + part for part in parts)
    if isinstance(key, str):
        return b"t" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, bool | int | float):
        return f"{type(key).__name__} {key!r}".encode()
    raise TypeError("no id that a file can hold")


def _key(one: Any) -> Hashable:
    """Return what an id is matched by; of a missing one something that equals nothing else."""
    if type(one) is int or (type(one) is str and one.strip()):
        return (
            one if type(one) is str else reading._key(one)
        )  # what the rest would return, sooner
    one = _plain(one)
    if one is None or (isinstance(one, str | bytes) and not one.strip()):
        return object()
    if isinstance(one, tuple):
        # NaN in a tuple differs from any other NaN, so each record of its person would
        # be a separate person.
        return tuple(
            _MISSING_PART if type(part) is object else part for part in map(_key, one)
        )
    if getattr(type(one), "__hash__", None) in (None, object.__hash__):
        raise TypeError("compared by identity, or not at all")
    try:
        missing = bool(one != one)
    except TypeError:  # missing in pandas
        missing = True
    if missing:
        return object()
    # What labels are matched by has one value for all that no class can be.
    return reading._key(one) if type(one) in (str, int, float) else one


def _plain(one: Any) -> Any:
    """Return an item of NumPy's or Arrow's, and one of a type made from a text or number, as the value that it has."""
    if one is np.ma.masked:
        return None
    if isinstance(one, np.generic):
        one = one.item()
    elif hasattr(one, "as_py"):
        one = one.as_py()
    if isinstance(one, bool):
        return one
    values: tuple[tuple[type, Callable[[Any], Any]], ...]
    values = ((str, str.__str__), (int, int.__int__), (float, float.__float__))
    return next((value(one) for kind, value in values if isinstance(one, kind)), one)


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
