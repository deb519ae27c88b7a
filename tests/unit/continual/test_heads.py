"""Ensembles, the naive head and the head of all data: what they compute, and what is their own in what they promise."""

import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, GaussianDP, LatticeOptions, Ledger, SoftmaxPrototypes
from dppl.continual import ContinualEnsemble
from dppl.errors import ParameterError
from dppl.kernel.privacy.budgets import rounded_up, split
from dppl.kernel.privacy.terms import Unit
from dppl.lab import FullDataContinual, NaiveContinual
from dppl.methods import LinearProbe
from dppl.methods.fit_plan import seed_of

BUDGET = GaussianDP(1.0)
N_CLASSES = 6
DIM = 8
RNG = np.random.default_rng(5)
CENTERS = 2 * RNG.normal(size=(N_CLASSES, DIM))
Y = RNG.integers(N_CLASSES, size=900)
X = CENTERS[Y] + RNG.normal(size=(len(Y), DIM))
# Two classes in each of three tasks.
TASKS = [np.flatnonzero(np.isin(Y, [first, first + 1])) for first in (0, 2, 4)]
QUIET = GaussianDP(1e5)


def learn(estimator, tasks=TASKS, **options):
    model = estimator(
        options.pop("budget", BUDGET),
        range(N_CLASSES),
        **({"random_state": 0} | options),
    )
    for number, task in enumerate(tasks):
        given = (
            np.concatenate(tasks[: number + 1])
            if estimator.takes_earlier_records
            else task
        )
        model.partial_fit(X[given], Y[given])
    return model


def seeds(n_tasks):
    return [0, *(seed_of(0, number) for number in range(1, n_tasks))]


# Ensembles


HEADS = {
    "probe": (
        {"head_options": {"steps": 7, "clip": 0.5}},
        lambda **more: LinearProbe(steps=7, clip=0.5, **more),
    ),
    "softmax": ({"head": "softmax"}, SoftmaxPrototypes),
}


@pytest.mark.parametrize("head", HEADS)
def test_heads_are_those_of_their_method_and_the_largest_logit_wins(head):
    options, method = HEADS[head]
    model = learn(ContinualEnsemble, scores="largest", **options)
    scores = []
    for number, (task, seed) in enumerate(zip(TASKS, seeds(3), strict=True)):
        alone = method(budget=BUDGET, classes=range(N_CLASSES), random_state=seed).fit(
            X[task], Y[task]
        )
        assert (model.coef_[:, number] == alone.coef_).all()
        assert (
            model.centers_ is None
            or (model.centers_[:, number] == alone.lattice_.center).all()
        )
        assert model.guarantee_.mu == alone.guarantee_.mu
        scores.append(alone.decision_function(X))
    assert np.allclose(
        model.decision_function(X), np.max(scores, axis=0), rtol=1e-4, atol=1e-5
    )


def test_normalised_scores_are_those_of_the_formula_and_know_no_scale():
    model = learn(ContinualEnsemble)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    total = 0
    for number in range(3):
        weights = model.coef_[:, number] - model.coef_[:, number].mean(axis=0)
        cosines = unit @ (weights / np.linalg.norm(weights, axis=1, keepdims=True)).T
        total = total + np.exp(np.sqrt(DIM) * cosines)
    assert np.allclose(model.decision_function(X), np.log(total), atol=1e-5)
    published = learn(ContinualEnsemble, scores="largest")
    assert (published.coef_ == model.coef_).all()
    for scores in (model, published):
        before = scores.decision_function(X)
        scores.coef_[:, 1] *= 50
        assert np.allclose(scores.decision_function(X), before, atol=1e-5) == (
            scores is model
        )


def test_earlier_heads_stay_as_they_are():
    whole = learn(ContinualEnsemble).coef_
    assert whole.shape == (N_CLASSES, 3, DIM)
    assert (whole[:, :2] == learn(ContinualEnsemble, TASKS[:2]).coef_).all()


@pytest.mark.parametrize(
    "options", [{}, {"scores": "largest"}], ids=["normalised", "largest"]
)
def test_an_ensemble_remembers_and_a_naive_head_forgets(options):
    first = TASKS[0]
    ensemble = learn(ContinualEnsemble, budget=QUIET, **options)
    assert ensemble.score(X, Y) > 0.7
    assert ensemble.score(X[first], Y[first]) > 0.7
    assert (
        learn(NaiveContinual, TASKS[:1], budget=QUIET).score(X[first], Y[first]) > 0.9
    )
    assert learn(NaiveContinual, budget=QUIET).score(X[first], Y[first]) < 0.5
    assert learn(FullDataContinual, budget=QUIET).score(X[first], Y[first]) > 0.8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head": "tree"}, "'probe', 'softmax'"),
        ({"scores": "mean"}, "'normalised', 'largest'"),
        ({"head_options": {"sampling_rate": 0.5}}, "some of steps, learning_rate"),
        ({"head_options": [("steps", 3)]}, "a dictionary"),
        ({"head": "softmax", "head_options": {"steps": 3}}, "must be None"),
        ({"head_options": {"steps": 0}}, "steps must be"),
        ({"head": "softmax", "lattice": LatticeOptions(pool=2)}, "for head='probe'"),
    ],
)
def test_options_that_a_head_does_not_take_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        learn(ContinualEnsemble, **options)


# One head


def test_a_naive_head_goes_on_from_the_earlier_weights():
    nothing = np.zeros(0, int)
    one, kept = (
        learn(NaiveContinual, [TASKS[0], *more], budget=QUIET)
        for more in ([], [nothing, nothing])
    )
    assert np.allclose(kept.coef_, one.coef_, atol=0.05 * np.abs(one.coef_).max())
    alone = LinearProbe(BUDGET, range(N_CLASSES), random_state=0).fit(
        X[TASKS[0]], Y[TASKS[0]]
    )
    assert (learn(NaiveContinual, TASKS[:1]).coef_ == alone.coef_).all()


def test_the_head_of_all_data_is_a_probe_of_all_records_so_far():
    model = learn(FullDataContinual)
    so_far = np.concatenate(TASKS)
    alone = LinearProbe(BUDGET, range(N_CLASSES), random_state=seeds(3)[2]).fit(
        X[so_far], Y[so_far]
    )
    assert (model.coef_ == alone.coef_).all()
    assert (model.predict(X) == alone.predict(X)).all()


@pytest.mark.parametrize("budget", [BUDGET, ZCDP(0.5), ApproxDP(2.0, 1e-6)], ids=str)
def test_all_data_costs_the_root_of_the_number_of_tasks_and_says_so(budget, tmp_path):
    account = Ledger(tmp_path / "ledger.db", "records", GaussianDP(9.0))
    model = FullDataContinual(budget, range(N_CLASSES), random_state=0)
    one = model.plan(DIM).guarantee.mu
    for number in range(1, 5):
        guarantee = model.partial_fit(X, Y, ledger=account).guarantee_
        assert guarantee.mu == pytest.approx(np.sqrt(number) * one, rel=1e-12)
        assert account.spent()["mu"] == pytest.approx(guarantee.mu, rel=1e-12)
    assert type(guarantee.budget) is type(budget)
    assert guarantee.budget.gaussian_allowance().mu == pytest.approx(
        guarantee.mu, rel=1e-6
    )
    assert f"(mu = {rounded_up(guarantee.mu, 4)}). " in str(guarantee)
    said = " ".join(str(guarantee).split())
    assert "160 times" in said
    assert (
        "one record is added to or removed from the records of one task, which all later tasks are given again"
        in said
    )
    assert guarantee.unit is Unit.RECORD
    with pytest.raises(ParameterError, match="shares no record"):
        model.partial_fit(X, Y, ledger=account, partition="may")


def test_a_share_of_the_total_is_what_each_model_may_spend():
    total = GaussianDP(1.0)
    each = split(total, [1] * 3)[0]
    mu = learn(FullDataContinual, budget=each).guarantee_.mu
    assert 1 - 1e-9 < mu <= total.mu
