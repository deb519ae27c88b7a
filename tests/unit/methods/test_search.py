"""The search: what it may spend, what it may look at, and what must stay secret."""

import os
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dppl
from dppl import (
    ZCDP,
    ApproxDP,
    Ledger,
    MeanPrototypes,
    PrivateSearch,
    PublicData,
    PublicPrototypes,
)
from dppl.audit.audit import audit_release
from dppl.errors import (
    BudgetExceeded,
)
from dppl.kernel.mechanisms.randomness import SystemRandomness, randomness
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import Caveat, Term
from dppl.kernel.queries import search as kernel_search
from dppl.kernel.queries.search import RightAnswers
from dppl.kernel.records import HeldRecords
from dppl.methods import private_search as search_module
from inside import behind

# Statistical tests here raise a false alarm with at most this probability.
ALARM = 1e-6
BUDGET = ApproxDP(4.0, 1e-6)
RNG = np.random.default_rng(0)
CENTERS = RNG.normal(size=(3, 16))
Y = RNG.integers(0, 3, 600)
X = CENTERS[Y] + 0.3 * RNG.normal(size=(600, 16))
P = RNG.normal(size=(50, 16))


def answers(query, model, rows, codes):
    return HeldRecords(rows, codes).total(query, model=model)


def searching(parameters=None, budget=BUDGET, **options):
    candidates = {"lattice__pool": [1, 16]} if parameters is None else parameters
    return PrivateSearch(MeanPrototypes(budget, [0, 1, 2]), candidates, **options)


def test_the_better_candidate_is_found():
    """Pooling all 16 coordinates into one leaves nothing to tell classes by."""
    search = searching({"lattice__pool": [1, 16]}, mean_runs=20, random_state=3).fit(
        X, Y
    )
    assert search.best_params_ == {"lattice__pool": 1}
    assert search.best_estimator_.lattice.pool == 1
    assert np.mean(search.predict(X) == Y) > 0.9
    assert search.decision_function(X).shape == (600, 3)


@pytest.mark.parametrize("scoring", ["accuracy", "balanced"])
@pytest.mark.parametrize(
    "estimator",
    [
        MeanPrototypes(BUDGET, [0, 1, 2]),
        MeanPrototypes(BUDGET, [0, 1, 2], adjacency="replace-one"),
        PublicPrototypes(BUDGET, [0, 1, 2], public=PublicData(P)),
    ],
    ids=["mean", "replace-one", "public"],
)
def test_the_released_model_carries_the_guarantee_of_the_whole_search(
    estimator, scoring, tmp_path
):
    search = PrivateSearch(
        estimator, {"lattice__pool": [1, 2]}, mean_runs=3, scoring=scoring
    ).fit(X, Y)
    search.save(tmp_path / "m.safetensors")
    model = dppl.load(tmp_path / "m.safetensors")
    assert model.guarantee_.budget == BUDGET
    assert model.guarantee_.to_dict() == search.guarantee_.to_dict()
    (release,) = model.guarantee_.releases
    assert release.cost["mean_runs"] == 3
    words = str(model.guarantee_)
    assert "repeat-and-select" in words
    assert (
        "which its running time reveals, and so do the times of files written after it"
        in words
    )
    assert "hyper-parameters and models chosen by looking at private data" not in words
    assert (model.predict(X) == search.predict(X)).all()


def test_fits_and_scores_spend_what_one_run_may(monkeypatch):
    seen = []
    original = MeanPrototypes.learn

    def spy(self, *arguments):
        seen.append(self.budget)
        return original(self, *arguments)

    monkeypatch.setattr(MeanPrototypes, "learn", spy)
    search = searching(mean_runs=5).fit(X, Y)
    (release,) = search.guarantee_.releases
    assert set(seen) == {ZCDP(release.cost["rho_per_run"])}
    assert (
        release.parameters["noise_std_of_score"] ** 2 * 2 * release.cost["rho_per_run"]
        >= 1
    )


@pytest.mark.slow
def test_the_number_of_runs_is_geometric_and_is_told_nowhere(monkeypatch):
    runs = []
    monkeypatch.setattr(
        RightAnswers, "score", lambda self, *others: runs.append(1) or 0.0
    )
    counts = []
    kept = set()
    for _ in range(100):
        runs.clear()
        search = searching({"lattice__pool": [1]}, mean_runs=4).fit(X[:5], Y[:5])
        counts.append(len(runs))
        kept.add(
            repr(sorted(vars(search)))
            + repr(sorted(vars(search.best_estimator_)))
            + str(search.guarantee_)
        )
    assert len(kept) == 1
    observed = np.bincount(np.minimum(counts, 8), minlength=9)[1:]
    expected = 100 * np.append(0.25 * 0.75 ** np.arange(7), 0.75**7)
    assert stats.chisquare(observed, expected).pvalue > ALARM
    # The negative control: a fixed number of runs is noticed.
    assert (
        stats.chisquare(np.bincount([4] * 100, minlength=9)[1:], expected).pvalue
        < ALARM
    )


def test_records_are_held_out_by_a_coin_of_their_own():
    share = kernel_search.coins(100_000, 0.2, randomness(None)).mean()
    heads = round(256 * 0.2) / 256
    assert stats.binomtest(round(share * 100_000), 100_000, heads).pvalue > ALARM
    assert stats.binomtest(round(share * 100_000), 100_000, heads + 0.02).pvalue < ALARM
    assert kernel_search.coins(0, 0.2, randomness(None)).shape == (0,)


def test_the_model_never_sees_a_held_out_record(monkeypatch):
    trained = []
    tested = []
    learn = MeanPrototypes.learn
    exact = RightAnswers.exact
    seen_by_fit = lambda self, measure, setting: (  # noqa: E731
        trained.append(behind(measure).records.rows) or learn(self, measure, setting)
    )
    monkeypatch.setattr(MeanPrototypes, "learn", seen_by_fit)

    def seen_by_score(self, blocks, codes, model):
        rows = np.concatenate(list(blocks))
        tested.append(rows)
        return exact(self, [rows], codes, model=model)

    monkeypatch.setattr(RightAnswers, "exact", seen_by_score)
    searching(mean_runs=6).fit(X, Y)
    assert all((rows == trained[0]).all() for rows in trained)
    assert all((rows == tested[0]).all() for rows in tested)
    both = np.concatenate([trained[0], tested[0]])
    assert len(both) == len(X)
    assert {row.tobytes() for row in both} == {row.tobytes() for row in X}


@pytest.mark.slow
@given(st.integers(0, 12), st.integers(0, 2), st.booleans())
@settings(max_examples=60)
def test_a_held_out_record_moves_the_counts_by_the_stated_sensitivity(
    n, label, replaces
):
    """Given the model. Under replace-one the other record may be of any class."""
    model = MeanPrototypes(ZCDP(5.0), [0, 1, 2], random_state=0).fit(X, Y)
    rows = X[:n]
    codes = Y[:n].astype(np.intp)
    first = np.concatenate([rows, X[20:21]]), np.append(codes, label)
    other = (X[21:22], [(label + 1) % 3]) if replaces else (X[:0], [])
    second = (
        np.concatenate([rows, other[0]]),
        np.append(codes, other[1]).astype(np.intp),
    )
    for query in (RightAnswers(3), RightAnswers(3, by_class=True)):
        difference = answers(query, model, *first) - answers(query, model, *second)
        assert int((difference**2).sum()) <= query.squared_sensitivity(
            "replace-one" if replaces else "add-remove"
        )


def test_a_record_is_classified_alone():
    model = MeanPrototypes(ZCDP(5.0), [0, 1, 2], random_state=0).fit(X, Y)
    query = RightAnswers(3, by_class=True)
    whole = answers(query, model, X, Y.astype(np.intp))
    alone = sum(
        answers(query, model, X[i : i + 1], Y[i : i + 1].astype(np.intp))
        for i in range(len(X))
    )
    assert (whole == alone).all()


def test_records_of_no_class_count_nowhere():
    model = MeanPrototypes(ZCDP(5.0), [0, 1, 2], random_state=0).fit(X, Y)
    assert not answers(
        RightAnswers(3, by_class=True), model, X[:5], np.full(5, -1)
    ).any()


class Separating(SystemRandomness):
    """Puts all records into the training part, so that an audit sees the fit at its full budget."""

    def bits(self, count):
        return (1 << count) - 1 if count % 8 == 0 and count > 0 else super().bits(count)


def audited(monkeypatch, mean_runs, budget, runs=150, **changes):
    """Audit one-candidate searches: the statistic is the released sum along the canary."""
    monkeypatch.setattr(kernel_search, "randomness", lambda seed: Separating())
    for name, change in changes.items():
        monkeypatch.setattr(search_module, name, change)
    canary = np.eye(16)[:1]

    def release(include):
        search = PrivateSearch(
            MeanPrototypes(budget, [0]), {"lattice__pool": [1]}, mean_runs=mean_runs
        )
        search.fit(canary[: int(include)], [0][: int(include)])
        return float(search.best_estimator_.prototypes_[0, 0])

    return audit_release(release, budget, runs=runs, confidence=1 - ALARM)


@pytest.mark.slow
def test_a_search_keeps_its_promise(monkeypatch):
    assert not audited(monkeypatch, 3, ApproxDP(3.0, 1e-4)).violation


@pytest.mark.slow
def test_a_search_whose_runs_spend_the_whole_budget_each_is_caught(monkeypatch):
    """The planted fault: every run is far too sharp, so that the canary shows by 14 standard deviations."""
    result = audited(
        monkeypatch,
        3,
        ApproxDP(0.5, 1e-4),
        rho_per_run_within=lambda epsilon, delta, mean_runs: 200 * epsilon,
    )
    assert result.violation


@pytest.fixture
def ledger(tmp_path):
    """An account that adds Rényi divergences, which is what takes searches."""
    return partial(Ledger, tmp_path / "ledger.db", "wards", accounting="renyi")


def test_a_search_fits_into_an_account_of_its_own_budget(ledger):
    account = ledger(BUDGET)
    search = searching(mean_runs=3).fit(X, Y, ledger=account)
    (release,) = account.releases()
    assert release["status"] == "not saved"
    assert release["released_at"] is None  # it would tell the number of runs
    assert release["estimator"] == "PrivateSearch(MeanPrototypes)"
    assert release["parameters"]["candidates"] == [
        {"lattice__pool": 1},
        {"lattice__pool": 16},
    ]
    assert search.guarantee_.charges == (Charge("wards", 1),)
    assert 0.999 * BUDGET.epsilon < account.spent()["epsilon"] <= BUDGET.epsilon
    with pytest.raises(BudgetExceeded):
        MeanPrototypes(ApproxDP(0.5, 1e-6), [0, 1, 2]).fit(X, Y, ledger=account)
    assert len(account.releases()) == 1


def test_a_search_says_that_the_times_of_files_tell_its_number_of_runs(
    ledger, tmp_path, monkeypatch
):
    account = ledger(BUDGET)
    runs = []

    def score(*_):
        runs.append(os.utime(tmp_path / "ledger.db", (1, 1)))
        return 0.0

    monkeypatch.setattr(RightAnswers, "score", score)
    search = searching(mean_runs=3).fit(X, Y, ledger=account)
    assert runs
    assert (
        tmp_path / "ledger.db"
    ).stat().st_mtime > 1  # written after the last run, so it must be said:
    assert Term(Caveat.NUMBER_OF_RUNS) in search.guarantee_.not_covered
    assert "times of all files that are written after the search" in " ".join(
        PrivateSearch.__doc__.split()
    )


@pytest.mark.parametrize("search_first", [True, False])
def test_searches_and_fits_share_an_account(ledger, search_first):
    account = ledger(ApproxDP(8.0, 1e-6))
    fits = [
        lambda: searching(budget=ApproxDP(2.0, 1e-6), mean_runs=3).fit(
            X, Y, ledger=account
        ),
        lambda: MeanPrototypes(ApproxDP(2.0, 1e-6), [0, 1, 2]).fit(
            X, Y, ledger=account
        ),
    ]
    spent = [0.0]
    for fit in fits if search_first else fits[::-1]:
        fit()
        spent.append(account.spent()["epsilon"])
    assert spent == sorted(spent)
    assert 2.0 < spent[-1] <= 8.0
    for _ in range(15):
        with suppress(BudgetExceeded):
            fits[0]()
    with pytest.raises(BudgetExceeded):
        fits[0]()
    assert account.spent()["epsilon"] <= 8.0
