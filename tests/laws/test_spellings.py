"""A budget may be given in any notion: equal releases are the same bits, and say the same."""

import pytest

from dppl import ZCDP, ApproxDP, GaussianDP, Guarantee, PureDP
from dppl.errors import ParameterError
from dppl.kernel.privacy import tradeoff
from dppl.statement import words
from laws.recipes import CLASSES, FIRST, SHARED, SHARED_CHARGED, each

pytestmark = pytest.mark.slow


@each(SHARED)
def test_what_is_no_budget_is_refused_by_the_fit(kind):
    for value in (None, 1.0):
        with pytest.raises(
            ParameterError,
            match=f"budget must be GaussianDP.*got {type(value).__name__}",
        ):
            kind.cls(value, CLASSES).fit(*kind.records())


def said(kind, budget):
    """Return what is released within this budget, and all that is said of it."""
    guarantee = kind.make(budget).plan(kind.dim).guarantee
    numbers = [
        guarantee.implied(),
        words.table(guarantee),
        guarantee.summary(delta=1e-6),
    ]
    by_rates = [guarantee.true_positive_rate(rate) for rate in (1e-6, 0.01, 0.3, 0.999)]
    by_deltas = [guarantee.epsilon(delta) for delta in (1e-12, 1e-6, 0.1)]
    return guarantee.releases, (
        numbers,
        by_rates,
        by_deltas,
        guarantee.best_guess(),
        guarantee.summary().count("mu = "),
    )


def spellings(kind):
    """Return budgets of several notions within which the same is released."""
    if kind.entry.pure:
        return [PureDP(1.0), ApproxDP(1.0, 1e-6), ApproxDP(1.0, 9e-4), ZCDP(0.125)]
    approximate = ApproxDP(1.0, 1e-6)
    mu = approximate.gaussian_allowance().mu
    return [approximate, GaussianDP(mu), ZCDP(mu**2 / 2)]


def check_spellings(kind):
    (releases, first), *others = [said(kind, budget) for budget in spellings(kind)]
    for same, other in others:
        close = [pytest.approx(release.cost, rel=1e-12) for release in same]
        assert [release.cost for release in releases] == close
        if (
            releases == same
        ):  # to the last digit, which the notions round in their own ways
            assert other == first
    return sum(releases == same for same, _ in others)


@each(SHARED_CHARGED)
def test_equal_releases_say_the_same_however_their_budgets_are_spelt(kind):
    assert check_spellings(kind) > 0


def test_a_bound_that_follows_from_the_spelling_is_noticed(monkeypatch):
    def from_budget(self):
        budget = self.budget.to_dict()
        if "rho" in budget:
            return 0.5 + (budget["rho"] / 8) ** 0.5
        if "mu" in budget:
            return tradeoff.gaussian_best_guess(budget["mu"])
        return tradeoff.approximate_best_guess(
            budget["epsilon"], budget.get("delta", 0.0)
        )

    monkeypatch.setattr(Guarantee, "best_guess", from_budget)
    for kind in FIRST:
        with pytest.raises(AssertionError):
            check_spellings(kind)
