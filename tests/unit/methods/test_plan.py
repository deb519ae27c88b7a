"""The plan of a fit: what it would promise, told before there is a private record."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

import dppl
from dppl import ZCDP, ApproxDP, PublicData, PureDP
from dppl.errors import BudgetError, BudgetExceeded, InputError, ParameterError
from dppl.io import EmbeddingTable
from dppl.kernel import Measurement
from dppl.kernel.privacy import Ledger
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.kernel.queries import ClassSums
from dppl.methods.base import EmbeddingClassifier
from laws.recipes import FIRST

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 8)).astype(np.float32)
P = RNG.standard_normal((9, 8)).astype(np.float32)
Y = np.repeat([0, 1], 15)
ESTIMATORS = {
    "mean": dppl.MeanPrototypes(ZCDP(1.0), [0, 1]),
    "mapped": dppl.MeanPrototypes(
        ZCDP(1.0),
        [0, 1],
        lattice=dppl.LatticeOptions(center="public", pool=2, rotation="auto"),
        random_state=1,
    ),
    "published": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], adjacency="replace-one"),
    "coinpress": dppl.MeanPrototypes(
        ZCDP(1.0), [0, 1], adjacency="replace-one", coinpress="dppl"
    ),
    "public": dppl.PublicPrototypes(PureDP(1.0), [0, 1], n_prototypes=2, clip="auto"),
    "softmax": dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1], unknown_labels="ignore"),
}
METHODS = {type(estimator) for estimator in ESTIMATORS.values()}
ESTIMATORS |= {
    kind.entry.name: kind.make(kind.budgets[0], [0, 1], random_state=None)
    for kind in FIRST
    if kind.cls not in METHODS
}


def public(name, rows=P):
    """Return public rows, and examples for whom cannot do without."""
    return PublicData(
        rows, *((np.eye(2, rows.shape[1]), [0, 1]) if name == "AdaMix" else ())
    )


PUBLIC = {name: public(name) for name in ESTIMATORS}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_it_is_what_the_fit_promises(name):
    estimator = clone(ESTIMATORS[name]).set_params(public=public(name))
    told = estimator.plan(8).guarantee
    assert not hasattr(estimator, "guarantee_")
    for rows, labels in ((X, Y), (X[:0], Y[:0])):  # and for no record at all
        promise = estimator.fit(rows, labels).guarantee_
        assert told == promise
    cheaper = estimator.set_params(budget=ApproxDP(0.5, 1e-6)).plan(8).guarantee
    assert told != cheaper


@pytest.mark.parametrize(
    ("estimator", "arguments", "error", "words"),
    [
        (
            dppl.MeanPrototypes(ZCDP(1.0)),
            (8,),
            ParameterError,
            "classes must be the public list",
        ),
        (
            dppl.MeanPrototypes(ZCDP(1.0), [0, 1]),
            (0,),
            ParameterError,
            "n_features must be",
        ),
        (dppl.MeanPrototypes(PureDP(1.0), [0, 1]), (8,), BudgetError, "pure"),
        (
            dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1], public=PublicData(P)),
            (7,),
            InputError,
            "must have the 7 features",
        ),
        (
            dppl.PublicPrototypes(ZCDP(1.0), [0, 1]),
            (8,),
            ParameterError,
            "public is required",
        ),
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


# The plan that a fit makes


def make(name, **parameters):
    """Return an estimator of its own, with a seed, for equal bytes."""
    return clone(ESTIMATORS[name]).set_params(
        **{"random_state": 7, "public": PUBLIC[name]} | parameters
    )


def learned(estimator):
    return [
        name for name in vars(estimator) if name.endswith("_") or name == "_fitted_with"
    ]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_to_plan_changes_nothing_of_the_estimator(name):
    estimator = make(name)
    for fitted in (False, True):
        if fitted:
            estimator.set_params(public=public(name)).fit(X, Y)
        estimator.public = public(name, P[:, :6])
        before = dict(vars(estimator))
        model = estimator.to_bytes() if fitted else None
        plan = estimator.plan(6)
        assert vars(estimator).keys() == before.keys()
        assert all(
            vars(estimator)[attribute] is value for attribute, value in before.items()
        )
        assert not fitted or estimator.to_bytes() == model
        assert plan.setting.lattice.n_features == 6
        assert bool(learned(estimator)) == fitted


def words(mechanism):
    """Return all fields of a mechanism, but where its lattice lies in memory."""
    return re.sub(r"Lattice object at 0x\w+", "Lattice", repr(mechanism))


def plan_of(monkeypatch, estimator, *data, **given):
    """Return the plan by which a fit without one releases."""
    used = []
    whole = EmbeddingClassifier._settle

    def settle(self, plan, *others):
        used.append(plan)
        return whole(self, plan, *others)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingClassifier, "_settle", settle)
        estimator.fit(*data, **given)
    plan, last = used  # the first is for the size of its file
    assert plan is last
    return plan


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_plan_made_before_there_are_records_is_the_one_that_a_fit_uses(
    name, monkeypatch
):
    plan = make(name).plan(8)
    assert " at 0x" not in words(plan.measurements)  # equal words are equal values
    for data in ((X, Y), (1e6 * X[:7], np.ones(7, int)), (X[:0], Y[:0])):
        used = plan_of(monkeypatch, make(name), *data)
        assert plan.guarantee == used.guarantee
        np.testing.assert_equal(vars(plan.setting.lattice), vars(used.setting.lattice))
        np.testing.assert_equal(plan.setting.classes, used.setting.classes)
        assert words(plan.measurements) == words(used.measurements)
        named = Term(PublicInput.PUBLIC_ROWS) in plan.guarantee.public_inputs
        rows = P if named else None
        assert used.setting.public.rows is plan.setting.public.rows is rows
        assert used.parameters == plan.parameters


def test_the_plan_of_a_fit_that_keeps_a_count_is_told_apart(monkeypatch):
    """A control: what a plan learns of the records would show."""
    counts = []
    whole = EmbeddingClassifier._plan

    def fit(self, X, *others, **options):
        counts.append(len(X))
        return planned_fit(self, X, *others, **options)

    def counting(self, n_features, *others):
        plan = whole(self, n_features, *others)
        plan.setting.lattice.count = counts[-1] if counts else 0
        return plan

    planned_fit = EmbeddingClassifier.fit
    monkeypatch.setattr(EmbeddingClassifier, "fit", fit)
    monkeypatch.setattr(EmbeddingClassifier, "_plan", counting)
    with pytest.raises(AssertionError):
        test_a_plan_made_before_there_are_records_is_the_one_that_a_fit_uses(
            "mean", monkeypatch
        )


def test_a_plan_does_not_hold_what_a_private_table_says_of_itself():
    table = EmbeddingTable.of(
        X, metadata={"not_covered": "rounding", "encoder": "letters"}
    )
    plan = make("mean").plan(8)
    model = make("mean").fit(table, Y)
    assert model.guarantee_ == plan.guarantee_on(table)
    assert model.guarantee_ != plan.guarantee == plan.guarantee_on(X)
    assert model.encoder_ == "letters"


# Public rows are read once


class Streamed:
    """A table that counts how often it is gone through."""

    def __init__(self, rows):
        self.rows = rows
        self.passes = 0

    @property
    def shape(self):
        return self.rows.shape

    def blocks(self, size):
        self.passes += 1
        for start in range(0, len(self.rows), size):
            yield self.rows[start : start + size]


# Whoever selects among public rows scores them, looks at proposals again, and then
# takes those that are selected.
IN_EVERY_FIT = 3


SEARCHED = {
    "mean": (
        dppl.MeanPrototypes,
        {"lattice": dppl.LatticeOptions(center="public", rotation="auto")},
        {"lattice__pool": [1, 2, 4]},
    ),
    "softmax": (dppl.SoftmaxPrototypes, {}, [{}, {}, {}]),  # has no parameter to choose
    "public": (dppl.PublicPrototypes, {"clip": "auto"}, {"n_prototypes": [1, 2, 3]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHED)
def test_a_search_reads_public_rows_once_a_candidate_and_not_once_a_run(
    name, monkeypatch
):
    kind, options, candidates = SEARCHED[name]
    table = Streamed(P)
    estimator = kind(ApproxDP(4.0, 1e-6), [0, 1], public=PublicData(table), **options)
    runs = []
    whole = kind.learn
    monkeypatch.setattr(
        kind, "learn", lambda *arguments: runs.append(1) or whole(*arguments)
    )
    for candidate in ParameterGrid(candidates):
        clone(estimator).set_params(**candidate).plan(8)
    planned = table.passes
    numbers = set()
    assert planned >= 3
    for seed in range(12):
        table.passes = 0
        runs.clear()
        dppl.PrivateSearch(estimator, candidates, mean_runs=4, random_state=seed).fit(
            X, Y
        )
        assert table.passes == planned + (
            IN_EVERY_FIT * len(runs) if name == "public" else 0
        )
        numbers.add(len(runs))
    assert len(numbers) > 3
    assert max(numbers) > 5


class NearPublicRows(dppl.Classifier):
    """An own method that reads public rows where it gets some."""

    def measurements(self, setting):
        return {"sums": Measurement(ClassSums(setting.lattice, setting.n_classes))}

    def learn(self, measure, setting):
        self.read = setting.public.rows is not None
        self.coef_ = measure("sums") / measure.unit("sums")


@pytest.mark.parametrize("says", ["unused", "optional"])
def test_a_method_gets_public_rows_only_if_the_statement_names_them(says, monkeypatch):
    monkeypatch.setattr(NearPublicRows, "public_rows", says)
    model = NearPublicRows(ZCDP(1.0), [0, 1], public=PublicData(P)).fit(X, Y)
    stated = Term(PublicInput.PUBLIC_ROWS) in model.guarantee_.public_inputs
    assert model.read == stated == (says == "optional")


# Parameters that are none


@pytest.mark.parametrize("name", ["lattice", "adjacency"])
def test_what_is_no_parameter_cannot_be_set(name, tmp_path):
    """The map of this method is its own: with another one its noise would be that of other rows."""
    estimator = dppl.SoftmaxPrototypes(ZCDP(0.25), [0, 1])
    setattr(
        estimator,
        name,
        {"lattice": dppl.LatticeOptions(pool=4), "adjacency": "replace-one"}[name],
    )
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    for attempt in (
        lambda: estimator.plan(8),
        lambda: estimator.fit(X, Y, ledger=ledger),
    ):
        with pytest.raises(
            ParameterError, match=f"SoftmaxPrototypes has no parameter {name}"
        ):
            attempt()
    assert ledger.releases() == []


def test_a_refit_that_fails_at_its_parameters_leaves_no_earlier_model():
    estimator = clone(ESTIMATORS["mean"]).fit(X, Y)
    with pytest.raises(ParameterError, match="unknown_labels"):
        estimator.set_params(unknown_labels="x").fit(X, Y)
    assert not [name for name in vars(estimator) if name.endswith("_")]
