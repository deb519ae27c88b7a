"""Joint clipping: all records of a person together add no more than one record may.

A person's records add Σ Rᵢ⊗qᵢ, with integer residuals of |Rᵢ| ≤ r = `RESOLUTION` and
lattice rows of |qᵢ| ≤ s. The squared norm of that is N² = Σᵢⱼ (Rᵢ·Rⱼ)(qᵢ·qⱼ), an
integer. Each of the m residuals becomes trunc(Rᵢ·w/2²⁰) with one integer w a person.
Cutting off moves a residual by less than √C in C classes, so the new norm is at most
N·w/2²⁰ + m·√C·s, and at most r·s if w/2²⁰ ≤ s·(r - m·√C)/N. By the triangle inequality
w = ⌊2²⁰/m⌋ is valid, too, whatever the records are. The bound holds for each query by
itself, whatever was asked before.

Below that limit w is free, and chosen for utility: w/2²⁰ = D/N² at most, with D = Σᵢ
|Rᵢ|²|qᵢ|². As N²/D is 1 for orthogonal records and m for equal ones, m equal records
count as one, and orthogonal ones in full.

N² and D are exact in 64 bits: products Rᵢ·Rⱼ ≤ 2⁴⁰ are split at 2²⁰, and s² < 2²⁹ for
the widest rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.lattice import Int8, Lattice
from dppl.kernel.lattice.residuals import WEIGHT_STEPS
from dppl.kernel.privacy.sensitivity import RESOLUTION

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]

# Up to this many records of a person, N² is computed from their Gram matrices:
# m²·2²⁰·s² stays below 2⁶³ ...
PAIRED = 128
# ... and up to this many, from their sum. Persons with more get w = ⌊2²⁰/m⌋.
SUMMED = 2**14
# Weights are lowered by this share, which is far above any rounding error.
_CAUTION = 1e-9
# About so many rows are collected at a time, until their persons are complete.
_COLLECTED_ROWS = 1 << 15
_SPLIT = 20
_LOW = 2**20 - 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Persons:
    """The records that count, ordered by person."""

    order: NDArray[np.intp]  # shape (n,); their positions among all records
    sizes: Int64  # shape (n_pieces,); how many records the person of each piece has
    ends: Int64  # shape (n_pieces,); where pieces of `order` end: a person, or a part of one with more than `SUMMED`
    places: NDArray[
        np.intp
    ]  # shape (n_records,); the place in `order` of each record, -1 of those that do not count

    @classmethod
    def of(cls, counted: NDArray[np.bool_], numbers: NDArray[np.intp]) -> Persons:
        """Order records by the numbers of their persons."""
        order = np.flatnonzero(counted)
        order = order[np.argsort(numbers[order], kind="stable")]
        places = np.full(len(counted), -1, np.intp)
        places[order] = np.arange(len(order))
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        pieces = -(-sizes // SUMMED)
        within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        ends = np.repeat(starts, pieces) + np.minimum(
            (within + 1) * SUMMED, np.repeat(sizes, pieces)
        )
        return cls(order, np.repeat(sizes, pieces), ends, places)

    def blocks(self, blocks: Iterable[Int8], size: int) -> Iterator[tuple[int, Int8]]:
        """Yield blocks of about `size` rows in this order, which cut no piece, each after the place of its first row.

        `blocks` come in the order of the records. Rows are held, a byte a number, until
        their persons are complete.
        """
        limits = self._cut(
            0, int(self.ends[-1]) if len(self.ends) else 0, _COLLECTED_ROWS
        )
        missing = np.diff(limits)
        held: dict[int, Int8] = {}
        start = 0
        for block in blocks:
            places = self.places[start : start + len(block)]
            start += len(block)
            counted = np.flatnonzero(places >= 0)
            homes = np.searchsorted(limits, places[counted], "right") - 1
            in_turn = np.argsort(homes, kind="stable")
            begins = np.flatnonzero(np.diff(homes[in_turn], prepend=-1))
            for home, turn in zip(
                homes[in_turn[begins]].tolist(),
                np.split(in_turn, begins[1:]),
                strict=False,
            ):
                first, last = limits[home : home + 2].tolist()
                if home not in held:
                    held[home] = np.empty((last - first, block.shape[1]), np.int8)
                held[home][places[counted[turn]] - first] = block[counted[turn]]
                missing[home] -= len(turn)
                if not missing[home]:
                    rows = held.pop(home)
                    cuts = self._cut(first, last, size)
                    for low, high in zip(
                        cuts[:-1].tolist(), cuts[1:].tolist(), strict=True
                    ):
                        yield low, rows[low - first : high - first]

    def _cut(self, first: int, last: int, size: int) -> Int64:
        """Return limits from `first` to `last` that lie between pieces, at most `size` apart where pieces allow."""
        limits = [first]
        while limits[-1] < last:
            place = np.searchsorted(self.ends, min(limits[-1] + size, last), "right")
            end = int(self.ends[place - 1]) if place else 0
            limits.append(end if end > limits[-1] else int(self.ends[place]))
        return np.array(limits, np.int64)

    def clipped(
        self,
        steps: Any,
        rows: Int8,
        first: int,
        lattice: Lattice,
        kernels: ModuleType | None,
    ) -> Any:
        """Scale integer residuals, one column a row, so that a person adds no more than one record may."""
        pieces = slice(*np.searchsorted(self.ends, [first, first + len(rows)], "right"))
        sizes = self.sizes[pieces]
        ends = self.ends[pieces] - first
        lengths = np.diff(ends, prepend=0)
        weights = WEIGHT_STEPS // sizes
        if kernels:
            steps = steps.astype(np.int32, order="C", copy=False)
        for chosen, squares in squares_of_persons(
            steps, rows, ends, lengths, sizes, kernels
        ):
            joint = squares[0]
            own = squares[1]
            room = (
                lattice.scale
                * (1 - _CAUTION)
                * (RESOLUTION - sizes[chosen] * math.sqrt(len(steps)))
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.minimum(own / joint, room / np.sqrt(joint))
            share[joint == 0] = 1
            weights[chosen] = np.maximum(
                weights[chosen], (WEIGHT_STEPS * np.minimum(share, 1)).astype(np.int64)
            )
        # Products below 2⁵³ are exact, and the division is by a power of two.
        shares = np.repeat(weights / WEIGHT_STEPS, lengths)
        if kernels:
            return kernels.shortened(steps, shares)
        return np.trunc(steps * shares)


def squares_of_persons(
    steps: Any,
    rows: Int8,
    ends: Int64,
    lengths: Int64,
    sizes: Int64,
    kernels: ModuleType | None,
) -> Iterator[tuple[Any, Float]]:
    """Yield the numbers of some persons, and their N² and D, shape (2, n): exact, then rounded once to floats."""
    paired = np.flatnonzero((sizes > 1) & (sizes <= PAIRED))
    if kernels and len(paired):
        exact = kernels.person_squares(
            steps, rows, ends[paired] - lengths[paired], lengths[paired]
        )
        yield paired, _joined(exact[:, :2].T, exact[:, 2:].T)
    elif len(paired):
        columns = np.ascontiguousarray(steps.T, np.float64)
        for m in np.unique(sizes[paired]).tolist():
            alike = paired[sizes[paired] == m]
            of_person = (ends[alike] - m)[:, None] + np.arange(m)
            r = columns[of_person]
            q = rows[of_person].astype(np.float64)
            # Integers of at most 2⁴⁰ and s²: exact in any order.
            a, g = ((x @ x.transpose(0, 2, 1)).astype(np.int64) for x in (r, q))
            high = (a >> _SPLIT) * g
            low = (a & _LOW) * g
            yield (
                alike,
                _joined(
                    *(
                        np.array([x.sum(axis=(1, 2)), np.trace(x, axis1=1, axis2=2)])
                        for x in (high, low)
                    )
                ),
            )
    for person in np.flatnonzero((sizes > PAIRED) & (sizes <= SUMMED)).tolist():
        own = slice(int(ends[person] - lengths[person]), int(ends[person]))
        r = np.asarray(steps[:, own], np.float64)
        q = rows[own].astype(np.float64)
        total = (r @ q).astype(np.int64)  # below 2⁴²
        high = total >> _SPLIT
        low = total & _LOW
        # total² = (high·2^s + low)², each product summed in int64 and shifted as a
        # Python integer, which has no largest value.
        joint = 0
        for product, shift in (
            (high * high, 2 * _SPLIT),
            (high * low, _SPLIT + 1),
            (low * low, 0),
        ):
            joint += sum(product.sum(axis=1).tolist()) << shift
        a = np.square(r).sum(axis=0).astype(np.int64)
        g = np.square(q).sum(axis=1).astype(np.int64)
        alone = (int(((a >> _SPLIT) * g).sum()) << _SPLIT) + int(((a & _LOW) * g).sum())
        yield [person], np.array([[joint], [alone]], np.float64)


def _joined(high: Int64, low: Int64) -> Float:
    """Return high·2²⁰ + low, which is not negative, as floats."""
    high = high + (low >> _SPLIT)
    low = low & _LOW
    return high.astype(np.float64) * 2.0**_SPLIT + low.astype(np.float64)
