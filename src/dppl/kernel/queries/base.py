"""What a query is: an integer function of private records, and how far one record moves it before its noise.

Each family of queries is a file of this package. The docstring of a query proves its
sensitivity, for any values of its arguments, which are public or released. Records were
mapped by `Lattice`, whose rows q have the norm s at most (`Lattice.squared_norm` is
s²), and each is in one class.

Data go down, and one number comes up: `records.total` maps the rows, and `Query.exact`
gets them in blocks, with the class code of each. Its value is exact in any order of
the records. Shapes are compared with what was declared before a record is read, since
an error that only some records raise would tell of them.

Under replace-one a record leaves and another comes, so any sum moves by at most twice
what it moves by under add-remove; queries say where they do better. Those marked
`whole_persons` move by a whole person (`WholePersons`) as by one record: the person's
records share one weight, or what they add is clipped together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl.errors import MeasurementError
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.sensitivity import replaced, squared_norm_of
from dppl.kernel.privacy.terms import Statistic, Term

if TYPE_CHECKING:
    from dppl.kernel.persons import WholePersons

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]
Codes = NDArray[np.intp]
# Lattice rows, in blocks of any length.
Blocks: TypeAlias = Iterable[NDArray[np.int8]]

# Relations between neighbours. In the last one a record is replaced by another of its
# class.
ADD_REMOVE = "add-remove"
REPLACE_ONE = "replace-one"
WITHIN_CLASS = "replace-one within a class"


class Query:
    """An exact integer function of records, and how far one record moves it."""

    # What the statement calls a query of an own method, in words; `self` is the query.
    words: ClassVar[str] = ""
    # Whether it needs rows one after another, so that the records must lie in one place.
    needs_rows: ClassVar[bool] = False
    # Whether it may be asked several times.
    repeats: ClassVar[bool] = True
    # Whether lattice rows are kept for its next ask.
    keeps_rows: ClassVar[bool] = False
    # Whether all records of a person move it as one record does.
    whole_persons: ClassVar[bool] = False
    # Whether each class has entries that only its own records move.
    per_class: ClassVar[bool] = False
    # Whether its answer is a selection, which pure DP allows.
    selects: ClassVar[bool] = False
    # Whether it is of records that may have several labels.
    reads_label_sets: ClassVar[bool] = False
    # Probability with which a record is in the sample that an ask is of.
    sampling_rate: float = 1.0
    # Noise for symmetric matrices is drawn above the diagonal alone.
    _noise: ClassVar[type[RoundedGaussian]] = RoundedGaussian

    @property
    def statistic(self) -> Term[Statistic]:
        """What the statement calls it."""
        words = self.words.format(self=self) or type(self).__name__
        return Term(Statistic.STATED, text=words)

    @property
    def squared_norm(self) -> Fraction:
        """Square of the longest vector that a record adds; an own query says it."""
        known = squared_norm_of(self.statistic)
        if known is None:
            raise MeasurementError(
                f"{type(self).__name__} must have a squared_norm: the square of the longest vector that a record adds"
            )
        return known

    @property
    def unit(self) -> float:
        """How many integer steps are 1."""
        return 1.0

    def checked(self, *args: Any, **released: Any) -> dict[str, Any]:
        """Check what the query is asked at, and return it as `exact` takes it; here that is nothing.

        A `lattice` in what is returned maps the rows in the place of the query's own.

        Parameters
        ----------
        *args, **released
            Public or released values, by name.
        """
        if args or released:
            raise MeasurementError(
                f"{type(self).__name__} takes no arguments: it has no `checked`"
            )
        return {}

    def exact(self, blocks: Any, codes: Any, /, *args: Any, **at: Any) -> Int64:
        """Return the value of some records, without noise; the values of parts add up to the value of all.

        Parameters
        ----------
        blocks : iterable of ndarray of shape (n, dim)
            Their rows, mapped by the query's `lattice`; as they are, if it has none.
        codes : ndarray of shape (n_records,)
            Class of each record; -1 for those that do not count.
        *args, **at
            What `checked` returned, by name. Where persons enter with all of their
            records, also the `persons`, and of several labels the `label_sets`.
        """
        raise NotImplementedError

    def squared_sensitivity(self, relation: str) -> Fraction:
        """Square of the L2 distance between the values of neighbours."""
        factor = 1 if relation == ADD_REMOVE else replaced(self.statistic)
        return self.squared_norm * factor

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
    """Return the noisy answer of a query: of a fresh sample of the records where it is of one."""
    if isinstance(query, OwnAnswer):
        return query.answer(mechanism, records, source, **released)
    if query.sampling_rate < 1:  # it needs rows, so the records are held here
        records = records.sampled(mechanism.sample(len(records.codes), source))
        mechanism = mechanism.each
    return mechanism.release(records.total(query, **released), source)


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
    def unit(self) -> float:
        """Integer steps of a unit row, or of its product with itself."""
        if self._degree == 1:
            return self._steps * self.lattice.scale
        return self._steps * float(self.lattice.squared_norm)


def recentred(lattice: Lattice, at: Lattice | None) -> Lattice:
    """Return the same map about another centre, of the same rows and no longer; refuse any other map or width."""
    # The length of a lattice row does not depend on the centre, so the sensitivity is
    # the same about each.
    if at is not None and at.to_dict() != lattice.to_dict():
        raise MeasurementError(
            "a query may be asked about another centre, and not for another map or width"
        )
    return at or lattice


def shares(
    codes: Codes,
    weights: Int64,
    persons: WholePersons | None = None,
    part: slice = slice(None),
) -> Int64:
    """Return what each record weighs, if one of a class weighs so much; the records of a person share that."""
    if persons is not None:
        return persons.shares(weights, part)
    return np.append(weights, 0)[codes[part]]  # the last is for the code -1


def first_labels(sets: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Return the first labels of each record, in the order of the classes, so many at most."""
    return sets & (np.cumsum(sets, axis=1, dtype=np.int32) <= most)


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
