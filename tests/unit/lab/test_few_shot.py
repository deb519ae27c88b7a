"""Few-shot learners: their scores by the published formulas, and what episodes of other classes teach them."""

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from dppl.errors import InputError
from dppl.lab import (
    NonPrivateMatchingNet,
    NonPrivateNearestMean,
    NonPrivateProtoNet,
    NonPrivateRelationNet,
)

KINDS = (NonPrivateMatchingNet, NonPrivateProtoNet, NonPrivateRelationNet)
WIDTH = 12
SHOTS = 4


def drawn(n_classes, each, seed, loud=0.0):
    """Return rows of classes that differ in half of the features; the others hold noise, as loud as said."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, WIDTH))
    centres[:, WIDTH // 2 :] = 0
    y = np.repeat(np.arange(n_classes), each)
    X = centres[y] + 0.4 * rng.normal(size=(len(y), WIDTH))
    X[:, WIDTH // 2 :] += loud * rng.normal(size=(len(y), WIDTH // 2))
    return X, y


@pytest.fixture
def base(torch):
    return drawn(20, 30, seed=1, loud=2)


def task(seed=0, loud=2.0):
    X, y = drawn(5, SHOTS + 40, seed, loud)
    known = np.tile(np.arange(SHOTS + 40) < SHOTS, 5)
    return X[known], y[known], X[~known], y[~known]


def test_untrained_prototypes_are_the_nearest_centroids(base):
    X, y, X_test, _ = task()
    found = NonPrivateProtoNet(episodes=0).fit(X, y, base=base).predict(X_test)
    expected = NearestCentroid().fit(normalize(X), y).predict(normalize(X_test))
    assert (found == expected).all()
    # Cosines to means would be another rule.
    assert (NonPrivateNearestMean().fit(X, y).predict(X_test) != found).any()


def test_untrained_attention_is_a_softmax_of_cosines_over_all_records(base):
    X, y, X_test, _ = task()
    cosines = normalize(X_test) @ normalize(X).T
    attention = np.exp(100 * cosines)
    expected = (attention @ np.eye(5)[y]).argmax(axis=1)
    found = NonPrivateMatchingNet(episodes=0).fit(X, y, base=base).predict(X_test)
    assert (found == expected).all()


def test_a_relation_is_a_score_of_a_row_beside_the_mean_of_a_class(base):
    X, y, X_test, _ = task()
    model = NonPrivateRelationNet(episodes=3).fit(X, y, base=base)
    layer, first, bias, last = (
        one.detach().numpy().astype(float) for one in model.model_._weights
    )
    means = np.eye(5)[y].T @ normalize(X) @ layer / SHOTS
    scores = np.empty((len(X_test), 5))
    for code in range(5):
        pairs = np.hstack(
            [np.tile(means[code], (len(X_test), 1)), normalize(X_test) @ layer]
        )
        scores[:, code] = (np.maximum(pairs @ first + bias, 0) @ last)[:, 0]
    assert (model.predict(X_test) == scores.argmax(axis=1)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_of_other_classes_teach_what_to_compare(kind, base):
    """Half of the features are noise; which half, only other classes can say. Seeded: no false alarm."""
    before, after, taught_noise = [], [], []
    rng = np.random.default_rng(5)
    shuffled = base[0], rng.permutation(base[1])  # a control: labels without meaning
    for seed in range(3):
        X, y, X_test, y_test = task(seed)
        for scores, episodes, given in (
            (before, 0, base),
            (after, 400, base),
            (taught_noise, 400, shuffled),
        ):
            model = kind(episodes=episodes, learning_rate=5e-3).fit(X, y, base=given)
            scores.append(np.mean(model.predict(X_test) == y_test))
    assert np.mean(after) > np.mean(before) + 0.1
    assert np.mean(taught_noise) < np.mean(after) - 0.1


def test_too_few_public_classes_are_said(base):
    X, y, *_ = task()
    few = base[1] < 4
    with pytest.raises(InputError, match="5 public classes of more than 4 records"):
        NonPrivateProtoNet().fit(X, y, base=(base[0][few], base[1][few]))
