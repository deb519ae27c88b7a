"""Votes on public rows: of teachers that each see a part of the records, or of the nearest records.

The sensitivity of both is proved here. Both are queried at public lattice rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.types import Float
from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.mechanisms.sampled import SampledGaussian
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import ADD_REMOVE, Blocks, Codes, RowQuery

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class TeacherVotes(RowQuery):
    """How many teachers give each class to each of some public rows.

    A teacher is the nearest mean of the records of its part. The part of a record
    follows from its lattice row and class alone, so one more record changes one
    teacher: in each public row one vote leaves a class and another comes, or one comes.
    That is √2 at most, and √(2·n_rows) over all.
    """

    n_rows: int
    n_teachers: int
    needs_rows = True
    repeats = False
    unit = 1.0  # a vote

    @property
    def statistic(self) -> Term[Statistic]:
        """With the numbers of teachers and public rows."""
        return Term(
            Statistic.TEACHER_VOTES,
            n_teachers=self.n_teachers,
            n_rows=self.n_rows,
            n_classes=self.n_classes,
        )

    @property
    def squared_norm(self) -> Fraction:
        """Two votes a public row."""
        return Fraction(2 * self.n_rows)

    def checked(self, *, public: Int8) -> dict[str, Any]:
        """Compare shapes."""
        return {"public": lattice_rows(public, self.n_rows, self.lattice.dim)}

    def exact(self, blocks: Blocks, codes: Codes, *, public: Int8) -> Int64:
        """Return them, shape (n_rows, n_classes)."""
        rows, codes = counted(blocks, codes, self.lattice.dim)
        parts = np.array(
            [
                part_of(row.tobytes() + bytes([0]) + str(code).encode())
                % self.n_teachers
                for row, code in zip(rows, codes.tolist(), strict=True)
            ],
            np.intp,
        )
        votes = np.zeros((self.n_rows, self.n_classes), np.int64)
        for teacher in np.unique(parts):
            mine = parts == teacher
            # Each teacher by itself: a vote must be the same next to any other teachers.
            given = nearest_mean(rows[mine], codes[mine], self.n_classes, public)
            votes[np.arange(self.n_rows), given] += 1
        return votes


@dataclass(frozen=True)
class NeighbourVotes(RowQuery):
    """How many of the nearest records of a public row have each class, of all records or of a Poisson sample.

    Records are in the order of their distance, and of their class where that is equal.
    One more record leaves the order of the others, so at most it takes the place of the
    last of the nearest: one vote leaves a class and another comes, which is √2.
    """

    n_neighbours: int
    sampling_rate: float = 1.0
    needs_rows = True
    keeps_rows = True
    squared_norm = Fraction(2)
    unit = 1.0  # a vote

    @property
    def statistic(self) -> Term[Statistic]:
        """With the number of neighbours."""
        return Term(
            Statistic.NEIGHBOUR_VOTES,
            n_neighbours=self.n_neighbours,
            n_classes=self.n_classes,
        )

    def checked(self, *, public: Int8) -> dict[str, Any]:
        """Compare shapes."""
        return {"public": lattice_rows(public, 1, self.lattice.dim)}

    def exact(self, blocks: Blocks, codes: Codes, *, public: Int8) -> Int64:
        """Return them, shape (n_classes,)."""
        rows, codes = counted(blocks, codes, self.lattice.dim)
        # Integers that float64 holds, in any order.
        wide = rows.astype(np.float64)
        away = np.square(wide).sum(axis=1) - 2 * (wide @ public[0].astype(np.float64))
        nearest = codes[np.lexsort((codes, away))[: self.n_neighbours]]
        return np.bincount(nearest, minlength=self.n_classes).astype(np.int64)

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> RoundedGaussian | SampledGaussian:
        """Return the noise, for samples by their own accounting."""
        if self.sampling_rate == 1:
            return RoundedGaussian.within(
                budget, self.squared_sensitivity(relation), times
            )
        if relation != ADD_REMOVE:
            raise ParameterError(
                "sampling_rate below 1 is accounted under add-remove only"
            )
        return SampledGaussian.within(
            budget, self.squared_norm, times, self.sampling_rate
        )


def part_of(record: bytes) -> int:
    """Return a number that looks random and follows from a record alone."""
    return int.from_bytes(sha256(record).digest()[:8], "big")


def nearest_mean(rows: Int8, codes: Any, n_classes: int, public: Int8) -> Any:
    """Return the class of each public row whose sum of records has the largest cosine with it."""
    sums = np.stack(
        [rows[codes == code].sum(axis=0, dtype=np.int64) for code in range(n_classes)]
    ).astype(np.float64)
    lengths = np.sqrt(np.square(sums).sum(axis=1))
    scores = public.astype(np.float64) @ sums.T / np.where(lengths > 0, lengths, 1.0)
    scores[:, lengths == 0] = -np.inf
    return scores.argmax(axis=1)


def counted(blocks: Blocks, codes: Codes, dim: int) -> tuple[Int8, Codes]:
    """Return the lattice rows and classes of the records that count."""
    rows = np.concatenate([np.empty((0, dim), np.int8), *blocks])
    known = codes >= 0
    return rows[known], codes[known]


def lattice_rows(public: Any, n_rows: int, dim: int) -> Int8:
    """Return public lattice rows, after comparing their shape with the declared one."""
    rows = np.asarray(public)
    if rows.shape != (n_rows, dim) or rows.dtype != np.int8:
        raise MeasurementError(
            f"public must be int8 of the shape {(n_rows, dim)}; got {rows.dtype} of {rows.shape}"
        )
    return rows


def winners(votes: Float) -> Any:
    """Return the class of the most noisy votes for each public row."""
    return np.asarray(votes).argmax(axis=1)
