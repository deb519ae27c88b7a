"""The cost of a search, against dp-accounting and against exact enumeration of small searches."""

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dppl import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.privacy import Cost, compose
from dppl.kernel.privacy.accounting import (
    ORDERS,
    renyi_of_best,
    rho_per_run_within,
    search_epsilon_and_order,
)
from dppl.kernel.privacy.composition import (
    covers,
    epsilon_at,
    total_epsilon,
    total_mu,
    total_rho,
)

GEOMETRIC = 1.0  # the shape parameter of dp-accounting's family of distributions


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 3.0])
@pytest.mark.parametrize("mean_runs", [2, 10, 300])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_the_epsilon_of_a_search_is_that_of_dp_accounting(rho, mean_runs, delta):
    accountant = dp_accounting.rdp.RdpAccountant([1 + 1e-9, *ORDERS.tolist()])
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(
        dp_accounting.ZCDpEvent(rho), mean_runs, GEOMETRIC
    )
    theirs = accountant.compose(event).get_epsilon(delta)
    ours = compose([Cost(rho=rho, mean_runs=mean_runs)], delta).epsilon
    # They take the inner minimum over the orders of the list, we over all orders.
    assert theirs * (1 - 2e-3) <= ours <= theirs * (1 + 1e-9)


def divergence(p, q, order):
    """The Rényi divergence of two laws, of one order or of each of several."""
    order = np.asarray(order)[..., None]
    return special.logsumexp(order * np.log(p) + (1 - order) * np.log(q), axis=-1) / (
        order[..., 0] - 1
    )


def best_of_runs(probabilities, mean_runs):
    """The law of the largest of a geometric number of draws from a law on 0, 1, 2, …"""
    below = np.concatenate([[0.0], np.cumsum(probabilities)[:-1], [1.0]])
    return np.diff(
        below / (mean_runs - (mean_runs - 1) * below)
    )  # the probability generating function


def exact_divergence(first, second, mean_runs, order):
    return divergence(
        best_of_runs(first, mean_runs), best_of_runs(second, mean_runs), order
    )


def law_pairs():
    weights = st.lists(st.floats(0.02, 1.0), min_size=3, max_size=3)
    return st.tuples(weights, weights).map(
        lambda pair: [np.array(w) / np.sum(w) for w in pair]
    )


def rho_of(first, second):
    """The zCDP parameter of a pair of laws: from many orders, and above those from the largest log-ratio."""
    orders = 1 + np.geomspace(1e-3, 200, 300)
    found = max(
        (divergence(p, q, orders) / orders).max()
        for p, q in ((first, second), (second, first))
    )
    return max(found * 1.02, np.abs(np.log(first / second)).max() / 200, 1e-9)


@pytest.mark.slow
@given(law_pairs(), st.integers(2, 50), st.floats(1.05, 60.0))
@settings(max_examples=300)
def test_no_small_search_leaks_more_than_the_bound(pair, mean_runs, order):
    first, second = pair
    bound = renyi_of_best(rho_of(first, second), mean_runs, order)
    assert exact_divergence(first, second, mean_runs, order) <= bound


def test_a_search_leaks_more_than_one_run():
    """The negative control: charging one run would be too little."""
    first = np.array([0.98, 0.02])
    second = np.array([0.99, 0.01])
    rho = rho_of(first, second)
    assert exact_divergence(first, second, 40, 2.0) > 2 * rho * 2.0


@pytest.mark.slow
@given(
    st.floats(0.05, 9.0),
    st.sampled_from([1e-10, 1e-6, 1e-3]),
    st.sampled_from([2, 7, 60]),
)
@settings(max_examples=25)
def test_a_calibrated_search_stays_within_its_budget_and_uses_it(
    epsilon, delta, mean_runs
):
    rho = rho_per_run_within(epsilon, delta, mean_runs)
    budget = ApproxDP(epsilon, delta)
    cost = Cost(rho=rho, mean_runs=mean_runs)
    assert covers(budget, [cost])
    assert not covers(budget, [Cost(rho=rho * 1.001, mean_runs=mean_runs)])
    assert (
        epsilon_at([cost], delta, search_epsilon_and_order(rho, mean_runs, delta)[1])
        == compose([cost], delta).epsilon
    )


def test_searches_and_fits_add_up_at_each_order():
    costs = [
        Cost(rho=0.01, mean_runs=10),
        Cost(rho=0.02, mu=0.2),
        Cost(rho=0.01, mean_runs=10),
    ]
    for order in (1.5, 4.0, 30.0):
        alone = [cost.renyi(order) for cost in costs]
        assert alone[0] == renyi_of_best(0.01, 10, order)
        assert alone[1] == 0.02 * order
    # A fit costs what it does in zCDP, whether it states a mu or not.
    assert compose(costs, 1e-6) == compose(
        [Cost(rho=0.01, mean_runs=10, count=2), Cost(rho=0.02)], 1e-6
    )
    assert (
        compose(costs, 1e-6).epsilon
        > compose(costs[:2], 1e-6).epsilon
        > compose(costs[:1], 1e-6).epsilon
    )


def test_a_search_has_no_pure_no_concentrated_and_no_gaussian_cost():
    cost = Cost(rho=0.01, mean_runs=10)
    with pytest.raises(BudgetError, match="no total in it"):
        total_mu([cost])
    assert not covers(GaussianDP(1e6), [cost])
    with pytest.raises(BudgetError, match="no zCDP cost"):
        total_rho([cost])
    with pytest.raises(BudgetError):
        total_epsilon([cost])
    assert not covers(ZCDP(1e6), [cost])
    assert not covers(PureDP(1e6), [cost])


def test_costs_survive_json():
    for cost in (
        {"rho": 0.5},
        {"rho": 0.5, "mu": 1.0},
        {"rho": 0.5, "epsilon": 2.0},
        {"rho": 0.5, "mu": 1.5, "epsilon": 2.0},
    ):
        read = Cost.from_dict(cost)
        assert {name: getattr(read, name) for name in cost} == cost
        assert (read.mu is None) == ("mu" not in cost)
        assert (read.epsilon is None) == ("epsilon" not in cost)
        assert read.mean_runs is None
    assert Cost.from_dict({"rho_per_run": 0.1, "mean_runs": 10.0}) == Cost(
        rho=0.1, mean_runs=10
    )
    for incomplete in ({"epsilon": 1.0}, {"mu": 1.0}, {"mu": 1.0, "epsilon": 1.0}):
        with pytest.raises(KeyError):
            Cost.from_dict(incomplete)


@pytest.mark.parametrize(
    "fields",
    [
        {"rho_per_run": 0.1, "mean_runs": 3.999},
        {"rho_per_run": 0.1, "mean_runs": 1.0},
        {"rho_per_run": 50.0, "rho": 1e-3},
        {"rho_per_run": 50.0, "mu": 1e-3},
        {"rho_per_run": 0.1, "mean_runs": 3.0, "mu": 5.0},
        {"rho": 0.1, "mu": 0.0},
        {"rho_per_run": 0.1, "mean_runs": 3.0, "rho": 5.0},
        {"rho": 0.1, "sigma": 3.0},
        {},
    ],
)
def test_costs_that_contradict_themselves_are_refused(fields):
    with pytest.raises((KeyError, ParameterError)):
        Cost.from_dict(fields)


def test_impossible_searches_are_refused():
    with pytest.raises(BudgetError, match="lower mean_runs"):
        rho_per_run_within(1e-7, 1e-3, 10**6)
    for mean_runs in (1, 0, 2.5, True):
        with pytest.raises(ParameterError, match="mean_runs"):
            rho_per_run_within(1.0, 1e-6, mean_runs)
