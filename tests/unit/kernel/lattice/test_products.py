"""What numba compiles of residuals and products, against NumPy, to the last bit."""

from functools import partial

import numpy as np
import pytest

from dppl.kernel.lattice import Lattice, residuals, stream
from dppl.kernel.lattice.joint import Persons
from dppl.kernel.lattice.label_residuals import label_residuals, label_shortfalls
from dppl.kernel.lattice.residuals import WEIGHT_STEPS, SoftmaxGradient
from dppl.kernel.lattice.similarities import SimilarityClip, utilities
from dppl.kernel.privacy.sensitivity import RESOLUTION

compiled = pytest.importorskip("numba") and pytest.importorskip(
    "dppl.kernel.lattice.compiled"
)

# A million records.
RECORDS = {
    1: 10_000,
    2: 500_000,
    3: 200_000,
    5: 190_000,
    77: 60_000,
    100: 35_000,
    1000: 5_000,
}


def both(compute):
    """What a call returns on either path."""
    results = []
    for threshold in (np.inf, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream, "_WORTH_NUMBA", threshold)
            results.append(compute())
    return results


def odd_logits(rng, n_classes, n):
    """Usual ones, equal ones, ties at the top, huge ones of either sign, and a few that no layer returns."""
    usual = rng.normal(size=(n_classes, n)) * rng.choice([1e-6, 1, 30, 300], n)
    huge = rng.choice([-1.0, 1.0, 0.0], usual.shape) * 2 ** rng.uniform(
        0, 90, usual.shape
    )
    tied = rng.integers(0, 2, usual.shape) * 2.0 ** rng.integers(-100, 90, n)
    none = np.where(
        rng.random(usual.shape) < 1 / n_classes,
        rng.choice([np.nan, np.inf, -np.inf], usual.shape),
        usual,
    )
    kinds = [usual, huge, tied, np.full(usual.shape, 3.7), none]
    return np.choose(
        rng.choice(len(kinds), n, p=[0.4, 0.3, 0.2, 0.05, 0.05]), kinds
    ).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", RECORDS)
def test_a_million_odd_residuals_are_the_same_integers(n_classes):
    rng = np.random.default_rng(n_classes)
    n = RECORDS[n_classes]
    logits = odd_logits(rng, n_classes, n)
    codes = rng.integers(-1, n_classes, n)
    weights = rng.integers(0, WEIGHT_STEPS + 1, n)
    clip = rng.choice([0.01, 0.5, 1.2])
    for shortfalls in (False, True):
        with np.errstate(invalid="ignore"):
            pairs = residuals.softmax_residuals(
                logits.copy(), codes, shortfalls=shortfalls
            )
            expected = residuals.on_grid(*pairs, clip, weights)
        shares = weights / WEIGHT_STEPS
        assert (
            compiled.softmax_steps(
                logits, codes, shares, np.float32(clip), shortfalls, *residuals.NUMBERS
            )
            == expected
        ).all()
        # The control: the last bit of a logit shows.
        moved = compiled.softmax_steps(
            np.nextafter(logits, np.float32(0)),
            codes,
            shares,
            np.float32(clip),
            shortfalls,
            *residuals.NUMBERS,
        )
        assert n_classes == 1 or (moved != expected).any()


def test_what_is_no_number_adds_nothing():
    logits = np.zeros((3, 70), np.float32)
    logits[1, 5:] = np.nan
    steps = compiled.softmax_steps(
        logits,
        np.zeros(70, np.intp),
        np.ones(70),
        np.float32(1),
        False,
        *residuals.NUMBERS,
    )
    assert (steps[:, :5] != 0).all()
    assert not steps[:, 5:].any()


@pytest.mark.parametrize(
    ("dim", "n_classes"), [(1, 1), (5, 2), (100, 16), (260, 3), (263, 3), (768, 77)]
)
@pytest.mark.parametrize("size", [0.01, 3.0, 2.0**86])
def test_everything_of_a_layer_is_the_same(dim, n_classes, size):
    """Integer weights have 16 bits or more, on either side of 262 coordinates."""
    rng = np.random.default_rng(dim)
    n = 333
    lattice = Lattice(dim)
    rows = lattice.transform(rng.normal(size=(n, dim)))
    rows.flags.writeable = False
    blocks = [rows[:0], rows[:1], rows[1:200], rows[200:]]
    codes = rng.integers(-1, n_classes, n)
    sets = rng.random((n, n_classes)) < 0.3
    weights = size * rng.normal(size=(n_classes, dim))
    offsets = rng.normal(size=n_classes)
    of_records = rng.integers(0, WEIGHT_STEPS + 1, n)
    gradient = SoftmaxGradient(lattice, bias=37)
    persons = Persons.of(codes >= 0, rng.integers(0, 80, n))
    for compute in (
        lambda: gradient.sum(blocks, codes, weights, offsets, clip=0.8),
        lambda: SoftmaxGradient(lattice).sum(blocks, codes, weights, persons=persons),
        lambda: gradient.sum(
            blocks,
            codes,
            np.asfortranarray(weights),
            residuals_of=partial(label_residuals, sets),
        ),
        lambda: gradient.hits(blocks, codes, weights, offsets),
        lambda: gradient.shortfalls(blocks, codes, weights, of_records.__getitem__),
        lambda: label_shortfalls(
            lattice, blocks, sets, weights, offsets, 0.5, of_records.__getitem__
        ),
        lambda: np.array(gradient.count_long(blocks, codes, weights, offsets, 0.5)),
    ):
        plain, fast = both(compute)
        assert plain.dtype == fast.dtype
        assert plain.tobytes() == fast.tobytes()


@pytest.mark.parametrize(
    "value", [RESOLUTION, -RESOLUTION, RESOLUTION - 1, 1536, 1535, 512, 511, -513]
)
def test_products_reach_their_largest_sums(value):
    """Every residual and every coordinate as large as it can be: a sum of 2.2e12."""
    for n in (1, compiled.MOST_ROWS):
        total = compiled.products(
            np.full((2, n), value, np.int32), np.full((n, 3), 127, np.int8)
        )
        assert (total == value * n * 127).all()
    with pytest.raises(ValueError, match="at most"):
        compiled.products(np.zeros((1, n + 1), np.int32), np.zeros((n + 1, 1), np.int8))


@pytest.mark.parametrize(
    ("dim", "sizes"),
    [(1, (600, 3)), (3, (1, 0, 300)), (384, (0,)), (384, (600, 3, 256))],
)
def test_utilities_are_the_same(dim, sizes):
    rng = np.random.default_rng(dim)
    lattice = Lattice(dim)
    rows = lattice.transform(rng.normal(size=(sum(sizes) + 77, dim)))
    private = np.split(rows[77:], np.cumsum(sizes)[:-1])
    public = rows[:77]
    square = int(lattice.squared_norm)
    for clip in (
        SimilarityClip(-square // 9, square // 3),
        SimilarityClip(-square, square - 1),
    ):
        expected = [
            (np.clip(q.astype(int) @ public.T, clip.low, clip.high) - clip.low).sum(
                axis=0
            )
            for q in private
        ]
        for found in both(
            lambda clip=clip: utilities(
                private, [public[:30], public[30:]], 77, lattice, clip
            )
        ):
            assert (found == np.stack(expected)).all()


@pytest.mark.parametrize(
    "clip", [SimilarityClip(-(2**40), 5), SimilarityClip(0, 2**31)]
)
def test_bounds_beyond_32_bits_are_left_to_floats(clip):
    lattice = Lattice(3)
    rows = lattice.transform(np.random.default_rng(0).normal(size=(9, 3)))
    plain, fast = both(lambda: utilities([rows], [rows], 9, lattice, clip))
    assert (plain == fast).all()
