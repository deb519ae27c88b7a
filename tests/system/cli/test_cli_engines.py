"""`--engine ray`: the same bytes as without it, but for the sentence that says who is trusted."""

import json
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


def test_an_engine_is_refused_where_it_does_nothing(task, shards, cli):
    assert cli(*fit(task, task.table, "--method", "mean")).exit_code == 0
    for command, message in (
        (("predict", task.out, shards), "--engine needs --out FILE"),
        (("evaluate", task.out, shards), "--engine is for images and texts"),
        (("evaluate", task.classes, shards), "--engine is for images and texts"),
    ):
        result = cli(*command, "--engine", "ray")
        assert result.exit_code == 2
        assert message in result.stderr


def test_an_engine_is_local_ray_or_an_address(task, cli):
    result = cli(*fit(task, task.table, "--engine", "dask"))
    assert result.exit_code == 2
    assert "--engine must be local, ray, or the address of a cluster" in result.stderr
    assert not task.out.exists()


@pytest.fixture
def photos(tmp_path):
    """Write images of two classes, and one that cannot be used."""
    rng = np.random.default_rng(0)
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    (tmp_path / "photos" / "a" / "Jane.png").write_bytes(b"no image")
    return tmp_path / "photos"


def test_a_table_that_ray_embeds_has_the_bytes_of_one_process(
    tmp_path, photos, cli, ray_engine
):
    """And a record that cannot be used is listed for its owner, and not printed."""
    printed = []
    tables = []
    for engine in ("local", "ray"):
        (tmp_path / engine).mkdir()
        out = tmp_path / engine / "t"
        result = cli(
            "embed",
            *(photos, "--encoder", "pixels", "--out", out),
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


def test_models_and_evaluations_of_ray_are_those_of_one_process(
    tmp_path, photos, cli, ray_engine, monkeypatch
):
    """And embeddings, which tasks keep in the folder of the state, are removed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "classes.txt").write_text("a\nb\n")
    seen = []
    for engine in ("local", "ray"):
        folder = tmp_path / engine
        folder.mkdir()
        spread = ("--engine", engine)
        budget = ("--epsilon", "1", "--delta", "1e-6")
        trained = cli(
            *("train", photos, "--encoder", "pixels", *budget, *spread),
            *("--classes", tmp_path / "classes.txt", "--out", folder / "m.safetensors"),
            *("--options", "random_state=1"),
        )
        exact = cli("evaluate", folder / "m.safetensors", photos, *spread)
        released = cli(
            *("evaluate", folder / "m.safetensors", photos, *spread),
            *("--mu", "1e6", "--weak", "--json"),
        )
        labels = cli(
            *("predict", folder / "m.safetensors", photos, *spread),
            *("--out", folder / "labels.csv"),
        )
        results = trained, exact, released, labels
        assert [result.exit_code for result in results] == [0] * 4, results[-1].stderr
        assert "1 records could not be used" in exact.stdout
        numbers = json.loads(released.stdout)
        seen.append(
            (
                exact.stdout,
                numbers["guarantee"],
                round(numbers["accuracy"]["value"], 4),
                {path.name: path.read_bytes() for path in folder.iterdir()},
            )
        )
    assert seen[0] == seen[1]
    assert sorted(seen[0][3]) == [
        "labels.csv",
        "m.safetensors",
        "m.safetensors.private.jsonl",
    ]
    assert not [*(tmp_path / "state" / "dppl").glob("*.work")]


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
