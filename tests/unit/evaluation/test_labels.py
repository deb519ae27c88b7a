"""An evaluation of several labels a record: how far one record moves it, what it says, and how often it is right."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from scipy import stats
from sklearn import metrics as sklearn_metrics
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier

import dppl
from dppl import GaussianDP, Ledger, MultiLabelPrototypes
from dppl.errors import BudgetExceeded, InputError, ParameterError
from dppl.evaluation import AlreadyPredicted, Evaluation, choose, compare
from dppl.evaluation import measuring as evaluating
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.measure import calibrated
from dppl.kernel.mechanisms.randomness import SeededRandomness
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.privacy.terms import Assumption, Term, Unit
from dppl.kernel.queries import outcomes
from dppl.kernel.queries.base import ADD_REMOVE
from dppl.kernel.queries.outcomes import (
    Guesses,
    LabelOutcomes,
    SeveralOutcomes,
    WholeSets,
)
from dppl.metrics import evaluate_several
from dppl.prediction.pending import LabelSets
from laws.replay import spent, watched

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "evaluation.schema.json").read_text("utf-8")
)
CLASSES = list("fedcba")  # in no order
K = 2
TABLE = AlreadyPredicted(CLASSES, max_labels=K, separator=";")
BUDGET = GaussianDP(0.5)
SEVERAL = LabelSets(K, MultiLabel(";"))


def made_up(n, seed=0):
    """Return sets of true and of predicted labels: some of more labels than count, some of none."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, 6)) < [0.6, 0.5, 0.3, 0.2, 0.1, 0.0]
    return truth, np.where(rng.random((n, 6)) < 0.8, truth, rng.random((n, 6)) < 0.3)


def held(truth, predicted, ids=None):
    """Return outcomes as an evaluation hands them to the kernel."""
    guesses = [Guesses(np.zeros(len(truth), np.intp), np.where(predicted, 1.0, -1.0))]
    return SeveralOutcomes.of(
        truth, None if ids is None else np.asarray(ids), guesses, K
    )


def sets(*texts):
    return np.array([[name in text for name in CLASSES] for text in texts])


# The worst record: two labels that are missed, and two others that are predicted.
WORST = sets("fe"), sets("dc")
RECORDS = [
    WORST,
    (sets("fedcba"), sets("")),
    (sets(""), sets("fedcba")),
    (sets("fed"), sets("fed")),
    (sets("a"), sets("a")),
]


def furthest(query, sizes):
    """Return the largest square by which one person more, of so many records, moves a query."""
    rng, (truth, predicted) = np.random.default_rng(1), made_up(9)
    base = held(truth, predicted, np.arange(9)).total(query)
    largest = 0
    pool = [
        *RECORDS,
        *((one[None], other[None]) for one, other in zip(*made_up(20, 2), strict=True)),
    ]
    for size in sizes:
        persons = [[one] * size for one in pool] + [
            [pool[k] for k in rng.integers(len(pool), size=size)]
        ]
        for person in persons:
            more = [
                np.vstack([one, *(pair[place] for pair in person)])
                for place, one in enumerate((truth, predicted))
            ]
            change = (
                held(*more, np.append(np.arange(9), np.full(size, 99))).total(query)
                - base
            )
            largest = max(largest, sum(int(step) ** 2 for step in change.ravel()))
    return largest


@pytest.mark.parametrize("sizes", [(1,), (2, 3, 50)])
def test_no_record_and_no_person_moves_a_query_further_than_its_reach_and_the_worst_one_as_far(
    sizes,
):
    assert (
        furthest(WholeSets(), sizes)
        == WholeSets().squared_sensitivity(ADD_REMOVE)
        == STEPS**2
    )
    labels = LabelOutcomes(6, K)
    assert (
        furthest(labels, sizes)
        == labels.squared_sensitivity(ADD_REMOVE)
        == 2 * K * STEPS**2
    )


def test_a_record_enters_no_more_cells_than_there_are_labels():
    assert LabelOutcomes(3, 5).squared_norm == 3 * STEPS**2
    assert LabelOutcomes(100, 5).squared_norm == 10 * STEPS**2


@pytest.mark.parametrize("query", [WholeSets(), LabelOutcomes(6, K)])
def test_no_order_of_the_records_of_persons_shows(query):
    truth, predicted = np.random.default_rng(0).random((2, 150, 6)) < 0.4
    predicted[::3] = truth[::3]
    ids = np.arange(150) // 3
    totals = [
        held(truth[o], predicted[o], ids[o]).total(query)
        for o in (np.arange(150), np.arange(150)[::-1])
    ]
    assert (totals[0] == totals[1]).all()


def count_all_labels(patch):
    patch.setattr(outcomes, "first_labels", lambda labels, most: labels)


def count_each_record(patch):
    patch.setattr(outcomes, "_shares", lambda codes, *_: np.full(len(codes), STEPS))


def count_a_hit_twice(patch):
    whole = LabelOutcomes.exact
    twice = lambda self, some: whole(self, some) + whole(self, some)[[0, 0, 0]]  # noqa: E731
    patch.setattr(LabelOutcomes, "exact", twice)


@pytest.mark.parametrize(
    ("fault", "sizes"),
    [(count_all_labels, (1,)), (count_each_record, (3,)), (count_a_hit_twice, (1,))],
)
def test_the_law_notices(fault, sizes, monkeypatch):
    fault(monkeypatch)
    assert furthest(LabelOutcomes(6, K), sizes) > LabelOutcomes(
        6, K
    ).squared_sensitivity(ADD_REMOVE)


def test_what_counts_of_a_record_follows_from_it_alone():
    # The third true label is neither missed nor a false alarm, and of the predicted
    # ones the likeliest count.
    truth = sets("fed")
    margins = np.array([[-1.0, -1, 3, 1, 2, 4]])
    some = SeveralOutcomes.of(truth, None, [Guesses(np.array([0]), margins)], K)
    assert (some.total(LabelOutcomes(6, K)) // STEPS).tolist() == [
        [0] * 6,
        [1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    # Whether all labels are right looks at all of them; a record of none that cannot be
    # scored is not right.
    right = held(sets("fed", "", "fed"), sets("fed", "", "fe"))
    assert right.total(WholeSets()).tolist() == [2 * STEPS, STEPS]
    lost = SeveralOutcomes.of(
        sets(""), None, [Guesses(np.array([-1]), np.ones((1, 6)))], K
    )
    assert lost.total(WholeSets()).tolist() == [0, STEPS]
    assert not lost.total(LabelOutcomes(6, K)).any()
    truth, predicted = made_up(50)
    whole = held(truth, predicted).total(LabelOutcomes(6, K))
    halves = [
        held(truth[start::2], predicted[start::2]).total(LabelOutcomes(6, K))
        for start in (0, 1)
    ]
    assert (np.add(*halves) == whole).all()


@pytest.mark.parametrize("persons", [False, True])
def test_with_the_same_noise_neighbours_have_the_same_evaluation_at_the_stated_cost(
    persons,
):
    (truth, predicted), ids = made_up(30), np.arange(30) // 2
    largest = Fraction(0)
    for one, other in RECORDS:
        size = 50 if persons else 1
        more = [
            np.vstack([whole, *[row] * size])
            for whole, row in ((truth, one), (predicted, other))
        ]
        groups = [ids, np.append(ids, [-1] * size)] if persons else [None, None]
        with watched() as uses:
            first = evaluated(*more, groups=groups[1])
        with watched([answer for _, _, answer in uses]) as again:
            second = evaluated(truth, predicted, groups=groups[0])
        assert first.to_dict() == second.to_dict()
        assert str(first) == str(second)
        assert len(uses) == len(first.guarantee.releases) == 2
        cost = sum(spent(*pair, 1) for pair in zip(uses, again, strict=True))
        assert cost <= Fraction(first.guarantee.mu) ** 2 <= Fraction(BUDGET.mu) ** 2
        largest = max(largest, cost / Fraction(BUDGET.mu) ** 2)
    assert largest > 0.99  # the worst record uses the whole budget


def evaluated(truth, predicted, *, budget=BUDGET, seed=0, **options):
    return dppl.evaluate(
        TABLE,
        predicted.astype(int),
        truth.astype(int),
        budget,
        random_state=seed,
        **options,
    )


STRONG = GaussianDP(20000.0)  # noise far below one record


@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
def test_with_hardly_any_noise_the_numbers_are_those_of_the_records():
    truth, predicted = made_up(4000)
    few = (truth.sum(axis=1) <= K) & (predicted.sum(axis=1) <= K)
    truth = truth[few]
    predicted = predicted[few]
    one = evaluated(truth, predicted, budget=STRONG)

    def score(name, average):
        return getattr(sklearn_metrics, name)(
            truth, predicted, average=average, zero_division=0
        )

    assert one.n.value == pytest.approx(len(truth), abs=0.5)
    assert one.accuracy.value == pytest.approx(
        sklearn_metrics.accuracy_score(truth, predicted), abs=1e-3
    )
    assert one.labels.max_labels == K
    for name in ("precision", "recall", "f1"):
        whole = f"{name}_score"
        assert getattr(one.labels, name).value == pytest.approx(
            score(whole, "micro"), abs=1e-3
        )
        each = [getattr(label, name).value for label in one.per_class][
            :5
        ]  # the last label has no record
        assert each == pytest.approx(score(whole, None)[:5].tolist(), abs=2e-3)
    assert [label.label for label in one.per_class] == CLASSES
    assert [label.n.value for label in one.per_class] == pytest.approx(
        truth.sum(axis=0), abs=1
    )
    # A label without a true record has an F1 of 0 if it is predicted.
    assert one.labels.macro_f1.value == pytest.approx(
        score("f1_score", "macro"), abs=2e-3
    )
    # Of its recall nothing is known, so that the mean recall lies between ends.
    recalls = score("recall_score", None)[:5].sum()
    assert one.balanced_accuracy.value is None
    assert (
        one.balanced_accuracy.low
        <= recalls / 6
        < (recalls + 1) / 6
        <= one.balanced_accuracy.high
    )


@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
def test_a_person_weighs_one_whatever_their_records():
    truth = np.repeat(sets("f", "f"), [50_000, 300], axis=0)
    predicted = np.repeat(sets("", "f"), [50_000, 300], axis=0)
    one = evaluated(
        truth, predicted, budget=STRONG, groups=[0] * 50_000 + list(range(1, 301))
    )
    assert (one.unit, one.counted) == (Unit.PERSON, "persons")
    assert one.n.value == pytest.approx(301, abs=0.5)
    assert one.labels.recall.value == pytest.approx(300 / 301, abs=1e-3)


def test_labels_of_which_nothing_is_told_are_named_in_a_line():
    one = evaluated(*made_up(600), budget=GaussianDP(0.1), seed=1)
    (_, *rows), silent = one.told()
    told = [row[0] for row in rows]
    rest = [row for row in one.table()[1:] if row[0] not in told]
    assert told
    assert rest
    assert {cell for row in rest for cell in row[1:4]} == {"cannot tell"}
    names = ", ".join(row[0] for row in rest)
    assert silent == f"The budget cannot tell anything of {names}."
    assert silent in str(one)


def test_labels_may_come_in_every_form_and_unknown_ones_count_nowhere():
    truth, predicted = made_up(200)

    def names(chosen):
        return [[CLASSES[code] for code in np.flatnonzero(row)] for row in chosen]

    expected = evaluated(truth, predicted).to_dict()
    lists = names(truth), names(predicted)
    joined = [[" ; ".join(one) for one in some] for some in lists]
    odd = [[*one, "elsewhere"] for one in lists[0]]
    for y, X in (
        (lists[0], lists[1]),
        (joined[0], joined[1]),
        (odd, lists[1]),
        ([";;".join(one) for one in odd], joined[1]),
    ):
        assert dppl.evaluate(TABLE, X, y, BUDGET, random_state=0).to_dict() == expected


def test_it_is_data_with_a_schema():
    one = evaluated(*made_up(200))
    content = json.loads(one.to_json())
    validator = Draft202012Validator(SCHEMA)
    validator.validate(content)
    assert Evaluation.from_dict(content).to_dict() == one.to_dict()
    assert not validator.is_valid(
        content
        | {
            "labels": {
                key: one for key, one in content["labels"].items() if key != "f1"
            }
        }
    )
    text = str(one)
    for words in (
        "for print                   micro F1 ",
        "macro F1",
        "all labels right",
        "mean recall of labels",
    ):
        assert words in text


@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
def test_a_model_of_multilabel_is_known_by_an_attribute():
    rng = np.random.default_rng(0)
    truth = rng.random((600, 6)) < 0.3
    X = truth @ rng.normal(size=(6, 12)) + rng.normal(size=(600, 12)) / 3
    model = MultiLabelPrototypes(
        GaussianDP(1), CLASSES, max_labels=3, random_state=0
    ).fit(X, truth.astype(int))
    one = dppl.evaluate(model, X, truth.astype(int), BUDGET, random_state=0)
    # As exact in any batch as a model of one label: the table is what `predict` says,
    # cut to three labels.
    table = AlreadyPredicted(CLASSES, max_labels=3)
    predicted = model.predict(X)
    few = predicted.sum(axis=1) <= 3
    other = dppl.evaluate(
        table, predicted[few], truth[few].astype(int), BUDGET, random_state=0
    )
    again = dppl.evaluate(model, X[few], truth[few].astype(int), BUDGET, random_state=0)
    assert again.to_dict() | {"guarantee": 0, "together": 0, "model_sha256": 0} == other.to_dict() | {
        "guarantee": 0, "together": 0, "model_sha256": 0}  # fmt: skip
    assert one.labels.max_labels == 3
    assert Term(Assumption.PREDICTED_EXACTLY) in one.guarantee.assumptions
    # The same records twice: squares of mu add up.
    assert one.together.mu == pytest.approx(np.hypot(1, one.guarantee.mu))
    foreign = OneVsRestClassifier(LogisticRegression()).fit(X, truth.astype(int))
    found = dppl.evaluate(
        foreign, X, truth.astype(int), GaussianDP(5000.0), random_state=0
    )
    assert found.accuracy.value == pytest.approx(foreign.score(X, truth), abs=0.01)
    several = MultiOutputClassifier(LogisticRegression()).fit(X, truth.astype(int))
    with pytest.raises(ParameterError):
        dppl.evaluate(several, X, truth.astype(int), BUDGET)


def test_what_does_not_fit_costs_nothing_and_reads_nothing(tmp_path, monkeypatch):
    truth, predicted = (one.astype(int) for one in made_up(30))
    ledger = Ledger(tmp_path / "l.db", "d", GaussianDP(0.1))
    read = MultiLabel.read

    def look(self, y, classes):
        assert not len(y), "a label was read"
        return read(self, y, classes)

    monkeypatch.setattr(MultiLabel, "read", look)
    wrong = [
        (
            BudgetExceeded,
            lambda: dppl.evaluate(TABLE, predicted, truth, BUDGET, ledger=ledger),
        ),
        (
            ParameterError,
            lambda: dppl.evaluate(
                TABLE, predicted, truth, BUDGET, parts=["calibration"], ledger=ledger
            ),
        ),
        (
            InputError,
            lambda: dppl.evaluate(
                TABLE, predicted, truth[:, :5], BUDGET, ledger=ledger
            ),
        ),
        (
            InputError,
            lambda: dppl.evaluate(TABLE, predicted, truth[:7], BUDGET, ledger=ledger),
        ),
        (
            InputError,
            lambda: dppl.evaluate(
                TABLE, predicted[:, :5], truth, BUDGET, ledger=ledger
            ),
        ),
        (
            ParameterError,
            lambda: compare(TABLE, TABLE, predicted, truth, BUDGET, ledger=ledger),
        ),
        (
            ParameterError,
            lambda: choose([TABLE] * 2, predicted, truth, BUDGET, ledger=ledger),
        ),
        (ParameterError, lambda: AlreadyPredicted(CLASSES, max_labels=0)),
    ]
    for error, call in wrong:
        with pytest.raises(error) as found:
            call()
        assert "30" not in str(found.value)
    assert ledger.releases() == []


# Coverage is tried against 0.88, as ends are only nearly normal: each of the six
# numbers falls below LEAST with a probability of 1e-6 at most.
DRAWS = 500
LEAST = stats.binom.ppf(1e-6, DRAWS, 0.88)


def population(n_labels, agreeing, seed=0, n=20_000):
    """Return records whose answers agree within a share of them, and labels from frequent and found to rare and not."""
    rng = np.random.default_rng(seed)
    frequency = (
        2.2 / np.arange(1, n_labels + 1) / (1 / np.arange(1, n_labels + 1)).sum()
    )
    truth = rng.random((n, n_labels)) < frequency
    luck = np.where(
        rng.random((n, 1)) < agreeing, rng.random((n, 1)), rng.random((n, n_labels))
    )
    return truth, np.where(
        truth, luck < np.linspace(0.9, 0.3, n_labels), luck > 1 - 0.3 * frequency
    )


def covered(n_labels, k, n, mu, agreeing, *, of_noise=1.0):
    """Return how often the interval of each number holds its value in the population, with seeded noise."""
    truth, predicted = population(n_labels, agreeing)
    guesses = [Guesses(np.zeros(len(truth), np.intp), np.where(predicted, 1.0, -1.0))]
    of = lambda rows: SeveralOutcomes.of(  # noqa: E731
        truth[rows],
        None,
        [Guesses(guesses[0].predicted[rows], guesses[0].table[rows])],
        k,
    )
    declared = evaluating.measurements(n_labels, several=LabelSets(k, MultiLabel()))
    paid = calibrated(GaussianDP(mu), declared, ADD_REMOVE)
    v = {
        name: evaluating.variance(one.mechanism.noise_std, STEPS) * of_noise
        for name, one in paid.items()
    }
    v |= {"classes": v["labels"], "alarms": v["labels"]}

    def numbers(totals, labels):
        tables = {
            "totals": totals,
            "labels": labels,
            "classes": labels[:2],
            "alarms": labels[2],
        }
        bands = evaluating.intervals.each_class(n_labels)
        said = evaluating.said_of_labels(
            evaluating.Tables(tables, v, bands), list(range(n_labels)), 0.9, k
        )
        whole = said["labels"]
        return [
            said["accuracy"],
            said["balanced_accuracy"],
            whole.precision,
            whole.recall,
            whole.f1,
            whole.macro_f1,
        ]

    whole = of(slice(None))
    exact = {name: whole.total(one.query) / STEPS for name, one in declared.items()}
    (right, other), (found, missed, false) = exact["totals"], exact["labels"]
    f1 = 2 * found / (2 * found + missed + false)
    values = [
        right / (right + other),
        (found / (found + missed)).mean(),
        found.sum() / (found + false).sum(),
    ]
    values += [found.sum() / (found + missed).sum()]
    values += [2 * found.sum() / (2 * found + missed + false).sum(), f1.mean()]
    rng = np.random.default_rng(1)
    source = SeededRandomness(2)
    held_by = np.zeros(6, int)
    for _ in range(DRAWS):
        drawn = of(rng.integers(len(truth), size=n))
        noisy = {
            name: paid[name].mechanism.release(drawn.total(one.query), source) / STEPS
            for name, one in declared.items()
        }
        ends = numbers(noisy["totals"], noisy["labels"])
        held_by += [
            one.low <= value <= one.high
            for one, value in zip(ends, values, strict=True)
        ]
    return held_by


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [(6, 3, 500, 0.3, 0.0), (20, 5, 2000, 1.0, 1.0), (20, 5, 2000, 0.1, 0.5)]
)
def test_intervals_hold_as_often_as_they_say(setting):
    assert (covered(*setting) >= LEAST).all()


@pytest.mark.slow
def test_intervals_that_ignore_the_noise_would_be_noticed():
    assert (covered(20, 5, 2000, 0.1, 0.5, of_noise=1e-9)[[0, 1, 5]] < LEAST).all()


def test_plain_numbers_are_those_of_scikit_learn():
    truth, predicted = made_up(300)
    truth[:, 5] = predicted[:, 5] = False  # a class without records is omitted
    names = lambda row: [CLASSES[k] for k in np.flatnonzero(row)]  # noqa: E731
    y_true = [*map(names, truth), ["f"], ["f"]]
    y_true[0] = [*y_true[0], "elsewhere"]
    given = (
        y_true,
        [*map(names, predicted), None, None],
        np.array(CLASSES),
        MultiLabel(),
    )
    report = evaluate_several(*given, groups=["one", *range(301)])

    def score(name, average):
        return getattr(sklearn_metrics, name)(
            truth[:, :5], predicted[:, :5], average=average
        )

    assert report["macro_f1"] == pytest.approx(score("f1_score", "macro"))
    assert report["micro_f1"] == pytest.approx(score("f1_score", "micro"))
    assert report["balanced_accuracy"] == pytest.approx(score("recall_score", "macro"))
    assert report["accuracy"] == pytest.approx(
        sklearn_metrics.accuracy_score(truth, predicted)
    )
    assert [one["precision"] for one in report["per_class"]][:5] == pytest.approx(
        score("precision_score", None)
    )
    assert report["per_class"][5] == {
        "class": "a",
        "n": 0,
        "accuracy": None,
        "precision": None,
        "f1": None,
    }
    assert (
        report["n"],
        report["n_unknown_labels"],
        report["n_unusable"],
        report["n_persons"],
    ) == (300, 1, 2, 300)
    with pytest.raises(InputError):
        evaluate_several(["f"], [None], np.array(CLASSES), MultiLabel())
