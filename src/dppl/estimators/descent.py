"""What all methods share that descend on noisy sums of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel import Measure

# Percentage of mu² for the number of records. It decides only the length of a step, so little is paid for it.
SIZE_PERCENT = 1


class Descent:
    """Weights that move from zero along released gradients by the heavy-ball rule (Polyak 1964).

    `momentum` is the share of the velocity that the next step keeps; ``l2 / 2 * ‖coef‖²`` is added to the mean loss.
    A `constant` other than 0 ends every row, and so the last column of a gradient moves the intercept.
    """

    def __init__(self, n_classes: int, dim: int, *, momentum: float, l2: float = 0.0, constant: float = 0.0) -> None:
        self.coef, self.intercept = np.zeros((n_classes, dim)), np.zeros(n_classes)
        self.velocity = np.zeros((n_classes, dim + (constant != 0)))
        self._momentum, self._l2, self._constant = momentum, l2, constant

    def move(self, direction: NDArray[Any], step: float = 1.0) -> None:
        """Take a step along the negative gradient of the mean loss, as `SoftmaxGradient.sum` orders it."""
        dim = self.coef.shape[1]
        self.velocity = self._momentum * self.velocity + direction
        self.velocity[:, :dim] -= self._l2 * self.coef
        self.coef = self.coef + step * self.velocity[:, :dim]
        if self._constant:
            self.intercept = self.intercept + step * self._constant * self.velocity[:, dim]


def measured_size(measure: Measure, n_classes: int) -> float:
    """Ask for the number of records, and raise it to the width of its noise and to one record a class, to divide by."""
    return max(float(measure("size")[0]), measure.noise_std("size"), float(n_classes))
