"""Queries of outcomes: no record, and no person, moves one further than its reach, and the worst moves it as far."""

from dataclasses import replace

import numpy as np
import pytest

from dppl.errors import MeasurementError
from dppl.kernel.persons import WholePersons
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.queries import outcomes
from dppl.kernel.queries.outcomes import (
    TEMPERATURES,
    BandOutcomes,
    CalibrationSums,
    ClassOutcomes,
    Confusions,
    FalseAlarms,
    Guesses,
    Outcomes,
    ReliabilityBins,
    ScoreHistogram,
    Totals,
)

CLASSES = np.array(["a", "b", "c"])
BANDS = {"bands": np.array([0, 0, 1]), "weights": np.array([0.3, 1.0, 9.0])}
# Each query, what it is asked at, and how much of its reach the worst record uses;
# truncation takes the rest.
QUERIES = {
    "totals": (Totals(), {}, 1),
    "classes": (ClassOutcomes(3), {}, 1),
    "bands": (BandOutcomes(3), BANDS, 1),
    "alarms": (FalseAlarms(3), {}, 1),
    "confusions": (Confusions(3), {}, 1),
    "calibration": (CalibrationSums(), {}, 0.999),
    "reliability": (ReliabilityBins(), {}, 1),
    "histogram": (ScoreHistogram(), {}, 1),
}
# What a record may be: its label and what a classifier says of it, also nothing and
# nonsense.
SURE = [1.0, 0.0, 0.0]
EVEN = [0.4, 0.35, 0.25]
NONSENSE = [np.nan, 9.0, -1.0]
RECORDS = [
    *(
        (label, [0, 1, 2][code], row)
        for label in "abc"
        for code in range(3)
        for row in (SURE, EVEN, SURE[::-1])
    ),
    ("a", -1, NONSENSE),
    ("b", 1, NONSENSE),
    ("elsewhere", 0, SURE),
    (None, 2, EVEN),
    (np.nan, 2, EVEN),
]


def held(records, ids=None, two_classes=False):
    """Return outcomes of records; of two classes, labels are the first two."""
    width = 2 if two_classes else 3
    labels = np.array([label for label, _, _ in records], object)
    predicted = np.array([min(code, width - 1) for _, code, _ in records], np.intp)
    table = np.array([row[:width] for _, _, row in records], np.float64).reshape(
        len(records), width
    )
    ids = None if ids is None else np.array(ids)
    return Outcomes.of(
        labels,
        ids,
        CLASSES[:width],
        [Guesses(predicted, table)],
        top_k=2,
        confidences=True,
    )


def moved(query, asked, more, fewer):
    change = more.total(query, **asked) - fewer.total(query, **asked)
    return sum(int(step) ** 2 for step in change.ravel())


def largest_move(name, sizes=(1,)):
    """Return the largest square by which one more person of so many records moves a query, over many persons."""
    query, asked, _ = QUERIES[name]
    rng = np.random.default_rng(3)
    two = name == "histogram"
    base = RECORDS[::2]
    ids = [k // 2 for k in range(len(RECORDS[::2]))]
    largest = 0
    fewer = held(base, ids, two)
    for size in sizes:
        # All records alike are the worst; others are mixed.
        persons = [[one] * size for one in RECORDS]
        persons += [
            [RECORDS[k] for k in rng.integers(0, len(RECORDS), size)] for _ in range(20)
        ]
        for person in persons:
            more = held([*base, *person], [*ids, *[-1] * size], two)
            largest = max(largest, moved(query, asked, more, fewer))
    return largest


@pytest.mark.parametrize("name", QUERIES)
def test_no_person_moves_a_query_further_than_one_record_and_the_worst_one_as_far(name):
    query, _, share = QUERIES[name]
    assert query.squared_norm == STEPS**2
    assert share * STEPS**2 <= largest_move(name) <= STEPS**2
    assert share * STEPS**2 <= largest_move(name, (2, 3, 50)) <= STEPS**2


def persons_weigh_one(shares):
    """Return whether the records of each person weigh 2¹⁶, evenly, whoever else there is."""
    rng = np.random.default_rng(0)
    numbers = rng.permutation(np.repeat(np.arange(6), [1, 2, 3, 50, 3000, 70_000]))
    codes = rng.integers(-1, 3, len(numbers))
    weights = shares(codes, numbers)
    alike = [
        shares(codes[numbers == one], 0 * numbers[numbers == one]) for one in range(6)
    ]
    assert all((weights[numbers == one] == alike[one]).all() for one in range(6))
    assert not weights[codes < 0].any()
    counted = [weights[(numbers == one) & (codes >= 0)] for one in range(6)]
    return all(one.sum() == STEPS and np.ptp(one) <= 1 for one in counted if len(one))


def test_the_records_of_a_person_weigh_one_record_together():
    assert persons_weigh_one(outcomes._shares)
    # The control: shares that are rounded down lose up to a step a record.
    assert not persons_weigh_one(
        lambda codes, numbers: WholePersons(codes, numbers).shares(np.full(3, STEPS))
    )


@pytest.mark.parametrize("name", QUERIES)
def test_no_order_of_the_records_of_persons_shows(name):
    query, asked, _ = QUERIES[name]
    rng = np.random.default_rng(4)
    two = name == "histogram"
    some = [
        (RECORDS[k], person)
        for person in range(50)
        for k in rng.integers(0, len(RECORDS), 3)
    ]
    totals = []
    for order in (range(150), rng.permutation(150), rng.permutation(150)):
        records, ids = zip(*(some[place] for place in order), strict=True)
        totals.append(
            held(list(records), list(ids), two).total(query, **asked).tolist()
        )
    assert totals[0] == totals[1] == totals[2]


def count_each_record(patch):
    patch.setattr(
        outcomes, "_shares", lambda codes, numbers, *_: np.where(codes >= 0, STEPS, 0)
    )


def round_shares_up(patch):
    whole = outcomes._shares
    patch.setattr(
        outcomes,
        "_shares",
        lambda codes, numbers, *told: whole(codes, numbers, *told) + (codes >= 0),
    )


def forget_the_root(patch):
    patch.setattr(outcomes, "_MOST", STEPS)


def believe_the_weights(patch):
    patch.setattr(
        outcomes,
        "on_grid",
        lambda weights, steps: np.rint(weights * steps).astype(np.int64),
    )


def weigh_by_true_sizes(patch):
    """Give small classes the weight of the largest, from the records and not from released sizes."""
    whole = BandOutcomes.exact

    def exact(self, some, *, bands, steps):
        sizes = np.maximum(np.bincount(some.codes[some.codes >= 0], minlength=3), 1)
        return whole(self, some, bands=bands, steps=steps.max() * sizes.min() // sizes)

    patch.setattr(BandOutcomes, "exact", exact)


def count_alarms_and_all(patch):
    patch.setattr(
        FalseAlarms,
        "exact",
        lambda self, some: np.append(some.right.sum(), some.weights.sum()),
    )


FAULTS = [
    (count_each_record, "totals", (2, 50)),
    (round_shares_up, "classes", (3, 50)),
    (forget_the_root, "calibration", (1,)),
    (believe_the_weights, "bands", (1,)),
    (weigh_by_true_sizes, "bands", (50,)),
    (count_alarms_and_all, "alarms", (1,)),
]


@pytest.mark.parametrize(("fault", "name", "sizes"), FAULTS)
def test_the_law_notices(fault, name, sizes, monkeypatch):
    assert largest_move(name, sizes) <= STEPS**2
    fault(monkeypatch)
    assert largest_move(name, sizes) > STEPS**2


@pytest.mark.parametrize("name", QUERIES)
def test_parts_add_up_in_any_order(name):
    query, asked, _ = QUERIES[name]
    two = name == "histogram"
    order = np.random.default_rng(0).permutation(len(RECORDS))
    whole = held(RECORDS, None, two).total(query, **asked)
    assert (
        held([RECORDS[k] for k in order], None, two).total(query, **asked) == whole
    ).all()
    halves = [
        held(RECORDS[start::2], None, two).total(query, **asked) for start in (0, 1)
    ]
    assert (np.add(*halves) == whole).all()
    assert (held([], None, two).total(query, **asked) == 0 * whole).all()


def test_records_without_a_class_count_nowhere_and_those_without_a_prediction_are_misses():
    nowhere = held([one for one in RECORDS if one[0] not in set("abc")])
    for name, (query, asked, _) in QUERIES.items():
        if name != "histogram":
            assert not nowhere.total(query, **asked).any()
    missed = held([("a", -1, NONSENSE)])
    assert missed.total(Totals()).tolist() == [0, 0, STEPS]
    assert missed.total(ClassOutcomes(3)).tolist() == [[0, 0, 0], [STEPS, 0, 0]]
    for query in (FalseAlarms(3), CalibrationSums(), Confusions(3)):
        assert not missed.total(query).any()


def test_numbers_and_texts_name_the_same_class():
    labels = np.array([1, "1", 1.0, "2", 2.5], object)
    classes = np.array([1, 2])
    some = Outcomes.of(labels, None, classes, [Guesses(np.array([0, 0, 0, 0, 0]))])
    assert some.codes.tolist() == [0, 0, 0, 1, -1]
    assert some.total(Totals()).tolist() == [3 * STEPS, 0, STEPS]


def test_the_tables_by_hand():
    some = held(
        [
            ("a", 0, EVEN),
            ("a", 1, EVEN),
            ("b", 2, EVEN),
            ("c", 2, [0.2, 0.2, 0.6]),
            ("c", 0, SURE),
        ]
    )
    in_records = lambda query, **asked: (some.total(query, **asked) / STEPS).tolist()  # noqa: E731
    assert in_records(Totals()) == [
        2,
        2,
        1,
    ]  # b and a are among the two likeliest of EVEN
    assert in_records(ClassOutcomes(3)) == [[1, 0, 1], [1, 1, 1]]
    assert in_records(FalseAlarms(3)) == [1, 1, 1]
    assert in_records(Confusions(3)) == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert in_records(BandOutcomes(3), bands=[0, 1, 0], weights=[1, 0.5, 0.25]) == [
        [1.25, 0],
        [1.25, 0.5],
    ]
    bins = np.zeros((2, 15))
    np.add.at(bins, ([0, 1, 1, 0, 1], [6, 5, 4, 8, 14]), 1)
    assert in_records(ReliabilityBins()) == bins.tolist()


def test_confidences_are_those_of_the_softmax_at_each_temperature():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 3)) * 3
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    some = Outcomes.of(
        np.full(50, "a"),
        None,
        CLASSES,
        [Guesses(logits.argmax(axis=1), table)],
        confidences=True,
    )
    for column, temperature in enumerate(TEMPERATURES):
        powers = np.exp(logits / temperature)
        assert some.confidences[:, column] == pytest.approx(
            powers.max(axis=1) / powers.sum(axis=1)
        )
    # Excess of confidence, in integers that lose less than a step a record.
    exact = (some.confidences - some.right[:, None]).sum(axis=0)
    assert some.total(CalibrationSums()) / CalibrationSums().unit == pytest.approx(
        exact, abs=50 / STEPS * 3
    )


def test_a_record_has_the_same_confidence_at_every_place():
    rng = np.random.default_rng(1)
    table = rng.dirichlet(np.ones(300), 700).astype(np.float32)
    of = lambda rows: Outcomes.of(  # noqa: E731
        np.zeros(len(rows)),
        None,
        np.arange(300),
        [Guesses(rows.argmax(axis=1), rows)],
        top_k=5,
        confidences=True,
    )
    first = of(table)
    turned = of(np.roll(table, 123, axis=0))
    assert (
        np.roll(first.confidences, 123, axis=0).tobytes()
        == turned.confidences.tobytes()
    )
    assert (np.roll(first.among, 123) == turned.among).all()
    alone = of(table[7:8])
    assert alone.confidences.tobytes() == first.confidences[7:8].tobytes()


def test_bands_of_another_shape_are_refused_whatever_the_records_are():
    for records in (RECORDS, []):
        for wrong in (
            {"bands": np.array([0, 0])},
            {"bands": np.array([0, 0, 3])},
            {"weights": np.ones(2)},
        ):
            with pytest.raises(MeasurementError):
                held(records).total(BandOutcomes(3), **(BANDS | wrong))


def test_a_representation_shows_no_record():
    some = held(RECORDS)
    assert "Outcomes object" in repr(some)
    assert "Guesses object" in repr(replace(Guesses(some.predicted)))
