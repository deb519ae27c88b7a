"""Records of several labels, from a CSV file to a served and privately evaluated model."""

import csv
import io
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import dppl
from dppl import GaussianDP, PrivateSearch
from dppl.encoders import load_encoder
from dppl.errors import InputError, ParameterError
from dppl.export.scorer import scorer_of
from dppl.serve import open_model
from dppl.training import PrivateClassifier

ALPHABETS = {"gnu": "abcd", "cat": "efgh", "dog": "ijkl", "ant": "mnpq"}  # in no order
LABELS = list(ALPHABETS)


def records(n, seed):
    """Return texts, sets of labels and persons; some have no label, some have all."""
    rng = np.random.default_rng(seed)
    sets = rng.random((n, 4)) < 0.4
    texts = [
        "".join(
            rng.permutation(
                [
                    *"xyz",
                    *(x for k in np.flatnonzero(row) for x in ALPHABETS[LABELS[k]] * 3),
                ]
            )
        )
        for row in sets
    ]
    return texts, sets, [f"p{number // 2}" for number in range(n)]


def joined(sets, separator="; "):
    return [separator.join(LABELS[k] for k in np.flatnonzero(row)) for row in sets]


def write(path, texts, sets, persons, extra=()):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "diagnoses", "patient"])
        writer.writerows([*zip(texts, joined(sets), persons, strict=True), *extra])


@pytest.fixture
def notes(tmp_path, monkeypatch, letters):
    """A folder with notes of patients, in which commands run."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "notes.csv", *records(400, 0))
    write(tmp_path / "test.csv", *records(300, 1))
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in LABELS))
    return tmp_path


TRAIN = [
    "train",
    "notes.csv",
    "--y",
    "diagnoses",
    "--read",
    "labels_separator=;",
    "--encoder",
    "letters",
    "--classes",
    "classes.txt",
]
TRAIN += ["--groups", "patient", "--out", "m.safetensors"]
EXACT = ["--mu", "1e4", "--weak", "--options", "random_state=3"]  # hardly any noise


def test_from_a_file_to_a_private_evaluation(notes, cli):
    trained = cli(*TRAIN, *EXACT)
    assert trained.exit_code == 0, trained.stderr
    assert "MultiLabelPrototypes: 4 classes" in trained.stdout
    shown = cli("show", "m.safetensors").stdout
    for words in (
        "max labels",
        "any number",
        "4: gnu, cat, dog, ant",
        "one person with all of their records",
    ):
        assert words in " ".join(shown.split())
    card = cli("show", "m.safetensors", "--for", "hub").stdout
    assert "any number of the labels below, or none" in card
    assert "model.predict_labels(" in card

    found = cli("predict", "m.safetensors", "test.csv", "--top", "all")
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    _, truth, _ = records(300, 1)
    predicted = np.array(
        [[name in row["labels"].split(";") for name in LABELS] for row in rows]
    )
    assert (predicted == truth).mean() > 0.95
    assert [name for name in rows[0] if name.startswith("probability")] == [
        f"probability of {name}" for name in LABELS
    ]
    likely = np.array(
        [
            [float(row[f"probability of {name}"]) > 0.5 for name in LABELS]
            for row in rows
        ]
    )
    assert (likely == predicted).all()
    assert (
        cli(
            "predict",
            "m.safetensors",
            "test.csv",
            "--out",
            "labels.parquet",
            "--top",
            "2",
        ).exit_code
        == 0
    )
    table = pq.read_table("labels.parquet")
    assert table.column("labels").to_pylist() == [row["labels"] for row in rows]
    assert table.column_names == [
        "id",
        "labels",
        "top 1",
        "probability 1",
        "top 2",
        "probability 2",
    ]
    for options in (["--shares", "data"], ["--min-confidence", "0.5"]):
        assert (
            "one label a record"
            in cli("predict", "m.safetensors", "test.csv", *options).stderr
        )

    # The owner's numbers, and the private ones, which agree where there is hardly any
    # noise.
    plain = cli(
        "evaluate", "m.safetensors", "test.csv", "--groups", "patient", "--json"
    )
    report = json.loads(plain.stdout)
    assert report["accuracy"] == pytest.approx((predicted == truth).all(axis=1).mean())
    assert "macro F1" in cli("evaluate", "m.safetensors", "test.csv").stdout
    private = [
        "evaluate",
        "m.safetensors",
        "test.csv",
        "--mu",
        "1e4",
        "--weak",
        "--groups",
        "patient",
    ]
    released = cli(*private, "--out", "e.json")
    assert released.exit_code == 0, released.stderr
    content = json.loads((notes / "e.json").read_text())
    assert content["labels"]["macro_f1"]["value"] == pytest.approx(
        report["macro_f1"], abs=0.05
    )
    assert content["n"]["value"] == pytest.approx(150, abs=1)
    assert content["unit"] == "person"
    assert "micro F1" in released.stdout
    for form in (["--for", "hub"], ["--out", "page.html"], ["--out", "page.md"]):
        assert cli("show", "m.safetensors", "--results", "e.json", *form).exit_code == 0
    assert "macro F1" in (notes / "page.html").read_text()
    (notes / "plain.json").write_text(json.dumps(report))
    assert (
        cli(
            "show", "m.safetensors", "--results", "plain.json", "--out", "plain.html"
        ).exit_code
        == 0
    )

    # A class list in place of a model, of what was written above.
    with (notes / "answers.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("predicted", "label"),
                *zip(joined(predicted), joined(truth), strict=True),
            ]
        )
    listed = ["evaluate", "classes.txt", "answers.csv"]
    again = json.loads(cli(*listed, "--read", "labels_separator=;", "--json").stdout)
    assert again["micro_f1"] == pytest.approx(report["micro_f1"])
    assert cli(*listed, "--read", "labels_separator=;", "--mu", "1").exit_code == 0


def test_what_is_served_is_what_is_predicted(notes, cli):
    assert cli(*TRAIN, *EXACT).exit_code == 0
    model = PrivateClassifier.load("m.safetensors")
    served = open_model(notes / "m.safetensors")
    texts, _, _ = records(50, 2)
    rows = load_encoder("letters").encode(texts)
    answers = [
        served.prediction(np.asarray(row), 2, probabilities=True) for row in rows
    ]
    assert [one.labels for one in answers] == model.predict_labels(texts)
    assert {one.label for one in answers} == {None}
    assert np.array([one.probabilities for one in answers]) == pytest.approx(
        model.predict_proba(texts)
    )
    assert [] in [
        one.labels for one in answers
    ]  # a record of none is not one that cannot be used
    assert answers[0].reason is None
    lost = served.prediction(np.full(rows.shape[1], np.nan), 2, probabilities=False)
    assert (lost.labels, lost.label) == (None, None)
    assert "direction" in lost.reason


def test_an_estimator_takes_what_scikit_learn_takes(notes):
    texts, sets, persons = records(400, 0)
    given = {
        "options": {"separator": ";", "max_labels": 3},
        "method": "multilabel",
        "random_state": 0,
    }
    lists = [[LABELS[k] for k in np.flatnonzero(row)] for row in sets]
    # The form of one record, be it the first, decides of no other.
    arrays = [
        one if place % 3 else np.array(one, object) for place, one in enumerate(lists)
    ]
    models = [
        PrivateClassifier("letters", GaussianDP(1e4), LABELS, **given).fit(
            texts, y, groups=persons
        )
        for y in (sets.astype(int), lists, arrays, joined(sets))
    ]
    new, truth, _ = records(100, 1)
    assert len({model.to_bytes() for model in models}) == 1
    predicted = models[0].predict(new)
    assert predicted.shape == (100, 4)
    assert models[0].predict_labels(new) == [
        [LABELS[k] for k in np.flatnonzero(row)] for row in predicted
    ]
    assert models[0].score(new, truth.astype(int)) == pytest.approx(
        (predicted == truth).all(axis=1).mean()
    )
    assert ((models[0].decision_function(new) > 0) == predicted).all()
    assert models[0].predict_labels(["", new[0]], unusable="empty")[0] is None
    one = dppl.evaluate(
        models[0], new, truth.astype(int), GaussianDP(1e4), random_state=0
    )
    assert one.labels.max_labels == 3
    with pytest.raises(InputError, match="several labels"):
        scorer_of(models[0])
    single = PrivateClassifier("letters", GaussianDP(1), LABELS).fit(
        texts, [LABELS[0]] * 400
    )
    with pytest.raises(ParameterError, match="multilabel"):
        single.predict_labels(new)
    with pytest.raises(ParameterError, match="one label a record"):
        PrivateSearch(
            dppl.MultiLabelPrototypes(dppl.ApproxDP(1, 1e-6), LABELS),
            {"max_labels": [1, 2]},
        ).fit(np.eye(4), lists[:4])


def test_the_owner_is_told_what_unknown_labels_mean(notes, cli):
    (notes / "notes.csv").write_text(
        'text,diagnoses\nabc,GNU;owl\ndef,owl;GNU\nghi,"gnu,owl"\n'
    )
    (notes / "two.txt").write_text("gnu\nowl\n")
    (notes / "one.txt").write_text("gnu\n")
    arguments = "check", "notes.csv", "--y", "diagnoses", "--classes"
    several = cli(*arguments, "two.txt", "--read", "labels_separator=;").stdout
    assert "unknown labels  3 records, 2 labels" in several
    assert "'GNU': 2, like the class 'gnu' but for case" in several
    assert "'gnu,owl': 1, classes of the list with ',' between" in several
    assert "or skip such labels with --options" in several.splitlines()[1]
    # A record with two unknown labels is one record.
    assert (
        "unknown labels  3 records, 3 labels"
        in cli(*arguments, "one.txt", "--read", "labels_separator=;").stdout
    )
    single = cli(*arguments, "two.txt").stdout
    assert "'GNU;owl': 1, classes of the list with ';' between" in single
    verdict = single.splitlines()[1]
    assert "or skip such records with --options" in verdict
    assert "several labels, add --read labels_separator=';'." in verdict


def test_lists_of_json_lines_are_several_labels(notes, cli, error_line):
    texts, sets, _ = records(40, 0)
    lines = [
        json.dumps(
            {"text": text, "diagnoses": [LABELS[k] for k in np.flatnonzero(row)]}
        )
        for text, row in zip(texts, sets, strict=True)
    ]
    (notes / "notes.jsonl").write_text("\n".join(lines))
    typed = "notes.jsonl", "--y", "diagnoses", "--classes", "classes.txt"
    report = cli("check", *typed, "--read", "labels_separator=;").stdout
    assert "GO: a fit uses 40 of 40 records." in report
    # Without the option a fit stops, and does not train on the rest or on nothing.
    train = (
        "train",
        *typed,
        "--encoder",
        "letters",
        "--mu",
        "1",
        "--out",
        "m.safetensors",
    )
    stopped = cli(*train)
    assert stopped.exit_code == 4
    assert "need the method 'multilabel', and in texts a separator." in (
        error_line(stopped)
    )


def test_the_owner_sees_what_labels_there_are(notes, cli):
    extra = [("abc", "gnu; owl", "q"), ("", "gnu", "q"), ("efg", " ; ;", "q")]
    write(notes / "notes.csv", *records(400, 0), extra)
    options = ["--y", "diagnoses", "--classes", "classes.txt"]
    report = json.loads(
        cli(
            "check",
            "notes.csv",
            *options,
            "--read",
            "labels_separator=;",
            "--groups",
            "patient",
            "--json",
        ).stdout
    )
    labels, (_, sets, _) = report["labels"], records(400, 0)
    sizes = np.bincount(sets.sum(axis=1)) + np.array([1, 1, 0, 0, 0])
    assert labels["labels_each"] == [
        {"labels": k, "n": n} for k, n in enumerate(sizes.tolist())
    ]
    assert labels["unknown"] == [{"label": "owl", "n": 1, "first": ["row 401"]}]
    assert labels["class_sizes"][0] == {"class": "gnu", "n": int(sets[:, 0].sum()) + 1}
    assert (report["used"], report["n"], labels["unknown_records"]) == (402, 403, 1)
    assert report["persons"]["used"] == 201
    printed = cli(
        "check",
        "notes.csv",
        *options,
        "--read",
        "labels_separator=;",
        "--groups",
        "patient",
    ).stdout
    for words in (
        "labels each",
        "more than 5",
        "owl",
        "201 persons, with all of their 402 records",
    ):
        assert words in printed

    # A fit stops at the label that is not in the list, before anything is embedded; or
    # drops it, and says so.
    stopped = cli(*TRAIN, *EXACT)
    assert stopped.exit_code != 0
    assert "owl" not in stopped.stderr + stopped.stdout
    assert cli(*TRAIN, *EXACT, "--options", "unknown_labels=ignore").exit_code == 0
    *lines, totals = (
        json.loads(line)
        for line in (notes / "m.safetensors.private.jsonl").read_text().splitlines()
    )
    assert totals["used"] == 402
    assert (
        sorted(one["reason"]["code"] for one in lines if "reason" in one)[-1]
        == "unknown_labels_dropped"
    )
    assert sum("reason" in one for one in lines) == 2


def test_embedded_and_split_records_keep_their_labels(notes, cli):
    assert cli(
        "split",
        "notes.csv",
        "--groups",
        "patient",
        "--out",
        "train.csv",
        "--test",
        "held.csv",
    ).exit_code in (
        0,
        2,
    )
    embed = [
        "embed",
        "notes.csv",
        "--y",
        "diagnoses",
        "--groups",
        "patient",
        "--encoder",
        "letters",
        "--out",
        "notes",
    ]
    assert cli(*embed).exit_code == 0
    fit = [
        "fit",
        "notes",
        "--read",
        "labels_separator=;",
        "--classes",
        "classes.txt",
        *EXACT,
        "--groups",
        "person",
        "--out",
        "f.safetensors",
    ]
    assert cli(*fit, "--y", "y", "--options", "max_labels=2").exit_code == 0, cli(
        *fit, "--y", "y"
    ).stderr
    assert cli(*TRAIN, *EXACT, "--options", "max_labels=2").exit_code == 0
    of = lambda name: dppl.load(name).coef_  # noqa: E731
    assert (of("f.safetensors") == of("m.safetensors")).all()
    assert (
        "max_labels"
        in cli("fit", *fit[1:], "--options", "max_labels=0", "--force").stderr
    )
    assert "--method multilabel" in cli(*fit, "--method", "mean", "--force").stderr


@pytest.mark.parametrize(
    "extra",
    [
        ("mnpq", "ant;gnu", "q"),
        ("mnpq", "", "q"),
        ("mnpq", "gnu;cat;dog;ant", "p0"),
        ("", "gnu", "q"),
    ],
)
def test_what_is_said_and_left_does_not_depend_on_a_record(notes, cli, extra):
    told = []
    for more in ([], [extra]):
        write(notes / "notes.csv", *records(400, 0), more)
        write(notes / "test.csv", *records(60, 1), more)
        said = cli(*TRAIN, "--mu", "0.5", "--options", "random_state=3", "--force")
        held = cli(
            "evaluate",
            "m.safetensors",
            "test.csv",
            "--mu",
            "0.5",
            "--groups",
            "patient",
        )
        sizes = {
            path.name: path.stat().st_size
            for path in notes.iterdir()
            if path.suffix == ".safetensors"
        }
        # What is released, and its width in a table, is masked: the noise is from the
        # operating system.
        lines = [
            re.split(r"\s{2,}", line)[0]
            for line in held.stdout.splitlines()
            if line[:1] not in "│┃┏┡└" and not line.startswith("The budget cannot tell")
        ]
        told.append(
            (
                said.exit_code,
                said.stdout,
                said.stderr,
                held.exit_code,
                lines,
                held.stderr,
                sizes,
            )
        )
    assert told[0] == told[1]


def test_a_strict_evaluation_for_the_owner_stops_at_a_label_outside_the_list(
    tmp_path, cli
):
    (tmp_path / "classes.txt").write_text("a\nb\n")
    for last, code in (("a", 0), ("zzz", 4)):
        (tmp_path / "data.csv").write_text(f"predicted,label\na,a;b\nb,b;{last}\n")
        paths = tmp_path / "classes.txt", tmp_path / "data.csv"
        assert (
            cli(
                "evaluate", *paths, "--read", "labels_separator=;", "--unusable", "stop"
            ).exit_code
            == code
        )
