from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax

from dppl.kernel.lattice import Lattice, curvatures, iter_blocks, kernels, residuals
from dppl.kernel.lattice.curvatures import curvature_sums
from dppl.kernel.lattice.kernels import gram_matrices
from dppl.kernel.queries import SoftmaxCurvatures

DIM = 5
rows_of_floats = hnp.arrays(
    np.float64,
    DIM,
    elements=st.one_of(
        st.floats(-2, 2), st.sampled_from([0.0, 1e300, -1e300, np.nan, np.inf])
    ),
)


def naive(q, codes, n_classes):
    wide = [q[codes == code].astype(np.int64) for code in range(n_classes)]
    return np.stack([part.T @ part for part in wide])


@pytest.mark.slow
@given(
    st.integers(0, 2**32),
    st.integers(0, 300),
    st.integers(1, 5),
    st.sampled_from([1, 5, 40]),
)
@settings(max_examples=50)
def test_grams_equal_integer_arithmetic(seed, n, n_classes, dim):
    rng = np.random.default_rng(seed)
    q = rng.integers(-127, 128, (n, dim)).astype(np.int8)
    codes = rng.integers(-1, n_classes, n)
    expected = naive(q, codes, n_classes)
    for size in (1, 64, 4096):
        assert (
            gram_matrices(iter_blocks(q, size), codes, n_classes, dim) == expected
        ).all()


def test_products_of_the_largest_numbers_stay_exact_through_the_blocks_of_a_fit():
    """Partial sums reach just below 2²⁴; blocks of an odd length, so that no rounding hides in powers of two."""
    q = np.full((20_475, 2), 127, np.int8)
    codes = np.zeros(len(q), np.intp)
    (total,) = gram_matrices(iter_blocks(q, 4095), codes, 1, 2)
    assert total.tolist() == [[20_475 * 127**2] * 2] * 2


def test_the_equality_test_notices_sums_of_too_many_rows(monkeypatch):
    monkeypatch.setattr(kernels, "_GRAM_ROWS", 4096)
    with pytest.raises(AssertionError):
        test_products_of_the_largest_numbers_stay_exact_through_the_blocks_of_a_fit()


@pytest.mark.slow
@given(hnp.arrays(np.float64, (3, DIM), elements=st.floats(-2, 2)), rows_of_floats)
@settings(max_examples=150)
def test_one_row_moves_the_grams_by_at_most_its_squared_norm(X, row):
    for options in ({}, {"pool": 2}, {"rotation": 1}, {"center": np.full(DIM, 0.3)}):
        lattice = Lattice(DIM, **options)
        codes = np.array([0, 1, 1, 0])
        both = [
            gram_matrices(lattice.blocks(data), codes[: len(data)], 2, lattice.dim)
            for data in (np.concatenate([X, row[None]]), X)
        ]
        difference = both[0] - both[1]
        q = lattice.transform(row[None])[0].astype(np.int64)
        assert (
            Fraction(int((difference**2).sum()))
            == int(q @ q) ** 2
            <= lattice.squared_norm**2
        )


@pytest.mark.slow
@given(rows_of_floats, rows_of_floats, st.integers(0, 1))
@settings(max_examples=150)
def test_a_replaced_row_moves_the_grams_by_root_two_squared_norms(row, other, code):
    """The product of q qᵀ and p pᵀ is (q·p)², never negative, so the squares of two changes add up at most."""
    lattice = Lattice(DIM)
    one, two = (
        gram_matrices(lattice.blocks(data[None], 1), np.array([c]), 2, DIM)
        for data, c in ((row, 0), (other, code))
    )
    assert Fraction(int(((one - two) ** 2).sum())) <= 2 * lattice.squared_norm**2


def test_the_bound_of_a_replacement_is_reached_up_to_rounding():
    lattice = Lattice(64)
    signs = np.ones(64)
    other = np.tile([1.0, -1.0], 32)
    one, two = (
        gram_matrices(lattice.blocks(row[None], 1), np.array([0]), 1, 64)
        for row in (signs, other)
    )
    assert int(((one - two) ** 2).sum()) > 0.9 * 2 * lattice.squared_norm**2


def problem(seed, n, dim, n_classes, size=3.0):
    rng = np.random.default_rng(seed)
    lattice = Lattice(dim)
    rows = lattice.transform(rng.normal(size=(n, dim)))
    return (
        lattice,
        rows,
        rng.integers(-1, n_classes, n),
        rng.normal(size=(n_classes, dim)) * size,
    )


@pytest.mark.parametrize("n_classes", [1, 2, 7])
def test_curvatures_are_the_blocks_of_the_softmax_hessian(n_classes):
    """Up to the grid: float32 probabilities are within 1e-5, and the loss of a wrong weight would be far larger."""
    lattice, rows, codes, weights = problem(0, 200, 6, n_classes)
    total = curvature_sums(lattice, [rows], codes, weights) / (
        residuals.RESOLUTION * float(lattice.squared_norm)
    )
    u = rows[codes >= 0] / lattice.scale
    p = softmax(u @ weights.T, axis=1)
    expected = np.einsum("nc,ni,nj->cij", p * (1 - p), u, u)
    assert np.allclose(total, expected, atol=200 * 1e-4)
    assert np.allclose(total, total.transpose(0, 2, 1))
    if n_classes > 1:
        assert not np.allclose(
            total, np.einsum("nc,ni,nj->cij", p, u, u), atol=200 * 1e-4
        )


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_curvatures_do_not_depend_on_blocks_or_the_order_of_records(size):
    lattice, rows, codes, weights = problem(1, 300, 9, 4)
    expected = curvature_sums(lattice, [rows], codes, weights)
    order = np.random.default_rng(0).permutation(len(rows))
    assert (
        curvature_sums(lattice, iter_blocks(rows, size), codes, weights) == expected
    ).all()
    assert (
        curvature_sums(lattice, iter_blocks(rows[order], size), codes[order], weights)
        == expected
    ).all()


def test_curvatures_of_many_equal_rows_stay_exact():
    lattice = Lattice(2)
    rows = np.repeat(lattice.transform([[1.0, 0.2]]), 5000, axis=0)
    codes = np.zeros(len(rows), np.intp)
    weights = np.array([[0.3, 0.1], [-0.2, 0.5]])
    assert (
        curvature_sums(lattice, [rows], codes, weights)
        == 5000 * curvature_sums(lattice, [rows[:1]], codes[:1], weights)
    ).all()


@pytest.mark.slow
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.1, 3.0, 1e3, 2.0**60]),
    rows_of_floats,
    rows_of_floats,
)
@settings(max_examples=200)
def test_one_record_moves_the_curvatures_by_the_stated_sensitivity_at_most(
    seed, n_classes, size, row, other
):
    rng = np.random.default_rng(seed)
    lattice = Lattice(DIM)
    weights = rng.normal(size=(n_classes, DIM)) * size
    bound = SoftmaxCurvatures(lattice, n_classes).squared_norm
    one, two = (
        curvature_sums(
            lattice, lattice.blocks(x[None], 1), rng.integers(0, n_classes, 1), weights
        ).astype(object)
        for x in (row, other)
    )
    assert (one**2).sum() <= bound
    assert ((one - two) ** 2).sum() <= 2 * bound


def test_the_bound_on_curvatures_is_reached_where_three_classes_are_equally_likely():
    lattice = Lattice(64)
    q = lattice.transform(np.ones((1, 64)))
    total = curvature_sums(lattice, [q], np.array([0]), np.zeros((3, 64))).astype(
        object
    )
    bound = SoftmaxCurvatures(lattice, 3).squared_norm
    assert 0.9 * bound < (total**2).sum() <= bound


def test_probabilities_that_break_the_bound_count_for_nothing():
    """The check does not rest on the softmax: halves for four classes are no probabilities."""
    good = curvatures._curvatures_on_grid(
        np.array([[0.5, -0.5, 0.0, 0.0]], np.float32).T
    )
    bad = curvatures._curvatures_on_grid(np.full((4, 1), 0.5, np.float32))
    assert good.any()
    assert not bad.any()
    assert not curvatures._curvatures_on_grid(np.full((4, 1), np.nan, np.float32)).any()
