"""What Gaussian noise that is rounded to integers promises, against its exact probabilities, and its law."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_ndtr

from dppl import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.errors import BudgetError
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy.tradeoff import gaussian_power

# Statistical tests here raise a false alarm with at most this probability.
ALARM = 1e-6


def log_masses(k, std):
    """Return log(Phi((k + 1/2)/std) - Phi((k - 1/2)/std)) from the lower tail, where nothing cancels."""
    high = log_ndtr((0.5 - np.abs(k)) / std)
    low = log_ndtr((-0.5 - np.abs(k)) / std)
    return high + np.log1p(-np.exp(low - high))


def masses(k, std):
    return np.exp(log_masses(k, std))


def discrete_masses(k, std):
    """Return the probabilities of the discrete Gaussian, which are others."""
    weight = np.exp(-(k**2) / (2 * std**2))
    return weight / weight.sum()


def renyi_divergence(order, shift, std):
    """Rényi divergence of rounded noise around 0 and around `shift`, summed over the integers."""
    k = np.arange(-4000, 4001)
    return np.logaddexp.reduce(
        order * log_masses(k, std) + (1 - order) * log_masses(k - shift, std)
    ) / (order - 1)


@pytest.mark.parametrize("order", [1.01, 2.0, 8.0, 64.0])
@pytest.mark.parametrize(("rho", "shift"), [(0.5, 1), (0.02, 3), (3.0, 40)])
def test_neighbours_diverge_by_less_than_rho(order, rho, shift):
    """By less: rounding loses a share of about 1/(12·sigma²), here 3e-4 and more, far beyond the errors of floats."""
    mechanism = RoundedGaussian.within(ZCDP(rho), Fraction(shift**2))
    assert mechanism.describe("").cost["rho"] <= rho
    assert renyi_divergence(order, shift, mechanism.noise_std) < order * rho
    # The control: nine tenths of the noise break the bound, so the test can see a
    # fault.
    assert renyi_divergence(order, shift, 0.9 * mechanism.noise_std) > order * rho


def beyond(k, std):
    """Enclose P(round(std·Z) >= k)."""
    return ((arb(k) - arb(0.5)) / (arb(std) * arb(2).sqrt())).erfc() / 2


def power_and_bound(mu, shift, k, std):
    """Return how often the test "at least k" finds noise around `shift`, and how often mu-GDP lets it at its level."""
    with ctx.workprec(160):
        level = float(beyond(k, std).upper())
        return beyond(k - shift, std), gaussian_power(mu, float(np.nextafter(level, 1)))


@given(st.integers(1, 60), st.floats(0.02, 3), st.floats(-2, 2))
@settings(max_examples=300)
def test_no_test_of_one_integer_is_better_than_stated(shift, mu, where):
    """Exact. Ratios of probabilities grow with k, so the best tests ask whether the integer is at least k.

    At the levels of these tests the release is exactly as loud as continuous noise, so
    the bound is met closely.
    """
    mechanism = RoundedGaussian.within(GaussianDP(mu), Fraction(shift**2))
    assert mechanism.describe("").cost["mu"] <= mu
    k = round(shift / 2 + where * mechanism.noise_std)
    power, bound = power_and_bound(
        mechanism.describe("").cost["mu"], shift, k, mechanism.noise_std
    )
    assert bound - 1e-12 < power <= bound
    # The control: with a thousandth less noise the same test is better than stated.
    power, bound = power_and_bound(
        mechanism.describe("").cost["mu"], shift, k, 0.999 * mechanism.noise_std
    )
    assert power > bound


def hockey_stick(epsilon, shifts, std, law):
    """Return the exact delta at `epsilon` of noise on several integers that neighbours move by `shifts`."""
    k = np.arange(-60, 61)
    first = np.ones(1)
    second = np.ones(1)
    for shift in shifts:
        first = np.outer(first, law(k, std)).ravel()
        second = np.outer(second, law(k - shift, std)).ravel()
    return np.maximum(first - np.exp(epsilon) * second, 0).sum()


def gaussian_delta(mu, epsilon):
    """Balle, Wang (2018), arXiv:1805.06530, Theorem 8, in the digits at work."""
    middle = epsilon / mpmath.mpf(mu)
    half = mpmath.mpf(mu) / 2
    return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(
        -half - middle
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("shifts", [(1, 1), (2, -1), (3, 2), (1, 1, 1)])
def test_several_integers_together_keep_the_stated_delta(shifts, mu, epsilon):
    """The release is post-processing of the continuous mechanism in any number of dimensions; enumerated here."""
    mechanism = RoundedGaussian.within(
        GaussianDP(mu), Fraction(sum(shift**2 for shift in shifts))
    )
    allowed = float(gaussian_delta(mechanism.describe("").cost["mu"], epsilon))
    assert hockey_stick(epsilon, shifts, mechanism.noise_std, masses) < allowed
    # The control: four fifths of the noise.
    assert hockey_stick(epsilon, shifts, 0.8 * mechanism.noise_std, masses) > allowed


def test_the_discrete_gaussian_would_not_keep_it():
    """It is no post-processing of continuous noise, and what is exact for that is false for it."""
    mechanism = RoundedGaussian.within(GaussianDP(2.0), Fraction(1))
    allowed = float(gaussian_delta(2.0, 0.5))
    assert hockey_stick(0.5, (1,), mechanism.noise_std, masses) < allowed
    assert hockey_stick(0.5, (1,), mechanism.noise_std, discrete_masses) > 1.1 * allowed


def chi_square_holds(draws, law, std):
    """Compare with exact probabilities; values of which fewer than 10 draws are expected count as one."""
    k = np.arange(-60, 61)
    expected = law(k, std) * draws.size
    often = expected >= 10
    observed = np.array([np.count_nonzero(draws == value) for value in k[often]])
    rest = draws.size - observed.sum(), draws.size - expected[often].sum()
    statistic = ((observed - expected[often]) ** 2 / expected[often]).sum() + (
        rest[0] - rest[1]
    ) ** 2 / rest[1]
    return statistic <= stats.chi2.isf(ALARM, often.sum())


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("std", [0.4, 3.0])
def test_a_release_has_the_exact_law_around_its_value(seed, std):
    """False alarm: `ALARM`. Controls: 5 % of the noise, a value that is off by one, and the discrete Gaussian."""
    mechanism = RoundedGaussian(squared_sensitivity=Fraction(1), noise_std=std)
    exact = np.arange(40_000).reshape(200, 200) * 10**12
    noise = mechanism.release(exact, randomness(seed)) - exact
    assert chi_square_holds(noise, masses, std)
    assert not chi_square_holds(noise, masses, 0.95 * std)
    assert not chi_square_holds(noise, masses, 1.05 * std)
    assert not chi_square_holds(noise + 1, masses, std)
    if std < 1:  # wider ones are hard to tell apart
        assert not chi_square_holds(noise, discrete_masses, std)


def test_an_approximate_budget_buys_the_least_noise_that_keeps_it():
    mechanism = RoundedGaussian.within(ApproxDP(1.0, 1e-5), Fraction(10_000))
    assert mechanism.noise_std / 100 == pytest.approx(
        3.7306, abs=1e-4
    )  # Balle, Wang (2018); by zCDP it was 4.045
    with mpmath.workdps(40):
        mu = 100 / mpmath.mpf(mechanism.noise_std)
        assert (
            gaussian_delta(mu, 1)
            <= gaussian_delta(mechanism.describe("").cost["mu"], 1)
            <= mpmath.mpf(1e-5)
        )
        assert gaussian_delta(mu * (1 + mpmath.mpf("1e-14")), 1) > mpmath.mpf(1e-5)


@pytest.mark.slow
@given(st.fractions(Fraction(1, 16), Fraction(10**12)), st.floats(1e-3, 1e3))
def test_the_stated_cost_is_exact_and_within_the_budget(squared_sensitivity, mu):
    mechanism = RoundedGaussian.within(GaussianDP(mu), squared_sensitivity)
    exact = squared_sensitivity / Fraction(mechanism.noise_std) ** 2
    assert (
        exact <= Fraction(mechanism.describe("").cost["mu"]) ** 2 <= Fraction(mu) ** 2
    )
    assert exact <= 2 * Fraction(mechanism.describe("").cost["rho"])
    # Nothing is wasted: one float less noise would cost too much, and no cost is
    # rounded up by more than one float.
    allowed = Fraction(GaussianDP(mu).gaussian_allowance().mu)
    assert (
        squared_sensitivity / Fraction(float(np.nextafter(mechanism.noise_std, 0))) ** 2
        > allowed**2
    )
    for name, least in (
        ("mu", lambda value: value**2),
        ("rho", lambda value: 2 * value),
    ):
        assert (
            least(Fraction(float(np.nextafter(mechanism.describe("").cost[name], 0))))
            < exact
        )


def test_pure_budgets_are_refused_with_the_way_out():
    with pytest.raises(BudgetError, match=r"no pure-DP guarantee.*PublicPrototypes"):
        RoundedGaussian.within(PureDP(1.0), Fraction(1))


def test_a_release_is_the_value_plus_noise_of_its_shape():
    mechanism = RoundedGaussian.within(ZCDP(0.5), Fraction(100))
    exact = np.arange(12).reshape(3, 4) * (10**12 + 1)  # even and odd
    noise = randomness(1).rounded_gaussian(mechanism.noise_std, (3, 4))
    assert (mechanism.release(exact, randomness(1)) - exact == noise).all()
    assert noise.any()


def test_the_entry_of_the_guarantee_has_the_numbers():
    entry = RoundedGaussian.within(ZCDP(0.5), Fraction(100)).describe("sums")
    assert (entry.sensitivity, entry.parameters, entry.cost) == (
        10.0,
        {"noise_std": 10.0},
        {"mu": 1.0, "rho": 0.5},
    )


@pytest.mark.parametrize("budget", [GaussianDP(1e-13), GaussianDP(2e-15), ZCDP(1e-29)])
def test_noise_beyond_64_bits_is_refused_because_it_would_wrap(budget):
    with pytest.raises(BudgetError, match="leave 64-bit integers"):
        RoundedGaussian.within(budget, Fraction(10**6))
    widest = RoundedGaussian(squared_sensitivity=Fraction(1), noise_std=2.0**52)
    assert (
        np.abs(widest.release(np.zeros(1000, np.int64), randomness(None))).max() < 2**62
    )
