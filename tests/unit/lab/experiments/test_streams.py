"""Streams of tasks as cells: what a configuration becomes, what is measured, recipes and the report."""

import json
import re
from dataclasses import replace
from statistics import mean, stdev
from types import SimpleNamespace

import numpy as np
import pytest

from dppl.errors import InputError, ParameterError
from dppl.kernel.privacy import GaussianDP
from dppl.lab.experiments import figures
from dppl.lab.experiments.cells import NO_NOISE, Cell
from dppl.lab.experiments.compared_methods import STREAM_METHODS
from dppl.lab.experiments.config import built_in_names, load_experiment
from dppl.lab.experiments.datasets import Dataset, load_dataset
from dppl.lab.experiments.markdown import write_report
from dppl.lab.experiments.measure_cell import _start, check_cells, run_cell
from dppl.lab.experiments.names import series_name
from dppl.lab.experiments.results import ResultsFile
from dppl.lab.task_streams import RECIPES, Stream

HALVES = {"of": "blobs", "kind": "class-incremental", "tasks": 2}
APPROX = {"epsilon": [1, 8], "delta": 1e-5}


@pytest.fixture
def streams(write_config):
    """Write a configuration of streams and load it."""

    def load(**changes):
        content = {
            "streams": [HALVES],
            "methods": ["ContinualPrototypes"],
            "budgets": [{"mu": [1]}],
            **changes,
        }
        return load_experiment(str(write_config(**content)))

    return load


@pytest.fixture
def run(streams):
    """Compute all cells of a configuration."""

    def compute(**changes):
        loaded = streams(**changes)
        return [run_cell(cell, loaded.datasets) for cell in loaded.cells]

    return compute


class Forgetful:
    """Predicts right for classes of its last task, whose labels its rows show, and some class of that for all others.

    It says what it was given.
    """

    def __init__(self, random_state):
        self.random_state = random_state
        self.told = []
        self.tested = []

    def partial_fit(self, X, y, *, task_classes=None):
        assert (X.argmax(axis=1) == y).all()
        self.told.append(None if task_classes is None else task_classes.tolist())
        self.known = np.unique(y)
        return self

    def fit(self, X, y):
        return self.partial_fit(X, y)

    def predict(self, X):
        self.tested.append(len(X))
        shown = X.argmax(axis=1)
        return np.where(np.isin(shown, self.known), shown, self.known[0])

    def to_bytes(self):
        return b"12345"


@pytest.fixture
def forgetful(monkeypatch, tmp_path):
    """Run the classifier that forgets on one-hot rows of three classes with 3, 2 and 5 training rows."""
    folder = tmp_path / "onehot"
    folder.mkdir()
    for part, sizes in (("train", (3, 2, 5)), ("test", (4, 1, 3))):
        y = np.repeat(range(3), sizes)
        np.save(folder / f"{part}_y.npy", y)
        np.save(folder / f"{part}_x.npy", np.eye(3, dtype=np.float32)[y])
    models = []

    def build(budget, classes, random_state, parameters, public):
        models.append(Forgetful(random_state))
        return models[-1]

    method = SimpleNamespace(
        build=build, private=False, of_images=False, sized=lambda model, _: model
    )
    monkeypatch.setitem(STREAM_METHODS, "Forgetful", method)

    def compute(stream):
        cell = Cell(
            "Forgetful", {}, "onehot", "none", None, None, "natural", 0, stream=stream
        )
        spec = SimpleNamespace(name="onehot", encoder="none")
        monkeypatch.setattr(
            "dppl.lab.experiments.measure_cell.load",
            lambda _: Dataset(*parts, np.arange(3), {}),
        )
        monkeypatch.setattr("dppl.lab.experiments.measure_cell._LOADED", {})
        parts = [
            np.load(folder / f"{part}.npy")
            for part in ("train_x", "train_y", "test_x", "test_y")
        ]
        return run_cell(cell, {("onehot", "none"): spec}), models

    return compute


def test_metrics_are_those_of_a_matrix_computed_by_hand(forgetful, monkeypatch):
    order = [
        SimpleNamespace(
            rows=np.flatnonzero(np.repeat(range(3), (3, 2, 5)) == c), classes=[c]
        )
        for c in (2, 0, 1)
    ]
    tests = [
        SimpleNamespace(
            rows=np.flatnonzero(np.repeat(range(3), (4, 1, 3)) == c), classes=[c]
        )
        for c in (2, 0, 1)
    ]
    monkeypatch.setattr(Stream, "tasks", lambda *_: order)
    monkeypatch.setattr(Stream, "test_tasks", lambda *_: tests)
    result, models = forgetful(Stream("class-incremental", 3))
    assert result["status"] == "done", result
    # Only the last class is known after each task.
    assert result["stream"]["accuracies"] == [[1], [0, 1], [0, 0, 1]]
    assert result["stream"]["average_accuracy"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert result["stream"]["forgetting"] == pytest.approx([0, 1, 1])
    assert result["stream"]["model_bytes"] == 5
    measured = result["metrics"]
    assert measured["accuracy"] == 1 / 8  # class 1 has one of eight test rows
    assert measured["balanced_accuracy"] == pytest.approx(1 / 3)
    assert measured["minority_accuracy"] == 1  # class 1 is the smallest in training
    assert measured["average_accuracy"] == pytest.approx(1 / 3)
    assert measured["forgetting"] == 1
    assert measured["joint_accuracy"] == 1
    assert measured["below_joint"] == 7 / 8
    stream, joint = models
    assert stream.told == [None] * 3  # nothing is told
    assert stream.tested == [8] * 3  # all test rows at once, so no task is named
    assert (joint.told, joint.tested) == ([None], [8])
    assert joint.random_state != stream.random_state


def test_classes_of_tasks_are_told_only_where_a_stream_says_so(forgetful):
    _, models = forgetful(Stream("class-incremental", 3, told=True))
    assert sorted(models[0].told) == [[0], [1], [2]]
    assert models[1].told == [None]  # one task of all classes


def test_a_method_of_all_records_so_far_is_given_them_and_their_classes(
    forgetful, monkeypatch
):
    given = []

    def partial_fit(self, X, y, *, task_classes=None):
        given.append((y, task_classes))
        return self

    monkeypatch.setattr(Forgetful, "takes_earlier_records", True, raising=False)
    monkeypatch.setattr(Forgetful, "partial_fit", partial_fit)
    monkeypatch.setattr(Forgetful, "predict", lambda self, X: X.argmax(axis=1))
    result, _ = forgetful(Stream("class-incremental", 3, told=True))
    assert result["status"] == "done", result
    *calls, (joint, _) = [(np.unique(y).tolist(), classes) for y, classes in given]
    assert [len(labels) for labels, _ in calls] == [1, 2, 3]
    assert all(labels == classes.tolist() for labels, classes in calls)
    assert joint == [0, 1, 2]
    assert np.bincount(given[2][0]).tolist() == [3, 2, 5]


def test_a_method_of_correlated_noise_is_told_the_number_of_tasks_and_keeps_its_state_to_the_end(
    forgetful, monkeypatch
):
    states = []
    bounds = []

    def partial_fit(self, X, y, *, task_classes=None, state=None):
        bounds.append(self.max_tasks)
        states.append(state)
        assert state is None or state.parent.is_dir()
        return self

    monkeypatch.setattr(Forgetful, "noise", "toeplitz", raising=False)
    monkeypatch.setattr(Forgetful, "max_tasks", None, raising=False)
    monkeypatch.setattr(Forgetful, "partial_fit", partial_fit)
    monkeypatch.setattr(Forgetful, "predict", lambda self, X: X.argmax(axis=1))
    result, _ = forgetful(Stream("class-incremental", 3))
    assert result["status"] == "done", result
    assert bounds == [3, 3, 3, 1]
    assert states[0] == states[1] == states[2]
    assert states[3] is None  # one task needs none
    assert not states[0].parent.exists()


def test_a_budget_for_all_tasks_is_split_where_their_costs_add_up(streams, monkeypatch):
    model = SimpleNamespace(tasks="overlapping", budget=None)
    monkeypatch.setitem(
        STREAM_METHODS, "Several", SimpleNamespace(build=lambda *_: model, private=True)
    )
    stream = Stream("shuffled", 4)
    cell = Cell(
        "Several",
        {},
        "blobs",
        "none",
        None,
        {"mu": 1.0},
        "natural",
        0,
        stream=stream,
        in_all=True,
    )
    dataset = Dataset(*[None] * 4, np.arange(2), {})
    assert _start(cell, dataset, 0).budget == GaussianDP(0.5)  # squares of mu add up
    assert _start(cell, dataset, 0, n_tasks=1).budget == GaussianDP(1.0)
    assert cell.key != replace(cell, in_all=False).key
    loaded = streams(
        methods=[{"method": "ContinualPrototypes", "in_all": [False, True]}]
    )
    assert [cell.in_all for cell in loaded.cells] == [False, True]
    with pytest.raises(
        ParameterError, match="in_all is for methods whose tasks overlap"
    ):
        check_cells(loaded.cells, loaded.datasets)


def test_a_result_says_all_that_one_of_a_single_fit_says(run):
    (result,) = run()
    assert (result["status"], result["adjacency"], result["exact"], result["e"]) == (
        "done",
        "add-remove",
        True,
        1.0,
    )
    assert result["cell"]["stream"] == {
        "kind": "class-incremental", "n_tasks": 2, "elsewhere": None, "told": False, "recipe": None,
    }  # fmt: skip
    assert set(result["seconds"]) == {
        f"{step}_{clock}" for step in ("fit", "predict", "joint") for clock in CLOCKS
    }
    assert result["stream"]["model_bytes"] > 100
    assert result["data"]["n_train"] == 160


CLOCKS = ("wall", "cpu")
TIMES = ("seconds", "peak_memory_mib", "finished")


def steady(result):
    return {key: value for key, value in result.items() if key not in TIMES}


def test_equal_cells_have_equal_results_and_other_seeds_other_ones(run):
    changes = {
        "streams": [HALVES, {"of": "blobs", "kind": "blurry", "tasks": 2}],
        "seeds": 2,
        "budgets": [{"mu": [0.02]}],
    }
    first = run(**changes)
    again = run(**changes)
    assert list(map(steady, first)) == list(map(steady, again))
    accuracies = [json.dumps(result["stream"]["accuracies"]) for result in first]
    assert len(set(accuracies)) == 4


def test_the_grid_of_streams_is_complete(streams):
    cells = streams(
        streams=[
            {**HALVES, "tasks": [2, 4], "told": [False, True]},
            {"of": "blobs", "kind": "shuffled", "tasks": 3},
            {"of": "blobs", "kind": "blurry", "tasks": 2, "elsewhere": 0.5},
        ],
        methods=[{"method": "ContinualPrototypes", "accumulate": ["weighted", "sum"]}],
        budgets=[APPROX, "non-private"],
        seeds=2,
    ).cells
    assert len(cells) == len({cell.key for cell in cells}) == 6 * 2 * 3 * 2
    assert {cell.stream.elsewhere for cell in cells} == {None, 0.5}
    assert {cell.seed for cell in cells[: len(cells) // 2]} == {0}


def test_non_private_is_no_promise_and_costs_no_accuracy(run):
    (private, free) = run(budgets=[{"mu": [0.01]}, "non-private"])
    assert (free["notion"], free["adjacency"], free["exact"], free["covered"]) == (
        "none",
        None,
        None,
        None,
    )
    assert free["cell"]["budget"] == {"mu": 1e6}
    assert free["metrics"]["accuracy"] > 0.9 > private["metrics"]["accuracy"]


def test_public_rows_are_given_with_the_first_task(run):
    (result,) = run(
        methods=[{"method": "ContinualPrototypes", "lattice__center": "public"}]
    )
    assert (result["status"], result["data"]["n_public"]) == ("done", 60)


def test_data_sets_are_tasks_and_keep_their_classes_apart(streams, data):
    folder = data / "wide"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, n in (("train", 30), ("test", 9)):
        np.save(
            folder / f"{part}_x.npy", rng.standard_normal((n, 20)).astype(np.float32)
        )
        np.save(folder / f"{part}_y.npy", np.resize(["a", "b", "c"], n))
    both = [{"name": "blobs", "encoder": "none"}, {"name": "wide", "encoder": "other"}]
    loaded = streams(
        datasets=both,
        streams=[{"of": ["blobs", "wide"], "kind": "data-sets", "told": [False, True]}],
    )
    assert list(loaded.datasets) == [("blobs + wide", "none + other")]
    dataset = load_dataset(loaded.datasets["blobs + wide", "none + other"])
    assert dataset.n_classes_of_parts == (4, 3)
    assert dataset.X.shape == (190, 20)
    np.testing.assert_array_equal(dataset.X[:160, 16:], 0)
    assert dataset.y[160:163].tolist() == [4, 5, 6]
    stream = loaded.cells[0].stream
    for tasks, y in (
        (stream.tasks(dataset, dataset.y, 0), dataset.y),
        (stream.test_tasks(dataset, 0), dataset.y_test),
    ):
        assert [set(y[task.rows]) for task in tasks] == [{0, 1, 2, 3}, {4, 5, 6}]
    check_cells(loaded.cells, loaded.datasets)
    assert all(
        run_cell(cell, loaded.datasets)["status"] == "done" for cell in loaded.cells
    )


@pytest.fixture
def benchmarks(tmp_path):
    """Folders with the data sets of all recipes: their class structure, and hardly any rows."""
    rng = np.random.default_rng(1)

    def rows(n_classes, each, shift):
        y = np.repeat(np.arange(n_classes), each)
        return np.roll(np.eye(200)[y], shift, axis=1) + 0.01 * rng.standard_normal(
            (len(y), 200)
        ), y

    names = {
        "cifar100": 100,
        "imagenet-r": 200,
        **dict.fromkeys(RECIPES["5-dataset"].datasets, 10),
    }
    for place, (name, n_classes) in enumerate(names.items()):
        (tmp_path / "all" / name).mkdir(parents=True)
        for part, each in (
            (("", 20),) if name == "imagenet-r" else (("train_", 4), ("test_", 2))
        ):
            for kind, array in zip(
                "xy", rows(n_classes, each, 10 * place), strict=True
            ):
                np.save(tmp_path / "all" / name / f"{part}{kind}.npy", array)
    return tmp_path / "all"


@pytest.mark.parametrize(("recipe", "tasks", "classes"), [
    ("cifar100-10x10", 10, 10), ("imagenet-r-10x20", 10, 20), ("5-dataset", 5, 10),
])  # fmt: skip
def test_recipes_cut_their_data_sets_as_the_paper_does(
    write_config, benchmarks, recipe, tasks, classes
):
    changes = {
        "datasets": None,
        "streams": [recipe],
        "methods": ["ContinualPrototypes"],
        "budgets": ["non-private"],
    }
    loaded = load_experiment(str(write_config(**changes, ir=None)), benchmarks)
    check_cells(loaded.cells, loaded.datasets)
    (cell,), (spec,) = loaded.cells, loaded.datasets.values()
    dataset = load_dataset(spec)
    cut = cell.stream.tasks(dataset, dataset.y, seed=3)
    assert [len(set(task.classes)) for task in cut] == [classes] * tasks
    result = run_cell(cell, loaded.datasets)
    assert result["metrics"]["accuracy"] == 1  # one-hot rows with hardly any noise
    assert cell.stream.name == recipe


def test_a_data_set_in_one_piece_has_a_random_fifth_as_its_test_set(
    write_config, benchmarks
):
    changes = {
        "datasets": None,
        "methods": ["ContinualPrototypes"],
        "streams": ["imagenet-r-10x20"],
    }
    loaded = load_experiment(str(write_config(**changes)), benchmarks)
    (spec,) = loaded.datasets.values()
    first = load_dataset(spec)
    again = load_dataset(spec)
    assert (len(first.y), len(first.y_test)) == (3200, 800)
    np.testing.assert_array_equal(first.y_test, again.y_test)
    both = np.concatenate([first.X, first.X_test])
    assert len(np.unique(both, axis=0)) == 4000
    assert (
        len({*np.bincount(first.y_test, minlength=200)}) > 1
    )  # over all rows, not class by class


def test_a_recipe_refuses_data_of_another_shape(write_config, data):
    blobs = {"name": "cifar100", "folder": "blobs", "encoder": "none"}
    path = write_config(
        datasets=[blobs], methods=["ContinualPrototypes"], streams=["cifar100-10x10"]
    )
    loaded = load_experiment(str(path))
    with pytest.raises(
        InputError, match=r"cifar100-10x10 has 100 classes; the data has 4\."
    ):
        check_cells(loaded.cells, loaded.datasets)
    assert run_cell(loaded.cells[0], loaded.datasets)["error"] == "InputError"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"streams": ["cifar-10x10"]},
            r"recipe must be one of cifar100-10x10, imagenet-r-10x20, 5-dataset, .*; got",
        ),
        (
            {"streams": [{**HALVES, "kind": "sorted"}]},
            r"streams\[0\]\.kind must be 'class-incremental', .*; got 'sorted'",
        ),
        (
            {"streams": [{**HALVES, "of": "rings"}]},
            r"streams\[0\]\.of must be one of blobs; got 'rings'",
        ),
        (
            {"streams": [{"of": "blobs", "kind": "shuffled"}]},
            "each kind but data-sets needs tasks",
        ),
        (
            {"streams": [{"of": ["blobs", "blobs"], "kind": "data-sets", "tasks": 2}]},
            "has one a data set",
        ),
        (
            {"streams": [{**HALVES, "of": ["blobs", "blobs"]}]},
            "data-sets takes a list of several",
        ),
        (
            {"streams": [{**HALVES, "elsewhere": 0.5}]},
            "elsewhere is for blurry streams",
        ),
        (
            {"streams": [{**HALVES, "kind": "blurry", "elsewhere": 2}]},
            "elsewhere must be less than or equal to 1; got 2",
        ),
        (
            {"streams": [{**HALVES, "kind": "shuffled", "told": True}]},
            "told is for class-incremental and data-sets",
        ),
        (
            {"streams": [{**HALVES, "told": "yes"}]},
            r"told\[0\] must be a valid boolean; got 'yes'",
        ),
        (
            {"streams": [{**HALVES, "tasks": 0}]},
            r"tasks\[0\] must be greater than or equal to 1; got 0",
        ),
        ({"streams": [{**HALVES, "speed": 1}]}, "speed is an unknown key"),
        ({"methods": ["mean"]}, r"must be one of ContinualPrototypes.*; got 'mean'"),
        (
            {"methods": [{"method": "ContinualPrototypes", "weight": 1}]},
            "has no parameter 'weight'",
        ),
        (
            {"methods": [{"method": "ContinualPrototypes", "examples": 1}]},
            "does not start from examples",
        ),
        (
            {
                "methods": [
                    {
                        "method": "ContinualPrototypes",
                        "examples": {"source": 1, "used": False},
                    }
                ]
            },
            "examples are for single fits",
        ),
    ],
)
def test_bad_configurations_of_streams_name_the_key(streams, changes, told):
    with pytest.raises(ParameterError, match=told):
        streams(**changes)


def test_streams_and_single_fits_do_not_mix(write_config, experiment):
    with pytest.raises(
        ParameterError,
        match=r"methods\[0\] must be one of ContinualPrototypes.* got 'mean'",
    ):
        experiment(streams=[HALVES])
    with pytest.raises(ParameterError, match=r"methods\[0\]\.in_all is for streams"):
        experiment(methods=[{"method": "mean", "in_all": True}])
    with pytest.raises(ParameterError, match="got 'ContinualPrototypes'"):
        experiment(methods=["ContinualPrototypes"])


def test_too_many_tasks_are_found_before_a_run(streams):
    loaded = streams(streams=[{**HALVES, "tasks": 5}])
    with pytest.raises(ParameterError, match="at most the number of classes, 4; got 5"):
        check_cells(loaded.cells, loaded.datasets)


def test_a_task_without_test_rows_is_an_error_and_not_a_number(run):
    (result,) = run(streams=[{"of": "blobs", "kind": "shuffled", "tasks": 40}])
    assert (result["status"], result["error"]) == ("failed", "InputError")
    assert "test rows" in result["message"]


def test_built_in_configurations_of_streams(tmp_path, monkeypatch):
    quick = load_experiment("continual-quick")
    assert (quick.name, {cell.dataset for cell in quick.cells}) == (
        "continual-quick",
        {"sample"},
    )
    check_cells(quick.cells, quick.datasets)
    for name in ("continual", "continual-paper"):
        assert name in built_in_names()
        with pytest.raises(InputError, match="there is no file"):
            load_experiment(name, tmp_path)
        monkeypatch.setattr(
            "dppl.lab.experiments.datasets.DatasetSpec.check", lambda self: None
        )
        cells = load_experiment(name).cells
        assert {cell.seed for cell in cells} == set(range(5))
        assert any(cell.budget == {"mu": NO_NOISE} for cell in cells)
        monkeypatch.undo()


@pytest.fixture
def report(tmp_path, drawn):
    def write(results):
        with ResultsFile(tmp_path / "r.jsonl") as file:
            for one in results:
                file.append({**one, "config": "mine.yaml", "data_folder": None})
        folder = tmp_path / "report"
        files = write_report(tmp_path / "r.jsonl", folder)
        return (folder / "report.md").read_text("utf-8"), {path.name for path in files}

    return write


@pytest.mark.slow
def test_the_report_shows_tasks_budgets_time_and_storage(run, report):
    told = {**HALVES, "told": [False, True]}
    text, files = report(run(streams=[told], budgets=[APPROX, "non-private"], seeds=2))
    assert "`dppl bench " in text
    assert "`dppl bench mine.yaml --out " in text
    stem = "blobs-none-2-tasks-class-incremental-ir-1"
    assert {
        f"{kind}-{stem}.png" for kind in ("average-accuracy", "forgetting", "tasks")
    } <= files
    assert "| non-private |" in text
    assert (
        "| ContinualPrototypes, told the classes of each task | approximate DP, add-remove, exact | none |"
        in text
    )
    for title in (
        "Average accuracy after", "Average forgetting after", "Balanced test", "model of all tasks at once", "Seconds",
    ):  # fmt: skip
        assert f"**{title}" in text or title in text
    assert "Total mu" not in text  # a record is in one task
    assert "model of all tasks at once, drawn with other noise: blobs, none" in text
    assert "tuned" not in text
    assert "DPPL-Public" not in text
    (row,) = [
        line
        for line in text.splitlines()
        if line.startswith("| blobs, none") and "told" not in line
    ]
    assert float(row.split(" | ")[-1].strip(" |")) > 0


def test_what_is_not_private_promises_nothing_in_the_report(run, report):
    text, _ = report(run(budgets=["non-private"]))
    assert "| ContinualPrototypes | none | none | 1.000 |" in text


def test_a_method_that_pays_for_every_task_says_so(run, report):
    text, _ = report(
        run(methods=["ContinualPrototypes", "FullDataContinual"], budgets=[{"mu": [1]}])
    )
    table = text.split(
        "**Total mu of a record of the first task, over all published models"
    )[1].split("\n\n")[1]
    totals = {
        row.split(" | ")[0]: row.split(" | ")[-1] for row in table.splitlines()[2:]
    }
    assert totals == {
        "| ContinualPrototypes": "1 |",
        "| FullDataContinual, the budget again for every task": "1.415 |",
    }


@pytest.mark.parametrize(
    ("tasks", "in_all"),
    [("disjoint", False), ("overlapping", False), ("overlapping", True)],
)
def test_a_label_says_before_a_run_what_its_records_pay(streams, run, tasks, in_all):
    changes = {
        "methods": [{"method": "ContinualPrototypes", "tasks": tasks, "in_all": in_all}]
    }
    (cell,), (result,) = streams(**changes).cells, run(**changes)
    assert series_name(cell.to_dict()) == series_name(result["cell"])
    assert ("the budget again for every task" in series_name(result["cell"])) == (
        result["metrics"]["total_mu"] > 1.001
    )


def test_a_total_is_rounded_as_the_budget_in_the_head_of_its_table(run, report):
    text, _ = report(
        run(
            methods=[{"method": "FullDataContinual", "in_all": [True, False]}],
            budgets=[APPROX],
        )
    )
    table = text.split("**Total mu of a record of the first task")[1].split("\n\n")[1]
    head, _, *rows = table.splitlines()
    (row,) = [row for row in rows if "for all tasks together" in row]
    assert re.findall(r"\(mu ([\d.]+)\)", head) == row.strip(" |").split(" | ")[3:]


def test_bands_are_the_deviations_of_the_tables():
    values = {1: [0.1, 0.3, 0.5], 2: [0.4, 0.4, 1.0]}
    lines = [
        figures.Line("three seeds", values),
        figures.Line("one seed", {x: [y[0]] for x, y in values.items()}),
    ]
    figure = figures.draw(
        [("", lines)], "accuracy", "tasks so far", summary=figures.deviations
    )
    band, none = (
        collection.get_paths()[0].vertices[:, 1]
        for collection in figure.axes[0].collections
    )
    for seeds in values.values():
        for edge in (mean(seeds) - stdev(seeds), mean(seeds) + stdev(seeds)):
            assert min(abs(band - edge)) < 1e-12
    assert set(none) == {0.1, 0.4}


def test_twelve_methods_have_colours_of_their_own():
    lines = [figures.Line(str(name), {1: [1.0], 2: [1.0]}) for name in range(12)]
    drawn = figures.draw([("", lines)], "accuracy", "tasks so far").axes[0].lines
    assert len({line.get_color() for line in drawn}) == 12
    assert len({line.get_marker() for line in drawn}) == 11


@pytest.mark.parametrize(("n_tasks", "printed"), [(3, True), (20, False)])
def test_heat_maps_use_all_colours_and_print_the_values_of_few_tasks(n_tasks, printed):
    matrix = np.where(
        np.tri(n_tasks, dtype=bool), np.linspace(0.8, 0.9, n_tasks), np.nan
    )
    figure = figures.heat_maps([("one", matrix), ("other", matrix + 0.05)])
    axes = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.images[0].get_clim() for axis in axes] == [
        pytest.approx((0.8, 0.95))
    ] * 2
    texts = [text.get_text() for text in axes[0].texts]
    assert texts == ([".80", ".80", ".85", ".80", ".85", ".90"] if printed else [])


@pytest.mark.slow
def test_the_report_does_not_depend_on_the_order_of_results(run, report, tmp_path):
    rules = [{"method": "ContinualPrototypes", "accumulate": ["weighted", "sum"]}]
    results = run(methods=rules, budgets=[{"mu": [1]}, "non-private"], seeds=2)

    def tables(text):
        return [line for line in text.splitlines() if line.startswith("|")]

    assert {result["notion"] for result in results} == {"Gaussian DP", "none"}
    text, _ = report(results)
    (tmp_path / "r.jsonl").unlink()
    again, _ = report(results[::-1])
    assert tables(text) == tables(again)


def test_failed_streams_are_listed(run, report):
    text, _ = report(
        [*run(), *run(streams=[{"of": "blobs", "kind": "shuffled", "tasks": 40}])]
    )
    assert "Cells that failed" in text
    assert (
        "| ContinualPrototypes | blobs, none, 40 tasks, shuffled, IR = 1 | 0 | InputError | every task"
        in text
    )


def test_an_encoder_without_a_name_is_called_one(run, report):
    text, files = report(run(datasets=[{"name": "blobs"}]))
    assert "## blobs, encoder not named, 2 tasks, class-incremental, IR = 1" in text
    assert "tasks-blobs-encoder-not-named-2-tasks-class-incremental-ir-1.png" in files
