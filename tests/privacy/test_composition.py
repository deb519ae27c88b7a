import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl import ZCDP
from dppl.errors import BudgetError, ParameterError
from dppl.privacy import Cost, compose
from dppl.privacy.composition import total_epsilon, total_rho

SELECTION = Cost(rho=0.125, epsilon=1.0)
KINDS = [Cost(rho=0.5), SELECTION, Cost(rho=1e-3), Cost(rho=0.1**2 / 8, epsilon=0.1), Cost(rho=50.0, epsilon=20.0)]


@pytest.mark.parametrize("cost", KINDS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 10])
def test_k_at_once_cost_what_k_single_ones_do(cost, count):
    together = compose([Cost(rho=cost.rho, epsilon=cost.epsilon, count=count)], 1e-6).epsilon
    singly = compose([cost] * count, 1e-6).epsilon
    assert together == pytest.approx(singly, rel=1e-6)
    if count > 1:
        assert together > compose([cost], 1e-6).epsilon


@given(st.permutations(KINDS[:4]), st.integers(0, 3))
@settings(max_examples=20)
def test_order_does_not_matter_and_more_never_costs_less(costs, removed):
    everything = compose(costs, 1e-5).epsilon
    assert everything == pytest.approx(compose(KINDS[:4], 1e-5).epsilon, rel=1e-9)
    assert compose(costs[:removed] + costs[removed + 1 :], 1e-5).epsilon <= everything


def exact_randomized_response(epsilon, count, delta):
    """Smallest epsilon of `count` randomized responses (Kairouz, Oh, Viswanath 2015, Theorem 3.3), by bisection."""
    p = 1 / (1 + math.exp(-epsilon))
    wins = np.arange(count + 1)
    log_mass = np.array([math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in wins])
    log_mass += wins * math.log(p) + (count - wins) * math.log1p(-p)
    loss = (2 * wins - count) * epsilon

    def excess(target):
        return np.sum(np.where(loss > target, np.exp(log_mass) * -np.expm1(target - loss), 0))

    low, high = 0.0, count * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 3), (0.5, 20), (2.0, 8)])
def test_pure_releases_never_get_below_the_exact_composition_of_randomized_response(epsilon, count):
    """Costs with no advantage from bounded range: rho as pure DP implies it."""
    cost = Cost(rho=epsilon**2 / 2, epsilon=epsilon, count=count)
    exact = exact_randomized_response(epsilon, count, 1e-6)
    assert exact <= compose([cost], 1e-6).epsilon <= exact + count * 2e-4


def test_the_smallest_route_wins_and_is_named():
    assert compose([Cost(rho=0.5)], 1e-5).epsilon == ZCDP(0.5).to_approx(1e-5).epsilon
    assert "zCDP" in compose([Cost(rho=0.5)], 1e-5).route
    many = compose([Cost(rho=0.1**2 / 8, epsilon=0.1, count=100)], 1e-5)
    assert "zCDP" in many.route
    assert many.epsilon == pytest.approx(2.1657, abs=1e-3)
    assert compose([SELECTION], 1e-5).epsilon <= 1.0
    mixed = compose([Cost(rho=0.0625, epsilon=0.7), Cost(rho=1e-5)], 1e-5)
    assert "pure epsilons added to converted zCDP" in mixed.route
    assert mixed.epsilon < compose([Cost(rho=0.0625), Cost(rho=1e-5)], 1e-5).epsilon


def test_nothing_costs_nothing():
    assert compose([], 1e-5).epsilon == 0.0
    assert total_rho([]) == total_epsilon([]) == 0.0


@given(st.lists(st.floats(1e-9, 10), min_size=1, max_size=20))
def test_totals_round_up(values):
    from fractions import Fraction

    exact = sum(map(Fraction, values))
    for total in (total_rho([Cost(rho=v) for v in values]), total_epsilon([Cost(rho=1.0, epsilon=v) for v in values])):
        assert exact <= Fraction(total) <= exact * (1 + Fraction(1, 2**51))


def test_gaussian_noise_has_no_pure_total():
    with pytest.raises(BudgetError, match="no pure-DP"):
        total_epsilon([SELECTION, Cost(rho=1.0)])


@pytest.mark.parametrize("fields", [{"rho": 0}, {"rho": 1, "epsilon": -1}, {"rho": 1, "count": 0}, {"rho": math.nan}])
def test_costs_are_checked(fields):
    with pytest.raises(ParameterError):
        Cost(**fields)


def test_the_trap_of_replace_one_in_the_rdp_accountant_is_not_ours():
    """dp-accounting's RDP accountant gives Gaussians the same epsilon for both relations; PLD shows what it should be.

    dppl states the doubled sensitivity itself and converts zCDP, where the relation has no part.
    """
    one, event = dp_accounting.NeighboringRelation, dp_accounting.GaussianDpEvent(4)
    naive = dp_accounting.rdp.RdpAccountant(neighboring_relation=one.REPLACE_ONE)
    correct = dp_accounting.pld.PLDAccountant(neighboring_relation=one.REPLACE_ONE)
    assert naive.compose(event).get_epsilon(1e-5) < correct.compose(event).get_epsilon(1e-5)
    # Sensitivity 2 at noise 4: rho = 2²/(2·4²).
    assert compose([Cost(rho=4 / 32)], 1e-5).epsilon > correct.get_epsilon(1e-5)


def test_permute_and_flip_would_not_have_our_concentrated_cost():
    """The reason for the exponential mechanism: permute-and-flip is epsilon-DP, but with up to twice the range."""
    epsilon = 1.0

    def permute_and_flip(gaps):
        """P(choose 0) of two candidates: flip in random order, restart until one accepts."""
        accept = np.exp(-epsilon * gaps)
        first = 0.5 * accept[0] + 0.5 * (1 - accept[1]) * accept[0]
        second = 0.5 * accept[1] + 0.5 * (1 - accept[0]) * accept[1]
        return np.array([first, second]) / (first + second)

    # One record lifts candidate 1 by one (sensitivity 1), from one below to level.
    before, after = permute_and_flip(np.array([0.0, 1.0])), permute_and_flip(np.array([0.0, 0.0]))
    ratios = np.log(after / before)
    assert ratios.max() - ratios.min() > epsilon  # not epsilon-bounded range
    weights = [np.exp([0.0, -epsilon]), np.exp([0.0, 0.0])]
    ratios = np.log(weights[1] / weights[1].sum()) - np.log(weights[0] / weights[0].sum())
    assert ratios.max() - ratios.min() <= epsilon * (1 + 1e-12)
