import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl.errors import InputError
from dppl.kernel.lattice import Lattice, iter_blocks, similarities, take_rows
from dppl.kernel.lattice.kernels import class_sums
from dppl.kernel.lattice.similarities import SimilarityClip, utilities


class Table:
    """A table that streams and cannot be indexed."""

    def __init__(self, rows, chunk):
        self._rows = rows
        self._chunk = chunk
        self.shape = rows.shape

    def blocks(self, size):
        yield from iter_blocks(self._rows, min(size, self._chunk))


def naive_utilities(private, public, clip):
    public = public.astype(np.int64)
    return np.stack(
        [
            (
                np.clip(q.astype(np.int64) @ public.T, clip.low, clip.high) - clip.low
            ).sum(axis=0)
            for q in private
        ]
    )


def lattice_rows(rng, n, lattice):
    return lattice.transform(
        rng.normal(size=(n, lattice.dim)) + rng.normal(size=lattice.dim)
    )


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60)
def test_utilities_equal_integer_arithmetic(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dim = data.draw(st.sampled_from([1, 3, 17, 384, 1280, 17_000]))
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=6))
    m = data.draw(st.integers(1, 50))
    lattice = Lattice(dim)
    private = [lattice_rows(rng, n, lattice) for n in sizes]
    public = lattice_rows(rng, m, lattice)
    square = int(lattice.squared_norm) + 1
    low = data.draw(st.integers(-square, square - 1))
    high = data.draw(st.integers(low + 1, square))
    block = data.draw(st.integers(1, 40))
    clips = [SimilarityClip(low, high), SimilarityClip(-square, square)]
    for clip in clips:
        expected = naive_utilities(private, public, clip)
        assert (
            utilities(private, lattice.blocks(public, block), m, lattice, clip)
            == expected
        ).all()
        assert expected.min() >= 0
        assert (expected.max(axis=1) <= np.array(sizes) * clip.sensitivity).all()


@pytest.mark.parametrize("rows", [1, 7, 64, 5000])
def test_the_block_size_does_not_show(rows, monkeypatch):
    rng = np.random.default_rng(0)
    lattice = Lattice(48)
    private = [lattice_rows(rng, n, lattice) for n in (70, 0, 3, 90)]
    public = lattice_rows(rng, 111, lattice)
    clip = SimilarityClip(
        int(0.1 * lattice.squared_norm), int(0.7 * lattice.squared_norm)
    )
    monkeypatch.setattr(
        similarities, "_TILES", dict.fromkeys(similarities._TILES, (rows, rows))
    )
    assert (
        utilities(private, lattice.blocks(public, 64), 111, lattice, clip)
        == naive_utilities(private, public, clip)
    ).all()


def test_both_paths_agree_where_nothing_is_clipped():
    rng = np.random.default_rng(1)
    lattice = Lattice(24)
    private = [lattice_rows(rng, n, lattice) for n in (30, 0, 11)]
    public = lattice_rows(rng, 40, lattice)
    square = int(lattice.squared_norm) + 1
    clip = SimilarityClip(-square, square)
    assert clip.touches_nothing(lattice)
    rows = np.concatenate(private)
    ends = np.cumsum([len(q) for q in private])
    linear = similarities._LinearScore(rows, ends, lattice, clip)(public)
    assert (
        linear == similarities._ClippedScore(rows, ends, clip, np.float32)(public)
    ).all()


def test_the_equality_test_notices_sums_of_too_many_rows(monkeypatch):
    """Adding more similarities in float32 than it holds exactly must show: the reason for short runs."""
    lattice = Lattice(384)
    private = [
        np.repeat(lattice_rows(np.random.default_rng(2), 1, lattice), 500, axis=0)
    ]
    clip = SimilarityClip(-int(lattice.squared_norm), int(lattice.squared_norm) - 1)
    score = similarities._ClippedScore(private[0], np.array([500]), clip, np.float32)
    exact = score(private[0][:1])
    assert (exact == naive_utilities(private, private[0][:1], clip)).all()
    score.exact_rows = 500
    assert (score(private[0][:1]) != exact).any()


@given(
    st.integers(0, 2**32),
    st.integers(0, 300),
    st.integers(1, 5),
    st.sampled_from([1, 5, 64]),
)
@settings(max_examples=50)
def test_class_sums_equal_integer_arithmetic(seed, n, n_classes, dim):
    rng = np.random.default_rng(seed)
    q = rng.integers(-127, 128, (n, dim)).astype(np.int8)
    codes = rng.integers(-1, n_classes, n)
    expected = np.stack(
        [q[codes == code].astype(np.int64).sum(axis=0) for code in range(n_classes)]
    )
    for size in (1, 64, 4096):
        assert (
            class_sums(iter_blocks(q, size), codes, n_classes, dim) == expected
        ).all()


def test_class_sums_of_the_longest_rows_are_exact():
    q = np.full((9000, 2), 127, np.int8)
    lattice = Lattice(2)
    assert class_sums(iter_blocks(q, 4096), np.zeros(9000, np.intp), 1, 2).tolist() == [
        [9000 * 127] * 2
    ]
    assert all(len(block) <= 2**24 // 127 for block in lattice.blocks(q))


def test_rows_are_taken_from_arrays_and_streams_alike():
    rows = np.random.default_rng(3).normal(size=(100, 4)).astype(np.float32)
    indices = np.array([99, 0, 5, 5, 42])
    for source in (rows, Table(rows, 9)):
        taken = take_rows(source, indices)
        assert taken.dtype == np.float32
        assert (taken == rows[indices]).all()
    assert take_rows(Table(rows[:0], 9), indices[:0]).shape == (0, 4)


@pytest.mark.parametrize(("n", "dim"), [(60, 384), (3, 16_700), (3, 16_600)])
def test_equal_longest_rows_reach_the_largest_sums_and_stay_exact(n, dim):
    """Every similarity is near s²: the case in which float32 runs out first, on either side of its limit."""
    lattice = Lattice(dim)
    row = lattice.transform(np.random.default_rng(4).normal(size=(1, dim)))
    private = [np.repeat(row, n, axis=0)]
    square = int(lattice.squared_norm) + 1
    for clip in (
        SimilarityClip(-square, square - 2),
        SimilarityClip(-square, square),
        SimilarityClip(0, square),
    ):
        assert (
            utilities(private, [row], 1, lattice, clip)
            == naive_utilities(private, row, clip)
        ).all()


def test_the_linear_path_is_exact_far_beyond_float32():
    """Sums of 30,000 equal rows times a row: 1.2e10, where float32 steps by 1024."""
    lattice = Lattice(384)
    row = lattice.transform(np.random.default_rng(5).normal(size=(1, 384)))
    private = [np.repeat(row, 30_001, axis=0)]
    square = int(lattice.squared_norm) + 1
    clip = SimilarityClip(-square, square)
    assert clip.touches_nothing(lattice)
    assert (
        utilities(private, [row], 1, lattice, clip)
        == naive_utilities(private, row, clip)
    ).all()


def test_the_linear_path_leaves_floats_before_they_fail():
    lattice = Lattice(4)
    square = int(lattice.squared_norm) + 1
    score = similarities._LinearScore(
        np.zeros((1, 4), np.int8),
        np.array([1]),
        lattice,
        SimilarityClip(-square, square),
    )
    assert score.sums.dtype == np.float64

    class Many(np.ndarray):
        """Pretends to have so many rows that their products pass 2⁵³."""

        def __len__(self):
            return 2**52

    many = np.zeros((1, 4), np.int8).view(Many)
    score = similarities._LinearScore(
        many, np.array([1]), lattice, SimilarityClip(-square, square)
    )
    assert score.sums.dtype == np.int64


def test_a_clip_that_touches_one_side_is_no_linear_case():
    lattice = Lattice(8)
    square = int(lattice.squared_norm) + 1
    opposite = (
        [lattice.transform(-np.ones((3, 8)))],
        [lattice.transform(np.ones((1, 8)))],
    )
    for clip in (SimilarityClip(0, square), SimilarityClip(-square, 0)):
        assert not clip.touches_nothing(lattice)
    assert utilities(*opposite, 1, lattice, SimilarityClip(0, square)).tolist() == [[0]]


def test_many_equal_rows_add_exactly_through_the_blocks_of_a_fit():
    q = np.full((600_000, 2), 31, np.int8)  # norm² 1922 of 2016
    sums = class_sums(Lattice(2).blocks(q), np.zeros(len(q), np.intp), 1, 2)
    assert sums.tolist() == [[600_000 * 31] * 2]


class Careless:
    """Streams as it likes, whatever it announced."""

    def __init__(self, shape, blocks):
        self.shape = shape
        self._blocks = blocks

    def blocks(self, size):
        yield from self._blocks


def test_larger_blocks_than_asked_for_are_cut():
    q = np.full((700_001, 2), 31, np.int8)
    sums = class_sums(
        Lattice(2).blocks(Careless(q.shape, [q])), np.zeros(len(q), np.intp), 1, 2
    )
    assert sums.tolist() == [[700_001 * 31] * 2]


@pytest.mark.parametrize(
    "blocks",
    [
        [np.zeros((3, 4))],
        [np.zeros((5, 4)), np.zeros((1, 4))],
        [np.zeros((5, 3))],
        [np.zeros((3, 4), np.float32), np.zeros((2, 4), np.int8)],
        [],
    ],
)
def test_a_table_that_breaks_its_word_is_refused(blocks):
    with pytest.raises(InputError, match="as many rows as its shape says"):
        list(iter_blocks(Careless((5, 4), blocks), 10))
