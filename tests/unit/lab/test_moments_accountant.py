"""The moments accountant, against dp-accounting's Rényi divergences and against other bounds."""

import math

import dp_accounting
import pytest

from dppl.errors import BudgetError
from dppl.kernel.privacy.sampling import sampled_gaussian_multiplier
from dppl.lab.moments_accountant import (
    divergence,
    epsilon_by_moments,
    multiplier_by_moments,
)


@pytest.mark.parametrize("order", [2, 7, 32, 256])
@pytest.mark.parametrize(
    ("multiplier", "rate"), [(0.7, 0.01), (1.1, 0.1), (15.0, 0.1), (4.0, 1.0)]
)
def test_divergences_are_those_of_dp_accounting(order, multiplier, rate):
    accountant = dp_accounting.rdp.RdpAccountant([order])
    event = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(multiplier)
    )
    delta = 1e-5
    bound = accountant.compose(event, 200).get_epsilon(delta)
    # What its conversion adds (Canonne, Kamath, Steinke 2020, Proposition 12).
    added = math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    expected = bound - added
    assert 200 * divergence(order, multiplier, rate) == pytest.approx(
        expected, rel=1e-6, abs=1e-9
    )


def test_the_published_noise_of_sparse_finetuning_costs_what_its_conversion_says():
    """Noise multiplier 15, sampling rate 0.1, 200 epochs, δ = 1e-5 (Luo et al., section 5.8)."""
    published = epsilon_by_moments(15.0, 1e-5, 0.1, 2000)
    # Privacy loss distributions prove 1.128 of it.
    assert 1.128 < published < 1.6
    found = multiplier_by_moments(published, 1e-5, 0.1, 2000)
    assert 15.0 <= found == pytest.approx(15.0, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_more_noise_than_privacy_loss_distributions_need(epsilon):
    by_moments = multiplier_by_moments(epsilon, 1e-5, 0.1, 50)
    assert epsilon_by_moments(by_moments, 1e-5, 0.1, 50) <= epsilon
    least = sampled_gaussian_multiplier(epsilon, 1e-5, sampling_rate=0.1, steps=50)
    assert 1.02 * least < by_moments < 2 * least


def test_a_budget_below_all_that_it_can_prove_is_refused():
    with pytest.raises(BudgetError, match="raise the budget"):
        multiplier_by_moments(1e-4, 1e-5, 0.1, 50)
