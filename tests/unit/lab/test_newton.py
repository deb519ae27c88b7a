import numpy as np
import pytest
from scipy.special import softmax

from dppl import ZCDP
from dppl.errors import ParameterError
from dppl.io import load_sample
from dppl.kernel.lattice import Lattice
from dppl.lab import Newton

CLASSES = list("abcd")
NO_NOISE = ZCDP(4e15)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 8))
    y = rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    return centers[y] + 1.5 * rng.normal(size=(300, 8)), np.array(CLASSES)[y]


def unit_lattice_rows(X):
    lattice = Lattice(X.shape[1])
    return lattice.transform(X) / lattice.scale


def gradient(u, onehot, coef):
    """Return the sum of the residuals' products with rows, where none counts as longer than 1."""
    residuals = onehot - softmax(u @ coef.T, axis=1)
    return (
        residuals / np.maximum(1, np.linalg.norm(residuals, axis=1, keepdims=True))
    ).T @ u


def newton_steps(X, y, steps, ridge, curvature):
    u = unit_lattice_rows(X)
    onehot = (y[:, None] == CLASSES).astype(float)
    coef = np.zeros((4, X.shape[1]))
    for _ in range(steps):
        p = softmax(u @ coef.T, axis=1)
        descent = gradient(u, onehot, coef)
        for c in range(4):
            hessian = (u * curvature(p[:, c])[:, None]).T @ u
            coef[c] += np.linalg.solve(
                hessian + ridge * np.eye(len(hessian)), descent[c]
            )
    return coef


def test_without_noise_it_takes_newton_steps_with_the_hessian_of_each_class(data):
    """Within the float32 softmax and its grids; the plain Gram matrix differs by more."""
    X, y = data
    model = Newton(NO_NOISE, CLASSES, steps=4, ridge=1.0, random_state=0).fit(X, y)
    assert np.allclose(
        model.coef_,
        newton_steps(X, y, 4, 1.0, lambda p: p * (1 - p)),
        rtol=0,
        atol=1e-3,
    )
    assert not np.allclose(
        model.coef_, newton_steps(X, y, 4, 1.0, lambda p: p), rtol=0, atol=1e-2
    )


def test_without_noise_it_finds_the_optimum_where_the_gradient_vanishes(data):
    X, y = data
    model = Newton(NO_NOISE, CLASSES, steps=60, ridge=1.0, random_state=0).fit(X, y)
    u = unit_lattice_rows(X)
    onehot = (y[:, None] == CLASSES).astype(float)
    assert np.abs(gradient(u, onehot, model.coef_)).max() < 1e-2
    start = Newton(NO_NOISE, CLASSES, steps=1, ridge=1.0, random_state=0).fit(X, y)
    assert np.abs(gradient(u, onehot, start.coef_)).max() > 1


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "steps"), [(0.5, 3), (50.0, 8), (1e8, 1), (1e8, 8)])
def test_the_default_damping_keeps_steps_in_bounds(rho, steps):
    """Seeded; without the floor of the ridge, the largest budgets end at an accuracy below one half."""
    sample = load_sample()
    model = Newton(ZCDP(rho), sample.classes, steps=steps, random_state=0).fit(
        sample.X, sample.y
    )
    assert model.score(sample.X_test, sample.y_test) > 0.9


def test_the_shares_of_the_budget(data):
    model = Newton(ZCDP(2.0), CLASSES, share=0.3, steps=5, random_state=0).fit(*data)
    hessians, gradients = model.guarantee_.releases
    assert (hessians.cost["rho"], gradients.cost["rho"]) == (
        pytest.approx(0.6),
        pytest.approx(1.4),
    )
    for release, rho in ((hessians, 0.6), (gradients, 1.4)):
        assert release.times == 5
        assert release.parameters["noise_std"] / release.sensitivity == pytest.approx(
            np.sqrt(5 / (2 * rho))
        )
    assert hessians.parameters["off_diagonal_noise_std"] == pytest.approx(
        hessians.parameters["noise_std"] / np.sqrt(2)
    )


def test_the_sensitivities_are_those_of_the_longest_row_and_residual(data):
    model = Newton(ZCDP(1.0), CLASSES, random_state=0).fit(*data)
    hessians, gradients = model.guarantee_.releases
    s = model.lattice_.scale
    assert hessians.sensitivity == pytest.approx(2**20 * s**2 * np.sqrt(4 / 27))
    assert gradients.sensitivity == pytest.approx(2**20 * s)


@pytest.mark.parametrize(
    "option", [{"steps": 0}, {"learning_rate": 0.0}, {"share": 0.0}, {"ridge": -1.0}]
)
def test_parameters_are_checked(data, option):
    with pytest.raises(ParameterError, match=f"{next(iter(option))} must"):
        Newton(ZCDP(1.0), CLASSES, **option).fit(*data)
