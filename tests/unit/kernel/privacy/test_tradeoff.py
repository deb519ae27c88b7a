"""Trade-off functions: exact laws of small selections, second implementations, and the side to which results round."""

import itertools
import math
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st

from dppl.errors import BudgetError, ParameterError
from dppl.kernel.privacy import ZCDP, ApproxDP, Cost, GaussianDP, compose
from dppl.kernel.privacy.tradeoff import (
    approximate_power,
    gaussian_best_guess,
    gaussian_epsilon,
    gaussian_mu_within,
    gaussian_power,
    selection_best_guess,
    selection_epsilon,
    selection_mu,
    selection_power,
    selection_range_within,
)

MUS = [1e-4, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0]
DELTAS = [1e-3, 1e-5, 1e-6, 1e-8, 1e-12]
EPSILONS = [1e-3, 0.1, 0.5, 1.0, 2.0, 8.0, 50.0]
LEVELS = [1e-9, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.999]


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(80):
        yield


def exact_delta(mu, epsilon):
    """Dong, Roth, Su (2022), Corollary 2.13, with 80 digits of mpmath."""
    mu = mpmath.mpf(mu)
    epsilon = mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
        -mu / 2 - epsilon / mu
    )


def gaussian_tradeoff(mu, level):
    return mpmath.ncdf(quantile(1 - mpmath.mpf(level)) - mu)


def quantile(p):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_epsilon_of_gaussian_noise_is_the_smallest_float_that_holds(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    if epsilon > 1e-12:
        assert exact_delta(mu, math.nextafter(epsilon, 0)) > delta
    else:  # delta alone covers it
        assert exact_delta(mu, 0) <= delta


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_largest_mu_within_a_budget_is_the_largest_float_that_holds(epsilon, delta):
    mu = gaussian_mu_within(epsilon, delta)
    assert (
        exact_delta(mu, epsilon)
        <= delta
        < exact_delta(math.nextafter(mu, math.inf), epsilon)
    )
    assert gaussian_epsilon(mu, delta) <= epsilon


@cache
def losses(mu):
    """The privacy loss distribution of Gaussian noise, rounded down and rounded up."""
    return [
        privacy_loss_distribution.from_gaussian_mechanism(
            1 / mu,
            value_discretization_interval=1e-3 * mu,
            pessimistic_estimate=pessimistic,
        )
        for pessimistic in (False, True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-6, 1e-8])
@pytest.mark.parametrize("mu", [0.1, 5.0])
def test_privacy_loss_distributions_of_dp_accounting_enclose_the_epsilon(mu, delta):
    low, high = (
        distribution.get_epsilon_for_delta(delta) for distribution in losses(mu)
    )
    assert low <= gaussian_epsilon(mu, delta) <= high
    # The control: they are close enough to notice an error of a thousandth in mu.
    assert gaussian_epsilon(mu * 0.999, delta) < low
    assert high < gaussian_epsilon(mu * 1.001, delta)


def test_the_numbers_of_the_documentation():
    assert f"{gaussian_epsilon(1.0, 1e-6):.3f}" == "4.887"
    assert f"{gaussian_mu_within(1.0, 1e-6):.4f}" == "0.2367"
    assert f"{gaussian_mu_within(8.0, 1e-5):.3f}" == "1.666"


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("level", LEVELS)
def test_what_tests_reach_against_gaussian_noise_is_rounded_up(mu, level):
    exact = 1 - gaussian_tradeoff(mu, level)
    assert exact <= gaussian_power(mu, level) <= exact * (1 + mpmath.mpf(2) ** -51)
    guess = mpmath.ncdf(mpmath.mpf(mu) / 2)
    assert guess <= gaussian_best_guess(mu) <= guess * (1 + mpmath.mpf(2) ** -51)


@pytest.mark.parametrize("mu", [1e-15, 1e-9, 1e5, 1e8])
def test_extreme_parameters_convert(mu):
    assert gaussian_epsilon(mu, 1e-6) >= 1e-12
    assert 0.01 <= gaussian_power(mu, 0.01) <= 1
    assert 0.5 <= gaussian_best_guess(mu) <= 1
    assert gaussian_mu_within(gaussian_epsilon(mu, 1e-6), 1e-6) >= mu
    if mu <= 1e3:
        assert 0 < selection_mu(selection_range_within(mu)) <= mu


@pytest.mark.parametrize("epsilon", [1e-300, 1e-18, 1e3, 1e8])
def test_extreme_selections_convert(epsilon):
    assert 1e-12 <= selection_epsilon(epsilon, 1e-6) <= max(epsilon, 1e-12)
    assert gaussian_epsilon(selection_mu(epsilon), 1e-6) >= 1e-12
    assert 0 <= selection_mu(epsilon) < math.inf
    assert 0.5 <= selection_best_guess(epsilon) <= 1
    assert 0.01 <= selection_power(epsilon, 0.01) <= 1


def test_what_is_beyond_all_use_is_refused():
    for call in (
        lambda: gaussian_epsilon(1e9, 1e-6),
        lambda: gaussian_mu_within(1e300, 1e-6),
        lambda: selection_mu(1e9),
        lambda: GaussianDP(1e9),
        lambda: GaussianDP(1e-16),
        lambda: ApproxDP(1e-200, 1e-300).gaussian_allowance(),
        lambda: ZCDP(1e20).gaussian_allowance(),
    ):
        with pytest.raises(BudgetError, match=r"must be (from|at most)"):
            call()
    with pytest.raises(ParameterError):
        gaussian_epsilon(1.0, 0.0)


# The exponential mechanism with exp(epsilon/sensitivity) = 2, whose probabilities are
# rational.


def selection_law(utilities, size=1):
    """Return the probability of each set of candidates; its utility is that of its worst member."""
    weights = {
        chosen: Fraction(2) ** min(utilities[row] for row in chosen)
        for chosen in itertools.combinations(range(len(utilities)), size)
    }
    total = sum(weights.values())
    return [weight / total for weight in weights.values()]


def vertices(p, q):
    """Return the corners of the trade-off function of p against q: most powerful tests (Neyman, Pearson)."""
    order = sorted(
        range(len(p)), key=lambda outcome: q[outcome] / p[outcome], reverse=True
    )
    level = miss = Fraction(0)
    corners = [(level, Fraction(1))]
    for outcome in order:
        level = level + p[outcome]
        miss = miss + q[outcome]
        corners.append((level, 1 - miss))
    return corners


def logistic(level, e_to_epsilon):
    return (1 - level) / (1 + (e_to_epsilon - 1) * level)


def stays_above(corners, e_to_epsilon):
    """Tell whether a trade-off function, linear between corners, lies above that of a selection, which is convex."""
    return all(miss >= logistic(level, e_to_epsilon) for level, miss in corners)


SENSITIVITY = 3
utilities_and_growth = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, SENSITIVITY)), min_size=3, max_size=6
)


@given(rows=utilities_and_growth, size=st.integers(1, 3))
def test_a_selection_keeps_its_tradeoff_function_when_a_record_comes_or_goes(
    rows, size
):
    before, after = (
        selection_law(u, size)
        for u in ([u for u, _ in rows], [u + grown for u, grown in rows])
    )
    assert stays_above(vertices(before, after), 2**SENSITIVITY)
    assert stays_above(vertices(after, before), 2**SENSITIVITY)


@pytest.mark.slow
@given(
    rows=st.lists(st.tuples(*[st.integers(0, SENSITIVITY)] * 3), min_size=3, max_size=6)
)
def test_and_when_a_record_is_replaced_within_its_class_at_half_the_sharpness(rows):
    one, other = (
        selection_law([u + choice[side] for u, *choice in rows]) for side in (0, 1)
    )
    assert stays_above(vertices(one, other), 2 ** (2 * SENSITIVITY))


@given(
    left=st.lists(st.integers(0, SENSITIVITY), min_size=2, max_size=4),
    entered=st.lists(st.integers(0, SENSITIVITY), min_size=2, max_size=4),
)
def test_and_when_a_replaced_record_leaves_one_class_and_enters_another(left, entered):
    def law(*utilities):
        return [
            first * second
            for first, second in itertools.product(*map(selection_law, utilities))
        ]

    one = law(left, [0] * len(entered))
    other = law([0] * len(left), entered)
    assert stays_above(vertices(one, other), 2 ** (2 * SENSITIVITY))


@pytest.mark.parametrize("n_others", [1, 2, 5])
def test_the_tradeoff_function_of_a_selection_is_reached(n_others):
    """A record that lifts one of several equal candidates by all it can: its corner lies on the curve."""
    corners = vertices(
        selection_law([0] * n_others + [0]),
        selection_law([0] * n_others + [SENSITIVITY]),
    )
    assert any(
        0 < level < 1 and miss == logistic(level, 2**SENSITIVITY)
        for level, miss in corners
    )
    # The control: a curve of a slightly smaller range is crossed.
    assert not stays_above(corners, Fraction(99, 100) * 2**SENSITIVITY)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_epsilon_of_a_selection_follows_from_its_tradeoff_function(epsilon, delta):
    e_to_epsilon = mpmath.exp(epsilon)

    def excess(at):
        """The supremum of 1 - L(a) - e^at·a, where its derivative is 0."""
        level = (mpmath.exp((epsilon - mpmath.mpf(at)) / 2) - 1) / (e_to_epsilon - 1)
        return (
            1 - logistic(level, e_to_epsilon) - mpmath.exp(at) * level
            if level > 0
            else mpmath.mpf(0)
        )

    found = selection_epsilon(epsilon, delta)
    assert excess(found) <= delta
    assert found <= max(epsilon, 1e-12)
    if found > 1e-12:
        assert excess(found * (1 - 1e-9)) > delta


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("level", LEVELS)
def test_what_tests_reach_against_a_selection_is_rounded_up(epsilon, level):
    exact = 1 - logistic(mpmath.mpf(level), mpmath.exp(epsilon))
    assert (
        exact <= selection_power(epsilon, level) <= exact * (1 + mpmath.mpf(2) ** -51)
    )
    guess = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon) / 2))
    assert guess <= selection_best_guess(epsilon) <= guess * (1 + mpmath.mpf(2) ** -51)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_selection_lies_above_gaussian_noise_of_its_mu(epsilon):
    mu = selection_mu(epsilon)
    e_to_epsilon = mpmath.exp(epsilon)
    levels = [mpmath.mpf(2) ** -k for k in np.linspace(0.02, 60, 50)]
    levels += [1 - level for level in levels]
    assert all(
        logistic(level, e_to_epsilon) >= gaussian_tradeoff(mu, level)
        for level in levels
    )
    # They meet where both error rates are equal, so no smaller mu does.
    meeting = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon) / 2))
    assert logistic(meeting, e_to_epsilon) < gaussian_tradeoff(mu * (1 - 1e-9), meeting)


def test_the_lemma_behind_it():
    """z·Phi(z)·(1 - Phi(z)) <= (2·Phi(z) - 1)·phi(z) for z > 0; docs/review/public.md proves it."""
    for z in map(mpmath.mpf, np.geomspace(1e-6, 30, 400).tolist()):
        above = mpmath.ncdf(-z)
        assert z * (1 - above) * above < (1 - 2 * above) * mpmath.npdf(z)


@pytest.mark.parametrize("mu", [0.01, 0.5, 1.0, 4.0, 40.0])
def test_the_range_within_a_mu_is_the_inverse(mu):
    epsilon = selection_range_within(mu)
    assert selection_mu(epsilon) <= mu < selection_mu(epsilon * (1 + 1e-12))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_dp_lies_above_gaussian_noise_of_its_mu(epsilon):
    """Its trade-off function has one corner, at equal error rates, and the convex Gaussian one runs through it."""
    mu = selection_mu(2 * epsilon)
    corner = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
    assert (
        gaussian_tradeoff(mu, corner)
        <= corner
        < gaussian_tradeoff(mu * (1 - 1e-9), corner)
    )


@pytest.mark.parametrize("epsilon", [*EPSILONS, 800.0])
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("level", [1e-310, *LEVELS])
def test_what_tests_reach_under_an_approximate_budget_is_rounded_up(
    epsilon, delta, level
):
    few = mpmath.exp(epsilon) * level + mpmath.mpf(delta)
    many = 1 - mpmath.exp(-mpmath.mpf(epsilon)) * (
        1 - mpmath.mpf(delta) - mpmath.mpf(level)
    )
    exact = min(few, many, mpmath.mpf(1))
    assert (
        exact
        <= approximate_power(epsilon, delta, level)
        <= exact * (1 + mpmath.mpf(2) ** -50)
    )


def test_narrow_floats_are_taken_for_what_they_are():
    """NumPy's float32 is no type of flint, and its own arithmetic would be as narrow."""
    mu = np.float32(0.7)
    delta = np.float32(1e-5)
    level = np.float32(0.01)
    wide = float(mu), float(delta), float(level)
    assert gaussian_epsilon(mu, delta) == gaussian_epsilon(*wide[:2])
    assert gaussian_power(mu, level) == gaussian_power(wide[0], wide[2])
    assert selection_epsilon(mu, delta) == selection_epsilon(*wide[:2])
    costs = [Cost(rho=0.5, mu=1.0), Cost(rho=0.125, mu=selection_mu(1.0), epsilon=1.0)]
    assert compose(costs, delta) == compose(costs, wide[1])


@pytest.mark.parametrize("epsilon", [700.0, 1e3, 1e7])
def test_selections_of_large_epsilon_compose(epsilon):
    one = Cost(rho=epsilon**2 / 8, mu=selection_mu(epsilon), epsilon=epsilon)
    assert compose([one], 1e-6).epsilon <= epsilon
    assert compose([one, one], 1e-6).epsilon <= 2 * epsilon


@given(mu=st.floats(1e-3, 20), delta=st.floats(1e-12, 0.1))
def test_conversions_there_and_back_never_gain(mu, delta):
    budget = GaussianDP(mu).to_approx(delta)
    back = budget.gaussian_allowance().mu
    assert back >= mu
    assert ApproxDP(gaussian_epsilon(back, delta), delta) <= budget
