"""Selection among public rows: the exponential mechanism over sums of clipped similarities with private rows."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate, chain, groupby
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.progress import PATIENCE, progress
from dppl.errors import InputError
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.lattice.similarities import (
    PUBLIC_ROWS,
    SimilarityClip,
    each_utilities,
    utilities,
)
from dppl.kernel.mechanisms.exponential import ExponentialMechanism, Requests, Tally
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import OwnAnswer
from dppl.kernel.reading import Codes
from dppl.kernel.records import HeldRecords, Records

Int64 = NDArray[np.int64]

# Memory for the tallies of all parts of the public rows. With more parts, fewer rows
# are scored a second time.
_TALLY_BYTES = 1 << 25
# Memory for rows and utilities in the second pass.
_LOOK_BYTES = 1 << 23
_MAPPED_ROWS = 4096


@dataclass(frozen=True)
class Selection(OwnAnswer):
    """Positions of public rows for each class, by the exponential mechanism.

    The utility of a public row for a class is the sum of its similarities with the
    private rows of the class, clipped to integers between two bounds. A record belongs
    to one class and changes each utility of that class by at most the sensitivity of
    the clip, all in the same direction under add-remove.
    """

    lattice: Lattice
    n_classes: int
    n_selected: int
    bounds: tuple[float, float]  # on 1 + cosine
    repeats = False
    selects = True

    @property
    def clip(self) -> SimilarityClip:
        """The bounds on products of lattice rows."""
        low, high = self.bounds
        square = self.lattice.squared_norm
        return SimilarityClip(
            low=math.floor((low - 1) * square), high=math.ceil((high - 1) * square)
        )

    @property
    def statistic(self) -> Term[Statistic]:
        """The positions, with their number."""
        return Term(
            Statistic.PUBLIC_POSITIONS,
            n_selected=self.n_selected,
            n_classes=self.n_classes,
        )

    @property
    def squared_norm(self) -> Fraction:
        """Squared sensitivity of a utility."""
        return Fraction(self.clip.sensitivity) ** 2

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> ExponentialMechanism:
        """Return the exponential mechanism that spends the budget."""
        return ExponentialMechanism.within(
            budget, self.clip.sensitivity, self.n_selected, adjacency=relation
        )

    def answer(
        self, mechanism: Any, records: Records, source: Randomness, *, public: RowSource
    ) -> Int64:
        """Return positions among the public rows, shape (n_classes, n_selected)."""
        empty = mechanism.tally(np.empty((self.n_classes, 0), np.int64))
        # The size of a tally does not depend on its number of rows.
        n_parts = max(1, _TALLY_BYTES // (4 * empty.counts.size + empty.best.nbytes))
        part_rows = PUBLIC_ROWS * math.ceil(public.shape[0] / (PUBLIC_ROWS * n_parts))
        scores = _Scores(
            self.lattice, self.n_classes, self.clip, mechanism, empty, part_rows
        )
        # Each piece is scored in parts, with a tally for each. Where the private table
        # is read in parts, the workers also read the files of public rows.
        pool = [public]
        if not isinstance(records, HeldRecords):
            from dppl.kernel.parts import pieces

            pool = pieces(public)
        first_rows = [0, *accumulate(piece.shape[0] for piece in pool)]
        first_parts = [0, *accumulate(scores.n_parts(piece.shape[0]) for piece in pool)]
        scored = dict(records.each(scores.tallies, pool))
        tallies, hashes = zip(
            *(scored[place] for place in range(len(pool))), strict=True
        )

        def look(requests: Requests) -> Iterator[tuple[int, int, Int64, Int64]]:
            by_piece: dict[int, Requests] = {}
            for part, classes in requests.items():
                place = bisect_right(first_parts, part) - 1
                by_piece.setdefault(place, {})[part - first_parts[place]] = classes
            places = list(by_piece)
            items = [(pool[place], by_piece[place], hashes[place]) for place in places]
            for item, (code, part, few, positions) in records.each(scores.look, items):
                place = places[item]
                yield (
                    code,
                    part + first_parts[place],
                    few,
                    positions + first_rows[place],
                )

        selected: Int64 = mechanism.select_each(
            list(chain.from_iterable(tallies)), look, source
        )
        return selected


class RowsByClass:
    """Lattice rows sorted by class, and the class sizes; records of code -1 are left out."""

    def __init__(
        self, lattice: Lattice, source: RowSource, codes: Codes, n_classes: int
    ) -> None:
        counted = codes >= 0
        places = np.empty(len(codes), np.intp)
        places[np.argsort(codes, kind="stable")] = np.arange(
            len(codes)
        ) - np.count_nonzero(~counted)
        self.rows = np.empty((np.count_nonzero(counted), lattice.dim), np.int8)
        start = 0
        for block in lattice.blocks(source, _MAPPED_ROWS):
            part = slice(start, start + len(block))
            self.rows[places[part][counted[part]]] = block[counted[part]]
            start += len(block)
        self.sizes: list[int] = np.bincount(
            codes[counted], minlength=n_classes
        ).tolist()

    def digest(self) -> bytes:
        """Return a hash that shows whether the second pass reads the same records."""
        return sha256(self.rows.tobytes() + repr(self.sizes).encode()).digest()


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Scores of pieces of the public rows. It holds public parameters only, so workers may have it."""

    lattice: Lattice
    n_classes: int
    clip: SimilarityClip
    mechanism: ExponentialMechanism
    empty: Tally
    part_rows: int

    def n_parts(self, rows: int) -> int:
        return math.ceil(rows / self.part_rows)

    def tallies(
        self, records: HeldRecords, piece: RowSource
    ) -> Iterator[tuple[list[Tally], list[bytes]]]:
        """Yield the tallies of the parts of a piece, and hashes of their lattice rows."""
        private = self._by_class(records)
        n_public = piece.shape[0]
        parts = [self.empty] * self.n_parts(n_public)
        lock = Lock()

        def count(start: int, block: Int8, few: Int64) -> None:
            usable = _usable(block)
            part = start // self.part_rows
            tally = self.mechanism.tally(few if usable.all() else few[:, usable])
            with lock:  # sums of integers: their order does not matter
                parts[part] = Tally.merged([parts[part], tally])
                advance(len(block))

        hashes: defaultdict[int, Any] = defaultdict(sha256)
        blocks = (block for _, block in self._blocks(piece, range(len(parts)), hashes))
        with progress("selecting", n_public, delay=PATIENCE) as advance:
            each_utilities(
                private.rows,
                private.sizes,
                blocks,
                n_public,
                self.lattice,
                self.clip,
                count,
            )
        yield (
            parts,
            [*(hashes[part].digest() for part in range(len(parts))), private.digest()],
        )

    def look(
        self, records: HeldRecords, item: tuple[RowSource, Requests, list[bytes]]
    ) -> Iterator[tuple[int, int, Int64, Int64]]:
        """Yield the candidates of the requested bins; parts and positions count within the piece.

        Changed rows, public or private, are an error: the bins were drawn from the
        old scores, and a candidate found by the new ones would reveal private bins.
        """
        piece, requests, before = item
        private = self._by_class(records)
        if private.digest() != before[-1]:
            raise InputError("the records changed while they were read.")
        by_class = np.split(private.rows, np.cumsum(private.sizes)[:-1])
        hashes: defaultdict[int, Any] = defaultdict(sha256)

        def held(block: tuple[int, Any]) -> tuple[int, int]:
            part, offset = divmod(block[0], self.part_rows)
            return part, offset * (
                self.lattice.dim + 8 * len(requests[part])
            ) // _LOOK_BYTES

        for (part, _), group in groupby(self._blocks(piece, requests, hashes), held):
            starts, blocks = zip(*group, strict=True)
            usable = np.flatnonzero(
                np.concatenate([_usable(block) for block in blocks])
            )
            size = sum(map(len, blocks))
            few = utilities(
                [by_class[code] for code in requests[part]],
                blocks,
                size,
                self.lattice,
                self.clip,
            )
            for (code, bins), scores in zip(requests[part].items(), few, strict=True):
                sought = usable[self.mechanism.is_sought(scores[usable], bins)]
                yield code, part, scores[sought], starts[0] + sought
        if any(hashes[part].digest() != before[part] for part in requests):
            raise InputError("the public rows changed while they were read.")

    def _by_class(self, records: HeldRecords) -> Any:
        """Return the private lattice rows; each process maps them once."""
        if records.by_class is None:
            records.by_class = RowsByClass(
                self.lattice, records.rows, records.codes, self.n_classes
            )
        return records.by_class

    def _blocks(
        self, piece: RowSource, parts: Collection[int], hashes: defaultdict[int, Any]
    ) -> Iterator[tuple[int, Int8]]:
        """Yield the position and lattice rows of each block, and hash the rows of each part; no block crosses parts."""
        start = 0
        for block in iter_blocks(piece, PUBLIC_ROWS):
            edge = -start % PUBLIC_ROWS  # a table may yield blocks of any size
            for rows in (block[:edge], block[edge:]):
                if len(rows) and start // self.part_rows in parts:
                    mapped = self.lattice.transform(rows)
                    hashes[start // self.part_rows].update(mapped.data)
                    yield start, mapped
                start += len(rows)


def _usable(block: Int8) -> NDArray[np.bool_]:
    """Mark the candidates; a damaged public row maps to zero and is none."""
    return np.asarray(block.any(axis=1))
