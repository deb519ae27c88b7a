import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl import ZCDP, ApproxDP, GaussianDP, Ledger, MeanPrototypes
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import COINPRESS_SPLITS, CoinPress, coinpress
from dppl.kernel.mechanisms.randomness import randomness


def rows_around(mean, n, rng, lattice):
    return lattice.transform(mean + 0.1 * rng.normal(size=(n, lattice.dim)))


def test_the_splits_are_those_of_the_papers():
    exact = {
        name: [Fraction(share) for share in split]
        for name, split in COINPRESS_SPLITS.items()
    }
    assert exact["dppl"] == [Fraction(5, 64), Fraction(7, 64), Fraction(52, 64)]
    assert exact["original"] == [Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)]


def test_with_a_large_budget_it_finds_the_mean():
    lattice = Lattice(64)
    rng = np.random.default_rng(0)
    q = rows_around(rng.normal(size=64), 500, rng, lattice)
    exact = q.mean(axis=0) / lattice.scale
    for split in COINPRESS_SPLITS.values():
        found = CoinPress(20.0, split=split).release(q, lattice, randomness(1))
        assert np.linalg.norm(found - exact) < 0.02
    coarse = CoinPress(0.14).release(q, lattice, randomness(1))
    assert np.linalg.norm(coarse - exact) > 0.1


@given(st.data())
@settings(max_examples=60)
def test_one_record_moves_a_clipped_sum_by_at_most_the_ball(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dim = data.draw(st.integers(1, 30))
    q = Lattice(dim).transform(rng.normal(size=(6, dim)))
    center = np.rint(rng.normal(size=dim) * 10 ** data.draw(st.integers(0, 6)))
    bound = Fraction(data.draw(st.integers(1, 10**6)))
    other = q.copy()
    other[2] = Lattice(dim).transform(rng.normal(size=(1, dim)))
    moved = coinpress._clipped_sum(q, center, bound) - coinpress._clipped_sum(
        other, center, bound
    )
    assert int((moved**2).sum()) <= 4 * bound


def test_tiny_budgets_diverge_without_leaving_exact_arithmetic():
    lattice = Lattice(16)
    q = lattice.transform(np.random.default_rng(2).normal(size=(3, 16)))
    found = CoinPress(1e-6).release(q, lattice, randomness(3))
    assert np.isfinite(found).all()
    assert np.abs(found).max() > 1e3


def test_a_class_without_records_gets_noise_around_the_centre():
    found = CoinPress(1.0).release(
        np.empty((0, 16), np.int8), Lattice(16), randomness(4)
    )
    assert found.shape == (16,)
    assert np.isfinite(found).all()


def test_the_shares_never_cost_more_than_the_budget():
    spent = []

    class Watched(coinpress.RoundedGaussian):
        @classmethod
        def within(cls, budget, squared_sensitivity):
            mechanism = super().within(budget, squared_sensitivity)
            spent.append(Fraction(mechanism.describe("").cost["mu"]) ** 2)
            return mechanism

    original = coinpress.RoundedGaussian
    coinpress.RoundedGaussian = Watched
    try:
        for budget in (ZCDP(0.1), GaussianDP(1 / 3), ApproxDP(7.3, 1e-6)):
            mechanism = CoinPress.within(budget, Lattice(8), (0.1, 0.2, 0.7))
            spent.clear()  # of what `within` tried
            mechanism.release(np.zeros((5, 8), np.int8), Lattice(8), randomness(5))
            allowance = Fraction(budget.gaussian_allowance().mu) ** 2
            assert len(spent) == 3
            assert allowance * (1 - Fraction(1, 10**12)) < sum(spent) <= allowance
            assert [float(part / allowance) for part in spent] == pytest.approx(
                [0.1, 0.2, 0.7], rel=1e-12
            )
            stated = mechanism.describe("means").cost
            assert sum(spent) <= Fraction(stated["mu"]) ** 2 <= allowance
            assert sum(spent) <= 2 * Fraction(stated["rho"])
    finally:
        coinpress.RoundedGaussian = original


@pytest.mark.parametrize(
    "options",
    [
        {"split": ()},
        {"split": (0.5, 0.6)},
        {"split": (1.0, -0.5)},
        {"mu": 0.0},
        {"mu": math.nan},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(ParameterError):
        CoinPress(**{"mu": 1.0} | options)


class Spy(coinpress.RoundedGaussian):
    """Records the exact value and the mechanism of every step."""

    steps: ClassVar[list] = []

    def release(self, exact, source):
        self.steps.append((self, exact))
        return super().release(exact, source)


def steps_of(q, monkeypatch, mu=1.0):
    monkeypatch.setattr(coinpress, "RoundedGaussian", Spy)
    Spy.steps = []
    CoinPress(mu).release(q, Lattice(q.shape[1]), randomness(0))
    return Spy.steps


@pytest.mark.parametrize("mu", [0.04, 1.4, 14.0])
def test_every_step_stays_within_its_stated_sensitivity(monkeypatch, mu):
    """One record replaced, far away and back again: each step's exact sum moves by at most what its noise is for."""
    rng = np.random.default_rng(6)
    lattice = Lattice(12)
    base = rng.normal(size=12)
    q = rows_around(base, 30, rng, lattice)
    for other_row in (
        lattice.transform(-base[None]),
        lattice.transform(rng.normal(size=(1, 12))),
    ):
        other = q.copy()
        other[3] = other_row
        first = steps_of(q, monkeypatch, mu)
        second = steps_of(other, monkeypatch, mu)
        assert len(first) == len(second) == 3
        # Same noise for both, so the second step's centres may differ already: compare
        # the first step's sums, and the scales of all, which must not depend on the
        # records at all.
        assert [step for step, _ in first] == [step for step, _ in second]
        moved = first[0][1] - second[0][1]
        assert 0 < int((moved**2).sum()) <= first[0][0].squared_sensitivity


def test_later_steps_clip_to_the_ball_that_their_noise_is_for(monkeypatch):
    """At a later step's centre, far rows add no more than the ball's radius each."""
    rng = np.random.default_rng(7)
    lattice = Lattice(12)
    base = rng.normal(size=12)
    q = np.concatenate(
        [rows_around(base, 400, rng, lattice), rows_around(-base, 1, rng, lattice)]
    )
    for mechanism, exact in steps_of(q, monkeypatch, 141.0):
        assert int((exact**2).sum()) * 4 <= mechanism.squared_sensitivity * len(q) ** 2
    alone = rows_around(-base, 1, rng, lattice)
    bound = steps_of(q, monkeypatch, 141.0)[2][0].squared_sensitivity / 4
    center = np.rint(q[:400].mean(axis=0))
    near = coinpress._clipped_sum(alone, center, Fraction(math.floor(bound)))
    assert (near**2).sum() <= bound


def test_the_scales_depend_on_the_class_size_alone(monkeypatch):
    rng = np.random.default_rng(8)
    scales = []
    for rows in (rng.normal(size=(20, 8)), np.zeros((20, 8)), np.full((20, 8), np.nan)):
        scales.append(
            [step for step, _ in steps_of(Lattice(8).transform(rows), monkeypatch)]
        )
    assert scales[0] == scales[1] == scales[2]


def test_radii_are_those_that_the_noise_is_for(monkeypatch):
    """Steps clip to the radius before them plus the tail of a Gaussian; the square is floored to an integer."""
    lattice = Lattice(8)
    q = Lattice(8).transform(np.random.default_rng(8).normal(size=(20, 8)))
    bounds = [
        math.sqrt(step.squared_sensitivity / 4) for step, _ in steps_of(q, monkeypatch)
    ]
    radii = CoinPress(1.0).radii(20, lattice)
    unit = lattice.scale / math.sqrt(8)
    log = math.log(100)
    tail = math.sqrt(8 + 2 * math.sqrt(8 * log) + 2 * log)
    assert len(radii) == 4
    assert bounds == pytest.approx(
        [(radius + tail) * unit for radius in radii[:3]], rel=1e-3
    )
    assert CoinPress(1.0).radii(0, lattice) == CoinPress(1.0).radii(1, lattice)


def test_the_first_centre_is_the_parameter_and_not_the_data(monkeypatch):
    rng = np.random.default_rng(9)
    q = rows_around(rng.normal(size=8), 50, rng, Lattice(8))
    (_, exact), *_ = steps_of(q, monkeypatch)
    # The default ball around the origin holds all rows, so the first exact sum is the
    # plain one.
    assert (exact == q.astype(int).sum(axis=0)).all()


def test_centres_stay_where_floats_hold_squared_norms():
    for dim in (1, 16, 4096):
        limit = np.abs(coinpress._exact_center(np.full(dim, 1e300))).max()
        assert dim * (limit + 128) ** 2 <= 2**53


def test_a_row_on_the_other_side_moves_the_sum_by_almost_the_stated_sensitivity():
    """Of a ball that is small beside the rows."""
    row = Lattice(4096).transform(np.random.default_rng(10).normal(size=(1, 4096)))
    bound = Fraction(10**5)
    first, second = (
        coinpress._clipped_sum(np.concatenate([row, other]), np.zeros(4096), bound)
        for other in (row, -row)
    )
    # Tight to a tenth, so a stated sensitivity of one radius instead of two would not
    # cover it.
    assert 0.9 * 4 * bound < int(((first - second) ** 2).sum()) <= 4 * bound


@pytest.mark.parametrize(
    "budget", [GaussianDP(1e-13), GaussianDP(1e-9), ZCDP(1e-30), ApproxDP(1e-9, 1e-12)]
)
def test_a_budget_that_is_too_small_is_refused_before_it_is_charged(budget, tmp_path):
    ledger = Ledger(
        tmp_path / "ledger.db", "wards", GaussianDP(1.0), adjacency="replace-one"
    )
    model = MeanPrototypes(
        budget, ["a", "b"], adjacency="replace-one", coinpress="dppl"
    )
    with pytest.raises(BudgetError, match=r"the budget is so small|mu must be"):
        model.fit(np.eye(4), list("abab"), ledger=ledger)
    assert ledger.releases() == []
