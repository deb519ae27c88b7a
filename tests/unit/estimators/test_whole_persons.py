"""Weights by which all records of a person move a sum no further than one record does."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl import GaussianDP, Ledger, SoftmaxPrototypes
from dppl.errors import InputError
from dppl.kernel import persons
from dppl.kernel.lattice import Lattice, stream
from dppl.kernel.lattice.residuals import RESOLUTION, WEIGHT_STEPS, SoftmaxGradient
from dppl.kernel.persons import WholePersons
from dppl.kernel.queries import STEPS, ClassCounts, NumberOfRecords, Shortfalls, SoftmaxGradients
from dppl.kernel.records import HeldRecords

DIM = 8
LATTICE = Lattice(DIM)


@st.composite
def records(draw):
    """Lattice rows, classes and persons; the rows of a person are alike, opposite, or in any direction."""
    n, n_persons = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    numbers = rng.integers(n_persons, size=n)
    X = draw(st.sampled_from([0.0, 0.3, 3.0])) * rng.normal(size=(n, DIM)) + rng.normal(size=(n_persons, DIM))[numbers]
    X *= rng.choice([-1, 1], size=(n, 1))
    return LATTICE.transform(X), rng.integers(-1, 3, size=n), numbers, rng


def weights_of(rows, codes, numbers, size=7):
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return WholePersons(codes, numbers).gradient_weights(blocks, LATTICE)


@given(records())
@settings(max_examples=100)
def test_a_person_counts_once_in_sizes_and_shortfalls(case):
    """Each person alone adds what all add together, and a vector no longer than that of a record."""
    rows, codes, numbers, rng = case
    weights, of_classes = 3 * rng.normal(size=(3, DIM)), rng.integers(0, WEIGHT_STEPS + 1, 3)

    def added(kept):
        few = np.where(kept, codes, -1)
        held = HeldRecords(rows, few, WholePersons(few, numbers))
        assert held.total(NumberOfRecords()) == len(np.unique(numbers[few >= 0]))
        short = held.total(Shortfalls(LATTICE, 3), weights=weights, class_weights=of_classes / WEIGHT_STEPS)
        return held.total(ClassCounts(3)), short

    parts = [added(numbers == person) for person in np.unique(numbers)]
    for whole, *each in zip(added(np.ones(len(rows), bool)), *parts, strict=True):
        assert (whole == sum(each)).all()
    for sizes, short in parts:
        assert sum(int(v) ** 2 for v in sizes) <= STEPS**2
        assert sum(int(v) ** 2 for v in short) <= RESOLUTION**2


@pytest.mark.slow
@given(records())
@settings(max_examples=200)
def test_no_residuals_make_a_person_longer_than_a_record(case):
    """The worst residuals of these weights are along the first singular vector; and any others are shorter."""
    rows, codes, numbers, rng = case
    weights = weights_of(rows, codes, numbers)
    assert (weights[codes < 0] == 0).all()
    for person in np.unique(numbers[codes >= 0]):
        own = (numbers == person) & (codes >= 0)
        Q, share = rows[own].astype(float), weights[own] / WEIGHT_STEPS
        assert (share == share[0]).all()
        longest = float(LATTICE.squared_norm) ** 0.5
        worst = share[0] * np.sqrt(len(Q)) * np.linalg.norm(Q, 2)
        assert worst <= longest * (1 + 1e-12)  # rounding of the singular value
        one = rng.normal(size=(3, own.sum()))
        one /= np.linalg.norm(one, axis=0)
        assert np.linalg.norm((one * share) @ Q) <= longest * (1 + 1e-12)
        assert weights[own][0] >= WEIGHT_STEPS // len(Q)
        # No more caution than the trace of the fourth power takes: at most the fourth root of the number of records.
        assert worst * len(Q) ** 0.25 >= min(longest, share[0] * len(Q) ** 0.75 * np.linalg.norm(Q, 2)) * 0.999


@given(records())
@settings(max_examples=100)
def test_a_weight_depends_on_the_records_of_one_person_in_any_order(case):
    rows, codes, numbers, rng = case
    whole = weights_of(rows, codes, numbers)
    order = rng.permutation(len(rows))
    assert (weights_of(rows[order], codes[order], numbers[order], size=3) == whole[order]).all()
    for person in np.unique(numbers):
        own = numbers == person
        alone = weights_of(rows[own], codes[own], np.zeros(own.sum(), np.intp), size=5)
        assert (alone == whole[own]).all()


@pytest.mark.parametrize(
    ("kind", "expected"), [("alike", 1 / 4), ("orthogonal", 1 / np.sqrt(8)), ("one", 1), ("zero", 1 / 4)]
)
def test_known_weights(kind, expected):
    Q = {
        "alike": np.tile(np.eye(DIM)[:1], (4, 1)),
        "orthogonal": np.eye(DIM)[:4],
        "one": np.eye(DIM)[:1],
        "zero": np.zeros((4, DIM)),
    }[kind]
    rows, none = LATTICE.transform(Q), np.zeros(len(Q), np.intp)
    # In sums of the squares of four orthogonal rows' products there are four; rows are a little shorter than s.
    shorter = min(np.linalg.norm(rows[0].astype(float)) / float(LATTICE.squared_norm) ** 0.5 or 1, 1)
    assert weights_of(rows, none, none) / WEIGHT_STEPS == pytest.approx(min(expected / shorter, 1), abs=2e-6)


def test_persons_of_very_many_records_have_equal_shares(monkeypatch):
    rows = LATTICE.transform(np.random.default_rng(0).normal(size=(50, DIM)))
    zeros = np.zeros(50, np.intp)
    several = weights_of(rows, zeros, zeros)
    monkeypatch.setattr(persons, "_LARGEST_TRACE", 49 * float(LATTICE.squared_norm))
    assert (weights_of(rows, zeros, zeros) == WEIGHT_STEPS // 50).all()
    assert (several > WEIGHT_STEPS // 50).all()


@pytest.mark.slow
def test_a_person_of_many_records_takes_no_memory_for_every_pair_of_them():
    """All pairs of these take 128 MB a matrix, and 36 GB for the most records of 32 features that are looked at."""
    rows = LATTICE.transform(np.random.default_rng(0).normal(size=(4000, DIM)) + 1)
    tracemalloc.start()
    try:
        weight = weights_of(rows, np.zeros(4000, np.intp), np.zeros(4000, np.intp), size=1000)[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4e6
    fourth = int(np.square(rows.astype(np.int64) @ rows.astype(np.int64).T).sum())
    most = WEIGHT_STEPS * (float(LATTICE.squared_norm) ** 2 / (4000**2 * fourth)) ** 0.25
    assert most * (1 - 1e-8) - 1 <= weight <= most


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
        best = sorted(np.flatnonzero(sizes).tolist(), key=lambda code: (-sizes[code], code))[:k]
        assert sorted(set(kept[own]) - {-1}) == sorted(best)
        assert (kept[own] >= 0).sum() == sizes[best].sum()


@pytest.mark.slow
@given(records(), st.sampled_from([2.0**-3, 0.5, 1.0]))
@settings(max_examples=100)
def test_weighted_gradients_are_what_single_records_add(case, clip):
    """A slow sum over records, each alone, with its steps cut off towards zero by its weight."""
    rows, codes, _, rng = case
    gradient, W = SoftmaxGradient(LATTICE), rng.normal(size=(3, DIM))
    weights = rng.integers(0, WEIGHT_STEPS + 1, size=len(rows))
    expected = np.zeros((3, DIM), np.int64)
    for row, code, weight in zip(rows, codes, weights, strict=True):
        if code < 0 or not row.any():
            continue
        place = np.flatnonzero(row)[0]
        alone = gradient.sum([row[None]], np.array([code]), W, clip=clip)
        steps = alone[:, place] // int(row[place])
        assert (np.outer(steps, row) == alone).all()
        cut = np.array([int(abs(int(s)) * int(weight) // WEIGHT_STEPS) * (1 if s > 0 else -1) for s in steps])
        assert (cut.astype(float) ** 2).sum() <= RESOLUTION**2 * (weight / WEIGHT_STEPS) ** 2
        expected += np.outer(cut, row)
    assert (gradient.sum([rows[:5], rows[5:]], codes, W, clip=clip, of_records=weights) == expected).all()
    assert (
        gradient.sum([rows], codes, W, clip=clip)
        == gradient.sum([rows], codes, W, clip=clip, of_records=np.full(len(rows), WEIGHT_STEPS))
    ).all()


# Tables that change between passes.


class Changing:
    """A table with other rows in some of the passes over it."""

    def __init__(self, rows, others, passes):
        self._rows, self._others, self._passes, self.shape = rows, others, passes, rows.shape
        self.n_passes = 0

    def blocks(self, size):
        rows = self._others if self.n_passes in self._passes else self._rows
        self.n_passes += 1
        for start in range(0, len(rows), size):
            yield rows[start : start + size]


MANY = 200


def one_person_more(others, passes):
    """Return what a person of many equal records adds to a gradient, in multiples of what may be added."""
    X = np.random.default_rng(0).normal(size=(2 * MANY, DIM))
    X[:MANY] = X[0]
    numbers = np.concatenate([np.zeros(MANY, np.intp), np.arange(1, MANY + 1)])
    changed = np.concatenate([others, X[MANY:]])
    gradient, W = SoftmaxGradient(LATTICE), np.random.default_rng(1).normal(size=(3, DIM))

    def total(codes):
        records = HeldRecords(Changing(X, changed, passes), codes, WholePersons(codes, numbers))
        return records.total(SoftmaxGradients(LATTICE, 3), weights=W).astype(float)

    added = total(np.zeros(2 * MANY, np.intp)) - total(np.where(numbers > 0, 0, -1))
    return np.linalg.norm(added) / float(gradient.squared_sensitivity) ** 0.5


@pytest.mark.parametrize("others", [np.zeros((MANY, DIM)), np.eye(DIM)[np.arange(MANY) % DIM]], ids=["zero", "apart"])
def test_a_weight_holds_for_no_other_rows(others, monkeypatch):
    """Rows of the pass that finds weights earned up to 200 times the weight of those that were then added."""
    monkeypatch.setattr(stream, "_CACHE_BYTES", 0)
    assert one_person_more(others, passes=()) <= 1
    assert one_person_more(others, passes=(0, 1)) <= 1
    with pytest.raises(InputError, match=r"^the records changed while they were read\.$"):
        one_person_more(others, passes=(0,))


def test_a_fit_on_persons_ends_if_the_table_changes_and_stays_charged(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(60, DIM)), np.arange(60) % 3, np.arange(60) // 4
    model = SoftmaxPrototypes(GaussianDP(1.0), [0, 1, 2], random_state=0)
    expected = model.fit(X, y, groups=groups).coef_
    monkeypatch.setattr(stream, "_CACHE_BYTES", 20 * DIM)
    whole = Changing(X, X, ())
    assert (model.fit(whole, y, groups=groups).coef_ == expected).all()
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(100.0), unit="person")
    others = X.copy()
    others[-1] = X[0]
    weights = 2  # passes before: which rows can be used, and the mean
    for place in range(weights, whole.n_passes):
        with pytest.raises(InputError, match="changed") as caught:
            SoftmaxPrototypes(GaussianDP(1.0), [0, 1, 2]).fit(
                Changing(X, others, (place,)), y, groups=groups, ledger=ledger
            )
        assert "The ledger keeps the charge" in caught.value.__notes__[0]
    assert len(ledger.releases()) == whole.n_passes - weights
    # Without persons each sum bounds what a record adds to it, whatever the record was before.
    model.fit(Changing(X, others, (weights, weights + 1)), y)
