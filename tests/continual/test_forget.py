"""Forgetting a task leaves it out of the model, and changes neither the guarantee nor the account."""

import numpy as np
import pytest

import dppl
from dppl import ZCDP, GaussianDP, Ledger
from dppl.continual import ContinualPrototypes
from dppl.continual._sums import KeptSums, ReleasedSums
from dppl.errors import ModelFileError, ParameterError
from laws.recipes import CLASSES, DIM

each_rule = pytest.mark.parametrize("accumulate", ["weighted", "sum"])


def make(**options):
    return ContinualPrototypes(ZCDP(0.25), CLASSES, **({"random_state": 0, "keep_tasks": True} | options))


def records(seed):
    y = np.arange(9) % len(CLASSES)
    return np.random.default_rng(seed).normal(size=(9, DIM)) + 3 * np.eye(3, DIM)[y], np.array(CLASSES)[y]


def learn(n_tasks=3, **options):
    """Return a model after some tasks, of which the second may hold two classes."""
    model = make(**options)
    for number in range(n_tasks):
        X, y = records(number)
        few = number == 1
        kept = (y != "c") | (not few)
        model.partial_fit(X[kept], y[kept], task_classes=["a", "b"] if few else None)
    return model


@each_rule
def test_keeping_tasks_changes_nothing_else(accumulate):
    kept, not_kept = (learn(accumulate=accumulate, keep_tasks=keep) for keep in (True, False))
    assert kept.prototypes_.tobytes() == not_kept.prototypes_.tobytes()
    assert kept.kept_.sums.shape == (3, len(CLASSES), DIM)
    assert kept.kept_.allowed.sum(axis=1).tolist() == [3, 2, 3]
    assert not hasattr(not_kept, "kept_")
    assert len(kept.to_bytes()) > len(not_kept.to_bytes()) + 3 * len(CLASSES) * DIM * 8


@each_rule
def test_without_the_last_task_the_model_is_that_of_before(accumulate):
    before, after = learn(2, accumulate=accumulate), learn(3, accumulate=accumulate).forget(3)
    assert after.prototypes_.tobytes() == before.prototypes_.tobytes()
    for name, array in before.released_.to_tensors().items():
        assert array.tobytes() == after.released_.to_tensors()[name].tobytes()
    assert after.n_tasks_ == 3


def test_a_task_in_the_middle_leaves_the_sums_of_the_others():
    model = learn(accumulate="sum")
    first, second, third = model.kept_.sums.copy()
    assert (model.forget(2).prototypes_ == first + third).all()
    assert model.released_.n_sums.tolist() == [2, 2, 2]
    assert model.kept_.tasks.tolist() == [1, 3]
    assert not np.allclose(first + third, first + second + third)
    # A later task gets the next number, and noise that no task had.
    model.partial_fit(*records(7))
    assert model.kept_.tasks.tolist() == [1, 3, 4]
    other = learn(accumulate="sum").partial_fit(*records(7))
    assert (model.kept_.sums[-1] == other.kept_.sums[-1]).all()


def test_what_is_forgotten_stays_paid_for_and_stated(tmp_path):
    account = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(3.0))
    model = make()
    for number in range(2):
        model.partial_fit(*records(number), ledger=account)
    guarantee, paid = model.guarantee_, account.to_dict()
    model.forget(1)
    assert model.guarantee_ == guarantee
    assert account.to_dict() == paid
    assert len(account.releases()) == 2
    assert "unlearning: releases of a forgotten task remain in earlier models" in str(guarantee)
    assert "unlearning" not in str(make(keep_tasks=False).plan(DIM).guarantee)


@each_rule
def test_a_loaded_model_forgets_as_well(accumulate, tmp_path):
    path = tmp_path / "m.safetensors"
    model = learn(accumulate=accumulate).forget(2)
    model.save(path)
    again = dppl.load(path)
    assert again.to_bytes() == model.to_bytes()
    assert again.forget(1).to_bytes() == model.forget(1).to_bytes()
    again.forget(3)
    assert not again.prototypes_.any()
    assert not again.released_.n_sums.any()


def test_the_best_of_a_search_forgets_its_only_task():
    X, y = records(0)
    estimator = make(random_state=None).set_params(budget=dppl.ApproxDP(2.0, 1e-6))
    search = dppl.PrivateSearch(estimator, {"lattice__pool": [1, 2]}, mean_runs=2, random_state=0).fit(X, y)
    assert not search.best_estimator_.forget(1).prototypes_.any()


def test_tasks_that_overlap_can_be_forgotten_and_stay_in_the_total():
    model = make(tasks="overlapping")
    for number in range(3):
        model.partial_fit(*records(number))
    mu = model.guarantee_.mu
    assert model.forget(1).guarantee_.mu == mu == pytest.approx(np.sqrt(3 * 0.5), rel=1e-9)


@pytest.mark.parametrize("task", [0, 4, -1, 1.0, True, "may", None])
def test_tasks_that_are_not_there_are_refused(task):
    model = learn()
    content = model.to_bytes()
    with pytest.raises(ParameterError) as caught:
        model.forget(task)
    assert caught.value.parameter == "task"
    assert model.to_bytes() == content
    model.forget(1)
    with pytest.raises(ParameterError, match="a task that is kept: 2, 3; got 1"):
        model.forget(1)


def test_tasks_that_are_not_kept_are_not_forgotten(tmp_path):
    with pytest.raises(ParameterError, match="keep_tasks must be True from the first task on"):
        learn(keep_tasks=False).forget(1)
    with pytest.raises(ParameterError, match="keep_tasks must be False with correlated noise"):
        make(noise="tree", max_tasks=3).partial_fit(*records(0), state=tmp_path / "state")
    with pytest.raises(ParameterError, match="keep_tasks must be True or False"):
        make(keep_tasks="yes").partial_fit(*records(0))
    model = learn(1, keep_tasks=False)
    with pytest.raises(ParameterError, match="keep_tasks must stay"):
        model.set_params(keep_tasks=True).partial_fit(*records(1))
    with pytest.raises(ParameterError, match="from the first task on"):
        model.forget(1)


@pytest.mark.parametrize("wrong", [{"kept_tasks": [2, 1, 3]}, {"kept_tasks": [1, 2, 4]}, {"kept_tasks": [1, 2]}])
def test_a_file_whose_tasks_contradict_each_other_is_refused(wrong, tmp_path, monkeypatch):
    model, whole = learn(), KeptSums.to_tensors
    arrays = {name: np.array(value, np.int64) for name, value in wrong.items()}
    monkeypatch.setattr(KeptSums, "to_tensors", lambda self: whole(self) | arrays)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError):
        dppl.load(tmp_path / "m.safetensors")


def test_a_total_that_keeps_what_is_forgotten_is_noticed(monkeypatch):
    monkeypatch.setattr(KeptSums, "summed", lambda self: ReleasedSums.none(3, DIM))
    with pytest.raises(AssertionError):
        test_a_task_in_the_middle_leaves_the_sums_of_the_others()
