import math

import dp_accounting
import numpy as np
import pytest

from dppl import ZCDP, ApproxDP
from dppl.errors import ParameterError
from dppl.io import load_sample
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.lab import GlobalAdapt
from dppl.lab.adapt_queries import CountedGradients
from dppl.methods import LinearProbe

CLASSES = ["a", "b", "c"]
DIM = 6
NO_NOISE = ZCDP(1e13)


def make(budget=NO_NOISE, *, fixed=(), **options):
    """Return a classifier; `fixed` replaces what is no parameter of its."""
    model = GlobalAdapt(
        budget, CLASSES, **{"random_state": 0, "unknown_labels": "ignore", **options}
    )
    vars(model).update(fixed)
    return model


def problem(seed=0, n=150):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, DIM)) + 1.5 * rng.normal(size=(3, DIM))[y]
    return X, np.array(CLASSES)[y]


def reference(rows, onehot, steps, step, bound, threshold, rate):
    """The published algorithm on whole gradients, without noise, plain gradient descent and every record in the batch.

    Its condition: gradients of norm at most Z are scaled by 1/Z, longer ones clipped to
    1. Only the cap of Z is ours.
    """
    coef = np.zeros((onehot.shape[1], rows.shape[1]))
    bounds = [bound]
    for _ in range(steps):
        logits = rows @ coef.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        gradients = (onehot - p)[:, :, None] * rows[:, None, :]
        norms = np.sqrt((gradients**2).sum(axis=(1, 2)))
        scales = np.where(norms <= bound, 1 / bound, 1 / np.maximum(norms, 1e-12))
        coef += step * (scales[:, None, None] * gradients).sum(axis=0) / len(rows)
        bound = min(
            bound * math.exp(np.mean(norms > threshold * bound) - rate), math.sqrt(2)
        )
        bounds.append(bound)
    return coef, bounds


def recorded_bounds(monkeypatch):
    """Clips of gradients, each with the threshold of the count that follows it."""
    bounds = []
    clips = []
    whole = SoftmaxGradient.sum
    count = SoftmaxGradient.count_long

    def spy(self, *arguments, clip, **options):
        clips.append(clip)
        return whole(self, *arguments, clip=clip, **options)

    def spy_on_counts(self, *arguments):
        bounds.append((clips[-1], arguments[-1]))
        return count(self, *arguments)

    monkeypatch.setattr(SoftmaxGradient, "sum", spy)
    monkeypatch.setattr(SoftmaxGradient, "count_long", spy_on_counts)
    return bounds


@pytest.mark.parametrize("size", [{}, {"batch_size": 90.0, "clip": 0.5}])
@pytest.mark.parametrize(
    ("bound", "threshold", "rate"), [(0.9, 1.0, 0.1), (0.6, 1.0, 0.3), (1.1, 0.8, 0.1)]
)
def test_without_noise_it_is_the_published_algorithm(
    bound, threshold, rate, size, monkeypatch
):
    """Rows of norm 1, whose lattice rows are shorter by rounding: hence a tolerance of 1e-3, and few steps."""
    axes = np.eye(16)
    y = np.random.default_rng(1).integers(0, 3, 90)
    X = axes[2 * y + np.random.default_rng(2).integers(0, 6, 90)]
    bounds = recorded_bounds(monkeypatch)
    options = {
        "steps": 12,
        "learning_rate": 1.0 / size.get("clip", 1.0),
        "upper_bound": bound,
        "threshold": threshold,
        **size,
    }
    model = make(fixed={"momentum": 0.0, "upper_bound_rate": rate}, **options).fit(
        X, np.array(CLASSES)[y]
    )
    coef, expected = reference(X, np.eye(3)[y], 12, 3.0, bound, threshold, rate)
    assert np.allclose([bound for bound, _ in bounds], expected[:-1], rtol=1e-3)
    assert np.allclose(
        [length for _, length in bounds], threshold * np.array(expected[:-1]), rtol=1e-3
    )
    assert np.abs(model.coef_ - coef).max() < 1e-3 * np.abs(coef).max()
    assert np.ptp(expected) > 0.1


def test_the_bound_follows_the_residuals_and_stays_in_its_range(monkeypatch):
    bounds = recorded_bounds(monkeypatch)
    X, y = problem()
    make(steps=60, fixed={"upper_bound_rate": 0.2}).fit(X, y)
    first = bounds[0][0]
    last = bounds[-1][0]
    assert first == math.sqrt(2)
    assert last < 0.9
    bounds.clear()
    # Nothing but noise: the share is cut to [0, 1] and the bound kept.
    make(ZCDP(1e-6), steps=60, fixed={"upper_bound_rate": 5.0}).fit(X[:2], y[:2])
    assert min(bound for bound, _ in bounds) == 1e-3
    assert max(bound for bound, _ in bounds) == math.sqrt(2)


def test_with_a_bound_that_stays_it_is_the_probe():
    """At Z = 1 nothing is scaled and the rest clipped. At a τ of 9 no gradient counts as long, so only η moves Z."""
    X, y = problem()
    options = {"steps": 10, "learning_rate": 0.2}
    model = make(
        upper_bound=1.0, threshold=9.0, fixed={"upper_bound_rate": 0.0}, **options
    ).fit(X, y)
    probe = LinearProbe(NO_NOISE, CLASSES, random_state=0, **options).fit(X, y)
    assert np.abs(model.coef_ - probe.coef_).max() < 1e-5


def test_it_learns_the_sample():
    sample = load_sample()
    model = GlobalAdapt(ZCDP(2.0), sample.classes, steps=20, random_state=1).fit(
        sample.X, sample.y
    )
    assert model.score(sample.X_test, sample.y_test) > 0.75
    assert np.allclose(model.predict_proba(sample.X_test).sum(axis=1), 1)


def test_the_sensitivities_are_those_of_the_longest_gradient_and_of_counts():
    model = make(ZCDP(0.37), steps=7).fit(*problem(n=9))
    squared = RESOLUTION**2 * model.lattice_.squared_norm
    gradients, longer, size = model.guarantee_.releases
    assert gradients.sensitivity == pytest.approx(math.sqrt(squared), rel=1e-12)
    assert longer.sensitivity == size.sensitivity == 1
    assert (gradients.times, longer.times, size.times) == (7, 7, 1)


def test_gradient_and_count_of_a_batch_cost_as_two_published_multipliers():
    """1/σ² = 1/σ₁² + 1/σ₂², on whole batches by squares of mu, and on samples by dp-accounting."""
    X, y = problem(n=9)
    options = {"steps": 7, "batch_size": 5.0}
    model = make(ZCDP(0.37), **options).fit(X, y)
    (both,) = model.guarantee_.releases
    scale = RESOLUTION * math.sqrt(model.lattice_.squared_norm)

    def combined(release):
        gradient, count = (
            release.parameters["noise_std"] / one
            for one in (scale, release.statistic["weight"])
        )
        return math.sqrt(1 / (1 / gradient**2 + 1 / count**2))

    assert 7 / combined(both) ** 2 == pytest.approx(2 * 0.37, rel=1e-9)
    budget = ApproxDP(2.0, 1e-5)
    (sampled,) = (
        make(budget, sampling_rate=0.2, **options).fit(X, y).guarantee_.releases
    )
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(
            sampled.parameters["sampling_rate"],
            dp_accounting.GaussianDpEvent(combined(sampled)),
        ),
        7,
    )
    by_renyi = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
    exact = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    assert 1.97 < exact < 2.001 < by_renyi


def test_a_record_adds_no_more_to_gradient_and_count_than_is_stated():
    """The longest residual, √2, and a row of the full length; a record of another class adds as much to other entries."""
    lattice = Lattice(DIM)
    query = CountedGradients(lattice, 3)
    at = {"weights": np.zeros((3, DIM)), "offsets": np.array([50.0, 0.0, 0.0])}
    some = lattice.transform(np.random.default_rng(0).normal(size=(2000, DIM)))
    rows = some[[np.square(some.astype(int)).sum(axis=1).argmax()]]
    for threshold, counted in ((1.4, True), (1.5, False)):
        value = query.exact([rows], np.array([1]), clip=0.7, threshold=threshold, **at)
        squared = sum(int(one) ** 2 for one in value)
        assert squared <= query.squared_norm
        assert bool(value[-1]) == counted
        assert (squared > 0.999 * query.squared_norm) == counted


WRONG = {
    "upper_bound": (2.0, -1.0),
    "threshold": (math.nan,),
    "steps": (1.5,),
    "batch_size": (0.0,),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in WRONG.items() for value in values],
)
def test_parameters_are_checked(name, value):
    with pytest.raises(ParameterError, match=name):
        make(**{name: value}).fit(*problem())
