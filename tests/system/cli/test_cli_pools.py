"""Public pools as people keep them, on the command line: what is fitted, what is shown, what is refused unpaid."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl import PublicData
from dppl.io import read_table, write_table
from dppl.kernel.lattice import Lattice

PUBLIC = ["--method", "public", "--epsilon", "2", "--options", "random_state=1"]


@pytest.fixture
def pool(task):
    """The public rows of the task in ten shards and more."""
    folder = task.folder / "pool"
    folder.mkdir()
    for number, rows in enumerate(np.split(np.arange(50), range(4, 50, 4))):
        urls = [f"https://example.org/{row}" for row in rows]
        write_shard(folder / f"shard_{number}.parquet", task.X_public[rows], urls)
    return folder


def write_shard(path, rows, urls):
    kind = pa.list_(pa.from_numpy_dtype(rows.dtype), rows.shape[1])
    pq.write_table(pa.table({"x": pa.array(list(rows), kind), "url": urls}), path)


@pytest.fixture
def memory(pool):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.put(str(pool), "/pool", recursive=True)
    yield "fsspec+memory:///pool"
    system.rm("/pool", recursive=True)


def fit(cli, task, public, *options):
    return cli(
        "fit",
        task.table,
        "--classes",
        task.classes,
        "--out",
        task.out,
        "--public",
        public,
        *PUBLIC,
        *options,
    )


def check_model(task):
    """Hold the model to that of the same rows in memory, and return it."""
    model = dppl.PublicPrototypes(
        dppl.PureDP(2.0), classes=sorted(set(task.y)), random_state=1
    )
    model.set_params(public=PublicData(task.X_public)).fit(task.X, task.y)
    found = dppl.load(task.out)
    assert found.prototypes_.tobytes() == model.prototypes_.tobytes()
    assert found.clip_ == model.clip_
    assert found.public_indices_.tolist() == model.public_indices_.tolist()
    return found


def test_a_pool_is_a_folder_of_shards_here_or_behind_a_url(cli, task, pool, memory):
    for place in (pool, memory):
        assert fit(cli, task, place, "--force").exit_code == 0
        assert check_model(task).public_ids_ is None


def test_lattice_rows_of_pool_and_records_give_the_same_model(cli, task, pool):
    rows = task.folder / "rows.parquet"
    private = task.folder / "private.parquet"
    assert (
        cli(
            "table", pool, "--out", rows, "--rows", "lattice", "--read", "id=url"
        ).exit_code
        == 0
    )
    assert (
        cli("table", task.table, "--out", private, "--rows", "lattice").exit_code == 0
    )
    assert np.array_equal(
        read_table(rows).to_array(), Lattice(8).transform(task.X_public)
    )
    assert fit(cli, task, rows).exit_code == 0
    found = check_model(task)
    assert found.public_ids_.tolist() == [
        [f"https://example.org/{row}" for row in one] for one in found.public_indices_
    ]
    task.table = private
    assert fit(cli, task, rows, "--force").exit_code == 0
    check_model(task)


def test_info_of_a_pool_and_of_lattice_rows(cli, task, pool, memory):
    rows = task.folder / "rows.parquet"
    cli("table", memory, "--out", rows, "--rows", "lattice")
    for path, files, dtype in (
        (pool, 13, "float32"),
        (memory, 13, "float32"),
        (rows, 1, "int8"),
    ):
        facts = dict(
            line.split(maxsplit=1)
            for line in cli("table", path).stdout.splitlines()[1:]
        )
        assert (facts["rows"], facts["dimension"], facts["files"], facts["dtype"]) == (
            "50",
            "8",
            str(files),
            dtype,
        )
    assert '"squared_norm": "16129/2"' in cli("table", rows).stdout


def spoil_name(pool):
    table = pq.read_table(pool / "shard_3.parquet")
    pq.write_table(table.rename_columns(["embedding", "url"]), pool / "shard_3.parquet")


def spoil_width(pool):
    write_shard(pool / "shard_7.parquet", np.zeros((4, 9), np.float32), ["u"] * 4)


def cut_short(pool):
    path = pool / "shard_7.parquet"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("spoil", [spoil_name, spoil_width, cut_short])
def test_a_damaged_pool_is_refused_before_anything_is_charged(spoil, cli, task, pool):
    ledger = task.folder / "ledger.db"
    account = dppl.Ledger(ledger, "cats", dppl.PureDP(4.0))
    options = ("--ledger", ledger, "cats")
    spoil(pool)
    result = fit(cli, task, pool, *options)
    assert (result.exit_code, result.stdout, len(account.releases())) == (4, "", 0)
    assert str(pool) in " ".join(result.stderr.split())
    assert not task.out.exists()


def test_every_fit_takes_lattice_rows(cli, task, pool):
    ledger = task.folder / "ledger.db"
    rows = task.folder / "rows.parquet"
    account = dppl.Ledger(ledger, "cats", dppl.PureDP(10.0))
    cli("table", pool, "--out", rows, "--rows", "lattice")
    options = ("--ledger", ledger, "cats", "--force")
    others = (
        [],
        ["--options", "lattice__center=public"],
        ["--options", "lattice__rotation=3"],
        ["--options", "lattice__rotation=auto"],
        ["--options", "lattice__pool=2"],
    )
    for number, other in enumerate(others, start=1):
        assert fit(cli, task, rows, *options, *other).exit_code == 0
        assert len(account.releases()) == number


def test_private_records_are_not_public_by_a_url(cli, task):
    result = fit(cli, task, f"file://{task.table}")
    assert result.exit_code == 2
    assert "--public must be public data" in result.stderr
    task.table = "s3://records"
    public = "s3://user@records?x=1"
    result = fit(cli, task, public)
    assert result.exit_code == 2
    assert "--public must be public data" in result.stderr


def test_a_url_that_leads_nowhere_is_an_input_error(cli, task, memory):
    result = fit(cli, task, "fsspec+memory:///nothing")
    assert result.exit_code == 4
    assert "fsspec+memory://nothing must be an existing file or folder" in result.stderr


def test_tables_are_written_as_parquet(cli, task):
    result = cli(
        "table", task.table, "--out", task.folder / "rows.npy", "--rows", "lattice"
    )
    assert result.exit_code == 2
    assert "must end in .parquet" in result.stderr


def test_a_column_of_ids_that_is_not_there_is_named(cli, task, pool):
    write_table(task.folder / "p.parquet", task.X_public)
    result = cli(
        "table",
        task.folder / "p.parquet",
        "--out",
        task.folder / "q.parquet",
        "--read",
        "id=url",
    )
    assert result.exit_code == 4
    assert "; 'url' is none" in result.stderr


def test_lattice_rows_are_predicted_as_the_rows_that_they_were_made_from(
    cli, task, pool
):
    assert fit(cli, task, pool).exit_code == 0
    rows = task.folder / "rows.parquet"
    assert cli("table", pool, "--out", rows, "--rows", "lattice").exit_code == 0
    found = [cli("predict", task.out, table) for table in (pool, rows)]
    assert [result.exit_code for result in found] == [0, 0]
    assert found[0].stdout == found[1].stdout
