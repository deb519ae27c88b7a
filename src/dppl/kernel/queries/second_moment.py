"""The second moment of lattice rows about a released centre."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.kernels import gram_matrices
from dppl.kernel.mechanisms.symmetric import SymmetricRoundedGaussian
from dppl.kernel.privacy.sensitivity import PARTS
from dppl.kernel.privacy.terms import Statistic
from dppl.kernel.queries.base import Blocks, Codes, Int64, RowQuery, recentred, shares

if TYPE_CHECKING:
    from dppl.kernel.persons import WholePersons


class SecondMoment(RowQuery):
    """The sum of w·q·qᵀ, with an integer weight w from 0 to 2⁸ that the records of a person share.

    ‖q·qᵀ‖ is s² in the Frobenius norm. A record adds 2⁸ times such a matrix, and a
    person a sum of them whose weights add up to 2⁸ at most, which is no longer. The
    products of two matrices, (q·p)², are never negative, and so what replaces another
    is no further from it than √2·2⁸·s². Parts are rounded down, so the records of a
    person who has more than 2⁸ add nothing.
    """

    _code = Statistic.SECOND_MOMENT
    _noise = SymmetricRoundedGaussian
    _steps = PARTS
    _degree = 2
    keeps_rows = True
    whole_persons = True

    def checked(self, *, at: Lattice | None = None) -> dict[str, Any]:
        """Take the same map about another centre."""
        return {"lattice": recentred(self.lattice, at)}

    def exact(
        self, blocks: Blocks, codes: Codes, *, persons: WholePersons | None = None
    ) -> Int64:
        """Return it, shape (dim, dim)."""
        weights = shares(codes, np.full(self.n_classes, PARTS), persons)
        total = np.zeros((self.lattice.dim, self.lattice.dim), np.int64)
        # Of records only one, and of persons few: 2⁸ // m for m records.
        for weight in np.unique(weights[weights > 0]).tolist():
            alike = np.where(weights == weight, 0, -1)
            (gram,) = gram_matrices(blocks, alike, 1, self.lattice.dim)
            total += weight * gram
        return total
