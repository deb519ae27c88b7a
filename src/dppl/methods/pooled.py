"""How far a fit believes the model that it starts from, class by class, and what it makes of both paths.

Constants were chosen on embeddings of three public data sets, over budgets of mu from
0.1 to 4.
"""

from dataclasses import dataclass

import numpy as np

from dppl._utils.types import Flags, Float
from dppl.methods.linear import (
    LEAST_SPREAD,
    STEPS,
    ClassSizes,
    Frame,
    PooledPath,
    log_normal,
    of_wrong,
)
from dppl.methods.shared import unit_directions
from dppl.methods.start import Start

# Shares of the classes whose earlier rows may be right, and how likely each is before
# anything was released. Weak evidence must leave a right model on.
_SHARES = np.array((0, 0.1, 0.25, 0.5, 0.75, 0.9, 1))
_PRIOR = np.array((0.04, 0.01, 0.01, 0.02, 0.01, 0.01, 0.90))
# How much better right rows may agree with the gradient of their class than wrong ones,
# and where between chance and always the share of records lies that they rank first.
_SHIFTS = np.array((0.8, 0.4, 0.2, 0.1, 0.05))
_SKILLS = 0.95 * 2.0 ** -(np.arange(9) / 2)
# Relative width of a cell of skills, so that sharp counts are not over-read.
_SKILL_WIDTH = 0.35
# Least standard deviation of how right rows agree, in units of by how much they do.
_SPREAD_OF_RIGHT = 0.25


@dataclass(frozen=True, slots=True)
class Answered:
    """What a fit was answered of the rows of an earlier model, all of it with noise."""

    sizes: ClassSizes
    clip: float  # of the residual of a record
    gradient: Float  # shape (n_classes, dim); the first, at zero weights
    noise_std: float  # of that
    hits: float  # share of the records of known classes that the model ranks rightly
    hits_std: float
    chance: float  # that share for a model that knows nothing


def pooled(
    start: Start,
    frame: Frame,
    answered: Answered,
) -> PooledPath:
    """Return the mean of both paths by trust and known noise: a fixed-effect meta-analysis, class by class.

    Trust multiplies the weight and not the precision: a little trust in a precise model
    that is wrong must not win.
    """
    sizes = answered.sizes
    clip = answered.clip
    noise_std = answered.noise_std
    dim = answered.gradient.shape[1]
    path = start.path @ frame.axes
    trust = trust_in(
        start.coef @ frame.axes,
        start.known,
        answered,
    )
    n_old = start.sizes
    n_new = sizes.total * sizes.shares

    def precision(n: Float, variance: Float | float) -> Float:
        """Of a row of a path per record: of which records there happen to be, and of noise."""
        return np.asarray(n**2 / (n * clip**2 * STEPS / dim + variance + 1e-12))

    old = precision(n_old, start.variance)
    share = trust * old / (old + precision(n_new, noise_std**2 * STEPS))
    n = trust * n_old + n_new
    of_old = share * n / np.maximum(n_old, 1e-9)
    of_new = (1 - share) * n / n_new
    counted = of_old * n_old + of_new * sizes.sizes
    total = float(counted.sum())
    # What was taken from zero weights is dropped where the row is right, and little of
    # it is noise.
    signal = STEPS * (clip * n_new) ** 2 / (noise_std**2 * dim)
    kept = 1 - trust * signal / (1 + signal)
    return PooledPath(
        path=of_old[:, None] * path,
        variance=of_old**2 * start.variance,
        weights=of_new,
        sizes=ClassSizes(
            total,
            counted,
            np.maximum(of_new * sizes.least, 1e-9),
            sizes.noise_std,
            (of_old * n_old + of_new * n_new) / total,
        ),
        first=kept[:, None] * answered.gradient,
    )


def trust_in(
    coef: Float,
    known: Flags,
    answered: Answered,
) -> Float:
    """Return the probability that each class's row of an earlier model is right; 0 for classes that it does not know.

    As in `Trust`, rows of *other* classes show how wrong ones agree with a gradient.
    Here any share of the classes may be right, by any margin, and the share of hits says
    how many are.
    """
    from scipy.special import logsumexp, softmax

    records = np.maximum(answered.sizes.sizes, max(answered.sizes.noise_std, 1.0))
    most = answered.clip * records
    agreement: Float = answered.gradient @ unit_directions(coef).T / most[:, None]
    noise_std = answered.noise_std / most
    spread = answered.sizes.noise_std / records
    middle, variance = of_wrong(
        agreement,
        noise_std,
        spread,
        known,
    )

    own = agreement.diagonal()[known]
    noise = noise_std[known] ** 2
    uneven = spread[known] ** 2
    wrong = log_normal(
        own,
        middle,
        variance * (1 + uneven) + noise,
    )
    shifts = _SHIFTS[:, None]
    deviations = np.maximum(_SPREAD_OF_RIGHT * shifts, LEAST_SPREAD)
    right = log_normal(
        own,
        middle + shifts,
        deviations**2 + noise + (abs(middle) + shifts) ** 2 * uneven,
    )
    # Of shape (n_shares, n_shifts, n_known).
    share = _SHARES[:, None, None]
    with np.errstate(divide="ignore"):
        either = np.logaddexp(
            np.log(share) + right,
            np.log1p(-share) + wrong,
        )
    evidence = either.sum(axis=2) + np.log(_PRIOR)[:, None]

    chance = answered.chance
    shares = _SHARES[:, None]
    first = chance + shares * (1 - chance) * _SKILLS
    width = shares * _SKILL_WIDTH * _SKILLS
    likely = log_normal(
        answered.hits,
        first,
        answered.hits_std**2 + ((1 - shares) * chance / 2) ** 2 + width**2 / 12,
    )
    for place, shift in enumerate(_SHIFTS):
        # Rows that agree so much rank right at least as often.
        usual = likely[:, shift <= _SKILLS]
        evidence[:, place] += logsumexp(usual, axis=1) - np.log(usual.shape[1])

    posterior = softmax(evidence)
    trust = np.zeros(len(known))
    with np.errstate(divide="ignore"):
        of_right = np.exp(np.log(share) + right - either)
    trust[known] = np.tensordot(posterior, of_right, 2)
    return trust
