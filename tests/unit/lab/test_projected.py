"""Projections before prototypes: they learn, are private, and the published form is not."""

from dataclasses import field

import numpy as np
import pytest
from scipy.special import softmax

from dppl import GaussianDP, MeanPrototypes, PublicData, PublicPrototypes
from dppl.audit import audit, worst_case
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.lab import ProjectedPrototypes
from dppl.methods.parameters import parameters
from inside import paid_for
from laws.recipes import BY_NAME, DIM
from laws.replay import replay

NO_NOISE = GaussianDP(1e4)


@parameters
class Still(ProjectedPrototypes):
    """Takes steps of next to no length, so that a canary's gradient is that of the first projection in all of them."""

    learning_rate: float = field(default=1e-9, init=False)


def nuisance(n=600, seed=0):
    """Classes lie along few coordinates, and others that are much longer say nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    signal = np.eye(3)[y] + 0.4 * rng.normal(size=(n, 3))
    return np.concatenate([signal, 1.5 * rng.normal(size=(n, 9))], axis=1), y


def projected(budget=NO_NOISE, **options):
    return ProjectedPrototypes(
        budget, [0, 1, 2], **({"random_state": 0, "steps": 30} | options)
    )


def test_without_noise_a_projection_leaves_out_what_says_nothing():
    (X, y), (X_test, y_test) = nuisance(), nuisance(2000, seed=1)
    without = (
        MeanPrototypes(NO_NOISE, [0, 1, 2], random_state=0)
        .fit(X, y)
        .score(X_test, y_test)
    )
    model = projected().fit(X, y)
    assert model.score(X_test, y_test) > without + 0.02
    weight = np.abs(model.projection_.astype(float)).sum(axis=0)
    assert weight[:3].mean() > 1.3 * weight[3:].mean()
    # A control: steps of next to no length learn nothing.
    idle = Still(NO_NOISE, [0, 1, 2], random_state=0, steps=30).fit(X, y)
    assert abs(idle.score(X_test, y_test) - without) < 0.01


def test_public_rows_are_projected_too():
    X, y = nuisance()
    X_public, _ = nuisance(200, seed=2)
    model = (
        projected(head="public", n_components=6)
        .set_params(public=PublicData(X_public))
        .fit(X, y)
    )
    lattice = Lattice(6)
    steps = model.projection_.astype(np.float64)
    rows = lattice.transform(model.lattice_.transform(X_public) @ steps.T)
    assert (model.prototypes_ == rows[model.public_indices_]).all()
    # Without noise those of the heads alone.
    bounds = (
        projected(head="public", n_components=6)
        .set_params(public=PublicData(X_public))
        .plan(12)
        .setting.prepared[1]
        .prepared
    )
    head = PublicPrototypes(NO_NOISE, [0, 1, 2], clip=bounds, random_state=0)
    head.set_params(public=PublicData(rows)).fit(
        lattice.transform(model.lattice_.transform(X) @ steps.T), y
    )
    assert (head.public_indices_ == model.public_indices_).all()
    with pytest.raises(InputError, match="select among public rows"):
        projected(head="public").fit(X, y)


def test_mean_prototypes_are_those_of_projected_rows():
    X, y = nuisance()
    model = projected(n_components=6).fit(X, y)
    rows = model.lattice_.transform(X).astype(np.float64) @ model.projection_.T.astype(
        np.float64
    )
    exact = [
        Lattice(6).transform(rows[y == label]).astype(int).sum(axis=0)
        for label in range(3)
    ]
    assert (np.rint(model.prototypes_ * Lattice(6).scale) == exact).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head": "softmax"}, "head must be one of"),
        ({"share": 1.0}, "share must"),
        ({"n_components": 13}, "n_components must be at most 12, the dimensions"),
        ({"n_components": 0}, "n_components must"),
    ],
)
def test_parameters_that_break_a_rule_are_named(options, words):
    with pytest.raises(ParameterError, match=words):
        ProjectedPrototypes(NO_NOISE, [0, 1, 2], **options).plan(12)


def test_shares_of_the_budget_are_those_asked_for():
    releases = projected(GaussianDP(1.0), share=0.2).plan(12).guarantee.releases
    assert [release.cost["mu"] ** 2 for release in releases] == pytest.approx(
        (0.05, 0.15, 0.8), rel=1e-9
    )


# The published form: a support record moves the gradients of all queries.


def published_sum(queries, prototypes, clip=1e-3):
    """Return the sum of the clipped gradients of queries of the first class, at the identity, in clipping norms.

    The logit of a class is -|W(x - p)|^2, whose gradient at W = I is -2(x - p)(x -
    p)^T.
    """
    total = 0
    for x in queries:
        away = x - prototypes
        residuals = np.eye(len(prototypes))[0] - softmax(-np.square(away).sum(axis=1))
        gradient = -2 * np.einsum("c,ci,cj->ij", residuals, away, away)
        total = total + gradient * min(1, clip / np.linalg.norm(gradient)) / clip
    return total


def test_clipping_each_query_does_not_bound_a_support_record():
    """The counterexample: the only support of a class moves the sum by far more than 2C, the more with more queries."""
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(40, DIM)) + 2 * np.eye(DIM)[0]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    other, support = np.eye(DIM)[:2]
    # Without its support a class has no prototype, so its queries count for nothing.
    few, many = (
        np.linalg.norm(published_sum(rows[:n], np.stack([support, other])))
        for n in (10, 40)
    )
    assert few > 4
    assert many > 3 * few


def test_the_replay_notices_prototypes_that_are_not_released(monkeypatch):
    """Training record by record towards exact class sums couples all gradients to each record."""
    from dppl.kernel.mechanisms import RoundedGaussian

    kind = BY_NAME["ProjectedPrototypes add-remove"]
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(15, DIM)) + 2 * np.eye(DIM)[0]
    case = rows[:13], ["a"] * 12 + ["b"], rows[14], "a"
    replay(kind, case)
    whole = ProjectedPrototypes._trained

    def exact_first(self, measure, setting):
        with pytest.MonkeyPatch.context() as patch:
            release = RoundedGaussian.release
            first = paid_for(measure)["first"].mechanism

            def secret(one, exact, source):
                return exact if one is first else release(one, exact, source)

            patch.setattr(RoundedGaussian, "release", secret)
            return whole(self, measure, setting)

    monkeypatch.setattr(ProjectedPrototypes, "_trained", exact_first)
    with pytest.raises(AssertionError):
        replay(kind, case)


# Audits. A true claim is refuted with probability 1e-6 at most.


@pytest.mark.slow
def test_an_audit_sees_a_record_and_does_not_refute_it():
    estimator = Still(GaussianDP(2.0), ["a", "b"], steps=2)
    result = audit(estimator, *worst_case(estimator), runs=120, confidence=1 - 1e-6)
    assert not result.violation
    inside, outside = result.samples
    # As in tests/system/audit/test_heard.py: 1.9 standard deviations lie between the
    # two sides.
    assert np.mean(inside) - np.mean(outside) > 0.65 * np.std(outside)
