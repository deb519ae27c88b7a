"""The choice between public rows and means: by public numbers alone, and each then spends the whole budget."""

import numpy as np
import pytest

from dppl import (
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    PureDP,
)
from dppl.errors import BudgetError, ParameterError
from dppl.lab import AdaptivePrototypes
from dppl.methods.model_file import load

CLASSES = ["a", "b"]
DIM = 16
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, DIM)) + 3 * np.eye(DIM)[np.arange(40) % 2]
Y = np.array(CLASSES)[np.arange(40) % 2]
PUBLIC = PublicData(RNG.normal(size=(30, DIM)))


def make(budget, **options):
    given = {"public": PUBLIC, "random_state": 3} | options
    return AdaptivePrototypes(budget, CLASSES, **given)


@pytest.mark.parametrize(
    ("mu", "size", "kind"),
    [
        # √16/mu is the length of noise, and 0.15 of it what a class must have.
        (0.5, 1.21, MeanPrototypes),
        (0.5, 1.19, PublicPrototypes),
        (2.0, 0.31, MeanPrototypes),
        (0.1, 5.9, PublicPrototypes),
    ],
)
def test_one_of_both_is_taken_by_budget_and_class_size_and_fitted_as_it_is(
    mu, size, kind, tmp_path
):
    model = make(GaussianDP(mu), class_size=size).fit(X, Y)
    plain = kind(GaussianDP(mu), CLASSES, public=PUBLIC, random_state=3).fit(X, Y)
    assert np.array_equal(model.prototypes_, plain.prototypes_)
    assert model.guarantee_.releases == plain.guarantee_.releases
    assert np.array_equal(model.predict(X), plain.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X))
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict(X), plain.predict(X))
    assert hasattr(model, "public_indices_") == (kind is PublicPrototypes)


def test_the_choice_does_not_depend_on_the_records():
    budget = ApproxDP(1.0, 1e-6)
    plans = make(budget, class_size=9.0).plan(DIM).guarantee.releases
    for rows in (X, X[:2]):
        model = make(budget, class_size=9.0).fit(rows, Y[: len(rows)])
        assert model.guarantee_.releases == plans


def test_a_guess_of_the_class_size_is_required_and_noise_too():
    with pytest.raises(ParameterError, match="class_size is required"):
        make(GaussianDP(1.0)).plan(DIM)
    with pytest.raises(BudgetError, match="no pure-DP guarantee"):
        make(PureDP(1.0), class_size=9.0).plan(DIM)
