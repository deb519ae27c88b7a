"""What the records of a person add together to a gradient, against exact numbers."""

import tracemalloc
from functools import partial

import numpy as np
import pytest

from dppl.kernel.lattice import Lattice, joint, residuals
from dppl.kernel.lattice.joint import Persons
from dppl.kernel.lattice.label_residuals import label_residuals
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.privacy.sensitivity import RESOLUTION

DIM = 16
CLASSES = 3
LATTICE = Lattice(DIM)  # its longest rows are 127 steps
KINDS = ["alike", "opposite", "near", "any"]


@pytest.fixture(params=["numpy", "compiled"])
def kernels(request, monkeypatch):
    """Both ways to compute."""
    module = None
    if request.param == "compiled":
        pytest.importorskip("numba")
        from dppl.kernel.lattice import compiled as module
    monkeypatch.setattr(residuals, "compiled_kernels", lambda numbers: module)
    return module


def person(kind, n, rng):
    """Rows and classes of one person."""
    one = rng.normal(size=DIM)
    X = {
        "alike": np.tile(one, (n, 1)),
        "opposite": one * rng.choice([-1, 1], (n, 1)),
        "near": one + 0.3 * rng.normal(size=(n, DIM)),
        "any": rng.normal(size=(n, DIM)),
    }[kind]
    return LATTICE.transform(X), rng.integers(0, rng.integers(1, CLASSES + 1), n)


def added(rows, codes, numbers, W, size=4096, clip=0.5):
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    persons = Persons.of(codes >= 0, numbers)
    return SoftmaxGradient(LATTICE).sum(blocks, codes, W, clip=clip, persons=persons)


def square(values):
    return sum(int(value) ** 2 for value in np.ravel(values))


@pytest.mark.parametrize("n", [1, 2, 3, 50, joint.PAIRED, joint.PAIRED + 1, 3000])
def test_all_records_of_a_person_add_no_more_than_one(n, kernels):
    """Also at weights that fit some of them, and nearly that much where they agree."""
    rng = np.random.default_rng(n)
    reach = SoftmaxGradient(LATTICE).squared_sensitivity
    furthest = 0
    for kind in KINDS:
        rows, codes = person(kind, n, rng)
        for steep in (0.0, 1.0, 30.0):
            W = steep * rng.normal(size=(CLASSES, DIM))
            for clip in (2.0**-20, 0.5, 1.4):
                far = square(added(rows, codes, np.zeros(n, np.intp), W, clip=clip))
                assert far <= reach
                furthest = max(furthest, far)
    assert furthest >= 0.9 * reach


def test_persons_add_up_in_any_order_and_blocks(kernels, monkeypatch):
    monkeypatch.setattr(joint, "_COLLECTED_ROWS", 64)
    rng = np.random.default_rng(0)
    parts = [
        person(KINDS[i % 4], n, rng) for i, n in enumerate([1, 7, 1, 200, 30, 2, 65, 1])
    ]
    rows, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
    numbers = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    codes[rng.random(len(codes)) < 0.1] = -1
    W = rng.normal(size=(CLASSES, DIM))
    each = sum(
        added(rows[own], codes[own], numbers[own], W)
        for own in (numbers == i for i in range(len(parts)))
    )
    for size, order in (
        (4096, np.arange(len(rows))),
        (50, rng.permutation(len(rows))),
        (7, rng.permutation(len(rows))),
    ):
        assert (added(rows[order], codes[order], numbers[order], W, size) == each).all()
    none = np.full(len(rows), -1)
    assert not added(rows, none, numbers, W).any()


def test_label_sets_of_a_person_are_clipped_together_on_both_ways(kernels, monkeypatch):
    rng = np.random.default_rng(0)
    rows, codes = person("near", 60, rng)
    sets = rng.random((60, CLASSES)) < 0.5
    numbers = np.arange(60) // 20
    W = rng.normal(size=(CLASSES, DIM))
    persons = Persons.of(codes >= 0, numbers)

    def total():
        return SoftmaxGradient(LATTICE).sum(
            [rows],
            codes,
            W,
            clip=0.5,
            persons=persons,
            residuals_of=partial(label_residuals, sets),
        )

    found = total()
    assert square(found) <= 9 * SoftmaxGradient(LATTICE).squared_sensitivity
    monkeypatch.setattr(residuals, "compiled_kernels", lambda numbers: None)
    assert (found == total()).all()


@pytest.mark.parametrize("n", [2, 9, joint.PAIRED, joint.PAIRED + 1, 3000])
def test_norms_are_exact(n, kernels):
    """Of the longest residuals and rows of 4,096 coordinates, whose squares take more than 64 bits."""
    rng = np.random.default_rng(n)
    rows = np.full((n, 4096), 31, np.int8) * rng.choice([-1, 1], (n, 1)).astype(np.int8)
    steps = np.zeros((2, n), np.int32)
    steps[rng.integers(0, 2, n), np.arange(n)] = RESOLUTION - rng.integers(0, 5, n)
    sizes = np.array([n])
    ((_, squares),) = joint.squares_of_persons(
        steps, rows, sizes, sizes, sizes, kernels
    )
    total = [
        [sum(int(s) * int(q) for s, q in zip(steps[c], rows[:, 0], strict=True))] * 4096
        for c in range(2)
    ]
    own = sum(int(s) ** 2 for s in steps.ravel()) * 4096 * 31**2
    assert squares.ravel().tolist() == [
        pytest.approx(square(total), rel=1e-15),
        pytest.approx(own, rel=1e-15),
    ]


def test_residuals_that_cancel_are_no_longer_after_they_were_cut_off():
    """Half of the records lose nothing by being cut off, and the others, which point the other way, lose a step."""
    rows = np.zeros((3000, DIM), np.int8)
    rows[:, 0] = 127
    rows[:1499] *= -1
    steps = np.full((1, 3000), RESOLUTION, np.int32)
    steps[0, :1499] -= 1
    persons = Persons.of(np.ones(3000, bool), np.zeros(3000, np.intp))
    few = persons.clipped(steps, rows, 0, LATTICE, None)
    assert square(few @ rows) <= RESOLUTION**2 * LATTICE.squared_norm
    assert (few != 0).all()


def test_records_that_say_the_same_count_as_one_and_others_in_full():
    W = np.zeros((CLASSES, DIM))
    zeros = np.zeros(8, np.intp)
    eye = LATTICE.transform(np.eye(DIM)[:8])
    alone = added(eye[:1], zeros[:1], zeros[:1], W)
    # The weight of each of eight is cut off to a step.
    assert (
        abs(added(np.repeat(eye[:1], 8, axis=0), zeros, zeros, W) - alone).max()
        <= 8 * 127
    )
    short = SoftmaxGradient(LATTICE).sum([eye], zeros, W, clip=4.0)
    assert (added(eye, zeros, zeros, W, clip=4.0) == short).all()
    assert not added(0 * eye, zeros, zeros, W).any()


def test_persons_of_very_many_records_have_equal_shares_and_come_in_pieces(
    kernels, monkeypatch
):
    rows, codes = person("near", 50, np.random.default_rng(0))
    whole = square(added(rows, codes, np.zeros(50, np.intp), np.zeros((CLASSES, DIM))))
    monkeypatch.setattr(joint, "PAIRED", 10)
    monkeypatch.setattr(joint, "SUMMED", 20)
    assert Persons.of(codes >= 0, np.zeros(50, np.intp)).ends.tolist() == [20, 40, 50]
    pieces = added(rows, codes, np.zeros(50, np.intp), np.zeros((CLASSES, DIM)), size=9)
    plain = SoftmaxGradient(LATTICE).sum(
        [rows], codes, np.zeros((CLASSES, DIM)), clip=0.5
    )
    assert abs(pieces - plain / 50).max() <= 50 * 127 * 2
    assert square(pieces) < whole


def test_a_person_of_many_records_takes_no_memory_for_every_pair_of_them():
    """All pairs of these would take 72 MB a matrix."""
    rows, codes = person("near", 3000, np.random.default_rng(0))
    tracemalloc.start()
    try:
        added(rows, codes, np.zeros(3000, np.intp), np.zeros((CLASSES, DIM)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4e6
