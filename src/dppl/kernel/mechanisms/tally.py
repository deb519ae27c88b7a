"""Counts of candidates by utility: what an exact selection keeps of candidates that it does not hold.

A tally is a function of the utilities alone. Merging tallies in any order and grouping gives the tally of all their
candidates, as integers; no randomness and no float enters one. So parts of a pool may be tallied in any process, and
whoever draws merges them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

# Stands for a best candidate where there are too few; no utility is as low.
NONE = -(2**62)


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How many of some candidates lie in each bin, for several classes with utilities of their own.

    A bin is an interval of utilities with a number; better candidates have higher ones. Bins far below the `size`-th
    best are counted together: they are below the window of any larger set of candidates too, whose `size`-th best is
    no worse. This is why a merge forgets nothing that the tally of the whole set holds.

    Parameters
    ----------
    n : int
        Number of candidates, the same for all classes.
    best : ndarray of shape (n_classes, size), int64
        The bins of the best candidates, in descending order, filled up with `NONE`.
    counts : ndarray of shape (n_classes, width + 1), unsigned
        Number of candidates that lie i bins below the last of `best`, and in the last column of all that lie further
        down. Candidates above it are all in `best`.
    """

    n: int
    best: Int64
    counts: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, bins: Int64, size: int, width: int) -> Tally:
        """Count candidates.

        Parameters
        ----------
        bins : ndarray of shape (n_classes, n), int64
        size, width : int
        """
        best = _best(bins, size)
        # Candidates above the last of the best go to a column of their own, which is dropped.
        depths = best[:, -1:] - bins
        np.clip(depths, -1, width, out=depths)
        depths += 1
        counts = _count(depths, width + 2)[:, 1:]
        return cls(bins.shape[1], best, _compact(counts, bins.shape[1]))

    @classmethod
    def merged(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the tally of the candidates of all."""
        return functools.reduce(cls._with, tallies)

    def _with(self, other: Tally) -> Tally:
        n, size, width = self.n + other.n, self.best.shape[1], self.counts.shape[1] - 1
        best = _best(np.hstack([self.best, other.best]), size)
        counts = self._below(best, width) + other._below(best, width)
        return Tally(n, best, _compact(counts, n))

    def _below(self, best: Int64, width: int) -> Int64:
        """Count the candidates by how far they lie below the last of other, better bins."""
        last = best[:, -1:]
        # Of candidates without a number, in the last column, it is known that they lie below that window as well.
        fall = np.minimum(last - self.best[:, -1:], width)
        depths = np.minimum(np.arange(width + 1) + fall, width)
        counts = _count(depths, width + 1, self.counts)
        above = (self.best > self.best[:, -1:]) & (self.best <= last)
        rows, columns = np.nonzero(above)
        np.add.at(counts, (rows, np.minimum(last[rows, 0] - self.best[rows, columns], width)), 1)
        return counts


@dataclass(frozen=True, slots=True)
class Stratum:
    """Neighbouring bins whose candidates are counted together: one bin, or all below the window."""

    lowest: int  # lowest, highest: its bins
    highest: int
    count: int  # number of its candidates


def strata(whole: Tally, code: int) -> list[Stratum]:
    """Return the strata of a class that hold candidates, best first."""
    best, counts = whole.best[code], whole.counts[code]
    last, width = int(best[-1]), len(counts) - 1
    above, times = np.unique(best[best > last], return_counts=True)
    inside = np.flatnonzero(counts[:width])
    bins = [*above[::-1].tolist(), *(last - inside).tolist()]
    found = [Stratum(*pair) for pair in zip(bins, bins, [*times[::-1].tolist(), *counts[inside].tolist()], strict=True)]
    return found + [Stratum(NONE, last - width, int(counts[width]))] * bool(counts[width])


class Places:
    """Where the candidates of one class lie, in parts of a pool in the order of positions."""

    def __init__(self, parts: Sequence[Tally], code: int) -> None:
        self._n = np.array([part.n for part in parts])
        self._best = np.stack([part.best[code] for part in parts])
        counts = np.stack([part.counts[code] for part in parts])
        self._width = counts.shape[1] - 1
        self._above = np.zeros(counts.shape, np.int64)
        np.cumsum(counts[:, : self._width], axis=1, out=self._above[:, 1:])

    def find(self, lowest: int, highest: int, ordinal: int) -> tuple[int, int]:
        """Return the part of a candidate, and how many others of its bins stand before it in that part.

        The bins from `lowest` to `highest` are whole strata of the whole pool, and the windows of parts reach at least
        as far down. `ordinal` counts all candidates of these bins, in the order of positions.
        """
        fewer = self._n if lowest == NONE else self._better(lowest - 1)
        ends = np.cumsum(fewer - self._better(highest))
        part = int(np.searchsorted(ends, ordinal, side="right"))
        return part, ordinal - (int(ends[part - 1]) if part else 0)

    def _better(self, bin: int) -> Int64:
        """Return how many candidates of each part lie above a bin."""
        last = self._best[:, -1]
        inside = np.clip(last - bin, 0, self._width)
        above = (self._best > np.maximum(last, bin)[:, None]).sum(axis=1)
        return np.asarray(self._above[np.arange(len(last)), inside] + above)


def _best(bins: Int64, size: int) -> Int64:
    """Return the largest `size` of each row, in descending order, filled up with `NONE`."""
    n = bins.shape[1]
    if size == 1 and n:
        return np.asarray(bins.max(axis=1, keepdims=True))
    largest = np.partition(bins, n - size, axis=1)[:, n - size :] if n > size else bins
    found = np.full((len(bins), size), NONE)
    found[:, : largest.shape[1]] = np.sort(largest, axis=1)[:, ::-1]
    return found


def _count(columns: Int64, width: int, weights: NDArray[np.unsignedinteger] | None = None) -> Int64:
    """Count how often each row holds each number below `width`; sums of weights stay below 2⁵³ and exact.

    The array of columns is used up.
    """
    columns += width * np.arange(len(columns))[:, None]
    flat = None if weights is None else weights.ravel()
    counts = np.bincount(columns.ravel(), flat, len(columns) * width).reshape(len(columns), width)
    return counts.astype(np.int64, copy=False)


def _compact(counts: Int64, n: int) -> NDArray[np.unsignedinteger]:
    return counts.astype(np.min_scalar_type(n))
