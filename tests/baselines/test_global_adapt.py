import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

import dppl
from dppl import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.audit import audit_release
from dppl.baselines import GlobalAdapt, LinearProbe
from dppl.data import load_sample
from dppl.errors import BudgetError, ParameterError
from dppl.estimators.descent import RepeatedGaussian
from dppl.estimators.model_file import to_bytes
from dppl.lattice import RESOLUTION, Lattice, SoftmaxGradient
from dppl.mechanisms import RoundedGaussian
from dppl.mechanisms.randomness import SeededRandomness, SystemRandomness
from dppl.privacy import Ledger

CLASSES = ["a", "b", "c"]
DIM = 6
NO_NOISE = ZCDP(1e13)

ESTIMATORS = [
    GlobalAdapt(ZCDP(1e4), steps=10),
    GlobalAdapt(ZCDP(1e4), steps=10, intercept_scaling=0.5, adjacency="replace-one", random_state=0),
]


@pytest.mark.filterwarnings("ignore::dppl.errors.LabelSetWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_finds_a_well_behaved_classifier(estimator, check):
    check(estimator)


def make(budget=NO_NOISE, **options):
    return GlobalAdapt(budget, CLASSES, **{"random_state": 0, "unknown_labels": "ignore", **options})


def problem(seed=0, n=150):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, DIM)) + 1.5 * rng.normal(size=(3, DIM))[y]
    return X, np.array(CLASSES)[y]


def reference(rows, onehot, steps, step, bound, clip, threshold, rate):
    """The published algorithm on whole gradients, without noise, plain gradient descent and every record in the batch.

    Its condition: gradients of norm at most Z are scaled by C/Z, longer ones clipped to C. Only the cap of Z is ours.
    """
    coef, bounds = np.zeros((onehot.shape[1], rows.shape[1])), [bound]
    for _ in range(steps):
        logits = rows @ coef.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        gradients = (onehot - p)[:, :, None] * rows[:, None, :]
        norms = np.sqrt((gradients**2).sum(axis=(1, 2)))
        scales = np.where(norms <= bound, clip / bound, clip / np.maximum(norms, 1e-12))
        coef += step * (scales[:, None, None] * gradients).sum(axis=0) / len(rows)
        bound = min(bound * math.exp(np.mean(norms > threshold * bound) - rate), math.sqrt(2))
        bounds.append(bound)
    return coef, bounds


def recorded_bounds(monkeypatch):
    bounds = []
    original = SoftmaxGradient.sum_and_count

    def spy(self, *arguments, **options):
        bounds.append((options["clip"], options["threshold"]))
        return original(self, *arguments, **options)

    monkeypatch.setattr(SoftmaxGradient, "sum_and_count", spy)
    return bounds


@pytest.mark.parametrize(
    "options",
    [
        {"upper_bound": 0.9},
        {"upper_bound": 0.6, "clip": 0.3, "upper_bound_rate": 0.3},
        {"upper_bound": 1.1, "threshold": 0.8},
    ],
)
def test_without_noise_it_is_the_published_algorithm(options, monkeypatch):
    """Rows of norm 1, whose lattice rows are shorter by rounding: hence a tolerance of 1e-3, and few steps."""
    axes = np.eye(16)
    y = np.random.default_rng(1).integers(0, 3, 90)
    X = axes[2 * y + np.random.default_rng(2).integers(0, 6, 90)]
    bounds = recorded_bounds(monkeypatch)
    settings = {"clip": 1.0, "threshold": 1.0, "upper_bound_rate": 0.1, **options}
    model = make(steps=12, momentum=0.0, learning_rate=1.0, **settings).fit(X, np.array(CLASSES)[y])
    coef, expected = reference(
        X,
        np.eye(3)[y],
        12,
        3.0,
        settings["upper_bound"],
        settings["clip"],
        settings["threshold"],
        settings["upper_bound_rate"],
    )
    assert np.allclose([bound for bound, _ in bounds], expected[:-1], rtol=1e-3)
    assert np.allclose(
        [threshold for _, threshold in bounds], settings["threshold"] * np.array(expected[:-1]), rtol=1e-3
    )
    assert np.abs(model.coef_ - coef).max() < 1e-3 * np.abs(coef).max()
    assert np.ptp(expected) > 0.1


def test_the_bound_follows_the_residuals_and_stays_in_its_range(monkeypatch):
    bounds = recorded_bounds(monkeypatch)
    X, y = problem()
    make(steps=60, upper_bound_rate=0.2).fit(X, y)
    first, last = bounds[0][0], bounds[-1][0]
    assert first == math.sqrt(2)
    assert last < 0.9
    bounds.clear()
    # Nothing but noise: the share is cut to [0, 1] and the bound kept.
    make(ZCDP(1e-6), steps=60, upper_bound_rate=5.0).fit(X[:2], y[:2])
    assert min(bound for bound, _ in bounds) == 1e-3
    assert max(bound for bound, _ in bounds) == math.sqrt(2)


def test_with_a_bound_that_stays_it_is_the_probe(monkeypatch):
    """At Z = C nothing is scaled and the rest clipped; momentum, penalty and intercept are shared."""
    monkeypatch.setattr(GlobalAdapt, "_next_bound", lambda self, bound, share: bound)
    X, y = problem()
    options = {"steps": 10, "l2": 0.01, "intercept_scaling": 0.3, "learning_rate": 0.2, "clip": 0.8}
    model = make(upper_bound=0.8, **options).fit(X, y)
    probe = LinearProbe(NO_NOISE, CLASSES, random_state=0, **options).fit(X, y)
    assert np.abs(model.coef_ - probe.coef_).max() < 1e-5
    assert np.abs(model.intercept_ - probe.intercept_).max() < 1e-5
    assert model.intercept_.any()


def test_it_learns_the_sample():
    sample = load_sample()
    model = GlobalAdapt(ZCDP(2.0), sample.classes, steps=20, random_state=1).fit(sample.X, sample.y)
    assert model.score(sample.X_test, sample.y_test) > 0.75
    assert np.allclose(model.predict_proba(sample.X_test).sum(axis=1), 1)


@pytest.mark.parametrize("options", [{}, {"adjacency": "replace-one"}, {"intercept_scaling": 0.7}])
@pytest.mark.parametrize("budget", [GaussianDP(0.83), ZCDP(0.37), ApproxDP(1.3, 1e-6)])
@pytest.mark.parametrize("steps", [1, 7])
def test_all_releases_together_cost_the_budget_and_no_more(options, budget, steps):
    model = make(budget, steps=steps, **options).fit(*problem(n=9))
    allowance = Fraction(budget.gaussian_allowance().mu) ** 2
    bias = round(options.get("intercept_scaling", 0) * model.lattice_.scale)
    squared = RESOLUTION**2 * (model.lattice_.squared_norm + bias**2) * (4 if "adjacency" in options else 1)
    gradients, longer, size = model.guarantee_.releases
    # Exactly: squares of mu, each sensitivity² / sigma².
    cost = sum(
        times * sensitivity / Fraction(release.parameters["noise_std"]) ** 2
        for release, times, sensitivity in ((gradients, steps, squared), (longer, steps, 1), (size, 1, 1))
    )
    assert gradients.sensitivity == pytest.approx(math.sqrt(squared), rel=1e-12)
    assert longer.sensitivity == size.sensitivity == 1
    assert 0.999999 * allowance < cost <= Fraction(model.guarantee_.mu) ** 2 <= allowance
    assert model.guarantee_.stays_within_budget()


def test_the_test_of_costs_notices_steps_that_are_not_paid_for(monkeypatch):
    def within(cls, budget, squared_sensitivity, times):
        return cls(together=RoundedGaussian.within(budget, squared_sensitivity), times=times)

    monkeypatch.setattr(RepeatedGaussian, "within", classmethod(within))
    with pytest.raises(AssertionError):
        test_all_releases_together_cost_the_budget_and_no_more({}, ZCDP(0.37), 7)


def test_every_step_draws_noise_of_the_stated_width(monkeypatch):
    draws = []
    original = SeededRandomness.rounded_gaussian

    def spy(self, noise_std, shape):
        draws.append((noise_std, shape))
        return original(self, noise_std, shape)

    monkeypatch.setattr(SeededRandomness, "rounded_gaussian", spy)
    model = make(ZCDP(1.0), steps=5).fit(*problem())
    gradients, longer, size = (release.parameters["noise_std"] for release in model.guarantee_.releases)
    assert draws == [(size, (1,))] + [(gradients, (3, DIM)), (longer, (1,))] * 5


values = st.one_of(st.floats(-2, 2), st.sampled_from([0.0, 1e300, np.nan, np.inf]))
records = st.integers(0, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(values, min_size=DIM, max_size=DIM), min_size=n, max_size=n),
        st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n),
        st.lists(values, min_size=DIM, max_size=DIM),
        st.sampled_from([*CLASSES, "elsewhere"]),
    )
)


def neighbours(case):
    X, y, row, label = case
    X = np.array(X, np.float64).reshape(len(X), DIM)
    return (np.concatenate([X, [row]]), [*y, label]), (X, list(y))


def statistics(data, weights, bound):
    """Return what one step computes from private rows, and the model."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        original = SoftmaxGradient.sum_and_count

        def spy(self, blocks, codes, coef, intercept, **settings):
            found.append(original(self, blocks, codes, weights, intercept, **settings))
            return found[-1]

        patch.setattr(SoftmaxGradient, "sum_and_count", spy)
        model = make(ZCDP(1.0), steps=1, upper_bound=bound).fit(*data)
    return *found[0], model


@given(case=records, size=st.sampled_from([0.0, 1.0, 100.0]), bound=st.sampled_from([0.001, 0.3, 1.4]))
@settings(max_examples=60)
def test_neighbours_differ_by_the_stated_sensitivities(case, size, bound):
    weights = np.random.default_rng(0).normal(size=(3, DIM)) * size
    first, second = neighbours(case)
    total, longer, model = statistics(first, weights, bound)
    other_total, other_longer, _ = statistics(second, weights, bound)
    difference = total - other_total
    allowed = Fraction(model.guarantee_.releases[0].sensitivity) ** 2 * (1 + Fraction(1, 10**12))
    assert Fraction(sum(int(v) ** 2 for v in difference.ravel())) <= allowed
    assert longer - other_longer in (0, 1)


def traces(X, y):
    """Everything that a fit leaves behind but the released values."""
    model = make(ZCDP(1.0), steps=3).fit(X, y)
    kept = {name: repr(vars(value) if isinstance(value, Lattice) else value) for name, value in vars(model).items()}
    for name in ("coef_", "intercept_"):
        kept[name] = repr((getattr(model, name).shape, getattr(model, name).dtype))
    return kept, len(to_bytes(model)), str(model.guarantee_), repr(model)


@given(case=records)
@settings(max_examples=25)
def test_everything_but_the_released_values_is_equal(case):
    first, second = neighbours(case)
    assert repr(traces(*first)) == repr(traces(*second))


def test_the_trace_test_notices_a_kept_bound(monkeypatch):
    original = GlobalAdapt._next_bound

    def keeping(self, bound, share):
        self._bound = original(self, bound, share)
        return self._bound

    monkeypatch.setattr(GlobalAdapt, "_next_bound", keeping)
    X, y = problem()
    assert repr(traces(X, y)) != repr(traces(X[:9], y[:9]))


# As the audit of the probe: a quarter of the noise puts the two sides 8 standard deviations apart.
@pytest.mark.audit
def test_an_audit_finds_a_quarter_of_the_noise_planted(monkeypatch):
    row, other = np.eye(16)[:2]

    def release(include):
        model = GlobalAdapt(
            ZCDP(2.0), ["a", "b"], steps=1, momentum=0.0, learning_rate=1.0, clip=0.5, upper_bound=0.1
        ).fit(np.stack([row] * include + [other]), ["a"] * include + ["b"])
        coef = model.coef_
        return float(coef[0, 0] - coef[1, 0])

    def violation():
        return audit_release(release, GaussianDP(2.0), runs=500, confidence=1 - 1e-6).violation

    monkeypatch.setattr("dppl.baselines.global_adapt.release_size", lambda *_: 10.0)
    assert not violation()
    original = SystemRandomness.rounded_gaussian
    monkeypatch.setattr(SystemRandomness, "rounded_gaussian", lambda self, std, shape: original(self, std / 4, shape))
    assert violation()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, "clip"),
        ({"upper_bound": 2.0}, "between 0.001 and sqrt"),
        ({"upper_bound": -1.0}, "upper_bound"),
        ({"upper_bound_rate": 0.0}, "upper_bound_rate"),
        ({"threshold": math.nan}, "threshold"),
        ({"steps": 1.5}, "steps"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ParameterError, match=message):
        make(**options).fit(*problem())


def test_a_pure_budget_is_refused():
    with pytest.raises(BudgetError, match="no pure-DP guarantee"):
        make(PureDP(1.0)).fit(*problem())


def test_a_saved_model_is_the_same_and_a_ledger_charges_it(tmp_path):
    X, y = problem()
    ledger = Ledger(tmp_path / "ledger.db", "records", ZCDP(1.5))
    model = make(ZCDP(1.0), steps=5, intercept_scaling=0.4).fit(X, y, ledger=ledger)
    assert 0.999999 < ledger.spent()["rho"] <= 1.0
    model.save(tmp_path / "model.safetensors")
    again = dppl.load(tmp_path / "model.safetensors")
    assert (again.decision_function(X) == model.decision_function(X)).all()
