"""An evaluation: with the same noise neighbours get the same one, and it is paid for before a value is read."""

import json
import sqlite3
import warnings
from contextlib import contextmanager
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import dppl
from dppl import ApproxDP, GaussianDP, Ledger, MeanPrototypes, PureDP, SoftmaxPrototypes
from dppl.continual import ContinualPrototypes
from dppl.errors import BudgetError, BudgetExceeded, InputError, ParameterError
from dppl.evaluation import (
    AlreadyPredicted,
    Estimate,
    Evaluation,
    already_predicted,
    intervals,
)
from dppl.evaluation import measuring as evaluating
from dppl.evaluation.evaluation import Together
from dppl.io import EmbeddingTable
from dppl.kernel import reading
from dppl.kernel.measure import Measure
from dppl.kernel.mechanisms.randomness import SeededRandomness
from dppl.kernel.privacy.guarantee import Charge, Guarantee
from dppl.kernel.privacy.ledger import CHARGED, UNSAVED
from dppl.kernel.privacy.terms import Caveat, Term, Unit
from dppl.kernel.queries import outcomes
from dppl.kernel.queries.outcomes import Outcomes
from dppl.prediction import one_record
from inside import behind
from laws.ledgers import spy_on
from laws.replay import spent, watched

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "evaluation.schema.json").read_text("utf-8")
)
BUDGET = GaussianDP(0.4)
PARTS = ["precision", "confusions", "calibration", "reliability"]
NAMES = {
    2: ["a", "b"],
    3: ["a", "b", "c"],
    6: ["f", "e", "a", "b", "c", "d"],
}  # the last in no order
ASKED = {
    "two classes": (2, {"parts": ["precision", "calibration", "reliability", "curve"]}),
    "three classes": (3, {"parts": PARTS, "top_k": 2}),
    "six classes": (6, {"parts": PARTS}),
    "six classes by default": (6, {}),
}


def records(n_classes, n=40, seed=0):
    """Return probabilities and labels: classes of many and of few records, and one of none."""
    rng = np.random.default_rng(seed)
    y = np.minimum(rng.geometric(0.5, n) - 1, n_classes - 2)
    table = rng.dirichlet(np.ones(n_classes), n)
    table[np.arange(n), y] += rng.integers(0, 3, n)
    return table / table.sum(axis=1, keepdims=True), np.array(NAMES[n_classes], object)[
        y
    ]


def evaluated(X, y, n_classes, groups=None, *, budget=BUDGET, seed=0, **options):
    model = AlreadyPredicted(NAMES[n_classes])
    return dppl.evaluate(
        model, X, y, budget, groups=groups, random_state=seed, **options
    )


def neighbours(n_classes, persons):
    """Yield records and the same with one record or person more, of every kind."""
    X, y = records(n_classes)
    ids = np.arange(len(y)) // 2 if persons else None
    sure = np.eye(n_classes)
    odd = np.full(n_classes, np.nan)
    for label in (*NAMES[n_classes], "elsewhere", None):
        for row in (sure[0], sure[-1], odd, np.full(n_classes, 1 / n_classes)):
            size = 50 if persons else 1
            more = np.vstack([X, *[row] * size]), np.append(y, [label] * size)
            yield (
                (X, y, ids),
                (*more, None if ids is None else np.append(ids, [-1] * size)),
            )


def replay(name, persons=False):
    """Hold an evaluation to the law: equal answers make it equal, and one unit costs no more than is stated."""
    n_classes, options = ASKED[name]
    largest = Fraction(0)
    for fewer, more in neighbours(n_classes, persons):
        with watched() as uses:
            first = evaluated(*more[:2], n_classes, more[2], **options)
        with watched([answer for _, _, answer in uses]) as again:
            second = evaluated(*fewer[:2], n_classes, fewer[2], **options)
        assert first.to_dict() == second.to_dict()
        assert (str(first), repr(first)) == (str(second), repr(second))
        cost = sum(spent(one, other, 1) for one, other in zip(uses, again, strict=True))
        assert len(uses) == len(first.guarantee.releases)
        assert cost <= Fraction(first.guarantee.mu) ** 2 <= Fraction(BUDGET.mu) ** 2
        largest = max(largest, cost)
    return largest / Fraction(BUDGET.mu) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "persons"),
    [(name, persons) for name in ASKED for persons in (False, True)],
)
def test_with_the_same_noise_neighbours_have_the_same_evaluation_at_the_stated_cost(
    name, persons
):
    assert replay(name, persons) > 0.7  # and some record uses most of the budget


def weigh_by_true_sizes(patch):
    """Choose bands by the exact sizes, which the counter holds."""
    whole = evaluating._asked

    def asked(measure, n_classes):
        held = behind(measure).records
        sizes = np.bincount(held.codes[held.codes >= 0], minlength=n_classes).astype(
            float
        )
        with pytest.MonkeyPatch.context() as patch:
            of_released = intervals.bands_of
            patch.setattr(intervals, "bands_of", lambda *_: of_released(sizes, 0.01))
            return whole(measure, n_classes)

    patch.setattr(evaluating, "_asked", asked)


def tell_the_true_number(patch):
    whole = evaluating._said
    ask = Measure.__call__
    seen = []

    def look(self, name, **released):
        seen.append(len(behind(self).records.codes))
        return ask(self, name, **released)

    def said(*arguments):
        return whole(*arguments) | {"n": Estimate(float(seen[-1]), 0.0, 1e9)}

    patch.setattr(Measure, "__call__", look)
    patch.setattr(evaluating, "_said", said)


def skip_empty_classes(patch):
    """Say nothing of classes without a test record."""
    whole = evaluating._of_classes
    of = Outcomes.of.__func__
    seen = []

    def keep(cls, *arguments, **options):
        seen.append(of(cls, *arguments, **options))
        return seen[-1]

    def of_classes(noisy, classes, z):
        some = whole(noisy, classes, z)
        return tuple(
            one for code, one in enumerate(some) if (seen[-1].codes == code).any()
        )

    patch.setattr(Outcomes, "of", classmethod(keep))
    patch.setattr(evaluating, "_of_classes", of_classes)


def count_persons_by_records(patch):
    whole = Outcomes.of.__func__
    patch.setattr(
        Outcomes,
        "of",
        classmethod(
            lambda cls, labels, ids, *rest, **options: whole(
                cls, labels, None, *rest, **options
            )
        ),
    )


def predict_next_to_others(patch):
    """Let the last record change what is said of the first."""
    whole = already_predicted.of_probabilities()

    def likeliest(tables):
        for guesses in whole.guesses(tables):
            predicted = guesses.predicted.copy()
            predicted[0] = predicted[-1]
            predicted[1] = predicted[-1]
            yield outcomes.Guesses(predicted, guesses.table)

    patch.setattr(
        already_predicted,
        "of_probabilities",
        lambda: one_record.OneRecord(whole.assumption, likeliest),
    )


FAULTS = [
    (weigh_by_true_sizes, "six classes", False),
    (tell_the_true_number, "three classes", False),
    (skip_empty_classes, "six classes", False),
    (count_persons_by_records, "six classes", True),
    (predict_next_to_others, "two classes", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "name", "persons"), FAULTS)
def test_the_law_notices(fault, name, persons, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        replay(name, persons)


class Watched:
    """A classifier that notes when it reads records of more than one made-up row."""

    classes_ = np.array(["a", "b"])

    def __init__(self, look):
        self.look = look

    def predict(self, X):
        self.look(X)
        return np.where(np.asarray(X)[:, 0] > 0, "a", "b")


PRIVATE = np.array([[1e9, 0.0], [-1e9, 0.0], [1e9, 1.0]])


def check_order(file):
    """Look at the ledger whenever a private record is predicted, a label compared, or noise drawn."""
    ledger = Ledger(file, "wards", GaussianDP(1.0))
    seen = []

    def look(what):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            statuses = [
                status
                for (status,) in connection.execute("SELECT status FROM dppl_releases")
            ]
        connection.close()
        seen.append((what, statuses))

    model = Watched(lambda X: look("rows") if (np.abs(X) == 1e9).any() else None)
    with pytest.MonkeyPatch.context() as patch:
        spy_on(patch, SeededRandomness, "rounded_gaussian", look)
        spy_on(patch, outcomes.reading, "class_codes", look)
        dppl.evaluate(
            model, PRIVATE, ["a", "b", "z"], BUDGET, ledger=ledger, random_state=0
        )
    assert {"rows", "class_codes", "rounded_gaussian"} <= {what for what, _ in seen}
    assert all(statuses == [CHARGED] for _, statuses in seen), seen
    (release,) = ledger.releases()
    assert (release["status"], release["estimator"]) == (UNSAVED, "evaluation")


def test_the_charge_is_on_record_before_anything_private_is_looked_at_or_drawn(
    tmp_path,
):
    check_order(tmp_path / "ledger.db")


def test_what_comes_before_the_charge_is_noticed(tmp_path, monkeypatch):
    whole = evaluating.charge

    def early(*arguments):
        outcomes.reading.class_codes(np.array(["a"]), np.array(["a"]), "ignore")
        return whole(*arguments)

    monkeypatch.setattr(evaluating, "charge", early)
    with pytest.raises(AssertionError):
        check_order(tmp_path / "ledger.db")


def test_a_refused_evaluation_reads_nothing(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(0.3))
    monkeypatch.setattr(
        reading, "class_codes", lambda *_: pytest.fail("a label was compared")
    )
    with pytest.raises(BudgetExceeded):
        dppl.evaluate(
            AlreadyPredicted(["a", "b"]), np.eye(2), ["a", "b"], BUDGET, ledger=ledger
        )
    assert ledger.releases() == []


def test_the_whole_budget_is_spent_and_no_more():
    for n_classes, options in ASKED.values():
        for budget in (BUDGET, ApproxDP(1.0, 1e-6)):
            guarantee = evaluated(
                *records(n_classes), n_classes, budget=budget, **options
            ).guarantee
            assert guarantee.stays_within_budget()
            assert guarantee.mu == pytest.approx(
                budget.gaussian_allowance().mu, rel=1e-6
            )
            assert guarantee.secure_noise is False
            for one in guarantee.releases:
                assert one.sensitivity == pytest.approx(
                    one.parameters["noise_std"] * one.cost["mu"]
                )
    assert evaluated(*records(3), 3, seed=None).guarantee.secure_noise
    with pytest.raises(BudgetError):
        evaluated(*records(3), 3, budget=PureDP(1.0))


STRONG = GaussianDP(5000.0)  # noise far below one record


@contextmanager
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_with_hardly_any_noise_the_numbers_are_those_of_the_records():
    X, y = records(6, 3000)
    with no_warnings():
        one = evaluated(X, y, 6, budget=STRONG, parts=PARTS, top_k=2)
    names = np.array(NAMES[6], object)
    predicted = names[X.argmax(axis=1)]
    assert one.accuracy.value == pytest.approx(np.mean(predicted == y), abs=1e-3)
    assert one.n.value == pytest.approx(3000, abs=1)
    rank = (
        X[np.arange(len(y)), [NAMES[6].index(label) for label in y]][:, None] < X
    ).sum(axis=1)
    assert (one.top_k, one.top_k_accuracy.value) == (
        2,
        pytest.approx(np.mean(rank < 2), abs=1e-3),
    )
    recalls = []
    assert [each.label for each in one.per_class] == NAMES[6]
    for each in one.per_class:
        of = y == each.label
        said = predicted == each.label
        assert each.n.value == pytest.approx(of.sum(), abs=1)
        if of.any():
            recalls.append(np.mean(predicted[of] == each.label))
            assert each.recall.value == pytest.approx(recalls[-1], abs=5e-3)
            assert each.precision.value == pytest.approx(
                np.mean(y[said] == each.label), abs=5e-3
            )
            f1 = 2 * (of & said).sum() / (of.sum() + said.sum())
            assert each.f1.value == pytest.approx(f1, abs=5e-3)
        else:  # nothing is known of a class without records
            assert each.recall.value is None
            assert (each.recall.low, each.recall.high) == (0, 1)
    low, high = (np.mean([*recalls, end]) for end in (0, 1))
    assert one.balanced_accuracy.low <= low < high <= one.balanced_accuracy.high
    assert sorted(label for band in one.bands for label in band.labels) == sorted(
        NAMES[6]
    )
    gap = np.mean(X.max(axis=1) - (predicted == y))
    assert one.calibration_gap.value == pytest.approx(gap, abs=1e-3)
    assert (one.temperature > 1) == (
        gap > 0
    )  # a model that is too sure is to be cooled
    pair = one.confusions[0]
    pairs = {
        (a, b): np.sum((y == a) & (predicted == b))
        for a in names
        for b in names
        if a != b
    }
    assert pair.n.value == pytest.approx(max(pairs.values()), abs=1)
    assert pairs[pair.label, pair.predicted] == max(pairs.values())
    middle = one.reliability[8]
    inside = (X.max(axis=1) >= 0.6) & (X.max(axis=1) < 0.7)
    assert (middle.low, middle.high) == (0.6, 0.7)
    assert middle.right + middle.wrong == pytest.approx(inside.sum(), abs=1)
    assert middle.accuracy.value == pytest.approx(
        np.mean((predicted == y)[inside]), abs=5e-3
    )


@pytest.mark.parametrize("kind", ["i1", "u1", "i8", "f2", "f4"])
def test_probabilities_may_be_numbers_of_any_kind(kind):
    y = np.arange(40) % 2
    table = np.eye(2)[y]
    labels = np.array(NAMES[2])[y]
    expected = evaluated(table, labels, 2, parts=ASKED["two classes"][1]["parts"])
    assert (
        evaluated(table.astype(kind), labels, 2, parts=ASKED["two classes"][1]["parts"])
        == expected
    )


def test_probabilities_are_compared_in_one_precision():
    """Which one a table has follows from all of its records."""
    single = np.array([[0.40000004, 0.6]], np.float32)  # 0.6 by itself, and not in 2⁻⁵³
    query = outcomes.ReliabilityBins()
    labels, classes = np.array(["b"]), np.array(["a", "b"])

    def bins(guesses):
        return Outcomes.of(labels, None, classes, guesses, confidences=True).total(
            query
        )

    model = AlreadyPredicted(classes)
    found = [
        bins(evaluating.predictions_of(model, table).guesses()).tolist()
        for table in (single, single.astype(np.float64))
    ]
    assert found[0] == found[1]
    # The control: in single precision it is another bin.
    raw = outcomes.Guesses(np.array([1]), single)
    assert bins([raw]).tolist() != found[0]


def test_two_classes_have_a_curve():
    rng = np.random.default_rng(0)
    truth = rng.random(4000) < 0.3
    score = 1 / (1 + np.exp(-rng.normal(np.where(truth, 1.0, -1.0), 1)))
    with no_warnings():
        one = evaluated(
            np.stack([1 - score, score], axis=1),
            np.where(truth, "b", "a"),
            2,
            budget=STRONG,
        )
    pairs = np.mean(score[truth][:, None] > score[~truth][None])
    assert one.auroc.low <= pairs <= one.auroc.high
    assert one.auroc.value == pytest.approx(pairs, abs=0.01)
    at_half = next(each for each in one.thresholds if each.threshold == 0.5)
    assert at_half.sensitivity.value == pytest.approx(
        np.mean(score[truth] >= 0.5), abs=2e-3
    )
    assert at_half.specificity.value == pytest.approx(
        np.mean(score[~truth] < 0.5), abs=2e-3
    )
    b = one.per_class[1]
    assert b.precision.value == pytest.approx(np.mean(truth[score > 0.5]), abs=2e-3)
    assert one.bands == ()


def test_numbers_of_persons_count_each_person_once():
    # One person of 70000 wrong records, more than there are steps, and 300 of one right
    # record each.
    X = np.vstack(
        [np.tile([1.0, 0.0, 0.0], (70_000, 1)), np.tile([0.0, 1.0, 0.0], (300, 1))]
    )
    y = ["b"] * 70_300
    ids = [0] * 70_000 + list(range(1, 301))
    with no_warnings():
        one = evaluated(X, y, 3, ids, budget=STRONG)
    assert one.unit == one.guarantee.unit == Unit.PERSON
    assert one.counted == "persons"
    assert one.n.value == pytest.approx(301, abs=0.5)
    assert one.accuracy.value == pytest.approx(300 / 301, abs=1e-3)
    assert "about 301" in str(one)
    assert "persons" in str(one)


def test_what_noise_hides_cannot_be_said():
    one = evaluated(*records(6, 30), 6, budget=GaussianDP(0.001))
    for estimate in (
        one.accuracy,
        one.balanced_accuracy,
        *(each.recall for each in one.per_class),
    ):
        assert estimate == Estimate(None, 0.0, 1.0)
    lines = str(one).splitlines()
    assert lines[0].endswith("the budget is too small for one number")
    # One line in the place of a row for each class.
    assert "Of single classes the budget cannot tell anything." in lines
    assert not any(line.startswith("class") for line in lines)
    assert one.temperature is None


def test_it_is_data_with_a_schema():
    validator = Draft202012Validator(SCHEMA)
    Draft202012Validator.check_schema(SCHEMA)
    for n_classes, options in ASKED.values():
        for groups in (None, np.arange(40) // 2):
            one = evaluated(*records(n_classes), n_classes, groups, **options)
            content = json.loads(one.to_json())
            validator.validate(content)
            assert Evaluation.from_dict(content).to_dict() == one.to_dict()
            for name in content:
                assert not validator.is_valid(
                    {key: value for key, value in content.items() if key != name}
                )
            assert not validator.is_valid(content | {"n_true": 40})
            with pytest.raises(ValueError, match="every class"):
                Evaluation.from_dict(content | {"per_class": content["per_class"][1:]})
            with pytest.raises(ValueError, match="interval"):
                Evaluation.from_dict(
                    content | {"accuracy": {"value": 0.5, "low": 0.6, "high": 0.7}}
                )
            with pytest.raises(ValueError, match="format"):
                Evaluation.from_dict(content | {"format": 1})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"parts": ["speed"]}, "parts"),
        ({"parts": ["curve"]}, "two classes"),
        ({"confidence": 1.0}, "confidence"),
        ({"top_k": 0}, "top_k"),
        ({"partition": "test"}, "ledger"),
    ],
)
def test_wrong_parameters_are_refused(options, what):
    with pytest.raises(ParameterError, match=what):
        evaluated(*records(3), 3, **options)


def test_wrong_shapes_are_refused_without_numbers():
    X, y = records(3)
    for rows, labels, groups in (
        (X, y[:-1], None),
        (X, y, np.arange(39)),
        (X[:, :2], y, None),
        (X[None], y, None),
    ):
        with pytest.raises(InputError) as error:
            evaluated(rows, labels, 3, groups)
        assert "40" not in str(error.value)
        assert "39" not in str(error.value)
    for ragged in ([*X.tolist()[:-1], [0.5]], [*y[:-1], ["a"]]):
        with pytest.raises(InputError, match="predicted labels") as error:
            evaluated(ragged, y, 3)
        assert error.value.__context__ is None  # NumPy says how many rows there are
        assert "40" not in str(error.value)
    with pytest.raises(ParameterError, match="predict_proba"):
        evaluated(y, y, 3, parts=["calibration"])
    with pytest.raises(
        ParameterError, match=r"AlreadyPredicted\(classes\); got ndarray\.$"
    ):
        dppl.evaluate(y, X, y, BUDGET)


# With the model that is evaluated

ROWS = np.random.default_rng(2).normal(size=(60, 4))
LABELS = np.arange(60) % 3


def fitted(ledger, partition, **options):
    return MeanPrototypes(GaussianDP(0.3), [0, 1, 2], **options).fit(
        ROWS, LABELS, ledger=ledger, partition=partition
    )


def test_disjoint_parts_cost_the_larger_and_the_ledger_agrees(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1.0))
    model = fitted(ledger, "train")
    one = dppl.evaluate(model, ROWS, LABELS, BUDGET, ledger=ledger, partition="test")
    assert one.together.disjoint
    assert one.together.mu == max(one.guarantee.mu, model.guarantee_.mu)
    assert ledger.spent()["mu"] == one.together.mu
    assert one.guarantee.charges == (Charge("wards", 2),)
    assert "disjoint" in str(one)
    # Of other records, as far as anybody knows: squares add up. So it is of a model
    # that the ledger does not name.
    unknown = dppl.evaluate(
        fitted(None, None),
        ROWS,
        LABELS,
        GaussianDP(0.1),
        ledger=ledger,
        partition="test",
    )
    assert not unknown.together.disjoint
    # Another ledger has the same names for other releases, of an evaluation and of a
    # fit.
    others = [Ledger(tmp_path / f"{i}.db", "wards", GaussianDP(1.0)) for i in range(2)]
    evaluate_it(AlreadyPredicted([0, 1, 2]), others[0], "other")
    fitted(others[1], "other")
    for other, part in ((None, None), (others[0], "test"), (others[1], "test")):
        elsewhere = evaluate_it(model, other, part)
        assert not elsewhere.together.disjoint
        assert elsewhere.together.mu == pytest.approx(0.5)


def evaluate_it(model, ledger, partition):
    table = LABELS if isinstance(model, AlreadyPredicted) else ROWS
    return dppl.evaluate(
        model, table, LABELS, BUDGET, ledger=ledger, partition=partition
    )


def refused(model, ledger, partition):
    with pytest.raises(ParameterError, match="not trained on") as error:
        evaluate_it(model, ledger, partition)
    assert error.value.parameter == "partition"


@pytest.mark.parametrize(
    ("trained_on", "tested_on"),
    [("train", "train"), (None, "test"), ("train", None), (None, None)],
)
def test_a_model_is_not_evaluated_on_what_it_was_trained_on(
    trained_on, tested_on, tmp_path, monkeypatch
):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1.0))
    model = fitted(ledger, trained_on)
    path = tmp_path / "model.safetensors"
    model.save(path)
    piped = Pipeline(
        [("same", FunctionTransformer()), ("model", Pipeline([("model", model)]))]
    )
    for one in (model, dppl.load(path), AlreadyPredicted([0, 1, 2], model), piped):
        refused(one, ledger, tested_on)
    with (
        monkeypatch.context() as later
    ):  # another file of the same model, as by another version
        later.setattr("dppl.methods.model_file.FORMAT", 99)
        refused(model, ledger, tested_on)
    assert len(ledger.releases()) == 1
    # A charge that was made by hand is known by the file.
    model = fitted(None, None)
    entry = ledger.charge(model.guarantee_, partition=trained_on)
    ledger.finish(entry, model_sha256=sha256(model.to_bytes()).hexdigest())
    refused(model, ledger, tested_on)


def test_a_stream_is_not_evaluated_on_any_of_its_tasks(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1.0))
    model = ContinualPrototypes(GaussianDP(0.3), [0, 1, 2], tasks="disjoint")
    for part in ("january", "february"):
        model.partial_fit(ROWS, LABELS, ledger=ledger, partition=part)
    for part in ("january", "february", None):
        refused(model, ledger, part)
    # The hash is of the last task, and shows nothing about the others.
    assert evaluate_it(model, ledger, "march").together == Together(
        evaluate_it(model, None, None).together.mu, False
    )


def test_a_model_has_the_hash_of_its_file_in_a_later_version_too(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    fitted(None, None).save(path)
    monkeypatch.setattr("dppl.kernel.privacy.guarantee.__version__", "99.0")
    model = dppl.load(path)
    assert (
        evaluate_it(model, None, None).model_sha256
        == sha256(path.read_bytes()).hexdigest()
    )
    piped = evaluate_it(Pipeline([("model", model)]), None, None)
    assert piped.model_sha256 is None  # the file alone does something else
    assert piped.together.mu == pytest.approx(0.5)


def test_its_guarantee_speaks_of_test_data():
    guarantee = evaluated(*records(3), 3).guarantee
    assert "whether one record was in the test data" in guarantee.summary()
    assert "model" not in guarantee.summary()
    assert Guarantee.from_dict(guarantee.to_dict()).summary() == guarantee.summary()


def test_embeddings_that_may_depend_on_others_are_not_covered():
    caveat = Term(Caveat.ROWS_MIX)
    metadata = {"not_covered": "rounding"}
    model = fitted(None, None)
    for mixed in (True, False):
        table = EmbeddingTable.of(
            ROWS.astype(np.float32), metadata=metadata if mixed else {}
        )
        said = (
            dppl.evaluate(model, table, LABELS, BUDGET),
            dppl.compare(model, model, table, LABELS, BUDGET),
        )
        assert all((caveat in one.guarantee.not_covered) == mixed for one in said)


def test_costs_that_do_not_add_are_not_added():
    model = MeanPrototypes(GaussianDP(0.3), [0, 1, 2], adjacency="replace-one").fit(
        ROWS, LABELS
    )
    assert dppl.evaluate(model, ROWS, LABELS, BUDGET).together.mu is None
    persons = SoftmaxPrototypes(GaussianDP(0.3), [0, 1, 2]).fit(
        ROWS, LABELS, groups=np.arange(60)
    )
    assert dppl.evaluate(persons, ROWS, LABELS, BUDGET).together.mu is None
    one = dppl.evaluate(persons, ROWS, LABELS, BUDGET, groups=np.arange(60))
    assert one.together.mu == pytest.approx(0.5)
    assert evaluated(*records(3), 3).together is None


def test_whatever_records_there_are_something_is_said_of_every_class():
    """An error that only some records raise would tell of them: also none at all, and none that count."""
    for n_classes, options in ASKED.values():
        X, y = records(n_classes)
        nothing = np.full_like(X, np.nan)
        cases = [
            (X[:0], y[:0]),
            (X[:1], y[:1]),
            (X, [None] * 40),
            (nothing, y),
            (-X, y),
            (1e300 * X, y),
            (0 * X, y),
        ]
        for rows, labels in cases:
            for groups in (None, [None] * len(rows)):
                one = evaluated(rows, labels, n_classes, groups, **options)
                assert [each.label for each in one.per_class] == NAMES[n_classes]
                json.loads(one.to_json())
    assert dppl.evaluate(
        AlreadyPredicted(["a"]), ["a", "b"], ["a", "a"], BUDGET
    ).classes == ("a",)


def test_an_error_of_a_classifier_after_the_charge_says_nothing_and_stops_nothing(
    tmp_path,
):
    def never(X):
        if np.abs(X).max() > 1e6:
            raise ValueError(f"Jane Doe has {X.tolist()}")

    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1.0))
    one = dppl.evaluate(
        Watched(never), PRIVATE, ["a", "b", "a"], BUDGET, ledger=ledger, random_state=0
    )
    with watched() as uses:
        dppl.evaluate(Watched(never), PRIVATE, ["a", "b", "a"], BUDGET, random_state=0)
    totals = next(exact for _, exact, _ in uses if exact.shape == (3,))
    assert totals.tolist() == [0, 0, 3 * 2**16]  # all are misses
    assert "Jane" not in one.to_json() + str(one) + repr(one)
    assert ledger.releases()[0]["status"] == UNSAVED
