"""Gradients of the prototypical loss: the right ones, and exact."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.special import log_softmax

from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.measure import Measure, Measurement, calibrated
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy import ApproxDP, GaussianDP
from dppl.kernel.queries import ADD_REMOVE, ClassSums, SoftmaxGradients
from dppl.kernel.records import HeldRecords
from dppl.lab.projection_queries import (
    IntegerProjection,
    Projected,
    ProjectedRows,
    PrototypicalLoss,
    check_size,
)

DIM = 12
WIDTH = 5
CLASSES = 3
LATTICE = Lattice(DIM)


def problem(seed=0, n=40):
    """Return lattice rows, codes, prototypes and a projection."""
    rng = np.random.default_rng(seed)
    rows = LATTICE.transform(rng.normal(size=(n, DIM)))
    prototypes = LATTICE.transform(rng.normal(size=(CLASSES, DIM)))
    return (
        rows,
        rng.integers(0, CLASSES, n),
        prototypes,
        2 * rng.normal(size=(WIDTH, DIM)),
    )


def likelihood(weights, rows, codes, prototypes):
    """Return the mean log-likelihood with squared distances as in equations (8) to (12) of DPPL-v1, C.5."""
    x = rows / LATTICE.scale @ weights.T
    p = prototypes / LATTICE.scale @ weights.T
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
    direction, unit = loss.chained(
        loss.gradient.sum([rows], codes, loss.weights, loss.offsets, clip=2.0)
    )
    return direction * 2 * unit


def test_the_chained_gradient_is_that_of_the_loss():
    rows, codes, prototypes, weights = problem()
    projection = IntegerProjection.of(weights)
    expected = numeric(projection.steps * projection.unit, rows, codes, prototypes)
    error = (
        np.abs(chained(rows, codes, prototypes, projection) - expected).max()
        / np.abs(expected).max()
    )
    assert error < 1e-3
    # A control: at other weights it is another.
    assert (
        np.abs(expected - numeric(weights / 2, rows, codes, prototypes)).max()
        / np.abs(expected).max()
        > 0.05
    )


def test_products_are_those_of_integers():
    rows, codes, prototypes, weights = problem(1)
    projection = IntegerProjection.of(weights)
    wide = [[int(step) for step in row] for row in projection.steps]
    projected = next(ProjectedRows(rows, LATTICE, projection.steps).blocks(len(rows)))
    by_hand = [
        [sum(a * int(b) for a, b in zip(w, row, strict=True)) for w in wide]
        for row in rows
    ]
    assert projected.tolist() == by_hand
    one_by_one = [
        next(ProjectedRows(rows[[i]], LATTICE, projection.steps).blocks(1))[0]
        for i in range(len(rows))
    ]
    assert (np.array(one_by_one) == projected).all()
    loss = PrototypicalLoss(LATTICE, projection, prototypes)
    total = loss.gradient.sum([rows], codes, loss.weights, loss.offsets)
    short = [
        [round(Fraction(int(x)) * 2**14 / int(abs(total).max())) for x in row]
        for row in total
    ]
    steps, p, g = (
        np.array(v, object) for v in (wide, prototypes.astype(int).tolist(), short)
    )
    sums = steps @ g[:, :-1].T @ p + steps @ p.T @ g[:, :-1]
    constant = (steps @ p.T * g[:, -1]) @ p
    assert (
        loss.chained(total)[0]
        == sums.astype(float) - constant.astype(float) / loss.gradient.bias
    ).all()


@pytest.mark.parametrize(
    ("dim", "width", "classes"), [(4096, 2048, 10), (512, 8, 4000)]
)
def test_projections_beyond_exact_products_are_refused(dim, width, classes):
    with pytest.raises(ParameterError, match="too large for exact products"):
        check_size(dim, width, classes)


def test_the_largest_allowed_products_stay_below_2_to_the_53():
    """Worst cases of every product: rows of W 2¹⁰ long and √d/2 more by rounding, prototypes s, gradients 2¹⁴."""
    for dim in (2, 64, 384, 1280, 4096):
        scale = Lattice(dim).scale
        row = 2**10 + dim**0.5 / 2
        classes = int(2**16 / dim**0.5)
        width = min(dim, 2**22 // dim)
        check_size(dim, width, classes)
        rounding = 1 + dim**0.5 / 2**11
        assert classes * row * dim**0.5 * 2**14 * 127 < 2**53
        assert classes * row * scale * 2**14 * 127 < 2**53
        assert width * (row * scale) ** 2 < 2**53 * rounding**2
        assert width * dim * 2**30 < 2**53


@pytest.mark.slow
def test_a_projected_sample_is_a_sample():
    """Of 20,000 records about 200: outside 80 to 320 less than once in 10¹⁵ runs, noise included."""
    lattice = Lattice(4)
    n = 20_000
    query = Projected(SoftmaxGradients(lattice, 2, sampling_rate=0.01), lattice)
    paid = calibrated(
        ApproxDP(1, 1e-6), {"gradients": Measurement(query)}, "add-remove"
    )
    records = HeldRecords(np.tile(np.eye(4)[0], (n, 1)), np.ones(n, int))
    with Measure(paid, records, None) as measure:
        sums = measure(
            "gradients",
            weights=np.zeros((2, 4)),
            projection=IntegerProjection(8 * np.eye(4), 1 / 8),
        )
    assert 80 < 2 * (sums / query.unit)[1, 0] < 320


@pytest.mark.parametrize("step", [0.5, 2.0**50, np.nan, np.inf])
def test_a_projection_whose_products_are_not_exact_is_refused(step):
    """Rounding would depend on the rows beside a row, and one record would move all of them."""
    query = Projected(ClassSums(Lattice(2), CLASSES), LATTICE)
    rows, codes, _, _ = problem()
    records = HeldRecords(rows, codes)
    noise = query.mechanism(GaussianDP(1.0), 1, ADD_REMOVE)
    asked = partial(query.answer, noise, records, randomness(0))
    steps = np.ones((2, DIM))
    assert asked(projection=IntegerProjection(steps, 1.0)).any()
    steps[0, 0] = step
    with pytest.raises(MeasurementError, match="must hold integers"):
        asked(projection=IntegerProjection(steps, 1.0))
