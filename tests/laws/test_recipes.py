"""No estimator is left out: each has a recipe, in every relation and with every notion of budget that it offers."""

import pytest
from hypothesis import given, settings

import dppl
from dppl import PureDP, lab
from dppl.errors import BudgetError
from dppl.kernel import mechanisms
from dppl.kernel.mechanisms import (
    CoinPress,
    ExponentialMechanism,
    RoundedGaussian,
    SymmetricRoundedGaussian,
)
from dppl.methods.registry import ENTRIES, Entry
from laws.recipes import BY_NAME, CHARGED, DIM, KINDS, RECIPES, cases, kinds_of


def check_has_recipes(entry):
    kinds = list(kinds_of(entry))
    assert kinds, (
        f"{entry.name} has no recipe in tests/laws/recipes.py, so no law of privacy is tested for it; add one."
    )
    missing = set(entry.adjacencies) - {kind.adjacency for kind in kinds}
    assert not missing, (
        f"{entry.name} has no recipe under {missing} in tests/laws/recipes.py; add one."
    )


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_estimator_has_recipes_in_every_relation(entry):
    check_has_recipes(entry)


def test_an_estimator_without_a_recipe_is_named():
    with pytest.raises(
        AssertionError, match="Unheard has no recipe in tests/laws/recipes"
    ):
        check_has_recipes(Entry(name="Unheard", module="dppl.methods"))
    coinpress = RECIPES["MeanPrototypes"]["coinpress"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "MeanPrototypes", {"coinpress": coinpress})
        (mean,) = (entry for entry in ENTRIES if entry.name == "MeanPrototypes")
        with pytest.raises(AssertionError, match=r"no recipe under .*add-remove"):
            check_has_recipes(mean)


def test_recipes_are_of_estimators_that_there_are():
    assert set(RECIPES) == {entry.name for entry in ENTRIES}
    assert len(BY_NAME) == len(KINDS) > len(CHARGED)


def test_every_classifier_that_is_exported_is_in_the_registry():
    exported = {name for name in dppl.__all__ if hasattr(getattr(dppl, name), "fit")}
    # A base, and two that fit estimators of the registry; tests of their own hold these
    # to the laws.
    others = {"Classifier", "PrivateSearch", "PrivateClassifier"}
    assert exported - others == {entry.name for entry in ENTRIES} & exported
    fitted = {name for name in lab.__all__ if hasattr(getattr(lab, name), "fit")}
    # Ceilings promise nothing, and networks are held to the laws by tests of their own.
    assert {name for name in fitted if not name.startswith("NonPrivate")} - {
        "ControlFinetuner",
        "FilmEnsemble",
        "LoraEnsemble",
        "LoraFinetuner",
    } <= set(RECIPES)


def test_every_mechanism_is_watched():
    """Replays see what these read and answer; a mechanism of another kind would go unseen."""
    watched = {RoundedGaussian, SymmetricRoundedGaussian, ExponentialMechanism}
    made_of_them = {
        CoinPress
    }  # and SampledGaussian, whose noise is a rounded Gaussian's
    kinds = {
        getattr(mechanisms, name)
        for name in mechanisms.__all__
        if isinstance(getattr(mechanisms, name), type)
    }
    assert {
        kind for kind in kinds if hasattr(kind, "release") or hasattr(kind, "select")
    } == watched | made_of_them


@pytest.mark.parametrize("entry", ENTRIES)
def test_pure_budgets_are_spent_where_the_registry_says_so_and_refused_with_a_way_out_elsewhere(
    entry,
):
    for kind in kinds_of(entry):
        fit = lambda kind=kind: kind.fit(*kind.records(), budget=PureDP(1.0))  # noqa: E731
        if entry.pure:
            assert fit().guarantee_.stays_within_budget()
        else:
            words = (
                "use ApproxDP|another notion"
                if kind.recipe.sampled
                else "no pure-DP guarantee.*PublicPrototypes"
            )
            with pytest.raises(BudgetError, match=words):
                fit()


SEEN = {
    "huge": lambda X, y: (
        (abs(X) >= 1e300).all(axis=1).any() and (abs(X) < float("inf")).all()
    ),
    "tiny": lambda X, y: (X.any(axis=1) & (abs(X) < 1e-300).all(axis=1)).any(),
    "NaN": lambda X, y: (X != X).any(),
    "infinite": lambda X, y: (abs(X) == float("inf")).any(),
    "zero": lambda X, y: (~X.any(axis=1)).any(),
    "duplicate": lambda X, y: (
        len({row.tobytes() for row in X if row.any()}) < sum(X.any(axis=1))
    ),
    "an empty class among others": lambda X, y: len(set(y)) == 2,
    "one class only": lambda X, y: len(set(y)) == 1 and len(y) > 2,
    "no records": lambda X, y: not y,
}


@pytest.mark.slow
def test_neighbours_hold_every_kind_of_record():
    seen = set()

    @given(cases(DIM))
    @settings(max_examples=150, derandomize=True, database=None)
    def look(case):
        seen.update(kind for kind, holds in SEEN.items() if holds(*case[:2]))

    look()
    assert seen == set(SEEN)
