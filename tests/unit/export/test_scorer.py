"""Every model as plain arithmetic; these tests need no package of an extra."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import dppl
from dppl.continual import ContinualEnsemble
from dppl.errors import InputError
from dppl.export import scorer as module
from dppl.export.scorer import NUMPY, fitted, scorer_of, statement
from dppl.kernel.lattice.lattice import rotate
from inside import scores_of, sharpness_of
from laws.recipes import KINDS, each
from unit.export.readers import ROUNDING


def check(model, rows):
    """Hold the arithmetic of a model to its scores."""
    scorer = scorer_of(model)
    longest = max(np.linalg.norm(head.weights, axis=1).max() for head in scorer.heads)
    with np.errstate(invalid="ignore"):  # of rows without a direction
        scores = scorer.scores(rows, NUMPY)
    np.testing.assert_allclose(
        scores,
        scores_of(model, rows, "empty"),
        rtol=ROUNDING,
        atol=ROUNDING * longest,
        equal_nan=True,
    )
    assert scorer.sharpness == sharpness_of(model)
    assert scorer.classes.tolist() == model.classes_.tolist()
    return scorer


def rows(dim):
    """Return random rows, and some without a direction."""
    made = np.random.default_rng(5).normal(size=(60, dim))
    made[7], made[8, 0], made[9, 1] = 0.0, np.nan, np.inf
    return made


@pytest.mark.slow
@each([kind for kind in KINDS if not kind.cls.multilabel])
def test_scores_are_those_of_the_model(kind):
    check(kind.fit(*kind.records(40)), rows(kind.dim))


@pytest.mark.parametrize("scores", ["normalised", "largest"])
@pytest.mark.parametrize("head", ["probe", "softmax"])
@pytest.mark.parametrize("rotation", [None, 3])
def test_streams_of_several_tasks_have_several_heads(scores, head, rotation):
    rng = np.random.default_rng(2)
    options = (
        {"lattice": dppl.LatticeOptions(rotation=rotation)} if head == "probe" else {}
    )
    model = ContinualEnsemble(
        dppl.ZCDP(10.0),
        ["a", "b", "c", "d"],
        head=head,
        scores=scores,
        random_state=0,
        **options,
    )
    for names in (["a", "b"], ["b", "c"]):  # and "d" in no task
        model.partial_fit(
            rng.normal(size=(30, 6)), np.resize(names, 30), task_classes=names
        )
    scorer = check(model, rows(6))
    assert len(scorer.heads) == 2
    assert scorer.combine == ("logaddexp" if scores == "normalised" else "maximum")
    assert (scores_of(model, rows(6), "empty")[0] < -1e200).tolist() == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("fault", ["center", "turn", "squared"])
def test_another_arithmetic_is_noticed(fault, monkeypatch):
    """What is compared on every export: each part of the map, in a model that has them all."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6))
    model = dppl.MeanPrototypes(
        dppl.ZCDP(10.0),
        ["a", "b"],
        lattice=dppl.LatticeOptions(pool=2, rotation=3, center=np.full(6, 0.1)),
    )
    model.fit(X, np.resize(["a", "b"], 40))
    scorer_of(model)
    if fault == "turn":
        monkeypatch.setattr(module, "rotate", lambda eye, seed: rotate(eye, seed + 2))
    elif fault == "squared":
        monkeypatch.setattr(
            type(model),
            "_class_scores",
            lambda self, features: np.square(features[:, :2]),
        )
    else:
        made = module.Scorer
        monkeypatch.setattr(
            module, "Scorer", lambda *values: replace(made(*values), center=None)
        )
    with pytest.raises(InputError, match="no export can write"):
        scorer_of(model)


def test_classifiers_of_items_and_searches_are_exported_by_what_they_hold(letters):
    texts = ["aa bb", "zz yy", "ab", "zy"] * 5
    y = ["low", "high"] * 10
    whole = dppl.PrivateClassifier(
        letters, dppl.ZCDP(100.0), ["high", "low"], random_state=0
    ).fit(texts, y)
    assert fitted(whole) is whole.model_
    check(fitted(whole), rows(27))


def test_what_is_no_classifier_of_embeddings_is_refused():
    with pytest.raises(InputError, match="a Ridge is not one"):
        fitted(type("Ridge", (), {})())
    with pytest.raises(NotFittedError):
        fitted(dppl.MeanPrototypes(dppl.ZCDP(1.0), ["a"]))


@pytest.mark.parametrize("seed", [None, 4])
def test_the_statement_holds_the_guarantee(seed):
    model = dppl.MeanPrototypes(
        dppl.ApproxDP(1.0, 1e-6), ["a", "b"], random_state=seed
    ).fit(np.eye(2), ["a", "b"])
    said = statement(model)
    assert said["statement"] == model.guarantee_.to_dict()
    assert said["guarantee"] == model.guarantee_.summary()
    assert (
        said["secure_noise"]
        == (seed is None)
        == ("NOT FOR RELEASE" not in said["guarantee"])
    )
