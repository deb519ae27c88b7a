"""A model trained again in each task is the model that a user fits, on the records and from the start that it says."""

import numpy as np
import pytest

from dppl import GaussianDP, SoftmaxPrototypes
from dppl.io import load_sample
from dppl.lab.experiments.config import load_experiment
from dppl.lab.experiments.datasets import DatasetSpec
from dppl.lab.experiments.measure_cell import run_cell
from dppl.lab.retrained import Retrained, RetrainedOnAll
from dppl.methods.fit_plan import seed_of

SAMPLE = load_sample()
TASKS = (slice(0, 300), slice(300, 600))


def fitted(rows, seed, start=None):
    model = SoftmaxPrototypes(
        GaussianDP(0.5), SAMPLE.classes, start=start, random_state=seed
    )
    return model.fit(SAMPLE.X[rows], SAMPLE.y[rows])


@pytest.mark.parametrize("from_last", [False, True])
def test_each_task_is_a_fit_of_its_own_records_with_noise_of_its_own(from_last):
    model = Retrained(
        GaussianDP(0.5), SAMPLE.classes, from_last=from_last, random_state=3
    )
    for rows in TASKS:
        model.partial_fit(SAMPLE.X[rows], SAMPLE.y[rows])
    first = fitted(TASKS[0], 3)
    second = fitted(TASKS[1], seed_of(3, 1), first if from_last else None)
    np.testing.assert_array_equal(model.coef_, second.coef_)


def test_fits_of_all_records_so_far_add_up():
    model = RetrainedOnAll(GaussianDP(0.5), SAMPLE.classes, random_state=3)
    for rows in (*TASKS, slice(0, 900)):
        model.partial_fit(SAMPLE.X[: rows.stop], SAMPLE.y[: rows.stop])
    assert model.total_mu_ == pytest.approx(0.5 * 3**0.5)
    assert model.guarantee_.mu == pytest.approx(0.5)


def test_methods_of_the_experiment_cost_a_record_the_same(monkeypatch):
    monkeypatch.setattr(DatasetSpec, "check", lambda self: None)
    loaded = load_experiment("quarters")
    assert {cell.dataset for cell in loaded.cells} == {
        "sample",
        "hwu64",
        "banking77",
        "cifar10",
    }
    cells = [
        cell
        for cell in loaded.cells
        if (cell.dataset, cell.seed, cell.budget) == ("sample", 0, {"mu": 1})
    ]
    assert len(cells) == 2 * 6
    assert len({cell.key for cell in loaded.cells}) == 12 * 6 * 4 * 3
    for cell in cells:
        if cell.stream.kind == "drifting":
            result = run_cell(cell, loaded.datasets)
            assert result["status"] == "done", result
            assert result["metrics"]["total_mu"] == pytest.approx(1)
            assert result["metrics"]["balanced_accuracy"] > 0.7
