"""How far a fit believes the model that it starts from, class by class, and what it makes of both paths.

Constants were chosen on embeddings of three public data sets, over budgets of mu from
0.1 to 4; those of how sure a clear path is, and of how skills spread, by simulation.
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
# The power of the prior of skills, for a path without noise; 0 for one of noise alone.
_SURE = 2.0
# Standard deviation of the skill of classes, in units of its mean.
_SPREAD_OF_SKILLS = 0.35
# Standard deviation of how right rows agree, in units of by how much they do.
_SPREAD_OF_RIGHT = 0.25


@dataclass(frozen=True, slots=True)
class Answered:
    """What a fit was answered of the rows of an earlier model, all of it with noise."""

    sizes: ClassSizes
    clip: float  # of the residual of a record
    gradient: Float  # shape (n_classes, dim); the first, at zero weights
    noise_std: float  # of that
    # Numbers of records that the model ranks rightly, and their noise: shapes (1,) and
    # (n_classes,).
    hits: tuple[Float, float]
    class_hits: tuple[Float, float]


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
    energy = max(float(np.square(path).sum()), 1e-300)
    clear = max(0.0, 1 - float(start.variance.sum()) * dim / energy)
    trust = trust_in(
        start.coef @ frame.axes,
        start.known,
        answered,
        clear,
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
    clear: float,
) -> Float:
    """Return the probability that each class's row of an earlier model is right; 0 for classes that it does not know.

    As in `Trust`, rows of *other* classes show how wrong ones agree with a gradient.
    Here any share of the classes may be right, by any margin and with any skill. Hits of
    a class say whether its row is, as far as noise allows, and all hits how many are.
    `clear` is the share of the earlier path that is no noise.
    """
    from scipy.special import softmax

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

    # What follows has the axes shares, shifts, skills and known classes.
    shares = _SHARES[:, None, None, None]
    shifts = _SHIFTS[:, None, None]
    skills = _SKILLS[:, None]
    own = agreement.diagonal()[known]
    noise = noise_std[known] ** 2
    uneven = spread[known] ** 2
    deviations = np.maximum(_SPREAD_OF_RIGHT * shifts, LEAST_SPREAD)
    chance = 1 / len(own)

    # How likely each class's own agreement and hits are, if its row is wrong or right.
    counts, std = answered.class_hits
    rate = (counts / records)[known]
    rate_noise = (std / records[known]) ** 2
    usual = chance + (1 - chance) * skills
    wrong = log_normal(
        own,
        middle,
        variance * (1 + uneven) + noise,
    ) + log_normal(rate, chance / 2, (chance / 2) ** 2 + rate_noise)
    right = log_normal(
        own,
        middle + shifts,
        deviations**2 + noise + (abs(middle) + shifts) ** 2 * uneven,
    ) + log_normal(
        rate, usual, (_SPREAD_OF_SKILLS * skills) ** 2 + rate_noise + usual**2 * uneven
    )
    with np.errstate(divide="ignore"):
        some = np.log(shares)
        either = np.logaddexp(
            some + right,
            np.log1p(-shares) + wrong,
        )
    evidence = either.sum(axis=3) + np.log(_PRIOR)[:, None, None]

    # And all hits together, which are sharper.
    total = max(
        float((answered.sizes.total * answered.sizes.shares)[known].sum()), 1e-3
    )
    count, std = answered.hits
    shares = shares[..., 0]
    evidence += log_normal(
        float(count[0]) / total,
        chance + shares * (1 - chance) * _SKILLS,
        (std / total) ** 2
        + ((1 - shares) * chance / 2) ** 2
        + (shares * _SKILL_WIDTH * _SKILLS) ** 2 / 12,
    )
    # Rows that agree so much rank right at least as often, and those of a path without
    # much noise are the likelier the more skilled they are.
    before = np.where(_SHIFTS[:, None] <= _SKILLS, _SKILLS ** (_SURE * clear), 0)
    with np.errstate(divide="ignore"):
        evidence += np.log(before / before.sum(axis=1, keepdims=True))

    posterior = softmax(evidence)
    trust = np.zeros(len(known))
    trust[known] = np.tensordot(
        posterior,
        np.exp(some + right - either),
        3,
    )
    return trust
