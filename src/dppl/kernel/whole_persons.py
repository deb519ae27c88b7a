"""Persons that enter a fit with all of their records, which together weigh no more than one record does.

A reduction to one row (`dppl.kernel.persons`) loses how the records of a person differ, and those of other classes.
Sums can take all of them: let the rows q_1 ... q_m of a person be those of a matrix Q, and let each record add r_i·q_iᵀ
with |r_i| at most w. The whole is R·Q, and its Frobenius norm at most |R|·‖Q‖ ≤ √m·w·‖Q‖, with the largest singular
value of Q. That is at most w·m·s, for equal rows, and w·√m·s for orthogonal ones, where a row is at most s long. So
w = s/(√m·‖Q‖) keeps the sum as short as that of one record. The fourth power of ‖Q‖ is at most the sum of the squares
of the products q_i·q_j: an integer, the same in any order, and a function of this person's rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.lattice.residuals import WEIGHT_STEPS
from dppl.kernel.lattice.stream import as_numpy
from dppl.kernel.persons import classes_of_persons
from dppl.kernel.reading import Codes

Int64 = NDArray[np.int64]

# Share by which weights are lowered, far above what rounding could raise them by.
_CAUTION = 1e-9
# Up to here the squares of all products of a person's rows add up within 64 bits.
_LARGEST_TRACE = 2**31


@dataclass(frozen=True, slots=True, eq=False)
class WholePersons:
    """Whose each record is."""

    codes: Codes  # shape (n_records,); class of each record; -1 for those that do not count
    numbers: Codes  # shape (n_records,); person of each record, from 0

    @classmethod
    def of(cls, codes: Codes, numbers: Codes, n_classes: int, max_classes: int | None = None) -> Self:
        """Leave out all records but those of so many classes of each person, those of most of their records."""
        if max_classes is None:
            return cls(codes, numbers)
        counted = np.flatnonzero(codes >= 0)
        kept = counted[classes_of_persons(codes[counted], numbers[counted], n_classes, max_classes)[2]]
        of_those = np.full_like(codes, -1)
        of_those[kept] = codes[kept]
        return cls(of_those, numbers)

    def number(self) -> int:
        """Return the number of persons with a record that counts."""
        return int(np.count_nonzero(np.bincount(self.numbers, self.codes >= 0)))

    def right(self, records: NDArray[np.bool_]) -> int:
        """Return the number of persons of whose records at least half are among these."""
        hits = np.bincount(self.numbers, records & (self.codes >= 0))
        return int(np.count_nonzero((hits > 0) & (2 * hits >= np.bincount(self.numbers, self.codes >= 0))))

    def shares(self, weights: Int64) -> Int64:
        """Return for each record its part of the weight of its class: those of a person add up to one at most."""
        counted = self.codes >= 0
        each = np.maximum(np.bincount(self.numbers, counted).astype(np.int64), 1)
        return np.where(counted, weights[self.codes] // each[self.numbers], 0)

    def gradient_weights(self, blocks: Iterable[Any], lattice: Lattice) -> Int64:
        """Return the weight of each record's residual, in steps of the grid of `SoftmaxGradient.sum`.

        `blocks` come in the order of the records. Rows of a person are held until the last has come.
        """
        counted = self.codes >= 0
        missing = np.bincount(self.numbers, counted).astype(np.int64)
        several = counted & (missing[self.numbers] > 1)
        weight = np.full(len(missing), WEIGHT_STEPS, np.int64)
        waiting: dict[int, list[Int8]] = {}
        start = 0
        for block in blocks:
            places = np.flatnonzero(several[start : start + len(block)])
            places = places[np.argsort(self.numbers[start + places], kind="stable")]
            here = self.numbers[start + places]
            start += len(block)
            first = np.flatnonzero(np.diff(here, prepend=-1))
            rows = np.split(as_numpy(block)[places], first[1:])
            for person, part in zip(here[first].tolist(), rows, strict=False):  # one empty part of no person
                missing[person] -= len(part)
                waiting.setdefault(person, []).append(part)
                if not missing[person]:
                    weight[person] = _weight(np.concatenate(waiting.pop(person)), float(lattice.squared_norm))
        return np.where(counted, weight[self.numbers], 0)


def _weight(rows: Int8, squared_norm: float) -> int:
    """Return the steps that each of a person's residuals weighs, at most s/(√m·‖Q‖) of them all."""
    m = len(rows)
    least = WEIGHT_STEPS // m  # by the triangle inequality, whatever the rows are
    if m * squared_norm >= _LARGEST_TRACE:
        return least
    wide = rows.astype(np.float64)
    # QᵀQ has the singular values of Q·Qᵀ, so the same sum of squares, and does not grow with the number of records.
    products = wide.T @ wide if m > len(wide.T) else wide @ wide.T
    products = products.astype(np.int64)  # integers below 2⁵³: exact in any order
    fourth = int(np.square(products).sum())
    if not fourth:
        return least  # zeros earn no more than any rows may weigh
    most = math.sqrt(squared_norm / (m * math.sqrt(fourth)))
    return max(least, min(WEIGHT_STEPS, int(WEIGHT_STEPS * (1 - _CAUTION) * most)))
