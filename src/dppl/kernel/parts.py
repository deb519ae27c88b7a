"""Private records in parts of a table, each read where it is summed.

`SpreadRecords.total` lets an engine ask each part, which is read there, and adds what
comes back by the place of the part. A part that was computed twice, because a worker
died, is added once. The noise is drawn once, where `total` was called, and the bits are
the same for any parts and workers. The codes of a part's records are made where it is
read, from its own labels and the public list of classes: each record's code depends on
that record alone.

A selection among public rows is the other way round: there are many more of those, and
one table of private records. The score of a public row is a sum over all records, so
each piece of the public rows is scored by itself, and what is kept of it is a tally
(`mechanisms.Tally`). `each` applies a function to all records and each of several
public items. Where an engine does that, each of its processes reads all parts once and
keeps their lattice rows.

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
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain
from typing import Any, ClassVar, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dppl.engines import Engine
from dppl.errors import EngineError, InputError, ParameterError
from dppl.kernel import persons, reading
from dppl.kernel.lattice.stream import CACHE_BYTES, RowSource, iter_blocks, take_rows
from dppl.kernel.measure import Measure
from dppl.kernel.queries.base import Query
from dppl.kernel.reading import Codes
from dppl.kernel.records import HeldRecords, Int64, Item, Value

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
        CACHE.clear()

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
        pieces = list(chain.from_iterable(self.parts))
        apply = partial(self.reader.values, pieces, function)
        for place, values in once_each(self.engine, apply, items):
            for value in values:
                yield place, value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartReader:
    """Reads parts and adds over them in whatever process an engine chooses."""

    classes: NDArray[Any]  # shape (n_classes,); the sorted public list of classes
    unknown_labels: str  # this and `adjacency` as in the estimator
    adjacency: str
    allowed: Codes | None = (
        None  # positions of the classes that a task may hold; None is all
    )
    several: Any = None  # how labels are given, where a record may have several
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
            return self._records(place, pieces).value(query, **at)

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
        if any(other != self.fit for other, _ in list(CACHE)):
            CACHE.clear()
        held = CACHE.get((self.fit, place))
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
                chosen: Any = slice(None)
                if piece.chosen is not None:
                    chosen = piece.chosen
                    few = take_rows(few, chosen)
                rows.append(few)
                codes.append(counted[chosen])
                if known is not None:
                    sets.append(known[chosen])
                if piece.numbers is not None:
                    numbers.append(piece.numbers)
            held = HeldRecords(
                rows[0] if len(rows) == 1 else _Chain(rows),
                np.concatenate(codes),
                label_sets=np.concatenate(sets) if sets else None,
            )
            if numbers:
                whose = np.concatenate(numbers)
                held.codes[whose < 0] = -1
                few_numbers = np.unique(whose, return_inverse=True)[1]
                held = persons.entered(
                    held,
                    few_numbers,
                    len(self.classes),
                    self.max_classes,
                    whole=self.whole_persons,
                )
            # A byte a number: what their lattice rows take. The first are kept, as all
            # come in the same order.
            sizes = [
                len(one.codes) * int(one.rows.shape[1])
                for one in (held, *list(CACHE.values()))
            ]
            if place == _ALL or sum(sizes) <= CACHE_BYTES:
                CACHE[self.fit, place] = held
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
    pieces = [public]
    if hasattr(public, "fragments"):
        pieces = public.fragments(_PIECE_ROWS)
    for fragment in pieces:
        if not runs or fragment.shape[0] > room:
            runs.append([])
            room = _PIECE_ROWS
        runs[-1].append(fragment)
        room -= fragment.shape[0]
    return [_Chain(run) for run in runs]


# The parts of one fit, by a name that no other fit has, in whatever thread or process
# it runs, and by their places. All of them at once are kept whatever their size, since
# each task needs them.
CACHE: dict[tuple[str, int], HeldRecords] = {}
_ALL = -1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateParts:
    """A labelled table in parts, of which only sums come back to this process."""

    parts: Sequence[Part]
    n_features: int
    engine: Engine
    several: Any = None  # this and `ids` as in `PrivateTable`
    ids: NDArray[Any] | None = None
    measure: ClassVar = Measure

    def account(self, ledger: Any, partition: str | None, plan: Any) -> Any:
        """Return what pays: the ledger of the fit, if it has one."""
        return ledger

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse fits that need all records in one place, and an engine that does not work."""
        if strict:
            raise ParameterError(
                "looks at all records before it asks, so not with a table in parts.",
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
        return SpreadRecords(self.pieces_by_part(), self.engine, reader, stream)

    def pieces_by_part(self) -> list[list[Piece]]:
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


def private_parts(
    X: Any, y: Any, groups: Any, *, max_classes: int | None, several: Any
) -> PrivateParts:
    """Check the form of a table in parts (`Parted`), and look at no value."""
    if y is not None:
        raise InputError("y must be left out: the parts of X hold their own labels.")
    if not X.labelled:
        raise InputError("X has no labels in its parts; name their column or file.")
    n_rows = 0
    if groups is not None:
        n_rows = sum(part.n_rows for part in X.parts)
    ids = persons.ids_of_fit(groups, np.empty((n_rows, 0)), max_classes)
    return PrivateParts(X.parts, X.n_features, X.engine, several, ids)
