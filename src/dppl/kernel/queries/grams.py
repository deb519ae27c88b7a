"""Gram matrices of lattice rows: a record is in one class and adds the matrix q·qᵀ to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.kernels import gram_matrices, weighted_gram
from dppl.kernel.mechanisms.symmetric import SymmetricRoundedGaussian
from dppl.kernel.privacy.sensitivity import PERSON_STEPS
from dppl.kernel.privacy.terms import Statistic
from dppl.kernel.queries.base import (
    Blocks,
    Codes,
    Int64,
    RowQuery,
    recentred,
    shares,
)

if TYPE_CHECKING:
    from dppl.kernel.persons import WholePersons


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


class SecondMoment(GramMatrix):
    """The sum of w·q·qᵀ about a released centre, with weights w of up to 2⁸ that the records of a person share.

    A record adds 2⁸·q·qᵀ. A whole person adds matrices whose weights add up to 2⁸ at
    most, and no sum of matrices is longer than their lengths together. Products of what
    two persons add are sums of w·v·(q·p)², and none is negative either.
    """

    _code = Statistic.SECOND_MOMENT
    _steps = PERSON_STEPS
    keeps_rows = True
    whole_persons = True

    def checked(self, *, at: Lattice | None = None) -> dict[str, Any]:
        """Take the same map about another centre."""
        return {"lattice": recentred(self.lattice, at)}

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return it, shape (dim, dim)."""
        whole = np.full(self.n_classes, self._steps)
        return weighted_gram(blocks, shares(codes, whole, persons), self.lattice.dim)
