"""`dppl bench` of streams: what it prints, where results go, and what it says about bad input."""

from dataclasses import replace

import numpy as np
import pytest

from dppl.lab.commands import bench
from dppl.lab.commands.bench import result_line
from dppl.lab.experiments.config import load_experiment
from dppl.lab.experiments.names import series_name

CONFIG = """
data: DATA
datasets: [{name: blobs, encoder: none}]
streams:
  - {of: blobs, kind: class-incremental, tasks: 3}
  - {of: blobs, kind: shuffled, tasks: 2}
methods: [{method: METHOD}]
budgets: [{epsilon: 8, delta: 1.0e-5}, non-private]
seeds: 1
"""


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "blobs"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        labels = np.repeat([0, 1, 2], 20)
        np.save(folder / f"{part}_y.npy", labels)
        np.save(
            folder / f"{part}_x.npy",
            5 * np.eye(3, 8)[labels] + rng.standard_normal((60, 8)),
        )

    def write(method="ContinualPrototypes"):
        path = tmp_path / "mine.yaml"
        path.write_text(CONFIG.replace("DATA", str(tmp_path)).replace("METHOD", method))
        return path

    return write


@pytest.mark.usefixtures("drawn", "forked")
def test_run_and_report(cli, config, tmp_path):
    out = tmp_path / "r.jsonl"
    folder = tmp_path / "report"
    assert (
        cli("bench", config(), "--out", out, "--dry-run").stdout
        == "4 cells, 0 done, 4 left.\n"
    )
    result = cli("bench", config(), "--out", out, "--jobs", 1)
    assert result.exit_code == 0
    assert "4 cells: 0 done before, 4 now, 0 failed" in result.stdout
    assert f"dppl bench {out}" in result.stdout
    place = "ContinualPrototypes  blobs, none, {}, natural class sizes"
    first = place.format("3 tasks, class-incremental")
    last = place.format("2 tasks, shuffled")
    assert f"1/4  {first}  epsilon 8, delta 1e-05  seed 0" in result.stderr
    assert f"4/4  {last}  non-private  seed 0  balanced accuracy" in result.stderr
    assert "4 done before, 0 now" in cli("bench", config(), "--out", out).stdout
    assert cli("bench", out, "--out", folder).exit_code == 0
    page = (folder / "report.md").read_text("utf-8")
    assert page.count("![") == 6
    assert "Time and storage" in page


@pytest.mark.slow
@pytest.mark.usefixtures("drawn", "forked")
def test_the_quick_streams_run_and_are_reported(cli, tmp_path, monkeypatch):
    """On every eleventh of their cells."""
    load = bench.load_experiment

    def load_few(*arguments, **options):
        whole = load(*arguments, **options)
        return replace(whole, cells=whole.cells[::11])

    monkeypatch.setattr(bench, "load_experiment", load_few)
    monkeypatch.chdir(tmp_path)
    assert cli("bench", "continual-quick", "--jobs", 1).exit_code == 0
    assert (
        cli("bench", "continual-quick.jsonl", "--out", "continual-report").exit_code
        == 0
    )
    assert (tmp_path / "continual-report" / "report.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (
            ("none.yaml",),
            2,
            "must be a YAML file or one of assistant, clusters, continual,",
        ),
        (("continual-text",), 2, "got 'continual-text', and there is no such file"),
        (
            ("continual-quick", "--out", "no/such/folder.jsonl"),
            2,
            "a file of JSON lines in an existing folder",
        ),
        (("continual", "--data", "nowhere"), 4, "there is no file nowhere"),
        (
            ("continual-paper", "--data", "nowhere"),
            4,
            "there is no file nowhere/cifar100/train_x.npy",
        ),
        (
            ("none.jsonl", "--out", "folder"),
            4,
            "there is no results file none.jsonl; `dppl bench` writes",
        ),
    ],
)
def test_wrong_usage_is_one_line(cli, error_line, arguments, code, told):
    result = cli("bench", *arguments)
    assert result.exit_code == code
    assert told in error_line(result)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("ContinualPrototypes", "MeanPrototypes", "got 'MeanPrototypes'"),
        (
            "{of: blobs, kind: shuffled, tasks: 2}",
            "split-cifar",
            "recipe must be one of cifar100-10x10",
        ),
        (
            "ContinualPrototypes",
            "ContinualPrototypes, lattice__pool: -2",
            "pool must be an integer of at least 1; got -2",
        ),
    ],
)
def test_a_dry_run_finds_unknown_methods_recipes_and_bad_parameters(
    cli, config, error_line, before, after, told
):
    path = config()
    path.write_text(path.read_text().replace(before, after))
    result = cli("bench", path, "--dry-run")
    assert result.exit_code == 2
    assert told in error_line(result)


@pytest.mark.parametrize("options", [("--dry-run",), ()])
@pytest.mark.parametrize(
    ("before", "after", "code", "told"),
    [
        (
            "ContinualPrototypes",
            "ContinualPrototypes, in_all: true",
            2,
            "in_all is for methods whose tasks overlap",
        ),
        (
            "ContinualPrototypes",
            "ContinualPrototypes, noise: tree, max_tasks: 2",
            2,
            "max_tasks is 2, and the stream",
        ),
        (
            "shuffled, tasks: 2",
            "shuffled, tasks: 6000",
            4,
            "6000 tasks, shuffled, of data set 'blobs' with seed 0: every",
        ),
        (
            "shuffled, tasks: 2",
            "shuffled, tasks: 50",
            4,
            "50 tasks, shuffled, of data set 'blobs' with seed 0: every",
        ),
        (
            "class-incremental, tasks: 3",
            "class-incremental, tasks: 4",
            2,
            "at most the number of classes, 3; got 4",
        ),
    ],
)
def test_what_would_fail_in_every_cell_is_found_before_the_first(
    cli, config, tmp_path, error_line, options, before, after, code, told
):
    path = config()
    path.write_text(path.read_text().replace(before, after))
    result = cli("bench", path, "--out", tmp_path / "r.jsonl", *options)
    assert result.exit_code == code
    assert told in error_line(result)
    assert not (tmp_path / "r.jsonl").exists()


ALIKE = """
data: DATA
datasets: [{name: blobs, encoder: none}]
streams:
  - {of: blobs, kind: class-incremental, tasks: 3, told: [false, true]}
  - {of: blobs, kind: shuffled, tasks: 3}
methods:
  - {method: ContinualPrototypes, accumulate: [weighted, sum], tasks: [disjoint, overlapping]}
  - {method: ContinualPrototypes, noise: [tree, toeplitz]}
  - {method: FullDataContinual, in_all: [false, true]}
budgets: [{epsilon: [1, 8], delta: 1.0e-5}, non-private]
ir: [natural, 1]
seeds: 2
"""


@pytest.fixture
def cells(config, tmp_path):
    """Cells that differ in all that a configuration of streams may vary."""
    path = config()
    path.write_text(ALIKE.replace("DATA", str(tmp_path)))
    return load_experiment(str(path)).cells


def finished(cell, status="done"):
    """Return what a view reads of a result."""
    measured = {"seconds": {"fit_wall": 1.0}, "metrics": {"balanced_accuracy": 0.5}}
    return {
        "cell": cell.to_dict(),
        "status": status,
        "error": "E",
        "message": "a b",
        **measured,
    }


def test_no_two_cells_have_the_same_line(cells):
    lines = [result_line(finished(cell)) for cell in cells]
    assert len(set(lines)) == len(lines) == len(cells)
    assert any(
        line.startswith("FullDataContinual, the budget for all tasks together  blobs")
        for line in lines
    )
    assert any(
        line.startswith("FullDataContinual, the budget again for every task  blobs")
        for line in lines
    )


def test_cells_that_failed_say_so_with_their_label(cells):
    shown = " ".join(
        " ".join(result_line(finished(cell, "failed")) for cell in cells).split()
    )
    assert shown.count("FAILED E: a b") == len(cells)
    assert all(series_name(cell.to_dict()) in shown for cell in cells)
    assert (
        "FullDataContinual, the budget for all tasks together blobs, none, 3 tasks, shuffled, IR = 1"
        in shown
    )
