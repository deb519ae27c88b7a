r"""Lower bounds on privacy loss from samples of a scalar statistic with and without a canary.

Every bound on samples works the same way. The first half of the runs chooses a
distinguishing event: a threshold, and the side of it. The second half, which the choice
has not seen, gives two one-sided Clopper-Pearson bounds,

    p <= P(event | with the canary)    and    q >= P(event | without it),

each wrong with probability at most (1 - confidence)/2: both hold at once with the
stated confidence (Bonferroni, for two bounds). All that follows from p and q, in either
order of the pair and for every Rényi order, is then implied and costs no further error
probability. An unlucky choice of the event makes a bound loose, never wrong.

Results are rounded down. A bound of 0 says nothing.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from dppl._utils import validate
from dppl._utils.types import Float
from dppl.errors import InputError
from dppl.kernel.privacy import GaussianDP

Parameter: TypeAlias = Literal["epsilon", "mu", "rho"]

# Thresholds tried on the first half: all values, or this many of their quantiles.
_THRESHOLDS = 64
# The choice looks at bounds of so much smaller an error: it then shuns rare events,
# whose luck does not come again.
CAUTION = 1e-3
# Rényi orders tried for zCDP; each alone gives a valid bound.
_ORDERS = 1 + np.geomspace(1e-3, 1e3, 61)
# The special functions of SciPy err by far less than this, relatively.
_ROUND_DOWN = 1 - 1e-9


def lower_bound(
    with_canary: ArrayLike,
    without_canary: ArrayLike,
    *,
    parameter: Parameter = "epsilon",
    delta: float = 0.0,
    confidence: float = 0.95,
) -> float:
    """Return a value that the privacy loss of a mechanism exceeds or meets, with this probability over the runs.

    Samples are a scalar statistic of independent runs on each of two neighbours.
    Epsilon at `delta` (Jagielski, Ullman, Oprea 2020, arXiv:2006.07709, section 4) and
    rho (Bun and Steinke 2016, arXiv:1605.02065v1, Lemma 2.2) hold for any mechanism; of
    a Gaussian one's rho one event shows about 60 %. Mu says that it is no better than
    mu-Gaussian differential privacy (Nasr et al. 2023, arXiv:2302.07956, section 4),
    which of a Gaussian one is all of its loss.
    """
    validate.open_unit(confidence=confidence)
    if delta != 0:
        validate.open_unit(delta=delta)
    first, second = zip(_halves(with_canary), _halves(without_canary), strict=True)
    error = (1 - confidence) / 2
    # The first half of the runs chooses the event: the threshold, and its side, of the
    # largest bound.
    thresholds = np.unique(np.concatenate(first))
    if len(thresholds) > _THRESHOLDS:
        thresholds = np.quantile(
            np.concatenate(first), np.linspace(0, 1, _THRESHOLDS), method="lower"
        )
    proved = proved_by(*_rates(*first, thresholds, CAUTION * error), parameter, delta)
    best, above = np.unravel_index(np.argmax(proved), proved.shape)
    p, q = (rate[0, above] for rate in _rates(*second, thresholds[[best]], error))
    return max(0.0, float(proved_by(p, q, parameter, delta)) * _ROUND_DOWN)


def most_provable(
    runs: int, parameter: Parameter, delta: float, confidence: float
) -> float:
    """Return the bound that `runs` runs prove if a statistic separates the neighbours every time."""
    half = runs - runs // 2
    low, high = clopper_pearson([half, 0], half, (1 - confidence) / 2)
    return max(0.0, float(proved_by(low[0], high[1], parameter, delta)))


def epsilon_of_gdp(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism at `delta`, rounded down."""
    validate.open_unit(delta=delta)
    # The kernel rounds up, by less than is taken off here.
    if mu > 0:
        return max(0.0, GaussianDP(mu).to_approx(delta).epsilon * _ROUND_DOWN - 1e-12)
    return 0.0


def clopper_pearson(
    successes: ArrayLike, trials: int, error: float
) -> tuple[Float, Float]:
    """Return a lower and an upper bound on a probability, each wrong with probability at most `error`."""
    # Clopper and Pearson (1934), by quantiles of the beta distribution. Expected counts
    # need not be integers.
    hits = np.asarray(successes, np.float64)
    misses = trials - hits
    low = np.where(
        hits > 0, betaincinv(np.maximum(hits, 1e-300), misses + 1, error), 0.0
    )
    # The mirror image of the lower bound: 1 - error would lose the digits of a tiny
    # error.
    high = np.where(
        misses > 0, 1 - betaincinv(np.maximum(misses, 1e-300), hits + 1, error), 1.0
    )
    return low, high


def proved_by(
    p: ArrayLike, q: ArrayLike, parameter: Parameter, delta: float = 0.0
) -> Float:
    """Return the loss that an event of probability at least p with, at most q without the canary proves."""
    p = np.asarray(p, np.float64)
    q = np.asarray(q, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        if parameter == "mu":
            loss = ndtri(p) - ndtri(q)
        elif parameter == "rho":
            # Where p > q, neither reaches 0 or 1; elsewhere nothing is proved.
            p_ = np.where(p > q, p, 0.5)[..., None]
            q_ = np.where(p > q, q, 0.5)[..., None]
            loss = (
                np.maximum(_divergences(p_, q_), _divergences(q_, p_)) / _ORDERS
            ).max(axis=-1)
        else:
            event = np.log(np.maximum(p - delta, 0) / q)
            loss = np.maximum(event, np.log(np.maximum(1 - q - delta, 0) / (1 - p)))
    return np.where(p > q, loss, -np.inf)


def _divergences(p: Float, q: Float) -> Float:
    """Return the Rényi divergences of Bernoulli(p) from Bernoulli(q), along `_ORDERS`."""
    ones = _ORDERS * np.log(p) + (1 - _ORDERS) * np.log(q)
    zeros = _ORDERS * np.log1p(-p) + (1 - _ORDERS) * np.log1p(-q)
    return np.asarray(np.logaddexp(ones, zeros) / (_ORDERS - 1))


def _halves(samples: ArrayLike) -> tuple[Float, Float]:
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"samples must be a vector of at least 2 finite numbers, one a run; got shape {values.shape}, or values "
            "that are not finite."
        )
    middle = len(values) // 2
    return values[:middle], values[middle:]


def _rates(
    inside: Float, outside: Float, thresholds: Float, error: float
) -> tuple[Float, Float]:
    """Return p and q of shape (n_thresholds, 2) for the events below a threshold, and at or above it."""

    def counts(samples: Float) -> Float:
        below = np.searchsorted(np.sort(samples), thresholds)
        return np.stack([below, len(samples) - below], axis=-1).astype(np.float64)

    p, _ = clopper_pearson(counts(inside), len(inside), error)
    _, q = clopper_pearson(counts(outside), len(outside), error)
    return p, q
