"""A budget may be given in any notion, or as epsilon and delta: equal releases are the same bits, and say the same."""

import pytest
from sklearn.base import clone

from dppl import ZCDP, ApproxDP, GaussianDP, Guarantee, Ledger, PureDP
from dppl.errors import ParameterError
from dppl.privacy import tradeoff
from laws.recipes import CHARGED, CLASSES, FIRST, each

pytestmark = pytest.mark.slow
NAMED = {"budget": None, "epsilon": 1.3, "delta": 1e-6}


def check_same(kind, tmp_path, named):
    """See that nothing tells whether an estimator got a budget or this."""
    X, y = kind.records(17)
    given = {"classes": CLASSES, "random_state": 5, **kind.recipe.options}
    if "adjacency" in kind.entry.parameters:
        given["adjacency"] = kind.adjacency
    found = []
    for number, spelt in enumerate(({"budget": ApproxDP(1.3, 1e-6)}, named)):
        account = None
        if not kind.recipe.sampled:
            account = Ledger(tmp_path / f"{number}.db", "wards", ApproxDP(9.0, 1e-6), adjacency=kind.adjacency)
        model = clone(kind.cls(**spelt, **given)).fit(X, y, **kind.given, ledger=account)
        charged = None if account is None else [(entry["parameters"], entry["cost"]) for entry in account.releases()]
        found.append((model.to_bytes(), model.guarantee_, str(model.guarantee_), model.guarantee_.table(), charged))
    assert found[0] == found[1]


@each()
def test_epsilon_and_delta_are_the_budget_that_they_name(kind, tmp_path):
    check_same(kind, tmp_path, NAMED)


@each(FIRST)
def test_another_delta_is_noticed(kind, tmp_path):
    with pytest.raises(AssertionError):
        check_same(kind, tmp_path, {**NAMED, "delta": 2e-6})


@each(FIRST)
def test_they_are_parameters_like_any_other(kind):
    model = kind.cls(epsilon=1.3, delta=1e-6, classes=CLASSES)
    assert (model.budget, model.epsilon, model.delta) == (None, 1.3, 1e-6)
    assert clone(model).get_params() == model.get_params()
    assert model.resolved_budget == ApproxDP(1.3, 1e-6)
    model.set_params(epsilon=2.0)
    assert model.resolved_budget == ApproxDP(2.0, 1e-6)
    model.set_params(epsilon=None, delta=None, budget=ApproxDP(3.0, 1e-7))
    assert model.resolved_budget == ApproxDP(3.0, 1e-7)


REFUSED = [
    ({}, "exactly one.*got neither"),
    ({"delta": 1e-6}, "exactly one.*got neither"),
    ({"budget": ApproxDP(1.0, 1e-6), "epsilon": 1.0, "delta": 1e-6}, "exactly one.*got both"),
    ({"budget": ApproxDP(1.0, 1e-6), "delta": 1e-6}, "delta belongs to epsilon"),
    ({"epsilon": 0.0, "delta": 1e-6}, "epsilon must be"),
    ({"epsilon": 1.0, "delta": 1.0}, "delta must lie"),
]


@pytest.mark.parametrize(("spelt", "words"), REFUSED, ids=str)
@each(FIRST)
def test_none_and_several_are_refused_by_the_fit(kind, spelt, words):
    model = kind.cls(classes=CLASSES, **spelt)  # the constructor stores what it gets
    with pytest.raises(ParameterError, match=words):
        model.fit(*kind.records(), **kind.given)


@each(FIRST)
def test_epsilon_alone_is_pure_and_needs_a_delta_elsewhere(kind):
    model = kind.cls(epsilon=1.3, classes=CLASSES)
    assert kind.entry.pure == kind.cls._PURE
    if kind.entry.pure:
        assert model.fit(*kind.records(), **kind.given).guarantee_.budget == PureDP(1.3)
    else:
        with pytest.raises(ParameterError, match="epsilon needs delta"):
            model.fit(*kind.records(), **kind.given)


def said(kind, budget):
    """Return what is released within this budget, and all that is said of it."""
    guarantee = kind.make(budget).plan(kind.dim, **kind.given).guarantee
    numbers = [guarantee.implied(), guarantee.table(), guarantee.summary(delta=1e-6)]
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
        return [PureDP(1.0), ApproxDP(1.0, 1e-6), ApproxDP(1.0, 1e-3), ZCDP(0.125)]
    approximate = ApproxDP(1.0, 1e-6)
    mu = approximate.gaussian_allowance().mu
    return [approximate, GaussianDP(mu), ZCDP(mu**2 / 2)]


def check_spellings(kind):
    (releases, first), *others = [said(kind, budget) for budget in spellings(kind)]
    for same, other in others:
        close = [pytest.approx(release.cost, rel=1e-12) for release in same]
        assert [release.cost for release in releases] == close
        if releases == same:  # to the last digit, which the notions round in their own ways
            assert other == first
    return sum(releases == same for same, _ in others)


@each(CHARGED)
def test_equal_releases_say_the_same_however_their_budgets_are_spelt(kind):
    assert check_spellings(kind) > 0


def test_a_bound_that_follows_from_the_spelling_is_noticed(monkeypatch):
    def from_budget(self):
        budget = self.budget.to_dict()
        if "rho" in budget:
            return tradeoff.concentrated_best_guess(budget["rho"])
        if "mu" in budget:
            return tradeoff.gaussian_best_guess(budget["mu"])
        return tradeoff.approximate_best_guess(budget["epsilon"], budget.get("delta", 0.0))

    monkeypatch.setattr(Guarantee, "best_guess", from_budget)
    for kind in FIRST:
        with pytest.raises(AssertionError):
            check_spellings(kind)
