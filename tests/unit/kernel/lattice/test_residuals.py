import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice, iter_blocks, residuals, stream
from dppl.kernel.lattice.residuals import WEIGHT_STEPS, SoftmaxGradient
from dppl.kernel.lattice.stream import LatticeRows
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.records import HeldRecords

DIM = 6


class Table:
    """A table that streams and cannot be indexed."""

    def __init__(self, rows):
        self._rows = rows
        self.shape = rows.shape

    def blocks(self, size):
        yield from iter_blocks(self._rows, min(size, 7))


def problem(seed, n, dim, n_classes, size=3.0):
    rng = np.random.default_rng(seed)
    lattice = Lattice(dim)
    rows = lattice.transform(rng.normal(size=(n, dim)))
    codes = rng.integers(-1, n_classes, n).astype(np.intp)
    weights = rng.normal(size=(n_classes, dim)) * size
    return lattice, rows, codes, weights, rng.normal(size=n_classes)


def cut(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def scalar_steps(layer, row, code, clip):
    """One record's residual on the grid, one np.float32 operation after the other."""
    f32 = np.float32
    products = [
        f32(sum(int(w) * int(q) for w, q in zip(weights, row, strict=True)))
        for weights in layer.weights.tolist()
    ]
    logits = [
        p * f32(s) + f32(o)
        for p, s, o in zip(products, layer.scales, layer.offsets, strict=True)
    ]
    powers = []
    for logit in logits:
        x = max((logit - max(logits)) * residuals.LOG2_E, f32(-40))
        whole = np.rint(x)
        x = x - whole
        power = residuals.EXP2[-1]
        for coefficient in reversed(residuals.EXP2[:-1]):
            power = power * x + coefficient
        powers.append(power * f32(2.0 ** int(whole)))
    total = -scalar_sum(powers)
    r = [power / total for power in powers]
    r[code] = r[code] + f32(1)
    norm = np.sqrt(scalar_sum([value * value for value in r]))
    scale = residuals.LENGTH / max(norm, f32(clip))
    return [int(value * scale) for value in r]


def scalar_sum(values):
    while len(values) > 1:
        half = (len(values) + 1) // 2
        values = [a + b for a, b in zip(values, values[half:], strict=False)] + values[
            len(values) - half : half
        ]
    return values[0]


@given(
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.sampled_from([1, 3, 50]),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=40)
def test_the_sum_equals_integer_arithmetic_on_one_record_after_the_other(
    seed, n, dim, n_classes, with_bias
):
    lattice, rows, codes, weights, offsets = problem(seed, n, dim, n_classes)
    bias = 37 * with_bias
    clip = 0.8
    layer = residuals.IntegerLayer(weights, offsets, lattice)
    expected = np.zeros((n_classes, dim + with_bias), object)
    for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
        if code >= 0:
            steps = scalar_steps(layer, row, code, clip)
            expected += np.outer(
                np.array(steps, object), np.array(row + [bias] * with_bias, object)
            )
    total = SoftmaxGradient(lattice, bias).sum(
        cut(rows, 2), codes, weights, offsets, clip=clip
    )
    assert total.dtype == np.int64
    assert (total == expected).all()


def steps_of(lattice, rows, codes, weights, offsets):
    layer = residuals.IntegerLayer(weights, offsets, lattice)
    return residuals.on_grid(
        *residuals.softmax_residuals(layer.logits(rows), codes), 0.9
    )


def check_position_does_not_show(n_classes, dim=100, n=67):
    lattice, rows, codes, weights, offsets = problem(n_classes, n, dim, n_classes)
    alone = np.hstack(
        [
            steps_of(lattice, rows[i : i + 1], codes[i : i + 1], weights, offsets)
            for i in range(n)
        ]
    )
    for size in range(2, n + 1):
        for first in range(min(size, n - size + 1)):
            part = slice(first, first + size)
            assert (
                steps_of(lattice, rows[part], codes[part], weights, offsets)
                == alone[:, part]
            ).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [1, 2, 3, 16, 77])
def test_a_record_adds_the_same_wherever_it_stands(n_classes):
    """In every block size and at every place in it, so that no vector lane, tail or BLAS kernel shows."""
    check_position_does_not_show(n_classes)


def test_the_position_test_notices_products_of_floats(monkeypatch):
    def logits(self, rows):
        """Float products, added in an order that depends on the number of rows, as BLAS does."""
        wide = rows.astype(np.float32)
        start = len(rows) % 50
        scaled = self.weights * self.scales[:, None]
        return np.asarray(
            scaled[:, start:] @ wide[:, start:].T
            + scaled[:, :start] @ wide[:, :start].T
        )

    monkeypatch.setattr(residuals.IntegerLayer, "logits", logits)
    with pytest.raises(AssertionError):
        check_position_does_not_show(3)


def test_neither_blocks_nor_order_show():
    lattice, rows, codes, weights, offsets = problem(0, 300, 24, 5)
    gradient = SoftmaxGradient(lattice, bias=11)
    expected = gradient.sum([rows], codes, weights, offsets)
    for size in (1, 7, 64, 299):
        assert (
            gradient.sum(cut(rows, size), codes, weights, offsets) == expected
        ).all()
    order = np.random.default_rng(1).permutation(300)
    assert (
        gradient.sum(cut(rows[order], 50), codes[order], weights, offsets) == expected
    ).all()
    parts = gradient.sum([rows[:100]], codes[:100], weights, offsets)
    parts += gradient.sum([rows[100:]], codes[100:], weights, offsets)
    assert (parts == expected).all()


neighbours = st.tuples(
    st.integers(0, 2**32),
    st.integers(0, 5),
    st.integers(1, 5),
    st.sampled_from([0.0, 1e-300, 1.0, 30.0, 1e6, 1e26]),
    st.sampled_from([1e-3, 0.5, 1.0, math.sqrt(2), 1e5]),
    st.sampled_from([0, 1, 500]),
)


@given(neighbours)
@settings(max_examples=150)
@example((0, 1, 3, 30.0, 1e-3, 0))
def test_a_record_changes_the_sum_by_its_own_part_and_no_more_than_stated(case):
    seed, n, n_classes, size, clip, bias = case
    lattice, rows, codes, weights, offsets = problem(seed, n + 1, DIM, n_classes, size)
    gradient = SoftmaxGradient(lattice, bias)
    whole = gradient.sum([rows], codes, weights, offsets, clip=clip)
    without = gradient.sum([rows[1:]], codes[1:], weights, offsets, clip=clip)
    alone = gradient.sum([rows[:1]], codes[:1], weights, offsets, clip=clip)
    difference = whole - without
    assert (difference == alone).all()
    assert (
        Fraction(sum(int(v) ** 2 for v in difference.ravel()))
        <= gradient.squared_sensitivity
    )
    assert codes[0] >= 0 or not difference.any()


def test_the_neighbour_test_notices_residuals_that_are_not_clipped(monkeypatch):
    def on_grid(values, norms, clip, *_):
        return np.trunc(values * RESOLUTION / clip).astype(np.float64)

    monkeypatch.setattr(residuals, "on_grid", on_grid)
    with pytest.raises(AssertionError):
        test_a_record_changes_the_sum_by_its_own_part_and_no_more_than_stated.hypothesis.inner_test(
            (0, 1, 3, 30.0, 1e-3, 0)
        )


def test_the_stated_sensitivity_is_reached():
    lattice = Lattice(16)
    row = lattice.transform(np.eye(16)[:1])
    weights = np.zeros((2, 16))
    weights[0, 0] = 100.0
    gradient = SoftmaxGradient(lattice, bias=lattice.squared_norm.numerator % 97)
    wrong = gradient.sum([row], np.array([1]), weights)
    reached = (
        Fraction(sum(int(v) ** 2 for v in wrong.ravel())) / gradient.squared_sensitivity
    )
    assert 0.9999 < reached <= 1


def test_a_residual_longer_than_the_grid_allows_is_left_out():
    """The check that the proof rests on, should float arithmetic ever mislead the clipping."""
    values = np.array([[0.9, 0.9, np.nan], [0.3, -0.9, 0.0]], np.float32)
    steps = residuals.on_grid(values, np.full(3, 0.95, np.float32), 0.1)
    assert steps[:, 0].all()
    assert not steps[:, 1:].any()


@pytest.mark.parametrize(
    ("dim", "n_classes", "size"), [(384, 77, 1.0), (1280, 10, 1.0), (64, 300, 5.0)]
)
def test_gradients_are_those_of_the_softmax_loss(dim, n_classes, size):
    """Logits are exact to about 4e-5 of the weights' norm; float64 is the reference."""
    lattice, rows, codes, weights, offsets = problem(3, 200, dim, n_classes, size)
    phi = rows / lattice.scale
    logits = phi @ weights.T + offsets
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    r = np.eye(n_classes)[codes] - p
    r[codes < 0] = 0
    norms = np.linalg.norm(r, axis=1, keepdims=True)
    clip = 0.7
    expected = (r * np.minimum(1, clip / np.maximum(norms, 1e-9))).T @ phi
    gradient = SoftmaxGradient(lattice)
    total = gradient.sum([rows], codes, weights, offsets, clip=clip)
    longer = gradient.count_long([rows], codes, weights, offsets, clip)
    tolerance = 4e-5 * np.linalg.norm(weights, axis=1).max()
    assert (
        np.abs(total * clip / gradient.unit - expected).max()
        < tolerance * np.linalg.norm(phi, axis=0).max()
    )
    assert longer == np.count_nonzero(norms > clip) > 0


# Shortfalls: 1/C minus the probabilities


@given(neighbours, st.integers(0, 2**20))
@settings(max_examples=150)
@example((0, 1, 2, 1e6, 0.5, 0), 2**20)
@example((0, 1, 1, 1.0, 0.5, 0), 2**20)
def test_a_record_changes_shortfalls_by_its_own_part_and_no_more_than_the_grid(
    case, weight
):
    seed, n, n_classes, size, *_ = case
    lattice, rows, codes, weights, _ = problem(seed, n + 1, DIM, n_classes, size)
    of_records = np.full(n + 1, weight)
    gradient = SoftmaxGradient(lattice)
    whole = gradient.shortfalls([rows], codes, weights, of_records.__getitem__)
    alone = gradient.shortfalls(
        [rows[:1]], codes[:1], weights, of_records[:1].__getitem__
    )
    assert (
        whole
        == alone
        + gradient.shortfalls(
            [rows[1:]], codes[1:], weights, of_records[1:].__getitem__
        )
    ).all()
    assert (
        WEIGHT_STEPS**2 * sum(int(v) ** 2 for v in alone) <= weight**2 * RESOLUTION**2
    )
    assert codes[0] >= 0 or not alone.any()


def test_the_neighbour_test_notices_probabilities_in_place_of_shortfalls(monkeypatch):
    whole = residuals.softmax_residuals

    def probabilities(logits, codes, *, shortfalls):
        columns, _ = whole(logits, codes, shortfalls=shortfalls)
        columns -= np.float32(1 / len(columns))
        return columns, np.zeros(columns.shape[1], np.float32)

    monkeypatch.setattr(residuals, "softmax_residuals", probabilities)
    monkeypatch.setattr(
        residuals,
        "on_grid",
        lambda p, _, clip, *__: np.trunc(p.astype(float) * RESOLUTION / clip),
    )
    inner = test_a_record_changes_shortfalls_by_its_own_part_and_no_more_than_the_grid.hypothesis.inner_test
    with pytest.raises(AssertionError):
        inner((1, 1, 2, 1e6, 0.5, 0), 2**20)


@pytest.mark.parametrize("n_classes", [2, 5, 77])
def test_shortfalls_are_those_of_the_softmax(n_classes):
    lattice, rows, codes, weights, _ = problem(3, 200, 64, n_classes)
    of_records = np.random.default_rng(0).integers(0, WEIGHT_STEPS, 200)
    p = np.exp(rows / lattice.scale @ weights.T)
    p /= p.sum(axis=1, keepdims=True)
    expected = (
        (of_records / WEIGHT_STEPS * (codes >= 0))[:, None] * (1 / n_classes - p)
    ).sum(axis=0)
    gradient = SoftmaxGradient(lattice)
    unit = RESOLUTION / residuals.longest_shortfall(n_classes)
    for blocks in ([rows], cut(rows, 7)):
        found = (
            gradient.shortfalls(blocks, codes, weights, of_records.__getitem__) / unit
        )
        assert np.abs(found - expected).max() < 1e-4 * 200
    # The bound on a record is reached: one class is sure.
    sure = gradient.shortfalls(
        [rows[:1]],
        np.zeros(1, int),
        1e6 * weights,
        np.array([WEIGHT_STEPS]).__getitem__,
    )
    assert 0.9999 < np.linalg.norm(sure) / RESOLUTION <= 1


def test_the_exponential_is_one():
    x = -np.linspace(0, 27, 10_001, dtype=np.float32)
    assert (
        np.abs(residuals.exp_of(x.copy()) / np.exp(x.astype(np.float64)) - 1).max()
        < 3e-6
    )
    assert residuals.exp_of(np.float32([0, -1e30])).tolist() == [1.0, 2.0**-40]


def test_ignored_records_and_empty_rows_add_nothing():
    lattice, rows, codes, weights, offsets = problem(5, 20, DIM, 3)
    gradient = SoftmaxGradient(lattice, bias=9)
    assert not gradient.sum([rows], np.full(20, -1), weights, offsets).any()
    total = gradient.sum([np.zeros_like(rows)], np.abs(codes), weights, offsets)
    assert not total[:, :-1].any()
    assert total[:, -1].any()
    assert not gradient.sum([], codes[:0], weights, offsets).any()
    assert not gradient.sum([rows[:0]], codes[:0], weights, offsets).any()


def test_rows_come_again_and_again(tmp_path):
    lattice, _, codes, weights, offsets = problem(6, 50, DIM, 3)
    X = np.random.default_rng(7).normal(size=(50, DIM))
    np.save(tmp_path / "x.npy", X)
    gradient = SoftmaxGradient(lattice)
    expected = gradient.sum([lattice.transform(X)], codes, weights, offsets)
    for source in (X, Table(X), np.load(tmp_path / "x.npy", mmap_mode="r")):
        blocks = LatticeRows(lattice, source)
        for _ in range(2):
            assert (gradient.sum(blocks, codes, weights, offsets) == expected).all()
    assert HeldRecords(X, codes).kept_blocks(lattice)._n_cached == 50
    assert not HeldRecords(Table(X), codes).kept_blocks(lattice)._n_cached


@pytest.mark.parametrize("room", [0, 6, 7, 20, 49, 50, 10**6])
def test_only_rows_beyond_those_that_are_kept_are_mapped_again(room, monkeypatch):
    lattice, _, codes, weights, offsets = problem(6, 50, DIM, 3)
    X = np.random.default_rng(7).normal(size=(50, DIM))
    gradient = SoftmaxGradient(lattice)
    expected = gradient.sum([lattice.transform(X)], codes, weights, offsets)
    whole = Lattice.transform
    mapped = []
    monkeypatch.setattr(
        Lattice,
        "transform",
        lambda self, rows: mapped.append(len(rows)) or whole(self, rows),
    )
    monkeypatch.setattr(stream, "CACHE_BYTES", room * DIM)
    blocks = LatticeRows(lattice, Table(X))
    kept = 50 if room >= 50 else room // 7 * 7  # the table comes in blocks of seven
    next(iter(blocks))  # a pass that is given up
    for times in range(3):
        mapped.clear()
        assert (gradient.sum(blocks, codes, weights, offsets) == expected).all()
        assert sum(mapped) == 50 - (kept if times else min(kept, 7))
    if kept:  # other rows in their place would be noticed
        blocks._cache[0] = -blocks._cache[0]
        assert (gradient.sum(blocks, codes, weights, offsets) != expected).any()


def test_lattice_rows_that_are_kept_leave_room_on_machines_and_in_containers(
    tmp_path, monkeypatch
):
    pages = {"SC_PHYS_PAGES": 1 << 24, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(stream.os, "sysconf", pages.get)
    monkeypatch.setattr(stream.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(stream, "_LIMIT", tmp_path / "memory.max")
    assert stream._room() == 8 << 30  # of 64 GiB and 4 cores
    for limit, room in (
        ("max", 8 << 30),
        (f"{16 << 30}", 2 << 30),
        ("1000000", 1 << 30),
    ):
        stream._LIMIT.write_text(limit)
        assert stream._room() == room


@pytest.mark.parametrize("place", ["weights", "offsets"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e28])
def test_weights_beyond_float32_are_refused(place, value):
    lattice, rows, codes, weights, offsets = problem(0, 2, DIM, 3)
    {"weights": weights[1], "offsets": offsets}[place][1] = value
    with pytest.raises(ParameterError, match="must be finite"):
        SoftmaxGradient(lattice).sum([rows], codes, weights, offsets)


@pytest.mark.parametrize("clip", [0.0, -1.0, 1e-7, 1e7, math.nan])
def test_clipping_norms_beyond_use_are_refused(clip):
    lattice, rows, codes, weights, offsets = problem(0, 2, DIM, 3)
    with pytest.raises(ParameterError, match="clip must lie between"):
        SoftmaxGradient(lattice).sum([rows], codes, weights, offsets, clip=clip)


def test_rows_too_wide_for_exact_products_are_refused():
    with pytest.raises(ParameterError, match="300,000 coordinates"):
        SoftmaxGradient(Lattice(2**20))
