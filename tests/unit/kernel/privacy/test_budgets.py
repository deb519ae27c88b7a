import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl import ZCDP, ApproxDP, GaussianDP, PureDP, RenyiDP
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.privacy import Cost, accounting
from dppl.kernel.privacy.accounting import zcdp_within
from dppl.kernel.privacy.budgets import (
    as_typed,
    budget_from_dict,
    refuse_slip,
    rounded_up,
)
from dppl.kernel.privacy.composition import covers, total_budget
from dppl.kernel.privacy.rounding import (
    cost_of_gaussian,
    cost_of_selection,
    root_above,
    root_below,
)

sizes = st.floats(1e-6, 1e3)
deltas = st.floats(1e-12, 0.4)


@pytest.mark.parametrize(
    "value", [0, -1.0, float("nan"), float("inf"), "1", None, True]
)
@pytest.mark.parametrize(
    "make",
    [
        PureDP,
        ZCDP,
        lambda value: ApproxDP(value, 1e-5),
        lambda value: RenyiDP(8.0, value),
    ],
)
def test_a_budget_refuses_what_is_not_a_positive_number(make, value):
    with pytest.raises(ParameterError, match="greater than 0"):
        make(value)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1", None, True])
def test_mu_is_0_or_a_positive_number(value):
    with pytest.raises(ParameterError, match="at least 0"):
        GaussianDP(value)


def test_mu_of_0_lets_nothing_be_released():
    nothing = GaussianDP(0)
    assert nothing.is_zero
    assert not GaussianDP(1e-15).is_zero
    assert not nothing.weakness
    for use in (nothing.gaussian_allowance, nothing.selection_epsilon):
        with pytest.raises(BudgetError, match="no finite noise"):
            use()


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, float("nan")])
def test_delta_lies_strictly_between_0_and_1(delta):
    with pytest.raises(ParameterError, match="strictly between 0 and 1"):
        ApproxDP(1.0, delta)


def test_budgets_are_frozen_and_compare_within_their_notion():
    assert ZCDP(0.5) < ZCDP(1.0) <= ZCDP(1.0)
    assert PureDP(2.0) > PureDP(1.0)
    assert GaussianDP(0.5) < GaussianDP(1.0) <= GaussianDP(1.0) >= GaussianDP(0.5)
    assert not GaussianDP(1.0) > GaussianDP(1.0)
    assert not ApproxDP(1.0, 1e-5) <= ApproxDP(2.0, 1e-6)
    assert not ApproxDP(1.0, 1e-5) >= ApproxDP(2.0, 1e-6)
    for other in (ZCDP(1.0), GaussianDP(1.0), ApproxDP(1.0, 1e-5)):
        with pytest.raises(BudgetError, match="different notions"):
            _ = PureDP(1.0) <= other
    with pytest.raises(BudgetError, match="different notions"):
        _ = GaussianDP(1.0) > ZCDP(0.5)
    with pytest.raises(TypeError):
        _ = ZCDP(1.0) < 2.0
    with pytest.raises(AttributeError):
        ZCDP(1.0).rho = 2.0
    assert ZCDP(1.0) != PureDP(1.0) != GaussianDP(1.0)


@pytest.mark.parametrize("mu", [1e-16, 1.1e8, 1e300])
def test_a_mu_beyond_all_use_is_refused(mu):
    with pytest.raises(BudgetError, match="mu must be from 1e-15 to 1e"):
        GaussianDP(mu)
    with pytest.raises(BudgetError, match="mu must be from 1e-15 to 1e"):
        ZCDP(mu**2 / 2 if mu < 1 else 1e16).gaussian_allowance()
    assert GaussianDP(1e-15).mu == 1e-15
    assert GaussianDP(1e8).to_approx(1e-5).epsilon > 1e15


def test_a_gaussian_budget_says_what_it_is():
    assert str(GaussianDP(0.12345601)) == "mu = 0.123457, Gaussian DP"
    assert GaussianDP(0.5).notion == "Gaussian DP"
    assert GaussianDP(0.5).to_dict() == {"mu": 0.5}
    assert budget_from_dict({"mu": 0.5}) == GaussianDP(0.5)
    assert GaussianDP(0.5).gaussian_allowance() == GaussianDP(0.5)


@pytest.mark.parametrize(
    "convert",
    [
        lambda: ApproxDP(1e18, 1e-5).gaussian_allowance(),
        lambda: ApproxDP(1.0, 1e-5).to_approx(1e-6),
        lambda: PureDP(1.0).gaussian_allowance(),
    ],
)
def test_conversions_that_do_not_exist_say_so(convert):
    with pytest.raises(BudgetError):
        convert()


def epsilon_at(order, rho, delta):
    """Canonne, Kamath, Steinke (2020), Proposition 12, in the digits at work."""
    rho = mpmath.mpf(rho)
    delta = mpmath.mpf(delta)
    order = mpmath.mpf(order)
    return (
        order * rho + mpmath.log1p(-1 / order) - mpmath.log(delta * order) / (order - 1)
    )


def reference_epsilon(rho, delta):
    """Canonne, Kamath, Steinke (2020), Proposition 12, minimised over the order in 40 digits."""
    with mpmath.workdps(40):

        def epsilon(order):
            return epsilon_at(order, rho, delta)

        # Golden-section search: the function of log(order - 1) has one minimum.
        low = mpmath.log(mpmath.mpf("1e-4"))
        high = mpmath.log(mpmath.mpf("1e9"))
        for _ in range(120):
            a = low + (high - low) * 0.382
            b = low + (high - low) * 0.618
            low, high = (
                (low, b)
                if epsilon(1 + mpmath.exp(a)) < epsilon(1 + mpmath.exp(b))
                else (a, high)
            )
        return epsilon(1 + mpmath.exp(low))


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 8.0, 200.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_zcdp_converts_to_the_best_order_and_never_below_it(rho, delta):
    reference = reference_epsilon(rho, delta)
    got = ZCDP(rho).to_approx(delta).epsilon
    assert (
        reference <= got <= max(reference * (1 + 1e-5), 1e-12)
    )  # where delta alone covers it, a token epsilon


@pytest.mark.slow
@given(sizes, deltas)
def test_the_zcdp_within_an_approximate_budget_stays_within_it(epsilon, delta):
    rho = zcdp_within(epsilon, delta)
    assert ZCDP(rho).to_approx(delta).epsilon <= epsilon
    assert ZCDP(rho * (1 + 1e-6)).to_approx(delta).epsilon > epsilon


def exact_delta(mu, epsilon):
    """Balle, Wang (2018), arXiv:1805.06530, Theorem 8, in the digits at work."""
    mu = mpmath.mpf(mu)
    epsilon = mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
        -mu / 2 - epsilon / mu
    )


def next_below(value):
    return math.nextafter(value, 0.0)


def test_gaussian_noise_converts_as_published():
    assert GaussianDP(1.0).to_approx(1e-6).epsilon == pytest.approx(4.887, abs=5e-4)
    assert ApproxDP(1.0, 1e-6).gaussian_allowance().mu == pytest.approx(
        0.2367, abs=5e-5
    )
    assert ApproxDP(8.0, 1e-5).gaussian_allowance().mu == pytest.approx(1.666, abs=5e-4)
    assert ZCDP(2.0).gaussian_allowance() == GaussianDP(2.0)


@given(st.floats(0.01, 20.0), st.sampled_from([1e-12, 1e-6, 1e-3, 0.1]))
@settings(max_examples=60)
def test_gaussian_dp_converts_to_the_smallest_epsilon(mu, delta):
    """To the last bit; where delta covers everything a token epsilon is left."""
    epsilon = GaussianDP(mu).to_approx(delta).epsilon
    with mpmath.workdps(60):
        assert exact_delta(mu, epsilon) <= mpmath.mpf(delta)
        assert epsilon == 1e-12 or exact_delta(mu, next_below(epsilon)) > mpmath.mpf(
            delta
        )


@pytest.mark.slow
@given(st.floats(1e-3, 100.0), st.sampled_from([1e-12, 1e-6, 1e-3, 0.1]))
@settings(max_examples=60)
def test_an_approximate_budget_allows_the_largest_mu_that_stays_within_it(
    epsilon, delta
):
    budget = ApproxDP(epsilon, delta)
    mu = budget.gaussian_allowance().mu
    with mpmath.workdps(60):
        assert (
            exact_delta(mu, epsilon)
            <= mpmath.mpf(delta)
            < exact_delta(math.nextafter(mu, math.inf), epsilon)
        )
    # There and back again: what the allowance implies is within the budget, and more
    # noise was needed by zCDP.
    assert GaussianDP(mu).to_approx(delta) <= budget
    assert cost_of_gaussian(Fraction(mu) ** 2)["rho"] > zcdp_within(epsilon, delta)


@given(st.fractions(Fraction(1, 10**9), Fraction(10**9)))
def test_costs_of_noise_round_up_and_allowances_down(squared_mu):
    cost = cost_of_gaussian(squared_mu)
    allowed = root_below(squared_mu)
    assert (
        Fraction(next_below(cost["mu"])) ** 2 < squared_mu <= Fraction(cost["mu"]) ** 2
    )
    assert (
        2 * Fraction(next_below(cost["rho"])) < squared_mu <= 2 * Fraction(cost["rho"])
    )
    assert (
        Fraction(allowed) ** 2
        <= squared_mu
        < Fraction(math.nextafter(allowed, math.inf)) ** 2
    )


@given(sizes)
def test_gaussian_dp_and_zcdp_convert_on_the_safe_side(value):
    mu = ZCDP(value).gaussian_allowance().mu
    typed = Fraction(as_typed(value))
    assert (
        typed
        <= min(Fraction(repr(value)), Fraction(value))
        < Fraction(math.nextafter(as_typed(value), math.inf))
    )
    assert Fraction(mu) ** 2 <= 2 * typed < Fraction(math.nextafter(mu, math.inf)) ** 2
    assert cost_of_gaussian(Fraction(mu) ** 2)["rho"] <= value


@given(st.lists(st.integers(1, 999), min_size=1, max_size=6))
def test_budgets_that_add_up_in_decimals_do_so_in_floats(thousandths):
    """What is typed is a decimal number, whose float may lie above it."""
    parts = [number / 1000 for number in thousandths]
    total = sum(thousandths) / 1000
    # The float of a total may lie below its decimal number by half a step.
    allowed = Fraction(total) * (1 + Fraction(1, 2**53))
    assert sum(Fraction(PureDP(part).selection_epsilon()) for part in parts) <= allowed
    assert (
        sum(Fraction(ZCDP(part).gaussian_allowance().mu) ** 2 / 2 for part in parts)
        <= allowed
    )
    mus = [GaussianDP(part).gaussian_allowance().mu for part in parts]
    assert sum(Fraction(mu) ** 2 for mu in mus) <= sum(
        Fraction(number, 1000) ** 2 for number in thousandths
    )


@given(st.floats(1e-3, 20.0))
@settings(max_examples=40)
def test_a_selection_spends_a_gaussian_budget_and_no_more(mu):
    epsilon = GaussianDP(mu).selection_epsilon()
    with mpmath.workdps(40):
        exact = 2 * mpmath.log(
            mpmath.ncdf(mpmath.mpf(mu) / 2) / mpmath.ncdf(-mpmath.mpf(mu) / 2)
        )
        assert exact * (1 - mpmath.mpf(2) ** -45) < epsilon <= exact


@given(sizes)
def test_closed_forms_round_to_the_safe_side(value):
    exact = Fraction(value)
    assert 8 * Fraction(cost_of_selection(value)["rho"]) >= exact**2
    assert Fraction(ZCDP(value).selection_epsilon()) ** 2 <= 8 * exact
    assert ZCDP(value).selection_epsilon() == pytest.approx(
        (8 * value) ** 0.5, rel=1e-15
    )


@given(st.fractions(Fraction(1, 16), Fraction(10**9)), sizes)
def test_gaussian_noise_is_the_least_that_stays_within_mu(squared_sensitivity, mu):
    std = root_above(squared_sensitivity / Fraction(mu) ** 2)
    assert squared_sensitivity / Fraction(std) ** 2 <= Fraction(mu) ** 2
    assert squared_sensitivity / Fraction(next_below(std)) ** 2 > Fraction(mu) ** 2
    assert Fraction(
        cost_of_gaussian(squared_sensitivity / Fraction(std) ** 2)["mu"]
    ) <= Fraction(mu)


def test_a_selection_uses_an_approximate_budget_as_pure():
    assert ApproxDP(1.5, 1e-5).selection_epsilon() == 1.5
    assert PureDP(1.5).to_approx(1e-7) == ApproxDP(1.5, 1e-7)


def test_the_margin_of_a_conversion_covers_the_rounding_of_floats():
    """At the very order that a conversion chose, 40 digits never give more than it; floats alone would, often."""
    rounded_down = 0
    for rho in np.geomspace(1e-2, 1e2, 50).tolist():
        floats, order = accounting.epsilon_and_order(rho, 1e-6)
        with mpmath.workdps(40):
            exact = epsilon_at(order, rho, 1e-6)
            assert exact <= ZCDP(rho).to_approx(1e-6).epsilon <= exact * (1 + 1e-11)
            rounded_down += floats < exact
    assert rounded_down  # or this test could not see a missing margin


@pytest.mark.parametrize(
    ("budget", "weak"),
    [
        (ApproxDP(2.99, 1e-6), False),
        (ApproxDP(3.0, 1e-6), True),
        (ApproxDP(1.0, 9.9e-5), False),
        (ApproxDP(1.0, 1e-4), True),
        (PureDP(2.99), False),
        (PureDP(3.0), True),
        (GaussianDP(0.0), False),
        (GaussianDP(1e-15), False),
        (GaussianDP(0.6477), False),
        (GaussianDP(0.6478), True),
        (GaussianDP(1e8), True),
        (ZCDP(1e-300), False),
        (ZCDP(0.2097), False),
        (ZCDP(0.2098), True),
        (ZCDP(1e6), True),
        (ZCDP(1e300), True),
        (RenyiDP(25.0, 2.5), False),  # 2.9008
        (RenyiDP(25.0, 2.6), True),  # 3.0008
        (RenyiDP(2.0, 1e-6), True),  # of an order that proves little
    ],
)
def test_a_budget_of_every_notion_is_weak_by_the_epsilon_that_it_implies(budget, weak):
    assert bool(budget.weakness) == weak
    assert bool(budget.weakness) == weak


def test_what_is_told_of_a_weak_budget_names_the_epsilon_or_the_delta():
    epsilon = rounded_up(GaussianDP(3.0).to_approx(1e-6).epsilon, 4)
    for budget in (GaussianDP(3.0), ZCDP(4.5)):
        assert budget.weakness.startswith(
            f"{budget} is a weak guarantee. It implies epsilon = {epsilon} at delta = 1e-6."
        )
    assert "implies" not in PureDP(11.0).weakness
    assert ApproxDP(1.0, 0.01).weakness.startswith(
        "delta = 0.01 is too large for most data"
    )
    both = ApproxDP(11.0, 0.01).weakness
    assert "is a weak guarantee" in both
    assert "too large for most data" in both


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.longdouble, Fraction])
def test_numbers_of_other_types_become_floats(kind):
    """Narrow floats would drag the accounting down to their precision, and share its cache with equal wide ones."""
    budget = ApproxDP(kind(4), kind(2.0**-12))
    assert [type(value) for value in budget.to_dict().values()] == [float, float]
    assert type(budget.epsilon) is type(budget.delta) is float
    assert budget.gaussian_allowance() == ApproxDP(4.0, 2.0**-12).gaussian_allowance()
    assert type(ZCDP(kind(2)).rho) is type(GaussianDP(kind(2)).mu) is float
    assert GaussianDP(kind(2)).to_approx(kind(2.0**-12)) == GaussianDP(2.0).to_approx(
        2.0**-12
    )
    with pytest.raises(ParameterError):
        ZCDP(10**400)


@pytest.mark.parametrize(
    ("kind", "numbers"), [(PureDP, (30.0,)), (ApproxDP, (30.0, 0.1))]
)
def test_that_a_budget_is_meant_is_no_part_of_it(kind, numbers):
    one = kind(*numbers)
    meant = kind(*numbers, allow_weak=True)
    assert one == meant
    assert hash(one) == hash(meant)
    assert (repr(one), str(one)) == (repr(meant), str(meant))
    assert one.to_dict() == meant.to_dict()
    assert meant.allow_weak
    assert not one.allow_weak
    assert pickle.loads(pickle.dumps(meant)).allow_weak
    refuse_slip(meant)
    with pytest.raises(ParameterError, match="epsilon must be at most 20"):
        refuse_slip(one)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (GaussianDP(3.235), GaussianDP(3.236)),
        (ZCDP(5.232), ZCDP(5.236)),
        (PureDP(20.0), PureDP(20.1)),
        (ApproxDP(20.0, 1e-6), ApproxDP(20.1, 1e-6)),
        (RenyiDP(25.0, 19.5), RenyiDP(25.0, 19.7)),
    ],
)
def test_every_notion_is_too_weak_from_one_epsilon_on(small, large):
    """A mu or rho is refused where that is asked for, as the command line does; else it only warns."""
    assert small.usual_epsilon <= 20 < large.usual_epsilon
    refuse_slip(small, implied=True)
    refuse_slip(large, implied=True, allowed=True)
    with pytest.raises(ParameterError, match="at most 20") as caught:
        refuse_slip(large, implied=True)
    assert caught.value.parameter == next(iter(large.to_dict()))
    if not large.states_epsilon:
        refuse_slip(large)


@given(st.floats(1.01, 1e4), sizes)
def test_the_divergence_of_one_order_is_spent_exactly_and_never_exceeded(
    alpha, epsilon
):
    """Normal densities a distance mu apart have the divergence alpha·mu²/2 (Mironov 2017, Proposition 7)."""
    budget = RenyiDP(alpha, epsilon)
    mu = budget.gaussian_allowance().mu
    typed = Fraction(as_typed(epsilon))
    spent = Fraction(alpha) * Fraction(mu) ** 2 / 2
    further = Fraction(alpha) * Fraction(math.nextafter(mu, math.inf)) ** 2 / 2
    assert spent <= typed < further
    # Ledgers add rounded costs, and must let the whole budget be spent at once.
    cost = Cost(**cost_of_gaussian(Fraction(mu) ** 2))
    assert total_budget(budget, [cost]) <= budget
    assert covers(budget, [cost])
    assert not covers(budget, [cost, cost])
    range_ = Fraction(budget.selection_epsilon())
    assert Fraction(alpha) * range_**2 / 8 <= typed


@pytest.mark.parametrize("alpha", [1.5, 4.0, 32.0])
def test_an_order_implies_what_dp_accounting_says_of_it(alpha):
    dp_accounting = pytest.importorskip("dp_accounting")
    budget = RenyiDP(alpha, 0.75 * alpha)
    accountant = dp_accounting.rdp.RdpAccountant([alpha])
    accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(1.5)))
    expected = accountant.get_epsilon(1e-6)
    assert budget.to_approx(1e-6).epsilon == pytest.approx(expected, rel=1e-9)
    # One order knows less than all of them.
    whole = budget.gaussian_allowance().to_approx(1e-6).epsilon
    assert whole < budget.to_approx(1e-6).epsilon


def test_divergences_of_two_orders_do_not_compare():
    assert RenyiDP(8.0, 1.0) < RenyiDP(8.0, 2.0)
    with pytest.raises(BudgetError, match="different orders"):
        _ = RenyiDP(2.0, 1.0) <= RenyiDP(8.0, 2.0)
    with pytest.raises(BudgetError, match="different notions"):
        _ = RenyiDP(2.0, 1.0) <= ZCDP(1.0)
    with pytest.raises(ParameterError, match="above 1") as caught:
        RenyiDP(1.0, 1.0)
    assert caught.value.parameter == "alpha"
    budget = RenyiDP(8.0, 2.0)
    assert str(budget) == "epsilon = 2 at alpha = 8, Rényi DP"
    # Of a higher order it would promise more.
    assert "alpha = 1.23456," in str(RenyiDP(1.23456789, 2.0))
    assert budget_from_dict(budget.to_dict()) == budget


def test_a_root_beyond_all_floats_is_a_budget_error():
    with pytest.raises(BudgetError, match="range of float"):
        root_above(Fraction(10) ** 700)
