"""Gram matrices of lattice rows: a record is in one class and adds the matrix q·qᵀ to it."""

from __future__ import annotations

import numpy as np

from dppl.kernel.lattice.kernels import gram_matrices
from dppl.kernel.mechanisms.symmetric import SymmetricRoundedGaussian
from dppl.kernel.privacy.terms import Statistic
from dppl.kernel.queries.base import Blocks, Codes, Int64, RowQuery


class GramMatrix(RowQuery):
    """The sum of q·qᵀ.

    ‖q·qᵀ‖ is s² in the Frobenius norm. Of two records the product ⟨q·qᵀ, p·pᵀ⟩ = (q·p)²
    is never negative, so their difference is no longer than √2·s²: under replace-one
    the square grows by 2, and not by 4.
    """

    _code = Statistic.GRAM_MATRIX
    _noise = SymmetricRoundedGaussian
    _degree = 2

    def exact(self, blocks: Blocks, codes: Codes) -> Int64:
        """Return it, shape (dim, dim)."""
        all_alike = np.minimum(codes, 0)
        (gram,) = gram_matrices(blocks, all_alike, 1, self.lattice.dim)
        return np.asarray(gram)


class ClassGramMatrices(GramMatrix):
    """The sum of q·qᵀ of each class, shape (n_classes, dim, dim): a record adds to one of them, as to `GramMatrix`."""

    _code = Statistic.CLASS_GRAM_MATRICES

    def exact(self, blocks: Blocks, codes: Codes) -> Int64:
        """Return them."""
        return gram_matrices(blocks, codes, self.n_classes, self.lattice.dim)
