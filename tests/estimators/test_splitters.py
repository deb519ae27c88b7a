"""Public rows inside tools of scikit-learn that cut data: whole, or refused."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate, learning_curve
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dppl
from dppl import ZCDP, Ledger, MeanPrototypes, PublicPrototypes, PublicRows, PureDP, SoftmaxPrototypes
from dppl.errors import ParameterError, SplitterWarning
from dppl.estimators import public_data
from dppl.lattice import RowTable

RNG = np.random.default_rng(0)
N = 60
X, Y = RNG.normal(size=(N, 8)), np.repeat([0, 1], N // 2)
P = RNG.normal(size=(N, 8))
BUDGET = PureDP(3.0)


def make(budget=BUDGET):
    return PublicPrototypes(budget, [0, 1], random_state=0)


TOOLS = {
    "cross_val_score": lambda model, X, y, P: cross_val_score(model, X, y, cv=3, params={"X_public": P}),
    "cross_validate": lambda model, X, y, P: cross_validate(model, X, y, cv=3, params={"X_public": P}),
    "cross_val_predict": lambda model, X, y, P: cross_val_predict(model, X, y, cv=3, params={"X_public": P}),
    "learning_curve": lambda model, X, y, P: learning_curve(
        model, X, y, cv=3, train_sizes=[1.0], params={"X_public": P}
    ),
    "GridSearchCV": lambda model, X, y, P: GridSearchCV(model, {"pool": [1, 2]}, cv=3).fit(X, y, X_public=P),
    "CalibratedClassifierCV": lambda model, X, y, P: CalibratedClassifierCV(model, cv=3).fit(X, y, X_public=P),
    "pipeline": lambda model, X, y, P: cross_val_score(
        make_pipeline(FunctionTransformer(), model), X, y, cv=3, params={"publicprototypes__X_public": P}
    ),
}


@pytest.fixture
def read(monkeypatch):
    """Return the numbers of public rows that fits read."""
    sizes, whole = [], PublicPrototypes._release

    def release(self, plan, *others):
        sizes.append(plan.public.rows.shape[0])
        return whole(self, plan, *others)

    monkeypatch.setattr(PublicPrototypes, "_release", release)
    return sizes


@pytest.mark.filterwarnings("ignore::dppl.errors.SplitterWarning")
@pytest.mark.parametrize("tool", TOOLS)
def test_wrapped_rows_are_read_whole_whatever_the_number_of_records(tool, read):
    for n in (N, N - 3):
        TOOLS[tool](make(), X[:n], Y[:n], PublicRows(P))
    assert read
    assert set(read) == {N}


@pytest.mark.filterwarnings("ignore::dppl.errors.SplitterWarning", "ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("tool", TOOLS)
def test_bare_rows_are_refused_and_would_be_cut(tool, read, monkeypatch):
    for n in (N, N - 3):
        with pytest.raises(ValueError, match="must be wrapped here"):  # some tools wrap the errors of their fits
            TOOLS[tool](make(), X[:n], Y[:n], P)
    assert not read
    # The leak: as many public rows as records are cut, and one record fewer keeps them whole.
    monkeypatch.setattr(public_data, "whole_public_rows", lambda rows, name: rows)
    TOOLS[tool](make(), X, Y, P)
    cut = set(read)
    read.clear()
    TOOLS[tool](make(), X[:-3], Y[:-3], P)
    assert min(cut) < N
    assert set(read) == {N}


@pytest.mark.filterwarnings("ignore::dppl.errors.SplitterWarning", "ignore::sklearn.exceptions.FitFailedWarning")
def test_under_metadata_routing_too(read):
    with sklearn.config_context(enable_metadata_routing=True):
        model = make().set_fit_request(X_public=True)
        search = GridSearchCV(model, {"pool": [1]}, cv=3)
        with pytest.raises(ValueError, match="must be wrapped here"):
            search.fit(X, Y, X_public=P)
        search.fit(X, Y, X_public=PublicRows(P))
        with pytest.raises(ParameterError, match="must be wrapped here"):
            BaggingClassifier(model, n_estimators=2).fit(X, Y, X_public=P)
    assert set(read) == {N}


@pytest.mark.filterwarnings("ignore::dppl.errors.SplitterWarning")
def test_tables_and_other_estimators_are_refused_as_well():
    class Table:  # of another length, which scikit-learn does not try to cut
        shape = (N - 10, 8)

        def blocks(self, size):
            yield from np.array_split(P[:-10], 4)

    assert isinstance(Table(), RowTable)
    for model in (SoftmaxPrototypes(ZCDP(1.0), [0, 1]), MeanPrototypes(ZCDP(1.0), [0, 1], center="public")):
        for rows in (P, P.tolist(), Table()):
            with pytest.raises(ValueError, match="must be wrapped here"):
                cross_val_score(model, X, Y, cv=2, params={"X_public": rows}, error_score="raise")
    search = dppl.PrivateSearch(MeanPrototypes(dppl.ApproxDP(3.0, 1e-6), [0, 1], center="public"), {"pool": [1]})
    with pytest.raises(ParameterError, match="must be wrapped here"):
        cross_val_score(search, X, Y, cv=2, params={"X_public": P}, error_score="raise")


def test_outside_of_such_tools_rows_may_be_bare_or_wrapped():
    bare, wrapped = make().fit(X, Y, P), make().fit(X, Y, PublicRows(P))
    assert bare.to_bytes() == wrapped.to_bytes() == make().fit(X, Y, plan=make().plan(8, PublicRows(P))).to_bytes()
    piped = make_pipeline(FunctionTransformer(), make()).fit(X, Y, publicprototypes__X_public=P)
    assert piped[-1].to_bytes() == bare.to_bytes()


def test_fits_that_no_ledger_counts_are_warned_of(tmp_path):
    model = MeanPrototypes(ZCDP(0.1), [0, 1])
    for tool in (
        lambda rows: cross_val_score(model, rows, Y, cv=3),
        lambda rows: GridSearchCV(model, {"pool": [1]}, cv=2).fit(rows, Y),
        lambda rows: OneVsRestClassifier(MeanPrototypes(ZCDP(0.1), [0, 1])).fit(rows, Y),
    ):
        with pytest.warns(SplitterWarning, match="their costs add up") as told:
            tool(X.copy())
        assert len(told) == 1  # for all fits
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    cross_val_score(model, X, Y, cv=2, params={"ledger": ledger})  # a warning would be an error
    assert len(ledger.releases()) == 2
    make_pipeline(FunctionTransformer(), model).fit(X, Y)


@pytest.mark.filterwarnings("ignore::dppl.errors.SplitterWarning", "ignore::dppl.errors.WeakBudgetWarning")
def test_a_search_takes_wrapped_rows_where_bare_ones_are_refused():
    estimator = MeanPrototypes(dppl.ApproxDP(30.0, 1e-6), [0, 1], center="public")
    search = dppl.PrivateSearch(estimator, {"pool": [1, 2]}, mean_runs=2)
    cross_val_score(search, X, Y, cv=2, params={"X_public": PublicRows(P)}, error_score="raise")


@pytest.mark.parametrize("with_ledger", [False, True])
def test_the_number_of_warnings_does_not_tell_the_number_of_runs_of_a_search(with_ledger, tmp_path, monkeypatch):
    runs, whole = [], MeanPrototypes._release
    monkeypatch.setattr(MeanPrototypes, "_release", lambda self, *others: runs.append(1) or whole(self, *others))
    # Seeded: both searches make several runs, where one of eight makes a single one.
    estimator = MeanPrototypes(dppl.ApproxDP(200.0, 1e-6), [0, 1])
    search = dppl.PrivateSearch(estimator, {"pool": [1, 2]}, mean_runs=8, random_state=0)
    ledger = Ledger(tmp_path / "l.db", "wards", dppl.ApproxDP(1e4, 1e-3), accounting="renyi") if with_ledger else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(search, X.copy(), Y, cv=2, params={"ledger": ledger}, error_score="raise")
    assert len(runs) > 2
    kinds = [warning.category for warning in caught]
    assert kinds.count(dppl.errors.WeakBudgetWarning) == 2  # one for each search
    assert kinds.count(SplitterWarning) == (0 if with_ledger else 1)  # for both
