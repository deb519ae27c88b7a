"""Gradients of the prototypical loss: the right ones, exact, and of each episode by itself."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.queries import ClassSums
from dppl.kernel.records import HeldRecords
from dppl.lab.queries import (
    EPISODE_STEPS,
    Episodes,
    IntegerProjection,
    Projected,
    ProjectedRows,
    PrototypicalLoss,
    _keys,
    _mixed,
    check_size,
    clipped_to_grid,
)

DIM, WIDTH, CLASSES = 12, 5, 3
LATTICE = Lattice(DIM)


def problem(seed=0, n=40):
    """Return lattice rows, codes, prototypes and a projection."""
    rng = np.random.default_rng(seed)
    rows = LATTICE.transform(rng.normal(size=(n, DIM)))
    prototypes = LATTICE.transform(rng.normal(size=(CLASSES, DIM)))
    return rows, rng.integers(0, CLASSES, n), prototypes, 2 * rng.normal(size=(WIDTH, DIM))


def likelihood(weights, rows, codes, prototypes):
    """Return the mean log-likelihood with squared distances as in equations (8) to (12) of DPPL-v1, C.5."""
    x, p = rows / LATTICE.scale @ weights.T, prototypes / LATTICE.scale @ weights.T
    logits = -np.square(x[:, None] - p).sum(axis=2)
    return log_softmax(logits, axis=1)[np.arange(len(codes)), codes].sum()


def numeric(weights, *given, h=1e-5):
    """Return the gradient of the likelihood by central differences."""
    gradient = np.zeros_like(weights)
    for place in np.ndindex(weights.shape):
        for sign in (1, -1):
            moved = weights.copy()
            moved[place] += sign * h
            gradient[place] += sign * likelihood(moved, *given) / (2 * h)
    return gradient


def chained(rows, codes, prototypes, projection):
    loss = PrototypicalLoss(LATTICE, projection, prototypes)
    # At clip 2 no residual is clipped, and the unit is that of half a residual.
    direction, unit = loss.chained(loss.gradient.sum([rows], codes, loss.weights, loss.offsets, clip=2.0))
    return direction * 2 * unit


def test_the_chained_gradient_is_that_of_the_loss():
    rows, codes, prototypes, weights = problem()
    projection = IntegerProjection.of(weights)
    expected = numeric(projection.steps * projection.unit, rows, codes, prototypes)
    error = np.abs(chained(rows, codes, prototypes, projection) - expected).max() / np.abs(expected).max()
    assert error < 1e-3
    # A control: at other weights it is another.
    assert np.abs(expected - numeric(weights / 2, rows, codes, prototypes)).max() / np.abs(expected).max() > 0.05


def test_products_are_those_of_integers():
    rows, codes, prototypes, weights = problem(1)
    projection = IntegerProjection.of(weights)
    wide = [[int(step) for step in row] for row in projection.steps]
    projected = next(ProjectedRows(rows, LATTICE, projection.steps).blocks(len(rows)))
    by_hand = [[sum(a * int(b) for a, b in zip(w, row, strict=True)) for w in wide] for row in rows]
    assert projected.tolist() == by_hand
    one_by_one = [next(ProjectedRows(rows[[i]], LATTICE, projection.steps).blocks(1))[0] for i in range(len(rows))]
    assert (np.array(one_by_one) == projected).all()
    loss = PrototypicalLoss(LATTICE, projection, prototypes)
    total = loss.gradient.sum([rows], codes, loss.weights, loss.offsets)
    short = [[round(Fraction(int(x)) * 2**14 / int(abs(total).max())) for x in row] for row in total]
    steps, p, g = (np.array(v, object) for v in (wide, prototypes.astype(int).tolist(), short))
    sums = steps @ g[:, :-1].T @ p + steps @ p.T @ g[:, :-1]
    constant = (steps @ p.T * g[:, -1]) @ p
    assert (loss.chained(total)[0] == sums.astype(float) - constant.astype(float) / loss.gradient.bias).all()


@pytest.mark.parametrize(("dim", "width", "classes"), [(4096, 2048, 10), (512, 8, 4000)])
def test_projections_beyond_exact_products_are_refused(dim, width, classes):
    with pytest.raises(ParameterError, match="too large for exact products"):
        check_size(dim, width, classes)


def test_the_largest_allowed_products_stay_below_2_to_the_53():
    """Worst cases of every product: rows of W 2¹⁰ long and √d/2 more by rounding, prototypes s, gradients 2¹⁴."""
    for dim in (2, 64, 384, 1280, 4096):
        scale, row = Lattice(dim).scale, 2**10 + dim**0.5 / 2
        classes, width = int(2**16 / dim**0.5), min(dim, 2**22 // dim)
        check_size(dim, width, classes)
        rounding = 1 + dim**0.5 / 2**11
        assert classes * row * dim**0.5 * 2**14 * 127 < 2**53
        assert classes * row * scale * 2**14 * 127 < 2**53
        assert width * (row * scale) ** 2 < 2**53 * rounding**2
        assert width * dim * 2**30 < 2**53


def test_clipping_is_of_the_whole_and_in_integers():
    direction = np.array([[3.0, 0.0], [0.0, -4.0]])
    long = clipped_to_grid(direction, 1.0, 1.0)
    assert np.abs(long / EPISODE_STEPS - [[0.6, 0], [0, -0.8]]).max() < 2**-15
    short = clipped_to_grid(direction, 0.1, 1.0)
    assert np.abs(short - direction * 0.1 * EPISODE_STEPS).max() <= 1
    for nothing in (0.0, np.inf, np.nan):
        assert not clipped_to_grid(np.full((2, 2), nothing), 1.0, 1.0).any()
    rng = np.random.default_rng(0)
    for _ in range(200):
        steps = clipped_to_grid(rng.normal(size=(7, 9)), float(rng.exponential()), float(rng.exponential()))
        assert sum(int(step) ** 2 for step in steps.ravel()) <= EPISODE_STEPS**2


def test_an_episode_is_of_its_records_alone():
    rows, codes, _, weights = problem(2, n=60)
    projection = IntegerProjection.of(weights)
    of = lambda kept: Episodes(LATTICE, rows[kept], codes[kept], CLASSES, 4)  # noqa: E731
    everything = np.arange(60)
    parts = np.zeros((WIDTH, DIM), np.int64)
    episode = (_mixed(_keys(rows), 3) >> np.uint64(1)) % np.uint64(4)
    for number in range(4):
        parts += of(np.flatnonzero(episode == number)).sum(3, projection, 1.0)
    assert (of(everything).sum(3, projection, 1.0) == parts).all()
    # A control: cut elsewhere, other records are together.
    other = of(everything[:30]).sum(3, projection, 1.0) + of(everything[30:]).sum(3, projection, 1.0)
    assert not (other == parts).all()


def test_episodes_and_roles_are_shared_evenly_and_change_from_step_to_step():
    """Chi-square at a false-alarm rate of 1e-6 each; the rows are fixed, so it never comes by chance again."""
    keys = _keys(LATTICE.transform(np.random.default_rng(5).normal(size=(8000, DIM))))
    first, second = ((_mixed(keys, step) % np.uint64(8)).astype(int) for step in (0, 1))
    limit = stats.chi2.isf(1e-6, 63)
    statistic = lambda table: float(np.square(table - 8000 / 64).sum() / (8000 / 64))  # noqa: E731
    assert statistic(np.bincount(8 * first + second, minlength=64)) < limit
    assert statistic(np.bincount(8 * first + first, minlength=64)) > limit


@pytest.mark.parametrize("step", [0.5, 2.0**50, np.nan, np.inf])
def test_a_projection_whose_products_are_not_exact_is_refused(step):
    """Rounding would depend on the rows beside a row, and one record would move all of them."""
    query = Projected(ClassSums(Lattice(2), CLASSES), LATTICE)
    rows, codes, _, _ = problem()
    records, steps = HeldRecords(rows, codes), np.ones((2, DIM))
    assert records.total(query, projection=IntegerProjection(steps, 1.0)).any()
    steps[0, 0] = step
    with pytest.raises(MeasurementError, match="must hold integers"):
        records.total(query, projection=IntegerProjection(steps, 1.0))
