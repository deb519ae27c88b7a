"""Tasks of few classes, made of a data set of many: which go together, how rare one is, and that reports tell them."""

import numpy as np
import pytest

from dppl import MeanPrototypes
from dppl.errors import InputError, ParameterError
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.lab.experiments import measure_cell as cells_module
from dppl.lab.experiments.config import load_experiment
from dppl.lab.experiments.datasets import Merged
from dppl.lab.experiments.markdown import write_report
from dppl.lab.experiments.measure_cell import check_cells, run_cell
from dppl.lab.experiments.results import ResultsFile

TASKS = [{"alone": 1}, {"alone": 2}, {"groups": 2}, {"groups": 3}]
NAMES = [
    "blobs (one class against the rest)",
    "blobs (2 classes and the rest)",
    "blobs (half of the classes against the others)",
    "blobs (3 groups of classes)",
]


@pytest.fixture(autouse=True)
def _fresh_data(monkeypatch):
    monkeypatch.setattr(cells_module, "_LOADED", {})


@pytest.fixture
def run(experiment):
    def run(**changes):
        loaded = experiment(**{"methods": ["mean"], **changes})
        check_cells(loaded.cells, loaded.datasets)
        return [run_cell(cell, loaded.datasets) for cell in loaded.cells]

    return run


def blobs(**more):
    return [{"name": "blobs", "encoder": "none", **more}]


def test_each_task_has_cells_of_its_own_and_those_of_the_data_set_as_it_is_keep_their_keys(
    experiment,
):
    cells = experiment(datasets=blobs(classes=TASKS), methods=["mean"], seeds=2).cells
    assert [cell.classes for cell in cells] == [
        Merged(1),
        Merged(2),
        Merged(groups=2),
        Merged(groups=3),
    ] * 2
    assert len({cell.key for cell in cells}) == 8
    (whole,) = experiment(datasets=blobs(), methods=["mean"]).cells
    assert "classes" not in whole.to_dict()


@pytest.mark.parametrize(
    ("task", "n_old"),
    [
        (Merged(1), [1, 9]),
        (Merged(3), [1, 1, 1, 7]),
        (Merged(groups=2), [5, 5]),
        (Merged(groups=4), [3, 3, 2, 2]),
    ],
)
def test_the_seed_alone_says_which_classes_go_together(task, n_old):
    drawn = [tuple(task.codes(10, seed)) for seed in (0, 0, 1, 2, 3)]
    assert all(np.bincount(one).tolist() == n_old for one in drawn)
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_a_cell_learns_and_is_tested_on_the_new_classes(run, data):
    (result,) = run(datasets=blobs(classes={"alone": 1}), ir=["natural"], seeds=[4])
    X, y, X_test, y_test = (
        np.load(data / "blobs" / f"{name}.npy")
        for name in ("train_x", "train_y", "test_x", "test_y")
    )
    new = Merged(alone=1).codes(4, seed=4)
    cell = result["cell"]
    model = MeanPrototypes(
        budget_from_dict(cell["budget"]),
        [0, 1],
        random_state=int(result["key"][:8], 16),
    )
    right = model.fit(X, new[y]).predict(X_test) == new[y_test]
    each = [right[new[y_test] == code].mean() for code in (0, 1)]
    assert (cell["classes"], result["data"]["class_sizes"]) == (
        {"alone": 1, "groups": 0},
        [40, 120],
    )
    assert result["metrics"]["class_accuracies"] == each
    assert result["metrics"]["balanced_accuracy"] == pytest.approx(np.mean(each))


@pytest.mark.parametrize(
    ("task", "ratio", "sizes"),
    [
        # The rest stays large, and the classes beside it are rare.
        ({"alone": 1}, 1, [40, 40]),
        ({"alone": 1}, 2.5, [40, 100]),
        ({"alone": 1}, 10, [12, 120]),
        ({"alone": 2}, 100, [1, 1, 80]),
        # Which of several groups is rare is drawn.
        ({"groups": 2}, 1, [80, 80]),
        ({"groups": 2}, 10, [8, 80]),
    ],
)
def test_the_imbalance_ratio_is_that_of_the_new_classes(run, task, ratio, sizes):
    (result,) = run(datasets=blobs(classes=task), ir=[ratio])
    found = result["data"]["class_sizes"]
    assert (sorted(found) if "groups" in task else found) == sizes


def test_examples_and_public_rows_are_of_the_task(run, data):
    public = [{"name": "near", "file": "blobs/public_x.npy"}]
    methods = ["softmax", {"method": "softmax", "examples": 2}]
    plain, started = run(
        datasets=blobs(classes={"groups": 2}, public=public), methods=methods
    )
    assert [one["status"] for one in (plain, started)] == ["done"] * 2
    assert [one["data"]["n_train"] for one in (plain, started)] == [160, 156]


def test_names_are_of_single_classes_and_start_no_task_of_few(experiment):
    methods = ["softmax", {"method": "softmax", "examples": "names"}]
    files = {"names": "train_x.npy"}
    assert len(experiment(datasets=blobs(files=files), methods=methods).cells) == 2
    (cell,) = experiment(
        datasets=blobs(files=files, classes={"alone": 1}), methods=methods
    ).cells
    assert cell.examples is None


@pytest.mark.slow
def test_a_report_keeps_tasks_apart(run, drawn, tmp_path):
    with ResultsFile(tmp_path / "mine.jsonl") as file:
        for result in run(datasets=blobs(classes=TASKS)):
            file.append(result | {"config": "mine", "data_folder": None})
    write_report(tmp_path / "mine.jsonl", tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    assert [name for name in NAMES if f"\n## {name}, none\n" in page] == NAMES


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"classes": {"alone": 0}},
            r"datasets\[0\]\.classes\[0\] must have alone, of at least 1, or groups",
        ),
        (
            {"classes": [{"groups": 2}, {"groups": 1}]},
            r"classes\[1\] must have alone, .* or groups, of at least 2",
        ),
        ({"classes": {"rest": 1}}, r"classes\[0\]\.rest is an unknown key"),
        ({"classes": 3}, r"classes\[0\] must be a dictionary"),
    ],
)
def test_what_is_wrong_with_a_task_is_said(experiment, data, changes, told):
    with pytest.raises(ParameterError, match=told):
        experiment(datasets=blobs(**changes), methods=["mean"])


@pytest.mark.parametrize("task", [{"alone": 4}, {"groups": 5}])
def test_a_task_needs_as_many_classes(experiment, task):
    loaded = experiment(datasets=blobs(classes=task), methods=["mean"])
    with pytest.raises(InputError, match="needs more classes than the data set has, 4"):
        check_cells(loaded.cells, loaded.datasets)


def test_a_stream_may_be_of_few_classes(write_config):
    def loaded(classes, **stream):
        path = write_config(
            datasets=blobs(classes=classes),
            streams=[{"of": "blobs", **stream}],
            methods=["Retrained"],
            ir=None,
        )
        return load_experiment(str(path))

    found = loaded([None, {"alone": 1}], kind="shuffled", tasks=2)
    sizes = [run_cell(one, found.datasets)["data"] for one in found.cells]
    assert {len(one["class_sizes"]) for one in sizes} == {4, 2}
