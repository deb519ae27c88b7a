"""Sums over Poisson samples: what they cost on grids of bounded size, and what is refused before anything is computed."""

from contextlib import suppress

import pytest
from dp_accounting import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    pld,
)

from dppl.errors import BudgetError
from dppl.kernel.privacy import sampling
from dppl.kernel.privacy.sampling import (
    sampled_gaussian_epsilon,
    sampled_gaussian_multiplier,
    sampled_gaussian_pairs,
)
from dppl.kernel.privacy.tradeoff import gaussian_mu_within


def on_a_grid(step, multiplier, rate, steps):
    """Return dp-accounting's own account, on a grid that it is given."""
    one = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
    account = pld.PLDAccountant(value_discretization_interval=step)
    return account.compose(SelfComposedDpEvent(one, steps))


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta"),
    [
        (0.41379, 1e-4, 100, 1e-5),
        (0.586, 0.01, 1000, 1e-5),
        (20.0, 0.1, 10_000, 1e-8),
    ],
)
def test_a_bounded_grid_costs_hardly_any_epsilon_and_is_on_the_safe_side(
    multiplier, rate, steps, delta
):
    stated = sampled_gaussian_epsilon(multiplier, delta, rate, steps)
    step, _ = sampling._grid(multiplier, rate, steps, 0)
    best = on_a_grid(step / 8, multiplier, rate, steps).get_epsilon(delta)
    assert best <= stated < 1.01 * best
    # A grid as coarse as a grid may be for what it says shows in the number.
    assert on_a_grid(2.0, multiplier, rate, steps).get_epsilon(delta) > 1.01 * best


def forged():
    """Yield numbers of releases as a forged file may have them."""
    for multiplier in (0.05, 0.1, 0.5, 5, 1e9):
        for rate in (2**-32, 1e-4, 0.1, 1.0):
            for steps in (1, 40, 10**5):
                for mu in (0.0, 1e-9, 20.0):
                    yield multiplier, rate, steps, mu


def test_no_numbers_ask_for_a_large_grid():
    for multiplier, rate, steps, mu in forged():
        step, points = sampling._grid(multiplier, rate, steps, mu)
        assert points <= 2**14 * (1 + 1e-9)
        assert 20 * mu / step < 2**15
        assert 1e-7 <= step < 1000


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "mu"),
    [(0.1, 0.1, 40, 0.0), (1e9, 2**-32, 10**5, 0.0), (0.1, 1e-6, 10**5, 1e-2)],
)
def test_forged_numbers_end_in_a_number_or_a_refusal(multiplier, rate, steps, mu):
    with suppress(BudgetError):
        assert 0 < sampled_gaussian_epsilon(multiplier, 1e-6, rate, steps, mu) < 1e6
    pairs = sampled_gaussian_pairs(multiplier, rate, steps, mu)
    assert all(0 <= delta <= 1 for _, delta in pairs)


@pytest.mark.parametrize(
    ("multiplier", "steps", "mu", "words"),
    [
        (0.01, 40, 0.0, "mu = 100 is too much"),
        (1e-6, 40, 0.0, "too much"),
        (1.0, 40, 1e5, r"mu = 1e\+05 is too much"),
        (1.0, 10**5 + 1, 0.0, "take 100000 at most"),
        (1.0, 10**400, 0.0, "take 100000 at most"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_it_is(multiplier, steps, mu, words):
    for rate in (2**-32, 0.5, 1.0):
        with pytest.raises(BudgetError, match=words):
            sampled_gaussian_epsilon(multiplier, 1e-6, rate, steps, mu)


def test_releases_that_cost_more_than_the_budget_leave_nothing_to_samples():
    all_of_it = gaussian_mu_within(1.0, 1e-5)
    for mu in (all_of_it, 2 * all_of_it):
        with pytest.raises(BudgetError, match="leaves nothing of epsilon = 1 at delta"):
            sampled_gaussian_multiplier(1.0, 1e-5, 0.1, 5, mu)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps", "part"),
    [
        (1.0, 1e-6, 1e-4, 100, 0.0),
        (0.0014, 1.6e-6, 1.4e-6, 758, 0.5),
        (0.0015, 0.048, 0.2, 10**5, 0.99),
    ],
)
def test_noise_is_the_least_within_the_budget_after_few_looks(
    epsilon, delta, rate, steps, part, monkeypatch
):
    looks = []
    account = sampling._sampled_gaussian

    def counted(*numbers):
        looks.append(numbers)
        return account(*numbers)

    monkeypatch.setattr(sampling, "_sampled_gaussian", counted)
    mu = part * gaussian_mu_within(epsilon, delta)
    noise = sampled_gaussian_multiplier.__wrapped__(epsilon, delta, rate, steps, mu)
    assert len(looks) < 20
    stated = [
        sampled_gaussian_epsilon(some * noise, delta, rate, steps, mu)
        for some in (1 - 1e-8, 0.998)
    ]
    assert stated[0] <= epsilon < stated[1]


def test_noise_is_never_less_than_what_a_grid_is_for():
    """Samples so rare that delta covers them get some."""
    noise = sampled_gaussian_multiplier(1.0, 1e-3, 2.0**-20, 10)
    assert 0.1 <= noise < 0.1002
