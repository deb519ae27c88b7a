"""Private records in one place, as what a fit reads and as integers that add.

Before its noise, most of what dppl releases is a sum over records of integers that each
record decides by itself. So a query is a pure function with f(all records) = f(first
part) + f(second part) + ..., exactly and in any order. `HeldRecords.total` maps the
rows to the lattice and hands them down to it, with the class codes. Records elsewhere
answer alike: in parts (`dppl.kernel.parts`), or at institutions that add their own
noise (`dppl.federation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from dppl.engines import Engine, LocalEngine
from dppl.kernel import reading
from dppl.kernel.lattice.lattice import Int8, Lattice
from dppl.kernel.lattice.stream import (
    BLOCK_ROWS,
    LatticeRows,
    RowSource,
    TensorRows,
    iter_blocks,
    take_rows,
)
from dppl.kernel.measure import Measure
from dppl.kernel.queries.base import Query
from dppl.kernel.reading import Codes

if TYPE_CHECKING:
    from dppl.kernel.parts import SpreadRecords

Int64 = NDArray[np.int64]
Item = TypeVar("Item")
Value = TypeVar("Value")

# Private records, seen through sums over them.
Records: TypeAlias = "HeldRecords | SpreadRecords"


@runtime_checkable
class Parted(Protocol):
    """A labelled table in parts (`dppl.io.PartedTable` is one)."""

    metadata: Mapping[str, str]  # what the table says of itself
    parts: Sequence[Any]  # of `dppl.kernel.parts.Part`, at least one
    labelled: bool  # whether the parts hold labels
    n_features: int
    engine: Engine  # where the parts are read and summed


@runtime_checkable
class PrivateData(Protocol):
    """What a fit was given: a table, parts of one, or institutions (`dppl.federation.Federation`)."""

    @property
    def measure(self) -> Callable[[Any, Any, int | None], Measure]:
        """What makes the counter of a fit, of its measurements, `records` and seed."""

    @property
    def n_features(self) -> int:
        """Width of the rows."""

    @property
    def ids(self) -> Any:
        """Of persons; None where records are what is protected."""

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse fits that these data cannot serve, by shapes and kinds alone."""

    def account(self, ledger: Any, partition: str | None, plan: Any) -> Any:
        """Return what pays: the ledger of the fit, or those of institutions."""

    def records(self, *args: Any, **options: Any) -> Any:
        """Return what was charged, which answers queries."""


@runtime_checkable
class Elsewhere(Protocol):
    """Records that are not arrays of this process: in parts of a table, or at institutions."""

    def private_data(
        self, y: Any, groups: Any, *, max_classes: int | None, several: Any
    ) -> PrivateData:
        """Check the shapes and kinds of what a fit was given, and look at no value."""


@dataclass(slots=True, eq=False, repr=False)
class HeldRecords:
    """Records in this process: all of them, or of a part where it is read."""

    rows: RowSource  # shape (n, d)
    codes: Codes  # shape (n,); class of each record; -1 for those that do not count
    # Whose they are (`WholePersons`), where persons enter with all of their records.
    persons: Any = None
    # What a stream keeps of earlier tasks (`dppl.kernel.queries.correlated`).
    stream: Any = field(default=None, repr=False)
    # Shape (n, n_classes); the labels of each record, where it may have several. All
    # that count have the code 0 then.
    label_sets: NDArray[np.bool_] | None = None
    # The lattice rows as selections have them.
    by_class: Any = field(default=None, init=False, repr=False)
    # Of the last lattice.
    _mapped: LatticeRows | None = field(default=None, init=False, repr=False)
    # Of a sample: all records, and which of them are in it.
    _whole: tuple[HeldRecords, NDArray[np.bool_]] | None = field(
        default=None, init=False, repr=False
    )

    def kept_blocks(self, lattice: Lattice) -> Iterable[Int8]:
        """Return the lattice rows in blocks, for queries that are asked often; kept for the last lattice."""
        if self._whole is not None:
            whole, mask = self._whole
            return _masked(whole.kept_blocks(lattice), mask)
        if self._mapped is None or self._mapped.lattice.name != lattice.name:
            in_memory = isinstance(
                self.rows, np.ndarray | TensorRows
            ) and not isinstance(self.rows, np.memmap)
            if in_memory:
                kept = list(lattice.blocks(self.rows, BLOCK_ROWS))
            else:
                kept = []
            self._mapped = LatticeRows(lattice, self.rows, kept)
        return self._mapped

    def total(self, query: Query, **released: Any) -> Int64:
        """Return the value of a query of these records."""
        return self.value(query, **query.checked(**released))

    def value(
        self, query: Query, *, lattice: Lattice | None = None, **at: Any
    ) -> Int64:
        """Return the value of a query at what it has checked: rows are mapped here, and go down."""
        lattice = lattice or getattr(query, "lattice", None)
        blocks: Iterable[Any]
        if lattice is None:
            blocks = iter_blocks(self.rows, BLOCK_ROWS)
        elif query.keeps_rows or self._whole is not None:
            blocks = self.kept_blocks(lattice)
        else:
            blocks = lattice.blocks(self.rows)
        if self.persons is not None:  # a query that does not share among them fails
            at["persons"] = self.persons
        if query.reads_label_sets:
            at["label_sets"] = self.label_sets
        return query.exact(blocks, self.codes, **at)

    def each(
        self,
        function: Callable[[HeldRecords, Item], Iterable[Value]],
        items: Sequence[Item],
    ) -> Iterator[tuple[int, Value]]:
        """Yield what `function` yields of these records and each of the items, with the place of the item."""
        for place, item in enumerate(items):
            for value in function(self, item):
                yield place, value

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
        if self.label_sets is None:
            return None
        return self.label_sets[mask]


def _masked(blocks: Iterable[Int8], mask: NDArray[np.bool_]) -> Iterator[Int8]:
    start = 0
    for block in blocks:
        yield block[mask[start : start + len(block)]]
        start += len(block)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateTable:
    """What a fit was given in one place: of rows, labels and ids only shapes and kinds have been looked at."""

    rows: RowSource
    labels: NDArray[Any]
    ids: NDArray[Any] | None = None  # of persons
    # How labels are given (`MultiLabel`), where a record may have several.
    several: Any = None
    engine: Engine = field(default_factory=LocalEngine)
    measure: ClassVar = Measure

    @property
    def n_features(self) -> int:
        """Width of the rows."""
        return int(self.rows.shape[1])

    def account(self, ledger: Any, partition: str | None, plan: Any) -> Any:
        """Return what pays: the ledger of the fit, if it has one."""
        return ledger

    def check(self, *, needs_rows: bool, strict: bool, classes: NDArray[Any]) -> None:
        """Refuse labels of another kind than the classes."""
        if self.several is not None:
            self.several.read(self.labels[:0], classes)  # compares shapes and kinds
        else:
            reading.check_kind(self.labels, classes)

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
        if unknown_labels == "strict":
            from dppl.kernel.checking import refuse_unusable

            refuse_unusable(self, classes if allowed is None else classes[allowed])
            unknown_labels = "error"
        rules = classes, unknown_labels, adjacency, allowed, self.several
        codes, sets = reading.read_labels(self.rows, self.labels, *rules)
        held = HeldRecords(self.rows, codes, None, stream, sets)
        if self.ids is None:
            return held
        from dppl.kernel import persons

        numbers = persons.person_codes(self.ids)
        entered: HeldRecords = persons.entered(
            held, numbers, len(classes), max_classes, whole=whole_persons
        )
        return entered


def private_data(
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    max_classes: int | None = None,
    several: Any = None,
) -> PrivateData:
    """Check the shapes and kinds of what a fit was given, and look at no value."""
    if isinstance(X, Elsewhere):
        return X.private_data(y, groups, max_classes=max_classes, several=several)
    rows, labels = reading.checked_inputs(X, y, several)
    ids = None
    if groups is not None or max_classes is not None:
        from dppl.kernel.persons import ids_of_fit

        ids = ids_of_fit(groups, rows, max_classes)
    return PrivateTable(rows, labels, ids, several)
