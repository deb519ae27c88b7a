import warnings

import mpmath
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import cosine_similarity

from dppl import ZCDP, ApproxDP, GaussianDP, MeanPrototypes, PureDP
from dppl.errors import BudgetError, InputError, LabelSetWarning, ParameterError, UnknownLabelError, WeakBudgetWarning
from dppl.lattice import Lattice, iter_blocks

# Statistical tests here raise a false alarm with at most this probability.
ALARM = 1e-6


class Table:
    """A table that streams and is no array."""

    def __init__(self, rows):
        self._rows, self.shape = rows, rows.shape

    def blocks(self, size):
        yield from iter_blocks(self._rows, size)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 32))
    y = rng.integers(0, 4, 400)
    return centers[y] + 0.5 * rng.normal(size=(400, 32)), np.array(list("abcd"))[y]


def fitted(data, budget=None, **options):
    X, y = data
    return MeanPrototypes(budget or ZCDP(0.5), list("abcd"), random_state=1, **options).fit(X, y)


def test_prototypes_are_sums_of_lattice_rows_with_the_stated_noise(data):
    X, y = data
    lattice = Lattice(32)
    exact = np.stack([lattice.transform(X[y == c]).astype(int).sum(axis=0) for c in "abcd"])
    residuals = []
    for seed in range(100):
        model = MeanPrototypes(ZCDP(0.5), list("abcd"), random_state=seed).fit(X, y)
        steps = model.prototypes_ * lattice.scale
        assert np.allclose(steps, np.rint(steps), atol=1e-6)
        residuals.append(steps - exact)
    std = lattice.scale / np.sqrt(2 * 0.5)
    from scipy import stats

    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], 100 * 4 * 32)
    energy = np.sum(np.square(residuals))
    assert low <= energy / std**2 <= high
    # Controls: half the noise, and the noise of replace-one, are noticed.
    assert not low <= energy / (std / 2) ** 2 <= high
    assert not low <= energy / (2 * std) ** 2 <= high


def test_prediction_is_by_cosine(data):
    X, _ = data
    model = fitted(data)
    similarity = cosine_similarity(X, model.prototypes_)
    assert np.allclose(model.decision_function(X), similarity, atol=1e-5)
    assert (model.predict(X) == np.array(list("abcd"))[similarity.argmax(axis=1)]).all()


def test_two_classes_give_one_decision_column(data):
    X, y = data
    kept = np.isin(y, ["a", "b"])
    model = MeanPrototypes(ZCDP(8.0), ["b", "a"], random_state=0).fit(X[kept], y[kept])
    assert model.decision_function(X).shape == (400,)
    assert ((model.decision_function(X) > 0) == (model.predict(X) == "b")).all()


def test_replace_one_reproduces_the_published_mean(data):
    """DPPL-AAAI eq. (1): the class mean plus noise of variance 2r²/(n_c²·rho), here with r = 1."""
    X, y = data
    X, y = X[:60], y[:60]
    lattice = Lattice(32)
    sizes = np.array([(y == c).sum() for c in "abcd"])
    means = np.stack([(lattice.transform(X[y == c]) / lattice.scale).mean(axis=0) for c in "abcd"])
    draws = np.stack(
        [
            MeanPrototypes(ZCDP(0.3), list("abcd"), adjacency="replace-one", random_state=seed).fit(X, y).prototypes_
            for seed in range(200)
        ]
    )
    from scipy import stats

    published = 2 / (sizes**2 * 0.3)
    low, high = stats.chi2.ppf([ALARM / 8, 1 - ALARM / 8], 200 * 32)
    energy = np.square(draws - means).sum(axis=(0, 2))
    assert (low <= energy / published).all()
    assert (energy / published <= high).all()
    assert (energy / (published / 4) > high).all()  # control: the noise of add-remove


def test_coinpress_finds_the_classes_and_says_what_it_assumes(data):
    X, y = data
    for options in ({}, {"coinpress_split": "original"}, {"coinpress_split": (0.5, 0.5), "coinpress_radius": 3.0}):
        model = fitted(data, ZCDP(20.0), adjacency="replace-one", mechanism="coinpress", **options)
        assert model.score(X, y) > 0.9
    assert "CoinPress mechanism (2 steps" in str(model.guarantee_)
    assert "number of records in each class" in str(model.guarantee_)


def test_metrics_agree_where_means_have_one_length(data):
    X, _ = data
    cosine = fitted(data, ZCDP(1e4), adjacency="replace-one")
    euclidean = fitted(data, ZCDP(1e4), adjacency="replace-one", metric="euclidean")
    u = euclidean.lattice_.features(X)
    distance = np.square(u[:, None] - euclidean.prototypes_).sum(axis=2)
    assert (euclidean.predict(X) == np.array(list("abcd"))[distance.argmin(axis=1)]).all()
    assert np.mean(cosine.predict(X) == euclidean.predict(X)) > 0.9


@pytest.mark.parametrize("option", [{"mechanism": "coinpress"}, {"metric": "euclidean"}])
def test_what_divides_by_class_sizes_needs_replace_one(data, option):
    with pytest.raises(ParameterError, match="only adjacency='replace-one' treats as public"):
        fitted(data, **option)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"mechanism": "laplace"}, "mechanism must be one of"),
        ({"metric": "dot"}, "metric must be one of"),
        ({"unknown_labels": "drop"}, "unknown_labels must be one of"),
        ({"pool": 0}, "pool must be an integer"),
        ({"pool": 33}, "pool must be at most"),
        ({"center": "public"}, "pass X_public"),
        ({"rotation": "maybe"}, "rotation must be one of"),
        ({"coinpress_split": "half", "mechanism": "coinpress", "adjacency": "replace-one"}, "coinpress_split"),
    ],
)
def test_parameters_are_checked_before_anything_is_read(data, options, message):
    with pytest.raises(ParameterError, match=message):
        fitted(data, **options)


@pytest.mark.parametrize("budget", [1.0, None, "rho=1"])
def test_a_number_is_no_budget(data, budget):
    with pytest.raises(ParameterError, match="means nothing without its notion"):
        MeanPrototypes(budget, list("abcd")).fit(*data)


def test_pure_dp_is_refused_with_the_way_out(data):
    with pytest.raises(BudgetError, match="PublicPrototypes"):
        fitted(data, PureDP(1.0))


def gaussian_delta(mu, epsilon):
    """Balle, Wang (2018), arXiv:1805.06530, Theorem 8, in the digits at work."""
    middle, half = epsilon / mpmath.mpf(mu), mpmath.mpf(mu) / 2
    return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(-half - middle)


def test_approximate_budgets_are_kept(data):
    model = fitted(data, ApproxDP(2.0, 1e-6))
    (release,) = model.guarantee_.releases
    with mpmath.workdps(40):
        mu = mpmath.sqrt(mpmath.mpf(float(model.lattice_.squared_norm))) / release.parameters["noise_std"]
        assert gaussian_delta(mu, 2) <= gaussian_delta(release.cost["mu"], 2) <= mpmath.mpf(1e-6)
        assert gaussian_delta(mu * (1 + mpmath.mpf("1e-12")), 2) > 1e-6  # and no noise is wasted
    assert model.guarantee_.epsilon(1e-6) <= 2.0
    # What zCDP alone would allow is less.
    assert ZCDP(release.cost["rho"]).to_approx(1e-6).epsilon > 2.1


def test_a_gaussian_budget_is_spent_to_the_last_bit(data):
    (release,) = fitted(data, GaussianDP(0.7)).guarantee_.releases
    assert 0.7 * (1 - 1e-15) < release.cost["mu"] <= 0.7
    assert release.sensitivity / release.parameters["noise_std"] == pytest.approx(0.7, rel=1e-15)


def test_classes_read_from_the_labels_warn_and_are_not_covered(data):
    X, y = data
    with pytest.warns(LabelSetWarning, match="Pass the public list") as caught:
        model = MeanPrototypes(ZCDP(1.0)).fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]  # it points at the line to change
    assert "label set" in " ".join(model.guarantee_.not_covered)
    assert "the list of classes" not in model.guarantee_.public_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MeanPrototypes(ZCDP(1.0), list("abcd")).fit(X, y)
    assert "label set" not in " ".join(model.guarantee_.not_covered)


def test_a_class_without_records_gets_a_prototype_and_order_does_not_matter(data):
    X, y = data
    model = MeanPrototypes(ZCDP(1.0), ["z", "d", "c", "b", "a"], random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c", "d", "z"]
    assert model.prototypes_.shape == (5, 32)
    assert model.prototypes_[4].any()


@pytest.mark.parametrize("classes", [[], ["a", "a"], [["a", "b"]]])
def test_a_class_list_names_each_class_once(data, classes):
    with pytest.raises(ParameterError, match="classes must"):
        MeanPrototypes(ZCDP(1.0), classes).fit(*data)


def test_an_unknown_label_is_not_shown(data):
    X, y = data
    with pytest.raises(UnknownLabelError) as caught:
        MeanPrototypes(ZCDP(1.0), ["a", "b", "c"]).fit(X, np.where(y == "d", "secret", y))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_ignored_labels_leave_no_trace(data):
    X, y = data
    known = y != "d"
    only = MeanPrototypes(ZCDP(1.0), ["a", "b", "c"], random_state=2).fit(X[known], y[known])
    ignoring = MeanPrototypes(ZCDP(1.0), ["a", "b", "c"], unknown_labels="ignore", random_state=2).fit(X, y)
    assert (only.prototypes_ == ignoring.prototypes_).all()


def test_no_records_at_all_are_a_data_set_like_any_other():
    model = MeanPrototypes(ZCDP(1.0), ["a", "b"], random_state=0).fit(np.empty((0, 5)), [])
    assert model.prototypes_.shape == (2, 5)
    assert model.prototypes_.all()


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([["Jane Doe", 1.0]], ["a"]),
        (np.array([[1.0, "Jane"]], dtype=object), ["a"]),
        ([[1.0, 2.0], [3.0, 4.0]], ["a"]),
        ([1.0, 2.0], ["a", "b"]),
        ([[1.0, 2.0]], [["Jane Doe", "a"]]),
        ([[1 + 2j, 1.0]], ["a"]),
    ],
)
def test_errors_about_data_show_no_data(X, y):
    with pytest.raises((InputError, TypeError)) as caught:
        MeanPrototypes(ZCDP(1.0), ["a", "b"]).fit(X, y)
    error = caught.value
    while error is not None:
        assert "Jane" not in str(error)
        assert "[1." not in str(error)
        error = None if error.__suppress_context__ else error.__context__


def test_a_failed_refit_leaves_no_mixture(data):
    X, y = data
    model = fitted(data)
    with pytest.raises(UnknownLabelError):
        model.set_params(classes=["a"]).fit(X, y)
    assert not hasattr(model, "prototypes_")


def test_streamed_tables_and_memory_maps_give_the_same_model(data, tmp_path):
    X, y = data
    np.save(tmp_path / "x.npy", X)
    array = fitted(data)
    for rows in (Table(X), np.load(tmp_path / "x.npy", mmap_mode="r")):
        model = MeanPrototypes(ZCDP(0.5), list("abcd"), random_state=1).fit(rows, y)
        assert (model.prototypes_ == array.prototypes_).all()
        assert (model.predict(rows) == array.predict(X)).all()


def test_lattice_rows_give_the_same_model_as_their_embeddings(data):
    X, y = data
    q = Lattice(32).transform(X)
    assert (fitted((q, y)).prototypes_ == fitted(data).prototypes_).all()


def test_centre_pool_and_rotation_are_public_and_applied_to_queries(data):
    X, y = data
    public = np.random.default_rng(5).normal(size=(50, 32)) + 1
    model = MeanPrototypes(ZCDP(50.0), list("abcd"), center="public", pool=2, rotation=3, random_state=0).fit(
        X, y, X_public=public
    )
    unit = public / np.linalg.norm(public, axis=1, keepdims=True)
    assert np.allclose(model.lattice_.center, unit.mean(axis=0), atol=1e-6)
    assert model.prototypes_.shape == (4, 16)
    assert model.score(X, y) > 0.9
    huge = public.copy()
    huge[:, 0] += 100
    assert MeanPrototypes(ZCDP(1.0), list("abcd"), rotation="auto").fit(X, y, X_public=public).lattice_.rotation is None
    assert MeanPrototypes(ZCDP(1.0), list("abcd"), rotation="auto").fit(X, y, X_public=huge).lattice_.rotation == 0


def test_seeds_repeat_and_the_guarantee_forbids_release(data):
    X, y = data
    model = fitted(data)
    assert (clone(model).fit(X, y).prototypes_ == model.prototypes_).all()
    assert not model.guarantee_.fit_for_release
    free = MeanPrototypes(ZCDP(0.5), list("abcd"))
    assert free.fit(X, y).guarantee_.fit_for_release
    assert (free.prototypes_ != free.fit(X, y).prototypes_).any()


def test_a_weak_budget_warns_and_a_strong_one_does_not(data):
    X, y = data
    with pytest.warns(WeakBudgetWarning, match="guarantees little"):
        MeanPrototypes(ApproxDP(11.0, 1e-6), np.unique(y)).fit(X, y)
    for weak in (GaussianDP(5.1), ZCDP(12.6)):
        with pytest.warns(WeakBudgetWarning, match="guarantees little"):
            MeanPrototypes(weak, np.unique(y)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for budget in (ApproxDP(10.0, 1e-6), GaussianDP(5.0), ZCDP(12.5)):
            MeanPrototypes(budget, np.unique(y)).fit(X, y)
