"""Shares by which all records of a person move a count no further than one record does."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.residuals import WEIGHT_STEPS
from dppl.kernel.persons import WholePersons
from dppl.kernel.privacy.sensitivity import PARTS, RESOLUTION, STEPS
from dppl.kernel.queries.second_moment import SecondMoment
from dppl.kernel.queries.softmax_gradients import Shortfalls
from dppl.kernel.queries.sums import ClassCounts, NumberOfRecords
from dppl.kernel.records import HeldRecords

DIM = 8
LATTICE = Lattice(DIM)


@st.composite
def records(draw):
    """Lattice rows, classes and persons; the rows of a person are alike, opposite, or in any direction."""
    n = draw(st.integers(1, 40))
    n_persons = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    numbers = rng.integers(n_persons, size=n)
    X = (
        draw(st.sampled_from([0.0, 0.3, 3.0])) * rng.normal(size=(n, DIM))
        + rng.normal(size=(n_persons, DIM))[numbers]
    )
    X *= rng.choice([-1, 1], size=(n, 1))
    return LATTICE.transform(X), rng.integers(-1, 3, size=n), numbers, rng


@given(records())
@settings(max_examples=100)
def test_a_person_counts_once_in_sizes_moments_and_shortfalls(case):
    """Each person alone adds what all add together, and a vector no longer than that of a record."""
    rows, codes, numbers, rng = case
    weights = 3 * rng.normal(size=(3, DIM))
    of_classes = rng.integers(0, WEIGHT_STEPS + 1, 3)

    def added(kept):
        few = np.where(kept, codes, -1)
        held = HeldRecords(rows, few, WholePersons(few, numbers))
        assert held.total(NumberOfRecords()) == len(np.unique(numbers[few >= 0]))
        short = held.total(
            Shortfalls(LATTICE, 3),
            weights=weights,
            class_weights=of_classes / WEIGHT_STEPS,
        )
        return held.total(ClassCounts(3)), held.total(SecondMoment(LATTICE, 3)), short

    parts = [added(numbers == person) for person in np.unique(numbers)]
    for whole, *each in zip(added(np.ones(len(rows), bool)), *parts, strict=True):
        assert (whole == sum(each)).all()
    longest = PARTS * LATTICE.squared_norm
    for sizes, moment, short in parts:
        assert sum(int(v) ** 2 for v in sizes) <= STEPS**2
        assert sum(int(v) ** 2 for v in moment.ravel()) <= longest**2
        assert sum(int(v) ** 2 for v in short) <= RESOLUTION**2


@given(records(), st.integers(0, 3 * 2**16))
@settings(max_examples=100)
def test_shares_of_a_person_add_up_to_the_weight_of_a_class_at_most(case, largest):
    _, codes, numbers, rng = case
    of_classes = rng.integers(0, largest + 1, size=3)
    shares = WholePersons(codes, numbers).shares(of_classes)
    assert (shares >= 0).all()
    assert np.bincount(numbers, shares).max() <= of_classes.max()
    alone = np.bincount(numbers, codes >= 0)[numbers] == 1
    assert (shares == of_classes[codes])[alone & (codes >= 0)].all()


@given(records(), st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_persons_are_right_by_at_least_half_of_their_records(case, seed):
    _, codes, numbers, _ = case
    records_right = np.random.default_rng(seed).random(len(codes)) < 0.5
    expected = 0
    for person in np.unique(numbers):
        own = (numbers == person) & (codes >= 0)
        expected += bool(own.any() and records_right[own].mean() >= 0.5)
    assert WholePersons(codes, numbers).right(records_right) == expected


@given(records(), st.integers(1, 3))
@settings(max_examples=100)
def test_the_classes_of_most_records_are_kept(case, k):
    _, codes, numbers, _ = case
    kept = WholePersons.of(codes, numbers, 3, k).codes
    assert ((kept == codes) | (kept == -1)).all()
    for person in np.unique(numbers):
        own = numbers == person
        sizes = np.bincount(codes[own & (codes >= 0)], minlength=3)
        best = sorted(
            np.flatnonzero(sizes).tolist(), key=lambda code: (-sizes[code], code)
        )[:k]
        assert sorted(set(kept[own]) - {-1}) == sorted(best)
        assert (kept[own] >= 0).sum() == sizes[best].sum()
