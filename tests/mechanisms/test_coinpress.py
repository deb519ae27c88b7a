import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl import ZCDP
from dppl.errors import ParameterError
from dppl.lattice import Lattice
from dppl.mechanisms import COINPRESS_SPLIT, DPPL_SPLIT, CoinPress, coinpress, randomness


def rows_around(mean, n, rng, lattice):
    return lattice.transform(mean + 0.1 * rng.normal(size=(n, lattice.dim)))


def test_the_splits_are_those_of_the_papers():
    assert [Fraction(share) for share in DPPL_SPLIT] == [Fraction(5, 64), Fraction(7, 64), Fraction(52, 64)]
    assert [Fraction(share) for share in COINPRESS_SPLIT] == [Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)]


def test_with_a_large_budget_it_finds_the_mean():
    lattice = Lattice(64)
    rng = np.random.default_rng(0)
    q = rows_around(rng.normal(size=64), 500, rng, lattice)
    exact = q.mean(axis=0) / lattice.scale
    for split in (DPPL_SPLIT, COINPRESS_SPLIT):
        found = CoinPress(200.0, split=split).release(q, lattice, randomness(1))
        assert np.linalg.norm(found - exact) < 0.02
    coarse = CoinPress(0.01).release(q, lattice, randomness(1))
    assert np.linalg.norm(coarse - exact) > 0.1


def test_the_first_radius_and_centre_matter_as_published():
    """A small ball around the right centre needs less noise than the default one around zero."""
    lattice = Lattice(64)
    rng = np.random.default_rng(1)
    q = rows_around(rng.normal(size=64), 200, rng, lattice)
    exact = q.mean(axis=0) / lattice.scale
    error = {
        name: np.mean(
            [
                np.linalg.norm(CoinPress(0.3, split=(1.0,), **options).release(q, lattice, randomness(s)) - exact)
                for s in range(30)
            ]
        )
        for name, options in {
            "default": {},
            "close": {"radius": 1.0, "center": exact * math.sqrt(64)},
        }.items()
    }
    # Noise is proportional to radius + tail: (8 + 12.2) against (1 + 12.2), measured within a few per cent.
    assert error["close"] / error["default"] == pytest.approx((1 + 12.23) / (8 + 12.23), rel=0.1)


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
    moved = coinpress._clipped_sum(q, center, bound) - coinpress._clipped_sum(other, center, bound)
    assert int((moved**2).sum()) <= 4 * bound


def test_tiny_budgets_diverge_without_leaving_exact_arithmetic():
    lattice = Lattice(16)
    q = lattice.transform(np.random.default_rng(2).normal(size=(3, 16)))
    found = CoinPress(1e-12).release(q, lattice, randomness(3))
    assert np.isfinite(found).all()
    assert np.abs(found).max() > 1e3


def test_a_class_without_records_gets_noise_around_the_centre():
    found = CoinPress(1.0).release(np.empty((0, 16), np.int8), Lattice(16), randomness(4))
    assert found.shape == (16,)
    assert np.isfinite(found).all()


def test_the_shares_never_cost_more_than_the_budget():
    spent = []

    class Watched(coinpress.DiscreteGaussian):
        @classmethod
        def within(cls, budget, squared_sensitivity):
            spent.append(Fraction(budget.rho))
            return super().within(budget, squared_sensitivity)

    original, coinpress.DiscreteGaussian = coinpress.DiscreteGaussian, Watched
    try:
        for rho in (0.1, 1 / 3, 7.3):
            spent.clear()
            CoinPress.within(ZCDP(rho), split=(0.1, 0.2, 0.7)).release(
                np.zeros((5, 8), np.int8), Lattice(8), randomness(5)
            )
            assert len(spent) == 3
            assert Fraction(rho) * (1 - Fraction(1, 10**12)) < sum(spent) <= Fraction(rho)
    finally:
        coinpress.DiscreteGaussian = original


@pytest.mark.parametrize(
    "options",
    [{"split": ()}, {"split": (0.5, 0.6)}, {"split": (1.0, -0.5)}, {"radius": 0.0}, {"radius": math.inf}],
)
def test_options_are_checked(options):
    with pytest.raises(ParameterError):
        CoinPress(1.0, **options)


def test_a_centre_of_another_width_is_refused():
    with pytest.raises(ParameterError, match="must be 8 finite numbers"):
        CoinPress(1.0, center=[0.0, 1.0]).release(np.zeros((1, 8), np.int8), Lattice(8), randomness(0))
