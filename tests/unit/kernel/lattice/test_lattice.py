from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import _parts, _signs, rotate, round_within

any_float = st.floats(width=64, allow_nan=True, allow_infinity=True)
embeddings = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 7), st.integers(1, 40)),
    elements=st.one_of(any_float, st.floats(-1, 1), st.just(0.0)),
)


def variants(n_features):
    """Every kind of public map for this width."""
    center = np.linspace(-0.3, 0.2, n_features)
    return [
        Lattice(n_features),
        Lattice(n_features, center=center),
        Lattice(n_features, pool=min(3, n_features)),
        Lattice(n_features, rotation=7),
        Lattice(n_features, center=center, pool=min(2, n_features), rotation=1),
    ]


@pytest.mark.slow
@given(embeddings)
def test_no_row_is_longer_than_the_scale(X):
    for lattice in variants(X.shape[1]):
        q = lattice.transform(X).astype(int)
        assert np.abs(q).max() <= 127
        assert all(
            Fraction(int(norm)) <= Fraction(127**2 * lattice.dim, 16)
            for norm in (q**2).sum(axis=1)
        )


@pytest.mark.slow
@given(embeddings, st.randoms(use_true_random=False))
def test_a_row_is_mapped_the_same_in_any_company(X, random):
    for lattice in variants(X.shape[1]):
        together = lattice.transform(X)
        order = random.sample(range(len(X)), len(X))
        assert (lattice.transform(X[order]) == together[order]).all()
        assert (lattice.transform(np.asfortranarray(X)) == together).all()
        for row, expected in zip(X, together, strict=True):
            assert (lattice.transform(row[None]) == expected).all()


def test_a_row_is_mapped_the_same_in_large_blocks():
    X = np.random.default_rng(0).normal(size=(3001, 384)).astype(np.float32)
    for lattice in variants(384):
        together = lattice.transform(X)
        picked = [0, 169, 170, 171, 1500, 3000]
        assert (lattice.transform(X[picked]) == together[picked]).all()
        assert (np.concatenate(list(lattice.blocks(X, 77))) == together).all()


def test_the_company_test_notices_a_map_that_looks_at_the_batch():
    class BatchScaled(Lattice):
        def transform(self, X):
            return super().transform(X - np.mean(X, axis=0))

    X = np.random.default_rng(1).normal(size=(5, 16))
    lattice = BatchScaled(16)
    assert not (lattice.transform(X[:1]) == lattice.transform(X)[:1]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_damaged_row_becomes_zero_without_a_word(bad, recwarn):
    X = np.random.default_rng(2).normal(size=(4, 8))
    whole = Lattice(8).transform(X)
    X[1, 3] = bad
    X[2] = 0.0
    q = Lattice(8).transform(X)
    assert not q[1:3].any()
    assert (q[[0, 3]] == whole[[0, 3]]).all()
    assert not recwarn.list


@pytest.mark.parametrize("scale", [1e-310, 1e-30, 1e30, 1e300])
def test_length_does_not_matter_even_where_squares_overflow(scale):
    X = np.random.default_rng(3).normal(size=(20, 64))
    close = Lattice(64).transform(X * scale).astype(int) - Lattice(64).transform(X)
    assert np.abs(close).max() <= 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_number_gives_the_same_row_in_every_precision_that_holds_it(dtype):
    X = np.random.default_rng(4).normal(size=(50, 96)).astype(np.float16)
    assert (
        Lattice(96).transform(X.astype(dtype))
        == Lattice(96).transform(X.astype(np.float64))
    ).all()


def test_similarities_are_those_of_the_embeddings():
    X = np.random.default_rng(5).normal(size=(200, 384))
    lattice = Lattice(384)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    q = lattice.transform(X) / lattice.scale
    error = q @ q.T - unit @ unit.T
    # Rounding each coordinate by at most half a step: about 8e-4 rms for 384
    # dimensions, plus the shrinking.
    assert np.sqrt(np.mean(error**2)) < 1.2e-3
    assert np.abs(np.sum(q**2, axis=1) - 1).max() < 0.02


def test_int8_rows_pass_unless_they_are_too_long():
    lattice = Lattice(32)
    q = lattice.transform(np.random.default_rng(6).normal(size=(9, 32)))
    assert (lattice.transform(q) == q).all()
    long = np.full((1, 32), -128, np.int8)
    shrunk = lattice.transform(long).astype(int)
    assert 0 < (shrunk**2).sum() <= lattice.squared_norm
    # -128 is no number of the lattice, whatever the norm; the rows beside stay what
    # they are.
    one = -128 * np.eye(1, 32, dtype=np.int8)
    mapped = lattice.transform(np.concatenate([q, one, long]))
    assert (
        mapped == np.concatenate([q, -127 * np.eye(1, 32, dtype=np.int8), shrunk])
    ).all()


def test_rows_that_grow_after_their_check_were_copied_before():
    """As those of a memory map may, which another process writes to."""
    lattice = Lattice(32)
    rows = lattice.transform(np.random.default_rng(6).normal(size=(9, 32)))
    checked = lattice._bounded(rows)
    rows[:] = 127
    assert ((checked.astype(int) ** 2).sum(axis=1) <= lattice.squared_norm).all()


def test_int8_rows_are_directions_where_the_map_does_more_than_normalise():
    q = Lattice(32).transform(np.random.default_rng(6).normal(size=(9, 32)))
    for lattice in (
        Lattice(32, pool=2),
        Lattice(32, rotation=1),
        Lattice(32, center=np.full(32, 0.1)),
    ):
        assert (lattice.transform(q) == lattice.transform(q.astype(np.float64))).all()
        assert (lattice.features(q) == lattice.features(q.astype(np.float64))).all()


def test_rotation_is_orthogonal_and_fixed_for_ever():
    for width in (1, 2, 3, 11, 12, 45, 64, 80, 100):
        matrix = rotate(np.eye(width), 5)
        assert np.allclose(matrix @ matrix.T, np.eye(width), atol=1e-12)
    # A saved model names its rotation by the seed, so these numbers must never change.
    for width, expected in ROTATED.items():
        assert np.allclose(rotate(np.eye(width)[:1], 5)[0], expected, atol=1e-12)
    assert not np.allclose(rotate(np.eye(3)[:1], 6)[0], ROTATED[3])


# One round over 3 parts of one coordinate, and three over 10 of 11 coordinates, as 5
# parts of two.
ROTATED = {
    3: [1 / 3, -2 / 3, -2 / 3],
    11: [
        -0.3129360748631,
        0.2584062043357,
        0.3264751801065,
        0.1907106781187,
        -0.0270782104868,
        0.1765685424949,
        -0.0270782104868,
        -0.1628427124746,
        0.6800285706997,
        0.2614213562373,
        -0.32,
    ],
}


def rotated_number_by_number(
    row, seed, halves=lambda width: [1 << k for k in range(width.bit_length() - 1)]
):
    """The rotation of one row in Python floats: sums and differences of neighbours first, of halves last."""
    signs, row, (parts, width) = (
        _signs(seed, len(row)).tolist(),
        row.tolist(),
        _parts(len(row)),
    )
    for turn, sign in enumerate(signs):
        row = [value * s for value, s in zip(row, sign, strict=True)]
        first = len(row) - parts * width if turn % 2 else 0
        for i in range(first, first + width):
            mean = 0.0
            for k in range(i, i + parts * width, width):
                mean += row[k]
            mean *= 2.0 / parts
            if parts > 1:
                row[i : i + parts * width : width] = [
                    value - mean for value in row[i : i + parts * width : width]
                ]
        for start in range(first, first + parts * width, width):
            part = row[start : start + width]
            for half in halves(width):
                part = [
                    part[i - half] - part[i] if i & half else part[i] + part[i + half]
                    for i in range(width)
                ]
            row[start : start + width] = [value * (1 / width**0.5) for value in part]
    return row


@pytest.mark.parametrize("width", [1, 2, 3, 12, 64, 80, 100])
def test_rotation_gives_the_same_bits_whatever_it_does_faster(width):
    """A lattice row may hang on the last bit, and the models that were fitted on it."""
    rows = np.random.default_rng(9).normal(size=(3, width)) * np.array(
        [[1.0], [1e-200], [1e100]]
    )
    given = rows.copy()
    for matrix in (rows, np.asfortranarray(rows)):
        assert rotate(matrix, 5).tolist() == [
            rotated_number_by_number(row, 5) for row in rows
        ]
        assert rotate(matrix[1:2], 5).tolist() == rotate(matrix, 5)[1:2].tolist()
    assert (rows == given).all()
    assert rotate(rows[:0], 5).shape == (0, width)
    if width > 12:  # another order of the sums is noticed
        other = [
            rotated_number_by_number(
                row, 5, lambda width: [width >> k for k in range(1, width.bit_length())]
            )
            for row in rows
        ]
        assert np.allclose(rotate(rows, 5), other, rtol=1e-9)
        assert rotate(rows, 5).tolist() != other


def lost_energy(rows):
    """The share of the energy of each row of length 1 that rounding to the lattice cuts off."""
    return np.square(np.maximum(np.abs(rows) - 4 / rows.shape[1] ** 0.5, 0)).sum(axis=1)


def rows_with_few_coordinates(n_features, rng):
    """The first and the last coordinate alone, and 1, 3 and 10 others that are alike."""
    rows = np.zeros((8, n_features))
    for row, count in zip(rows, (1, 1, 1, 3, 3, 3, 10, 10), strict=True):
        row[rng.choice(n_features, min(count, n_features), replace=False)] = rng.choice(
            [-1, 1]
        )
    rows[:2] = np.eye(n_features)[[0, -1]]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.slow
def test_rotation_spreads_few_coordinates_over_all(monkeypatch):
    """Three rounds over powers of two alone cut off up to 0.8 % of such rows, of all widths, and 2e-5 on average."""
    rng = np.random.default_rng(0)
    widths = [*range(2, 400), *range(400, 4097, 29), 4096]
    lost = [lost_energy(rotate(rows_with_few_coordinates(d, rng), 0)) for d in widths]
    assert np.max(lost) < 0.005
    assert np.mean(lost) < 2e-5
    # One round over a power of two leaves what is past it as it was.
    module = "dppl.kernel.lattice.lattice"
    monkeypatch.setattr(f"{module}._parts", lambda d: (1, 1 << d.bit_length() - 1))
    monkeypatch.setattr(f"{module}._signs", lambda seed, d: np.ones((1, d)))
    assert (
        max(
            lost_energy(rotate(rows_with_few_coordinates(d, rng), 0)).max()
            for d in (96, 384, 768)
        )
        > 0.5
    )


@pytest.mark.parametrize(
    "width", [192, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096]
)
def test_widths_of_encoders_need_one_round(width):
    assert len(_signs(0, width)) == 1
    assert len(_signs(0, width + 1)) == 3


def test_rotation_saves_rows_with_a_few_huge_coordinates():
    X = np.random.default_rng(7).normal(size=(100, 256))
    assert not Lattice(256).loses_much(X)
    X[:, :3] += 40
    assert Lattice(256).loses_much(X)
    assert not Lattice(256, rotation=0).loses_much(X)


def test_center_and_pool_do_what_they_say():
    X = np.random.default_rng(8).normal(size=(6, 12)) + 2
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    center = unit.mean(axis=0)
    expected = (unit - center).reshape(6, 4, 3).mean(axis=2)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(
        Lattice(12, center=center, pool=3).features(X), expected, atol=1e-6
    )
    assert Lattice(14, pool=3).dim == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features"),
        ({"n_features": 4, "pool": 5}, "at most the number of features, 4"),
        ({"n_features": 4, "pool": 0}, "pool"),
        ({"n_features": 4, "rotation": "x"}, "rotation"),
        ({"n_features": 4, "center": [1, 2]}, "center must be 4 finite numbers"),
        ({"n_features": 2, "center": [1, np.nan]}, "center must be 2 finite numbers"),
    ],
)
def test_parameters_are_checked(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Lattice(**arguments)


@pytest.mark.parametrize("X", [np.ones(4), np.ones((2, 5)), np.ones((2, 4, 1))])
def test_rows_of_another_shape_are_refused(X):
    with pytest.raises(InputError, match=r"shape \(n, 4\)"):
        Lattice(4).transform(X)


@pytest.mark.slow
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.integers(1, 8)),
        elements=st.floats(-1e5, 1e5),
    ),
    st.fractions(Fraction(1, 16), Fraction(10**8), max_denominator=16),
)
@settings(max_examples=200)
def test_rounding_never_leaves_the_ball_nor_the_side_of_zero(steps, squared_norm):
    q = round_within(steps, squared_norm)
    assert (q == np.rint(q)).all()
    assert all(Fraction(float(norm)) <= squared_norm for norm in (q**2).sum(axis=1))
    assert (q * steps >= 0).all()
    assert (np.abs(q) <= np.abs(np.rint(steps))).all()
