"""Which released sums hold records of their class? A guess from the released values and the public noise alone.

A sum over records of a class is long; one of noise has a squared norm of about dim times the noise variance. With x the
ratio of the two, the largest likelihood of a Gaussian signal of any variance exceeds that of none by the factor
exp(dim/2·(x - 1 - ln x)) for x > 1, and by 1 otherwise. One is taken off its logarithm for the fitted variance (Akaike
1974), so that the evidence of noise does not add up over many tasks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float = NDArray[np.float64]

# Prior probability that a class occurs in a task. Any small one does; results were alike from 0.03 to 0.1.
_PRESENT = 0.1
_MOST_STEPS = 200
_CLOSE = 1e-9


def evidence(sums: Float, variance: Float) -> Float:
    """Return the log-likelihood ratio of a signal against none for each row of `sums`.

    `variance` is of the noise of each coordinate of a row.
    """
    x = np.maximum(_lengths(sums, variance), 1.0)
    return np.asarray(sums.shape[1] / 2 * (x - 1 - np.log(x)) - 1)


def presence(sums: Float, variance: Float) -> tuple[Float, Float]:
    """Return a weight for each sum of a task, and the evidence that its class is in some tasks and not in others.

    The weight is the posterior probability that the class is present times what James and Stein (1961) shrink a sum of
    its length by.
    """
    odds = evidence(sums, variance) + math.log(_PRESENT / (1 - _PRESENT))
    shrunk = 1 - 1 / np.maximum(_lengths(sums, variance), 1.0)
    return expit(odds) * shrunk, np.logaddexp(0, odds) + math.log(1 - _PRESENT)


def posterior(for_one: Float, for_other: Float) -> Float:
    """Return the posterior probability for each class that the first of two cases holds.

    The arguments are the logarithms of the two likelihoods.

    The share of such classes is fitted to all of them together, by expectation-maximisation.
    """
    share = 0.5
    for _ in range(_MOST_STEPS):
        probabilities = expit(for_one - for_other + math.log(share / (1 - share)))
        before, share = share, float(np.clip(probabilities.mean(), _CLOSE, 1 - _CLOSE))
        if abs(share - before) < _CLOSE:
            break
    return np.asarray(probabilities)


def _lengths(sums: Float, variance: Float) -> Float:
    """Return the squared norm of each sum, in units of what noise alone has on average."""
    # Without any task there is neither sum nor noise.
    return np.asarray(np.square(sums).sum(axis=1) / (sums.shape[1] * np.maximum(variance, 1e-300)))
