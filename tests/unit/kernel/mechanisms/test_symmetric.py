from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dppl import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.errors import BudgetError
from dppl.kernel.mechanisms import SymmetricRoundedGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy.terms import Norm

# Statistical tests here raise a false alarm with at most this probability.
ALARM = 1e-6
DIM = 3

rows = (
    st.lists(st.integers(-127, 127), min_size=DIM, max_size=DIM)
    .filter(any)
    .map(lambda row: np.array(row, object))
)


def exact_cost(difference, mechanism):
    """Return mu²: D²/σ² added over the coordinates that get noise of their own, in rationals."""
    cost = Fraction(0)
    for i in range(DIM):
        for j in range(i, DIM):
            std = mechanism.noise_std if i == j else mechanism.off_diagonal_noise_std
            cost += Fraction(int(difference[i, j])) ** 2 / Fraction(std) ** 2
    return cost


@pytest.mark.slow
@given(rows, rows, st.floats(1e-6, 1e6), st.booleans())
@settings(max_examples=300)
def test_the_noise_costs_at_most_mu_in_rationals(row, other, mu, replaced):
    difference = np.outer(row, row) - (np.outer(other, other) if replaced else 0)
    squared = Fraction(int((difference**2).sum()))
    if not squared:
        return
    mechanism = SymmetricRoundedGaussian.within(GaussianDP(mu), squared)
    exact = exact_cost(difference, mechanism)
    assert (
        exact <= Fraction(mechanism.describe("").cost["mu"]) ** 2 <= Fraction(mu) ** 2
    )
    assert exact <= 2 * Fraction(mechanism.describe("").cost["rho"])
    assert exact >= Fraction(mu) ** 2 * (1 - Fraction(1, 10**12))  # and wastes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedOnce(SymmetricRoundedGaussian):
    """Narrows the noise as if an entry off the diagonal moved once, as when two halves of noise are averaged."""

    @property
    def off_diagonal_noise_std(self):
        return self.noise_std / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowDiagonal(SymmetricRoundedGaussian):
    """Takes the triangle for half the matrix and gives the diagonal the narrow noise as well."""

    def __post_init__(self):
        object.__setattr__(self, "noise_std", self.noise_std / np.sqrt(2))


@pytest.mark.parametrize(
    ("kind", "row"), [(CountedOnce, [100, 100, 100]), (NarrowDiagonal, [100, 0, 0])]
)
def test_the_exact_cost_notices_narrower_noise(kind, row):
    difference = np.outer(row, row)
    squared = Fraction(int((difference**2).sum()))
    honest = SymmetricRoundedGaussian.within(GaussianDP(1.0), squared)
    wrong = kind(squared_sensitivity=squared, noise_std=honest.noise_std)
    assert exact_cost(difference, honest) <= 1 < exact_cost(difference, wrong)


def test_neighbours_differ_by_their_values_alone():
    mechanism = SymmetricRoundedGaussian.within(ZCDP(0.5), Fraction(10**8))
    first = np.arange(4 * DIM * DIM).reshape(4, DIM, DIM)
    first += first.transpose(0, 2, 1)
    second = first + np.outer([1, -2, 3], [1, -2, 3])
    one, two = (mechanism.release(exact, randomness(7)) for exact in (first, second))
    assert (two - one == second - first).all()
    assert (one == one.transpose(0, 2, 1)).all()


def test_what_lies_below_the_diagonal_is_not_read():
    mechanism = SymmetricRoundedGaussian.within(ZCDP(0.5), Fraction(10**8))
    exact = np.triu(np.arange(DIM * DIM).reshape(DIM, DIM))
    noisy = (
        mechanism.release(exact + secret, randomness(3))
        for secret in (0, np.tril(np.full((DIM, DIM), 9), -1))
    )
    assert (next(noisy) == next(noisy)).all()


@pytest.mark.parametrize("seed", [None, 0])
def test_the_noise_is_independent_and_has_its_widths(seed):
    mechanism = SymmetricRoundedGaussian.within(ZCDP(0.5), Fraction(10**6))
    dim = 20
    copies = 200
    noise = mechanism.release(
        np.zeros((copies, dim, dim), np.int64), randomness(seed)
    ).astype(float)
    diagonal = noise[:, np.arange(dim), np.arange(dim)]
    above = noise[:, *np.triu_indices(dim, 1)]

    def has_width(draws, std):
        low, high = stats.chi2.ppf([ALARM / 8, 1 - ALARM / 8], draws.size)
        return low <= np.sum((draws / std) ** 2) <= high

    assert has_width(diagonal, 1000.0)
    assert has_width(above, 1000.0 / np.sqrt(2))
    assert not has_width(diagonal, 1000.0 / np.sqrt(2))
    assert not has_width(above, 1000.0)
    # Sums over a matrix tell dependence: independent draws have the sum of the
    # variances.
    assert has_width(diagonal.sum(axis=1), 1000.0 * np.sqrt(dim))
    assert has_width(above.sum(axis=1), 1000.0 * np.sqrt(dim * (dim - 1) / 4))


def test_an_approximate_budget_covers_it_and_a_pure_one_is_refused():
    mechanism = SymmetricRoundedGaussian.within(ApproxDP(1.0, 1e-5), Fraction(10_000))
    assert GaussianDP(mechanism.describe("").cost["mu"]).to_approx(1e-5).epsilon <= 1.0
    assert (
        GaussianDP(mechanism.describe("").cost["mu"] * (1 + 1e-12))
        .to_approx(1e-5)
        .epsilon
        > 1.0
    )
    assert mechanism.noise_std / 100 == pytest.approx(
        3.7306, abs=1e-4
    )  # Balle, Wang (2018)
    with pytest.raises(BudgetError, match="no pure-DP guarantee"):
        SymmetricRoundedGaussian.within(PureDP(1.0), Fraction(1))


def test_the_entry_of_the_guarantee_has_the_numbers():
    entry = SymmetricRoundedGaussian.within(ZCDP(0.5), Fraction(100)).describe(
        "Gram matrix"
    )
    assert (entry.sensitivity, entry.norm, entry.cost) == (
        10.0,
        Norm.FROBENIUS,
        {"mu": 1.0, "rho": 0.5},
    )
    assert entry.parameters == {
        "noise_std": 10.0,
        "off_diagonal_noise_std": pytest.approx(10 / np.sqrt(2)),
    }
