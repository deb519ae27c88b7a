"""Projections before prototypes: they learn, both forms are private, and the published one is not."""

from dataclasses import replace

import numpy as np
import pytest

from dppl import GaussianDP, MeanPrototypes, PublicData, PublicPrototypes
from dppl.audit import Canary, Records, audit, worst_case
from dppl.audit.canaries import _likelihood
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.lab import ProjectedPrototypes
from dppl.lab.queries import EPISODE_STEPS, EpisodeGradients, Episodes, IntegerProjection, _keys, _mixed
from laws.recipes import BY_NAME, CLASSES, DIM
from laws.replay import replay

FORMS = ("released-first", "episodes")
NO_NOISE = GaussianDP(1e4)


def nuisance(n=600, seed=0):
    """Classes lie along few coordinates, and others that are much longer say nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    signal = np.eye(3)[y] + 0.4 * rng.normal(size=(n, 3))
    return np.concatenate([signal, 1.5 * rng.normal(size=(n, 9))], axis=1), y


def of_form(form, budget=NO_NOISE, **options):
    return ProjectedPrototypes(
        budget, [0, 1, 2], form=form, **({"n_episodes": 4, "random_state": 0, "steps": 30} | options)
    )


@pytest.mark.parametrize("form", FORMS)
def test_without_noise_a_projection_leaves_out_what_says_nothing(form):
    (X, y), (X_test, y_test) = nuisance(), nuisance(2000, seed=1)
    without = MeanPrototypes(NO_NOISE, [0, 1, 2], random_state=0).fit(X, y).score(X_test, y_test)
    model = of_form(form).fit(X, y)
    assert model.score(X_test, y_test) > without + 0.02
    weight = np.abs(model.projection_.astype(float)).sum(axis=0)
    assert weight[:3].mean() > 1.3 * weight[3:].mean()
    # A control: steps of next to no length learn nothing.
    idle = of_form(form, learning_rate=1e-9).fit(X, y)
    assert abs(idle.score(X_test, y_test) - without) < 0.01


@pytest.mark.parametrize("form", FORMS)
def test_public_rows_are_projected_too(form):
    X, y = nuisance()
    X_public, _ = nuisance(200, seed=2)
    model = of_form(form, head="public", n_components=6).set_params(public=PublicData(X_public)).fit(X, y)
    lattice = Lattice(6)
    steps = model.projection_.astype(np.float64)
    projected = lattice.transform(model.lattice_.transform(X_public) @ steps.T)
    assert (model.prototypes_ == projected[model.public_indices_]).all()
    # Without noise those of the heads alone.
    bounds = (
        of_form(form, head="public", n_components=6)
        .set_params(public=PublicData(X_public))
        .plan(12)
        .setting.prepared.setting.prepared
    )
    head = PublicPrototypes(NO_NOISE, [0, 1, 2], clip=bounds, random_state=0)
    head.set_params(public=PublicData(projected)).fit(lattice.transform(model.lattice_.transform(X) @ steps.T), y)
    assert (head.public_indices_ == model.public_indices_).all()
    with pytest.raises(InputError, match="selects among public rows"):
        of_form(form, head="public").fit(X, y)


def test_mean_prototypes_are_those_of_projected_rows():
    X, y = nuisance()
    model = of_form("released-first", n_components=6).fit(X, y)
    rows = model.lattice_.transform(X).astype(np.float64) @ model.projection_.T.astype(np.float64)
    exact = [Lattice(6).transform(rows[y == label]).astype(int).sum(axis=0) for label in range(3)]
    assert (np.rint(model.prototypes_ * Lattice(6).scale) == exact).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"form": "published"}, "form must be one of"),
        ({"head": "softmax"}, "head must be one of"),
        ({"share": 1.0}, "share must"),
        ({"n_components": 13}, "n_components must be at most 12, the dimensions"),
        ({"n_components": 0}, "n_components must"),
        ({"n_episodes": 0}, "n_episodes must"),
        ({"clip": -1.0}, "clip must"),
    ],
)
def test_parameters_that_break_a_rule_are_named(options, words):
    with pytest.raises(ParameterError, match=words):
        ProjectedPrototypes(NO_NOISE, [0, 1, 2], **options).plan(12)


def test_shares_of_the_budget_are_those_asked_for():
    for form, parts in (("released-first", (0.05, 0.15, 0.8)), ("episodes", (0.2, 0.8))):
        releases = of_form(form, GaussianDP(1.0), share=0.2).plan(12).guarantee.releases
        assert [release.cost["mu"] ** 2 for release in releases] == pytest.approx(parts, rel=1e-9)


# The published form: a support record moves the gradients of all queries.


def crowd(n_queries, step=0, n_episodes=2):
    """Return queries of class a and support of class b in one episode, and the only support of class a in it."""
    lattice = Lattice(DIM)
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(400 * n_queries, DIM))
    rows[:, 0] += 2
    mixed = _mixed(_keys(lattice.transform(rows)), step)
    inside = (mixed >> np.uint64(1)) % np.uint64(n_episodes) == 0
    support, queries = (
        np.flatnonzero(inside & (mixed & np.uint64(1) == 1)),
        np.flatnonzero(inside & (mixed & np.uint64(1) == 0)),
    )
    X = np.concatenate([rows[queries[:n_queries]], rows[support[1:2]]])
    return X, ["a"] * n_queries + ["b"], rows[support[0]], "a"


def clip_each_query(patch):
    """Clip the gradient of each query by itself, with prototypes of the support, as DPPL-v1 does."""
    whole = Episodes._clipped

    def clipped(self, rows, codes, support, projection, clip):
        total = np.zeros(projection.steps.shape, np.int64)
        for query in np.flatnonzero(~support):
            kept = support | (np.arange(len(rows)) == query)
            total += whole(self, rows[kept], codes[kept], support[kept], projection, clip)
        return total

    patch.setattr(Episodes, "_clipped", clipped)


def moved_by_the_support(n_queries):
    """Return how far the record moves the sum of the first step, in clipping norms."""
    X, y, row, label = crowd(n_queries)
    codes = np.array([CLASSES.index(name) for name in [*y, label]])
    projection = IntegerProjection.of(np.eye(DIM))
    sums = [
        Episodes(Lattice(DIM), rows, codes[: len(rows)], len(CLASSES), 2).sum(0, projection, 1e-3)
        for rows in (np.concatenate([X, row[None]]), X)
    ]
    return float(np.linalg.norm(sums[0] - sums[1])) / EPISODE_STEPS


def test_clipping_each_query_does_not_bound_a_support_record(monkeypatch):
    """The counterexample: with clipping norm C it moves the sum by far more than 2C, and more with more queries."""
    assert moved_by_the_support(10) <= 2
    assert moved_by_the_support(40) <= 2
    clip_each_query(monkeypatch)
    few, many = moved_by_the_support(10), moved_by_the_support(40)
    assert few > 4
    assert many > 3 * few


def test_the_replay_notices_the_published_form(monkeypatch):
    kind = BY_NAME["ProjectedPrototypes by episodes add-remove"]
    replay(kind, crowd(12))
    clip_each_query(monkeypatch)
    with pytest.raises(AssertionError):
        replay(kind, crowd(12))


def test_the_replay_notices_prototypes_that_are_not_released(monkeypatch):
    """Training record by record towards exact class sums couples all gradients to each record."""
    from dppl.kernel.mechanisms import RoundedGaussian

    kind = BY_NAME["ProjectedPrototypes add-remove"]
    case = crowd(12)
    replay(kind, case)
    whole = ProjectedPrototypes._towards_released

    def exact_first(self, measure, setting):
        with pytest.MonkeyPatch.context() as patch:
            release, first = RoundedGaussian.release, measure._paid["first"].mechanism
            secret = lambda one, exact, source: exact if one is first else release(one, exact, source)  # noqa: E731
            patch.setattr(RoundedGaussian, "release", secret)
            return whole(self, measure, setting)

    monkeypatch.setattr(ProjectedPrototypes, "_towards_released", exact_first)
    with pytest.raises(AssertionError):
        replay(kind, case)


def test_the_replay_notices_a_place_by_position(monkeypatch):
    """Records that are counted off into episodes all change places when one of them leaves."""
    kind = BY_NAME["ProjectedPrototypes by episodes add-remove"]
    kind = replace(kind, recipe=replace(kind.recipe, options=kind.recipe.options | {"n_episodes": 20}))
    rng = np.random.default_rng(3)
    case = rng.normal(size=(200, DIM)), [CLASSES[i % 3] for i in range(200)], np.ones(DIM), "a"
    replay(kind, case)
    # The case adds its record at the end; counted from there, the places of all others move.
    monkeypatch.setattr("dppl.lab.queries._keys", lambda rows: np.arange(len(rows), 0, -1).astype(np.uint64))
    with pytest.raises(AssertionError):
        replay(kind, case)


# Audits. A true claim is refuted with probability 1e-6 at most.


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_audit_sees_a_record_and_refutes_neither_form(form):
    estimator = ProjectedPrototypes(
        GaussianDP(2.0), ["a", "b"], form=form, n_episodes=1, steps=2, learning_rate=1e-6, clip=0.5
    )
    result = audit(estimator, *worst_case(estimator), runs=400, confidence=1 - 1e-6)
    assert 0.1 < result.lower_bound <= result.claimed


def turning():
    """Return records of an episode and one more, which turns its gradient around: found among 6,000 at random."""
    rng = np.random.default_rng(4312)
    X, codes = rng.normal(size=(5, 2)), rng.integers(0, 2, 5)
    return X[:4], codes[:4], X[4], codes[4]


def test_a_record_can_turn_the_gradient_of_its_episode_around():
    """So the sensitivity of 2C, and no less, is what it is."""
    X, codes, row, code = turning()
    options = {"form": "episodes", "n_episodes": 1, "steps": 1, "clip": 1e-3}
    plan = ProjectedPrototypes(GaussianDP(1.0), [0, 1], **options).plan(2)
    assert plan.measurements["gradients"].mechanism.squared_sensitivity == (2 * EPISODE_STEPS) ** 2
    start = IntegerProjection.of(ProjectedPrototypes(GaussianDP(1.0))._start(plan.lattice))
    with_it = Episodes(plan.lattice, np.concatenate([X, row[None]]), np.array([*codes, code]), 2, 1)
    without = Episodes(plan.lattice, X, codes, 2, 1)
    moved = np.linalg.norm(with_it.sum(0, start, 1e-3) - without.sum(0, start, 1e-3)) / EPISODE_STEPS
    assert 1.99 < moved <= 2


@pytest.mark.slow
def test_noise_for_one_clipping_norm_is_refuted_by_a_record_that_turns_a_gradient(monkeypatch):
    X, codes, row, code = turning()
    options = {"form": "episodes", "n_episodes": 1, "steps": 1, "clip": 1e-3, "share": 0.95}
    estimator = ProjectedPrototypes(GaussianDP(1.0), [0, 1], **options)

    def audited():
        statistic, _ = _likelihood(estimator, Records(X, codes), row, code, None)
        return audit(estimator, Records(X, codes), Canary(row, code, statistic), runs=300, confidence=1 - 1e-6)

    assert not audited().violation
    monkeypatch.setattr(EpisodeGradients, "squared_norm", EpisodeGradients.squared_norm / 16)
    assert audited().violation


def audited_crowd():
    estimator = ProjectedPrototypes(
        GaussianDP(1.0), CLASSES, form="episodes", n_episodes=2, steps=1, share=0.9, clip=1e-3
    )
    X, y, row, label = crowd(24)
    data = Records(X, y)
    statistic, _ = _likelihood(estimator, data, row, label, None)
    return audit(estimator, data, Canary(row, label, statistic), runs=200, confidence=1 - 1e-9)


@pytest.mark.slow
def test_an_audit_refutes_the_published_form(monkeypatch):
    assert not audited_crowd().violation
    clip_each_query(monkeypatch)
    assert audited_crowd().violation


def test_public_prototypes_need_public_rows():
    with pytest.raises(InputError, match=r"head='public' selects among public rows; give public=PublicData\(rows\)"):
        ProjectedPrototypes(GaussianDP(1.0), [0, 1], head="public").plan(4)
