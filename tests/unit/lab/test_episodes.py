"""The published training of a projection: its gradient, what one record moves, and what samples cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dppl import ApproxDP, GaussianDP, LatticeOptions, PublicData
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import SampledGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy.sampling import sampled_gaussian_epsilon
from dppl.kernel.privacy.terms import Statistic
from dppl.kernel.records import HeldRecords
from dppl.lab import ProjectedPrototypes
from dppl.lab.episode_queries import (
    RADIUS,
    EpisodeGradients,
    clipped,
    gradient,
    split,
)
from dppl.lab.projection_queries import IntegerProjection

DIM, CLASSES = 6, 3
LATTICE = Lattice(DIM)
QUERY = EpisodeGradients(LATTICE, CLASSES, 4, 2, GaussianDP(1))


def problem(seed=0, n=40):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, CLASSES, n)
    rows = rng.normal(size=(n, DIM)) + 2 * np.eye(CLASSES, DIM)[codes]
    weights = rng.normal(size=(4, DIM))
    return rows, codes, IntegerProjection.of(weights)


def value(rows, codes, projection, clip=1.0, seed=3, query=QUERY):
    return HeldRecords(rows, codes).total(
        query, projection=projection, clip=clip, seed=seed
    )


def by_autograd(rows, codes, projection, support, query):
    """DPPL-v1, equations (8) to (12), with log-softmax over negative squared distances."""
    torch = pytest.importorskip("torch")
    W = torch.tensor(projection.steps * projection.unit, requires_grad=True)
    x = torch.tensor(rows / LATTICE.scale)
    y = torch.tensor(codes)
    present = sorted(set(codes[query].tolist()))
    means = torch.stack([x[support][y[support] == code].mean(0) for code in present])
    away = (x[query] @ W.T)[:, None] - (means @ W.T)[None]
    loss = torch.nn.functional.cross_entropy(
        -away.square().sum(-1),
        torch.tensor([present.index(code) for code in codes[query]]),
    )
    loss.backward()
    return W.grad.numpy()


def test_the_gradient_is_that_of_the_published_loss():
    rows, codes, projection = problem()
    codes = np.abs(codes)
    rows = LATTICE.transform(rows)
    halves = split(codes, "some")
    found = gradient(rows, codes, *halves, projection, LATTICE)
    expected = by_autograd(rows, codes, projection, *halves)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    # A control: of another split it is another.
    other = by_autograd(rows, codes, projection, *split(codes, "other"))
    assert np.abs(other - expected).max() > 0.01


def test_a_split_is_even_within_each_class_and_public():
    codes = np.array([0] * 7 + [1] * 4 + [2])
    support, query = split(codes, "a")
    assert np.bincount(codes[support]).tolist() == np.bincount(codes[query]).tolist()
    assert np.bincount(codes[support]).tolist() == [3, 2]  # a single record is dropped
    assert not set(support) & set(query)
    assert split(codes, "a")[0].tolist() == support.tolist()
    assert split(codes, "b")[0].tolist() != support.tolist()


def test_the_value_is_the_clipped_mean_of_the_episodes():
    rows, codes, projection = problem()
    counted = codes >= 0
    mapped, known = LATTICE.transform(rows)[counted], codes[counted]
    of_episodes = [
        by_autograd(mapped, known, projection, *split(known, f"3 {episode}"))
        for episode in range(2)
    ]
    mean = np.mean(of_episodes, axis=0)
    norm = np.linalg.norm(mean)
    for clip in (norm / 10, norm * 10):
        expected = mean * min(1, clip / norm) / clip * RADIUS
        found = value(rows, codes, projection, clip)
        assert np.abs(found - expected).max() < 3  # 2**-20 shorter, and truncated
    assert not value(rows[:0], codes[:0], projection).any()


@given(st.integers(0, 2**32), st.sampled_from([1e-12, 1e-3, 1.0, 1e6]))
def test_whatever_a_record_is_the_value_moves_by_the_sensitivity_at_most(seed, clip):
    rng = np.random.default_rng(seed)
    rows, codes, projection = problem(seed, int(rng.integers(0, 9)))
    rows *= 10.0 ** rng.integers(-30, 30)
    more = np.vstack([rows, rng.normal(size=(1, DIM)) * 1e9])
    all_codes = np.append(codes, rng.integers(0, CLASSES))
    first, second = (
        value(more, all_codes, projection, clip),
        value(rows, codes, projection, clip),
    )
    for one in (first, second):
        assert sum(int(step) ** 2 for step in one.ravel()) <= RADIUS**2
    moved = sum(int(step) ** 2 for step in (first - second).ravel())
    assert moved <= QUERY.squared_sensitivity("add-remove")
    assert QUERY.squared_sensitivity("replace-one") == QUERY.squared_norm


def test_one_record_nearly_reaches_the_sensitivity():
    """The value of a batch can turn round, since the record that is added moves a mean, and decides who is in it."""
    best = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(3, DIM))
        codes = np.array([0, 0, 1])
        one = IntegerProjection.of(rng.normal(size=(4, DIM)))
        query = EpisodeGradients(LATTICE, CLASSES, 4, 1, GaussianDP(1))
        before = value(rows, codes, one, 1e-9, query=query)
        after = value(
            np.vstack([rows, rng.normal(size=DIM)]),
            np.append(codes, 1),
            one,
            1e-9,
            query=query,
        )
        best = max(best, float(np.linalg.norm(after - before)))
    assert best > 0.9 * RADIUS
    assert best <= 2 * RADIUS


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300, -1e-300])
def test_gradients_of_any_size_become_short_integers(bad):
    with np.errstate(all="ignore"):
        found = clipped(np.array([[bad, 1.0], [2.0, bad]]), 1.0)
    assert found.dtype == np.int64
    assert sum(int(step) ** 2 for step in found.ravel()) <= RADIUS**2


def fitted(budget, **options):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    signal = np.eye(3)[y] + 0.4 * rng.normal(size=(600, 3))
    X = np.concatenate([signal, 1.5 * rng.normal(size=(600, 9))], axis=1)
    options = {"rule": "published", "random_state": 0, "steps": 30} | options
    public = PublicData(X[:200]) if "public" in options.values() else None
    model = ProjectedPrototypes(budget, [0, 1, 2], public=public, **options)
    return model.fit(X[200:], y[200:]), X, y


@pytest.mark.parametrize("options", [{}, {"episodes": 4}, {"head": "public"}])
def test_without_noise_the_published_rule_leaves_out_what_says_nothing(options):
    model, X, y = fitted(GaussianDP(1e4), **options)
    weight = np.abs(model.projection_.astype(float)).sum(axis=0)
    assert weight[:3].mean() > 1.2 * weight[3:].mean()
    idle, _, _ = fitted(GaussianDP(1e4), **options, learning_rate=1e-9)
    flat = np.abs(idle.projection_.astype(float)).sum(axis=0)
    assert flat[:3].mean() < 1.05 * flat[3:].mean()
    assert model.score(X, y) > idle.score(X, y)


def test_samples_cost_what_all_releases_leave_of_the_budget():
    budget = ApproxDP(2.0, 1e-5)
    model, _, _ = fitted(budget, sampling_rate=0.1, share=0.4)
    episodes, head = model.guarantee_.releases
    assert episodes.statistic.code is Statistic.EPISODE_GRADIENTS
    assert episodes.sensitivity == 2 * RADIUS
    assert head.cost["mu"] ** 2 == pytest.approx(
        0.6 * budget.gaussian_allowance().mu ** 2, rel=1e-9
    )
    together = sampled_gaussian_epsilon(
        episodes.parameters["noise_std"] / episodes.sensitivity,
        1e-5,
        episodes.parameters["sampling_rate"],
        30,
        head.cost["mu"],
    )
    assert 1.98 < together <= 2.0
    # Samples let the same training have less noise.
    whole, _, _ = fitted(budget, share=0.4)
    assert (
        episodes.parameters["noise_std"]
        < whole.guarantee_.releases[0].parameters["noise_std"] / 3
    )


@pytest.mark.slow
def test_a_sample_has_each_record_by_its_own_coin():
    """With 2,000 records of which 1 % are sampled, over 80 draws: a mean outside 19 to 21 less than once in 10⁵ runs."""
    query = EpisodeGradients(LATTICE, 2, 4, 1, ApproxDP(1, 1e-5), 0.01)
    mechanism = query.mechanism(GaussianDP(0.1), 5, "add-remove")
    assert isinstance(mechanism, SampledGaussian)
    sizes = [
        mechanism.sample(2000, randomness(seed)).sum().item() for seed in range(1600)
    ]
    assert 19.5 < np.mean(sizes) < 20.5


def test_public_prototypes_can_be_what_the_layer_is_trained_towards():
    model, _, _ = fitted(GaussianDP(1e4), rule="released", towards="public")
    first = model.guarantee_.releases[0]
    assert first.statistic.code is Statistic.PUBLIC_POSITIONS
    assert model.prototypes_.dtype == np.float64
    weight = np.abs(model.projection_.astype(float)).sum(axis=0)
    assert weight[:3].mean() > 1.2 * weight[3:].mean()


def test_pooling_comes_before_the_layer():
    model, _, _ = fitted(GaussianDP(10), lattice=LatticeOptions(pool=3))
    assert model.projection_.shape == (4, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "released", "sampling_rate": 0.5}, "sampling_rate .*rule"),
        ({"towards": "public"}, "towards must be 'sums'"),
        ({"episodes": 0}, "episodes must"),
        ({"clip": 0.0}, "clip must"),
        ({"rule": "other"}, "rule must be one of"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        fitted(ApproxDP(1, 1e-5), **options)
