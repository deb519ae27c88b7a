"""Tasks that may overlap: their costs add up, in the statement, in the ledger and in the file."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dppl
from dppl import ZCDP, ApproxDP, GaussianDP, Ledger
from dppl.continual import ContinualPrototypes
from dppl.errors import BudgetError, BudgetExceeded, ParameterError, WeakBudgetWarning
from dppl.kernel.privacy import Cost, Release, compose
from dppl.kernel.privacy.composition import covers
from dppl.kernel.privacy.terms import Caveat, Mechanism, Norm, Statistic, Term, Unit
from dppl.lab import FullDataContinual
from laws.recipes import CLASSES, DIM, rows
from laws.replay import clip_nothing, spent, watched

BUDGETS = (ZCDP(0.25), GaussianDP(1.3), ApproxDP(2.0, 1e-6))
SEVERAL = Term(Caveat.SEVERAL_RECORDS)


def make(budget=BUDGETS[0], **options):
    return ContinualPrototypes(
        budget, CLASSES, **({"random_state": 0, "tasks": "overlapping"} | options)
    )


def records(seed=0, n=9):
    y = np.arange(n) % len(CLASSES)
    return np.random.default_rng(seed).normal(size=(n, DIM)) + 3 * np.eye(3, DIM)[
        y
    ], np.array(CLASSES)[y]


def learn(stream, model=None, **options):
    model = make(**options) if model is None else model
    for X, y in stream:
        model.partial_fit(X, y)
    return model


def check_statement(budget, n_tasks=5):
    """Hold the statement after each task to squares of mu, added by hand."""
    model = make(budget)
    one = make(budget).plan(DIM).guarantee
    (cost,) = one.costs()
    for number in range(1, n_tasks + 1):
        guarantee = model.partial_fit(*records(number)).guarantee_
        squared = number * Fraction(cost.mu) ** 2
        assert (
            squared
            <= Fraction(guarantee.mu) ** 2
            <= squared * (1 + Fraction(1, 10**12))
        )
        assert guarantee.epsilon(1e-5) == pytest.approx(
            compose(number * [cost], 1e-5).epsilon, rel=1e-9
        )
        assert guarantee.stays_within_budget()
        assert type(guarantee.budget) is type(budget)
        # It is no more than that, and states the draws of all tasks.
        assert not covers(_smaller(guarantee.budget), guarantee.costs())
        (release,) = guarantee.releases
        assert release.times == number
        assert release.sensitivity == one.releases[0].sensitivity
        assert release.parameters == one.releases[0].parameters
    return guarantee


def _smaller(budget):
    name, value = next(iter(budget.to_dict().items()))
    return replace(budget, **{name: value * (1 - 1e-6)})


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_statement_is_of_all_tasks_so_far(budget):
    guarantee = check_statement(budget)
    assert guarantee.unit is Unit.PERSON_IN_TASKS
    said = " ".join(str(guarantee).split())
    assert "any number of tasks differ by one record each, added or removed" in said
    assert "a person, or a record, is in a task at most once" in said
    assert "several records of one person in one task" in said
    assert SEVERAL not in guarantee.not_covered
    assert "tasks are disjoint" not in said


def test_a_total_that_stays_at_that_of_one_task_is_noticed(monkeypatch):
    monkeypatch.setattr(
        Release, "repeated", lambda self, times: replace(self, times=times)
    )
    with pytest.raises(AssertionError):
        check_statement(BUDGETS[0])


def test_without_the_parameter_tasks_are_disjoint():
    guarantee = learn([records(), records(1)], tasks="disjoint").guarantee_
    assert guarantee.unit is Unit.RECORD
    assert guarantee.budget == BUDGETS[0]
    assert SEVERAL in guarantee.not_covered
    with pytest.raises(
        ParameterError, match="must be one of 'disjoint', 'overlapping'"
    ):
        learn([records()], tasks="apart")


# Replays


def replay(stream, changes, **options):
    """Hold a stream to its law: one record more in each of some tasks shows by no more than the stated total."""
    more = [
        (np.concatenate([X, change[0][None]]), [*y, change[1]])
        if change is not None
        else (X, y)
        for (X, y), change in zip(stream, changes, strict=True)
    ]
    options = {"unknown_labels": "ignore", **options}
    with watched() as uses:
        first = learn(more, **options)
    with watched([answer for _, _, answer in uses]) as again:
        second = learn(stream, **options)
    assert len(uses) == len(again) == len(stream)
    costs = [spent(one, other, 1) for one, other in zip(uses, again, strict=True)]
    assert not any(
        cost for cost, change in zip(costs, changes, strict=True) if change is None
    )
    assert sum(costs) <= Fraction(first.guarantee_.mu) ** 2
    assert first.guarantee_ == second.guarantee_
    assert first.to_bytes() == second.to_bytes()
    return sum(costs)


@st.composite
def streams(draw):
    tasks = []
    changes = []
    for _ in range(draw(st.integers(1, 4))):
        y = draw(st.lists(st.sampled_from(CLASSES), max_size=3))
        tasks.append((np.array([draw(rows(DIM)) for _ in y]).reshape(len(y), DIM), y))
        changes.append(
            draw(
                st.none()
                | st.tuples(rows(DIM), st.sampled_from([*CLASSES, "elsewhere"]))
            )
        )
    return tasks, changes


@pytest.mark.slow
@given(case=streams(), budget=st.sampled_from(BUDGETS))
@settings(max_examples=60)
def test_a_person_in_any_tasks_moves_the_stream_by_the_stated_total(case, budget):
    replay(*case, budget=budget)


ALONE = [(np.zeros((0, DIM)), [])] * 3
SAME = [(np.full(DIM, 1.2), "b")] * 3


def test_the_total_is_reached_and_what_one_task_costs_is_not_enough(monkeypatch):
    cost = replay(ALONE, SAME)
    assert cost > 3 * Fraction(make().plan(DIM).guarantee.mu) ** 2 * Fraction(
        9, 10
    )  # rows are rounded
    with monkeypatch.context() as patch:
        clip_nothing(patch)
        with pytest.raises(AssertionError):
            replay(ALONE, SAME)
    # The statement of disjoint tasks does not cover a person in three.
    with pytest.raises(AssertionError):
        replay(ALONE, SAME, tasks="disjoint")


# Account and files


def test_the_ledger_adds_tasks_up_and_takes_no_partition(tmp_path):
    account = Ledger(tmp_path / "ledger.db", "wards", ZCDP(0.5))
    model = make()
    with pytest.raises(ParameterError, match="shares no record") as caught:
        model.partial_fit(*records(), ledger=account, partition="may")
    assert caught.value.parameter == "partition"
    assert account.releases() == []
    for _ in range(2):
        model.partial_fit(*records(), ledger=account)
    assert account.spent()["rho"] == pytest.approx(
        model.guarantee_.budget.rho, rel=1e-6
    )
    assert account.spent()["rho"] == pytest.approx(0.5, rel=1e-6)
    content = model.to_bytes()
    with pytest.raises(BudgetExceeded):
        model.partial_fit(*records(), ledger=account)
    assert model.to_bytes() == content


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_loaded_model_goes_on_with_the_budget_of_a_task(budget, tmp_path):
    tasks = [records(seed) for seed in range(4)]
    path = tmp_path / "m.safetensors"
    model = make(budget)
    for task in tasks:
        model.partial_fit(*task).save(path, overwrite=True)
        content = model.to_bytes()
        model = dppl.load(path)
        assert model.budget == budget
        assert model.to_bytes() == content
        model.set_params(random_state=0)
    assert model.to_bytes() == learn(tasks, budget=budget).to_bytes()


def test_a_stream_of_disjoint_tasks_does_not_become_one_that_overlaps():
    model = learn([records()], tasks="disjoint")
    content = model.to_bytes()
    with pytest.raises(ParameterError, match="tasks must stay"):
        model.set_params(tasks="overlapping").partial_fit(*records(1))
    assert model.to_bytes() == content


def test_a_total_beyond_all_use_is_refused_before_it_is_paid(tmp_path):
    account = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1e8))
    model = make(GaussianDP(8e7))
    with pytest.warns(dppl.errors.WeakBudgetWarning):
        model.partial_fit(*records(), ledger=account)
    with pytest.raises(BudgetError):
        model.partial_fit(*records(), ledger=account)
    assert len(account.releases()) == 1


def test_only_gaussian_noise_is_one_entry_of_several_tasks():
    cost = Cost(rho=0.125, mu=0.9, epsilon=1.0)
    selection = Release(
        mechanism=Term(Mechanism.EXPONENTIAL),
        statistic=Term(Statistic.STATED, text="rows"),
        sensitivity=1.0,
        norm=Norm.MONOTONE_UTILITY,
        parameters={},
        cost={"rho": cost.rho, "mu": cost.mu, "epsilon": cost.epsilon},
    )
    with pytest.raises(BudgetError, match="only releases of Gaussian noise"):
        selection.repeated(2)


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_no_partition_is_charged(how, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(10.0))
    with pytest.raises(ParameterError, match="partition names a part"):
        getattr(make(), how)(*records(), ledger=ledger, partition="may")
    assert ledger.releases() == []


def test_a_total_that_nobody_means_is_refused_before_it_is_paid(tmp_path):
    account = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1e3))
    model = make(ApproxDP(15.0, 1e-6))
    with pytest.warns(WeakBudgetWarning):
        model.partial_fit(*records(), ledger=account)
    with pytest.raises(ParameterError, match="epsilon must be at most 20"):
        model.partial_fit(*records(1), ledger=account)
    assert len(account.releases()) == 1
    meant = make(ApproxDP(15.0, 1e-6, allow_weak=True))
    for number in range(2):
        meant.partial_fit(*records(number), ledger=account)
    assert len(account.releases()) == 3


def test_a_total_that_promises_little_warns(recwarn):
    model = make(GaussianDP(3.0))
    for _ in range(20):
        model.partial_fit(*records())
    assert {warning.category for warning in recwarn} == {WeakBudgetWarning}
    assert 0 < len(recwarn) < 19


def test_a_stream_that_was_charged_in_part_says_so(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(10.0))
    model = make().partial_fit(*records(), ledger=ledger)
    assert "some tasks were charged" not in str(model.guarantee_)
    model.partial_fit(*records())
    assert "some tasks were charged" in str(model.guarantee_)


def test_that_tasks_overlap_is_no_parameter_of_all(tmp_path):
    model = FullDataContinual(GaussianDP(1.0), CLASSES)
    model.tasks = "disjoint"
    with pytest.raises(ParameterError, match="has no parameter tasks"):
        model.partial_fit(*records())
