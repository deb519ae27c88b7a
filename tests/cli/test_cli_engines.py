"""`--engine ray`: the same bytes as without it, but for the sentence that says who is trusted."""

import os
import sys

import pytest

import dppl
from dppl.data import write_table


@pytest.fixture(scope="module")
def two_cores():
    """Start Ray on this machine with two cores; commands in this process use it."""
    ray = pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


@pytest.fixture
def shards(task):
    """Write the records of the task as two shards in a folder."""
    folder = task.folder / "shards"
    folder.mkdir()
    for name, part in (("a", slice(0, 15)), ("b", slice(15, None))):
        write_table(folder / f"{name}.parquet", task.X[part], task.y[part])
    return folder


def fit(task, table, *options):
    return ["fit", table, "--classes", task.classes, "--mu", "1", "--seed", "3", "--force", "--out", task.out, *options]


@pytest.mark.parametrize("method", ["mean", "softmax"])
def test_a_fit_on_ray_releases_what_a_fit_here_does(method, task, shards, cli, two_cores):
    alone = cli(*fit(task, task.table, "--method", method))
    assert alone.exit_code == 0
    first = dppl.load(task.out)
    spread = cli(*fit(task, shards, "--method", method, "--engine", "ray"))
    assert (spread.exit_code, spread.stderr) == (0, alone.stderr)
    second = dppl.load(task.out)
    assert all((second._tensors()[name] == array).all() for name, array in first._tensors().items())
    assert "machines of the cluster" in cli("show", task.out).stdout
    assert "machines of the cluster" not in str(first.guarantee_)


def test_an_address_is_for_ray(task, cli):
    result = cli(*fit(task, task.table, "--address", "auto"))
    assert result.exit_code == 2
    assert "--address is that of a cluster" in result.stderr
    assert not task.out.exists()


def test_persons_and_selections_are_refused(task, shards, cli):
    for options in (["--method", "public", "--public", task.public], ["--person", "y"]):
        result = cli(*fit(task, shards, "--engine", "ray", *options))
        assert result.exit_code == 2
        assert not task.out.exists()


def test_ray_is_named_where_it_is_missing(task, shards, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = cli(*fit(task, shards, "--engine", "ray"))
    assert result.exit_code == 4
    assert "pip install -e '.[ray]'" in result.stderr
    assert not task.out.exists()
