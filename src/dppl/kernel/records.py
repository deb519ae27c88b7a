"""Private records as integers that add: the seam between what is released and where the records lie.

Before its noise, most of what dppl releases is a sum over records of integers that each
record decides by itself. So a query is a pure function with f(all records) = f(first
part) + f(second part) + ..., exactly and in any order. It gets `HeldRecords`, rows and
codes in one process, and need not know where the others are:

* `HeldRecords.total` asks the records at hand.
* `SpreadRecords.total` lets an engine ask each part, which is read there, and adds what
  comes back by the place of the part. A part that was computed twice, because a worker
  died, is added once.

The noise is drawn once, where `total` was called, and the bits are the same for any
parts and workers. The codes of a part's records are made where it is read, from its own
labels and the public list of classes: each record's code depends on that record alone.

A selection among public rows is the other way round: there are many more of those, and
one table of private records. The score of a public row is a sum over all records, so
each piece of the public rows is scored by itself, and what is kept of it is a tally
(`mechanisms.Tally`). `Records.each` applies a function to all records and each of
several public items. Where an engine does that, each of its processes reads all parts
once and keeps their lattice rows.

All records of a person are read in one place, with the part of the first of them,
whatever parts the others are in. So where a table is cut shows in no sum, and needs no
check that would tell of persons.

What needs rows one after another refuses tables in parts before anything is charged:
means by CoinPress, and Poisson samples (their coins are noise, and would be tossed
elsewhere). A fit that stops after its charge leaves the charge: sums without noise are
kept nowhere, so a second fit is a second release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dppl.engines import Engine, InProcess
from dppl.errors import EngineError, InputError, ParameterError
from dppl.kernel import persons, reading
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks, take_rows, usable_rows
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.lattice.stream import BLOCK_ROWS, CACHE_BYTES, LatticeRows, TensorRows
from dppl.kernel.persons import WholePersons
from dppl.kernel.queries import Query
from dppl.kernel.reading import Codes, MultiLabel

Int64 = NDArray[np.int64]
Item = TypeVar("Item")
Value = TypeVar("Value")

# Public rows of a piece, where files of fewer are put together: enough work for a task,
# and few tallies.
_PIECE_ROWS = 1 << 18


@runtime_checkable
class Part(Protocol):
    """A part of a table, described by paths and positions: it travels, and its records do not."""

    @property
    def n_rows(self) -> int:
        """How many records it has; asked for where they are of persons."""

    def read(self) -> tuple[Any, Any]:
        """Return its rows, as an array or table, and their labels."""


@runtime_checkable
class Parted(Protocol):
    """A labelled table in parts (`dppl.io.PartedTable` is one)."""

    metadata: Mapping[str, str]  # what the table says of itself
    parts: Sequence[Part]  # at least one; each record is in one of them
    labelled: bool  # whether the parts hold labels
    n_features: int
    engine: Engine  # where the parts are read and summed


@runtime_checkable
class Parties(Protocol):
    """Institutions that answer by themselves, each with its own noise (`dppl.federation.Federation` is one)."""

    metadata: Mapping[str, str]  # what all their tables say of themselves
    n_features: int
    ids: tuple[()] | None  # as in `PrivateTable`; not None where they protect persons

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse fits that need more than noisy sums, as `PrivateTable.check` does."""

    def account(self, ledger: Any, partition: str | None, plan: Any) -> Any:
        """Return what charges the plan to the ledger of each, in the place of one ledger."""

    def records(
        self, classes: NDArray[Any], *, paid: Any = None, **options: Any
    ) -> NoisyRecords:
        """Return what was charged: institutions answer to nothing else."""


@runtime_checkable
class NoisyRecords(Protocol):
    """Records elsewhere, whose answers have their noise before they come here."""

    widening: (
        float  # how much wider the noise of a sum of answers is than the noise of one
    )

    def answer(self, name: str, /, **released: Any) -> Int64:
        """Return the sum of the noisy answers."""


@dataclass(slots=True, eq=False, repr=False)
class HeldRecords:
    """Records in this process: all of them, or of a part where it is read."""

    rows: RowSource  # shape (n, d)
    codes: Codes  # shape (n,); class of each record; -1 for those that do not count
    persons: WholePersons | None = (
        None  # whose they are, where persons enter with all of their records
    )
    stream: Any = field(
        default=None, repr=False
    )  # what a stream keeps of earlier tasks (`dppl.kernel.queries.correlated`)
    # Shape (n, n_classes); the labels of each record, where it may have several. All
    # that count have the code 0 then.
    label_sets: NDArray[np.bool_] | None = None
    by_class: Any = field(
        default=None, init=False, repr=False
    )  # the lattice rows as selections have them
    _mapped: LatticeRows | None = field(
        default=None, init=False, repr=False
    )  # of the last lattice
    _whole: tuple[HeldRecords, NDArray[np.bool_]] | None = field(
        default=None, init=False, repr=False
    )  # of a sample

    def blocks(self, lattice: Lattice) -> Iterable[Int8]:
        """Return the lattice rows in blocks, for queries that are asked often; kept for the last lattice."""
        if self._whole is not None:
            whole, mask = self._whole
            return _masked(whole.blocks(lattice), mask)
        if self._mapped is None or self._mapped.lattice.name != lattice.name:
            in_memory = isinstance(
                self.rows, np.ndarray | TensorRows
            ) and not isinstance(self.rows, np.memmap)
            kept = list(lattice.blocks(self.rows, BLOCK_ROWS)) if in_memory else []
            self._mapped = LatticeRows(lattice, self.rows, kept)
        return self._mapped

    def total(self, query: Query, **released: Any) -> Int64:
        """Return the value of a query of these records."""
        return query.exact(self, **query.checked(**released))

    def each(
        self,
        function: Callable[[HeldRecords, Item], Iterable[Value]],
        items: Sequence[Item],
    ) -> Iterator[tuple[int, Value]]:
        """Yield what `function` yields of these records and each of the items, with the place of the item."""
        yield from (
            (place, value)
            for place, item in enumerate(items)
            for value in function(self, item)
        )

    def of_persons(
        self, numbers: Codes, n_classes: int, max_classes: int | None, *, whole: bool
    ) -> HeldRecords:
        """Return the records of numbered persons: all of them, or one row a class."""
        if whole:
            entered = WholePersons.of(self.codes, numbers, n_classes, max_classes)
            return replace(self, codes=entered.codes, persons=entered)
        rows, codes = persons.rows_of_persons(
            self.rows, self.codes, numbers, n_classes, max_classes or 1
        )
        return replace(self, rows=rows, codes=codes)

    def taken(self, mask: NDArray[np.bool_]) -> HeldRecords:
        """Return a copy of some of the records."""
        return HeldRecords(
            take_rows(self.rows, np.flatnonzero(mask)),
            self.codes[mask],
            label_sets=self._sets(mask),
        )

    def sampled(self, mask: NDArray[np.bool_]) -> HeldRecords:
        """Return the records of one sample, for one pass over their lattice rows."""
        sample = HeldRecords(self.rows, self.codes[mask], label_sets=self._sets(mask))
        sample._whole = self, mask
        return sample

    def _sets(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        return None if self.label_sets is None else self.label_sets[mask]


def _masked(blocks: Iterable[Int8], mask: NDArray[np.bool_]) -> Iterator[Int8]:
    start = 0
    for block in blocks:
        yield block[mask[start : start + len(block)]]
        start += len(block)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Piece:
    """A part, or some of its records, and whose they are: with numbers of persons it is private."""

    part: Part
    chosen: Codes | None = None  # positions in the part; None is all
    numbers: Codes | None = (
        None  # of the person of each record, -1 where they are read with another part
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SpreadRecords:
    """Records in parts that an engine reads, in processes that keep the first of them for the passes of one fit."""

    parts: Sequence[
        Sequence[Piece]
    ]  # what is read in one place; with persons, also what other parts hold of theirs
    engine: Engine
    reader: PartReader
    stream: Any = field(default=None, repr=False)  # as in `HeldRecords`

    def close(self) -> None:
        """Forget what this process kept of the parts."""
        _CACHE.clear()

    def total(self, query: Query, **released: Any) -> Int64:
        """Return the sum of the values of a query of each part."""
        add_up = partial(self.reader.total, query, query.checked(**released))
        totals = once_each(self.engine, add_up, list(enumerate(self.parts)))
        return reduce(np.add, (total for _, total in totals))

    def each(
        self,
        function: Callable[[HeldRecords, Item], Iterable[Value]],
        items: Sequence[Item],
    ) -> Iterator[tuple[int, Value]]:
        """Yield what `function` yields of all records and each of the items, with the place of the item."""
        apply = partial(
            self.reader.values,
            [piece for part in self.parts for piece in part],
            function,
        )
        for place, values in once_each(self.engine, apply, items):
            yield from ((place, value) for value in values)


# Private records, seen through sums over them.
Records: TypeAlias = HeldRecords | SpreadRecords


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartReader:
    """Reads parts and adds over them in whatever process an engine chooses."""

    classes: NDArray[Any]  # shape (n_classes,); the sorted public list of classes
    unknown_labels: str  # this and `adjacency` as in the estimator
    adjacency: str
    allowed: Codes | None = (
        None  # positions of the classes that a task may hold; None is all
    )
    several: MultiLabel | None = (
        None  # how labels are given, where a record may have several
    )
    max_classes: int | None = (
        None  # this and `whole_persons` as of `PrivateTable.records`
    )
    whole_persons: bool = False
    fit: str = field(
        default_factory=lambda: uuid4().hex, init=False, repr=False
    )  # a name that no other fit has

    def total(
        self, query: Query, at: Mapping[str, Any], item: tuple[int, Sequence[Piece]]
    ) -> Int64:
        """Return the value of a query of the records of one part."""
        place, pieces = item
        with np.errstate(
            all="ignore"
        ):  # numbers that leave the range of floats belong to single rows
            return query.exact(self._records(place, pieces), **at)

    def values(
        self,
        pieces: Sequence[Piece],
        function: Callable[[HeldRecords, Item], Iterable[Value]],
        item: Item,
    ) -> list[Value]:
        """Return what a function yields of the records of all parts and one item."""
        with np.errstate(all="ignore"):
            return list(function(self._records(_ALL, pieces), item))

    def _records(self, place: int, pieces: Sequence[Piece]) -> HeldRecords:
        """Read parts and code their labels, or take them from the cache, which fits in other threads may clear."""
        if any(other != self.fit for other, _ in list(_CACHE)):
            _CACHE.clear()
        held = _CACHE.get((self.fit, place))
        if held is None:
            rules = (
                self.classes,
                self.unknown_labels,
                self.adjacency,
                self.allowed,
                self.several,
            )
            rows: list[RowSource] = []
            codes = []
            sets = []
            numbers = []
            for piece in pieces:
                few, labels = reading.checked_inputs(*piece.part.read(), self.several)
                counted, known = reading.read_labels(few, labels, *rules)
                chosen = slice(None) if piece.chosen is None else piece.chosen
                rows.append(
                    few if piece.chosen is None else take_rows(few, piece.chosen)
                )
                codes.append(counted[chosen])
                sets += [] if known is None else [known[chosen]]
                numbers += [] if piece.numbers is None else [piece.numbers]
            held = HeldRecords(
                rows[0] if len(rows) == 1 else _Chain(rows),
                np.concatenate(codes),
                label_sets=np.concatenate(sets) if sets else None,
            )
            if numbers:
                whose = np.concatenate(numbers)
                held.codes[whose < 0] = -1
                few_numbers = np.unique(whose, return_inverse=True)[1]
                held = held.of_persons(
                    few_numbers,
                    len(self.classes),
                    self.max_classes,
                    whole=self.whole_persons,
                )
            # A byte a number: what their lattice rows take. The first are kept, as all
            # come in the same order.
            sizes = [
                len(one.codes) * int(one.rows.shape[1])
                for one in (held, *list(_CACHE.values()))
            ]
            if place == _ALL or sum(sizes) <= CACHE_BYTES:
                _CACHE[self.fit, place] = held
        return held


class _Chain:
    """Rows of several sources, one after the other."""

    def __init__(self, sources: Sequence[RowSource]) -> None:
        self._sources = sources
        self.shape = sum(source.shape[0] for source in sources), sources[0].shape[1]

    def fragments(self) -> Sequence[RowSource]:
        return self._sources

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        for source in self._sources:
            yield from iter_blocks(source, size)


def once_each(
    engine: Engine, function: Callable[[Item], Value], items: Sequence[Item]
) -> Iterator[tuple[int, Value]]:
    """Yield one value an item, or raise: a part that counted twice would move sums further than noise is made for."""
    missing = set(range(len(items)))
    for place, value in engine.each(function, items):
        if place not in missing:
            raise EngineError(
                "the engine has broken its promise: an item has several values, or none was asked for."
            )
        missing.remove(place)
        yield place, value
    if missing:
        raise EngineError("the engine has broken its promise: an item has no value.")


def pieces(public: RowSource) -> list[RowSource]:
    """Return public rows as runs of files, which a task reads by itself."""
    runs: list[list[RowSource]] = []
    room = 0
    for fragment in (
        public.fragments(_PIECE_ROWS) if hasattr(public, "fragments") else (public,)
    ):
        if not runs or fragment.shape[0] > room:
            runs.append([])
            room = _PIECE_ROWS
        runs[-1].append(fragment)
        room -= fragment.shape[0]
    return [_Chain(run) for run in runs]


# The parts of one fit, by a name that no other fit has, in whatever thread or process
# it runs, and by their places. All of them at once are kept whatever their size, since
# each task needs them.
_CACHE: dict[tuple[str, int], HeldRecords] = {}
_ALL = -1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateTable:
    """What a fit was given in one place: of rows, labels and ids only shapes and kinds have been looked at."""

    rows: RowSource
    labels: NDArray[Any]
    ids: NDArray[Any] | None = None  # of persons
    several: MultiLabel | None = (
        None  # how labels are given, where a record may have several
    )
    engine: Engine = field(default_factory=InProcess)

    @property
    def n_features(self) -> int:
        """Width of the rows."""
        return int(self.rows.shape[1])

    def account(self, ledger: Any, partition: str | None, plan: Any) -> Any:
        """Return what pays: the ledger of the fit, if it has one."""
        return ledger

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse labels of another kind than the classes, and a strict fit whose records cannot all be used.

        That a strict fit stopped is one bit about them.
        """
        if self.several is not None:
            self.several.read(self.labels[:0], classes)  # compares shapes and kinds
        else:
            reading.check_kind(self.labels, classes)
        if strict:
            used = usable_rows(self.rows) & reading.are_known(
                self.labels, classes, self.several
            )
            if self.ids is not None:
                used &= ~persons.are_missing(self.ids)
            reading.refuse_unusable_records(int(used.sum()), len(used))

    def records(
        self,
        classes: NDArray[Any],
        *,
        unknown_labels: str,
        adjacency: str,
        allowed: Codes | None = None,
        max_classes: int | None = None,
        whole_persons: bool = False,
        stream: Any = None,
        paid: Any = None,
    ) -> HeldRecords:
        """Read rows, labels and ids: from here on values are private, and only queries see them."""
        rules = classes, unknown_labels, adjacency, allowed, self.several
        codes, sets = reading.read_labels(self.rows, self.labels, *rules)
        held = HeldRecords(self.rows, codes, None, stream, sets)
        if self.ids is None:
            return held
        return held.of_persons(
            persons.person_codes(self.ids),
            len(classes),
            max_classes,
            whole=whole_persons,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateParts:
    """A labelled table in parts, of which only sums come back to this process."""

    parts: Sequence[Part]
    n_features: int
    engine: Engine
    several: MultiLabel | None = None  # this and `ids` as in `PrivateTable`
    ids: NDArray[Any] | None = None

    def account(self, ledger: Any, partition: str | None, plan: Any) -> Any:
        """Return what pays: the ledger of the fit, if it has one."""
        return ledger

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse fits that need all records in one place, and an engine that does not work."""
        if strict:
            raise ParameterError(
                "reads records before it charges, so not with a table in parts.",
                parameter="strict",
            )
        if needs_rows:
            raise ParameterError(
                "needs rows one after another, and not sums over them; pass X as one table."
            )
        self.engine.check()

    def records(
        self, classes: NDArray[Any], *, stream: Any = None, **options: Any
    ) -> SpreadRecords:
        """Return the parts, each of which is read where it is summed."""
        rules = (
            options["unknown_labels"],
            options["adjacency"],
            options.get("allowed"),
            self.several,
        )
        reader = PartReader(
            classes,
            *rules,
            options.get("max_classes"),
            options.get("whole_persons", False),
        )
        return SpreadRecords(self._pieces(), self.engine, reader, stream)

    def _pieces(self) -> list[list[Piece]]:
        """Return what is read together: each part, and what others hold of persons whose first record is in it."""
        if self.ids is None:
            return [[Piece(part)] for part in self.parts]
        numbers = persons.person_codes(self.ids)
        ends = np.cumsum([part.n_rows for part in self.parts])
        at = np.searchsorted(ends, np.arange(len(numbers)), "right")
        home = at[np.unique(numbers, return_index=True)[1]][numbers]
        numbers_at_home = np.split(np.where(home == at, numbers, -1), ends[:-1])
        pieces = [
            [Piece(part, None, own)]
            for part, own in zip(self.parts, numbers_at_home, strict=True)
        ]
        elsewhere = np.flatnonzero(home != at)
        for place, other in sorted(
            {*zip(home[elsewhere].tolist(), at[elsewhere].tolist(), strict=True)}
        ):
            these = elsewhere[(home[elsewhere] == place) & (at[elsewhere] == other)]
            first = ends[other] - self.parts[other].n_rows
            pieces[place].append(
                Piece(self.parts[other], these - first, numbers[these])
            )
        return pieces


def private_data(
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    max_classes: int | None = None,
    several: MultiLabel | None = None,
) -> PrivateTable | PrivateParts | Parties:
    """Check the shapes and kinds of what a fit was given, and look at no value."""
    if isinstance(X, Parties):
        if y is not None or groups is not None:
            raise InputError(
                "y and groups must be left out: each institution has its own labels and ids."
            )
        return X
    if not isinstance(X, Parted):
        rows, labels = reading.checked_inputs(X, y, several)
        return PrivateTable(
            rows, labels, persons.ids_of_fit(groups, rows, max_classes), several
        )
    if y is not None:
        raise InputError("y must be left out: the parts of X hold their own labels.")
    if not X.labelled:
        raise InputError("X has no labels in its parts; name their column or file.")
    n_rows = 0 if groups is None else sum(part.n_rows for part in X.parts)
    ids = persons.ids_of_fit(groups, np.empty((n_rows, 0)), max_classes)
    return PrivateParts(X.parts, X.n_features, X.engine, several, ids)
