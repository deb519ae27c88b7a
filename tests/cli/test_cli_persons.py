"""`--person`: whose records these are. Ids come from the table, and go nowhere."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl.data import read_classes, read_ids
from dppl.errors import InputError
from dppl.estimators.persons import person_codes
from dppl.privacy.words import PERSON

IDS = [f"Jane-Doe-{i % 9}" if i % 10 else None for i in range(37)]


@pytest.fixture
def persons(task):
    """The task as Parquet, with a column of ids, some of which are missing."""
    table = task.folder / "train.parquet"
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(task.X.ravel()), 8), "y": task.y, "patient": IDS}
    pq.write_table(pa.table({**columns, "day": pa.array([1] * 37, pa.date32())}), table)
    return table


def arguments(table, task, *options):
    return ["fit", table, "--classes", task.classes, "--out", task.out, "--mu", 1, "--person", "patient", *options]


def test_a_seeded_fit_writes_the_bytes_of_the_python_api(persons, task, cli):
    assert cli(*arguments(persons, task, "--seed", 3)).exit_code == 0
    estimator = dppl.SoftmaxPrototypes(dppl.GaussianDP(1), read_classes(task.classes), random_state=3)
    assert estimator.fit(task.X, task.y, groups=IDS).guarantee_.unit == PERSON
    assert task.out.read_bytes() == estimator.to_bytes()


def test_a_person_may_count_in_several_classes(persons, task, cli, error_line):
    assert cli(*arguments(persons, task, "--seed", 3, "--classes-per-person", 2)).exit_code == 0
    estimator = dppl.SoftmaxPrototypes(dppl.GaussianDP(1), read_classes(task.classes), random_state=3)
    assert task.out.read_bytes() == estimator.fit(task.X, task.y, groups=IDS, max_classes_per_person=2).to_bytes()
    task.out.unlink()
    alone = cli("fit", persons, "--classes", task.classes, "--out", task.out, "--mu", 1, "--classes-per-person", 2)
    assert "--classes-per-person is for fits with ids of persons" in error_line(alone)
    assert not task.out.exists()


def test_no_id_is_printed_or_kept(persons, task, cli):
    ledger = task.folder / "ledger.db"
    made = cli("ledger", "create", ledger, "--dataset", "wards", "--mu", 2, "--unit", "person")
    assert "add-remove, for persons, accounting gdp" in made.stdout
    assert "dppl fit TABLE ... --person COLUMN --ledger" in made.stdout
    result = cli(*arguments(persons, task, "--ledger", ledger, "--dataset", "wards"))
    shown = cli("ledger", "show", ledger)
    assert (result.exit_code, shown.exit_code) == (0, 0)
    assert "each person has one id" in result.stdout
    assert "wards (add-remove, for persons, accounting gdp)" in shown.stdout
    said = (result.stdout + result.stderr + shown.stdout).encode()
    for content in (said, task.out.read_bytes(), ledger.read_bytes()):
        assert b"Jane" not in content
        assert b"patient" not in content


def test_an_account_of_records_takes_no_persons(persons, task, cli, error_line):
    ledger = task.folder / "ledger.db"
    assert cli("ledger", "create", ledger, "--dataset", "wards", "--mu", 2).exit_code == 0
    result = cli(*arguments(persons, task, "--ledger", ledger, "--dataset", "wards"))
    assert "is accounted by the record, but this release protects a person" in error_line(result)
    assert not task.out.exists()


@pytest.mark.parametrize("column", ["nobody", "x", "day"])
def test_a_wrong_column_is_named_and_its_content_is_not(column, persons, task, cli, error_line):
    result = cli(*arguments(persons, task, "--person", column))
    assert error_line(result).startswith("--person must name ")
    assert "Jane" not in result.stderr


def test_replace_one_is_refused(persons, task, cli, error_line):
    result = cli(*arguments(persons, task, "--adjacency", "replace-one", "--method", "mean"))
    assert "--person needs the adjacency add-remove; this fit is under replace-one" in error_line(result)


def test_ids_of_all_kinds_are_read_as_they_are(tmp_path):
    kinds = {
        "numbers": pa.array([2**64 - 1, 2**64 - 2, None], pa.uint64()),
        "categories": pa.array(["u", "v", None]).dictionary_encode(),
        "floats": pa.array([1.0, 2.0, None]),
        "no UTF-8": pa.array([b"\xff", b"\xfe", None]).cast(pa.binary()),
    }
    kinds["torn texts"] = pa.Array.from_buffers(pa.string(), 3, kinds["no UTF-8"].buffers())
    pq.write_table(pa.table(kinds), tmp_path / "t.parquet")
    for name in kinds:
        first, second, missing = read_ids(tmp_path / "t.parquet", name)
        assert missing is None
        assert first != second
    np.savez(tmp_path / "t.npz", ids=np.array(["u", "v"]), square=np.eye(2), objects=np.array([None], object))
    assert read_ids(tmp_path / "t.npz", "ids").tolist() == ["u", "v"]
    # Fits take ids that are bytes, as npz files hold them, for different persons.
    np.savez(tmp_path / "b.npz", ids=np.array([b"u", b"v", b"u"]), torn=np.array(["u\ud800", "u\ud801", "u\ud800"]))
    for name in ("ids", "torn"):
        assert person_codes(read_ids(tmp_path / "b.npz", name)).tolist() == [0, 1, 0]
    for name in ("square", "objects", "none"):
        with pytest.raises(InputError):
            read_ids(tmp_path / "t.npz", name)
    np.save(tmp_path / "t.npy", np.eye(2))
    with pytest.raises(InputError, match=r"\.npz, \.parquet"):
        read_ids(tmp_path / "t.npy", "ids")


def test_shards_are_read_in_order(tmp_path):
    for number in (1, 0):
        pq.write_table(pa.table({"patient": [f"p{number}"]}), tmp_path / f"{number}.parquet")
    assert read_ids(tmp_path, "patient").tolist() == ["p0", "p1"]
    pq.write_table(pa.table({"patient": [b"p1"]}), tmp_path / "2.parquet")  # not the p1 above
    with pytest.raises(InputError, match="texts or bytes in all shards"):
        read_ids(tmp_path, "patient")


def test_check_tells_the_owner_how_many_records_persons_have(persons, task, cli):
    result = cli("check", persons, "--classes", task.classes, "--person", "patient", "--json")
    report = json.loads(result.stdout)["persons"]
    # Four ids are missing; the others are those of nine persons.
    assert report["n"] == report["that_count"] == 13
    assert report["records_each"] == {"median": 3.0, "largest": 4}
    assert sum(report["class_sizes"]) == 13
    reduced, codes = dppl.estimators.persons.rows_of_persons(
        task.X,
        np.unique(task.y, return_inverse=True)[1],
        dppl.estimators.persons.person_codes(np.array(IDS, object)),
        3,
    )
    assert len(reduced) == 13
    # The classes of a file are in its order, and those of the codes are sorted: here they are the same.
    assert report["class_sizes"] == np.bincount(codes, minlength=3).tolist()
    text = cli("check", persons, "--classes", task.classes, "--person", "patient").stdout
    assert "persons         13, with 3 records in the median and 4 at most; each missing id is one" in text
    assert f"with --person {report['records_that_count']} records of 13 persons count" in text
    assert "Jane" not in text


def test_check_counts_persons_as_a_fit_does(tmp_path, cli):
    """One person is in both classes equally often, and each of the others has many records."""
    np.savez(tmp_path / "t.npz", x=np.eye(8)[[0, 1] * 40], y=["b", "a"] * 40, p=[0, 0, *np.repeat(range(1, 4), 26)])
    (tmp_path / "c.txt").write_text("b\na\n")
    given = ("check", tmp_path / "t.npz", "--classes", tmp_path / "c.txt", "--mu", "0.5", "--json")
    records, persons = (json.loads(cli(*given, *more).stdout) for more in ((), ("--person", "p")))
    assert persons["persons"]["class_sizes"] == [0, 4]  # of several classes the first one in sorted order
    found = [[one["recall"] for one in report["labels"]["class_sizes"]] for report in (records, persons)]
    assert found[0] != found[1]
    assert [one["n"] for one in persons["labels"]["class_sizes"]] == [40, 40]


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_evaluate_counts_every_person_once(suffix, task, cli):
    model, table = task.folder / "m.safetensors", task.folder / f"test.{suffix}"
    dppl.MeanPrototypes(dppl.GaussianDP(100), sorted(set(task.y))).fit(task.X, task.y).save(model)
    y = np.where(np.arange(37) % 3 == 0, "okapi", task.y)  # which the model gets wrong
    X = task.X.copy()
    X[5] = np.nan
    ids = [name or "" for name in IDS]
    if suffix == "npz":
        np.savez(table, x=X, y=y, patient=np.array(ids))
    else:
        columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 8), "y": y, "patient": ids}
        pq.write_table(pa.table(columns), table)
    plain = json.loads(cli("evaluate", model, table, "--json").stdout)
    report = json.loads(cli("evaluate", model, table, "--person", "patient", "--json").stdout)
    right = (dppl.load(model).predict(task.X) == y)[np.arange(37) != 5]
    shares: dict[object, list[bool]] = {}
    for place, (name, is_right) in enumerate(zip(np.delete(ids, 5), right.tolist(), strict=True)):
        shares.setdefault(name or place, []).append(is_right)
    assert report["person_accuracy"] == pytest.approx(np.mean([np.mean(share) for share in shares.values()]))
    assert report["n_persons"] == len(shares) == 13
    assert report["person_accuracy"] != pytest.approx(report["accuracy"])
    assert {key: value for key, value in report.items() if key in plain} == plain
    assert set(report) - set(plain) == {"person_accuracy", "n_persons"}
    shown = cli("evaluate", model, table, "--person", "patient")
    assert f"person accuracy    {report['person_accuracy']:.4f}, mean over 13 persons" in shown.stdout
    assert "Jane" not in shown.output


def test_evaluate_names_a_wrong_column_and_takes_tables_alone(persons, task, cli, error_line):
    dppl.MeanPrototypes(dppl.GaussianDP(1), ["cat"]).fit(task.X[:3], ["cat"] * 3).save(task.folder / "m.safetensors")
    result = cli("evaluate", task.folder / "m.safetensors", persons, "--person", "nobody")
    assert error_line(result).startswith("--person must name ")
    texts = task.folder / "texts.csv"
    texts.write_text("text,label\nhello,cat\n")
    result = cli("evaluate", task.folder / "m.safetensors", texts, "--person", "text")
    assert "--person goes with a table of embeddings" in error_line(result)
