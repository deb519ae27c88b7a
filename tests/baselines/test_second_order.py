"""What the classifiers on noisy second moments promise alike: LeastSquares, FeatureCovariance and Newton."""

import contextlib
import io
import logging
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import dppl
from dppl import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.baselines import FeatureCovariance, LeastSquares, Newton
from dppl.errors import BudgetError, BudgetExceeded
from dppl.estimators.model_file import to_bytes
from dppl.lattice import Lattice
from dppl.mechanisms import RoundedGaussian, SymmetricRoundedGaussian
from dppl.privacy import Cost, Ledger
from dppl.privacy.composition import covers

CLASSES = ["a", "b", "c"]
DIM = 4
MAKERS = {
    "least squares": LeastSquares,
    "least squares, class Grams": partial(LeastSquares, class_grams=True),
    "feature covariance": partial(FeatureCovariance, steps=2),
    "Newton": partial(Newton, steps=2),
}
# Uses of a mechanism by each.
USES = {"least squares": 2, "least squares, class Grams": 3, "feature covariance": 3, "Newton": 4}

every = pytest.mark.parametrize("kind", MAKERS)
values = st.one_of(st.floats(-2, 2), st.sampled_from([0.0, 1e-320, 1e300, -1e300, np.nan, np.inf, -np.inf]))
records = st.integers(0, 6).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, (n, DIM), elements=values),
        st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n),
        hnp.arrays(np.float64, DIM, elements=values),
        st.sampled_from(CLASSES),
    )
)

# Generous budgets: the checks compare predictions with labels.
ESTIMATORS = [
    LeastSquares(ZCDP(1e4), random_state=0),
    LeastSquares(ZCDP(1e4), class_grams=True, adjacency="replace-one", random_state=0),
    FeatureCovariance(ZCDP(1e4), random_state=0),
    Newton(ZCDP(1e4), random_state=0),
]


@pytest.mark.filterwarnings("ignore::dppl.errors.LabelSetWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_finds_a_well_behaved_classifier(estimator, check):
    check(estimator)


def exact_values(make, X, y):
    """Fit with releases that are fixed numbers, whatever the data, and return what each mechanism was given.

    All later steps then start from the same released values, so neighbours may differ by the sensitivity in every one.
    """
    seen = []

    def record(self, exact, source):
        seen.append((self, exact.copy()))
        fixed = np.random.default_rng(len(seen)).normal(scale=self.noise_std, size=exact.shape)
        return np.rint(fixed + np.swapaxes(fixed, -1, -2) if exact.shape[-1] == exact.shape[-2] else fixed).astype(int)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundedGaussian, "release", record)
        patch.setattr(SymmetricRoundedGaussian, "release", record)
        make().fit(X, y)
    return seen


def compare(kind, first, second, **options):
    """Assert that every mechanism's values differ by its sensitivity at most; return the largest share of it."""
    make = partial(MAKERS[kind], ZCDP(1.0), CLASSES, random_state=0, **options)
    one, two = exact_values(make, *first), exact_values(make, *second)
    assert len(one) == len(two) == USES[kind]
    times = getattr(make(), "steps", 1)
    shares = []
    for index, ((mechanism, value), (same, other)) in enumerate(zip(one, two, strict=True)):
        assert mechanism == same
        repeats = 1 if kind == "feature covariance" and index == 0 else times
        squared = Fraction(sum(int(x) ** 2 for x in (value - other).ravel()))
        shares.append(squared / (mechanism.squared_sensitivity / repeats))
    assert max(shares) <= 1
    return max(shares)


@pytest.mark.slow
@every
@given(case=records)
@settings(max_examples=60)
def test_every_value_of_neighbours_differs_by_its_sensitivity_at_most(kind, case):
    X, y, row, label = case
    compare(kind, (np.concatenate([X, row[None]]), [*y, label]), (X, y))
    if len(X):
        replaced = X.copy()
        replaced[0] = row
        compare(kind, (X, y), (replaced, [label, *y[1:]]), adjacency="replace-one")


@every
def test_the_sensitivity_test_notices_unclipped_rows(kind, monkeypatch):
    case = np.zeros((0, DIM)), [], np.full(DIM, 1.2), "a"
    both = (np.concatenate([case[0], case[2][None]]), ["a"]), case[:2]
    assert compare(kind, *both) > 0.3
    monkeypatch.setattr(Lattice, "transform", lambda self, X: np.rint(np.asarray(X) * 100).astype(np.int8))
    with pytest.raises(AssertionError):
        compare(kind, *both)


@every
def test_a_replacement_breaks_the_bounds_of_add_remove(kind):
    X, y = np.eye(DIM)[:2], ["a", "b"]
    opposite = np.array([-X[0], X[1]])
    make = partial(MAKERS[kind], ZCDP(1.0), CLASSES, random_state=0)
    with_bounds_of_one = exact_values(make, X, y), exact_values(make, opposite, y)
    shares = [
        Fraction(sum(int(x) ** 2 for x in (a[1] - b[1]).ravel())) / a[0].squared_sensitivity
        for a, b in zip(*with_bounds_of_one, strict=True)
    ]
    # Sums and gradients of a row and its opposite differ by more than one row.
    assert max(shares) * getattr(make(), "steps", 1) > 1


def traces(make, X, y, **options):
    """Everything that a fit leaves behind but the released values: attributes, file size, words, logs, warnings."""
    output, log = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(0)
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            model = make(ZCDP(1.0), CLASSES, unknown_labels="ignore", random_state=0).fit(X, y, **options)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    kept = {name: repr(vars(value) if isinstance(value, Lattice) else value) for name, value in vars(model).items()}
    for name in ("coef_", "intercept_"):
        kept[name] = repr((getattr(model, name).shape, getattr(model, name).dtype))
    said = output.getvalue(), log.getvalue(), [str(w.message) for w in caught]
    assert said == ("", "", [])
    assert not model.intercept_.any()
    return kept, len(to_bytes(model)), str(model.guarantee_), repr(model), model.get_params()


@pytest.mark.slow
@every
@given(case=records)
@settings(max_examples=25)
def test_everything_but_the_released_values_is_equal(kind, case):
    X, y, row, label = case
    with_row = traces(MAKERS[kind], np.concatenate([X, row[None]]), [*y, label])
    assert repr(with_row) == repr(traces(MAKERS[kind], X, y))


@every
def test_the_trace_test_notices_a_kept_sum_and_a_logged_count(kind, monkeypatch):
    X, y = np.ones((4, DIM)), ["a"] * 4
    cls = type(MAKERS[kind](ZCDP(1.0)))
    original = cls._release

    def keeping(self, plan, rows, *others):
        self._exact = np.asarray(rows).sum(axis=0)
        return original(self, plan, rows, *others)

    monkeypatch.setattr(cls, "_release", keeping)
    assert repr(traces(MAKERS[kind], X, y)) != repr(traces(MAKERS[kind], X[:3], y[:3]))

    def logging_count(self, plan, rows, codes, source):
        logging.getLogger("dppl").info("%d", len(codes))
        return original(self, plan, rows, codes, source)

    monkeypatch.setattr(cls, "_release", logging_count)
    with pytest.raises(AssertionError):
        traces(MAKERS[kind], X, y)


@every
@pytest.mark.parametrize(
    "budget", [GaussianDP(0.8), ZCDP(0.3), ApproxDP(1.0, 1e-6)], ids=["Gaussian", "zCDP", "approximate"]
)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_statement_covers_every_release_within_the_budget(kind, budget, adjacency):
    mechanisms = [
        used
        for used, _ in exact_values(
            partial(MAKERS[kind], budget, CLASSES, adjacency=adjacency), np.eye(DIM), ["a", "b", "c", "a"]
        )
    ]
    model = MAKERS[kind](budget, CLASSES, adjacency=adjacency, random_state=0).fit(np.eye(DIM), ["a", "b", "c", "a"])
    releases = model.guarantee_.releases
    assert covers(budget, [Cost.from_dict(release.cost) for release in releases])
    # Every use has an entry with its noise; an entry for several uses says so.
    stated = []
    for release in releases:
        times = release.times
        stated += [release.parameters["noise_std"]] * times
    assert sorted(stated) == sorted(mechanism.noise_std for mechanism in mechanisms)
    allowance = Fraction(budget.gaussian_allowance().mu) ** 2
    spent = sum(Fraction(release.cost["mu"]) ** 2 for release in releases)
    assert allowance * (1 - Fraction(1, 10**9)) <= spent <= allowance


@every
def test_a_pure_budget_is_refused_with_the_way_out(kind):
    with pytest.raises(BudgetError, match="no pure-DP guarantee"):
        MAKERS[kind](PureDP(1.0), CLASSES).fit(np.eye(DIM), ["a", "b", "c", "a"])


@every
def test_a_saved_model_predicts_alike(kind, tmp_path):
    X, y = np.random.default_rng(0).normal(size=(50, DIM)), np.random.default_rng(1).choice(CLASSES, 50)
    model = MAKERS[kind](ZCDP(1.0), CLASSES, center=np.full(DIM, 0.1), random_state=0).fit(X, y)
    model.save(tmp_path / "model.safetensors")
    again = dppl.load(tmp_path / "model.safetensors")
    assert type(again) is type(model)
    assert (again.decision_function(X) == model.decision_function(X)).all()
    assert str(again.guarantee_) == str(model.guarantee_)
    assert to_bytes(again) == to_bytes(model)


@every
def test_the_ledger_is_charged_before_the_fit_and_refuses_what_it_does_not_cover(kind, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.5))
    X, y = np.eye(DIM), ["a", "b", "c", "a"]
    model = MAKERS[kind](ZCDP(1.0), CLASSES, random_state=0)
    assert "release 1" in clone(model).fit(X, y, ledger=ledger).guarantee_.ledger_entry
    refused = clone(model)
    with pytest.raises(BudgetExceeded):
        refused.fit(X, y, ledger=ledger)
    assert not hasattr(refused, "coef_")


@every
def test_unknown_labels_count_for_nothing_and_batches_do_not_show(kind):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(30, DIM)), rng.choice(CLASSES, 30)
    make = partial(MAKERS[kind], ZCDP(1.0), CLASSES, unknown_labels="ignore", random_state=0)
    expected = make().fit(X, y).coef_
    more = make().fit(np.concatenate([X[:7], rng.normal(size=(5, DIM)), X[7:]]), [*y[:7], *"vwxyz", *y[7:]])
    assert (more.coef_ == expected).all()


@every
def test_options_of_the_public_map_work(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 8)) + 2, rng.choice(CLASSES, 60)
    model = MAKERS[kind](ZCDP(1.0), CLASSES, pool=2, center="public", rotation=3, random_state=0)
    model.fit(X, y, X_public=rng.normal(size=(40, 8)) + 2)
    assert model.coef_.shape == (3, 4)
    assert model.predict(X).shape == (60,)
