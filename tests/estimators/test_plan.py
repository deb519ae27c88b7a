"""The plan of a fit: what it would promise, told before there is a private record, and what it spares the fit."""

import re
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

import dppl
from dppl import ZCDP, ApproxDP, PureDP, baselines
from dppl.data import EmbeddingTable
from dppl.errors import BudgetError, BudgetExceeded, InputError, ParameterError
from dppl.estimators.base import EmbeddingClassifier
from dppl.privacy import Ledger
from laws.recipes import FIRST

RNG = np.random.default_rng(0)
X, P = RNG.standard_normal((30, 8)).astype(np.float32), RNG.standard_normal((20, 8)).astype(np.float32)
Y = np.repeat([0, 1], 15)
ESTIMATORS = {
    "mean": dppl.MeanPrototypes(ZCDP(1.0), [0, 1]),
    "mapped": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], center="public", pool=2, rotation="auto", random_state=1),
    "published": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], adjacency="replace-one"),
    "coinpress": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], adjacency="replace-one", mechanism="coinpress"),
    "public": dppl.PublicPrototypes(PureDP(1.0), [0, 1], 2, clip="auto"),
    "softmax": dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1], unknown_labels="ignore"),
}
METHODS = {type(estimator) for estimator in ESTIMATORS.values()}
ESTIMATORS |= {
    kind.entry.name: kind.make(ZCDP(1.0), [0, 1], random_state=None) for kind in FIRST if kind.cls not in METHODS
}


def public(name, rows=P):
    """Return public rows, and examples for whom cannot do without."""
    examples = {"X_examples": np.eye(2, rows.shape[1]), "y_examples": [0, 1]} if name == "AdaMix" else {}
    return {"X_public": rows, **examples}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_it_is_what_the_fit_promises(name):
    estimator = clone(ESTIMATORS[name])
    told = estimator.plan(8, **public(name)).guarantee
    assert not hasattr(estimator, "guarantee_")
    for rows, labels in ((X, Y), (X[:0], Y[:0])):  # and for no record at all
        promise = estimator.fit(rows, labels, **public(name)).guarantee_
        assert told == promise
    assert told != estimator.set_params(budget=type(estimator.budget)(0.5)).plan(8, **public(name)).guarantee


@pytest.mark.parametrize(
    ("estimator", "arguments", "error", "words"),
    [
        (dppl.MeanPrototypes(ZCDP(1.0)), (8,), ParameterError, "classes must be the public list"),
        (dppl.MeanPrototypes(ZCDP(1.0), [0, 1]), (0,), ParameterError, "n_features must be"),
        (dppl.MeanPrototypes(PureDP(1.0), [0, 1]), (8,), BudgetError, "pure"),
        (dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1]), (7, P), InputError, "X_public must have the 7 features"),
        (dppl.PublicPrototypes(ZCDP(1.0), [0, 1]), (8,), InputError, "X_public"),
    ],
)
def test_what_would_stop_the_fit_stops_here(estimator, arguments, error, words):
    with pytest.raises(error, match=words):
        estimator.plan(*arguments)


def test_an_account_can_be_asked_before(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    cheap, dear = (dppl.MeanPrototypes(ZCDP(rho), [0, 1]) for rho in (0.75, 1.5))
    ledger.check(cheap.plan(8).guarantee)
    with pytest.raises(BudgetExceeded, match=r"needs rho = 1\.\d+ .* has 1 left"):
        ledger.check(dear.plan(8).guarantee)
    assert (ledger.releases(), ledger.spent()) == ([], {"rho": 0.0})
    cheap.fit(X, Y, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        ledger.check(cheap.plan(8).guarantee)
    part = dppl.MeanPrototypes(ZCDP(0.2), [0, 1]).plan(8).guarantee
    ledger.check(part, partition="north")
    with pytest.raises(ParameterError, match="partition"):
        ledger.check(part, partition="")
    with pytest.raises(ParameterError, match="accounted under add-remove"):
        ledger.check(ESTIMATORS["published"].plan(8).guarantee)
    assert len(ledger.releases()) == 1


# A fit with a plan


def make(name, **parameters):
    """Return an estimator of its own, with a seed, for equal bytes."""
    return clone(ESTIMATORS[name]).set_params(**{"random_state": 7} | parameters)


def learned(estimator):
    return [name for name in vars(estimator) if name.endswith("_") or name == "_fitted_with"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_with_a_plan_is_the_fit_with_public_rows(name):
    direct = make(name).fit(X, Y, **public(name))
    for seed in (7, 8):  # whatever the plan's own seed is
        plan = make(name, random_state=seed).plan(8, **public(name))
        for _ in range(2):
            planned = make(name).fit(X, Y, plan=plan)
            assert planned.to_bytes() == direct.to_bytes()
            assert planned.guarantee_ == direct.guarantee_ == plan.guarantee
    assert make(name, random_state=8).fit(X, Y, plan=plan).to_bytes() != direct.to_bytes()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_to_plan_changes_nothing_of_the_estimator(name):
    estimator = make(name)
    for fitted in (False, True):
        if fitted:
            estimator.fit(X, Y, **public(name))
        before, model = dict(vars(estimator)), estimator.to_bytes() if fitted else None
        plan = estimator.plan(6, **public(name, P[:, :6]))
        assert vars(estimator).keys() == before.keys()
        assert all(vars(estimator)[attribute] is value for attribute, value in before.items())
        assert not fitted or estimator.to_bytes() == model
        assert plan.lattice.n_features == 6
        assert bool(learned(estimator)) == fitted


def words(mechanism):
    """Return all fields of a mechanism, but where its lattice lies in memory."""
    return re.sub(r"Lattice object at 0x\w+", "Lattice", repr(mechanism))


def plan_of(monkeypatch, estimator, *data, **given):
    """Return the plan by which a fit without one releases."""
    used, whole = [], type(estimator)._release

    def release(self, plan, rows, codes, source):
        used.append(plan)
        return whole(self, plan, rows, codes, source)

    with monkeypatch.context() as patch:
        patch.setattr(type(estimator), "_release", release)
        estimator.fit(*data, **given)
    (plan,) = used
    return plan


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_plan_made_before_there_are_records_is_the_one_that_a_fit_uses(name, monkeypatch):
    plan = make(name).plan(8, **public(name))
    assert " at 0x" not in words(plan.measurements)  # equal words are equal values
    for data in ((X, Y), (1e6 * X[:7], np.ones(7, int)), (X[:0], Y[:0])):
        used = plan_of(monkeypatch, make(name), *data, **public(name))
        assert plan.guarantee == used.guarantee
        np.testing.assert_equal(vars(plan.lattice), vars(used.lattice))
        np.testing.assert_equal(plan.classes, used.classes)
        assert words(plan.measurements) == words(used.measurements)
        assert used.public.rows is plan.public.rows is P
        assert used.parameters == plan.parameters
        given = make(name).fit(*data[:2], plan=plan)
        assert given.classes_ is plan.classes


def test_the_plan_of_a_fit_that_keeps_a_count_is_told_apart(monkeypatch):
    """A control: what a plan learns of the records would show."""
    counts, whole = [], EmbeddingClassifier._planned

    def fit(self, X, *others, **options):
        counts.append(len(X))
        return planned_fit(self, X, *others, **options)

    def counting(self, n_features, classes, public):
        plan = whole(self, n_features, classes, public)
        plan.lattice.count = counts[-1] if counts else 0
        return plan

    planned_fit = EmbeddingClassifier.fit
    monkeypatch.setattr(EmbeddingClassifier, "fit", fit)
    monkeypatch.setattr(EmbeddingClassifier, "_planned", counting)
    with pytest.raises(AssertionError):
        test_a_plan_made_before_there_are_records_is_the_one_that_a_fit_uses("mean", monkeypatch)


def test_a_plan_does_not_hold_what_a_private_table_says_of_itself():
    table = EmbeddingTable.of(X, metadata={"not_covered": "rounding", "encoder": "letters"})
    plan = make("mean").plan(8)
    model = make("mean").fit(table, Y, plan=plan)
    assert model.guarantee_ == plan.guarantee_on(table) == make("mean").fit(table, Y).guarantee_
    assert model.guarantee_ != plan.guarantee == plan.guarantee_on(X)
    assert model.encoder_ == "letters"
    assert model.to_bytes() == make("mean").fit(table, Y).to_bytes()


# Plans of other fits

mean = partial(dppl.MeanPrototypes, ZCDP(0.25))
AB = np.array(["a", "b"])
CENTER = np.linspace(-1, 1, 8)
CLIPPED = partial(dppl.PublicPrototypes, ZCDP(0.25), [0, 1])
CLASS = "plan must be one of"


def other(name):
    return f"the parameters of the fit; it has another {name}"


REFUSED = {
    "another class": (baselines.LeastSquares(ZCDP(0.25), [0, 1]), mean([0, 1]), {}, CLASS),
    "a subclass": (mean([0, 1]), type("Mine", (dppl.MeanPrototypes,), {})(ZCDP(0.25), [0, 1]), {}, CLASS),
    "another budget": (dppl.MeanPrototypes(ZCDP(0.125), [0, 1]), mean([0, 1]), {}, other("budget")),
    "a budget of another kind": (dppl.PublicPrototypes(PureDP(0.25), [0, 1]), CLIPPED(), {}, other("budget")),
    "other classes": (mean([0, 1]), mean([0, 1, 2]), {}, other("classes")),
    "classes in an array": (mean(np.array([0, 1])), mean(np.array([0, 2])), {}, other("classes")),
    "classes of another kind": (mean(np.array([0, 1])), mean(AB), {}, other("classes")),
    "no classes": (mean([0, 1]), mean(None), {}, other("classes")),
    "another adjacency": (mean([0, 1], adjacency="replace-one"), mean([0, 1]), {}, other("adjacency")),
    "unknown labels": (mean([0, 1]), mean([0, 1], unknown_labels="ignore"), {}, other("unknown_labels")),
    "another pool": (mean([0, 1], pool=2), mean([0, 1]), {}, other("pool")),
    "a center": (mean([0, 1]), mean([0, 1], center=CENTER), {}, other("center")),
    "another center": (mean([0, 1], center=CENTER), mean([0, 1], center=CENTER + 1e-9), {}, other("center")),
    "a center of another width": (mean([0, 1], center=CENTER), mean([0, 1], center=CENTER[:7]), {}, other("center")),
    "the public center": (mean([0, 1], center=CENTER), mean([0, 1], center="public"), {}, other("center")),
    "another clip": (CLIPPED(clip=(0.5, 1.5)), CLIPPED(clip=(0.5, 1.25)), {}, other("clip")),
    "the automatic clip": (CLIPPED(clip=(0.5, 1.5)), CLIPPED(clip="auto"), {}, other("clip")),
    "a seed": (mean([0, 1]), mean([0, 1], random_state=1), {}, other("random_state")),
    "no seed": (mean([0, 1], random_state=1), mean([0, 1]), {}, other("random_state")),
    "public rows beside it": (
        mean([0, 1]),
        mean([0, 1]),
        {"X_public": P},
        "holds the public data; leave X_public and X_examples out",
    ),
    "its own public rows": (
        CLIPPED(),
        CLIPPED(),
        {"X_public": P},
        "holds the public data; leave X_public and X_examples out",
    ),
    "the public rows as private ones": (CLIPPED(), CLIPPED(), {"X": P[:, ::1], "y": np.zeros(20)}, "must be public"),
    "narrower rows": (mean([0, 1]), mean([0, 1]), {"X": X[:, :7]}, "the plan is for rows of 8 features; X has 7"),
    "rows too narrow for the public ones": (CLIPPED(), CLIPPED(), {"X": X[:, :7]}, "for rows of 8 features; X has 7"),
    "whole numbers as floats": (mean([0, 1]), mean([0.0, 1.0]), {}, other("classes")),
}


class Column:
    """An array-like whose comparison is one item by item, as that of a pandas Series."""

    def __init__(self, items):
        self._items = np.array(items)

    def __array__(self, dtype=None, copy=None):
        return self._items

    def __len__(self):
        return len(self._items)

    def __eq__(self, other):
        return self._items == np.asarray(other)

    __hash__ = None


def test_classes_of_any_kind_of_array_are_compared_by_value():
    estimator = mean(Column([0, 1]), center=Column(CENTER))
    clone(estimator).fit(X, Y, plan=estimator.plan(8))
    budget = dppl.ApproxDP(3.0, 1e-6)
    search = dppl.PrivateSearch(dppl.MeanPrototypes(budget, Column([0, 1])), {"pool": [1, 2]}, mean_runs=2)
    search.fit(X, Y)
    with pytest.raises(ParameterError, match="another classes"):
        mean(Column([0, 2]), center=Column(CENTER)).fit(X, Y, plan=estimator.plan(8))


def test_a_plan_keeps_what_it_was_made_of():
    classes, center = [0, 1], CENTER.copy()
    estimator = mean(classes, center=center)
    plan = estimator.plan(8)
    classes[1], center[0] = 5, 9.0
    assert (plan.lattice.center == CENTER).all()
    with pytest.raises(ParameterError, match="another"):
        estimator.fit(X, Y, plan=plan)


def test_only_a_plan_is_a_plan():
    estimator = mean([0, 1])
    with pytest.raises(ParameterError, match="plan must be what the plan method returned; got Guarantee"):
        estimator.fit(X, Y, plan=estimator.plan(8).guarantee)


@pytest.mark.parametrize("what", REFUSED)
def test_the_plan_of_another_fit_is_refused_and_nothing_is_paid(what, tmp_path):
    planner, estimator, changes, words = REFUSED[what]
    planner, estimator = clone(planner), clone(estimator)
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0), adjacency=estimator.adjacency)
    plan = planner.plan(8, P if isinstance(planner, dppl.PublicPrototypes) else None)
    with pytest.raises((ParameterError, InputError), match=words):
        estimator.fit(**{"X": X, "y": Y} | changes, plan=plan, ledger=ledger)
    assert (ledger.releases(), ledger.spent()) == ([], {"rho": 0.0})
    assert learned(estimator) == []
    planner.fit(X.copy(), Y, plan=plan)  # the plan is as good as before, for its own estimator


@pytest.mark.parametrize(
    "planner",
    [
        mean(AB, center=CENTER),
        mean(["a", "b"], center=CENTER.tolist(), random_state=3),
        mean(("a", "b"), rotation=4, pool=2),
        dppl.PublicPrototypes(ZCDP(0.25), AB, clip=(0.5, 1.5)),
        baselines.LeastSquares(ZCDP(0.25), AB, split=(1.0, 2.0)),
    ],
    ids=["arrays", "lists", "tuples", "clip", "split"],
)
def test_equal_parameters_do_as_well_as_the_same(planner, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    estimator = clone(planner)  # copies arrays, lists and tuples
    if planner.random_state is not None:
        estimator.set_params(random_state=planner.random_state + 1)
    assert estimator.classes is not planner.classes or isinstance(planner.classes, tuple)
    plan = planner.plan(8, P)
    estimator.fit(X, AB[Y], plan=plan, ledger=ledger)
    (release,) = ledger.releases()
    assert release["status"] == "released"


# Public rows are read once


class Streamed:
    """A table that counts how often it is gone through."""

    def __init__(self, rows):
        self.rows, self.passes = rows, 0

    @property
    def shape(self):
        return self.rows.shape

    def blocks(self, size):
        self.passes += 1
        for start in range(0, len(self.rows), size):
            yield self.rows[start : start + size]


READERS = ("mapped", "public", "softmax", "ContinualDiscriminant")
# Whoever selects among public rows scores them, looks at proposals again, and then takes those that are selected.
IN_EVERY_FIT = 3


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fits_by_one_plan_read_public_rows_once(name):
    table = Streamed(P)
    plan = make(name).plan(8, **public(name, table))
    planned = table.passes
    assert bool(planned) == (name in READERS)
    for count in range(1, 4):
        model = make(name).fit(X, Y, plan=plan)
        assert table.passes == planned + (IN_EVERY_FIT * count if name == "public" else 0)
        assert model.to_bytes() == make(name).fit(X, Y, **public(name)).to_bytes()
    table.passes = 0
    make(name).fit(X, Y, **public(name, table))
    assert table.passes == planned + (IN_EVERY_FIT if name == "public" else 0)


SEARCHED = {
    "mean": (dppl.MeanPrototypes, {"center": "public", "rotation": "auto"}, {"pool": [1, 2, 4]}),
    "softmax": (dppl.SoftmaxPrototypes, {}, [{}, {}, {}]),  # has no parameter to choose
    "public": (dppl.PublicPrototypes, {"clip": "auto"}, {"n_prototypes": [1, 2, 3]}),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_a_search_reads_public_rows_once_a_candidate_and_not_once_a_run(name, monkeypatch):
    kind, options, candidates = SEARCHED[name]
    estimator = kind(ApproxDP(4.0, 1e-6), [0, 1], **options)
    runs, whole = [], kind._release
    monkeypatch.setattr(kind, "_release", lambda *arguments: runs.append(1) or whole(*arguments))
    table = Streamed(P)
    for candidate in ParameterGrid(candidates):
        clone(estimator).set_params(**candidate).plan(8, table)
    planned, numbers = table.passes, set()
    assert planned >= 3
    for seed in range(12):
        table.passes = 0
        runs.clear()
        dppl.PrivateSearch(estimator, candidates, mean_runs=4, random_state=seed).fit(X, Y, table)
        assert table.passes == planned + (IN_EVERY_FIT * len(runs) if name == "public" else 0)
        numbers.add(len(runs))
    assert len(numbers) > 3
    assert max(numbers) > 5


# Parameters that are none


@pytest.mark.parametrize("name", ["pool", "center", "rotation", "adjacency"])
def test_what_is_no_parameter_cannot_be_set(name, tmp_path):
    """The map of this method is its own: with another one its noise would be that of other rows."""
    estimator = dppl.SoftmaxPrototypes(ZCDP(0.25), [0, 1])
    setattr(estimator, name, {"pool": 4, "adjacency": "replace-one"}.get(name))
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    for attempt in (lambda: estimator.plan(8), lambda: estimator.fit(X, Y, ledger=ledger)):
        with pytest.raises(ParameterError, match=f"SoftmaxPrototypes has no parameter {name}"):
            attempt()
    assert ledger.releases() == []
