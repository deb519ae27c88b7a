"""What may be asked of private records, and how far one record moves the answer before its noise.

Each class is a query: an integer function of the records, exact in any order of them,
whose docstring proves its reach. Arguments of an ask are public or released, and the
proof holds for any values of them. Records were mapped by `Lattice`, whose rows q have
the norm s at most (`Lattice.squared_norm` is s²), and each is in one class. Under
replace-one a record leaves and another comes, so any sum moves by at most twice what it
moves by under add-remove; queries say where they do better. Those marked
`whole_persons` move by a whole person (`WholePersons`) as by one record: the person's
records share one weight, or what they add is clipped together. Shapes are compared with
what was declared before a record is read, since an error that only some records raise
would tell of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.joint import RESOLUTION, WEIGHT_STEPS
from dppl.kernel.lattice.kernels import class_sums, gram_matrices, weighted_sum
from dppl.kernel.lattice.residuals import (
    SoftmaxGradient,
    check_clip,
    curvature_sums,
    label_shortfalls,
    longest_shortfall,
)
from dppl.kernel.mechanisms import COINPRESS_SPLITS, CoinPress, Randomness
from dppl.kernel.mechanisms.gaussian import (
    RoundedGaussian,
    SampledGaussian,
    SymmetricRoundedGaussian,
)
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.terms import Statistic, Term

if TYPE_CHECKING:
    from dppl.kernel.records import HeldRecords

__all__ = ["ADD_REMOVE", "COINPRESS_SPLITS", "REPLACE_ONE", "WITHIN_CLASS"]
__all__ += [
    "ClassCounts",
    "ClassGramMatrices",
    "ClassSums",
    "CoinPressMeans",
    "GramMatrix",
    "Hits",
]
__all__ += [
    "LabelCounts",
    "LabelGradients",
    "LabelShortfalls",
    "LongResiduals",
    "NumberOfRecords",
    "OwnAnswer",
    "PublicClassSizes",
    "Query",
]
__all__ += ["Shortfalls", "SoftmaxCurvatures", "SoftmaxGradients", "WeightedSum"]

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Steps of a grid for numbers in [0, 1]: class weights, and what a record counts. Sums
# of 10¹¹ records fit into 64 bits.
STEPS = 2**16
# Relations between neighbours. In the last one a record is replaced by another of its
# class.
ADD_REMOVE = "add-remove"
REPLACE_ONE = "replace-one"
WITHIN_CLASS = "replace-one within a class"


class Query(ABC):
    """An exact integer function of records, and how far one record moves it."""

    # What the statement calls a query of an own method, in words; `self` is the query.
    words: ClassVar[str] = ""
    needs_rows: ClassVar[bool] = (
        False  # one after another, so that the records must lie in one place
    )
    repeats: ClassVar[bool] = True  # whether it may be asked several times
    whole_persons: ClassVar[bool] = (
        False  # whether all records of a person move it as one record does
    )
    per_class: ClassVar[bool] = (
        False  # whether each class has entries that only its own records move
    )
    selects: ClassVar[bool] = (
        False  # whether its answer is a selection, which pure DP allows
    )
    reads_label_sets: ClassVar[bool] = (
        False  # whether it is of records that may have several labels
    )
    # By how much more the square of a sum can move if a record is replaced than if one
    # is added: 4 times in general, 2 where two records never add opposite vectors, and
    # not at all where each adds 0 or 1.
    _replaced: ClassVar[int] = 4
    # Noise for symmetric matrices is drawn above the diagonal alone.
    _noise: ClassVar[type[RoundedGaussian]] = RoundedGaussian

    @property
    def statistic(self) -> Term[Statistic]:
        """What the statement calls it."""
        words = self.words.format(self=self) or type(self).__name__
        return Term(Statistic.STATED, text=words)

    @property
    @abstractmethod
    def squared_norm(self) -> Fraction:
        """Square of the longest vector that a record adds."""

    @property
    def unit(self) -> float:
        """How many integer steps are 1."""
        return 1.0

    def checked(self, *args: Any, **released: Any) -> dict[str, Any]:
        """Check what the query is asked at, and return it as `exact` takes it.

        Parameters
        ----------
        *args, **released
            Public or released values, by name.
        """
        return released

    def exact(self, held: HeldRecords, /, *args: Any, **at: Any) -> Int64:
        """Return the value of some records, without noise; the values of parts add up to the value of all.

        Parameters
        ----------
        held : HeldRecords
        *args, **at
            What `checked` returned, by name.
        """
        raise NotImplementedError

    def squared_sensitivity(self, relation: str) -> Fraction:
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
        times : int
        relation : {"add-remove", "replace-one", "replace-one within a class"}
            Which records are neighbours.
        """
        return self._noise.within(budget, self.squared_sensitivity(relation), times)


class OwnAnswer(Query):
    """A query whose answer is not one exact value with noise: its docstring proves what the whole answer costs."""

    @abstractmethod
    def answer(
        self,
        mechanism: Any,
        records: Any,
        source: Randomness,
        /,
        *args: Any,
        **released: Any,
    ) -> Any:
        """Return the answer, with the noise of `mechanism`.

        Parameters
        ----------
        mechanism
        records : Records
        source : Randomness
        *args, **released
            As for `checked`.
        """


def answered(
    query: Query, mechanism: Any, records: Any, source: Randomness, **released: Any
) -> Any:
    """Return the noisy answer of a query: of a fresh sample of the records where the mechanism counts on one."""
    if isinstance(query, OwnAnswer):
        return query.answer(mechanism, records, source, **released)
    if isinstance(
        mechanism, SampledGaussian
    ):  # its query needs rows, so the records are held here
        records = records.sampled(mechanism.sample(len(records.codes), source))
        mechanism = mechanism.each
    return mechanism.release(records.total(query, **released), source)


@dataclass(frozen=True)
class NumberOfRecords(Query):
    """The number of records or persons that count: each adds 1. If one is replaced, it is paid for all the same."""

    statistic = Term(Statistic.NUMBER_OF_RECORDS)
    squared_norm = Fraction(1)
    _replaced = 1
    whole_persons = True

    def exact(self, held: HeldRecords) -> Int64:
        """Return it, shape (1,)."""
        counted = (
            np.count_nonzero(held.codes >= 0)
            if held.persons is None
            else held.persons.number()
        )
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

    def exact(self, held: HeldRecords) -> Int64:
        """Return them, shape (n_classes,)."""
        return np.bincount(
            held.codes[held.codes >= 0], minlength=self.n_classes
        ).astype(np.int64)


@dataclass(frozen=True)
class ClassCounts(Query):
    """How many records each class has, in steps of 1/2¹⁶.

    A record adds 2¹⁶ to one class. A whole person adds a vector of nonnegative steps
    whose sum is 2¹⁶ at most, which is no longer.
    """

    n_classes: int
    statistic = Term(Statistic.CLASS_COUNTS, steps=STEPS)
    squared_norm = Fraction(STEPS**2)
    unit = float(STEPS)  # a record
    whole_persons = True

    def exact(self, held: HeldRecords) -> Int64:
        """Return them, shape (n_classes,)."""
        counted = held.codes >= 0
        each = shares(held, np.full(self.n_classes, STEPS))[counted]
        # Integers below 2⁵³: exact in any order.
        return np.bincount(
            held.codes[counted], each.astype(np.float64), self.n_classes
        ).astype(np.int64)


@dataclass(frozen=True)
class LabelCounts(Query):
    """How many records have each label, in steps of 1/2¹⁶, where a record may have several.

    A record counts in the first `max_labels` = k of its labels in the order of the
    class list, whatever others it has: it adds 2¹⁶ to at most k entries, a vector of
    norm √k·2¹⁶. Each record of a whole person adds its vector times the person's share,
    and shares add up to 1 at most, so the sum is no longer, by the triangle inequality.
    """

    n_classes: int
    max_labels: int
    unit = float(STEPS)  # a record
    whole_persons = True
    reads_label_sets = True

    @property
    def statistic(self) -> Term[Statistic]:
        """With the number of labels that count."""
        return Term(Statistic.LABEL_COUNTS, steps=STEPS, max_labels=self.max_labels)

    @property
    def squared_norm(self) -> Fraction:
        """At most so many entries of 2¹⁶."""
        return Fraction(min(self.max_labels, self.n_classes) * STEPS**2)

    def exact(self, held: HeldRecords) -> Int64:
        """Return them, shape (n_classes,)."""
        assert held.label_sets is not None
        kept = first_labels(held.label_sets, self.max_labels)
        return np.asarray(shares(held, np.array([STEPS])) @ kept, np.int64)


@dataclass(frozen=True)
class RowQuery(Query):
    """A query of the lattice rows of each class; unless it says otherwise, a record adds a row."""

    lattice: Lattice
    n_classes: int
    _code: ClassVar[Statistic] = Statistic.STATED
    # What a record adds is so many steps, times a row or, at degree 2, times the
    # product of a row with itself.
    _steps: ClassVar[int] = 1
    _degree: ClassVar[int] = 1

    @property
    def statistic(self) -> Term[Statistic]:
        """With its shape."""
        if self._code is Statistic.STATED:
            return super().statistic
        shape = {"n_classes": self.n_classes, "dim": self.lattice.dim}
        return Term(self._code, **{name: shape[name] for name in self._code.fields})

    @property
    def squared_norm(self) -> Fraction:
        """The square of a lattice row, to the degree of the query."""
        return self._steps**2 * self.lattice.squared_norm**self._degree

    @property
    def unit(self) -> float:
        """Integer steps of a unit row, or of its product with itself."""
        return self._steps * (
            self.lattice.scale
            if self._degree == 1
            else float(self.lattice.squared_norm)
        )


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
        self, held: HeldRecords, *, classes: NDArray[np.intp] | None = None
    ) -> Int64:
        """Return them, shape (n_classes, dim)."""
        sums = class_sums(
            self.lattice.blocks(held.rows), held.codes, self.n_classes, self.lattice.dim
        )
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

    def exact(self, held: HeldRecords, *, steps: Int64) -> Int64:
        """Return it, shape (dim,)."""
        return weighted_sum(
            self.lattice.blocks(held.rows), shares(held, steps), self.lattice.dim
        )


class GramMatrix(RowQuery):
    """The sum of q·qᵀ.

    ‖q·qᵀ‖ is s² in the Frobenius norm. Of two records the product ⟨q·qᵀ, p·pᵀ⟩ = (q·p)²
    is never negative, so their difference is no longer than √2·s²: under replace-one
    the square grows by 2, and not by 4.
    """

    _code = Statistic.GRAM_MATRIX
    _noise = SymmetricRoundedGaussian
    _replaced = 2
    _degree = 2

    def exact(self, held: HeldRecords) -> Int64:
        """Return it, shape (dim, dim)."""
        all_alike = np.minimum(held.codes, 0)
        (gram,) = gram_matrices(
            self.lattice.blocks(held.rows), all_alike, 1, self.lattice.dim
        )
        return np.asarray(gram)


class ClassGramMatrices(GramMatrix):
    """The sum of q·qᵀ of each class, shape (n_classes, dim, dim): a record adds to one of them, as to `GramMatrix`."""

    _code = Statistic.CLASS_GRAM_MATRICES

    def exact(self, held: HeldRecords) -> Int64:
        """Return them."""
        return gram_matrices(
            self.lattice.blocks(held.rows), held.codes, self.n_classes, self.lattice.dim
        )


class SoftmaxQuery(RowQuery):
    """A query that is asked at weights of a linear layer, and perhaps at another, released centre."""

    def checked(
        self, *, weights: Any, offsets: Any = None, at: Lattice | None = None
    ) -> dict[str, Any]:
        """Compare shapes; `at` is the same map about another centre, of the same rows and no longer."""
        lattice = at or self.lattice
        if lattice.to_dict() != self.lattice.to_dict():
            raise MeasurementError(
                "a query may be asked about another centre, and not for another map or width"
            )
        weights = shaped("weights", weights, self.n_classes, self.lattice.dim)
        offsets = (
            None if offsets is None else shaped("offsets", offsets, self.n_classes)
        )
        return {"lattice": lattice, "weights": weights, "offsets": offsets}


@dataclass(frozen=True)
class SoftmaxGradients(SoftmaxQuery):
    """The sum of clipped gradients of the softmax loss at released weights.

    A record adds the outer product of its residual, whose norm is at most `RESOLUTION`
    = 2²⁰ grid steps, which is checked in integers, and its q followed by a constant b;
    an outer product is as long as the product of both lengths (`SoftmaxGradient`, its
    docstring). What all records of a whole person add together is clipped to the same
    length, at these weights, by its exact norm (`dppl.kernel.lattice.joint`).

    With `sampling_rate` below 1 each ask sums a Poisson sample: every record is in it
    by its own coin.
    """

    bias: int = 0
    sampling_rate: float = 1.0
    _code = Statistic.CLIPPED_GRADIENTS
    _steps = RESOLUTION

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise ParameterError(
                f"must lie in (0, 1]; got {self.sampling_rate!r}.",
                parameter="sampling_rate",
            )

    @property
    def needs_rows(self) -> bool:  # type: ignore[override]
        """Coins are noise, which is drawn in one place."""
        return self.sampling_rate < 1

    @property
    def whole_persons(self) -> bool:  # type: ignore[override]
        """The joint norm of a person's records knows no constants and no samples."""
        return not self.bias and self.sampling_rate == 1

    @property
    def statistic(self) -> Term[Statistic]:
        """With its shape, and whether there is a constant."""
        one = super().statistic
        return Term(Statistic.WITH_CONSTANT, of=one) if self.bias else one

    @property
    def squared_norm(self) -> Fraction:
        """As `SoftmaxGradient` proves."""
        return SoftmaxGradient(self.lattice, bias=self.bias).squared_sensitivity

    def checked(self, *, clip: float = 1.0, **released: Any) -> dict[str, Any]:
        """Compare shapes."""
        return super().checked(**released) | {"clip": float(clip)}

    def exact(
        self,
        held: HeldRecords,
        *,
        lattice: Lattice,
        weights: Float,
        offsets: Float | None,
        clip: float,
    ) -> Int64:
        """Return it, shape (n_classes, dim), with a column more at the end if there is a constant."""
        blocks = held.blocks(lattice)
        persons = None if held.persons is None else held.persons.in_turn
        kernel = SoftmaxGradient(lattice, bias=self.bias)
        sets = held.label_sets if self.reads_label_sets else None
        return kernel.sum(
            blocks,
            held.codes,
            weights,
            offsets,
            clip=clip,
            persons=persons,
            label_sets=sets,
        )

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> RoundedGaussian | SampledGaussian:
        """Return the noise, for samples by their own accounting."""
        if self.sampling_rate == 1:
            return self._noise.within(budget, self.squared_sensitivity(relation), times)
        if relation != ADD_REMOVE:
            raise ParameterError(
                "sampling_rate below 1 is accounted under add-remove only"
            )
        return SampledGaussian.within(
            budget, self.squared_norm, times, self.sampling_rate
        )


class LabelGradients(SoftmaxGradients):
    """The sum of clipped gradients of the logistic losses of all labels together, at released weights.

    A record adds the outer product of its residual, over all labels, and its q.
    Residuals are clipped, put on the grid and checked as in `SoftmaxGradients`: a
    residual is at most `RESOLUTION` steps long, whatever the labels of its record are,
    and however many. The rest of that proof does not ask where a residual comes from.
    """

    _code = Statistic.CLIPPED_LABEL_GRADIENTS
    reads_label_sets = True


class LongResiduals(SoftmaxQuery):
    """The number of records whose residual at released weights is longer than a threshold: a record adds 0 or 1."""

    _code = Statistic.LONG_GRADIENTS
    squared_norm = Fraction(1)
    unit = 1.0
    _replaced = 1

    def checked(  # type: ignore[override]
        self, *, weights: Float, offsets: Float, threshold: float
    ) -> dict[str, Any]:
        """Compare shapes."""
        return super().checked(weights=weights, offsets=offsets) | {
            "threshold": float(threshold)
        }

    def exact(
        self,
        held: HeldRecords,
        *,
        lattice: Lattice,
        weights: Float,
        offsets: Float,
        threshold: float,
    ) -> Int64:
        """Return it, shape (1,)."""
        kernel = SoftmaxGradient(lattice)
        return np.array(
            [
                kernel.count_long(
                    held.blocks(lattice), held.codes, weights, offsets, threshold
                )
            ],
            np.int64,
        )


class SoftmaxCurvatures(SoftmaxQuery):
    """The Hessians of the softmax loss of each class at released weights.

    A record adds w_c·q·qᵀ to class c, with w_c = trunc(`RESOLUTION`·p_c·(1 - p_c)):
    ‖w‖·‖q‖² in the joint Frobenius norm. As p(1 - p)² ≤ 4/27 for p in [0, 1] and
    probabilities add up to 1, Σ (p_c(1 - p_c))² ≤ 4/27, which is checked in integers.
    The product of what two records add is never negative, so under replace-one the
    square grows by 2, as for `GramMatrix`.
    """

    _code = Statistic.HESSIANS
    _noise = SymmetricRoundedGaussian
    _replaced = 2
    _steps = RESOLUTION
    _degree = 2

    @property
    def squared_norm(self) -> Fraction:
        """4/27 of the longest square."""
        return Fraction(4, 27) * super().squared_norm

    def exact(
        self, held: HeldRecords, *, lattice: Lattice, weights: Float, offsets: None
    ) -> Int64:
        """Return them, shape (n_classes, dim, dim)."""
        return curvature_sums(lattice, held.blocks(lattice), held.codes, weights)


class Hits(SoftmaxQuery):
    """The number of records, or persons by most of theirs, whose own class has the largest logit: 0 or 1 each."""

    _code = Statistic.HITS_OF_EXAMPLES
    squared_norm = Fraction(1)
    unit = 1.0
    whole_persons = True
    _replaced = 1

    def exact(
        self, held: HeldRecords, *, lattice: Lattice, weights: Float, offsets: Float
    ) -> Int64:
        """Return it, shape (1,)."""
        right = SoftmaxGradient(lattice).hits(
            held.blocks(lattice), held.codes, weights, offsets
        )
        return np.array(
            [right.sum() if held.persons is None else held.persons.right(right)],
            np.int64,
        )


class Shortfalls(SoftmaxQuery):
    """How much less often than others each class is predicted: the sum of w·(1/C - p), on a grid.

    p lies in the simplex, so 1/C - p is no longer than √(1 - 1/C), which is
    `RESOLUTION` grid steps; that a record adds no more is checked in integers. Its
    weight w lies between 0 and 1, whatever the released ones are, and the records of a
    whole person share one.
    """

    _code = Statistic.SHORTFALLS
    squared_norm = Fraction(RESOLUTION**2)
    whole_persons = True

    @property
    def unit(self) -> float:
        """Grid steps of 1."""
        return RESOLUTION / longest_shortfall(self.n_classes)

    def checked(  # type: ignore[override]
        self, *, weights: Float, class_weights: Float, at: Lattice | None = None
    ) -> dict[str, Any]:
        """Round the weights of the classes, from 0 to 1, to steps."""
        steps = on_grid(
            shaped("class_weights", class_weights, self.n_classes), WEIGHT_STEPS
        )
        return super().checked(weights=weights, at=at) | {"steps": steps}

    def exact(
        self,
        held: HeldRecords,
        *,
        lattice: Lattice,
        weights: Float,
        offsets: None,
        steps: Int64,
    ) -> Int64:
        """Return them, shape (n_classes,)."""
        kernel = SoftmaxGradient(lattice)
        return kernel.shortfalls(
            held.blocks(lattice), held.codes, weights, partial(shares, held, steps)
        )


class LabelShortfalls(SoftmaxQuery):
    """How many more records have each label than it is predicted for: the sum of label sets minus probabilities.

    A record adds its residual, clipped and on the grid as in `LabelGradients`: at most
    `RESOLUTION` steps, which is checked in integers, whatever its labels are. The
    records of a whole person share a weight of 1.
    """

    _code = Statistic.LABEL_SHORTFALLS
    squared_norm = Fraction(RESOLUTION**2)
    unit = float(RESOLUTION)  # of the clipping norm
    whole_persons = True
    reads_label_sets = True

    def checked(self, *, clip: float, **released: Any) -> dict[str, Any]:  # type: ignore[override]
        """Compare shapes."""
        check_clip(clip)
        return super().checked(**released) | {"clip": float(clip)}

    def exact(
        self,
        held: HeldRecords,
        *,
        lattice: Lattice,
        weights: Float,
        offsets: Float | None,
        clip: float,
    ) -> Int64:
        """Return them, shape (n_classes,)."""
        assert held.label_sets is not None
        of_records = partial(shares, held, np.array([WEIGHT_STEPS]))
        return label_shortfalls(
            lattice,
            held.blocks(lattice),
            held.label_sets,
            weights,
            offsets,
            clip,
            of_records,
        )


@dataclass(frozen=True, eq=False)
class CoinPressMeans(RowQuery, OwnAnswer):
    """The mean of each class by CoinPress, whose steps clip rows to balls about earlier, noisy means.

    A record is in one class, whose size neighbours agree in; how far it moves the sum
    of a step is that step's bound (`CoinPress`).
    """

    split: tuple[float, ...]
    _code = Statistic.CLASS_MEANS
    needs_rows = True
    repeats = False
    per_class = True
    squared_norm = Fraction(1)
    unit = 1.0  # means of unit rows

    def mechanism(self, budget: Budget, times: int, relation: str) -> CoinPress:
        """Return the estimator that spends the budget."""
        if relation != WITHIN_CLASS:
            raise ParameterError(
                "CoinPress divides by class sizes, public only where neighbours agree in them"
            )
        return CoinPress.within(budget, self.lattice, self.split)

    def answer(
        self, mechanism: CoinPress, records: Any, source: Randomness, **released: Any
    ) -> Float:
        """Return noisy means of unit rows, shape (n_classes, dim); the records lie in one place."""
        blocks = self.lattice.blocks(records.rows)
        rows = np.concatenate([np.empty((0, self.lattice.dim), np.int8), *blocks])
        parts = (rows[records.codes == code] for code in range(self.n_classes))
        return np.stack(
            [mechanism.release(part, self.lattice, source) for part in parts]
        )


def first_labels(sets: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Return the first labels of each record, in the order of the classes, so many at most."""
    return sets & (np.cumsum(sets, axis=1, dtype=np.int32) <= most)


def shares(held: HeldRecords, weights: Int64, part: slice = slice(None)) -> Int64:
    """Return what each record weighs, if one of a class weighs so much; the records of a person share that."""
    if held.persons is not None:
        return held.persons.shares(weights, part)
    return np.append(weights, 0)[held.codes[part]]  # the last is for the code -1


def on_grid(weights: Float, steps: int) -> Int64:
    """Return weights in [0, 1] in whole steps, rounded down; those outside, and NaN, are limited."""
    # In float64: in narrower floats so many steps would be infinite.
    return np.floor(
        np.clip(np.nan_to_num(np.asarray(weights, np.float64)), 0, 1) * steps
    ).astype(np.int64)


def shaped(name: str, values: Any, *shape: int) -> Float:
    """Return what a query is asked at in float64, after comparing its shape with the declared one."""
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise MeasurementError(f"{name} must have the shape {shape}; got {array.shape}")
    return array
