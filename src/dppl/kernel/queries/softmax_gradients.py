"""What is asked at released weights of a softmax: gradients, long residuals, hits and shortfalls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.residuals import (
    WEIGHT_STEPS,
    SoftmaxGradient,
    longest_shortfall,
)
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import (
    ADD_REMOVE,
    Blocks,
    Codes,
    Float,
    Int64,
    RowQuery,
    on_grid,
    recentred,
    shaped,
    shares,
)

if TYPE_CHECKING:
    from dppl.kernel.mechanisms.sampled import SampledGaussian
    from dppl.kernel.persons import WholePersons


class SoftmaxQuery(RowQuery):
    """A query that is asked at weights of a linear layer, and perhaps at another, released centre."""

    keeps_rows = True

    def checked(
        self, *, weights: Any, offsets: Any = None, at: Lattice | None = None
    ) -> dict[str, Any]:
        """Compare shapes; `at` is the same map about another centre, of the same rows and no longer."""
        lattice = recentred(self.lattice, at)
        weights = shaped("weights", weights, self.n_classes, self.lattice.dim)
        if offsets is not None:
            offsets = shaped("offsets", offsets, self.n_classes)
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
        if not self.bias:
            return one
        return Term(Statistic.WITH_CONSTANT, of=one, constant=self.bias)

    def checked(self, *, clip: float = 1.0, **released: Any) -> dict[str, Any]:
        """Compare shapes."""
        return super().checked(**released) | {"clip": float(clip)}

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float | None,
        clip: float,
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return it, shape (n_classes, dim), with a column more at the end if there is a constant."""
        in_turn = None if persons is None else persons.in_turn
        kernel = SoftmaxGradient(self.lattice, bias=self.bias)
        return kernel.sum(blocks, codes, weights, offsets, clip=clip, persons=in_turn)

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> RoundedGaussian | SampledGaussian:
        """Return the noise, for samples by their own accounting."""
        if self.sampling_rate == 1:
            return self._noise.within(budget, self.squared_sensitivity(relation), times)
        # Amplification by Poisson sampling is proved for a record added or removed.
        if relation != ADD_REMOVE:
            raise ParameterError(
                "sampling_rate below 1 is accounted under add-remove only"
            )
        from dppl.kernel.mechanisms.sampled import SampledGaussian

        return SampledGaussian.within(
            budget, self.squared_norm, times, self.sampling_rate
        )


class LongResiduals(SoftmaxQuery):
    """The number of records whose residual at released weights is longer than a threshold: a record adds 0 or 1."""

    _code = Statistic.LONG_GRADIENTS
    unit = 1.0

    def checked(  # type: ignore[override]
        self, *, weights: Float, offsets: Float, threshold: float
    ) -> dict[str, Any]:
        """Compare shapes."""
        return super().checked(weights=weights, offsets=offsets) | {
            "threshold": float(threshold)
        }

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float,
        threshold: float,
    ) -> Int64:
        """Return it, shape (1,)."""
        kernel = SoftmaxGradient(self.lattice)
        long = kernel.count_long(blocks, codes, weights, offsets, threshold)
        return np.array([long], np.int64)


class Hits(SoftmaxQuery):
    """How many records, or persons by most of theirs, have the largest logit at their own class, and how many not."""

    _code = Statistic.HITS_OF_EXAMPLES
    unit = 1.0
    whole_persons = True

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float,
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return them, shape (2,)."""
        right = SoftmaxGradient(self.lattice).hits(blocks, codes, weights, offsets)
        return self._numbers(right, codes, persons)

    @staticmethod
    def _numbers(
        right: NDArray[np.bool_], codes: Codes, persons: WholePersons | None
    ) -> Int64:
        hits, counted = int(right.sum()), int((codes >= 0).sum())
        if persons is not None:
            hits, counted = persons.right(right), persons.number()
        return np.array([hits, counted - hits], np.int64)


class Shortfalls(SoftmaxQuery):
    """How much less often than others each class is predicted: the sum of w·(1/C - p), on a grid.

    p lies in the simplex, so 1/C - p is no longer than √(1 - 1/C), which is
    `RESOLUTION` grid steps; that a record adds no more is checked in integers. Its
    weight w lies between 0 and 1, whatever the released ones are, and the records of a
    whole person share one.
    """

    _code = Statistic.SHORTFALLS
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
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: None,
        steps: Int64,
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return them, shape (n_classes,)."""
        kernel = SoftmaxGradient(self.lattice)
        of_records = partial(shares, codes, steps, persons)
        return kernel.shortfalls(blocks, codes, weights, of_records)
