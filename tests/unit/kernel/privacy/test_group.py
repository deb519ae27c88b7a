"""What several rows of a person cost together never leaves the budget, to the last bit."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl.kernel.mechanisms import ExponentialMechanism, RoundedGaussian
from dppl.kernel.privacy import ZCDP, ApproxDP, GaussianDP, PureDP, budgets
from dppl.kernel.privacy.budgets import budget_of_one, split
from dppl.kernel.privacy.composition import covers
from dppl.kernel.privacy.guarantee import Cost

numbers = st.floats(1e-7, 50)
gaussian = st.one_of(
    numbers.map(GaussianDP),
    numbers.map(ZCDP),
    st.builds(ApproxDP, numbers, st.just(1e-6)),
)
shares = st.lists(st.integers(1, 100), min_size=1, max_size=4)


def sums_within(budget, n_rows, parts):
    """Return what sums cost a person of so many rows, planned within a budget."""
    of_one = budget_of_one(budget, n_rows, selects=False)
    sums = [RoundedGaussian.within(part, Fraction(3)) for part in split(of_one, parts)]
    several = [one.describe("a sum").for_rows(n_rows) for one in sums]
    return [Cost.from_dict(one.cost) for one in several]


@pytest.mark.slow
@given(gaussian, st.integers(2, 40), shares)
@settings(max_examples=300)
def test_sums_of_several_rows_stay_within_the_budget(budget, n_rows, parts):
    assert covers(budget, sums_within(budget, n_rows, parts))


@given(st.one_of(gaussian, numbers.map(PureDP)), st.integers(2, 40))
@settings(max_examples=300)
def test_selections_for_several_rows_stay_within_the_budget(budget, n_rows):
    of_one = budget_of_one(budget, n_rows, selects=True)
    release = ExponentialMechanism.within(of_one, 5).describe("positions")
    several = release.for_rows(n_rows)
    assert covers(budget, [Cost.from_dict(several.cost)])


def test_the_entry_of_several_rows_names_how_far_a_person_moves_it():
    release = RoundedGaussian.within(GaussianDP(1), Fraction(9)).describe("sums")
    assert (release.sensitivity, release.for_rows(4).sensitivity) == (3, 6)


def test_without_head_room_costs_that_are_rounded_up_leave_the_budget(monkeypatch):
    case = GaussianDP(2.050618596066995), 10, (50, 50)
    assert covers(case[0], sums_within(*case))
    monkeypatch.setattr(budgets, "_HEAD_ROOM", 1)
    assert not covers(case[0], sums_within(*case))


def test_hardly_anything_of_the_budget_is_lost():
    (cost,) = sums_within(GaussianDP(1.0), 7, (1,))
    assert 1 - 1e-14 < cost.mu <= 1
