"""Queries: no record moves one further than its reach, and the worst one moves it nearly as far."""

import numpy as np
import pytest

from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy import ApproxDP
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.queries.base import (
    ADD_REMOVE,
    REPLACE_ONE,
    WITHIN_CLASS,
    on_grid,
)
from dppl.kernel.queries.grams import ClassGramMatrices, GramMatrix
from dppl.kernel.queries.second_moment import SecondMoment
from dppl.kernel.queries.softmax_curvatures import SoftmaxCurvatures
from dppl.kernel.queries.softmax_gradients import (
    Hits,
    LongResiduals,
    Shortfalls,
    SoftmaxGradients,
)
from dppl.kernel.queries.sums import (
    ClassCounts,
    ClassSums,
    NumberOfRecords,
    PublicClassSizes,
    WeightedSum,
)
from dppl.kernel.records import HeldRecords

DIM = 16
CLASSES = 3
LATTICE = Lattice(DIM)
# A row that rounding leaves as long as any, and one at a right angle to it.
LONG, ACROSS = np.eye(DIM)[:2]
ROWS = np.random.default_rng(1).normal(size=(5, DIM))
CODES = np.array([0, 1, 1, 0, 2])
NOWHERE = np.zeros((CLASSES, DIM))
STEEP = 99 * np.stack([LONG, -LONG, 0 * LONG])

# Each query, what it is asked, the row that moves it furthest, and its opposite under
# replace-one.
WORST = {
    "number": (NumberOfRecords(), {}, LONG, None),
    "counts": (ClassCounts(CLASSES), {}, LONG, None),
    "sums": (ClassSums(LATTICE, CLASSES), {}, LONG, -LONG),
    "sums of some": (
        ClassSums(LATTICE, CLASSES),
        {"classes": np.array([0])},
        LONG,
        -LONG,
    ),
    "weighted": (
        WeightedSum(LATTICE, CLASSES),
        {"weights": np.array([1.0, 0.5, 0.1])},
        LONG,
        -LONG,
    ),
    "weighted by too much": (
        WeightedSum(LATTICE, CLASSES),
        {"weights": np.array([9.0, np.nan, -1.0])},
        LONG,
        -LONG,
    ),
    "gram": (GramMatrix(LATTICE, CLASSES), {}, LONG, ACROSS),
    "class grams": (ClassGramMatrices(LATTICE, CLASSES), {}, LONG, ACROSS),
    "second moment": (SecondMoment(LATTICE, CLASSES), {}, LONG, ACROSS),
    "gradients": (
        SoftmaxGradients(LATTICE, CLASSES),
        {"weights": NOWHERE, "clip": 0.3},
        LONG,
        -LONG,
    ),
    "gradients and a constant": (
        SoftmaxGradients(LATTICE, CLASSES, 40),
        {"weights": NOWHERE, "offsets": np.zeros(CLASSES), "clip": 0.3},
        LONG,
        None,
    ),
    "long": (
        LongResiduals(LATTICE, CLASSES),
        {"weights": NOWHERE, "offsets": np.zeros(CLASSES), "threshold": 0.1},
        LONG,
        None,
    ),
    "hessians": (
        SoftmaxCurvatures(LATTICE, CLASSES),
        {"weights": NOWHERE},
        LONG,
        ACROSS,
    ),
    "hits": (
        Hits(LATTICE, CLASSES),
        {"weights": STEEP, "offsets": np.zeros(CLASSES)},
        LONG,
        -LONG,
    ),
    "shortfalls": (
        Shortfalls(LATTICE, CLASSES),
        {"weights": STEEP, "class_weights": np.full(CLASSES, 9.0)},
        LONG,
        None,
    ),
}


def moved(one, other):
    """Return the square of how far two values are apart, exactly."""
    return sum(int(step) ** 2 for step in (one - other).ravel())


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_no_record_moves_a_query_further_than_its_reach_and_the_worst_one_nearly_so_far(
    name,
):
    query, asked, row, opposite = WORST[name]

    def total(*added):
        X = np.vstack([ROWS, *(one for one, _ in added)])
        codes = np.append(CODES, [code for _, code in added]).astype(CODES.dtype)
        return HeldRecords(X, codes).total(query, **asked)

    none = total()
    worst = total((row, 0))
    assert 0.97 * query.squared_sensitivity(ADD_REMOVE) <= moved(none, worst)
    rng = np.random.default_rng(2)
    tried = [
        total((rng.normal(size=DIM) * 10.0 ** rng.integers(-3, 4), code))
        for code in (0, 1) * 10
    ]
    others = [*tried[:4], worst, total((-row, 1))]
    for one in [*tried, worst]:
        assert moved(none, one) <= query.squared_sensitivity(ADD_REMOVE)
        for other in others:
            assert moved(one, other) <= query.squared_sensitivity(REPLACE_ONE)
    if opposite is not None:
        assert 0.9 * query.squared_sensitivity(REPLACE_ONE) <= moved(
            worst, total((opposite, 0))
        )


@pytest.mark.parametrize("name", WORST)
def test_only_a_query_that_says_so_has_entries_that_follow_one_class_alone(name):
    """Persons of several classes cost less by such queries, whose entries are so many mechanisms of their own."""
    query, asked, row, _ = WORST[name]
    assert query.per_class == isinstance(query, ClassSums)
    if query.per_class:
        records = (
            HeldRecords(ROWS, CODES),
            HeldRecords(np.vstack([ROWS, row]), np.append(CODES, 0)),
        )
        change = np.subtract(*(one.total(query, **asked) for one in records))
        assert change[0].any()
        assert not change[1:].any()


def test_class_sizes_are_public_only_where_a_record_is_replaced_by_one_of_its_class():
    query = PublicClassSizes(CLASSES)
    assert query.is_public(WITHIN_CLASS)
    for relation in (ADD_REMOVE, REPLACE_ONE):
        with pytest.raises(ParameterError, match="public only where"):
            query.is_public(relation)


@pytest.mark.parametrize("name", ["second moment", "gradients"])
def test_a_query_is_not_asked_for_rows_of_another_norm(name):
    query, asked, *_ = WORST[name]
    records = HeldRecords(ROWS, CODES)
    centred = records.total(query, **asked, at=Lattice(DIM, center=np.full(DIM, 0.1)))
    assert (centred != records.total(query, **asked)).any()
    with pytest.raises(MeasurementError, match="another map"):
        records.total(query, **asked, at=Lattice(9))


@pytest.mark.parametrize("name", WORST)
def test_no_query_is_asked_with_what_it_does_not_check(name):
    """Or a map among it would take the place of the query's own, whose rows the proof is of."""
    query, asked, *_ = WORST[name]
    with pytest.raises((MeasurementError, TypeError), match="argument"):
        HeldRecords(ROWS, CODES).total(query, **asked, lattice=Lattice(DIM, pool=DIM))


def test_weights_stay_on_the_grid_whatever_they_are():
    weights = on_grid(np.array([-1.0, 0.25, 1.0, 7.0, np.nan, np.inf]), STEPS)
    assert weights.tolist() == [0, STEPS // 4, STEPS, STEPS, 0, STEPS]
    narrow = on_grid(np.ones(3, np.float16), STEPS)
    assert narrow.tolist() == [STEPS] * 3


WRONG = {
    "weights of too few classes": ("gradients", {"weights": NOWHERE[:2]}),
    "weights that are too wide": (
        "hessians",
        {"weights": np.zeros((CLASSES, DIM + 1))},
    ),
    "offsets of too many classes": (
        "hits",
        {"weights": STEEP, "offsets": np.zeros(CLASSES + 1)},
    ),
    "a matrix of weights": ("weighted", {"weights": np.ones((CLASSES, CLASSES))}),
    "shares of too few classes": (
        "shortfalls",
        {"weights": STEEP, "class_weights": np.ones(2)},
    ),
    "a class twice": ("sums of some", {"classes": np.array([0, 0])}),
    "no class": ("sums of some", {"classes": np.array([CLASSES])}),
}


@pytest.mark.parametrize("name", WRONG)
def test_shapes_are_refused_whatever_the_records_are(name):
    """An error that only some records raise would tell of them."""
    query = WORST[WRONG[name][0]][0]
    wrong = WRONG[name][1]
    told = set()
    for rows, codes in ((ROWS, CODES), (ROWS[:0], CODES[:0]), (ROWS[:1], CODES[:1])):
        with pytest.raises(MeasurementError) as failure:
            HeldRecords(rows, codes).total(query, **wrong)
        told.add(str(failure.value))
    assert len(told) == 1


@pytest.mark.parametrize("relation", [REPLACE_ONE, WITHIN_CLASS])
def test_samples_are_accounted_under_add_remove_only(relation):
    query = SoftmaxGradients(LATTICE, CLASSES, sampling_rate=0.5)
    with pytest.raises(ParameterError, match="add-remove only"):
        query.mechanism(ApproxDP(1, 1e-6), 1, relation)


def test_a_threshold_is_one_number():
    with pytest.raises(TypeError):
        HeldRecords(ROWS, CODES).total(
            LongResiduals(LATTICE, CLASSES),
            weights=NOWHERE,
            offsets=np.zeros(CLASSES),
            threshold=np.zeros((9, 1)),
        )


def test_a_sample_is_of_the_rows_about_the_centre_that_is_asked_at():
    """A record outside the sample moves nothing."""
    at = Lattice(DIM, center=np.full(DIM, 0.05))
    query = SoftmaxGradients(LATTICE, CLASSES, sampling_rate=0.5)
    mask = np.array([False, True, True, False, True])

    asked = {"weights": NOWHERE, "clip": 0.1, "at": at}
    whole = HeldRecords(ROWS, CODES).sampled(mask).total(query, **asked)
    less = HeldRecords(ROWS[1:], CODES[1:]).sampled(mask[1:]).total(query, **asked)
    alone = HeldRecords(ROWS[mask], CODES[mask]).total(
        SoftmaxGradients(LATTICE, CLASSES), **asked
    )
    assert (whole == less).all()
    assert (whole == alone).all()
