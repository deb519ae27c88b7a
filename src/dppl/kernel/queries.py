"""What may be asked of private records, and how far one record moves the answer before its noise.

Each class is a query: an integer function of the records, exact in any order of them, whose docstring proves its reach.
Arguments of `exact` are public or released; a query holds for any values of them. The reach is for records that were
mapped by `Lattice`, whose rows q have the norm s at most (`Lattice.squared_norm` is s²), and of which each is in one
class. Under replace-one a record leaves and another comes, so any sum moves by at most twice what it moves by under
add-remove; queries say where they do better. Those marked `whole_persons` move by a whole person (`WholePersons`) as by
one record: the person's records share one weight, and the docstrings say how. Shapes of what a query is asked at are
compared with what was declared before a record is looked at, since an error that only some records raise would tell of
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.kernels import class_sums, gram_matrices, sum_blocks, weighted_sum
from dppl.kernel.lattice.residuals import RESOLUTION, WEIGHT_STEPS, SoftmaxCurvature, SoftmaxGradient, longest_shortfall
from dppl.kernel.mechanisms import (
    COINPRESS_SPLIT,
    DPPL_SPLIT,
    CoinPress,
    Randomness,
    RoundedGaussian,
    SampledGaussian,
    SymmetricRoundedGaussian,
)
from dppl.kernel.privacy import Budget, Release
from dppl.kernel.records import HeldRecords, Records

__all__ = [
    "ADD_REMOVE",
    "COINPRESS_SPLITS",
    "REPLACE_ONE",
    "WITHIN_CLASS",
    "ClassCounts",
    "ClassGramMatrices",
    "ClassSums",
    "CoinPressMeans",
    "GramMatrix",
    "Hits",
    "LongResiduals",
    "NumberOfRecords",
    "PublicClassSizes",
    "Query",
    "Shortfalls",
    "SoftmaxCurvatures",
    "SoftmaxGradients",
    "WeightedSum",
]

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Steps of a grid for numbers in [0, 1]: class weights, and what a record counts. Sums of 10¹¹ records fit into 64 bits.
STEPS = 2**16
# Shares of the budget of each step of CoinPress, as in DPPL-v1 and in the original.
COINPRESS_SPLITS = {"dppl": DPPL_SPLIT, "original": COINPRESS_SPLIT}
# Relations between neighbours. In the last one a record is replaced by another of its class.
ADD_REMOVE, REPLACE_ONE, WITHIN_CLASS = "add-remove", "replace-one", "replace-one within a class"


class Query(ABC):
    """An exact integer function of records, and how far one record moves it."""

    # Whether it reads rows one after another, so that the records must lie in one place.
    needs_rows: ClassVar[bool] = False
    # Whether it may be asked several times.
    repeats: ClassVar[bool] = True
    # Whether all records of a person together move it as one record does.
    whole_persons: ClassVar[bool] = False
    # Whether an answer has entries of its own for each class, which records of that class alone move.
    per_class: ClassVar[bool] = False
    # Whether its answer is a selection, which pure DP allows.
    selects: ClassVar[bool] = False
    # By how much more the square of a sum can move if a record is replaced than if one is added: 4 times in general, 2
    # where two records never add opposite vectors, and not at all where each adds 0 or 1.
    _replaced: ClassVar[int] = 4
    # Noise for symmetric matrices is drawn above the diagonal alone.
    _noise: ClassVar[type[RoundedGaussian]] = RoundedGaussian

    @property
    @abstractmethod
    def statistic(self) -> str:
        """What the statement calls it."""

    @property
    @abstractmethod
    def squared_norm(self) -> Fraction:
        """Square of the longest vector that a record adds."""

    @abstractmethod
    def exact(self, records: Records, *args: Any, **released: Any) -> Int64:
        """Return the value without noise; what is asked at comes by name.

        Parameters
        ----------
        records : Records
        *args
            None.
        **released
            What the query is asked at: public or released values.
        """

    def squared_reach(self, relation: str) -> Fraction:
        """Square of the L2 distance between the values of neighbours."""
        return self.squared_norm * (1 if relation == ADD_REMOVE else self._replaced)

    def is_public(self, relation: str) -> bool:
        """Whether neighbours agree in its value, which then costs nothing."""
        return False

    def mechanism(self, budget: Budget, times: int, relation: str) -> Any:
        """Return the least noise with which the query may be asked so many times within the budget.

        Parameters
        ----------
        budget : Budget
            What all asks together cost at most.
        times : int
        relation : {"add-remove", "replace-one", "replace-one within a class"}
            Which records are neighbours.
        """
        return self._noise.within(budget, self.squared_reach(relation), times)

    def describe(self, mechanism: Any, statistic: str, relation: str) -> Release:
        """Return the entry of the statement.

        Parameters
        ----------
        mechanism
            As `mechanism` returns it.
        statistic : str
            What the statement calls the query.
        relation : str
            As for `mechanism`.
        """
        entry: Release = mechanism.describe(statistic)
        return entry

    @property
    def unit(self) -> float:
        """How many integer steps are 1."""
        return 1.0

    def answer(self, mechanism: Any, records: Records, source: Randomness, *args: Any, **released: Any) -> Any:
        """Return the value with noise.

        Parameters
        ----------
        mechanism
            As `mechanism` returns it.
        records : Records
        source : Randomness
        *args, **released
            As for `exact`.
        """
        return mechanism.release(self.exact(records, **released), source)


@dataclass(frozen=True)
class NumberOfRecords(Query):
    """The number of records that count, or of persons.

    A record adds 1, and a whole person 1. Under replace-one it does not move, and is paid for all the same.
    """

    statistic = "number of records"
    squared_norm = Fraction(1)
    _replaced = 1
    whole_persons = True

    def exact(self, records: Records) -> Int64:
        """Return it, shape (1,)."""
        return records.total(self._sum)

    def _sum(self, held: HeldRecords) -> Int64:
        counted = np.count_nonzero(held.codes >= 0) if held.persons is None else held.persons.number()
        return np.array([counted], np.int64)


@dataclass(frozen=True)
class PublicClassSizes(Query):
    """How many records each class has, for relations in which neighbours agree in it.

    A record that is replaced by one of its class moves nothing. In every other relation sizes are private, and
    `ClassCounts` is to be asked.
    """

    n_classes: int
    statistic = "number of records in each class"
    squared_norm = Fraction(1)
    per_class = True

    def is_public(self, relation: str) -> bool:
        """Whether a record is replaced by another of its class; other relations are refused."""
        if relation != WITHIN_CLASS:
            raise ParameterError("class sizes are public only where a record is replaced by another of its class")
        return True

    def exact(self, records: Records) -> Int64:
        """Return them, shape (n_classes,)."""
        return records.total(self._sum)

    def _sum(self, held: HeldRecords) -> Int64:
        return np.bincount(held.codes[held.codes >= 0], minlength=self.n_classes).astype(np.int64)


@dataclass(frozen=True)
class ClassCounts(Query):
    """How many records each class has, in steps of 1/2¹⁶.

    A record adds 2¹⁶ to one class. A whole person adds a vector of nonnegative steps whose sum is 2¹⁶ at most, which is
    no longer.
    """

    n_classes: int
    statistic = f"size of each class, in steps of 1/{STEPS}"
    squared_norm = Fraction(STEPS**2)
    unit = float(STEPS)  # a record
    whole_persons = True

    def exact(self, records: Records) -> Int64:
        """Return them, shape (n_classes,)."""
        return records.total(self._sum)

    def _sum(self, held: HeldRecords) -> Int64:
        counted = held.codes >= 0
        each = held.shares(np.full(self.n_classes, STEPS))[counted]
        # Integers below 2⁵³: exact in any order.
        return np.bincount(held.codes[counted], each.astype(np.float64), self.n_classes).astype(np.int64)


@dataclass(frozen=True)
class RowQuery(Query):
    """A query of the lattice rows of each class; unless it says otherwise, a record adds a row."""

    lattice: Lattice
    n_classes: int

    @property
    def squared_norm(self) -> Fraction:
        """That of a lattice row."""
        return self.lattice.squared_norm

    @property
    def unit(self) -> float:
        """How many integer steps a unit row is."""
        return float(self.lattice.scale)

    def _checked(self, weights: Any) -> Float:
        """Return released weights of a linear layer, shape (n_classes, dim)."""
        return shaped("weights", weights, self.n_classes, self.lattice.dim)


class ClassSums(RowQuery):
    """The sum of the lattice rows of each class.

    A record adds its q to the row of one class, and is in no other.
    """

    per_class = True

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"class sums of lattice rows ({self.n_classes} x {self.lattice.dim})"

    def exact(self, records: Records, *, classes: NDArray[np.intp] | None = None) -> Int64:
        """Return them, shape (n_classes, dim), or those of some classes."""
        if classes is not None:
            classes = np.asarray(classes)
            inside = np.isin(np.arange(self.n_classes), classes)
            if not np.array_equal(classes, np.flatnonzero(inside)):  # a class that is named twice would be told twice
                raise MeasurementError(f"classes must be increasing positions below {self.n_classes}")
        total = records.total(self._sum)
        return total if classes is None else total[classes]

    def _sum(self, held: HeldRecords) -> Int64:
        return class_sums(sum_blocks(self.lattice, held.rows), held.codes, self.n_classes, self.lattice.dim)


class WeightedSum(RowQuery):
    """The sum of lattice rows, each times the weight of its class in steps of 1/2¹⁶.

    A record adds w·q with an integer 0 ≤ w ≤ 2¹⁶, whatever the weights are, as these are limited here. The records of a
    whole person share one weight.
    """

    whole_persons = True

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"sum of lattice rows, weighted by class ({self.lattice.dim})"

    @property
    def squared_norm(self) -> Fraction:
        """That of a lattice row of the largest weight."""
        return STEPS**2 * self.lattice.squared_norm

    @property
    def unit(self) -> float:
        """That of a unit row of weight 1."""
        return STEPS * self.lattice.scale

    def exact(self, records: Records, *, weights: Float) -> Int64:
        """Return it, shape (dim,); the weights of the classes count from 0 to 1."""
        return records.total(self._sum, on_grid(shaped("weights", weights, self.n_classes), STEPS))

    def _sum(self, held: HeldRecords, steps: Int64) -> Int64:
        return weighted_sum(sum_blocks(self.lattice, held.rows), held.shares(steps), self.lattice.dim)


class GramMatrix(RowQuery):
    """The sum of q·qᵀ.

    ‖q·qᵀ‖ is s² in the Frobenius norm. Of two records the product ⟨q·qᵀ, p·pᵀ⟩ = (q·p)² is never negative, so their
    difference is no longer than √2·s²: under replace-one the square grows by 2, and not by 4.
    """

    _noise = SymmetricRoundedGaussian
    _replaced = 2

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"Gram matrix of lattice rows ({self.lattice.dim} x {self.lattice.dim})"

    @property
    def squared_norm(self) -> Fraction:
        """The fourth power of that of a row."""
        return self.lattice.squared_norm**2

    @property
    def unit(self) -> float:
        """That of the product of a unit row with itself."""
        return float(self.lattice.squared_norm)

    def exact(self, records: Records) -> Int64:
        """Return it, shape (dim, dim)."""
        return records.total(self._sum)

    def _sum(self, held: HeldRecords) -> Int64:
        all_alike = np.minimum(held.codes, 0)
        (gram,) = gram_matrices(sum_blocks(self.lattice, held.rows), all_alike, 1, self.lattice.dim)
        return np.asarray(gram)


class ClassGramMatrices(GramMatrix):
    """The sum of q·qᵀ of each class, shape (n_classes, dim, dim): a record adds to one of them, as to `GramMatrix`."""

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"Gram matrices of each class ({self.n_classes} x {self.lattice.dim} x {self.lattice.dim})"

    def _sum(self, held: HeldRecords) -> Int64:
        return gram_matrices(sum_blocks(self.lattice, held.rows), held.codes, self.n_classes, self.lattice.dim)


@dataclass(frozen=True)
class SoftmaxGradients(RowQuery):
    """The sum of clipped gradients of the softmax loss at released weights.

    A record adds the outer product of its residual, whose norm is at most `RESOLUTION` = 2²⁰ grid steps, which is
    checked in integers, and its q followed by a constant b; an outer product is as long as the product of both lengths
    (`SoftmaxGradient`, Notes). The records of a whole person share a weight, so that their sum is no
    longer.

    With `sampling_rate` below 1 each ask sums a Poisson sample: every record is in it by a coin of its own.
    """

    bias: int = 0
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise ParameterError(f"must lie in (0, 1]; got {self.sampling_rate!r}.", parameter="sampling_rate")

    @property
    def needs_rows(self) -> bool:  # type: ignore[override]
        """Coins are noise, which is drawn in one place."""
        return self.sampling_rate < 1

    @property
    def whole_persons(self) -> bool:  # type: ignore[override]
        """A person's weight makes their q no longer than one, and knows no constants and no samples."""
        return not self.bias and self.sampling_rate == 1

    @property
    def gradient(self) -> SoftmaxGradient:
        """The kernel."""
        return SoftmaxGradient(self.lattice, bias=self.bias)

    @property
    def statistic(self) -> str:
        """With its shape."""
        constant = " and a constant" if self.bias else ""
        return f"sum of clipped gradients ({self.n_classes} x {self.lattice.dim}{constant})"

    @property
    def squared_norm(self) -> Fraction:
        """That of the kernel."""
        return self.gradient.squared_sensitivity

    @property
    def unit(self) -> float:
        """That of a gradient as long as the clip."""
        return self.gradient.unit

    def exact(
        self,
        records: Records,
        *,
        weights: Float,
        offsets: Float | None = None,
        clip: float = 1.0,
        at: Lattice | None = None,
    ) -> Int64:
        """Return it; `at` is the same map about another, released centre."""
        gradient = SoftmaxGradient(same_norm(at, self.lattice), bias=self.bias)
        offsets = None if offsets is None else shaped("offsets", offsets, self.n_classes)
        return records.total(self._sum, gradient, self._checked(weights), offsets, float(clip))

    def _sum(
        self, held: HeldRecords, gradient: SoftmaxGradient, weights: Float, offsets: Float | None, clip: float
    ) -> Int64:
        blocks, of_records = held.again(gradient.lattice), held.weights(gradient.lattice)
        return gradient.sum(blocks, held.codes, weights, offsets, clip=clip, of_records=of_records)

    def mechanism(self, budget: Budget, times: int, relation: str) -> RoundedGaussian | SampledGaussian:
        """Return the noise, that of samples by their own accounting."""
        if self.sampling_rate < 1:
            if relation != ADD_REMOVE:
                raise ParameterError("sampling_rate below 1 is accounted under add-remove only")
            return SampledGaussian.within(budget, self.squared_reach(relation), times, self.sampling_rate)
        noise: RoundedGaussian = super().mechanism(budget, times, relation)
        return noise

    def answer(self, mechanism: Any, records: Records, source: Randomness, **released: Any) -> Int64:
        """Return it with noise, of a new sample if it is one of samples."""
        if self.sampling_rate < 1:
            assert isinstance(records, HeldRecords)  # needs_rows says so
            lattice = same_norm(released.get("at"), self.lattice)
            records = records.sampled(lattice, mechanism.sample(len(records.codes), source))
        answer: Int64 = super().answer(mechanism, records, source, **released)
        return answer


class LongResiduals(RowQuery):
    """The number of records whose residual at released weights is longer than a released threshold.

    A record adds 0 or 1, and one that replaces another changes the number by at most 1.
    """

    statistic = "number of long gradients"
    squared_norm = Fraction(1)
    unit = 1.0
    _replaced = 1

    def exact(self, records: Records, *, weights: Float, offsets: Float, threshold: float) -> Int64:
        """Return it, shape (1,)."""
        offsets = shaped("offsets", offsets, self.n_classes)
        return records.total(self._sum, self._checked(weights), offsets, float(threshold))

    def _sum(self, held: HeldRecords, *at: Any) -> Int64:
        return np.array([SoftmaxGradient(self.lattice).count_long(held.again(self.lattice), held.codes, *at)], np.int64)


class SoftmaxCurvatures(RowQuery):
    """The Hessians of the softmax loss of each class at released weights.

    A record adds nonnegative multiples of q·qᵀ (`SoftmaxCurvature.squared_sensitivity`). The product of what two
    records add is never negative, so under replace-one the square grows by 2, as for `GramMatrix`.
    """

    _noise = SymmetricRoundedGaussian
    _replaced = 2

    @property
    def curvature(self) -> SoftmaxCurvature:
        """The kernel."""
        return SoftmaxCurvature(self.lattice)

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"Hessians of each class ({self.n_classes} x {self.lattice.dim} x {self.lattice.dim})"

    @property
    def squared_norm(self) -> Fraction:
        """That of the kernel."""
        return self.curvature.squared_sensitivity

    @property
    def unit(self) -> float:
        """That of the kernel."""
        return self.curvature.unit

    def exact(self, records: Records, *, weights: Float) -> Int64:
        """Return them, shape (n_classes, dim, dim)."""
        return records.total(self._sum, self._checked(weights))

    def _sum(self, held: HeldRecords, weights: Float) -> Int64:
        return self.curvature.sum(held.again(self.lattice), held.codes, weights)


class Hits(RowQuery):
    """The number of records, or of persons, whose own class has the largest logit at released weights.

    A record adds 0 or 1; a whole person adds 0 or 1 by what most of their records say.
    """

    statistic = "number of records whose own class the examples rank first"
    squared_norm = Fraction(1)
    unit = 1.0
    whole_persons = True
    _replaced = 1

    def exact(self, records: Records, *, weights: Float, offsets: Float, at: Lattice | None = None) -> Int64:
        """Return it, shape (1,)."""
        gradient = SoftmaxGradient(same_norm(at, self.lattice))
        return records.total(self._sum, gradient, self._checked(weights), shaped("offsets", offsets, self.n_classes))

    def _sum(self, held: HeldRecords, gradient: SoftmaxGradient, weights: Float, offsets: Float) -> Int64:
        right = gradient.hits(held.again(gradient.lattice), held.codes, weights, offsets)
        return np.array([right.sum() if held.persons is None else held.persons.right(right)], np.int64)


class Shortfalls(RowQuery):
    """How much less often than others each class is predicted: the sum of w·(1/C - p), on a grid.

    p lies in the simplex, so 1/C - p is no longer than √(1 - 1/C), which is `RESOLUTION` grid steps; that a record adds
    no more is checked in integers. Its weight w lies between 0 and 1, whatever the released ones are, and the records
    of a whole person share one.
    """

    squared_norm = Fraction(RESOLUTION**2)
    whole_persons = True

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"how much less often than others each class is predicted ({self.n_classes})"

    @property
    def unit(self) -> float:
        """Grid steps of 1."""
        return RESOLUTION / longest_shortfall(self.n_classes)

    def exact(self, records: Records, *, weights: Float, class_weights: Float, at: Lattice | None = None) -> Int64:
        """Return them, shape (n_classes,)."""
        gradient = SoftmaxGradient(same_norm(at, self.lattice))
        steps = on_grid(shaped("class_weights", class_weights, self.n_classes), WEIGHT_STEPS)
        return records.total(self._sum, gradient, self._checked(weights), steps)

    def _sum(self, held: HeldRecords, gradient: SoftmaxGradient, weights: Float, steps: Int64) -> Int64:
        return gradient.shortfalls(held.again(gradient.lattice), held.codes, weights, held.shares(steps))


@dataclass(frozen=True, eq=False)
class CoinPressMeans(RowQuery):
    """The mean of each class by CoinPress, whose steps clip rows to balls about earlier, noisy means.

    A record is in one class, whose size neighbours agree in; how far it moves the sum of a step is that step's bound
    (`CoinPress`).
    """

    split: tuple[float, ...]
    needs_rows = True
    repeats = False
    per_class = True
    squared_norm = Fraction(1)
    unit = 1.0  # means of unit rows

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"class means of lattice rows ({self.n_classes} x {self.lattice.dim})"

    def mechanism(self, budget: Budget, times: int, relation: str) -> CoinPress:
        """Return the estimator that spends the budget."""
        if relation != WITHIN_CLASS:
            raise ParameterError(
                "CoinPress divides by class sizes, which are public only where neighbours agree in them"
            )
        return CoinPress.within(budget, self.lattice.dim, split=self.split)

    def exact(self, records: Records, **released: Any) -> Int64:
        """Each step needs the noisy mean of the one before."""
        raise NotImplementedError

    def answer(self, mechanism: Any, records: Records, source: Randomness, **released: Any) -> Float:
        """Return noisy means of unit rows, shape (n_classes, dim)."""
        assert isinstance(records, HeldRecords)  # needs_rows says so
        blocks = sum_blocks(self.lattice, records.rows)
        rows = np.concatenate([np.empty((0, self.lattice.dim), np.int8), *blocks])
        parts = (rows[records.codes == code] for code in range(self.n_classes))
        return np.stack([mechanism.release(part, self.lattice, source) for part in parts])


def on_grid(weights: Float, steps: int) -> Int64:
    """Return weights in [0, 1] in whole steps, rounded down; those outside, and NaN, are limited."""
    # In float64: in narrower floats so many steps would be infinite.
    return np.floor(np.clip(np.nan_to_num(np.asarray(weights, np.float64)), 0, 1) * steps).astype(np.int64)


def shaped(name: str, values: Any, *shape: int) -> Float:
    """Return what a query is asked at in float64, after comparing its shape with the declared one."""
    found = np.asarray(values, np.float64)
    if found.shape != shape:
        raise MeasurementError(f"{name} must have the shape {shape}; got {found.shape}")
    return found


def same_norm(at: Lattice | None, declared: Lattice) -> Lattice:
    """Return the map that a query is asked at, after seeing that its rows are no longer than was declared."""
    if at is None:
        return declared
    if at.squared_norm != declared.squared_norm or at.dim != declared.dim:
        raise MeasurementError("a query may be asked about another centre, and not for rows of another norm")
    return at
