import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from dppl.io import load_sample
from dppl.lab import NonPrivateLDA, NonPrivateLogisticRegression, NonPrivateNearestMean

CEILINGS = [NonPrivateNearestMean(), NonPrivateLDA(), NonPrivateLogisticRegression()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("model", CEILINGS, ids=repr)
def test_scikit_learn_finds_a_well_behaved_classifier(model):
    from sklearn.utils.estimator_checks import (
        check_estimator,
    )  # here, because it takes seconds to import

    check_estimator(model, on_skip=None)


@pytest.mark.parametrize("model", CEILINGS, ids=repr)
def test_they_say_that_they_are_not_private_and_cannot_be_saved(model):
    sample = load_sample()
    model.fit(sample.X, sample.y)
    assert model.score(sample.X_test, sample.y_test) > 0.7
    assert "NonPrivate" in repr(model)
    assert "NOT PRIVATE" in type(model).__doc__
    assert "NOT PRIVATE" in str(model.guarantee_)
    assert not hasattr(model, "save")


def test_the_nearest_mean_is_the_one_by_cosine_of_unit_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * rng.uniform(0.1, 10, (60, 1))
    y = rng.integers(0, 4, 60)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([unit[y == c].mean(axis=0) for c in range(4)])
    expected = cosine_similarity(X, means).argmax(axis=1)
    assert (NonPrivateNearestMean().fit(X, y).predict(X) == expected).all()
    assert (
        NonPrivateNearestMean().fit(X, y).predict(X)
        != NonPrivateNearestMean().fit(X, y[::-1]).predict(X)
    ).any()


@pytest.mark.parametrize("model", CEILINGS, ids=repr)
def test_half_precision_rows_are_added_in_full_precision(model):
    """A running float16 sum of a thousand rows stops growing."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 6000)
    X = (
        rng.normal(size=(3, 400))[y] / 4 + np.abs(rng.normal(size=(6000, 400)))
    ).astype(np.float16)
    train = slice(0, 5000)
    test = slice(5000, None)
    assert model.fit(X[train], y[train]).score(X[test], y[test]) > 0.9
