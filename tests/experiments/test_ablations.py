"""Ablations of the discriminant: each changes the model, none changes the promise."""

import numpy as np
import pytest

from dppl import ZCDP, DiscriminantPrototypes
from dppl.data import load_sample, long_tailed
from dppl.errors import ParameterError
from dppl.experiments.ablations import VARIANTS, DiscriminantAblation
from dppl.experiments.methods import METHODS, label
from dppl.privacy.composition import covers

BUDGET = ZCDP(0.5)


@pytest.fixture(scope="module")
def task():
    sample = load_sample()
    rows = long_tailed(sample.y, 20, 0)
    return (sample.X[rows], sample.y[rows]), {"X_public": sample.X_public}, sample.classes


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_another_rule_at_the_same_budget(variant, task):
    data, public, classes = task
    whole = DiscriminantPrototypes(BUDGET, classes, random_state=1).fit(*data, **public)
    part = DiscriminantAblation(BUDGET, classes, variant=variant, random_state=1).fit(*data, **public)
    assert np.abs(part.coef_ - whole.coef_).max() > 1e-6
    assert covers(BUDGET, part.guarantee_.costs())
    gradients = sum("gradient" in release.statistic for release in part.guarantee_.releases)
    assert gradients == {"no gradient steps": 0, "ten gradient steps": 10}.get(variant, 5)


def test_the_variant_must_be_known():
    with pytest.raises(ParameterError, match=r"variant must be one of 'no public rows', .*; got 'none'"):
        DiscriminantAblation(BUDGET, [0, 1], variant="none").fit(np.eye(2), [0, 1])


def test_the_variant_names_the_line():
    assert METHODS["discriminant-ablation"].load() is DiscriminantAblation
    assert label("discriminant-ablation", {"variant": "flat prior"}) == "Discriminant prototypes, flat prior"
