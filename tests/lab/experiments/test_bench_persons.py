"""Experiments on persons: whose ids, whom a cell protects, and that the two promises are never mixed up."""

import numpy as np
import pytest
import yaml

from dppl import MeanPrototypes
from dppl.errors import InputError, ParameterError
from dppl.kernel.privacy.guarantee import PERSON, RECORD
from dppl.lab.experiments import cells as cells_module
from dppl.lab.experiments.cells import check_cells, run_cell
from dppl.lab.experiments.config import Cell, load_experiment
from dppl.lab.experiments.datasets import Examples, Persons, load_dataset
from dppl.lab.experiments.report import write_report
from dppl.lab.experiments.results import ResultsFile
from dppl.lab.experiments.series import series

MADE_UP = {"number": 60, "largest": 8, "share": 0.8}


@pytest.fixture(autouse=True)
def _fresh_data(monkeypatch):
    monkeypatch.setattr(cells_module, "_LOADED", {})


@pytest.fixture
def patients(data):
    """Ids beside the data set: persons of four records each, of one class."""
    for part, size in (("train", 160), ("test", 40)):
        np.save(data / "blobs" / f"{part}_patient.npy", np.array([f"{part} {n // 4}" for n in range(size)]))


@pytest.fixture
def run(experiment):
    def run(**changes):
        loaded = experiment(**changes)
        check_cells(loaded.cells, loaded.datasets)
        return [run_cell(cell, loaded.datasets) for cell in loaded.cells]

    return run


def blobs(**more):
    return [{"name": "blobs", "encoder": "none", **more}]


def test_a_cell_fits_with_ids_and_says_whom_it_protects(run, patients, data):
    person, record = run(datasets=blobs(groups="patient", unit=["person", "record"]), methods=["mean"], ir=["natural"])
    assert (person["unit"], record["unit"]) == (PERSON, RECORD)
    assert (person["cell"]["unit"], record["cell"]["unit"]) == ("person", "record")
    assert person["key"] != record["key"]
    assert person["data"]["n_persons"] == 40
    X, y, X_test, y_test, ids = (
        np.load(data / "blobs" / f"{name}.npy") for name in ("train_x", "train_y", "test_x", "test_y", "train_patient")
    )
    seed = int(person["key"][:8], 16)
    model = MeanPrototypes(Cell.make_budget(cell_of(person)), range(4), random_state=seed).fit(X, y, groups=ids)
    right = model.predict(X_test) == y_test
    assert person["metrics"]["accuracy"] == right.mean()
    assert person["metrics"]["person_accuracy"] == right.reshape(10, 4).mean(axis=1).mean()


def cell_of(result):
    names = ("method", "parameters", "dataset", "encoder", "pool", "budget", "ir", "seed")
    return Cell(*(result["cell"][name] for name in names))


def test_cells_without_persons_keep_their_keys(experiment):
    (cell,) = experiment(methods=["mean"]).cells
    assert not {"persons", "unit"} & set(cell.to_dict())


def test_subsets_are_of_whole_persons_for_both_promises(run, patients):
    results = run(datasets=blobs(groups="patient", unit=["person", "record"]), methods=["mean"], ir=[5])
    assert [result["status"] for result in results] == ["done"] * 2
    assert results[0]["data"] == results[1]["data"]
    assert sorted(results[0]["data"]["class_sizes"]) == [8, 12, 24, 40]  # 2 to 10 persons of four records


def test_persons_are_made_up_by_the_seed_alone_and_named(run):
    datasets = blobs(persons=MADE_UP | {"share": [0.8, 1.0]})
    first, again = run(datasets=datasets, methods=["mean"]), run(datasets=datasets, methods=["mean"])
    other = run(datasets=datasets, methods=["mean"], seeds=[1])
    assert [one["metrics"] for one in first] == [one["metrics"] for one in again]
    assert [one["cell"]["persons"]["share"] for one in first] == [0.8, 1.0]
    for one in (*first, *other):
        assert (one["status"], one["unit"], one["data"]["n_persons"]) == ("done", PERSON, 60)
        assert "person_accuracy" not in one["metrics"]  # of test rows nobody knows whose they are
    assert first[0]["data"]["n_train"] != other[0]["data"]["n_train"]


def test_a_search_holds_out_whole_persons(run, patients):
    _, tuned = run(datasets=blobs(groups="patient"), methods=[{"method": "mean", "tune": 2}], ir=["natural"])
    assert tuned["status"] == "done"
    assert tuned["search"]["validation_rows"] == 32  # eight of forty persons
    assert tuned["unit"] == PERSON


def test_examples_take_all_records_of_their_persons_out_of_the_private_ones(experiment, patients):
    dataset = load_dataset(experiment(datasets=blobs(groups="patient"), methods=["mean"]).datasets["blobs", "none"])
    private, (examples, _) = dataset.split(Examples(3), seed=0)
    rows = {row.tobytes(): name for row, name in zip(np.asarray(dataset.X), dataset.groups, strict=True)}
    public = {rows[row.tobytes()] for row in examples}
    assert not public & set(dataset.groups[private])
    assert len(private) == 160 - 4 * len(public)


def test_a_data_set_in_one_piece_is_split_by_persons(experiment, data):
    folder = data / "blobs"
    for name in ("x", "y"):
        np.save(folder / f"{name}.npy", np.load(folder / f"train_{name}.npy"))
    ids = np.random.default_rng(0).integers(30, size=160)
    np.save(folder / "patient.npy", ids)
    whole = experiment(datasets=blobs(groups="patient", whole=True), methods=["mean"])
    dataset = load_dataset(whole.datasets["blobs", "none"])
    assert not set(dataset.groups) & set(dataset.groups_test)
    assert len(set(dataset.groups_test)) == 6
    assert len(dataset.y) + len(dataset.y_test) == len(dataset.groups) + len(dataset.groups_test) == 160
    # The planted fault that this notices: the split of rows.
    alone = experiment(datasets=blobs(whole=True), methods=["mean"])
    n_test = len(load_dataset(alone.datasets["blobs", "none"]).y_test)
    assert n_test == 32 != len(dataset.y_test)


def test_nobody_may_have_records_on_both_sides(experiment, patients, data):
    spec = experiment(datasets=blobs(groups="patient"), methods=["mean"]).datasets["blobs", "none"]
    load_dataset(spec)
    path = data / "blobs" / "test_patient.npy"
    ids = np.load(path).astype("U20")
    ids[7] = "train 3"
    np.save(path, ids)
    with pytest.raises(InputError, match="among the training and the test rows"):
        load_dataset(spec)
    np.save(path, ids[:5])
    with pytest.raises(InputError, match=r"one for each of 160 and 40 rows; got shapes \(160,\) and \(5,\)"):
        load_dataset(spec)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"groups": "patient", "persons": MADE_UP}, "must not have both"),
        ({"unit": "person"}, "unit is for data sets with groups or persons"),
        ({"groups": "patient", "unit": "ward"}, "must be 'record' or 'person'; got 'ward'"),
        ({"groups": 3}, "groups must be a valid string; got 3"),
        ({"persons": {"largest": 3}}, "persons.number is missing"),
        ({"persons": {"number": 0}}, r"number\[0\] must be greater than or equal to 1; got 0"),
        ({"persons": {"number": 5, "share": 0}}, r"share\[0\] must be greater than 0; got 0"),
        ({"persons": {"number": 5, "offset": -1}}, r"offset\[0\] must be greater than or equal to 0; got -1"),
    ],
)
def test_what_is_wrong_with_persons_is_said(experiment, patients, changes, told):
    with pytest.raises(ParameterError, match=told):
        experiment(datasets=blobs(**changes), methods=["mean"])


def test_ids_that_are_missing_are_told_by_their_file(experiment):
    with pytest.raises(InputError, match=r"train_patient\.npy"):
        experiment(datasets=blobs(groups="patient"), methods=["mean"])


def test_methods_under_replace_one_have_cells_for_records_alone(experiment):
    both = experiment(datasets=blobs(persons=MADE_UP, unit=["person", "record"]), methods=["mean", "mean-replace-one"])
    assert [(cell.method, cell.unit) for cell in both.cells] == [
        ("mean", "person"),
        ("mean", "record"),
        ("mean-replace-one", "record"),
    ]
    with pytest.raises(ParameterError, match="mean-replace-one is under replace-one, which promises nothing"):
        experiment(datasets=blobs(persons=MADE_UP), methods=["mean-replace-one"])


def test_streams_protect_records(write_config):
    stream = {"of": "blobs", "kind": "class-incremental", "tasks": 2}
    path = write_config(datasets=blobs(persons=MADE_UP), streams=[stream], methods=["ContinualPrototypes"])
    with pytest.raises(ParameterError, match="persons is for single fits"):
        load_experiment(str(path), streams=True)
    assert yaml.safe_load(path.read_text())["datasets"][0]["persons"] == MADE_UP


@pytest.fixture
def both(run):
    return run(
        datasets=blobs(persons=MADE_UP, unit=["record", "person"]), methods=["mean", "ncm"], budgets={"mu": [1, 2]}
    )


def test_a_report_keeps_the_promises_apart_and_compares_them_where_it_says_so(both, tmp_path):
    with ResultsFile(tmp_path / "mine.jsonl") as file:
        for result in both:
            file.append(result | {"config": "mine", "data_folder": None})
    write_report(tmp_path / "mine.jsonl", tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    name = "blobs (60 made-up persons, 1 to 8 records, 80 % of one class, offset 0.3)"
    for unit in ("records", "persons"):
        assert f"\n## {name}, protecting {unit}, none\n" in page
    _, compared = page.split(f"## What a promise to persons costs: {name}, none\n")
    table = compared.split("\n## ")[0]
    assert "| DPPL-Mean, protecting persons |" in table
    assert "| DPPL-Mean, protecting records |" in table
    assert "not private" not in table
    winners = page.split("## Winner per setting and budget")[1].split("\n## ")[0]
    rows = [line for line in winners.splitlines() if line.startswith("| blobs")]
    assert sum("protecting persons" in row for row in rows) == sum("protecting records" in row for row in rows) == 2


def test_one_table_of_both_promises_says_which_is_which(both):
    labels = [one.label for one in series(both)]
    assert labels == [
        "DPPL-Mean, protecting records",
        "DPPL-Mean, protecting persons",
        "Nearest class mean (not private)",
    ]
    persons = [result for result in both if result["cell"]["unit"] == "person"]
    (mean, _) = series(persons)
    assert (mean.label, mean.promise) == ("DPPL-Mean", "Gaussian DP, add-remove, exact, for persons")


def test_made_up_persons_have_all_their_parameters_in_their_name():
    names = {
        Persons(number=n, largest=m, share=s, offset=o).name
        for n in (5, 6)
        for m in (7, 8)
        for s in (0.5, 1)
        for o in (0, 0.2)
    }
    assert len(names) == 16
