import math

import numpy as np
import pytest
from scipy.special import softmax

import dppl
from dppl import ZCDP, GaussianDP, PublicData
from dppl.errors import InputError, ParameterError
from dppl.io import load_sample
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.privacy import Ledger
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.lab import AdaMix
from dppl.methods import LinearProbe
from dppl.methods.examples import ExampleClassifier
from laws.recipes import BY_NAME
from laws.replay import replay

CLASSES = ["a", "b", "c"]
DIM = 6
NO_NOISE = ZCDP(1e13)
CENTRES = np.random.default_rng(7).normal(size=(3, DIM))
EXAMPLES = PublicData(
    examples=CENTRES.repeat(2, axis=0)
    + 0.3 * np.random.default_rng(8).normal(size=(6, DIM)),
    example_classes=["a", "a", "b", "b", "c", "c"],
)


def make(budget=NO_NOISE, *, fixed=(), **options):
    """Return a classifier; `fixed` replaces what is no parameter of its."""
    model = AdaMix(
        budget,
        CLASSES,
        **{
            "random_state": 0,
            "unknown_labels": "ignore",
            "public": EXAMPLES,
            **options,
        },
    )
    vars(model).update(fixed)
    return model


def weighing(examples, momentum=0.0):
    """Let an example count for so many records."""
    return {"public_weight": examples, "momentum": momentum}


def fitted(X, y, budget=NO_NOISE, **options):
    return make(budget, **options).fit(X, y)


def problem(seed=0, n=150):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, DIM)) + 1.5 * CENTRES[y], np.array(CLASSES)[y]


def of_examples(model, coef):
    """Return the examples' features, and their residuals at some weights."""
    features = model.lattice_.features(EXAMPLES.examples).astype(np.float64)
    onehot = np.array(EXAMPLES.example_classes)[:, None] == CLASSES
    return features, onehot - softmax(features @ coef.T, axis=1)


def recorded_calls(monkeypatch):
    """Record weights and clipping norm of every private sum."""
    calls = []
    original = SoftmaxGradient.sum

    def spy(self, blocks, codes, weights, offsets, *, clip, **others):
        calls.append((weights, clip))
        return original(self, blocks, codes, weights, offsets, clip=clip, **others)

    monkeypatch.setattr(SoftmaxGradient, "sum", spy)
    return calls


# What it does.


def reference(X, onehot, examples, weight, options, steps):
    """All of it on whole gradients, one a record, without noise, momentum or the lattice's rounding."""
    features, example_onehot = examples
    coef = ExampleClassifier.fit(features, example_onehot.argmax(axis=1), 3).coef
    for _ in range(steps):
        public, private = (
            (hot - softmax(rows @ coef.T, axis=1))[:, :, None] * rows[:, None, :]
            for rows, hot in ((features, example_onehot), (X, onehot))
        )
        clip = np.quantile(
            np.sqrt((public**2).sum(axis=(1, 2))), options["clip_quantile"]
        )
        norms = np.sqrt((private**2).sum(axis=(1, 2)))
        total = (private * np.minimum(1, clip / norms)[:, None, None]).sum(axis=0)
        # The rows of all examples' gradients, one below the other.
        _, _, axes = np.linalg.svd(public.reshape(-1, X.shape[1]), full_matrices=False)
        axes = axes[: options["n_components"]]
        coef = coef + 0.5 * 3 * (
            total @ axes.T @ axes + weight * public.sum(axis=0)
        ) / (len(X) + weight * len(features))
    return coef


@pytest.mark.parametrize(
    ("quantile", "n_components", "weight"),
    [(0.9, 2, 3.0), (0.2, 1, 0.0), (1.0, 9, 40.0)],
)
def test_without_noise_it_is_the_stated_algorithm(quantile, n_components, weight):
    """Rows on the lattice, so that only the grid of residuals and of weights rounds."""
    X, y = problem()
    lattice = Lattice(DIM)
    X = lattice.transform(X)
    options = {"clip_quantile": quantile, "n_components": n_components}
    model = fitted(X, y, steps=6, learning_rate=0.5, fixed=weighing(weight), **options)
    features, _ = of_examples(model, np.zeros((3, DIM)))
    examples = features, np.array(EXAMPLES.example_classes)[:, None] == CLASSES
    coef = reference(
        X / lattice.scale, y[:, None] == CLASSES, examples, weight, options, 6
    )
    assert np.abs(model.coef_ - coef).max() < 2e-3 * np.abs(coef).max()
    start = reference(X, y, examples, weight, options, 0)
    assert np.abs(model.coef_ - start).max() > 0.1


def test_the_clipping_norm_is_the_quantile_of_the_examples_gradients(monkeypatch):
    calls = recorded_calls(monkeypatch)
    for quantile in (0.0, 0.5, 0.9):
        calls.clear()
        model = fitted(*problem(), ZCDP(1.0), steps=5, clip_quantile=quantile)
        assert len(calls) == 5
        for weights, clip in calls:
            _, residuals = of_examples(model, weights)
            assert clip == pytest.approx(
                np.quantile(np.linalg.norm(residuals, axis=1), quantile), rel=1e-9
            )
        assert len({clip for _, clip in calls}) == 5


def test_the_clipping_norm_of_examples_that_are_fitted_stays_in_range(monkeypatch):
    calls = recorded_calls(monkeypatch)
    X, y = problem()
    fitted(X[:0], y[:0], steps=40, learning_rate=1e5, fixed=weighing(1e3, 0.9))
    assert calls[-1][1] == 1e-3


def test_the_first_weights_are_those_of_the_examples_alone(monkeypatch):
    calls = recorded_calls(monkeypatch)
    model = fitted(*problem(), steps=1)
    features, _ = of_examples(model, np.zeros((3, DIM)))
    expected = ExampleClassifier.fit(features, np.array([0, 0, 1, 1, 2, 2]), 3).coef
    assert (calls[0][0] == expected).all()
    assert expected.any()


def test_a_class_without_an_example_starts_from_zero(monkeypatch):
    calls = recorded_calls(monkeypatch)
    X, y = problem()
    model = (
        make(steps=30)
        .set_params(
            public=PublicData(
                examples=EXAMPLES.examples[:4],
                example_classes=EXAMPLES.example_classes[:4],
            )
        )
        .fit(X, y)
    )
    assert not calls[0][0][2].any()
    # And is learned from records, as far as they lie along the other classes' examples.
    assert np.mean(model.predict(X[y == "c"]) == "c") > 0.5


def moves_outside(model, start, axes):
    """Return how far weights moved from the start within the span of some rows, and outside of it."""
    moved = model.coef_ - start
    inside = moved @ axes.T @ axes
    return np.linalg.norm(inside), np.linalg.norm(moved - inside)


@pytest.mark.parametrize("budget", [ZCDP(1e-3), NO_NOISE])
def test_the_projection_leaves_nothing_outside_the_subspace(budget):
    """Two examples a class in 40 dimensions: noise and signal move weights along six of them, else along all."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(6, 40))
    labels = EXAMPLES.example_classes
    X = rng.normal(size=(200, 40))
    y = rng.choice(CLASSES, 200)
    features = Lattice(40).features(rows).astype(np.float64)
    axes = np.linalg.qr(features.T)[0].T
    start = ExampleClassifier.fit(features, np.repeat([0, 1, 2], 2), 3).coef
    moves = {}
    for n_components in (None, 2, "all"):
        model = make(budget, steps=1, n_components=n_components, fixed=weighing(0.0))
        model.set_params(public=PublicData(examples=rows, example_classes=labels)).fit(
            X, y
        )
        moves[n_components] = moves_outside(model, start, axes)
    assert moves[None][1] < 1e-6 * moves[None][0]
    assert moves[2][1] < 1e-6 * moves[2][0]
    # Noise and rows of records are in all directions alike, and 34 of 40 lie outside.
    assert moves["all"][1] > moves["all"][0]


def test_few_components_are_those_of_the_longest_gradients():
    """The fitted examples' gradients are short, so one axis goes along the example that is not fitted."""
    model = make(n_components=1)
    residuals = np.array([[0.01, -0.01], [0.7, -0.7], [0.02, -0.02]])
    features = np.eye(3, 5)
    gradient = np.arange(10.0).reshape(2, 5)
    expected = np.zeros((2, 5))
    expected[:, 1] = gradient[:, 1]
    assert np.allclose(model._projected(gradient, residuals, features), expected)
    assert np.allclose(
        model.set_params(n_components="all")._projected(gradient, residuals, features),
        gradient,
    )
    # Examples without a gradient span nothing.
    assert (
        not model.set_params(n_components=None)
        ._projected(gradient, 0 * residuals, features)
        .any()
    )


def test_an_example_counts_as_so_many_records():
    """Whole multiples of examples as records of their own, where nothing is clipped or projected away."""
    X = Lattice(DIM).transform(problem()[0])
    y = problem()[1]
    options = {"steps": 4, "learning_rate": 0.3, "n_components": "all"}
    rows = Lattice(DIM).transform(EXAMPLES.examples)
    examples = PublicData(None, rows.copy(), EXAMPLES.example_classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AdaMix, "_clip", lambda self, residuals: math.sqrt(2))
        weighted = make(fixed=weighing(2.0), public=examples, **options).fit(X, y)
        twice = (
            np.concatenate([X, rows, rows]),
            [*y, *examples.example_classes, *examples.example_classes],
        )
        counted = make(fixed=weighing(0.0), public=examples, **options).fit(*twice)
    assert (
        np.abs(weighted.coef_ - counted.coef_).max()
        < 1e-3 * np.abs(counted.coef_).max()
    )


def test_at_a_small_budget_it_is_hardly_worse_than_the_examples_alone():
    """Forty records at mu = 0.05, three seeds: the default step keeps the noise of a logit near 0.6, below the margins.

    The examples alone classify all centres rightly, with logits 3 apart. `LinearProbe`,
    which has no examples, is near chance here.
    """
    rng = np.random.default_rng(0)
    centres = np.eye(5, 40)
    y = rng.integers(0, 5, 2000)
    X = centres[y] + 0.1 * rng.normal(size=(2000, 40))
    examples = PublicData(None, centres.copy(), np.arange(5))
    features = Lattice(40).features(centres).astype(np.float64)
    alone = ExampleClassifier.fit(features, np.arange(5), 5).coef
    rate = np.mean((Lattice(40).features(X) @ alone.T).argmax(axis=1) == y)
    for seed in range(3):
        options = {"classes": np.arange(5), "random_state": seed}
        model = AdaMix(GaussianDP(0.05), public=examples, **options).fit(X[:40], y[:40])
        assert model.score(X[40:], y[40:]) > rate - 0.05
        assert (
            LinearProbe(GaussianDP(0.05), **options)
            .fit(X[:40], y[:40])
            .score(X[40:], y[40:])
            < rate - 0.2
        )


def test_many_records_improve_on_examples_that_miss():
    """The examples of two classes are swapped, and records say so."""
    X, y = problem(n=3000)
    wrong = ["b", "b", "a", "a", "c", "c"]
    examples = PublicData(None, EXAMPLES.examples, wrong)
    model = make(GaussianDP(8.0), public=examples, fixed=weighing(1.0, 0.9)).fit(X, y)
    assert model.score(X, y) > 0.7


def test_it_learns_the_sample():
    sample = load_sample()
    picked = np.concatenate(
        [np.flatnonzero(sample.y == label)[:2] for label in sample.classes]
    )
    rest = np.setdiff1d(np.arange(len(sample.y)), picked)
    model = AdaMix(ZCDP(2.0), sample.classes, steps=20, random_state=1)
    model.set_params(
        public=PublicData(examples=sample.X[picked], example_classes=sample.y[picked])
    ).fit(sample.X[rest], sample.y[rest])
    assert model.score(sample.X_test, sample.y_test) > 0.75
    assert np.allclose(model.predict_proba(sample.X_test).sum(axis=1), 1)


# The promise: what is released, how far a record can move it, and what that costs.


@pytest.mark.parametrize("options", [{}, {"n_components": 2, "clip_quantile": 0.1}])
def test_the_sensitivities_are_those_of_the_longest_gradient_and_of_a_count(options):
    model = fitted(*problem(n=9), ZCDP(0.37), steps=7, **options)
    squared = RESOLUTION**2 * model.lattice_.squared_norm
    gradients, size = model.guarantee_.releases
    assert gradients.sensitivity == pytest.approx(math.sqrt(squared), rel=1e-12)
    assert (gradients.times, size.times, size.sensitivity) == (7, 1, 1)
    assert Term(PublicInput.EXAMPLES) in model.guarantee_.public_inputs


# The laws replay all releases of neighbours (`tests/laws/test_replay.py`). Here are
# faults that only many records show: the examples fit them, and not the one more, so
# what a fault makes of the many adds up.
KIND = BY_NAME["AdaMix add-remove"]
MANY = CENTRES.repeat(100, axis=0), [*np.repeat(CLASSES, 100)], CENTRES[0], "c"


def test_the_replay_notices_a_clip_that_reads_private_gradients(monkeypatch):
    """The fault: residuals are clipped at the length of the longest private one, to 0.02."""
    replay(KIND, MANY, public=EXAMPLES)
    original = SoftmaxGradient.sum

    def following(self, blocks, codes, weights, offsets, *, clip, **others):
        for longest in np.arange(1.4, 0.02, -0.02):
            if self.count_long(blocks, codes, weights, offsets, longest):
                break
        return original(self, blocks, codes, weights, offsets, clip=longest, **others)

    monkeypatch.setattr(SoftmaxGradient, "sum", following)
    with pytest.raises(AssertionError):
        replay(KIND, MANY, public=EXAMPLES)


def test_the_replay_notices_an_average_in_place_of_a_sum(monkeypatch):
    original = SoftmaxGradient.sum

    def averaged(self, blocks, codes, *others, **options):
        return (
            original(self, blocks, codes, *others, **options)
            * 300
            // max(len(codes), 1)
        )

    replay(KIND, MANY, public=EXAMPLES)
    monkeypatch.setattr(SoftmaxGradient, "sum", averaged)
    with pytest.raises(AssertionError):
        replay(KIND, MANY, public=EXAMPLES)


# Parameters, models and files.


def test_with_mu_0_it_is_a_model_of_the_examples_alone():
    X, y = problem()
    model = fitted(np.full_like(X, np.nan), y, GaussianDP(0))
    features, _ = of_examples(model, np.zeros((3, DIM)))
    assert (
        model.coef_
        == ExampleClassifier.fit(features, np.array([0, 0, 1, 1, 2, 2]), 3).coef
    ).all()
    assert not model.guarantee_.releases
    assert model.score(X, y) > 0.5


def test_it_needs_examples_before_anything_is_paid(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "records", ZCDP(1.5))
    for fit in (
        lambda: make(ZCDP(1.0), public=None).fit(*problem(), ledger=ledger),
        lambda: AdaMix(ZCDP(1.0), CLASSES).plan(DIM),
    ):
        with pytest.raises(InputError, match=r"give public=PublicData\(examples"):
            fit()
    with pytest.raises(
        ParameterError, match="example_classes must be given with examples"
    ):
        make(ZCDP(1.0)).set_params(public=PublicData(examples=EXAMPLES.examples)).fit(
            *problem(), ledger=ledger
        )
    X, y = problem()
    with pytest.raises(ParameterError, match=r"public.examples must be public"):
        make(ZCDP(1.0)).set_params(
            public=PublicData(examples=X, example_classes=y)
        ).fit(X, y, ledger=ledger)
    assert ledger.releases() == []


WRONG = {
    "clip_quantile": (1.01, math.nan),
    "n_components": (0, "some"),
    "steps": (1.5,),
    "learning_rate": (0.0,),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in WRONG.items() for value in values],
)
def test_parameters_are_checked(name, value):
    with pytest.raises(ParameterError, match=name):
        fitted(*problem(), **{name: value})


def test_a_saved_model_is_the_same_and_a_ledger_charges_it(tmp_path):
    X, y = problem()
    ledger = Ledger(tmp_path / "ledger.db", "records", ZCDP(1.5))
    model = make(ZCDP(1.0), steps=5, n_components="all").fit(X, y, ledger=ledger)
    assert 0.999999 < ledger.spent()["rho"] <= 1.0
    model.save(tmp_path / "model.safetensors")
    again = dppl.load(tmp_path / "model.safetensors")
    assert (again.decision_function(X) == model.decision_function(X)).all()
    assert again.get_params()["n_components"] == "all"
