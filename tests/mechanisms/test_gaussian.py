from fractions import Fraction

import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, PureDP
from dppl.errors import BudgetError
from dppl.mechanisms import DiscreteGaussian, randomness


def renyi_divergence(order, shift, std):
    """Rényi divergence of two discrete Gaussians on the integers, summed directly."""
    k = np.arange(-4000, 4001)

    def log_mass(center):
        log_weight = -((k - center) ** 2) / (2 * std**2)
        return log_weight - np.logaddexp.reduce(log_weight)

    return np.logaddexp.reduce(order * log_mass(0) + (1 - order) * log_mass(shift)) / (order - 1)


@pytest.mark.parametrize("order", [1.01, 2.0, 8.0, 64.0])
@pytest.mark.parametrize(("rho", "shift"), [(0.5, 1), (0.02, 3), (3.0, 40)])
def test_neighbours_diverge_by_no_more_than_rho(order, rho, shift):
    mechanism = DiscreteGaussian.within(ZCDP(rho), Fraction(shift**2))
    divergence = renyi_divergence(order, shift, mechanism.noise_std)
    assert divergence <= order * rho * (1 + 1e-9)
    # The control: nine tenths of the noise break the bound, so the test can see a fault.
    assert renyi_divergence(order, shift, 0.9 * mechanism.noise_std) > order * rho * (1 + 1e-9)


def test_an_approximate_budget_buys_the_noise_of_its_zcdp_part():
    budget = ApproxDP(1.0, 1e-5)
    mechanism = DiscreteGaussian.within(budget, Fraction(10_000))
    assert mechanism.noise_std / 100 == pytest.approx(4.045, abs=2e-3)
    assert ZCDP(mechanism.rho).to_approx(1e-5).epsilon <= 1.0 * (1 + 1e-9)


def test_pure_budgets_are_refused_with_the_way_out():
    with pytest.raises(BudgetError, match=r"no pure-DP guarantee.*PublicPrototypes"):
        DiscreteGaussian.within(PureDP(1.0), Fraction(1))


def test_a_release_is_the_value_plus_noise_of_its_shape():
    mechanism = DiscreteGaussian.within(ZCDP(0.5), Fraction(100))
    exact = np.arange(12).reshape(3, 4) * 10**12
    noise = randomness(1).discrete_gaussian(mechanism.noise_std, (3, 4))
    assert (mechanism.release(exact, randomness(1)) - exact == noise).all()
    assert noise.any()


def test_the_entry_of_the_guarantee_has_the_numbers():
    entry = DiscreteGaussian.within(ZCDP(0.5), Fraction(100)).describe("sums")
    assert (entry.sensitivity, entry.parameters, entry.cost) == (10.0, {"noise_std": 10.0}, {"rho": 0.5})


@pytest.mark.parametrize("rho", [1e-40, 1e-30])
def test_noise_beyond_64_bits_is_refused_because_it_would_wrap(rho):
    with pytest.raises(BudgetError, match="leave 64-bit integers"):
        DiscreteGaussian.within(ZCDP(rho), Fraction(10**6))
    widest = DiscreteGaussian(squared_sensitivity=Fraction(1), noise_std=2.0**52)
    assert np.abs(widest.release(np.zeros(1000, np.int64), randomness(None))).max() < 2**62
