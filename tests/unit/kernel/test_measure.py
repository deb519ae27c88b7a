"""The counter: it answers what was declared, as often as was paid for, and methods learn from its answers alone."""

import contextlib
import copy
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from threading import Lock

import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, Classifier, GaussianDP, load
from dppl.errors import MeasurementError, ModelFileError, ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.stream import TensorRows
from dppl.kernel.measure import _Counter, calibrated
from dppl.kernel.parts import PartReader, PrivateParts, SpreadRecords
from dppl.kernel.persons import WholePersons
from dppl.kernel.queries import (
    ADD_REMOVE,
    WITHIN_CLASS,
    ClassSums,
    NumberOfRecords,
    PublicClassSizes,
)
from dppl.kernel.queries.correlated import BinSums, CorrelatedClassSums, StateFile
from dppl.kernel.queries.selection import Selection
from dppl.kernel.records import HeldRecords, PrivateTable
from dppl.testing import check_private, recorded, replayed
from inside import behind
from laws.recipes import CLASSES, KINDS, each

DIM = 6
ROWS = np.random.default_rng(0).normal(size=(30, DIM))
CODES = np.arange(30) % 3
LATTICE = Lattice(DIM)
SUMS = ClassSums(LATTICE, 3)


def counter(declared, budget=None, relation=ADD_REMOVE):
    paid = calibrated(budget or GaussianDP(2.0), declared, relation)
    return Measure(paid, HeldRecords(ROWS, CODES), 3)


def test_a_measurement_is_answered_as_often_as_it_was_declared():
    measure = counter(
        {"sums": Measurement(SUMS, times=2), "size": Measurement(NumberOfRecords())}
    )
    first = measure("sums")
    second = measure("sums")
    assert first.shape == second.shape == (3, DIM)
    assert (first != second).any()
    with pytest.raises(MeasurementError, match="'sums' was declared for 2 asks"):
        measure("sums")
    assert measure("size").shape == (1,)
    with pytest.raises(MeasurementError):
        measure("size")
    for ask in (measure, measure.noise_std, measure.unit):
        with pytest.raises(
            MeasurementError, match="'counts' was not declared; declared are sums, size"
        ):
            ask("counts")


def test_a_counter_with_further_arguments_counts_the_same_asks():
    measure = counter({"sums": Measurement(SUMS)})
    assert measure.at(classes=[0, 2])("sums").shape == (2, DIM)
    with pytest.raises(MeasurementError):
        measure("sums")


@pytest.mark.parametrize(("used", "left"), [(2, 1), (3, 0), (7, 0), (-2, 3)])
def test_asks_of_an_interrupted_run_are_spent_and_none_is_given_back(used, left):
    paid = calibrated(GaussianDP(2.0), {"sums": Measurement(SUMS, times=3)}, ADD_REMOVE)
    measure = Measure(paid, HeldRecords(ROWS, CODES), 3, {"sums": used})
    for _ in range(left):
        measure("sums")
    with pytest.raises(MeasurementError, match="all are answered"):
        measure("sums")


def test_an_ask_that_fails_is_spent():
    """What a failure tells of the records is not known, so nobody may try again."""
    measure = counter({"sums": Measurement(SUMS)})
    with pytest.raises(TypeError):
        measure("sums", nothing=len)
    with pytest.raises(MeasurementError):
        measure("sums")


def test_no_copy_counts_anew_and_nothing_is_answered_after_the_fit():
    measure = counter({"sums": Measurement(SUMS, times=2)})
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            copied(measure)
    bound = measure.at(classes=[0])
    bound("sums")
    with measure:
        pass
    for one in (measure, bound):
        with pytest.raises(MeasurementError):
            one("sums")


def test_threads_get_as_many_answers_as_were_paid_for():
    measure = counter({"sums": Measurement(SUMS, times=50)})
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def ask(_):
        with contextlib.suppress(MeasurementError):
            return measure("sums") is not None

    try:
        with ThreadPoolExecutor(4) as threads:
            assert sum(filter(None, threads.map(ask, range(400)))) == 50
    finally:
        sys.setswitchinterval(before)


def test_asks_of_several_threads_are_answered_one_after_the_other(monkeypatch):
    """What records keep of one ask, such as weights of a person's rows, must not meet another."""
    measure = counter({"sums": Measurement(SUMS, times=20)})
    busy = Lock()
    exact = type(SUMS).exact

    def slowly(*args, **released):
        assert busy.acquire(blocking=False)
        time.sleep(0.005)
        busy.release()
        return exact(*args, **released)

    monkeypatch.setattr(type(SUMS), "exact", slowly)
    with ThreadPoolExecutor(4) as threads:
        assert all(answer is not None for answer in threads.map(measure, ["sums"] * 20))


@pytest.mark.parametrize("times", [0, -1, 0.5, 2.5, True, Fraction(1, 2)])
def test_times_are_a_whole_number(times):
    with pytest.raises(ParameterError):
        Measurement(SUMS, times=times)


@pytest.mark.parametrize("percent", [0, -5, float("nan"), float("inf"), "5"])
def test_shares_are_positive(percent):
    with pytest.raises(ParameterError):
        Measurement(SUMS, percent)


def test_what_is_priced_for_one_ask_is_asked_once():
    for query in (
        Selection(LATTICE, 3, 1, (0.0, 2.0)),
        CorrelatedClassSums(LATTICE, 3, 4, 1),
    ):
        Measurement(query)
        with pytest.raises(ParameterError, match="must be 1"):
            Measurement(query, times=2)


@pytest.mark.parametrize("budget", [GaussianDP(2.0), ZCDP(0.5), ApproxDP(1.0, 1e-6)])
def test_shares_are_those_that_were_declared_and_add_up_to_the_budget(budget):
    declared = {
        "sums": Measurement(SUMS, 70, 4),
        "size": Measurement(NumberOfRecords(), 30),
    }
    sums, size = calibrated(budget, declared, ADD_REMOVE).values()
    total = Fraction(budget.gaussian_allowance().mu) ** 2
    costs = [Fraction(one.release.cost["mu"]) ** 2 for one in (sums, size)]
    assert costs[0] / costs[1] == pytest.approx(70 / 30, rel=1e-12)
    assert float(sum(costs) / total) == pytest.approx(1, rel=1e-12)
    assert (sums.release.times, size.release.times) == (4, 1)


def test_several_times_cost_what_so_many_releases_do():
    (one,) = calibrated(
        GaussianDP(2.0), {"sums": Measurement(SUMS)}, ADD_REMOVE
    ).values()
    (many,) = calibrated(
        GaussianDP(2.0), {"sums": Measurement(SUMS, times=16)}, ADD_REMOVE
    ).values()
    assert many.mechanism.noise_std == pytest.approx(4 * one.mechanism.noise_std)
    assert (
        many.release.sensitivity
        == one.release.sensitivity
        == pytest.approx(float(LATTICE.squared_norm) ** 0.5)
    )
    assert many.release.cost == one.release.cost


def test_what_neighbours_agree_in_costs_nothing_and_is_told_exactly():
    declared = {"sums": Measurement(SUMS), "sizes": Measurement(PublicClassSizes(3))}
    paid = calibrated(GaussianDP(2.0), declared, WITHIN_CLASS)
    assert paid["sizes"].release is None
    assert (
        paid["sums"]
        == calibrated(GaussianDP(2.0), {"sums": Measurement(SUMS)}, WITHIN_CLASS)[
            "sums"
        ]
    )
    assert (counter(declared, relation=WITHIN_CLASS)("sizes") == 10).all()


# Methods


@pytest.mark.slow
@each(KINDS)
def test_every_method_learns_the_same_model_from_a_transcript_without_any_records(kind):
    """A fit that looked at records beside what it was told would find none."""
    X, y = kind.records(20)
    with recorded() as asked:
        model = kind.fit(X, y)
    with replayed(asked):
        again = kind.fit(X[:0], y[:0])
    assert asked
    assert again.to_bytes() == model.to_bytes()


@each(KINDS)
def test_the_statement_is_that_of_the_declared_measurements(kind):
    plan = kind.make().plan(kind.dim)
    stated = [
        one.release.statistic
        for one in plan.measurements.values()
        if one.release is not None
    ]
    assert [release.statistic for release in plan.guarantee.releases] == stated


class Sums(Classifier):
    """A method that is in no paper: noisy class sums are its weights."""

    def measurements(self, setting):
        return {"sums": Measurement(ClassSums(setting.lattice, setting.n_classes))}

    def learn(self, measure, setting):
        self.coef_ = measure("sums") / measure.unit("sums")


class AsksTwice(Sums):
    def learn(self, measure, setting):
        self.coef_ = (measure("sums") + measure("sums")) / 2


class Peeks(Sums):
    """Reaches around the counter, as no method can be kept from doing in Python."""

    def learn(self, measure, setting):
        super().learn(measure, setting)
        self.coef_ += len(behind(measure).records.codes)


class Stashes(Sums):
    """Keeps the records of its fit for its declaration."""

    def fit(self, X, y):
        self.seen = len(X)
        return super().fit(X, y)

    def measurements(self, setting):
        return {
            **super().measurements(setting),
            f"{self.seen} more": Measurement(NumberOfRecords(), percent=1),
        }


class Silent(Sums):
    """Leaves a release out of the statement."""

    def _plan(self, *given):
        plan = super()._plan(*given)
        return replace(plan, guarantee=replace(plan.guarantee, releases=()))


class Scaled(Sums):
    """A parameter of its own, by the recipe of docs/own-method.md."""

    def __init__(
        self,
        budget=None,
        classes=None,
        factor=1.0,
        unknown_labels="error",
        random_state=None,
    ):
        super().__init__(
            budget, classes, unknown_labels=unknown_labels, random_state=random_state
        )
        self.factor = factor

    def learn(self, measure, setting):
        self.coef_ = self.factor * measure("sums") / measure.unit("sums")


def test_a_method_may_have_parameters_of_its_own():
    once, twice = (
        Scaled(GaussianDP(5.0), CLASSES, factor=n, random_state=1) for n in (1.0, 2.0)
    )
    labels = np.array(CLASSES)[CODES]
    assert (2 * once.fit(ROWS, labels).coef_ == twice.fit(ROWS, labels).coef_).all()
    assert twice.get_params()["factor"] == 2.0


def test_a_method_of_ones_own_is_checked():
    labels = np.array(CLASSES)[CODES]
    model = check_private(Sums(GaussianDP(5.0), CLASSES), ROWS, labels)
    assert model.guarantee_.mu <= 5.0
    assert (model.intercept_ == 0).all()
    assert model.predict(ROWS).shape == (30,)
    with pytest.raises(MeasurementError):
        check_private(AsksTwice(GaussianDP(5.0), CLASSES), ROWS, labels)
    with pytest.raises(
        AssertionError, match="coef is not a function of the noisy answers"
    ):
        check_private(Peeks(GaussianDP(5.0), CLASSES), ROWS, labels)
    with pytest.raises(
        AssertionError,
        match=r"fails without records, .*'Stashes' object has no attribute 'seen'",
    ):
        check_private(Stashes(GaussianDP(5.0), CLASSES), ROWS, labels)
    with pytest.raises(AssertionError, match="does not list"):
        check_private(Silent(GaussianDP(5.0), CLASSES), ROWS, labels)


class OfFewerClasses(Sums):
    def measurements(self, setting):
        return {"sums": Measurement(ClassSums(setting.lattice, 1))}


class Whole(Sums):
    """Says that its sums are moved by a whole person as by one record."""

    whole_persons = True


@pytest.mark.parametrize(
    ("method", "words"),
    [(OfFewerClasses, "must be of 3 classes"), (Whole, "whole persons")],
)
def test_measurements_that_do_not_fit_are_refused_before_a_record_is_read(
    method, words
):
    with pytest.raises(ParameterError, match=words):
        method(GaussianDP(1.0), CLASSES).plan(DIM)


def test_a_model_keeps_no_record_of_a_method_that_keeps_its_counter():
    class Keeps(Sums):
        def learn(self, measure, setting):
            super().learn(measure, setting)
            self.measure_ = measure

    model = Keeps(GaussianDP(1.0), CLASSES).fit(ROWS, np.array(CLASSES)[CODES])
    assert behind(model.measure_).records is None
    with pytest.raises(MeasurementError):
        model.measure_("sums")


@pytest.mark.parametrize("declared", [None, [Measurement(SUMS)], {"sums": SUMS}])
def test_measurements_are_a_dictionary(declared):
    method = type("Odd", (Sums,), {"measurements": lambda self, setting: declared})
    with pytest.raises(ParameterError, match="must return a dictionary of Measurement"):
        method(GaussianDP(1.0), CLASSES).plan(DIM)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"coef_": np.zeros((3, 2))},
        {"coef_": np.full((3, DIM), np.nan)},
        {"intercept_": np.zeros(2)},
    ],
)
def test_a_model_that_could_not_be_read_again_is_refused(wrong):
    def learn(self, measure, setting):
        vars(self).update({"coef_": measure("sums"), **wrong} if wrong else {})

    model = type("Wrong", (Sums,), {"learn": learn})(GaussianDP(1.0), CLASSES)
    with pytest.raises(ParameterError, match="learn must set"):
        model.fit(ROWS, np.array(CLASSES)[CODES])
    assert not hasattr(model, "guarantee_")


def test_integers_that_are_answered_are_weights(tmp_path):
    class Integers(Sums):
        def learn(self, measure, setting):
            self.coef_ = measure("sums")

    model = Integers(GaussianDP(5.0), CLASSES).fit(ROWS, np.array(CLASSES)[CODES])
    assert model.coef_.dtype == np.float64
    model.save(tmp_path / "own.safetensors")
    with pytest.raises(
        ModelFileError,
        match=r"safetensors holds a Integers, which is no method of dppl\. Import the module",
    ):
        load(tmp_path / "own.safetensors")


def test_a_ledger_is_one(tmp_path):
    with pytest.raises(ParameterError, match=r"must be a dppl\.Ledger; got str"):
        Sums(GaussianDP(1.0), CLASSES).fit(
            ROWS, np.array(CLASSES)[CODES], ledger="ledger.db"
        )


def test_what_holds_private_values_prints_none_of_them():
    """Tracebacks of some tools print the locals of each frame."""
    parties = [
        HeldRecords,
        PrivateTable,
        PrivateParts,
        SpreadRecords,
        PartReader,
        WholePersons,
        _Counter,
        BinSums,
    ]
    for cls in (*parties, StateFile, TensorRows):
        assert cls.__repr__ is object.__repr__, cls
    assert (
        Measurement.__repr__ is not object.__repr__
    )  # the control: a dataclass prints its fields
