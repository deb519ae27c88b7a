"""Means by CoinPress, whose steps release sums of rows that are clipped to balls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dppl.errors import ParameterError
from dppl.kernel.mechanisms.coinpress import CoinPress
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.terms import Statistic
from dppl.kernel.queries.base import WITHIN_CLASS, Float, OwnAnswer, RowQuery


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
