"""A guarantee states every release, with its noise, and all of them cost the budget: no more, and next to no less."""

import warnings
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from dppl import ZCDP, ApproxDP, GaussianDP, Guarantee, Ledger, PureDP, RenyiDP
from dppl.errors import BudgetError, ParameterError, WeakBudgetWarning
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.mechanisms.randomness import SeededRandomness
from dppl.kernel.privacy import Cost
from dppl.kernel.privacy.composition import covers
from dppl.kernel.privacy.sensitivity import replaced, squared_norm_of
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.methods import base
from dppl.statement.words import text
from inside import takes
from laws.recipes import BY_NAME, CLASSES, FIRST, KINDS, SHARED, SHARED_CHARGED, each

pytestmark = pytest.mark.slow

# How a budget becomes noise is shared by all fits, so others than `SHARED` spend one.
SPENDING = [
    *((kind, budget) for kind in SHARED for budget in kind.budgets),
    *((kind, RenyiDP(3.0, 1.1)) for kind in SHARED_CHARGED),
    *((kind, kind.budgets[-1]) for kind in KINDS if kind not in SHARED),
]


def allowance(budget, *, selects):
    """Return what the budget allows: epsilon of one selection, or the square of mu."""
    if selects:
        return Fraction(budget.selection_epsilon())
    return Fraction(budget.gaussian_allowance().mu) ** 2


def check_cost(kind, budget):
    plan = kind.make(budget).plan(kind.dim).guarantee
    guarantee = kind.fit(*kind.records(), budget=budget).guarantee_
    assert plan == guarantee
    assert guarantee.budget == budget
    assert guarantee.exact
    assert guarantee.stays_within_budget()
    stated = {name for release in guarantee.releases for name in release.cost}
    assert all(
        f"{name} = " in str(guarantee).partition("Released: ")[2] for name in stated
    )
    if kind.recipe.sampled:
        # What samples leave over is for the other releases, if there are such.
        release = next(one for one in guarantee.releases if "delta" in one.cost)
        assert release.cost["delta"] == budget.delta
        assert release.cost["epsilon"] <= budget.epsilon
        whole = guarantee.epsilon(budget.delta)
        assert 0.99 * budget.epsilon < whole <= budget.epsilon
        return
    assert covers(
        budget, [Cost.from_dict(release.cost) for release in guarantee.releases]
    )
    # Of the methods that may choose, by a public rule, some select here.
    selects = kind.entry.pure or all(
        "epsilon" in release.cost for release in guarantee.releases
    )
    cost = sum(
        Fraction(release.cost["epsilon"])
        if selects
        else Fraction(release.cost["mu"]) ** 2
        for release in guarantee.releases
    )
    most = allowance(budget, selects=selects)
    assert (1 - Fraction(1, 10**6)) * most < cost <= most
    # A reader of the file expects these sensitivities, and no smaller ones.
    assert Guarantee.from_dict(guarantee.to_dict()).releases == guarantee.releases
    for release in guarantee.releases:
        if (known := squared_norm_of(release.statistic)) is not None:
            moves = known * (
                replaced(release.statistic) if guarantee.adjacency[0] == "r" else 1
            )
            assert moves * (1 - 1e-9) <= release.sensitivity**2 <= 1.05 * moves
    # Stated costs are those of the stated noise and sensitivities.
    for release in guarantee.releases:
        if "noise_std" in release.parameters:
            squared = (
                release.times
                * (release.sensitivity / release.parameters["noise_std"]) ** 2
            )
            assert squared == pytest.approx(release.cost["mu"] ** 2, rel=1e-12)


@pytest.mark.parametrize(("kind", "budget"), SPENDING)
def test_all_releases_together_cost_the_budget_and_no_more(kind, budget):
    check_cost(kind, budget)


@pytest.mark.parametrize("steps", [1, 7, 40])
@each([kind for kind in FIRST if takes(kind.entry.load(), "steps")])
def test_and_so_do_any_number_of_steps(kind, steps):
    options = {**kind.recipe.options, "steps": steps}
    for budget in kind.budgets:
        guarantee = kind.make(budget, **options).fit(*kind.records(9)).guarantee_
        assert guarantee.stays_within_budget()
        cost = sum(Fraction(release.cost["mu"]) ** 2 for release in guarantee.releases)
        most = allowance(budget, selects=False)
        assert (1 - Fraction(1, 10**6)) * most < cost <= most
        assert (f", {steps} times" in str(guarantee)) == (steps > 1)


@each(FIRST)
def test_a_release_that_is_not_stated_is_noticed(kind, monkeypatch):
    whole = base.calibrated

    def silent(*arguments):
        (name, first), *others = whole(*arguments).items()
        return {name: replace(first, release=None), **dict(others)}

    monkeypatch.setattr(base, "calibrated", silent)
    with pytest.raises((AssertionError, ValueError)):
        check_cost(kind, kind.budgets[0])


def drawn_and_stated(kind):
    """Return the widths of all noise that a fit draws, and those that its guarantee states."""
    draws = []
    whole = SeededRandomness.rounded_gaussian

    def spy(self, noise_std, shape):
        draws.append(noise_std)
        return whole(self, noise_std, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SeededRandomness, "rounded_gaussian", spy)
        guarantee = kind.fit(*kind.records()).guarantee_
    stated = []
    for release in guarantee.releases:
        for name in ("noise_std", "off_diagonal_noise_std"):
            stated += (
                [release.parameters[name]] * release.times
                if name in release.parameters
                else []
            )
    return Counter(draws), Counter(stated)


# CoinPress and FriendlyCore state shares of their budgets: their noise depends on class
# sizes, public or noisy, step by step.
STATING = [
    kind
    for kind in KINDS
    if not kind.entry.pure
    and "coinpress" not in kind.variant
    and kind.variant != "of small classes"  # of which public rows are selected
    and kind.entry.name != "FriendlyCoreMeans"
]


def check_draws(kind):
    drawn, stated = drawn_and_stated(kind)
    assert drawn == stated
    assert sum(stated.values()) > 0


@each(STATING)
def test_every_draw_has_the_stated_width(kind):
    check_draws(kind)


def test_a_draw_of_another_width_is_noticed(monkeypatch):
    whole = RoundedGaussian.release

    def narrow(self, exact, source):
        return exact + source.rounded_gaussian(self.noise_std / 2, exact.shape)

    monkeypatch.setattr(RoundedGaussian, "release", narrow)
    with pytest.raises(AssertionError):
        check_draws(BY_NAME["LinearProbe add-remove"])
    monkeypatch.setattr(RoundedGaussian, "release", whole)
    check_draws(BY_NAME["LinearProbe add-remove"])


UNSPENDABLE = [
    (ZCDP(1e-29), "the budget is so small|mu must be from 1e-15 to 1e"),
    (GaussianDP(2e-15), "the budget is so small|mu must be from 1e-15 to 1e"),
    (ZCDP(1e16), "mu must be from 1e-15 to 1e"),
    (PureDP(1.0), "no pure-DP guarantee"),
]


@pytest.mark.parametrize(("budget", "words"), UNSPENDABLE)
@each([kind for kind in SHARED_CHARGED if not kind.entry.pure])
def test_budgets_that_cannot_be_spent_are_refused_before_anything_is_paid(
    kind, budget, words, tmp_path
):
    account = Ledger(
        tmp_path / "ledger.db", "wards", ZCDP(1e300), adjacency=kind.adjacency
    )
    with pytest.raises(BudgetError, match=words):
        kind.fit(*kind.records(), budget=budget, given={"ledger": account})
    assert account.releases() == []


@each()
def test_the_guarantee_says_the_relation_and_all_that_is_public(kind):
    for unknown_labels in ("error", "ignore"):
        guarantee = kind.fit(*kind.records(), unknown_labels=unknown_labels).guarantee_
        inputs = guarantee.public_inputs
        words = " ".join(str(guarantee).split())
        assert guarantee.adjacency == kind.adjacency
        assert guarantee.to_dict()["adjacency"] == kind.adjacency
        assert {
            Term(PublicInput.CLASSES),
            Term(PublicInput.ENCODER),
            Term(PublicInput.N_FEATURES),
            Term(PublicInput.PARAMETERS),
        } <= set(inputs)
        counted = Term(PublicInput.N_RECORDS) in inputs
        assert counted == (kind.adjacency == "replace-one")
        assert (Term(PublicInput.PUBLIC_ROWS) in inputs) == kind.recipe.public
        assert (
            "the examples or descriptions of the classes, which nobody may" in words
        ) == kind.recipe.examples
        assert all(text(public, guarantee.unit) in words for public in inputs)
        assert ("a changed label or record" in words) == (
            kind.adjacency == "add-remove"
        )
        # An error at an unknown label is one bit about the records.
        assert ("stopped at a label" in words) == (unknown_labels == "error")


@pytest.mark.parametrize("budget", [1.0, "rho=1"])
@each(SHARED)
def test_a_number_is_no_budget(kind, budget):
    with pytest.raises(ParameterError, match="means nothing without its notion"):
        kind.cls(budget, CLASSES).fit(*kind.records())


@each(SHARED_CHARGED)
def test_a_weak_budget_warns_and_a_strong_one_does_not(kind):
    X, y = kind.records()
    fit = lambda budget: kind.fit(X, y, budget=budget)  # noqa: E731
    for weak in (ApproxDP(3.0, 1e-6), GaussianDP(0.65), ZCDP(0.21)):
        with pytest.warns(WeakBudgetWarning, match="is a weak guarantee"):
            fit(weak)
    with pytest.warns(WeakBudgetWarning, match="too large for most data"):
        fit(ApproxDP(1.0, 1e-4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for budget in (ApproxDP(2.9, 9e-5), GaussianDP(0.64), ZCDP(0.2)):
            fit(budget)


def test_a_process_warns_of_a_weak_budget_once():
    """Also where code in between changes the filters, upon which Python forgets what it has shown."""
    kind = SHARED_CHARGED[0]
    X, y = kind.records()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for _ in range(2):
            kind.fit(X, y, budget=ApproxDP(4.0, 1e-6))
    assert [one.category for one in shown] == [WeakBudgetWarning]


@each(SHARED_CHARGED)
def test_a_budget_that_nobody_means_is_refused_before_it_is_charged(kind, tmp_path):
    X, y = kind.records()
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1e6))
    given = {"ledger": ledger}
    for epsilon, delta in ((20.1, 1e-6), (1.0, 1e-3), (1.0, 0.5)):
        budget = ApproxDP(epsilon, delta)
        with pytest.raises(ParameterError, match="set allow_weak=True") as caught:
            kind.fit(X, y, budget=budget, given=given)
        assert caught.value.parameter == ("epsilon" if epsilon > 20 else "delta")
    assert ledger.releases() == []
    for budget in (ApproxDP(20.0, 9.9e-4), ApproxDP(20.1, 1e-3, allow_weak=True)):
        with pytest.warns(WeakBudgetWarning):
            kind.fit(X, y, budget=budget)


@each(SHARED)
def test_classes_are_never_read_from_the_labels(kind):
    with pytest.raises(
        ParameterError,
        match=r"classes must be the public list of classes, never of labels",
    ):
        kind.make().set_params(classes=None).fit(*kind.records())
