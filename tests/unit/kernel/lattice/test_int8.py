"""Products through int8 kernels give the bits of the others. Where torch is missing, a stand-in takes its place."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dppl.kernel.lattice import Lattice, int8, iter_blocks, kernels
from dppl.kernel.lattice.kernels import SimilarityClip, utilities
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.lattice.stream import one_thread_each
from loops import loop

STAND_IN = SimpleNamespace(
    from_numpy=lambda array: array,
    _int_mm=lambda left, right, out: np.matmul(left.astype(np.int32), right.astype(np.int32), out=out),
    get_num_threads=lambda: 1,
    set_num_threads=lambda n: None,
    Tensor=type("Tensor", (), {}),
)


@pytest.fixture(scope="module", autouse=True)
def torch():
    try:
        import torch
    except ImportError:
        torch = STAND_IN
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        yield torch


@pytest.fixture(params=[False, True], ids=["BLAS", "int8"])
def path(request, monkeypatch):
    monkeypatch.setattr(int8, "int8_pays", lambda work: request.param)


def choose(monkeypatch, answer):
    monkeypatch.setattr(int8, "int8_pays", lambda work: answer)


shapes = st.tuples(st.integers(1, 70), st.integers(1, 200), st.integers(1, 70))


@given(st.integers(0, 2**32), shapes, st.booleans(), st.booleans())
def test_products_equal_integer_arithmetic(seed, shape, largest, writeable):
    rng = np.random.default_rng(seed)
    (n, k, m), pick = shape, np.int8([-128, 127]) if largest else np.arange(-128, 128).astype(np.int8)
    left, right = rng.choice(pick, (n, k)), rng.choice(pick, (m, k))
    right.flags.writeable = writeable
    assert (int8.multiply(left, right.T) == left.astype(np.int64) @ right.T.astype(np.int64)).all()


@pytest.mark.parametrize("shape", [(5, 1, 65), (1, 1, 16), (1, 9, 1), (4, 8, 1), (1, 30, 20), (3, 0, 2)])
def test_torch_is_not_asked_for_shapes_that_it_gets_wrong(shape):
    rng = np.random.default_rng(0)
    left, right = rng.integers(-128, 128, shape[:2]), rng.integers(-128, 128, shape[:0:-1]).T
    out = np.full((shape[0], shape[2]), 7, np.int32)
    assert (int8.multiply(left.astype(np.int8), right.astype(np.int8), out) == left @ right).all()


def test_a_kernel_that_refuses_without_a_word_is_noticed(torch, monkeypatch):
    """Two in a row: what the first product left is what the second would be taken for."""
    rng = np.random.default_rng(0)
    out = np.empty((4, 5), np.int32)
    left, right = rng.integers(-128, 128, (2, 4, 6)).astype(np.int8), rng.integers(-128, 128, (6, 5)).astype(np.int8)
    for rows in (left[0], left[1], left[1]):
        assert (int8.multiply(rows, right, out) == rows.astype(int) @ right.astype(int)).all()
        monkeypatch.setattr(torch, "_int_mm", lambda left, right, out: None)


@given(st.integers(1, 8_355_711), st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=9))
def test_limbs_give_the_integers_again(largest, values):
    integers = np.clip(np.array([[*values, -largest, largest]]), -largest, largest)
    split = int8.limbs(integers.astype(np.float32), largest)
    assert split.dtype == np.int8
    assert len(split) == 1 + (largest > 127) + (largest > 127 * 257)
    assert (sum(limb.astype(np.int64) * 256**i for i, limb in enumerate(split)) == integers).all()


def test_integers_of_four_limbs_are_refused():
    with pytest.raises(StopIteration):
        int8.limbs(np.zeros((1, 1)), 2**23)


@pytest.mark.parametrize("n", [1, 1024, 2**14])
def test_products_of_limbs_reach_their_largest_sums(n):
    """Every residual and every coordinate as large as it can be: a sum of 2.2e12, with limbs of either sign."""
    for value in (2**20, -(2**20), 2**20 - 1, 255, 128, -129):
        steps, rows = np.full((2, n), value), np.full((n, 3), 127, np.int8)
        total = int8.multiply_limbs(int8.limbs(steps, 2**20), rows, np.int64)
        assert total.dtype == np.int64
        assert (total == value * n * 127).all()


def problem(seed, n, dim, n_classes):
    rng = np.random.default_rng(seed)
    lattice = Lattice(dim)
    rows = lattice.transform(rng.normal(size=(n, dim)))
    return lattice, rows, rng.integers(-1, n_classes, n), 3 * rng.normal(size=(n_classes, dim)), rng


@pytest.mark.parametrize(("dim", "n_classes"), [(1, 1), (5, 2), (100, 16), (261, 3), (263, 3), (768, 77)])
def test_gradients_are_the_same(dim, n_classes, monkeypatch):
    """Weights have two limbs or three, on either side of 262 coordinates."""
    lattice, rows, codes, weights, rng = problem(dim, 333, dim, n_classes)
    offsets, gradient = rng.normal(size=n_classes), SoftmaxGradient(lattice, bias=37)
    results = []
    for answer in (False, True):
        choose(monkeypatch, answer)
        blocks = [rows[:0], *iter_blocks(rows, 50)]
        total = gradient.sum(blocks, codes, weights, offsets, clip=0.8)
        weighted = gradient.sum(blocks, codes, weights, of_records=np.arange(333) * 3000)
        results.append((total.tobytes(), weighted.tobytes(), total.dtype))
    assert results[0] == results[1]


def test_the_equality_notices_limbs_that_are_forgotten(monkeypatch):
    whole = int8.limbs
    monkeypatch.setattr(int8, "limbs", lambda integers, largest: whole(integers, largest)[:-1])
    with pytest.raises(AssertionError):
        test_gradients_are_the_same(100, 16, monkeypatch)


def naive(private, public, clip):
    public = public.astype(np.int64)
    return np.stack(
        [(np.clip(q.astype(np.int64) @ public.T, clip.low, clip.high) - clip.low).sum(axis=0) for q in private]
    )


@pytest.mark.slow
@loop("dim, sizes", [(1, (600, 3)), (3, (1, 0, 300)), (384, (0,)), (384, (600, 3)), (17_000, (1, 0, 60))])
def test_utilities_are_those_of_integer_arithmetic(dim, sizes, path):
    lattice, rows, *_ = problem(dim, sum(sizes) + 77, dim, 1)
    private, public = np.split(rows[77:], np.cumsum(sizes)[:-1]), rows[:77]
    square = int(lattice.squared_norm)
    for clip in (SimilarityClip(-square // 9, square // 3), SimilarityClip(-square, square - 1)):
        assert (utilities(private, iter_blocks(public, 30), 77, lattice, clip) == naive(private, public, clip)).all()


def check_long_sums(rows_at_once=None):
    lattice = Lattice(17_000)  # s² is 1.7e7, so that 2³¹ is reached by 126 equal rows
    row = lattice.transform(np.random.default_rng(0).normal(size=(1, 17_000)))
    private, clip = [np.repeat(row, 200, axis=0)], SimilarityClip(-int(lattice.squared_norm), 2**30)
    score = kernels._ClippedScore(private[0], np.array([200]), clip, np.int32)
    score.exact_rows = rows_at_once or kernels._ClippedScore(private[0], np.array([200]), clip, np.int32).exact_rows
    assert (score(row) == naive(private, row, clip)).all()


def test_sums_stay_below_what_int32_holds():
    check_long_sums()
    with pytest.raises(AssertionError):  # the control
        check_long_sums(rows_at_once=200)


@pytest.mark.parametrize("clip", [SimilarityClip(-(2**40), 5), SimilarityClip(0, 2**31)])
def test_bounds_beyond_int32_are_left_to_floats(clip, monkeypatch):
    choose(monkeypatch, True)
    lattice, rows, *_ = problem(0, 9, 3, 1)
    assert kernels._accumulator(lattice, clip, 1) is np.float32
    assert kernels._accumulator(lattice, SimilarityClip(0, 5), 1) is np.int32
    assert (utilities([rows], [rows], 9, lattice, clip) == naive([rows], rows, clip)).all()


class TestChoice:
    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch):
        monkeypatch.setattr(int8, "_work", 0)
        monkeypatch.setattr(int8, "_exact_and_fast", lambda: self.looked.append(1) or True)
        self.looked = []

    def test_little_work_is_not_worth_a_look(self):
        assert not int8.int8_pays(int8._WORTH_A_LOOK - 1)
        assert not self.looked
        assert int8.int8_pays(1)  # work adds up over calls

    def test_torch_is_imported_for_much_work_only(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "torch")
        with threadpool_limits(2):
            assert not int8.int8_pays(2 * int8._WORTH_AN_IMPORT - 1)
            assert not self.looked
            assert int8.int8_pays(1)


class TestLook:
    @pytest.fixture
    def kernel(self, torch, monkeypatch):
        """Replace torch's product by that of NumPy with a fault."""

        def replace(fault):
            def product(left, right, out):
                out = np.asarray(out)
                out[:] = fault(np.asarray(left).astype(np.int32) @ np.asarray(right).astype(np.int32))

            monkeypatch.setattr(torch, "_int_mm", product)

        return replace

    def look(self):
        before = one_thread_each.n_threads(), sys.modules["torch"].get_num_threads()
        found = int8._exact_and_fast.__wrapped__()
        assert (one_thread_each.n_threads(), sys.modules["torch"].get_num_threads()) == before
        return found

    @pytest.mark.parametrize(("seconds", "faster"), [((1.0, 1.1), False), ((1.0, 1.3), True)])
    def test_the_faster_one_is_taken(self, seconds, faster, monkeypatch):
        times = iter(seconds)
        monkeypatch.setattr(int8.timeit, "repeat", lambda run, **_: [next(times)])
        assert self.look() == faster

    def test_a_kernel_that_saturates_is_not_taken(self, kernel, monkeypatch):
        monkeypatch.setattr(int8, "_is_fast", lambda *shape: True)
        kernel(lambda product: np.clip(product, -(2**15), 2**15 - 1))
        assert not self.look()

    def test_a_torch_without_the_kernel_is_not_taken(self, torch, monkeypatch):
        monkeypatch.delattr(torch, "_int_mm")
        assert not self.look()

    def test_neither_is_a_damaged_one(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        assert not int8._exact_and_fast.__wrapped__()
