"""How many records there are, and how many of each class, as far as noise shows it."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dppl._utils.types import Float
from dppl.kernel import Measure

# Percentage of mu² for the number of records. It decides only the length of a step, so
# little is paid for it.
SIZE_PERCENT = 1
# The mean weighs classes alike as far as its noise stays below this share of a unit
# row.
_BALANCE = 0.1


def measured_size(measure: Measure, n_classes: int) -> float:
    """Ask for the number of records, and raise it to the width of its noise and to one record a class, to divide by."""
    return max(float(measure("size")[0]), measure.noise_std("size"), float(n_classes))


@dataclass(frozen=True, slots=True)
class ClassSizes:
    """Class sizes, which differ only as far as noisy counts differ by more than their noise."""

    total: float  # number of records, at least two a class
    sizes: Float  # shape (n_classes,); not below 0
    least: (
        Float | float
    )  # what a class counts at least in a divisor: the noise, or the mean size if that is smaller
    noise_std: float  # standard deviation of the noise that is left in sizes
    shares: Float  # shape (n_classes,); above 0 and of sum 1

    @classmethod
    def of(cls, total: float, counts: Float, noise_std: float) -> Self:
        """Read them off a noisy number of records and noisy counts."""
        n_classes = len(counts)
        total = max(total, 2.0 * n_classes)
        # The part of the differences between counts that is no noise.
        trust = max(0.0, 1 - noise_std**2 / max(float(counts.var()), 1e-9))
        sizes = np.maximum(total / n_classes + trust * (counts - counts.mean()), 0)
        least = min(noise_std, total / n_classes)
        raised = sizes + least
        return cls(
            total, sizes, least, math.sqrt(trust) * noise_std, raised / raised.sum()
        )

    @property
    def balancing(self) -> Float:
        """Weights of each class's records, 1 at most, with which all classes weigh alike."""
        return np.asarray(self.shares.min() / self.shares)

    def mean_weights(self, noise_std: float) -> Float:
        """Return weights from 0 to 1 of each class's records in a mean whose noise has the length `noise_std`.

        A class weighs up to a limit, as low as the noise stays below a share of the
        sum.
        """
        shares = np.sort(self.shares)
        needed = noise_std / (_BALANCE * self.total)
        # Cut to t, shares add up to the least of these lines in t: the k smallest
        # whole, and t for each of the rest. The limit is the smallest class, so that
        # all weigh alike, if that is enough.
        rest = np.arange(len(shares), 0, -1)
        most = max(
            shares[0], float(((needed - np.cumsum(shares) + shares) / rest).max())
        )
        return np.asarray(np.minimum(1.0, most / self.shares))
