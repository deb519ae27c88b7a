"""`dppl predict` and `dppl evaluate`."""

import csv
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import recall_score

import dppl
from dppl.io import read_table, write_table
from dppl.prediction import predictor

WARNING = "For the data owner's eyes only: no guarantee covers these numbers. "


@pytest.fixture
def labelled(task, model):
    """A table to evaluate on, with a label unknown to the model; and what the model says about it."""
    y = np.where(np.arange(37) == 3, "okapi", task.y)
    path = task.folder / "test.npz"
    # Shuffled rows, so that predictions and labels disagree here and there.
    X = task.X[np.r_[1:30, 0, 30:37]] + np.float32(0.5)
    write_table(path, X, y)
    return path, y, dppl.load(model).predict(X)


def test_predictions_are_lines_on_stdout(task, model, cli):
    result = cli("predict", model, task.table)
    assert (result.exit_code, result.stderr) == (0, "")
    expected = dppl.load(model).predict(task.X)
    assert len(set(expected)) == 3
    assert result.stdout == "".join(f"{label}\n" for label in expected)
    assert cli("predict", model, task.table, "--out", "-").stdout == result.stdout


def test_predictions_go_to_csv_and_parquet(task, model, cli):
    for name in ("labels.csv", "labels.parquet"):
        result = cli("predict", model, task.public, "--out", task.folder / name)
        assert (result.exit_code, result.output) == (
            0,
            f"50 labels in {task.folder / name}\n",
        )
    expected = dppl.load(model).predict(task.X_public).tolist()
    with open(task.folder / "labels.csv", newline="") as file:
        assert list(csv.reader(file)) == [["label"], *([label] for label in expected)]
    assert pq.read_table(task.folder / "labels.parquet").to_pydict() == {
        "label": expected
    }


def test_predicted_lines_serve_as_labels(task, model, cli):
    labels = task.folder / "labels.txt"
    labels.write_text(cli("predict", model, task.public).stdout)
    report = json.loads(
        cli(
            "evaluate", model, task.public, "--read", f"labels={labels}", "--json"
        ).stdout
    )
    assert report["accuracy"] == 1.0


def test_awkward_class_names_survive(task, cli, error_line):
    names = ["a,b", 'say "hi"', "größe"]
    y = np.array(names)[np.repeat(range(3), (20, 12, 5))]
    path = task.folder / "m.safetensors"
    model = dppl.MeanPrototypes(dppl.ZCDP(1e4), classes=names).fit(task.X, y)
    model.save(path)
    assert set(cli("predict", path, task.table).stdout.splitlines()) == set(names)
    cli("predict", path, task.table, "--out", task.folder / "l.csv")
    with open(task.folder / "l.csv", newline="", encoding="utf-8") as file:
        assert [row[0] for row in csv.reader(file)][1:] == model.predict(
            task.X
        ).tolist()
    assert {
        entry["class"]
        for entry in json.loads(cli("evaluate", path, task.table, "--json").stdout)[
            "per_class"
        ]
    } == set(names)


@pytest.mark.parametrize("name", ["two\nlines", "clear\x1b[2J", "one\u2028two"])
def test_a_class_name_cannot_fake_lines(name, task, cli, error_line):
    path = task.folder / "m.safetensors"
    dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=["a", name]).fit(
        task.X[:2], ["a", name]
    ).save(path)
    result = cli("predict", path, task.public)
    assert result.exit_code == 4
    assert "--out FILE.csv" in error_line(result)
    assert (
        cli("predict", path, task.public, "--out", task.folder / "l.csv").exit_code == 0
    )
    evaluated = cli(
        "evaluate", path, task.public, "--read", f"labels={_labels(task, 'a')}"
    )
    assert evaluated.exit_code == 0
    assert name not in evaluated.stdout


def _labels(task, *names):
    path = task.folder / "labels.txt"
    path.write_text("".join(f"{name}\n" for name in np.resize(names, 50)))
    return path


def test_ids_go_with_the_labels(task, model, cli):
    ids = [f"r{row}" for row in range(len(task.X))]
    path = task.folder / "rows.parquet"
    rows = pa.array([*task.X], pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": ids, "x": rows}), path)
    expected = [["id", "label"], *map(list, zip(ids, task.y.tolist(), strict=True))]
    assert list(csv.reader(cli("predict", model, path).stdout.splitlines())) == expected
    assert (
        cli("predict", model, path, "--out", task.folder / "labels.csv").exit_code == 0
    )
    with (task.folder / "labels.csv").open(newline="") as file:
        assert list(csv.reader(file)) == expected


def test_a_table_larger_than_a_block_is_predicted_whole(task, model, cli, monkeypatch):
    whole = cli("predict", model, task.table).stdout
    monkeypatch.setattr(predictor, "_ROWS", 5)
    assert cli("predict", model, task.table).stdout == whole


def test_an_empty_table_has_no_predictions_and_no_accuracy(
    task, model, cli, error_line
):
    empty = task.folder / "empty.npz"
    write_table(empty, np.empty((0, 8)), np.empty(0, np.str_))
    assert (
        cli("predict", model, empty).exit_code,
        cli("predict", model, empty).output,
    ) == (0, "")
    result = cli("evaluate", model, empty)
    assert result.exit_code == 4
    assert "no record can be used" in error_line(result)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_another_width_is_input(command, task, model, cli, error_line):
    write_table(task.table, task.X[:, :5], task.y)
    result = cli(command, model, task.table)
    assert result.exit_code == 4
    line = error_line(result)
    assert "5 features" in line
    assert "expects 8" in line


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_table_of_another_encoder_is_refused(command, task, cli, error_line):
    for name in ("one", "other"):
        write_table(
            task.folder / f"{name}.parquet", task.X, task.y, metadata={"encoder": name}
        )
    fitted = dppl.MeanPrototypes(dppl.ZCDP(1.0), task.y[[0, 20, 32]]).fit(
        read_table(task.folder / "one.parquet"), task.y
    )
    fitted.save(task.out)
    assert cli(command, task.out, task.folder / "one.parquet").exit_code == 0
    result = cli(command, task.out, task.folder / "other.parquet")
    assert (result.exit_code, "names another encoder" in error_line(result)) == (
        4,
        True,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["predict", "no.safetensors", "{table}"], 4, "no.safetensors"),
        (["predict", "{table}", "{table}"], 4, "safetensors"),
        (["predict", "{model}", "no.npz"], 4, "no.npz"),
        (
            ["predict", "{model}", "{table}", "--out", "{folder}/labels.txt"],
            2,
            "must end in .csv or .parquet",
        ),
        (
            ["predict", "{model}", "{table}", "--out", "{folder}/no/labels.csv"],
            2,
            "existing folder",
        ),
        (
            ["predict", "{model}", "{table}", "--out", "{folder}/taken.csv"],
            2,
            "--force",
        ),
        (["predict", "{model}"], 2, "DATA"),
        (["evaluate", "{model}", "{folder}/public.npz"], 4, "no labels"),
        (["evaluate", "{model}", "{table}", "--read", "labels=no.txt"], 4, "no.txt"),
    ],
)
def test_a_mistake_gets_one_line_and_a_code(
    arguments, code, words, task, model, cli, error_line
):
    (task.folder / "taken.csv").write_text("precious")
    result = cli(
        *(
            a.format(model=model, table=task.table, folder=task.folder)
            for a in arguments
        )
    )
    assert result.exit_code == code
    assert words in error_line(result)
    assert (task.folder / "taken.csv").read_text() == "precious"


def test_force_replaces_predictions_but_never_an_input(task, model, cli):
    taken = task.folder / "taken.csv"
    taken.write_text("old")
    assert cli("predict", model, task.table, "--out", taken, "--force").exit_code == 0
    assert taken.read_text().startswith("label\n")
    np.save(task.folder / "x.npy", task.X)
    result = cli(
        "predict",
        model,
        task.folder / "x.npy",
        "--out",
        task.folder / "x.npy",
        "--force",
    )
    assert result.exit_code == 2
    np.testing.assert_array_equal(np.load(task.folder / "x.npy"), task.X)


def test_the_figures_are_those_of_scikit_learn(labelled, model, cli):
    path, y, predicted = labelled
    result = cli("evaluate", model, path, "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith(WARNING)
    report = json.loads(result.stdout)
    recalls = recall_score(y, predicted, labels=["cat", "dog", "gnu"], average=None)
    assert 0 < min(recalls) < 1  # or the test would hardly see a thing
    assert report["accuracy"] == np.mean(y == predicted)
    assert report["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert report["minority_accuracy"] == pytest.approx(recalls[2])
    assert (report["n"], report["n_unknown_labels"]) == (37, 1)
    sizes = [np.count_nonzero(y == name) for name in ("cat", "dog", "gnu")]
    assert report["per_class"] == [
        {"class": name, "n": size, "accuracy": pytest.approx(recall)}
        for name, size, recall in zip(
            ("cat", "dog", "gnu"), sizes, recalls, strict=True
        )
    ]


def test_the_figures_are_shown_to_people(labelled, model, cli):
    path, y, predicted = labelled
    result = cli("evaluate", model, path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(WARNING)
    assert f"accuracy           {np.mean(y == predicted):.4f}\n" in result.stdout
    assert "37, 1 with a label that the model does not know" in result.stdout
    for name in ("cat", "dog", "gnu"):
        assert name in result.stdout
    assert "okapi" not in result.stdout


def test_equal_sizes_have_no_minority_and_a_missing_class_no_accuracy(task, model, cli):
    write_table(task.table, task.X[[0, 1, 20, 21]], task.y[[0, 1, 20, 21]])
    report = json.loads(cli("evaluate", model, task.table, "--json").stdout)
    assert report["minority_accuracy"] is None
    assert report["balanced_accuracy"] == 1.0
    assert report["per_class"][2] == {"class": "gnu", "n": 0, "accuracy": None}
    shown = cli("evaluate", model, task.table).stdout
    assert "minority accuracy" not in shown


def test_labels_that_are_all_unknown_leave_nothing_to_average(task, model, cli):
    report = json.loads(
        cli(
            "evaluate",
            model,
            task.public,
            "--read",
            f"labels={_labels(task, 'emu', 'yak')}",
            "--json",
        ).stdout
    )
    assert (
        report["accuracy"],
        report["balanced_accuracy"],
        report["minority_accuracy"],
    ) == (0.0, None, None)
    assert report["n_unknown_labels"] == 50
    shown = cli(
        "evaluate", model, task.public, "--read", f"labels={task.folder / 'labels.txt'}"
    )
    assert "no label of these records is a class of the model" in shown.stderr


@pytest.mark.parametrize("as_text", [True, False])
def test_labels_take_the_type_of_the_models_classes(as_text, task, cli):
    y = np.repeat([1, 2, 10], (20, 12, 5))
    path = task.folder / "m.safetensors"
    dppl.MeanPrototypes(dppl.ZCDP(1e4), classes=[1, 2, 10]).fit(task.X, y).save(path)
    write_table(task.table, task.X, y.astype(str) if as_text else y)
    report = json.loads(cli("evaluate", path, task.table, "--json").stdout)
    assert report["accuracy"] == 1.0
    assert [entry["class"] for entry in report["per_class"]] == [1, 2, 10]


@pytest.mark.slow
def test_the_real_command_predicts_into_a_pipe_that_closes(task, model):
    write_table(task.table, np.tile(task.X, (3000, 1)))
    command = [sys.executable, "-m", "dppl", "predict", str(model), str(task.table)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }
    with subprocess.Popen(command, **pipes, text=True, env=env) as child:
        assert child.stdout.readline() == f"{dppl.load(model).predict(task.X[:1])[0]}\n"
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(timeout=60) == 141


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, getattr(signal, "SIGHUP", None)])
def test_a_command_that_is_told_to_end_leaves_no_embeddings_behind(number, tmp_path):
    """None is written. The command waits and wakes often: a signal just before a long call waits for its end."""
    script = """
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from dppl.training import classifier, embedding
from dppl.cli import main, predict

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, and children inherit that

def wait(*_, **__):
    print("waiting", flush=True)
    while True:
        time.sleep(0.01)

predict.load_model = lambda _: type("Model", (), {"classes_": [], "encoder_": None, "multilabel": False})
fingerprint = SimpleNamespace(text=lambda: "none", row_independent=True)
encoder = SimpleNamespace(modality="text", fingerprint=fingerprint)
classifier.encoder_of_model = lambda *_, **__: encoder
embedding.embed_windows = wait
main.run()
"""
    (tmp_path / "new.txt").write_text("a text\n")
    (tmp_path / "m").touch()
    (tmp_path / "temporary").mkdir()
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            "predict",
            tmp_path / "m",
            tmp_path / "new.txt",
            "--out",
            tmp_path / "out.csv",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    ) as running:
        assert running.stdout.readline() == b"waiting\n"
        for _ in range(3):  # a repeated signal does not cut the cleaning short
            running.send_signal(number)
        assert running.wait(30) == 128 + number
        assert running.stderr.read() == b"dppl: terminated.\n"
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is always full"
)
def test_a_full_disk_is_one_line(task, model):
    command = [sys.executable, "-m", "dppl", "predict", str(model), str(task.table)]
    env = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=env,
        )
    assert done.returncode == 4
    assert done.stderr == "dppl: error: standard output: No space left on device.\n"


def test_rows_that_cannot_be_used_have_empty_labels_and_a_note(task, model, cli):
    X = task.X.copy()
    X[3, 0], X[30] = np.nan, 0
    write_table(task.table, X, task.y)
    expected = dppl.load(model).predict(X, unusable="empty").tolist()
    result = cli("predict", model, task.table)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [label or "" for label in expected]
    assert [place for place, label in enumerate(expected) if label is None] == [3, 30]
    assert "their labels are empty: row 4, row 31." in result.stderr
    assert (
        cli("predict", model, task.table, "--out", task.folder / "l.parquet").exit_code
        == 0
    )
    assert pq.read_table(task.folder / "l.parquet")["label"].to_pylist() == expected
    report = json.loads(cli("evaluate", model, task.table, "--json").stdout)
    assert (report["n"], report["n_unusable"]) == (35, 2)


def test_labels_that_are_numbers_stay_so(task, cli):
    path = task.folder / "m.safetensors"
    y = np.repeat([1, 2, 10], (20, 12, 5))
    dppl.MeanPrototypes(dppl.ZCDP(1e4), classes=[1, 2, 10]).fit(task.X, y).save(path)
    task.X[5] = 0
    write_table(task.table, task.X, y)
    assert (
        cli("predict", path, task.table, "--out", task.folder / "l.parquet").exit_code
        == 0
    )
    labels = pq.read_table(task.folder / "l.parquet")["label"]
    assert (labels.type, labels.null_count) == (pa.int64(), 1)


def test_balanced_accuracy_leads_and_lost_classes_are_named(task, model, cli):
    y = np.where(task.y == "cat", "dog", np.where(task.y == "dog", "cat", task.y))
    write_table(task.table, task.X, y)
    shown = cli("evaluate", model, task.table).stdout
    assert shown.splitlines()[1].startswith("balanced accuracy")
    assert "Classes at or below chance (0.3333): cat, dog\n" in shown
    report = json.loads(cli("evaluate", model, task.table, "--json").stdout)
    assert next(iter(report)) == "balanced_accuracy"
    assert (report["at_or_below_chance"], report["chance"]) == (["cat", "dog"], 1 / 3)
    write_table(task.table, task.X, task.y)
    assert (
        "at or below chance (0.3333): none" in cli("evaluate", model, task.table).stdout
    )


def test_probabilities_are_of_equal_classes_or_of_those_of_the_data(
    task, model, cli, error_line
):
    result = cli("predict", model, task.public, "--top", "all", "--shares", "data")
    assert result.exit_code == 2
    assert (
        "--shares 'data' needs noisy counts of the classes, and this model released none"
        in error_line(result)
    )
    fitted = dppl.SoftmaxPrototypes(
        dppl.GaussianDP(2.0), sorted(set(task.y)), random_state=0
    ).fit(task.X, task.y)
    fitted.save(model, overwrite=True)
    for shares in ("equal", "data"):
        result = cli("predict", model, task.public, "--top", "all", "--shares", shares)
        header, *rows = csv.reader(result.stdout.splitlines())
        assert header[1:] == [f"probability of {name}" for name in fitted.classes_]
        found = np.array([row[1:] for row in rows], float)
        assert np.allclose(
            found, fitted.predict_proba(task.X_public, shares=shares), atol=1e-5
        )
        likeliest = fitted.classes_[
            fitted.predict_proba(task.X_public, shares=shares).argmax(axis=1)
        ].tolist()
        assert [row[0] for row in rows] == likeliest
        assert (likeliest == fitted.predict(task.X_public).tolist()) == (
            shares == "equal"
        )
        assert (
            cli("predict", model, task.public, "--shares", shares).stdout.splitlines()
            == likeliest
        )


def test_labels_below_the_least_confidence_are_empty(task, model, cli, error_line):
    fitted = dppl.load(model)
    most = fitted.predict_proba(task.X_public).max(axis=1).astype(np.float32)
    least = float(np.median(most))
    given = ("predict", model, task.public, "--min-confidence")
    labels = cli(*given, repr(least)).stdout.split("\n")[:-1]
    expected = [
        str(label) if p >= least else ""
        for label, p in zip(fitted.predict(task.X_public), most, strict=True)
    ]
    assert labels == expected
    assert 0 < labels.count("") < len(labels)
    assert "--min-confidence must lie between 0 and 1" in error_line(cli(*given, "1.5"))


def test_a_file_says_why_a_label_is_empty(task, model, cli, error_line):
    fitted = dppl.load(model)
    rows = np.vstack([task.X_public, np.zeros((1, 8), np.float32)])
    write_table(task.folder / "new.npz", rows)
    confidence = fitted.predict_proba(task.X_public).max(axis=1).astype(np.float32)
    near = fitted.similarity(task.X_public).astype(np.float32)
    sure = float(np.quantile(confidence, 0.6))
    close = float(np.quantile(near, 0.3))
    options = (
        "--min-confidence",
        repr(sure),
        "--min-similarity",
        repr(close),
        "--out",
        task.folder / "new.csv",
    )
    assert cli("predict", model, task.folder / "new.npz", *options).exit_code == 0
    with open(task.folder / "new.csv", newline="") as file:
        header, *found = csv.reader(file)
    assert header == ["label", "reason", "similarity"]
    why = np.where(
        near < close,
        "none_of_these",
        np.where(confidence < sure, "not_sure", ""),
    )
    assert [row[1] for row in found] == [*why.tolist(), "unusable"]
    assert set(why) == {"none_of_these", "not_sure", ""}
    labels = fitted.predict(task.X_public, min_confidence=sure, min_similarity=close)
    assert [row[0] for row in found] == [
        "" if label is None else label for label in [*labels, None]
    ]
    assert [float(row[2]) for row in found[:-1]] == pytest.approx(near.tolist())
    assert found[-1][2] == ""
    bad = ("predict", model, task.public, "--min-similarity", "2")
    assert "--min-similarity must lie between -1 and 1" in error_line(cli(*bad))


ASKS = {
    (): "label",
    ("--min-confidence", "0.5"): "label,reason",
    ("--min-similarity", "0.1"): "label,reason,similarity",
    ("--top", "1"): "label,top 1,probability 1",
}


def test_a_table_without_rows_has_no_labels(task, model, cli):
    path = task.folder / "none.npz"
    write_table(path, task.X[:0])
    for options, header in ASKS.items():
        result = cli("predict", model, path, *options)
        assert (result.exit_code, result.stderr) == (0, "")
        assert len(result.stdout.splitlines()) == ("--top" in options)  # a heading
        out = task.folder / "none.csv"
        assert cli("predict", model, path, *options, "--out", out).exit_code == 0
        assert out.read_text().splitlines() == [header]
        out.unlink()


def test_a_file_without_rows_has_no_labels(tmp_path, letters, cli):
    """The same of texts, whether there is no record or none that can be used."""
    model = dppl.PrivateClassifier(
        "letters", dppl.ZCDP(1e4), ["a", "b"], method="mean", random_state=0
    ).fit(["aaa", "bbb"], ["a", "b"])
    path = tmp_path / "m.safetensors"
    model.save(path)
    for content, n_records in (("", 0), ("text\n", 0), ('text\n""\n', 1)):
        source = tmp_path / "new.csv"
        source.write_text(content)
        for options, header in ASKS.items():
            out = tmp_path / "out.csv"
            result = cli("predict", path, source, *options, "--out", out)
            assert result.exit_code == 0, result.stderr
            lines = out.read_text().splitlines()
            assert lines[0] == f"id,{header}"
            assert len(lines) == 1 + n_records
            out.unlink()
    (tmp_path / "empty").mkdir()
    for name in ("new.jsonl", "new.txt", "empty"):
        source = tmp_path / name
        if name != "empty":
            source.touch()
        result = cli("predict", path, source)
        assert (result.exit_code, result.stdout) == (0, "id,label\n"), result.stderr
