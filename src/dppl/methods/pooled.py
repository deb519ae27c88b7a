"""How far a fit believes the model that it starts from, class by class, and what it makes of both paths.

Constants were chosen on embeddings of three public data sets, over budgets of mu from
0.1 to 4; those of how sure a clear path is, how long to look and how careful to be, by
simulation.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dppl._utils.types import Flags, Float
from dppl.methods.ascent import STEPS, Ascent, PooledPath
from dppl.methods.examples import LEAST_SPREAD, log_normal, of_wrong
from dppl.methods.linear import Frame
from dppl.methods.shared import unit_directions
from dppl.methods.sizes import ClassSizes
from dppl.methods.start import Start

# Shares of the classes whose earlier rows may be right, and how likely each is before
# anything was released. Weak evidence must leave a right model on.
_SHARES = np.array((0, 0.1, 0.25, 0.5, 0.75, 0.9, 1))
_PRIOR = np.array((0.04, 0.01, 0.01, 0.04, 0.01, 0.01, 0.88))
# How much better right rows may agree with the moves of their class than wrong ones, in
# units of how clear their path is, and where between chance and always the share of
# records lies that they rank first.
_SHIFTS = np.array((0.9, 0.7, 0.5, 0.35, 0.2, 0.1))
_SKILLS = 0.95 * 2.0 ** -(np.arange(18) / 4)
# Relative width of a cell of skills, so that sharp counts are not over-read.
_SKILL_WIDTH = 0.18
# Right rows of a path have a skill of twice its clearness, and 1 at most; a path that is
# mostly noise ranks little, right or not. A share of that is less likely by this power,
# since some classes are hard.
_HARD = 6
# Gradients from zero, beyond the first, where they are mostly noise. With all, evidence
# is best, and a right start gains .04 less over four quarters of texts.
_MOST_ALONE = 5
# Standard deviation of how right rows agree, in units of by how much they do.
_SPREAD_OF_RIGHT = 0.25
# The power of trust that a row weighs by: one that is as likely wrong as right takes
# more from a fit than it may give, and right ones are seldom in doubt.
_CAUTION = 5
# Ratio of signal to noise, as variances, at which what a fit finds alone counts half as
# much as a start: doubt in that leaves noise no better.
_HALF_SIGNAL = 0.3


@dataclass(frozen=True, slots=True)
class Answered:
    """What a fit was answered before it believes an earlier model, all of it with noise."""

    alone: Ascent  # from zero, along the first gradients
    clip: float  # of the residual of a record
    n_records: float
    hits: Float  # shape (2,); numbers of records that the model ranks rightly, and not
    hits_std: float  # its noise


def _signal(size: Any, clip: float, noise_std: float, dim: int) -> Any:
    """Return signal over noise, as variances, in the sum of all gradients of a class of so many records."""
    return STEPS * (clip * size) ** 2 / (noise_std**2 * dim)


def moves_alone(ascent: Ascent, clip: float) -> int:
    """Return how far a fit climbs alone: one gradient where they are mostly signal.

    Where they are mostly noise, some are the best evidence of a start.
    """
    n_classes, dim = ascent.own.shape
    size = ascent.sizes.total / n_classes
    signal: float = _signal(size, clip, ascent.noise_std, dim)
    return 1 + round(_MOST_ALONE / (1 + signal))


def pooled(
    start: Start,
    frame: Frame,
    answered: Answered,
) -> PooledPath:
    """Return the mean of both paths by trust and known noise: a fixed-effect meta-analysis, class by class.

    Trust multiplies the weight and not the precision: a little trust in a precise model
    that is wrong must not win. What it leaves goes to the new path as far as that is
    signal, so that a start is a floor for a small quarter, and for a class without records.
    """
    alone = answered.alone
    sizes = alone.sizes
    noise_std = alone.noise_std
    clip = answered.clip
    dim = alone.own.shape[1]
    known = start.known
    # Cosine of the earlier path and its signal, of which chance leaves something.
    path = start.path[known]
    variance = start.variance[known]
    noise = dim * variance.sum() / np.square(path).sum()
    clear = math.sqrt(max(1 - noise, math.sqrt(2 / path.size)))
    coef = start.coef @ frame.axes
    trust = trust_in(coef, known, answered, clear) ** _CAUTION
    n_old = start.sizes
    n_new = alone.counted

    def precision(n: Float, variance: Float | float) -> Float:
        """Of a row of a path per record: of which records there happen to be, and of noise."""
        return np.asarray(n**2 / (n * clip**2 * STEPS / dim + variance + 1e-12))

    old = precision(n_old, start.variance)
    signal = _signal(n_new, clip, noise_std, dim)
    trust = trust / (trust + (1 - trust) * signal / (signal + _HALF_SIGNAL))
    share = trust * old / (old + precision(n_new, noise_std**2 * STEPS))
    n = trust * n_old + n_new
    of_old = share * n / np.maximum(n_old, 1e-9)
    of_new = (1 - share) * n / n_new
    counted = of_old * n_old + of_new * sizes.sizes
    total = float(counted.sum())
    # What was taken from zero weights is dropped where the row is right, and little of
    # it is noise.
    kept = 1 - trust * signal / (1 + signal)
    return PooledPath(
        path=of_old[:, None] * (start.path @ frame.axes),
        variance=of_old**2 * start.variance,
        weights=of_new,
        sizes=ClassSizes(
            total,
            counted,
            np.maximum(of_new * sizes.least, 1e-9),
            sizes.noise_std,
            (of_old * n_old + of_new * n_new) / total,
        ),
        own=kept[:, None] * alone.own,
        velocity=kept[:, None] * alone.velocity,
        moves=alone.moves,
        intercepts=share * start.offsets,
    )


def trust_in(
    coef: Float,
    known: Flags,
    answered: Answered,
    clear: float,
) -> Float:
    """Return the probability that each class's row of an earlier model is right; 0 for classes that it does not know.

    As in `Trust`, rows of *other* classes show how wrong ones agree with a gradient.
    Here any share of the classes may be right, by any margin and with any skill, and
    hits and misses say how many are: right rows of a path that is `clear`, from 0 to 1,
    rank most records rightly, so that few hits are of few right rows.
    """
    from scipy.special import softmax

    alone = answered.alone
    sizes = alone.sizes
    records = np.maximum(sizes.sizes, max(sizes.noise_std, 1.0))
    most = answered.clip * records * alone.gradient_weights.sum()
    agreement: Float = alone.own @ unit_directions(coef).T / most[:, None]
    noise_std = alone.noise_std * np.linalg.norm(alone.gradient_weights) / most
    spread = sizes.noise_std / records
    middle, variance = of_wrong(
        agreement,
        noise_std,
        spread,
        known,
    )

    # How likely each class's own agreement is, if its row is wrong or right. The axes are
    # shares, shifts and known classes.
    shares = _SHARES[:, None, None]
    shifts = clear * _SHIFTS[:, None]
    own = agreement.diagonal()[known]
    noise = noise_std[known] ** 2
    uneven = spread[known] ** 2
    deviations = np.maximum(_SPREAD_OF_RIGHT * shifts, LEAST_SPREAD)
    wrong = log_normal(own, middle, variance * (1 + uneven) + noise)
    right = log_normal(
        own,
        middle + shifts,
        deviations**2 + noise + (abs(middle) + shifts) ** 2 * uneven,
    )
    with np.errstate(divide="ignore"):
        some = np.log(shares) + right
        either = np.logaddexp(some, np.log1p(-shares) + wrong)
    evidence = either.sum(axis=2) + np.log(_PRIOR)[:, None]

    # How likely hits and misses are, with the axes shares and skills, of the number of
    # records that is likeliest then. A record may have several labels, or none that
    # the model knows.
    labels = float(alone.counted[known].sum())
    total = max(min(labels, answered.n_records), 1e-3)
    chance = labels / total / len(own)
    part = _SHARES[:, None]
    rate = (chance + part * (1 - chance) * _SKILLS) * total / answered.n_records
    of_chance = (1 - part) * chance / 2
    of_skill = part * _SKILL_WIDTH * _SKILLS
    uncertain = of_chance**2 + of_skill**2 / 12
    rates = np.stack([rate, 1 - rate])
    found = answered.hits[:, None, None]
    number = (rates * found).sum(axis=0) / (rates**2).sum(axis=0)
    hits = log_normal(
        found,
        number.clip(0) * rates,
        answered.hits_std**2 + total**2 * uncertain,
    ).sum(axis=0)
    before = _HARD * np.log(np.minimum(_SKILLS / min(2 * clear, 1), 1))
    joint = evidence[:, :, None] + hits[:, None] + before

    posterior = softmax(joint).sum(axis=2)
    trust = np.zeros(len(known))
    trust[known] = np.tensordot(posterior, np.exp(some - either), 2)
    return trust
