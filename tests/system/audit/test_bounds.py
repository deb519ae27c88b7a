"""Bounds of samples hold as often as they say, and are not empty; each test states its false-alarm rate."""

import functools
import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dppl.audit.bounds import (
    clopper_pearson,
    epsilon_of_gdp,
    lower_bound,
    most_provable,
    proved_by,
)
from dppl.errors import InputError, ParameterError

epsilon_lower_bound, gdp_lower_bound, zcdp_lower_bound = (
    functools.partial(lower_bound, parameter=name) for name in ("epsilon", "mu", "rho")
)
# Each simulation below raises a false alarm with at most this probability.
ALARM = 1e-6
REPETITIONS = 600
RUNS = 200
CONFIDENCE = 0.8
# With a right bound, more excesses than this happen with probability at most ALARM
# (exact binomial tail).
MOST_EXCESSES = stats.binom.isf(ALARM, REPETITIONS, 1 - CONFIDENCE)

MU = 1.5
DELTA = 0.05
EPSILON = 1.0
RESPONSE = math.exp(EPSILON) / (1 + math.exp(EPSILON))


def gaussian_pair(rng, runs=RUNS):
    return rng.normal(MU, 1, runs), rng.normal(0, 1, runs)


def response_pair(rng, runs=RUNS):
    """Randomised response: exactly epsilon-DP."""
    return rng.random(runs) < RESPONSE, rng.random(runs) >= RESPONSE


def response_rho():
    """Return the exact rho of randomised response: the largest D_alpha/alpha, over a dense grid of orders."""
    alpha = 1 + np.geomspace(1e-9, 1e3, 100_000)
    log_p = math.log(RESPONSE)
    log_q = math.log(1 - RESPONSE)
    terms = np.logaddexp(
        alpha * log_p + (1 - alpha) * log_q, alpha * log_q + (1 - alpha) * log_p
    )
    return float((terms / (alpha - 1) / alpha).max())


CASES = {
    "epsilon of randomised response": (response_pair, epsilon_lower_bound, EPSILON),
    "rho of randomised response": (response_pair, zcdp_lower_bound, response_rho()),
    "mu of a Gaussian": (gaussian_pair, gdp_lower_bound, MU),
    "rho of a Gaussian": (gaussian_pair, zcdp_lower_bound, MU**2 / 2),
    "epsilon of a Gaussian at delta": (
        gaussian_pair,
        lambda *samples, confidence: epsilon_lower_bound(
            *samples, delta=DELTA, confidence=confidence
        ),
        epsilon_of_gdp(MU, DELTA),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bounds_exceed_the_truth_no_more_often_than_stated(case):
    draw, bound, truth = CASES[case]
    rng = np.random.default_rng(0)
    found = np.array(
        [bound(*draw(rng), confidence=CONFIDENCE) for _ in range(REPETITIONS)]
    )
    assert (found > truth).sum() <= MOST_EXCESSES
    # Not empty either: with many runs the bound comes near (of a Gaussian, one event
    # shows part of rho only).
    assert (
        truth
        >= bound(*draw(rng, 100_000), confidence=1 - ALARM)
        > (0.55 if "rho of a G" in case else 0.8) * truth
    )


def naive_mu(inside, outside):
    """Point estimates at the best of all thresholds, on the same runs: what an audit must not do."""
    thresholds = np.quantile(
        np.concatenate([inside, outside]), np.linspace(0.05, 0.95, 40)
    )
    p, q = ((sample[:, None] > thresholds).mean(axis=0) for sample in (inside, outside))
    kept = (q > 0) & (p < 1)
    return (stats.norm.ppf(p[kept]) - stats.norm.ppf(q[kept])).max()


def test_the_simulation_notices_a_bound_without_confidence():
    rng = np.random.default_rng(0)
    found = np.array([naive_mu(*gaussian_pair(rng)) for _ in range(REPETITIONS)])
    assert (found > MU).sum() > MOST_EXCESSES


@pytest.mark.parametrize("error", [0.2, 1e-3])
def test_clopper_pearson_holds_exactly(error):
    """By enumeration: no draw, so no false alarm."""
    trials = 30
    low, high = clopper_pearson(np.arange(trials + 1), trials, error)
    for p in np.linspace(0.001, 0.999, 97):
        weights = stats.binom.pmf(np.arange(trials + 1), trials, p)
        assert weights[low > p].sum() <= error
        assert weights[high < p].sum() <= error
    assert low[0] == 0
    assert high[-1] == 1
    assert low[-1] == pytest.approx(error ** (1 / trials))
    assert high[0] == pytest.approx(1 - error ** (1 / trials))


def test_a_perfect_statistic_proves_what_the_number_of_runs_allows():
    error = 0.05 / 2
    low = error ** (1 / 50)
    samples = np.ones(100), np.zeros(100)
    assert epsilon_lower_bound(*samples) == pytest.approx(math.log(low / (1 - low)))
    assert gdp_lower_bound(*samples) == pytest.approx(2 * stats.norm.ppf(low))
    assert most_provable(100, "epsilon", 0.0, 0.95) == pytest.approx(
        math.log(low / (1 - low))
    )
    assert most_provable(5, "mu", 0.0, 0.95) == 0
    assert epsilon_lower_bound(*samples, delta=0.3) == pytest.approx(
        math.log((low - 0.3) / (1 - low))
    )


def test_the_side_and_the_order_of_the_pair_do_not_matter():
    rng = np.random.default_rng(0)
    inside, outside = gaussian_pair(rng, 4000)
    for bound in (epsilon_lower_bound, gdp_lower_bound, zcdp_lower_bound):
        found = [
            bound(inside, outside),
            bound(-inside, -outside),
            bound(outside, inside),
        ]
        assert max(found) < 1.1 * min(found)


def test_equal_laws_prove_nothing():
    for bound in (epsilon_lower_bound, gdp_lower_bound, zcdp_lower_bound):
        assert bound(np.zeros(50), np.zeros(50)) == 0.0


def test_a_rare_event_on_the_other_side_is_found():
    """Certain without the canary up to 1 in 5; impossible with it: the ratio lies in the order Q over P."""
    outside = (np.arange(2000) % 5 == 0).astype(float)
    assert epsilon_lower_bound(np.zeros(2000), outside, confidence=1 - 1e-6) > math.log(
        0.14 / 0.015
    )


@given(st.floats(0.05, 6), st.floats(-6, 6))
def test_no_event_proves_more_than_a_gaussian_has(mu, threshold):
    p = stats.norm.sf(threshold - mu)
    q = stats.norm.sf(threshold)
    if 1e-12 < q < p < 1 - 1e-12:
        assert proved_by(p, q, "mu") == pytest.approx(mu, rel=1e-3)
        assert proved_by(p, q, "rho") <= mu**2 / 2 * (1 + 1e-9)
        for delta in (1e-6, 0.01):
            assert proved_by(p, q, "epsilon", delta) <= epsilon_of_gdp(mu, delta) + 1e-6


@given(st.floats(0.01, 20), st.sampled_from([1e-9, 1e-5, 0.1]))
def test_epsilon_of_gdp_is_that_of_dp_accounting(mu, delta):
    theirs = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
    assert epsilon_of_gdp(mu, delta) == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert epsilon_of_gdp(0.0, delta) == 0.0


@pytest.mark.parametrize(
    "samples", [[1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 2.0]], []]
)
def test_samples_that_cannot_be_used_are_refused(samples):
    with pytest.raises(InputError, match="at least 2 finite numbers"):
        gdp_lower_bound(samples, [0.0, 1.0])


@pytest.mark.parametrize("confidence", [0, 1, 1.5])
def test_a_confidence_outside_0_and_1_is_refused(confidence):
    with pytest.raises(
        ParameterError, match="confidence must lie strictly between 0 and 1"
    ):
        gdp_lower_bound([0, 1], [0, 1], confidence=confidence)


def test_parameters_without_meaning_are_refused():
    with pytest.raises(ParameterError, match="delta must lie"):
        epsilon_lower_bound([0, 1], [0, 1], delta=-0.1)
    with pytest.raises(ParameterError, match="delta must lie"):
        epsilon_of_gdp(1.0, 0.0)
