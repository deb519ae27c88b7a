"""The records of a person as one row, for fits that protect persons with all of their records.

What becomes of a person is a function of that person's records alone: integers are added, in any order. So one person
more is one row more, and every mechanism keeps the sensitivity and the noise that it has for single records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError, ParameterError
from dppl.estimators import reading
from dppl.estimators.reading import Codes
from dppl.lattice import Lattice, RowSource, iter_blocks
from dppl.lattice.lattice import LARGEST, Int8
from dppl.privacy import Guarantee
from dppl.privacy.guarantee import A_CHANGED_RECORD, OTHER_RELEASES, SEVERAL_RECORDS
from dppl.privacy.words import PERSON, RECORD

_NEIGHBOURS = (
    "two data sets are neighbours when one person, with all of their records, is added or removed; a person counts as "
    "one record, of one class"
)
_PUBLIC = "the number of classes that a person counts in (1)"
_NOT_COVERED = (
    "wrong person ids, a person with several ids, and missing ids, each of which counts as a person of its own",
    "a changed record of a person, which counts as one person removed and one added",
    "other releases from records of the same persons, here or in other data sets, whose costs add up",
    "whether the fit stopped at an id that cannot be compared by value",
)
_NO_IDS = "groups must be ids that can be compared by value: texts, whole numbers or the like."
_READ_ROWS = 8192
Int64 = NDArray[np.int64]
Integers = NDArray[np.signedinteger[Any]]


def of_persons(guarantee: Guarantee) -> Guarantee:
    """Return what a guarantee for single records says where each row is a person.

    Parameters
    ----------
    guarantee : Guarantee

    Raises
    ------
    ParameterError
        If it is of another unit than a record, or not under add-remove.
    """
    if guarantee.adjacency != "add-remove":
        raise ParameterError(
            f"needs the adjacency add-remove; this fit is under {guarantee.adjacency}, in which the number of persons "
            "would be public.",
            parameter="groups",
        )
    if guarantee.unit != RECORD:
        raise ParameterError(
            f"is for fits that protect {RECORD}; this one protects {guarantee.unit}. Leave it out.", parameter="groups"
        )
    of_records = (SEVERAL_RECORDS, A_CHANGED_RECORD, OTHER_RELEASES)
    others = [item for item in guarantee.not_covered if not item.startswith(of_records)]
    return replace(
        guarantee,
        unit=PERSON,
        neighbours=_NEIGHBOURS,
        public_inputs=(*guarantee.public_inputs, _PUBLIC),
        not_covered=(*others, *_NOT_COVERED),
    )


def checked_ids(groups: Any, rows: RowSource) -> NDArray[Any]:
    """Return person ids as a vector with one id per row; those that a mask leaves out are None.

    Raises
    ------
    InputError
        If they are not a vector, or of another length than the rows.
    """
    if isinstance(groups, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(groups)
        groups = _without(texts_apart(np.ma.getdata(groups)).astype(object), mask)
    elif isinstance(groups, np.ndarray):
        groups = texts_apart(groups)
    elif any(hasattr(groups, name) for name in ("to_pylist", "to_list")):
        groups = _items(groups)
    return reading.as_labels(groups, rows, ("X", "groups"))


def _items(column: Any) -> Any:
    """Return a column of Arrow or of a frame as a list: beside a null NumPy would make floats of long integers."""
    with suppress(Exception):  # raised below, without one that could quote an id
        if hasattr(column, "to_pylist"):
            # Python has no nanoseconds, and NumPy no nulls but those of times.
            return np.asarray(column) if "[ns" in str(column.type) else column.to_pylist()
        return (column.astype(object) if hasattr(column, "astype") else column).to_list()  # also of categories
    raise InputError(_NO_IDS)


def texts_apart(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids of which those that are not Unicode are bytes: as texts some would be alike, or no texts at all.

    Parameters
    ----------
    ids : ndarray

    Returns
    -------
    ndarray
        As objects, if they are texts.
    """
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

    Ids are matched one by one, as labels are: a whole number and its text name the same person. None, NaN and empty
    texts name nobody, and each of them is a person of its own.

    Parameters
    ----------
    ids : ndarray of shape (n_records,)

    Returns
    -------
    ndarray of shape (n_records,), intp

    Raises
    ------
    InputError
        If ids cannot be compared by value. The message shows none.
    """
    if ids.dtype.kind in "mM":  # a list of them may hold numbers, also for those that are missing
        ids = _without(ids.astype(np.int64).astype(object), np.isnat(ids))
    numbers: dict[Hashable, int] = {}
    codes = None
    with suppress(Exception):  # raised below, without one that could quote an id
        # Not all as Python objects at once, which take many times the room.
        keys = (_key(one) for block in iter_blocks(ids, _READ_ROWS) for one in block.tolist())
        codes = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.intp, len(ids))
    if codes is None:
        raise InputError(_NO_IDS)
    return codes


def _without(ids: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """Put None in the place of ids that are missing."""
    ids[missing] = None
    return ids


def _key(one: Any) -> Hashable:
    """Return what an id is matched by; of a missing one something that equals nothing else."""
    one = _plain(one)
    if one is None or (isinstance(one, str | bytes) and not one.strip()):
        return object()
    if getattr(type(one), "__hash__", None) in (None, object.__hash__):
        raise TypeError("compared by identity, or not at all")
    try:
        missing = bool(one != one)
    except TypeError:  # that of pandas
        missing = True
    if missing:
        return object()
    # What labels are matched by has one value for all that no class can be.
    key: Hashable = reading._key(one) if type(one) in (str, int, float) else one
    return key


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


class Kept(NamedTuple):
    """The classes in which persons count; those of one person are adjacent.

    Attributes
    ----------
    persons, classes : ndarray of shape (n_kept,), intp
        Sorted by both.
    counts : ndarray of shape (n_kept,), int64
        How many records of the person are of the class.
    places : ndarray of shape (n_records,), intp
        Which of them each record belongs to; -1 for none.
    """

    persons: Codes
    classes: Codes
    counts: Int64
    places: Codes


def rows_of_persons(
    source: RowSource, codes: Codes, persons: Codes, n_classes: int, max_classes: int = 1
) -> tuple[Int8, Codes, Codes]:
    """Reduce each person to lattice rows, one a class: the sum of their rows of it, shrunk to the norm of one.

    The classes are those of most of the person's rows, and the first ones of several. A sum that is a lattice row
    itself stays as it is, such as that of one record; another one becomes the lattice row of its direction.

    Parameters
    ----------
    source : array, memory map, tensor or table of shape (n_records, n_features)
        Read once, in blocks.
    codes : ndarray of shape (n_records,), intp
        Class of each row; -1 for none, and where the row cannot be used (`codes_of_records`).
    persons : ndarray of shape (n_records,), intp
        Person of each row.
    n_classes : int
    max_classes : int, default=1
        In how many classes a person counts at most.

    Returns
    -------
    rows : ndarray of shape (n_kept, n_features), int8
        Lattice rows, which other lattices take as they do rows of floats. Persons without a row that counts have none.
    codes, persons : ndarray of shape (n_kept,), intp
        Their classes and persons; rows of one person are adjacent.

    Notes
    -----
    Memory holds the result and a sum of small integers for each person and class whose rows are still to come while
    others are read: one at a time where the rows of a person are adjacent, and else nearly all.
    """
    kept = classes_of_persons(codes, persons, n_classes, max_classes)
    return _added(Lattice(source.shape[1]), source, kept), kept.classes, kept.persons


def classes_of_persons(codes: Codes, persons: Codes, n_classes: int, max_classes: int = 1) -> Kept:
    """Return the classes in which each person counts, and which records that makes count.

    Parameters
    ----------
    codes, persons : ndarray of shape (n_records,), intp
        Class and person of each record; a class of -1 is none.
    n_classes : int
    max_classes : int, default=1
        In how many classes a person counts at most.

    Returns
    -------
    Kept
    """
    counted = np.flatnonzero(codes >= 0)
    pairs, pair, counts = np.unique(
        persons[counted] * n_classes + codes[counted], return_inverse=True, return_counts=True
    )
    of, classes = np.divmod(pairs, n_classes)
    chosen = _most_frequent(of, classes, counts, max_classes)
    places = np.full(len(codes), -1, np.intp)
    places[counted] = np.where(chosen, np.cumsum(chosen) - 1, -1)[pair]
    return Kept(of[chosen], classes[chosen], counts[chosen], places)


def _most_frequent(persons: Codes, codes: Codes, counts: Int64, most: int) -> NDArray[np.bool_]:
    """Mark so many classes of each person, those with most rows and the first of several; persons are sorted."""
    ranked = np.lexsort((codes, -counts, persons))
    chosen = np.empty(len(persons), bool)
    chosen[ranked] = np.arange(len(persons)) - np.searchsorted(persons, persons) < most
    return chosen


def _added(lattice: Lattice, source: RowSource, kept: Kept) -> Int8:
    """Add the rows of each place as they are read, and shrink a sum as soon as its last row was."""
    out = np.empty((len(kept.counts), lattice.dim), np.int8)
    first, last = _ends(kept)
    held = _Held(_most_open(first, last), lattice.dim, kept.counts)
    start = 0
    for rows in lattice.blocks(source, _READ_ROWS):
        stop = start + len(rows)
        here, sums = _sums(rows, kept.places[start:stop], held.dtype)
        begun, unfinished = first[here] < start, last[here] >= stop
        sums[begun] += held.taken(here[begun])
        held.keep(here[unfinished], sums[unfinished])
        alone = kept.counts[here] == 1
        out[here[alone]] = sums[alone]
        done = ~(unfinished | alone)
        out[here[done]] = _shrunk(lattice, sums[done])
        start = stop
    return out


def _ends(kept: Kept) -> tuple[Int64, Int64]:
    """Return the first and the last record of each place."""
    records = np.flatnonzero(kept.places >= 0)
    first, last = np.empty((2, len(kept.counts)), np.int64)
    places = kept.places[records]
    last[places] = records  # of several the last one
    first[places[::-1]] = records[::-1]
    return first, last


def _most_open(first: Int64, last: Int64) -> int:
    """Return the largest number of places that are begun and not finished at a time."""
    several = first < last
    begun, finished = np.sort(first[several]), np.sort(last[several])
    still = np.arange(1, len(begun) + 1) - np.searchsorted(finished, begun)
    return int(still.max(initial=0))


def _sums(rows: Int8, places: Codes, dtype: np.dtype[Any]) -> tuple[Codes, Integers]:
    """Return the places that occur among these rows, and the sum of the rows of each."""
    counted = np.flatnonzero(places >= 0)
    order = counted[np.argsort(places[counted], kind="stable")]
    first = np.flatnonzero(np.diff(places[order], prepend=-1))
    return places[order[first]], np.add.reduceat(rows[order], first, axis=0, dtype=dtype)


class _Held:
    """Sums of places of which some rows are read and others are not, in the smallest integers that hold all."""

    def __init__(self, most: int, dim: int, counts: Int64) -> None:
        self._sums = np.empty((most, dim), np.min_scalar_type(-LARGEST * int(counts.max(initial=1))))
        self.dtype = np.promote_types(self._sums.dtype, np.int32)  # also holds the sum of a block
        self._slots = np.empty(len(counts), np.intp)
        self._free, self._n_free = np.arange(most), most

    def taken(self, places: Codes) -> Integers:
        """Return sums, whose room is free then."""
        slots = self._slots[places]
        self._free[self._n_free : self._n_free + len(slots)] = slots
        self._n_free += len(slots)
        return self._sums[slots]

    def keep(self, places: Codes, sums: Integers) -> None:
        """Keep sums of other places."""
        self._n_free -= len(places)
        slots = self._free[self._n_free : self._n_free + len(places)]
        self._slots[places] = slots
        self._sums[slots] = sums


def _shrunk(lattice: Lattice, sums: Integers) -> Int8:
    """Return sums that are lattice rows as they are, and the lattice rows of the directions of all others."""
    out = np.clip(sums, -LARGEST, LARGEST).astype(np.int8)
    long = (lattice.transform(out) != sums).any(axis=1)
    out[long] = lattice.transform(sums[long])
    return out
