from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from dppl import ZCDP, ApproxDP, GaussianDP
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import SymmetricRoundedGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy import Cost
from dppl.kernel.privacy.composition import covers
from dppl.lab import LeastSquares
from dppl.lab.moments import noise_radius, solve_ridge

CLASSES = list("abcd")
NO_NOISE = ZCDP(1e14)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 16))
    y = rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    return centers[y] + 0.5 * rng.normal(size=(300, 16)), np.array(CLASSES)[y]


def unit_lattice_rows(X):
    lattice = Lattice(X.shape[1])
    return lattice.transform(X) / lattice.scale


@pytest.mark.parametrize("ridge", [0.01, 5.0])
def test_without_noise_it_is_ridge_regression_on_indicators(data, ridge):
    """Equal up to the rounding of two solvers in float64; a wrong ridge or target differs by far more."""
    X, y = data
    model = LeastSquares(NO_NOISE, CLASSES, ridge=ridge, random_state=0).fit(X, y)
    targets = (y[:, None] == CLASSES).astype(float)
    expected = (
        Ridge(alpha=ridge, fit_intercept=False).fit(unit_lattice_rows(X), targets).coef_
    )
    assert np.allclose(model.coef_, expected, rtol=0, atol=1e-9)
    assert not np.allclose(
        LeastSquares(NO_NOISE, CLASSES, ridge=ridge * 1.01).fit(X, y).coef_,
        expected,
        atol=1e-6,
    )


def test_alpha_weighs_class_grams_and_only_scales_the_ridge_without_them(data):
    """Scores of all classes shrink alike: with the default ridge, labels are the same at any alpha."""
    X, y = data
    budget = GaussianDP(8.0)

    def fitted(**options):
        return LeastSquares(budget, CLASSES, random_state=0, **options).fit(X, y).coef_

    np.testing.assert_allclose(0.1 * fitted(alpha=0.1), fitted(), rtol=1e-6)
    changed = 0.1 * fitted(alpha=0.1, class_grams=True) / fitted(class_grams=True)
    assert np.ptp(changed) > 0.01


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_without_noise_class_grams_weigh_the_records_of_other_classes(data, alpha):
    """(A_c + alpha·A + ridge)·θ = b_c: a record of the class has weight 1 + alpha and target 1/(1 + alpha)."""
    X, y = data
    model = LeastSquares(
        NO_NOISE, CLASSES, class_grams=True, alpha=alpha, ridge=0.5, random_state=0
    ).fit(X, y)
    for weights, label in zip(model.coef_, CLASSES, strict=True):
        inside = y == label
        ridge = Ridge(alpha=0.5, fit_intercept=False)
        ridge.fit(
            unit_lattice_rows(X), inside / (1 + alpha), sample_weight=alpha + inside
        )
        assert np.allclose(weights, ridge.coef_, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"class_grams": True}, {"class_grams": True, "alpha": 0.1}]
)
def test_it_learns_within_a_moderate_budget(data, options):
    X, y = data
    model = LeastSquares(ZCDP(20.0), CLASSES, random_state=0, **options).fit(X, y)
    assert model.score(X, y) > 0.9
    assert np.allclose(
        model.decision_function(X),
        model.lattice_.features(X) @ model.coef_.T,
        atol=1e-6,
    )


def test_negative_eigenvalues_of_a_noisy_matrix_count_as_zero():
    rng = np.random.default_rng(1)
    vectors, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    values = np.array([-7.0, -1e-9, 0.0, 2.0, 30.0])
    targets = rng.normal(size=(3, 5))
    solved = solve_ridge((vectors * values) @ vectors.T, 0.5, targets)
    kept = (vectors * np.maximum(values, 0)) @ vectors.T
    assert np.allclose(solved @ (kept + 0.5 * np.eye(5)), targets)


def test_the_default_ridge_is_half_the_noise_radius_and_public(data):
    X, y = data
    for rho in (0.01, 1.0):
        std = np.sqrt(
            1 / (2 * rho / 2)
        )  # in unit rows, where the sensitivity is 1 and the share one half
        expected = LeastSquares(
            ZCDP(rho), CLASSES, ridge=noise_radius(std, 16) / 2, random_state=3
        ).fit(X, y)
        assert np.allclose(
            LeastSquares(ZCDP(rho), CLASSES, random_state=3).fit(X, y).coef_,
            expected.coef_,
        )


def test_the_noise_radius_is_about_the_largest_eigenvalue_of_the_noise():
    dim = 200
    mechanism = SymmetricRoundedGaussian.within(ZCDP(0.5), Fraction(10**8))
    noise = mechanism.release(np.zeros((dim, dim), np.int64), randomness(0))
    assert np.linalg.eigvalsh(noise)[-1] == pytest.approx(
        noise_radius(mechanism.noise_std, dim), rel=0.05
    )


@pytest.mark.parametrize("class_grams", [False, True])
@pytest.mark.parametrize("budget", [GaussianDP(0.8), ZCDP(0.3), ApproxDP(1.0, 1e-6)])
def test_the_statement_lists_every_release_within_the_budget(data, class_grams, budget):
    X, y = data
    model = LeastSquares(budget, CLASSES, class_grams=class_grams, random_state=0).fit(
        X, y
    )
    releases = model.guarantee_.releases
    assert [release.norm for release in releases] == ["l2", "frobenius", "frobenius"][
        : 2 + class_grams
    ]
    assert covers(budget, [Cost.from_dict(release.cost) for release in releases])
    first, *others = [release.cost["mu"] for release in releases]
    assert others == pytest.approx([first] * len(others))
    s = model.lattice_.scale
    assert [release.sensitivity for release in releases] == pytest.approx(
        [s, s**2, s**2][: 2 + class_grams]
    )


@pytest.mark.parametrize("options", [{"ridge": 0.0}, {"alpha": -1.0}])
def test_parameters_are_checked(data, options):
    with pytest.raises(ParameterError, match="must be"):
        LeastSquares(ZCDP(1.0), CLASSES, **options).fit(*data)
