"""Queries: no record moves one further than its reach, and the worst one moves it nearly as far."""

import numpy as np
import pytest

from dppl.kernel.queries import (
    ADD_REMOVE,
    REPLACE_ONE,
    STEPS,
    WITHIN_CLASS,
    ClassCounts,
    ClassGramMatrices,
    ClassSums,
    GramMatrix,
    Hits,
    LongResiduals,
    NumberOfRecords,
    PublicClassSizes,
    Shortfalls,
    SoftmaxCurvatures,
    SoftmaxGradients,
    WeightedSum,
    on_grid,
)
from dppl.kernel.records import HeldRecords
from dppl.lattice import Lattice

DIM, CLASSES = 16, 3
LATTICE = Lattice(DIM)
# A row that rounding leaves as long as any, and one at a right angle to it.
LONG, ACROSS = np.eye(DIM)[:2]
ROWS, CODES = np.random.default_rng(1).normal(size=(5, DIM)), np.array([0, 1, 1, 0, 2])
NOWHERE = np.zeros((CLASSES, DIM))
STEEP = 99 * np.stack([LONG, -LONG, 0 * LONG])

# Each query, what it is asked, the row that moves it furthest, and its opposite under replace-one.
WORST = {
    "number": (NumberOfRecords(), {}, LONG, None),
    "counts": (ClassCounts(CLASSES), {}, LONG, None),
    "sums": (ClassSums(LATTICE, CLASSES), {}, LONG, -LONG),
    "sums of some": (ClassSums(LATTICE, CLASSES), {"classes": np.array([0])}, LONG, -LONG),
    "weighted": (WeightedSum(LATTICE), {"weights": np.array([1.0, 0.5, 0.1])}, LONG, -LONG),
    "weighted by too much": (WeightedSum(LATTICE), {"weights": np.array([9.0, np.nan, -1.0])}, LONG, -LONG),
    "gram": (GramMatrix(LATTICE, CLASSES), {}, LONG, ACROSS),
    "class grams": (ClassGramMatrices(LATTICE, CLASSES), {}, LONG, ACROSS),
    "gradients": (SoftmaxGradients(LATTICE, CLASSES), {"weights": NOWHERE, "clip": 0.3}, LONG, -LONG),
    "gradients and a constant": (
        SoftmaxGradients(LATTICE, CLASSES, 40),
        {"weights": NOWHERE, "offsets": np.zeros(CLASSES), "clip": 0.3},
        LONG,
        None,
    ),
    "long": (
        LongResiduals(LATTICE),
        {"weights": NOWHERE, "offsets": np.zeros(CLASSES), "clip": 1.0, "threshold": 0.1},
        LONG,
        None,
    ),
    "hessians": (SoftmaxCurvatures(LATTICE, CLASSES), {"weights": NOWHERE}, LONG, ACROSS),
    "hits": (Hits(LATTICE), {"weights": STEEP, "offsets": np.zeros(CLASSES)}, LONG, -LONG),
    "shortfalls": (
        Shortfalls(LATTICE, CLASSES),
        {"weights": STEEP, "class_weights": np.full(CLASSES, 9.0)},
        LONG,
        None,
    ),
}


def moved(query, asked, rows, others):
    """Return by how much the square of the value moves from some records to others, exactly."""
    values = [query.exact(HeldRecords(np.array(X), np.array(codes)), **asked) for X, codes in (rows, others)]
    return sum(int(step) ** 2 for step in (values[0] - values[1]).ravel())


@pytest.mark.parametrize("name", WORST)
def test_no_record_moves_a_query_further_than_its_reach_and_the_worst_one_nearly_so_far(name):
    query, asked, row, opposite = WORST[name]
    records, more = (ROWS, CODES), (np.vstack([ROWS, row]), np.append(CODES, 0))
    assert 0.97 * query.squared_reach(ADD_REMOVE) <= moved(query, asked, records, more)
    rng = np.random.default_rng(2)
    tried = [(rng.normal(size=DIM) * 10.0 ** rng.integers(-3, 4), code) for code in (0, 1) * 10]
    for one, code in [*tried, (row, 0)]:
        added = np.vstack([ROWS, one]), np.append(CODES, code)
        assert moved(query, asked, records, added) <= query.squared_reach(ADD_REMOVE)
        for other, label in [*tried[:4], (row, 0), (-row, 1)]:
            replaced = np.vstack([ROWS, other]), np.append(CODES, label)
            assert moved(query, asked, added, replaced) <= query.squared_reach(REPLACE_ONE)
    if opposite is not None:
        replaced = np.vstack([ROWS, opposite]), np.append(CODES, 0)
        assert 0.9 * query.squared_reach(REPLACE_ONE) <= moved(query, asked, more, replaced)


def test_class_sizes_are_public_only_where_a_record_is_replaced_by_one_of_its_class():
    query = PublicClassSizes(CLASSES)
    assert query.squared_reach(WITHIN_CLASS) == 0
    for relation in (ADD_REMOVE, REPLACE_ONE):
        with pytest.raises(ValueError, match="public only where"):
            query.squared_reach(relation)


def test_a_query_is_not_asked_for_rows_of_another_norm():
    gradients, asked = SoftmaxGradients(LATTICE, CLASSES), {"weights": NOWHERE}
    records = HeldRecords(ROWS, CODES)
    centred = gradients.exact(records, **asked, at=Lattice(DIM, center=np.full(DIM, 0.1)))
    assert (centred != gradients.exact(records, **asked)).any()
    with pytest.raises(ValueError, match="another norm"):
        gradients.exact(HeldRecords(np.ones((1, 9)), np.array([0])), weights=np.zeros((3, 9)), at=Lattice(9))


def test_weights_stay_on_the_grid_whatever_they_are():
    weights = on_grid(np.array([-1.0, 0.25, 1.0, 7.0, np.nan, np.inf]), STEPS)
    assert weights.tolist() == [0, STEPS // 4, STEPS, STEPS, 0, STEPS]
