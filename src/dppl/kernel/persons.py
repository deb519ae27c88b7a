"""The records of a person as one row, for fits that protect persons with all of their records.

What becomes of a person is a function of that person's records alone: integers are added, in any order. So one person
more is one row more, and every mechanism keeps the sensitivity and the noise that it has for single records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl.errors import InputError, ParameterError
from dppl.kernel import reading
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.lattice import LARGEST, Int8
from dppl.kernel.reading import Codes

_NO_IDS = "groups must be ids that can be compared by value, such as texts or integers; write them as one of these."
_READ_ROWS = 8192
# A part of a tuple that is missing, which is like any other such part: the whole is an id.
_MISSING_PART = object()
Int64 = NDArray[np.int64]
Integers = NDArray[np.signedinteger[Any]]


def ids_of_fit(groups: Any, rows: RowSource, max_classes: int | None) -> NDArray[Any] | None:
    """Return the `checked_ids` of a fit, if it has any. `max_classes` without ids is refused."""
    if max_classes is not None:
        _validate.positive_integer(max_classes_per_person=max_classes)
    if groups is None and max_classes is not None:
        raise ParameterError(
            f"is for fits with ids of persons (groups); give them, or leave it out. Got {max_classes}.",
            parameter="max_classes_per_person",
        )
    return None if groups is None else checked_ids(groups, rows)


def checked_ids(groups: Any, rows: RowSource) -> NDArray[Any]:
    """Return person ids as a vector with one id per row; those that a mask leaves out are None.

    Anything but a vector as long as the rows is refused.
    """
    if isinstance(groups, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(groups)
        groups = texts_apart(np.ma.getdata(groups)).astype(object)
        groups[mask] = None
    elif isinstance(groups, np.ndarray):
        groups = texts_apart(groups)
    elif any(hasattr(groups, name) for name in ("to_pylist", "to_list")):
        groups = _items(groups)
    ids = reading.as_labels(groups, rows, ("X", "groups"))
    if ids.dtype.kind in "mM":  # a list of them may hold numbers, also for those that are missing
        missing, ids = np.isnat(ids), ids.astype(np.int64).astype(object)
        ids[missing] = None
    return ids


def _items(column: Any) -> Any:
    """Return a column of Arrow or of a frame as a list: beside a null NumPy would make floats of long integers."""
    with suppress(Exception):  # raised below, without one that could quote an id
        if hasattr(column, "to_pylist"):
            # Python has no nanoseconds, and NumPy no nulls but those of times.
            return np.asarray(column) if "[ns" in str(column.type) else column.to_pylist()
        return (column.astype(object) if hasattr(column, "astype") else column).to_list()  # also of categories
    raise InputError(_NO_IDS)


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

    Ids that cannot be compared by value are refused, by a message that shows none.

    Ids are matched one by one, as labels are: a whole number and its text name the same person. None, NaN and empty
    texts name nobody, and each of them is a person of its own. All else is an id, also what only looks missing: texts
    of NUL or of zero-width characters, and tuples, whose parts are matched as ids are, with missing parts.
    """
    numbers: dict[Hashable, int] = {}
    codes = None
    with suppress(Exception):  # raised below, without one that could quote an id
        # Not all as Python objects at once, which take many times the room.
        keys = (_key(one) for block in iter_blocks(ids, _READ_ROWS) for one in block.tolist())
        codes = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.intp, len(ids))
    if codes is None:
        raise InputError(_NO_IDS)
    return codes


def are_missing(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark ids that name nobody, each of which is a person of its own."""
    return np.fromiter((type(_key(one)) is object for one in ids.tolist()), bool, len(ids))


def _key(one: Any) -> Hashable:
    """Return what an id is matched by; of a missing one something that equals nothing else."""
    if type(one) is str and one.strip():
        return one  # what the rest would return, sooner
    one = _plain(one)
    if one is None or (isinstance(one, str | bytes) and not one.strip()):
        return object()
    if isinstance(one, tuple):
        # NaN in a tuple differs from any other NaN, so each record of its person would be a person of its own.
        return tuple(_MISSING_PART if type(part) is object else part for part in map(_key, one))
    if getattr(type(one), "__hash__", None) in (None, object.__hash__):
        raise TypeError("compared by identity, or not at all")
    try:
        missing = bool(one != one)
    except TypeError:  # that of pandas
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
    source: RowSource, codes: Codes, persons: Codes, n_classes: int, max_classes: int = 1
) -> tuple[Int8, Codes]:
    """Reduce each person to one lattice row a class: the sum of their rows of it, shrunk to the norm of one.

    `source` is read once, in blocks. Returns int8 rows, which other lattices take as they do rows of floats, and their
    classes. A code of -1 marks a row without class or use; persons without a row that counts have none.

    The classes are those of most of the person's rows, and the first of several. A sum that is a lattice row itself
    stays as it is, such as that of one record; another one becomes the lattice row of its direction.

    Memory holds the result, and a sum of small integers for each row of it that has begun and not ended: one or a few
    where the rows of a person are adjacent, and else nearly as many as there are persons of several records.
    """
    counted = np.flatnonzero(codes >= 0)
    classes, counts, order = classes_of_persons(codes[counted], persons[counted], n_classes, max_classes)
    return _added(Lattice(source.shape[1]), source, counted[order], counts), classes


def classes_of_persons(
    codes: Codes, persons: Codes, n_classes: int, max_classes: int = 1
) -> tuple[Codes, Int64, Int64]:
    """Return the classes in which each person counts, the numbers of their records, and which records these are.

    `order` has the records of the first row, then those of the next one, and so on.
    """
    pair = persons * n_classes + codes
    pairs, counts = np.unique(pair, return_counts=True)
    chosen = _most_frequent(*np.divmod(pairs, n_classes), counts, max_classes)
    order = np.argsort(pair, kind="stable")[np.repeat(chosen, counts)]
    return pairs[chosen] % n_classes, counts[chosen], order


def _most_frequent(persons: Codes, codes: Codes, counts: Int64, max_classes: int) -> NDArray[np.bool_]:
    """Mark classes of each person, those with most rows and the first of several; persons are sorted."""
    ranked = np.lexsort((codes, -counts, persons))
    first = np.flatnonzero(np.diff(persons, prepend=-1))
    rank = np.arange(len(persons)) - np.repeat(first, np.diff(first, append=len(persons)))
    chosen = np.zeros(len(persons), bool)
    chosen[ranked[rank < max_classes]] = True
    return chosen


def _added(lattice: Lattice, source: RowSource, order: Int64, counts: Int64) -> Int8:
    """Add so many rows each, in this order, as they are read, and shrink a sum as soon as its last row was."""
    out = np.empty((len(counts), lattice.dim), np.int8)
    places = np.full(source.shape[0], -1, np.intp)
    places[order] = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    first, last = order[ends - counts], order[ends - 1]
    # Sums that have begun and not ended, in the smallest integers that hold the longest.
    small = np.min_scalar_type(-LARGEST * int(counts.max(initial=1)))
    held: dict[int, Integers] = {}
    start = 0
    for rows in lattice.blocks(source, _READ_ROWS):
        stop = start + len(rows)
        here, sums = _sums(rows, places[start:stop], np.promote_types(small, np.int32))
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


def _sums(rows: Int8, places: Codes, dtype: np.dtype[Any]) -> tuple[Codes, Integers]:
    """Return the places that occur among these rows, and the sum of the rows of each."""
    counted = np.flatnonzero(places >= 0)
    order = counted[np.argsort(places[counted], kind="stable")]
    first = np.flatnonzero(np.diff(places[order], prepend=-1))
    return places[order[first]], np.add.reduceat(rows[order], first, axis=0, dtype=dtype)


def _shrunk(lattice: Lattice, sums: Integers) -> Int8:
    """Return sums that are lattice rows as they are, and the lattice rows of the directions of all others."""
    out = np.clip(sums, -LARGEST, LARGEST).astype(np.int8)
    long = (lattice.transform(out) != sums).any(axis=1)
    out[long] = lattice.transform(sums[long])
    return out
