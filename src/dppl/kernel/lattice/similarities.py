"""Exact utilities of public rows: sums of clipped products with the private rows of each class.

Every dot product of lattice rows is an integer of magnitude at most s², and partial
sums stay where floats hold integers exactly, as in `kernels`.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.lattice import Int8, Lattice
from dppl.kernel.lattice.stream import compiled_kernels, cut, in_order

Int64 = NDArray[np.int64]

# Products of so many private and public rows stay near a core and keep BLAS near its
# peak. No result depends on these numbers.
_TILES: dict[type[Any], tuple[int, int]] = {
    np.float32: (1024, 2048),
    np.float64: (1024, 1024),
}
PUBLIC_ROWS = 2048
# NumPy takes as long for so many multiplications as for mapping one number.
_MULTIPLICATIONS_A_MAP = 400
# Up to here sums of integers are exact.
_EXACT: dict[type[Any], int] = {np.float32: 2**24, np.float64: 2**53}


@dataclass(frozen=True, slots=True)
class SimilarityClip:
    """Bounds on an integer similarity q·p, in squared lattice steps (s² is a cosine of 1)."""

    low: int
    high: int

    @property
    def sensitivity(self) -> int:
        """What one private row can add to a utility: between 0 and this."""
        return self.high - self.low

    def touches_nothing(self, lattice: Lattice) -> bool:
        """Whether no similarity of two lattice rows lies outside the bounds."""
        return self.high >= lattice.squared_norm and self.low <= -lattice.squared_norm


def utilities(
    private: Sequence[Int8],
    public: Iterable[Int8],
    n_public: int,
    lattice: Lattice,
    clip: SimilarityClip,
) -> Int64:
    """Return ``U[c, j] = sum over rows q of class c of clip(q·p_j, low, high) - low``, exactly.

    Every row adds an integer between 0 and ``clip.sensitivity``, so U never falls when
    rows are added. `private` holds the lattice rows of each class, and `public` comes
    in blocks. Only the result grows with the number of public rows.
    """
    out = np.zeros((len(private), n_public), np.int64)

    def keep(start: int, block: Int8, few: Int64) -> None:
        out[:, start : start + len(block)] = few

    each_utilities(
        np.concatenate(private),
        list(map(len, private)),
        public,
        n_public,
        lattice,
        clip,
        keep,
    )
    return out


def each_utilities(
    private: Int8,
    sizes: Sequence[int],
    public: Iterable[Int8],
    n_public: int,
    lattice: Lattice,
    clip: SimilarityClip,
    visit: Callable[[int, Int8, Int64], None],
) -> None:
    """Pass each block, its position and `utilities` to `visit`, on several threads; `private` is sorted by class."""
    ends = np.cumsum(sizes)
    score: Callable[[Int8], Int64]
    largest = max(math.ceil(lattice.squared_norm), abs(clip.low), abs(clip.high))
    if clip.touches_nothing(lattice):
        score = _LinearScore(private, ends, lattice, clip)
    elif largest < 2**31 and (
        compiled := compiled_kernels(private.size * n_public // _MULTIPLICATIONS_A_MAP)
    ):
        codes = np.repeat(np.arange(len(sizes)), sizes)

        def score(block: Int8) -> Int64:
            return np.asarray(
                compiled.clipped_sums(
                    private, codes, block, len(sizes), clip.low, clip.high
                )
            )

    else:
        score = _ClippedScore(
            private,
            ends,
            clip,
            np.float32 if lattice.squared_norm < 2**24 else np.float64,
        )

    def scored(item: tuple[int, Int8]) -> None:
        start, block = item
        visit(start, block, score(block))

    for _ in in_order(scored, cut(public)):
        pass


class _ClippedScore:
    """Utilities of a block of public rows by products, clipping and exact partial sums."""

    def __init__(
        self, rows: Int8, ends: Int64, clip: SimilarityClip, dtype: type[Any]
    ) -> None:
        self.dtype, (self.tile, self.width) = dtype, _TILES[dtype]
        self.exact_rows = max(
            1, min(self.tile, _EXACT[dtype] // max(abs(clip.low), abs(clip.high), 1))
        )
        self.rows = rows
        self.ends = ends.tolist()
        self.clip = clip

    def __call__(self, public: Int8) -> Int64:
        starts = range(0, max(1, len(public)), self.width)
        return np.concatenate(
            [self._tiled(public[start : start + self.width]) for start in starts],
            axis=1,
        )

    def _tiled(self, public: Int8) -> Int64:
        out = np.zeros((len(self.ends), len(public)), np.int64)
        low = self.dtype(self.clip.low)
        high = self.dtype(self.clip.high)
        columns = np.ascontiguousarray(public.T, self.dtype)
        ones = np.ones((1, self.exact_rows), self.dtype)
        # Memory that every tile uses again: new pages cost more than the arithmetic.
        wide, product = (
            np.empty((self.tile, n), self.dtype) for n in (len(columns), len(public))
        )
        for start in range(0, len(self.rows), self.tile):
            rows = self.rows[start : start + self.tile]
            wide[: len(rows)] = rows
            np.matmul(wide[: len(rows)], columns, out=product[: len(rows)])
            for code, first, last in self._runs(start, start + len(rows)):
                few = product[first - start : last - start]
                np.clip(few, low, high, out=few)
                out[code] += (ones[:, : len(few)] @ few)[0].astype(np.int64)
        sizes = np.diff(self.ends, prepend=0)
        out -= sizes[:, None] * self.clip.low
        return out

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Cut rows [start, stop) into ``(class, first, last)`` runs whose similarities add up exactly."""
        code = bisect_right(self.ends, start)
        while start < stop:
            end = min(stop, self.ends[code], start + self.exact_rows)
            if end > start:
                yield code, start, end
            start = end
            code += start == self.ends[code]


class _LinearScore:
    """Without clipping, the similarities of a class add up to one product with the sum of its rows."""

    def __init__(
        self, rows: Int8, ends: Int64, lattice: Lattice, clip: SimilarityClip
    ) -> None:
        self.sums: Any = np.stack(
            [
                rows[start:end].sum(axis=0, dtype=np.int64)
                for start, end in pairwise([0, *ends])
            ]
        )
        self.offsets = np.diff(ends, prepend=0)[:, None] * clip.low
        # |sum·p| ≤ n·s², which float64 holds exactly below 2⁵³; beyond, integers are
        # slow but right.
        if len(rows) * lattice.squared_norm < 2**53:
            self.sums = self.sums.astype(np.float64)

    def __call__(self, public: Int8) -> Int64:
        return np.asarray(
            (self.sums @ public.astype(self.sums.dtype).T).astype(np.int64)
            - self.offsets
        )
