import numpy as np
import pytest
from scipy.special import softmax

from dppl import ZCDP
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.lab import FeatureCovariance, LeastSquares

CLASSES = list("abcd")
NO_NOISE = ZCDP(4e15)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 16))
    y = rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    return centers[y] + 1.0 * rng.normal(size=(300, 16)), np.array(CLASSES)[y]


def unit_lattice_rows(X):
    lattice = Lattice(X.shape[1])
    return lattice.transform(X) / lattice.scale


def loss(coef, u, onehot):
    return -np.log((softmax(u @ coef.T, axis=1) * onehot).sum(axis=1)).sum()


@pytest.mark.parametrize("learning_rate", [1.0, 4.0])
def test_without_noise_it_follows_the_preconditioned_gradient(data, learning_rate):
    """Within the float32 softmax and its grid, 1e-5 a record; another metric, clip or rate differs by far more."""
    X, y = data
    model = FeatureCovariance(
        NO_NOISE,
        CLASSES,
        steps=3,
        learning_rate=learning_rate,
        ridge=2.0,
        random_state=0,
    ).fit(X, y)
    u = unit_lattice_rows(X)
    onehot = (y[:, None] == CLASSES).astype(float)
    coef = np.zeros((4, 16))
    for _ in range(3):
        residual = onehot - softmax(u @ coef.T, axis=1)
        residual *= np.minimum(1, 1 / np.linalg.norm(residual, axis=1, keepdims=True))
        coef += (
            learning_rate
            * np.linalg.solve(u.T @ u + 2.0 * np.eye(16), (residual.T @ u).T).T
        )
    assert np.allclose(model.coef_, coef, rtol=0, atol=1e-3)
    other = FeatureCovariance(
        NO_NOISE,
        CLASSES,
        steps=3,
        learning_rate=learning_rate,
        ridge=2.2,
        random_state=0,
    )
    assert not np.allclose(other.fit(X, y).coef_, coef, rtol=0, atol=1e-3)


def test_steps_of_the_default_length_lower_the_loss_at_any_budget_that_is_large_enough(
    data,
):
    X, y = data
    u = unit_lattice_rows(X)
    onehot = (y[:, None] == CLASSES).astype(float)
    losses = [
        loss(
            FeatureCovariance(ZCDP(1e10), CLASSES, steps=steps, random_state=0)
            .fit(X, y)
            .coef_,
            u,
            onehot,
        )
        for steps in (1, 2, 4, 8, 16, 32)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * loss(np.zeros((4, 16)), u, onehot)


def test_it_is_ahead_of_least_squares_where_the_budget_is_generous(data):
    """Softmax regression fits these classes better; both runs are seeded."""
    X, y = data
    model = FeatureCovariance(ZCDP(1e4), CLASSES, steps=30, random_state=0).fit(X, y)
    assert model.score(X, y) > LeastSquares(ZCDP(1e4), CLASSES, random_state=0).fit(
        X, y
    ).score(X, y)


def test_the_shares_of_the_budget(data):
    X, y = data
    model = FeatureCovariance(
        ZCDP(2.0), CLASSES, share=0.3, steps=5, random_state=0
    ).fit(X, y)
    gram, gradients = model.guarantee_.releases
    assert (gram.cost["rho"], gradients.cost["rho"]) == (
        pytest.approx(0.6),
        pytest.approx(1.4),
    )
    assert gradients.times == 5
    s = model.lattice_.scale
    assert gram.parameters["noise_std"] == pytest.approx(s**2 / np.sqrt(2 * 0.6))
    assert gradients.parameters["noise_std"] / gradients.sensitivity == pytest.approx(
        np.sqrt(5 / (2 * 1.4))
    )


def test_the_sensitivities_are_those_of_the_longest_row_and_residual(data):
    model = FeatureCovariance(ZCDP(1.0), CLASSES, random_state=0).fit(*data)
    gram, gradients = model.guarantee_.releases
    assert gram.sensitivity == pytest.approx(model.lattice_.scale**2)
    assert gradients.sensitivity == pytest.approx(2**20 * model.lattice_.scale)


@pytest.mark.parametrize(
    "option", [{"steps": 0}, {"learning_rate": 0.0}, {"share": 1.0}, {"ridge": -1.0}]
)
def test_parameters_are_checked(data, option):
    with pytest.raises(ParameterError, match=f"{next(iter(option))} must"):
        FeatureCovariance(ZCDP(1.0), CLASSES, **option).fit(*data)
