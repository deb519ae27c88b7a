"""`--engine ray`: the same bytes as without it, but for the sentence that says who is trusted."""

import sys

import numpy as np
import pytest
from PIL import Image

import dppl
from dppl.io import write_table
from inside import tensors_of


@pytest.fixture
def shards(task):
    """Write the records of the task as two shards in a folder."""
    folder = task.folder / "shards"
    folder.mkdir()
    for name, part in (("a", slice(0, 15)), ("b", slice(15, None))):
        write_table(folder / f"{name}.parquet", task.X[part], task.y[part])
    return folder


def fit(task, table, *options):
    return [
        "fit",
        table,
        "--classes",
        task.classes,
        "--mu",
        "1",
        "--options",
        "random_state=3",
        "--force",
        "--out",
        task.out,
        *options,
    ]


@pytest.mark.parametrize("method", ["mean", "softmax", "public"])
def test_a_fit_on_ray_releases_what_a_fit_here_does(
    method, task, shards, cli, ray_engine
):
    options = [
        "--method",
        method,
        *(["--public", task.public] if method == "public" else []),
    ]
    alone = cli(*fit(task, task.table, *options))
    assert alone.exit_code == 0
    first = dppl.load(task.out)
    spread = cli(*fit(task, shards, *options, "--engine", "ray"))
    assert (spread.exit_code, spread.stderr) == (0, alone.stderr)
    second = dppl.load(task.out)
    assert tensors_of(second) == tensors_of(first)
    assert "machines of the cluster" in cli("show", task.out).stdout
    assert "machines of the cluster" not in str(first.guarantee_)


def test_predictions_on_ray_are_those_of_one_process(task, shards, cli, ray_engine):
    assert cli(*fit(task, task.table, "--method", "mean")).exit_code == 0
    for options in ([], ["--top", "all"], ["--top", "2"]):
        outs = [task.folder / f"{name}.csv" for name in ("here", "there")]
        assert (
            cli(
                "predict", task.out, shards, "--out", outs[0], "--force", *options
            ).exit_code
            == 0
        )
        spread = cli(
            "predict",
            task.out,
            shards,
            "--out",
            outs[1],
            "--force",
            "--engine",
            "ray",
            *options,
        )
        assert spread.exit_code == 0
        assert outs[0].read_bytes() == outs[1].read_bytes()
        assert len(outs[0].read_text().splitlines()) == len(task.y) + 1


def test_predictions_on_ray_go_to_a_file_and_are_of_embeddings(task, shards, cli):
    assert cli(*fit(task, task.table, "--method", "mean")).exit_code == 0
    (task.folder / "new.csv").write_text("text\nhello\n")
    for data, out in (
        (shards, "-"),
        ("-", "a.csv"),
        (task.folder / "new.csv", "a.csv"),
    ):
        where = out if out == "-" else task.folder / out
        result = cli("predict", task.out, data, "--out", where, "--engine", "ray")
        assert result.exit_code == 2
        assert "--engine reads" in result.stderr


def test_an_engine_is_local_ray_or_an_address(task, cli):
    result = cli(*fit(task, task.table, "--engine", "dask"))
    assert result.exit_code == 2
    assert "--engine must be local, ray, or the address of a cluster" in result.stderr
    assert not task.out.exists()


def test_a_table_that_ray_embeds_has_the_bytes_of_one_process(
    tmp_path, cli, ray_engine
):
    """And a record that cannot be used is listed for its owner, and not printed."""
    rng = np.random.default_rng(0)
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    (tmp_path / "photos" / "a" / "Jane.png").write_bytes(b"no image")
    printed = []
    tables = []
    for engine in ("local", "ray"):
        (tmp_path / engine).mkdir()
        out = tmp_path / engine / "t"
        result = cli(
            "embed",
            *(tmp_path / "photos", "--encoder", "pixels", "--out", out),
            *("--options", "shard_rows=5", "--engine", engine),
        )
        assert (result.exit_code, result.stderr) == (0, "")
        printed.append(result.stdout.replace(str(out), ""))
        files = sorted(path for path in out.parent.rglob("*") if path.is_file())
        tables.append([(path.name, path.read_bytes()) for path in files])
    assert tables[0] == tables[1]
    assert len(tables[0]) == 5
    assert printed[0] == printed[1]
    assert "Jane" not in printed[0]


def test_persons_are_refused(task, shards, cli):
    result = cli(*fit(task, shards, "--engine", "ray", "--groups", "id"))
    assert result.exit_code in (2, 4)
    assert not task.out.exists()


def test_ray_is_named_where_it_is_missing(task, shards, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = cli(*fit(task, shards, "--engine", "ray"))
    assert result.exit_code == 4
    assert "pip install -e '.[ray]'" in result.stderr
    assert not task.out.exists()
