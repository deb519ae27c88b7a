"""`--groups`: whose records these are. Ids come from the table, and go nowhere."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dppl
from dppl.errors import InputError
from dppl.io import read_classes, read_ids
from dppl.kernel.persons import person_codes
from dppl.kernel.privacy.terms import Assumption, Term, Unit
from dppl.statement.words import texts

IDS = [f"Jane-Doe-{i % 9}" if i % 10 else None for i in range(37)]


@pytest.fixture
def persons(task):
    """The task as Parquet, with a column of ids, some of which are missing."""
    table = task.folder / "train.parquet"
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(pa.array(task.X.ravel()), 8),
        "y": task.y,
        "patient": IDS,
    }
    pq.write_table(pa.table({**columns, "age": pa.array([1.0] * 37)}), table)
    return table


def arguments(table, task, *options):
    return [
        "fit",
        table,
        "--classes",
        task.classes,
        "--out",
        task.out,
        "--mu",
        1,
        "--groups",
        "patient",
        *options,
    ]


def test_a_seeded_fit_writes_the_bytes_of_the_python_api(persons, task, cli):
    assert cli(*arguments(persons, task, "--options", "random_state=3")).exit_code == 0
    estimator = dppl.SoftmaxPrototypes(
        dppl.GaussianDP(1), read_classes(task.classes), random_state=3
    )
    assert estimator.fit(task.X, task.y, groups=IDS).guarantee_.unit == Unit.PERSON
    assert task.out.read_bytes() == estimator.to_bytes()


@pytest.mark.parametrize("of_persons", [False, True], ids=["records", "persons"])
def test_one_list_of_assumptions_stands_in_all_that_is_said_of_a_model(
    of_persons, persons, task, cli
):
    options = ["--groups", "patient"] if of_persons else []
    result = cli(
        "fit",
        persons,
        "--classes",
        task.classes,
        "--out",
        task.out,
        "--mu",
        1,
        *options,
    )
    stated = json.loads(cli("show", task.out, "--json").stdout)["guarantee"]
    terms = [Term.from_dict(Assumption, one) for one in stated["assumptions"]]
    assumptions = [*texts(terms)]
    (said,) = (
        line for line in result.stdout.splitlines() if line.startswith("Assumed: ")
    )
    assert said == f"Assumed: {'; '.join(assumptions)}."
    shown = " ".join(cli("show", task.out).stdout.split())
    assert (
        f" Assumed {' '.join(f'- {one}' for one in assumptions)} Not covered " in shown
    )
    assert (
        "\n".join(
            ["## Assumed\n", *(f"- {one}" for one in assumptions), "\n## Not covered"]
        )
        in cli("show", task.out, "--for", "hub").stdout
    )
    cli("show", task.out, "--out", task.folder / "r.json")
    details = json.loads((task.folder / "r.json").read_text())["guarantee"]["details"]
    listed = {one["name"]: one["items"] for one in details}
    assert listed["assumptions"] == assumptions
    # That persons have one record is no assumption of a promise about records: it is
    # whom the promise is about.
    assert ("each person has one id" in assumptions) == of_persons
    assert not any("record per person" in one for one in assumptions)
    unit = "one person with all of their records"
    (protected,) = listed["protected"]
    assert protected == (
        unit
        if of_persons
        else "one record; a person with several records is protected less, the more they have"
    )
    for text in (result.stdout, shown, cli("show", task.out, "--for", "hub").stdout):
        assert protected in text


def test_a_person_may_count_in_several_classes(persons, task, cli, error_line):
    assert (
        cli(
            *arguments(
                persons,
                task,
                "--options",
                "random_state=3",
                "--options",
                "max_classes_per_person=2",
            )
        ).exit_code
        == 0
    )
    estimator = dppl.SoftmaxPrototypes(
        dppl.GaussianDP(1), read_classes(task.classes), random_state=3
    )
    assert (
        task.out.read_bytes()
        == estimator.set_params(max_classes_per_person=2)
        .fit(task.X, task.y, groups=IDS)
        .to_bytes()
    )
    task.out.unlink()
    alone = cli(
        "fit",
        persons,
        "--classes",
        task.classes,
        "--out",
        task.out,
        "--mu",
        1,
        "--options",
        "max_classes_per_person=2",
    )
    assert "max_classes_per_person is for fits with ids of persons" in error_line(alone)
    assert not task.out.exists()


@pytest.mark.parametrize("command", ["fit", "check", "evaluate"])
def test_labels_are_not_ids_of_persons(command, persons, task, cli, error_line):
    """With them all records of a class would be one person, and nothing would say so."""
    x, y = (str(task.folder / name) for name in ("x.npy", "y.npy"))
    np.save(x, task.X)
    np.save(y, task.y)
    assert cli(*arguments(persons, task)).exit_code == 0
    before = {"fit": [], "check": [], "evaluate": [task.out]}[command]
    after = {
        "fit": ["--out", "other.safetensors", "--mu", 1],
        "check": [],
        "evaluate": [],
    }[command]
    classes = [] if command == "evaluate" else ["--classes", task.classes]
    for table, *options in (
        [persons, "--groups", "y"],
        [x, "--read", f"labels={y}", "--groups", y],
    ):
        result = cli(command, *before, table, *options, *classes, *after)
        assert (
            f"--groups must name ids of persons; {options[-1]!r} holds the labels"
            in error_line(result)
        )
        assert result.exit_code == 4


def test_no_id_is_printed_or_kept(persons, task, cli):
    ledger = task.folder / "ledger.db"
    made = cli("ledger", "create", ledger, "wards", "--mu", 2, "--unit", "person")
    assert "add-remove, for persons, accounting gdp" in made.stdout
    assert "Next: add --groups COLUMN --ledger" in made.stdout
    result = cli(*arguments(persons, task, "--ledger", ledger, "wards"))
    shown = cli("ledger", "show", ledger)
    assert (result.exit_code, shown.exit_code) == (0, 0)
    assert "each person has one id" in result.stdout
    assert "wards (add-remove, for persons, accounting gdp)" in shown.stdout
    said = (result.stdout + result.stderr + shown.stdout).encode()
    for content in (said, task.out.read_bytes(), ledger.read_bytes()):
        assert b"Jane" not in content
        assert b"patient" not in content


def test_an_account_of_records_takes_no_persons(persons, task, cli):
    ledger = task.folder / "ledger.db"
    assert cli("ledger", "create", ledger, "wards", "--mu", 2).exit_code == 0
    result = cli(*arguments(persons, task, "--ledger", ledger, "wards"))
    *_, error = result.stderr.splitlines()
    assert "is accounted by the record, but this release protects a person" in error
    assert not task.out.exists()


@pytest.mark.parametrize("column", ["nobody", "x", "age"])
def test_a_wrong_column_is_named_and_its_content_is_not(
    column, persons, task, cli, error_line
):
    result = cli(*arguments(persons, task, "--groups", column))
    assert error_line(result).startswith("--groups must name ")
    assert "Jane" not in result.stderr


def test_replace_one_is_refused(persons, task, cli):
    result = cli(
        *arguments(
            persons, task, "--options", "adjacency=replace-one", "--method", "mean"
        )
    )
    *_, error = result.stderr.splitlines()
    assert (
        "--groups needs the adjacency add-remove; this fit is under replace-one"
        in error
    )


def test_ids_of_all_kinds_are_read_as_they_are(tmp_path):
    kinds = {
        "numbers": pa.array([2**64 - 1, 2**64 - 2, None], pa.uint64()),
        "categories": pa.array(["u", "v", None]).dictionary_encode(),
        "days": pa.array([1, 2, None], pa.date32()),
        "no UTF-8": pa.array([b"\xff", b"\xfe", None]).cast(pa.binary()),
    }
    kinds["torn texts"] = pa.Array.from_buffers(
        pa.string(), 3, kinds["no UTF-8"].buffers()
    )
    pq.write_table(pa.table(kinds), tmp_path / "t.parquet")
    for name in kinds:
        first, second, missing = read_ids(tmp_path / "t.parquet", name)
        assert missing is None
        assert first != second
    np.savez(
        tmp_path / "t.npz",
        ids=np.array(["u", "v"]),
        square=np.eye(2),
        objects=np.array([None], object),
    )
    assert read_ids(tmp_path / "t.npz", "ids").tolist() == ["u", "v"]
    # Fits take ids that are bytes, as npz files hold them, for different persons.
    np.savez(
        tmp_path / "b.npz",
        ids=np.array([b"u", b"v", b"u"]),
        torn=np.array(["u\ud800", "u\ud801", "u\ud800"]),
    )
    for name in ("ids", "torn"):
        assert person_codes(read_ids(tmp_path / "b.npz", name)).tolist() == [0, 1, 0]
    np.savez(tmp_path / "f.npz", floats=np.ones(2), seconds=np.zeros(2, "M8[s]"))
    for name in ("floats", "seconds"):
        with pytest.raises(InputError, match="cast it to text, or whole numbers"):
            read_ids(tmp_path / "f.npz", name)
    for name in ("square", "objects", "none"):
        with pytest.raises(InputError):
            read_ids(tmp_path / "t.npz", name)


def test_ids_that_a_table_has_not_are_refused_before_it_is_charged(
    task, cli, error_line
):
    ledger = task.folder / "ledger.db"
    cli("ledger", "create", ledger, "wards", "--mu", 2, "--unit", "person")
    np.save(task.folder / "x.npy", task.X)
    np.save(task.folder / "y.npy", task.y.astype(str))
    before = cli("ledger", "show", ledger).stdout
    given = (
        "--read",
        f"labels={task.folder / 'y.npy'}",
        "--ledger",
        ledger,
        "wards",
        "--groups",
        "person",
    )
    result = cli(*arguments(task.folder / "x.npy", task, *given))
    assert result.exit_code == 4
    assert "x.npy has none; write .parquet or .npz" in error_line(result)
    assert cli("ledger", "show", ledger).stdout == before
    assert not task.out.exists()


def test_shards_are_read_in_order(tmp_path):
    for number in (1, 0):
        pq.write_table(
            pa.table({"patient": [f"p{number}"]}), tmp_path / f"{number}.parquet"
        )
    assert read_ids(tmp_path, "patient").tolist() == ["p0", "p1"]
    pq.write_table(pa.table({"patient": [b"p1"]}), tmp_path / "2.parquet")
    with pytest.raises(InputError, match="'patient' holds bytes, texts; cast them"):
        read_ids(tmp_path, "patient")


def test_check_tells_the_owner_how_many_records_persons_have(persons, task, cli):
    result = cli(
        "check", persons, "--classes", task.classes, "--groups", "patient", "--json"
    )
    report = json.loads(result.stdout)["persons"]
    # Four ids are missing; the others are those of nine persons.
    assert report["n"] == report["used"] == 13
    assert report["missing_ids"] == 4
    assert report["records_each"] == {"median": 3.0, "largest": 4}
    assert sum(report["class_sizes"]) == 13
    reduced, codes = dppl.kernel.persons.rows_of_persons(
        task.X,
        np.unique(task.y, return_inverse=True)[1],
        dppl.kernel.persons.person_codes(np.array(IDS, object)),
        3,
    )
    assert len(reduced) == 13
    # The classes of a file are in its order, and those of the codes are sorted: here
    # they are the same.
    assert report["class_sizes"] == np.bincount(codes, minlength=3).tolist()
    text = cli(
        "check", persons, "--classes", task.classes, "--groups", "patient"
    ).stdout
    assert "persons         13, of which 4 are records without an id" in text
    assert "who has several such records is protected less" in text
    assert "records each    median 3, at most 4" in text
    assert (
        "13 persons: with --method softmax, the default, all of their 37 records"
        in text
    )
    assert (
        f"with other methods the {report['records_in_main_class']} in each person's commonest class"
        in text
    )
    assert "Jane" not in text


def test_check_counts_persons_as_a_fit_does(tmp_path, cli):
    """One person is in both classes equally often, and each of the others has many records."""
    np.savez(
        tmp_path / "t.npz",
        x=np.eye(8)[[0, 1] * 40],
        y=["b", "a"] * 40,
        p=[0, 0, *np.repeat(range(1, 4), 26)],
    )
    (tmp_path / "c.txt").write_text("b\na\n")
    given = ("check", tmp_path / "t.npz", "--classes", tmp_path / "c.txt", "--json")
    records, persons = (
        json.loads(cli(*given, *more).stdout) for more in ((), ("--groups", "p"))
    )
    assert persons["persons"]["class_sizes"] == [
        0,
        4,
    ]  # of several classes the first one in sorted order
    assert [one["n"] for one in persons["labels"]["class_sizes"]] == [40, 40]
    assert [one["persons"] for one in persons["labels"]["class_sizes"]] == [0, 4]
    assert "persons" not in records["labels"]["class_sizes"][0]


def test_check_says_what_a_fit_uses_of_a_person_in_several_classes(tmp_path, cli):
    """One person has 3, 2, 1 and 1 records of four classes, the other 2 of one; a bad row and label do not count."""
    y = [*"cccbbad", "a", "a", "a", "zebra"]
    x = np.ones((11, 4))
    x[9] = np.nan
    np.savez(tmp_path / "t.npz", x=x, y=y, p=["Jane-Doe"] * 7 + ["John"] * 4)
    (tmp_path / "c.txt").write_text("d\nc\nb\na\n")
    given = (
        "check",
        tmp_path / "t.npz",
        "--classes",
        tmp_path / "c.txt",
        "--groups",
        "p",
    )
    report = json.loads(cli(*given, "--json").stdout)["persons"]
    assert (
        report["records_in_classes"],
        report["records_in_main_class"],
        report["used"],
    ) == (9, 5, 2)
    assert report["in_several_classes"] == 1
    result = cli(*given)
    assert result.stdout.startswith("For the data owner's eyes only")
    assert "Jane" not in result.stdout


# From raw records


def write_mails(folder, patients=IDS):
    """Texts of the letters encoder in three forms, one of them damaged; the ids stand in the column patient."""
    texts = [
        "" if place == 5 else "abc"[place % 3] * (3 + place % 7) for place in range(37)
    ]
    labels = [("cat", "dog", "gnu")[place % 3] for place in range(37)]
    records = [
        {"text": text, "label": label, "patient": patient}
        for text, label, patient in zip(texts, labels, patients, strict=True)
    ]
    lines = [
        ",".join("" if value is None else value for value in record.values())
        for record in records
    ]
    (folder / "mails.csv").write_text("\n".join(["text,label,patient", *lines]))
    (folder / "mails.jsonl").write_text("\n".join(map(json.dumps, records)))
    pq.write_table(pa.Table.from_pylist(records), folder / "mails.parquet")
    (folder / "classes.txt").write_text("cat\ndog\ngnu\n")


@pytest.fixture
def mails(tmp_path, monkeypatch, letters):
    """A folder with private texts, in which commands run."""
    monkeypatch.chdir(tmp_path)
    write_mails(tmp_path)
    return tmp_path


FIT = ("--classes", "classes.txt", "--mu", 1)
TRAIN = (
    *FIT,
    "--encoder",
    "letters",
    "--descriptions",
    "none",
    "--groups",
    "patient",
    "--out",
    "m.safetensors",
)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["mails.csv", "mails.jsonl", "mails.parquet"])
def test_train_writes_the_bytes_of_embed_and_fit(source, mails, cli):
    assert cli("train", source, *TRAIN, "--options", "random_state=3").exit_code == 0
    made = cli(
        "embed",
        source,
        "--encoder",
        "letters",
        "--groups",
        "patient",
        "--out",
        "table",
        "--options",
        "shard_rows=7",
    )
    assert (
        made.stdout.splitlines()[-2]
        == "Next: dppl fit table --groups person --classes FILE ..."
    )
    assert (
        cli(
            "fit",
            "table",
            *FIT,
            "--groups",
            "person",
            "--options",
            "random_state=3",
            "--out",
            "two.safetensors",
        ).exit_code
        == 0
    )
    assert (mails / "m.safetensors").read_bytes() == (
        mails / "two.safetensors"
    ).read_bytes()
    model = dppl.load("m.safetensors")
    assert model.guarantee_.unit == Unit.PERSON
    records = [
        json.loads(line) for line in (mails / "mails.jsonl").read_text().splitlines()
    ]
    texts, labels, patients = (
        [record[name] for record in records] for name in ("text", "label", "patient")
    )
    raw = dppl.PrivateClassifier(
        "letters",
        dppl.GaussianDP(1),
        read_classes("classes.txt"),
        descriptions=None,
        random_state=3,
    ).fit(texts, labels, groups=patients)
    raw.save("three.safetensors")
    assert (mails / "three.safetensors").read_bytes() == (
        mails / "m.safetensors"
    ).read_bytes()
    # A person in several classes.
    several = ("--options", "max_classes_per_person=2", "--options", "random_state=3")
    assert cli("train", source, *TRAIN, *several, "--force").exit_code == 0
    assert (
        cli(
            "fit",
            "table",
            *FIT,
            "--groups",
            "person",
            *several,
            "--out",
            "k.safetensors",
        ).exit_code
        == 0
    )
    assert (mails / "m.safetensors").read_bytes() == (
        mails / "k.safetensors"
    ).read_bytes()
    assert (mails / "k.safetensors").read_bytes() != (
        mails / "two.safetensors"
    ).read_bytes()
    # Without ids the model is another, and for records.
    assert (
        cli(
            "fit",
            "table",
            *FIT,
            "--options",
            "random_state=3",
            "--out",
            "records.safetensors",
        ).exit_code
        == 0
    )
    assert dppl.load("records.safetensors").guarantee_.unit != Unit.PERSON
    assert (mails / "records.safetensors").read_bytes() != (
        mails / "two.safetensors"
    ).read_bytes()


def test_several_classes_need_persons_before_a_text_is_embedded(
    mails, cli, error_line, monkeypatch
):
    monkeypatch.setattr("dppl.training.pipeline.embed", None)
    result = cli(
        "train",
        "mails.csv",
        *FIT,
        "--encoder",
        "letters",
        "--out",
        "m.safetensors",
        "--options",
        "max_classes_per_person=2",
    )
    assert "max_classes_per_person is for fits with ids of persons" in error_line(
        result
    )


def test_an_interrupted_train_goes_on_with_its_persons(mails, cli, monkeypatch):
    """What a run that was stopped after the embedding left is taken, and only with the same ids."""

    def stop(*_):
        raise KeyboardInterrupt

    given = ("train", "mails.csv", *TRAIN, "--options", "random_state=3")
    assert cli(*given).exit_code == 0
    first = (mails / "m.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(dppl.SoftmaxPrototypes, "learn", stop)
        assert cli(*given, "--force").exit_code == 130
    assert cli(*given, "--force").exit_code == 0
    assert (mails / "m.safetensors").read_bytes() == first
    monkeypatch.setattr(dppl.SoftmaxPrototypes, "learn", stop)
    assert cli(*given, "--force").exit_code == 130
    write_mails(mails, [None, *IDS[1:-1], "somebody else"])
    result = cli(*given, "--force")
    assert result.exit_code != 0
    assert "the source has changed since" in result.stderr
    assert "somebody" not in result.stderr


def test_no_id_leaves_train_or_embed(mails, cli, caplog):
    """Of all that is printed, logged and left, the table alone holds ids; the name of their column is in no model."""
    caplog.set_level("DEBUG")
    cli("ledger", "create", "ledger.db", "wards", "--mu", 2, "--unit", "person")
    account = ("--ledger", "ledger.db", "wards")
    results = [
        cli("train", "mails.csv", *TRAIN, *account, "--x", "text"),
        cli(
            "embed",
            "mails.csv",
            "--encoder",
            "letters",
            "--groups",
            "patient",
            "--out",
            "table",
        ),
        cli("show", "m.safetensors", "--json"),
        cli("ledger", "show", "ledger.db", "--json"),
        cli("table", "table"),
        cli("predict", "m.safetensors", "mails.csv"),
    ]
    assert [result.exit_code for result in results] == [0] * len(results)
    assert dppl.load("m.safetensors").columns_ == {"x": "text"}
    said = "".join(result.stdout + result.stderr for result in results) + caplog.text
    left = [
        path
        for path in mails.rglob("*")
        if path.is_file() and path.stem != "mails" and path.suffix != ".parquet"
    ]
    names = {path.name for path in left}
    assert {
        "m.safetensors",
        "m.safetensors.private.jsonl",
        "ledger.db",
        "table.report.jsonl",
    } <= names
    for content in (
        said.encode(),
        *(path.read_bytes() for path in left),
        *(bytes(path) for path in mails.rglob("*")),
    ):
        assert b"Jane" not in content
        assert b"Doe" not in content
    for content in (
        said.encode(),
        *((mails / name).read_bytes() for name in ("m.safetensors", "ledger.db")),
    ):
        assert b"patient" not in content
    # The search finds one where it is.
    assert read_ids("table", "person").tolist().count("Jane-Doe-1") > 1


def test_an_account_of_records_is_refused_before_a_text_is_embedded(
    mails, cli, monkeypatch
):
    monkeypatch.setattr("dppl.training.pipeline.embed", None)
    assert cli("ledger", "create", "ledger.db", "wards", "--mu", 2).exit_code == 0
    result = cli("train", "mails.csv", *TRAIN, "--ledger", "ledger.db", "wards")
    *_, error = result.stderr.splitlines()
    assert "is accounted by the record, but this release protects a person" in error
    assert not (mails / "m.safetensors").exists()


@pytest.mark.parametrize("command", ["train", "embed", "check"])
def test_a_column_that_is_not_there_is_named_and_its_content_is_not(
    command, mails, cli, error_line
):
    given = {
        "train": TRAIN,
        "embed": ("--encoder", "letters", "--out", "t"),
        "check": ("--classes", "classes.txt"),
    }
    result = cli(command, "mails.csv", *given[command], "--groups", "nobody")
    assert error_line(result).startswith(
        "--groups must be one column of mails.csv; got 'nobody'"
    )
    (mails / "lines.txt").write_text("Jane\n")
    result = cli(command, "lines.txt", *given[command], "--groups", "nobody")
    named = "such as the CSV file of --read labels=FILE for images; lines.txt is read as text"
    assert error_line(result).startswith(
        f"--x, --y, --groups and --read id go with files that have columns, {named}"
    )


@pytest.mark.parametrize("column", ["id", "reference"])
def test_ids_of_records_are_not_those_of_persons(column, mails, cli, error_line):
    """No two rows of a table share them, so a guarantee for persons would be one for records."""
    assert (
        cli("embed", "mails.csv", "--encoder", "letters", "--out", "table").exit_code
        == 0
    )
    for command in (
        ("fit", "table", *FIT, "--out", "m.safetensors"),
        ("check", "table", "--classes", "classes.txt"),
    ):
        result = cli(*command, "--groups", column)
        assert (
            f"--groups must name a column with ids of persons; {column!r} of table"
            in error_line(result)
        )
    assert not (mails / "m.safetensors").exists()


@pytest.mark.parametrize("source", ["mails.csv", "mails.jsonl", "mails.parquet"])
def test_check_of_raw_records_is_that_of_their_table(source, mails, cli):
    given = ("--classes", "classes.txt", "--json", "--groups")
    raw = cli("check", source, *given, "patient")
    assert (
        cli(
            "embed",
            source,
            "--encoder",
            "letters",
            "--groups",
            "patient",
            "--out",
            "table",
        ).exit_code
        == 0
    )
    table = cli("check", "table", *given, "person")
    assert (raw.exit_code, table.exit_code) == (0, 0)
    found = json.loads(raw.stdout)
    assert found["persons"] == json.loads(table.stdout)["persons"]
    assert found["labels"] == json.loads(table.stdout)["labels"]
    assert found["persons"]["records_in_classes"] == 36
    assert "Jane" not in raw.stdout + table.stdout


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_evaluate_counts_every_person_once(suffix, task, cli):
    model = task.folder / "m.safetensors"
    table = task.folder / f"test.{suffix}"
    dppl.MeanPrototypes(dppl.GaussianDP(100), sorted(set(task.y))).fit(
        task.X, task.y
    ).save(model)
    y = np.where(np.arange(37) % 3 == 0, "okapi", task.y)  # which the model gets wrong
    X = task.X.copy()
    X[5] = np.nan
    ids = [name or "" for name in IDS]
    if suffix == "npz":
        np.savez(table, x=X, y=y, patient=np.array(ids))
    else:
        columns = {
            "x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 8),
            "y": y,
            "patient": ids,
        }
        pq.write_table(pa.table(columns), table)
    plain = json.loads(cli("evaluate", model, table, "--json").stdout)
    report = json.loads(
        cli("evaluate", model, table, "--groups", "patient", "--json").stdout
    )
    right = (dppl.load(model).predict(task.X) == y)[np.arange(37) != 5]
    shares: dict[object, list[bool]] = {}
    for place, (name, is_right) in enumerate(
        zip(np.delete(ids, 5), right.tolist(), strict=True)
    ):
        shares.setdefault(name or place, []).append(is_right)
    assert report["person_accuracy"] == pytest.approx(
        np.mean([np.mean(share) for share in shares.values()])
    )
    assert report["n_persons"] == len(shares) == 13
    assert report["person_accuracy"] != pytest.approx(report["accuracy"])
    assert {key: value for key, value in report.items() if key in plain} == plain
    assert set(report) - set(plain) == {"person_accuracy", "n_persons"}
    shown = cli("evaluate", model, table, "--groups", "patient")
    assert (
        f"person accuracy    {report['person_accuracy']:.4f}, mean over 13 persons"
        in shown.stdout
    )
    assert "Jane" not in shown.output


def test_evaluate_names_a_wrong_column(persons, task, cli, error_line):
    dppl.MeanPrototypes(dppl.GaussianDP(1), ["cat"]).fit(task.X[:3], ["cat"] * 3).save(
        task.folder / "m.safetensors"
    )
    result = cli(
        "evaluate", task.folder / "m.safetensors", persons, "--groups", "nobody"
    )
    assert error_line(result).startswith("--groups must name ")


@pytest.mark.parametrize("source", ["mails.csv", "mails.jsonl", "mails.parquet"])
def test_evaluate_of_texts_counts_persons_as_that_of_their_table(
    source, mails, cli, error_line
):
    assert cli("train", source, *TRAIN, "--options", "random_state=3").exit_code == 0
    assert (
        cli(
            "embed",
            source,
            "--encoder",
            "letters",
            "--groups",
            "patient",
            "--out",
            "table",
        ).exit_code
        == 0
    )
    raw = cli(
        "evaluate",
        "m.safetensors",
        source,
        "--encoder",
        "letters",
        "--groups",
        "patient",
        "--json",
    )
    table = cli("evaluate", "m.safetensors", "table", "--groups", "person", "--json")
    expected = json.loads(table.stdout) | {
        "n_unusable": 1
    }  # the table has no row for it
    assert json.loads(raw.stdout) == expected
    assert expected["n_persons"] > 1
    assert "Jane" not in raw.output
    result = cli(
        "evaluate",
        "m.safetensors",
        source,
        "--encoder",
        "letters",
        "--groups",
        "nobody",
    )
    nowhere = (
        "there is nothing to evaluate, since no record can be used"
        if source == "mails.jsonl"
        else "--groups must be one column of "
    )
    assert error_line(result).startswith(nowhere)


@pytest.mark.parametrize("option", ["--groups", "--read id"])
def test_a_column_of_floats_costs_nothing(option, mails, cli):
    """pandas writes them where an id is missing; no record would be used, or each were a person."""
    table = pq.read_table("mails.parquet")
    numbers = pa.array([float(place) if place else None for place in range(37)])
    pq.write_table(table.append_column("nr", numbers), "mails.parquet")
    unit = ["--unit", "person"] if option == "--groups" else []
    cli("ledger", "create", "l.db", "wards", "--mu", 2, *unit)
    before = cli("ledger", "show", "l.db").stdout
    given = ["--groups", "nr"] if option == "--groups" else ["--read", "id=nr"]
    train = [one for one in TRAIN if one not in ("--groups", "patient")]
    train = ("train", "mails.parquet", *train, "--ledger", "l.db", "wards")
    result = cli(*train, *given)
    assert result.exit_code == 4
    assert f"{option} must name one column" in result.stderr
    assert "'nr' holds double" in result.stderr
    assert cli("ledger", "show", "l.db").stdout == before
    assert not (mails / "m.safetensors").exists()
    # As integers they are ids.
    whole = table.append_column("nr", numbers.cast(pa.int64()).fill_null(0))
    pq.write_table(whole, "mails.parquet")
    assert cli(*train, *given).exit_code == 0


def test_stop_refuses_missing_ids_and_others_are_told_what_they_cost(mails, cli):
    result = cli("train", "mails.csv", *TRAIN)
    assert result.exit_code == 0
    assert "a record without a person id counts as a person" in result.stderr
    # One text is empty, too; without it, the ids alone are the reason.
    lines = (mails / "mails.csv").read_text().splitlines()
    whole = [line for line in lines if not line.startswith(",")]
    for kept, code in ((whole, 4), ([line for line in whole if line[-1] != ","], 0)):
        (mails / "mails.csv").write_text("\n".join(kept))
        result = cli("train", "mails.csv", *TRAIN, "--force", "--unusable", "stop")
        assert result.exit_code == code
        assert ("ids of persons included" in result.stderr) == bool(code)
        assert "without a person id" not in result.stderr
