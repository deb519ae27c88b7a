"""What a step of DPSGD-Global-Adapt asks of one batch: its gradient, and how many records have a long one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dppl._utils.types import Float
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import Blocks, Codes, Int64
from dppl.kernel.queries.softmax_gradients import LongResiduals, SoftmaxGradients

# Share of the square of what a record adds that is the count's, which only says whether
# a bound rises or falls.
_OF_COUNT = 0.01


def count_weight(lattice: Lattice) -> int:
    """Return what one counted record adds to the vector."""
    return math.isqrt(int(_OF_COUNT * RESOLUTION**2 * lattice.squared_norm))


@dataclass(frozen=True)
class CountedGradients(SoftmaxGradients):
    """The sum of clipped gradients of a batch and, behind it, a weighted number of those above a threshold.

    A record adds a gradient as to `SoftmaxGradients`, and 0 or the weight w to another
    entry, so the square of what it adds is at most the gradient's and w². Both are of
    one batch, as published, and one vector with one noise: with noise multipliers σ₁ of
    the gradient and σ₂ of the count its own, σ, has 1/σ² = 1/σ₁² + 1/σ₂².
    """

    @property
    def whole_persons(self) -> bool:  # type: ignore[override]
        """A count of records knows no persons."""
        return False

    @property
    def statistic(self) -> Term[Statistic]:
        """With its shape and the weight."""
        return Term(
            Statistic.COUNTED_GRADIENTS,
            n_classes=self.n_classes,
            dim=self.lattice.dim,
            weight=count_weight(self.lattice),
        )

    def checked(self, *, threshold: float, **released: Any) -> dict[str, Any]:  # type: ignore[override]
        """Compare shapes."""
        return super().checked(**released) | {"threshold": float(threshold)}

    def exact(  # type: ignore[override]
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float,
        clip: float,
        threshold: float,
    ) -> Int64:
        """Return both in one row, n_classes·dim + 1 integers."""
        # Both read them, and the kernel's blocks come once.
        rows = list(blocks)
        gradients = super().exact(
            rows, codes, weights=weights, offsets=offsets, clip=clip
        )
        longer = LongResiduals(self.lattice, self.n_classes).exact(
            rows, codes, weights=weights, offsets=offsets, threshold=threshold
        )
        return np.append(gradients, count_weight(self.lattice) * longer)
