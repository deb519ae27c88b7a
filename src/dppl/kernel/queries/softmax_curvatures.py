"""Hessians of the softmax loss at released weights."""

from __future__ import annotations

from dppl.kernel.lattice.curvatures import curvature_sums
from dppl.kernel.mechanisms.symmetric import SymmetricRoundedGaussian
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.privacy.terms import Statistic
from dppl.kernel.queries.base import Blocks, Codes, Float, Int64
from dppl.kernel.queries.softmax_gradients import SoftmaxQuery


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
    _steps = RESOLUTION
    _degree = 2

    def exact(
        self, blocks: Blocks, codes: Codes, *, weights: Float, offsets: None
    ) -> Int64:
        """Return them, shape (n_classes, dim, dim)."""
        return curvature_sums(self.lattice, blocks, codes, weights)
