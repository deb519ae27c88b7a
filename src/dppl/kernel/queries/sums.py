"""Counts and sums of records: numbers of records, class sizes, class sums and weighted sums.

A record is in one class and adds one vector to it: a number, or its lattice row q. So
all classes together are one query, which moves by that vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice.kernels import class_sums, weighted_sum
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import (
    WITHIN_CLASS,
    Blocks,
    Codes,
    Float,
    Int64,
    Query,
    RowQuery,
    on_grid,
    shaped,
    shares,
)

if TYPE_CHECKING:
    from dppl.kernel.persons import WholePersons


@dataclass(frozen=True)
class NumberOfRecords(Query):
    """The number of records or persons that count: each adds 1. If one is replaced, it is paid for all the same."""

    statistic = Term(Statistic.NUMBER_OF_RECORDS)
    whole_persons = True

    def exact(
        self, blocks: Blocks, codes: Codes, *, persons: WholePersons | None = None
    ) -> Int64:
        """Return it, shape (1,)."""
        if persons is None:
            counted = int(np.count_nonzero(codes >= 0))
        else:
            counted = persons.number()
        return np.array([counted], np.int64)


@dataclass(frozen=True)
class PublicClassSizes(Query):
    """How many records each class has, for relations in which neighbours agree in it.

    A record that is replaced by one of its class moves nothing. In every other relation
    sizes are private, and `ClassCounts` is to be asked.
    """

    n_classes: int
    statistic = Term(Statistic.RECORDS_OF_CLASSES)
    squared_norm = Fraction(1)
    per_class = True

    def is_public(self, relation: str) -> bool:
        """Whether a record is replaced by another of its class; other relations are refused."""
        if relation != WITHIN_CLASS:
            raise ParameterError(
                "class sizes are public only where a record is replaced by another of its class"
            )
        return True

    def exact(self, blocks: Blocks, codes: Codes) -> Int64:
        """Return them, shape (n_classes,)."""
        counts = np.bincount(codes[codes >= 0], minlength=self.n_classes)
        return counts.astype(np.int64)


@dataclass(frozen=True)
class ClassCounts(Query):
    """How many records each class has, in steps of 1/2¹⁶.

    A record adds 2¹⁶ to one class. A whole person adds a vector of nonnegative steps
    whose sum is 2¹⁶ at most, which is no longer.
    """

    n_classes: int
    statistic = Term(Statistic.CLASS_COUNTS, steps=STEPS)
    unit = float(STEPS)  # a record
    whole_persons = True

    def exact(
        self, blocks: Blocks, codes: Codes, *, persons: WholePersons | None = None
    ) -> Int64:
        """Return them, shape (n_classes,)."""
        counted = codes >= 0
        each = shares(codes, np.full(self.n_classes, STEPS), persons)[counted]
        # Integers below 2⁵³: exact in any order.
        sums = np.bincount(codes[counted], each.astype(np.float64), self.n_classes)
        return sums.astype(np.int64)


class ClassSums(RowQuery):
    """The sum of the lattice rows of each class, or of some classes: a record adds its q to one."""

    _code = Statistic.CLASS_SUMS
    per_class = True

    def checked(self, *, classes: NDArray[np.intp] | None = None) -> dict[str, Any]:
        """Check that no class is named twice, which would be released twice."""
        if classes is not None:
            inside = np.isin(np.arange(self.n_classes), classes)
            if not np.array_equal(classes, np.flatnonzero(inside)):
                raise MeasurementError(
                    f"classes must be increasing positions below {self.n_classes}"
                )
        return {"classes": classes}

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        classes: NDArray[np.intp] | None = None,
    ) -> Int64:
        """Return them, shape (n_classes, dim)."""
        sums = class_sums(blocks, codes, self.n_classes, self.lattice.dim)
        return sums if classes is None else sums[classes]


class WeightedSum(RowQuery):
    """The sum of lattice rows, each times the weight of its class in steps of 1/2¹⁶.

    A record adds w·q with an integer 0 ≤ w ≤ 2¹⁶, whatever the weights are, as these
    are limited here. The records of a whole person share one weight.
    """

    _code = Statistic.WEIGHTED_SUM
    whole_persons = True
    _steps = STEPS

    def checked(self, *, weights: Float) -> dict[str, Any]:
        """Round the weights of the classes, from 0 to 1, to steps."""
        return {"steps": on_grid(shaped("weights", weights, self.n_classes), STEPS)}

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        steps: Int64,
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return it, shape (dim,)."""
        return weighted_sum(blocks, shares(codes, steps, persons), self.lattice.dim)
