import pickle

import mpmath
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import cosine_similarity

from dppl import ZCDP, ApproxDP, GaussianDP, LatticeOptions, MeanPrototypes, PublicData
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice

# Statistical tests here raise a false alarm with at most this probability.
ALARM = 1e-6


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 32))
    y = rng.integers(0, 4, 400)
    return centers[y] + 0.5 * rng.normal(size=(400, 32)), np.array(list("abcd"))[y]


def fitted(data, budget=None, **options):
    X, y = data
    return MeanPrototypes(
        budget or ZCDP(0.5), list("abcd"), random_state=1, **options
    ).fit(X, y)


def test_prototypes_are_sums_of_lattice_rows_with_the_stated_noise(data):
    X, y = data
    lattice = Lattice(32)
    exact = np.stack(
        [lattice.transform(X[y == c]).astype(int).sum(axis=0) for c in "abcd"]
    )
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
    X = X[:60]
    y = y[:60]
    lattice = Lattice(32)
    sizes = np.array([(y == c).sum() for c in "abcd"])
    means = np.stack(
        [(lattice.transform(X[y == c]) / lattice.scale).mean(axis=0) for c in "abcd"]
    )
    draws = np.stack(
        [
            MeanPrototypes(
                ZCDP(0.3), list("abcd"), adjacency="replace-one", random_state=seed
            )
            .fit(X, y)
            .prototypes_
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
    for split in ("dppl", "original", (0.5, 0.5)):
        model = fitted(data, ZCDP(20.0), adjacency="replace-one", coinpress=split)
        assert model.score(X, y) > 0.9
    assert "CoinPress mechanism (2 steps" in str(model.guarantee_)
    assert "number of records in each class" in str(model.guarantee_)


def test_what_divides_by_class_sizes_needs_replace_one(data):
    with pytest.raises(
        ParameterError, match="only adjacency='replace-one' treats as public"
    ):
        fitted(data, coinpress="dppl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"unknown_labels": "drop"}, "unknown_labels must be one of"),
        ({"lattice": LatticeOptions(pool=0)}, "pool must be an integer"),
        ({"lattice": LatticeOptions(pool=33)}, "pool must be at most"),
        ({"lattice": LatticeOptions(center="public")}, "give public=PublicData"),
        ({"lattice": LatticeOptions(rotation="maybe")}, "rotation must be one of"),
        ({"coinpress": "half", "adjacency": "replace-one"}, "coinpress must be one of"),
        ({"lattice": {"pool": 2}}, "lattice must be a dppl.LatticeOptions; got dict"),
    ],
)
def test_parameters_are_checked_before_anything_is_read(data, options, message):
    with pytest.raises(ParameterError, match=message):
        fitted(data, **options)


def gaussian_delta(mu, epsilon):
    """Balle, Wang (2018), arXiv:1805.06530, Theorem 8, in the digits at work."""
    middle = epsilon / mpmath.mpf(mu)
    half = mpmath.mpf(mu) / 2
    return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(
        -half - middle
    )


def test_approximate_budgets_are_kept(data):
    model = fitted(data, ApproxDP(2.0, 1e-6))
    (release,) = model.guarantee_.releases
    with mpmath.workdps(40):
        mu = (
            mpmath.sqrt(mpmath.mpf(float(model.lattice_.squared_norm)))
            / release.parameters["noise_std"]
        )
        assert (
            gaussian_delta(mu, 2)
            <= gaussian_delta(release.cost["mu"], 2)
            <= mpmath.mpf(1e-6)
        )
        assert (
            gaussian_delta(mu * (1 + mpmath.mpf("1e-12")), 2) > 1e-6
        )  # and no noise is wasted
    assert model.guarantee_.epsilon(1e-6) <= 2.0
    # What zCDP alone would allow is less.
    assert ZCDP(release.cost["rho"]).to_approx(1e-6).epsilon > 2.1


def test_a_gaussian_budget_is_spent_to_the_last_bit(data):
    (release,) = fitted(data, GaussianDP(0.7)).guarantee_.releases
    assert 0.7 * (1 - 1e-15) < release.cost["mu"] <= 0.7
    assert release.sensitivity / release.parameters["noise_std"] == pytest.approx(
        0.7, rel=1e-15
    )


def test_a_class_without_records_gets_a_prototype_and_order_does_not_matter(data):
    X, y = data
    model = MeanPrototypes(ZCDP(1.0), ["z", "d", "c", "b", "a"], random_state=0).fit(
        X, y
    )
    assert model.classes_.tolist() == ["a", "b", "c", "d", "z"]
    assert model.prototypes_.shape == (5, 32)
    assert model.prototypes_[4].any()


@pytest.mark.parametrize("classes", [[], ["a", "a"], [["a", "b"]]])
def test_a_class_list_names_each_class_once(data, classes):
    with pytest.raises(ParameterError, match="classes must"):
        MeanPrototypes(ZCDP(1.0), classes).fit(*data)


def test_lattice_rows_give_the_same_model_as_their_embeddings(data):
    X, y = data
    q = Lattice(32).transform(X)
    assert (fitted((q, y)).prototypes_ == fitted(data).prototypes_).all()


def test_centre_pool_and_rotation_are_public_and_applied_to_queries(data):
    X, y = data
    public = np.random.default_rng(5).normal(size=(50, 32)) + 1
    model = MeanPrototypes(
        ZCDP(50.0),
        list("abcd"),
        lattice=LatticeOptions(center="public", pool=2, rotation=3),
        random_state=0,
        public=PublicData(public),
    ).fit(X, y)
    unit = public / np.linalg.norm(public, axis=1, keepdims=True)
    assert np.allclose(model.lattice_.center, unit.mean(axis=0), atol=1e-6)
    assert model.prototypes_.shape == (4, 16)
    assert model.score(X, y) > 0.9
    huge = public.copy()
    huge[:, 0] += 100
    assert (
        MeanPrototypes(
            ZCDP(1.0),
            list("abcd"),
            lattice=LatticeOptions(rotation="auto"),
            public=PublicData(public),
        )
        .fit(X, y)
        .lattice_.rotation
        is None
    )
    assert (
        MeanPrototypes(
            ZCDP(1.0),
            list("abcd"),
            lattice=LatticeOptions(rotation="auto"),
            public=PublicData(huge),
        )
        .fit(X, y)
        .lattice_.rotation
        == 0
    )


def test_options_of_the_lattice_are_set_one_by_one_and_shared_by_no_copy(data):
    model = MeanPrototypes(
        ZCDP(1.0), list("abcd"), lattice=LatticeOptions(pool=2), random_state=0
    )
    other = clone(model).set_params(lattice__rotation=3)
    assert (model.lattice, other.lattice) == (
        LatticeOptions(pool=2),
        LatticeOptions(pool=2, rotation=3),
    )
    assert MeanPrototypes().set_params(lattice__pool=2).lattice == model.lattice
    assert (
        MeanPrototypes()
        .set_params(lattice=LatticeOptions(rotation=1), lattice__pool=2)
        .lattice.rotation
        == 1
    )
    for name in ("lattice__pools", "clip__pool"):
        with pytest.raises(
            ParameterError, match=f"MeanPrototypes has no parameter {name}"
        ):
            model.set_params(**{name: 2})
    fitted = other.fit(*data)
    assert (
        pickle.loads(pickle.dumps(fitted)).lattice
        == fitted.lattice
        != LatticeOptions(pool=2, rotation=4)
    )
    assert (
        LatticeOptions(center=[0.5])
        == LatticeOptions(center=np.array([0.5]))
        != LatticeOptions(center=[0.25])
    )
