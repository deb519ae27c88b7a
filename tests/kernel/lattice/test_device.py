"""Kernels on tensors give the integers that those on arrays give. Devices that this machine lacks are left out."""

import numpy as np
import pytest

from dppl.kernel.lattice import (
    PUBLIC_ROWS,
    Lattice,
    SimilarityClip,
    TensorRows,
    class_sums,
    device,
    iter_blocks,
    lattice_blocks,
    sum_blocks,
    sums_and_grams,
    take_rows,
    tensors,
    usable_rows,
    utilities,
    weighted_sum,
)

torch = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SHAPES = [(0, 3, 2), (1, 1, 1), (1, 5, 9), (7, 30, 1), (16, 16, 8), (17, 8, 8), (25, 100, 33), (64, 768, 40)]
SIZES = [(0,), (1,), (0, 5, 0, 30, 0), (41, 1, 17), (3, 0, 200)]


@pytest.fixture(params=[(where, kind) for where in DEVICES for kind in ("int8", "float64")], ids="-".join)
def path(request, monkeypatch):
    """Put new tensors on a device, for both kinds of products; int8 ones that overflow there are not tried."""
    where, kind = request.param
    if kind == "float64":
        monkeypatch.setattr(device, "_int8_is_exact", lambda _: False)
    elif not device._int8_is_exact(torch.device(where)):
        pytest.skip("int8 products of this device are not exact")
    with torch.device(where):
        yield


@pytest.fixture
def here(monkeypatch):
    """Take this processor for a device that computes."""
    monkeypatch.setattr(tensors, "_LEFT_TO_NUMPY", ("mps",))


def problem(n, m, dim):
    rng = np.random.default_rng([n, m, dim])
    return rng.integers(-127, 128, (n, dim)).astype(np.int8), rng.integers(-127, 128, (m, dim)).astype(np.int8)


def exact_product(left, right):
    return left.astype(np.int64) @ right.astype(np.int64).T


def check_product(n, k, m):
    left, right = problem(n, m, k)
    found = device.product(torch.tensor(left), torch.tensor(right))
    assert found.dtype == torch.int32
    assert (found.cpu().numpy() == exact_product(left, right)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_exact(shape, path):
    check_product(*shape)


def test_products_of_rows_that_lie_otherwise_in_memory_are_exact(path):
    left, right = problem(30, 40, 32)
    wide, tall = torch.tensor(np.hstack([left, left])), torch.tensor(right.T.copy())
    assert (device.product(wide[:, :32], tall.T).cpu().numpy() == exact_product(left, right)).all()
    assert (device.product(wide[3:, 32:], tall.T[5:]).cpu().numpy() == exact_product(left[3:], right[5:])).all()


def as_cuda_takes_them(left, right):
    """Refuse what CUDA's int8 products refuse, or could for its place in memory."""
    assert left.shape[0] > 16
    assert left.shape[1] % 16 == 0 < left.shape[1]
    assert right.shape[1] % 8 == 0 < right.shape[1]
    assert left.is_contiguous()
    assert right.T.is_contiguous()
    return (left.double() @ right.double()).int()


@pytest.mark.parametrize("shape", [*SHAPES, (24, 0, 24)])
def test_products_are_asked_of_cuda_in_shapes_that_it_takes(shape, monkeypatch):
    monkeypatch.setattr(device, "_int8_is_exact", lambda _: True)
    monkeypatch.setattr(torch, "_int_mm", as_cuda_takes_them)
    check_product(*shape)


def short(left, right):
    """Add in int16, as processors without instructions for int8 do."""
    return (left.double() @ right.double()).long().to(torch.int16).int()


def missing(left, right):
    raise NotImplementedError("there are no int8 products on this device")


@pytest.mark.parametrize("kernel", [short, missing])
def test_int8_products_that_are_wrong_or_missing_are_not_used(kernel, monkeypatch):
    monkeypatch.setattr(torch, "_int_mm", kernel)
    device._int8_is_exact.cache_clear()
    try:
        assert not device._int8_is_exact(torch.device("cpu"))
        check_product(25, 100, 33)
    finally:
        device._int8_is_exact.cache_clear()


def test_the_equality_notices_products_that_overflow(monkeypatch):
    monkeypatch.setattr(device, "_int8_is_exact", lambda _: True)
    monkeypatch.setattr(torch, "_int_mm", short)
    with pytest.raises(AssertionError):
        check_product(64, 768, 40)


def split(rows, sizes):
    return list(torch.tensor(rows).split(list(sizes)))


@pytest.mark.parametrize("dim", [1, 3, 30, 384])
@pytest.mark.parametrize("sizes", SIZES)
def test_utilities_are_those_of_arrays(dim, sizes, path, monkeypatch):
    """Private rows on a device and public ones anywhere, or the other way round; several tiles and blocks."""
    lattice, rng = Lattice(dim), np.random.default_rng(dim)
    rows, public = (lattice.transform(rng.normal(size=(n, dim)) + 0.5) for n in (sum(sizes), 77))
    square = int(lattice.squared_norm) + 1
    clips = [(-square // 9, square // 3), (-square, square - 2), (-square, square), (0, 2**31), (-(2**40), 5)]
    arrays = np.split(rows, np.cumsum(sizes)[:-1])
    for clip in (SimilarityClip(*bounds) for bounds in clips):
        expected = utilities(arrays, iter_blocks(public, 30), 77, lattice, clip)
        for tile in (1, 200, 2**27):
            monkeypatch.setattr(device, "_SIMILARITIES", tile)
            blocks = torch.tensor(public).split(40)
            for private, others in (
                (split(rows, sizes), blocks),
                (split(rows, sizes), iter_blocks(public, 30)),
                (arrays, blocks),
            ):
                found = utilities(private, others, 77, lattice, clip)
                assert isinstance(found, np.ndarray)
                assert found.dtype == np.int64
                assert (found == expected).all()


def check_long_sums():
    """s² is 1.7e7, so that the sum of 200 equal similarities passes 2³¹."""
    lattice = Lattice(17_000)
    row = lattice.transform(np.random.default_rng(0).normal(size=(1, 17_000)))
    rows, clip = np.repeat(row, 200, axis=0), SimilarityClip(-int(lattice.squared_norm), 2**30)
    expected = exact_product(rows, row).sum() - 200 * clip.low
    score = device.DeviceScore(torch.tensor(rows), np.array([200]), clip)
    assert score(torch.tensor(row)).tolist() == [[expected]]


def test_sums_of_similarities_may_pass_int32(path, monkeypatch):
    check_long_sums()
    original = torch.Tensor.sum
    monkeypatch.setattr(torch.Tensor, "sum", lambda self, dim, dtype: original(self, dim=dim, dtype=torch.int32))
    with pytest.raises(AssertionError):  # the control
        check_long_sums()


def test_similarities_that_pass_int32_are_left_to_numpy(monkeypatch):
    monkeypatch.setattr(device, "LARGEST_SIMILARITY", 1000)
    monkeypatch.setattr(device, "DeviceScore", None)
    rows, public = problem(40, 20, 30)
    lattice, clip = Lattice(30), SimilarityClip(-20, 900)
    expected = utilities([rows], [public], 20, lattice, clip)
    assert (utilities([torch.tensor(rows)], [torch.tensor(public)], 20, lattice, clip) == expected).all()


@pytest.mark.parametrize("n_classes", [1, 2, 17])
@pytest.mark.parametrize(("n", "dim"), [(0, 3), (1, 1), (333, 30), (700, 64)])
def test_sums_and_gram_matrices_are_those_of_arrays(n, dim, n_classes, path):
    rows, _ = problem(n, 1, dim)
    rng = np.random.default_rng(n)
    codes, weights = rng.integers(-1, n_classes, n), rng.integers(0, 2**33, n)
    codes[codes == n_classes // 2] = -1  # a class without records
    codes.flags.writeable = False  # torch would warn
    for size in (1, 64, 4096):
        blocks = torch.tensor(rows).split(size)
        assert (class_sums(blocks, codes, n_classes, dim) == class_sums([rows], codes, n_classes, dim)).all()
        assert (weighted_sum(blocks, weights, dim) == weighted_sum([rows], weights, dim)).all()
        for per_class in (False, True):
            found = sums_and_grams(blocks, codes, n_classes, dim, per_class=per_class)
            expected = sums_and_grams([rows], codes, n_classes, dim, per_class=per_class)
            for ours, theirs in zip(found, expected, strict=True):
                assert ours.dtype == np.int64
                assert (ours == theirs).all()


def check_gram_of_many():
    """140,000 times 127² is beyond 2³¹."""
    gram = device.gram(torch.full((140_000, 2), 127, dtype=torch.int8))
    assert gram.tolist() == [[140_000 * 127**2] * 2] * 2


def test_gram_matrices_of_many_rows_are_exact(path, monkeypatch):
    check_gram_of_many()
    monkeypatch.setattr(device, "EXACT_TERMS", 2**18)
    with pytest.raises(AssertionError):  # the control
        check_gram_of_many()


def test_what_calls_itself_a_lattice_row_is_bounded_on_the_device(here, monkeypatch):
    """Rows that keep the bound stay as and where they are; only others come to the processor."""
    lattice = Lattice(30)
    rows = lattice.transform(np.random.default_rng(1).normal(size=(200, 30)))
    wrong = {5: np.full(30, 127), 64: np.full(30, -128), 65: np.eye(30)[3] * -128, 199: np.full(30, 40)}
    for place, row in wrong.items():
        rows[place] = row
    left, original = [], tensors.as_numpy
    monkeypatch.setattr(device, "as_numpy", lambda values: left.append(tuple(values.shape)) or original(values))
    tensor = torch.tensor(rows)
    blocks = list(lattice_blocks(lattice, TensorRows(tensor), 64))
    assert left == [(1, 30), (2, 30), (1, 30)]
    assert [len(block) for block in blocks] == [64, 64, 64, 8]
    assert (torch.cat(blocks).numpy() == lattice.transform(rows)).all()
    assert (tensor.numpy() == rows).all()
    assert blocks[2].data_ptr() == tensor[128:].data_ptr()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.int8])
@pytest.mark.parametrize("options", [{}, {"pool": 2}, {"rotation": 3}, {"center": np.full(12, 0.1)}])
def test_lattice_rows_are_those_of_arrays(kind, options, here):
    tensor = (20 * torch.randn(50, 12, generator=torch.Generator().manual_seed(0))).to(kind)
    lattice = Lattice(12, **options)
    expected = lattice.transform(tensors.as_numpy(tensor))
    blocks = list(lattice_blocks(lattice, TensorRows(tensor), 20))
    assert {type(block) for block in blocks} == {torch.Tensor}
    assert (torch.cat(blocks).numpy() == expected).all()
    assert all(isinstance(block, torch.Tensor) for block in sum_blocks(lattice, TensorRows(tensor)))


def test_tensors_of_the_processor_are_left_to_numpy():
    rows = TensorRows(torch.ones(3, 2).bfloat16())
    assert all(isinstance(block, np.ndarray) for block in lattice_blocks(Lattice(2), rows, PUBLIC_ROWS))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rows_without_a_direction_are_found_on_the_device(kind, here):
    rows = torch.ones(7, 3, dtype=kind)
    rows[0] = 0
    rows[1, 2] = torch.nan
    rows[2, 0] = -torch.inf
    rows[3] = -1
    rows[4] = 0
    rows[4, 1] = torch.finfo(kind).smallest_normal / 4
    table = TensorRows(rows)
    found = usable_rows(table)
    assert found.tolist() == [False, False, False, True, True, True, True]
    assert (found == usable_rows(tensors.as_numpy(rows))).all()
    assert usable_rows(TensorRows(rows[:0])).shape == (0,)
    assert usable_rows(TensorRows(torch.tensor([[0, 0], [0, -128]], dtype=torch.int8))).tolist() == [False, True]


def test_rows_are_taken_on_the_device():
    rows = torch.arange(22.0).reshape(11, 2).bfloat16()
    indices = np.array([10, 0, 3, 3])
    assert (take_rows(TensorRows(rows), indices) == rows.float().numpy()[indices]).all()
    assert take_rows(TensorRows(rows), indices[:0]).shape == (0, 2)
