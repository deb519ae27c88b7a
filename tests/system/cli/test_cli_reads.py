"""A run that could read nothing does not look like a success: what stops before the charge, and who is told what."""

import fcntl
import functools
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios

import numpy as np
import pytest

import dppl
from dppl import GaussianDP, Ledger, PrivateClassifier
from dppl.cli import _owner
from dppl.continual import ContinualDiscriminant, ContinualEnsemble, ContinualPrototypes
from dppl.errors import DpplError
from dppl.io import write_table
from dppl.kernel.checking import HARDLY_ANY, NOT_ALL_USABLE
from dppl.kernel.privacy.terms import Caveat, PublicInput, Term
from dppl.training import pipeline

CLASSES = ("cat", "dog", "gnu")
TEXTS = ["abcab", "fghf", "klmk", "abba", "ggf", "mlok"]
LABELS = list(CLASSES) * 2
LEDGER = ("--ledger", "ledger.db", "wards")
TRAIN = (
    "--encoder",
    "letters",
    "--classes",
    "classes.txt",
    "--out",
    "m.safetensors",
    "--mu",
    "1",
    *LEDGER,
)
STRICT = f"--unusable stop {NOT_ALL_USABLE}"


def rows_of(*extra, delimiter=","):
    rows = [*zip(TEXTS, LABELS, strict=True), *extra]
    return "".join(f"{delimiter.join(row)}\n" for row in [("text", "label"), *rows])


# Files of which a default run uses a part, or nothing, and none of which it may speak
# of.
PARTLY = {
    "ragged": (rows_of(("abc", "cat", "more")), CLASSES),
    "an open quote": (rows_of(('"abc', "cat")), CLASSES),
    "an empty text": (rows_of(("", "cat")), CLASSES),
    "a text that the encoder cannot prepare": (rows_of(("odd Jane", "cat")), CLASSES),
    "another label": (rows_of(("abc", "Jane")), CLASSES),
    "no label": (rows_of(("abc", "")), CLASSES),
    "the wrong list": (rows_of(), ("Katze", "Hund")),
}
NOTHING = {
    "the wrong list": PARTLY["the wrong list"],
    "no record": ("text,label\n", CLASSES),
}


@pytest.fixture
def folder(tmp_path, monkeypatch, letters):
    """A folder with an account, in which commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    Ledger(tmp_path / "ledger.db", "wards", GaussianDP(1))
    return tmp_path


def charges(folder):
    return len(Ledger(folder / "ledger.db", "wards").releases())


def put(folder, name):
    content, classes = (PARTLY | NOTHING)[name]
    (folder / "mails.csv").write_text(content)
    (folder / "classes.txt").write_text("".join(f"{one}\n" for one in classes))


@pytest.mark.parametrize("name", [*PARTLY, "no record"])
def test_a_strict_training_stops_before_the_charge_by_one_message(
    name, folder, cli, error_line
):
    put(folder, name)
    result = cli("train", "mails.csv", *TRAIN, "--unusable", "stop")
    assert (result.exit_code, error_line(result)) == (4, STRICT)
    assert (charges(folder), (folder / "m.safetensors").exists()) == (0, False)


def test_without_strict_the_owners_list_names_what_was_left_out(folder, cli):
    """Also what only the fit leaves out: a label outside the list."""
    for name, (content, _) in PARTLY.items():
        put(folder, name)
        result = cli(
            "train",
            "mails.csv",
            *TRAIN[:-3],
            "--options",
            "unknown_labels=ignore",
            "--force",
        )
        assert result.exit_code == 0
        _, *entries, totals = map(
            json.loads,
            (folder / "m.safetensors.private.jsonl").read_text().splitlines(),
        )
        n = content.count("\n") - 1
        left_out = n if name == "the wrong list" else 1
        assert [entry["reference"] for entry in entries] == [
            f"row {row + 1}" for row in range(n - left_out, n)
        ]
        assert (
            totals["records"],
            totals["used"],
            sum(one["n"] for one in totals["skipped"]),
        ) == (n, n - left_out, left_out)


def test_an_embedding_of_zeros_is_in_the_owners_list(folder, cli):
    (folder / "mails.csv").write_text(rows_of())
    cli("embed", "mails.csv", "--encoder", "letters", "--out", "table")
    table = dppl.io.read_table(folder / "table")
    usable = np.arange(6) != 2
    found = pipeline.left_out_of(
        folder / "table.report.jsonl", table, np.array(CLASSES), usable
    )
    _, entry, totals = map(json.loads, found.splitlines())
    assert entry == {
        "id": "3",
        "reference": "row 3",
        "reason": {"code": "all_zeros"},
    }
    assert (totals["used"], totals["skipped"]) == (
        5,
        [{"n": 1, "reason": {"code": "all_zeros"}}],
    )


def test_a_strict_training_stops_by_the_same_message_late(
    folder, cli, error_line, monkeypatch
):
    """Where only the embedding shows that a record cannot be used."""
    put(folder, "an empty text")
    monkeypatch.setattr(pipeline, "check_records", lambda *_, **__: None)
    result = cli("train", "mails.csv", *TRAIN, "--unusable", "stop")
    assert error_line(result).startswith(STRICT)
    assert charges(folder) == 0


def test_a_strict_training_that_reads_all_says_so(folder, cli):
    (folder / "mails.csv").write_text(rows_of())
    assert cli("train", "mails.csv", *TRAIN, "--unusable", "stop").exit_code == 0
    guarantee = dppl.load(folder / "m.safetensors").guarantee_
    assert Term(Caveat.STRICT_STOP) in guarantee.not_covered
    assert Term(PublicInput.FORM_OF_FILES) in guarantee.public_inputs
    assert charges(folder) == 1


def test_labels_are_compared_before_anything_is_embedded_or_charged(
    folder, cli, error_line
):
    put(folder, "another label")
    line = error_line(cli("train", "mails.csv", *TRAIN))
    assert "at least one is not" in line
    assert "dppl check" in line
    assert (charges(folder), (folder / "m.safetensors.work").exists()) == (0, False)
    # Also of a text that only the encoder refuses: labels are compared before it loads.
    put(folder, "a text that the encoder cannot prepare")
    content = (folder / "mails.csv").read_text()
    (folder / "mails.csv").write_text(content.replace("odd Jane,cat", "odd Jane,Jane"))
    assert "at least one is not" in error_line(cli("train", "mails.csv", *TRAIN))


@pytest.mark.parametrize("command", ["train", "check", "embed", "predict", "evaluate"])
def test_another_encoding_stops_every_command_until_it_is_named(
    command, folder, cli, error_line
):
    (folder / "mails.csv").write_text(rows_of())
    if command in ("predict", "evaluate"):
        assert cli("train", "mails.csv", *TRAIN).exit_code == 0
    (folder / "german.csv").write_bytes(
        rows_of(("Müller", "cat"), delimiter=";").encode("cp1252")
    )
    arguments = {
        "train": ["german.csv", *TRAIN],
        "check": ["german.csv", "--classes", "classes.txt"],
        "embed": ["german.csv", "--encoder", "letters", "--out", "table"],
    }.get(command, ["m.safetensors", "german.csv"])
    before = charges(folder)
    result = cli(command, *arguments)
    assert (result.exit_code, charges(folder)) == (4, before)
    assert error_line(result).startswith(
        "--read encoding must name the encoding of german.csv, which is not utf-8. Spread"
    )
    result = cli(command, *arguments, "--read", "encoding=cp1252")
    assert result.exit_code == 0


def test_the_pool_is_utf_8(folder, cli, error_line):
    (folder / "mails.csv").write_text(rows_of())
    (folder / "pool.csv").write_bytes("text\nschön\n".encode("latin-1"))
    line = error_line(
        cli(
            "train",
            "mails.csv",
            *TRAIN,
            "--public",
            "pool.csv",
            "--read",
            "encoding=utf-8",
        )
    )
    assert line.startswith("pool.csv: encoding must name the encoding")


# Tables of embeddings

SPLIT = ("--out", "train.csv", "test.csv")
SPLIT_OF_TABLE = ("--out", "train.npz", "test.npz")
FIT = ("--classes", "classes.txt", "--out", "m.safetensors", "--mu", "0.2", *LEDGER)
X = np.eye(6, 8)


@pytest.mark.parametrize(
    "relation", [[], ["--options", "adjacency=replace-one", "--method", "mean"]]
)
@pytest.mark.parametrize("fault", ["a row of zeros", "a row of NaN", "another label"])
def test_a_strict_fit_stops_before_the_charge_by_one_message(
    fault, relation, folder, cli, error_line
):
    rows = X.copy()
    names = list(LABELS)
    if fault == "another label":
        names[2] = "Jane"
    else:
        rows[2] = np.nan if fault == "a row of NaN" else 0
    write_table(folder / "t.npz", rows, np.array(names))
    ledger = ["--ledger", "other.db", "wards"]
    Ledger(
        folder / "other.db",
        "wards",
        GaussianDP(1),
        adjacency="replace-one" if relation else "add-remove",
    )
    result = cli("fit", "t.npz", *FIT[:-3], *ledger, "--unusable", "stop", *relation)
    assert (result.exit_code, error_line(result)) == (4, STRICT)
    assert len(Ledger(folder / "other.db", "wards").releases()) == 0


def test_a_fit_says_last_what_its_owner_must_see(folder, cli):
    write_table(folder / "t.npz", X, np.array(LABELS))
    result = cli("fit", "t.npz", *FIT, "--unusable", "stop")
    last = result.stdout.splitlines()[-1]
    assert last.startswith(
        "Before you trust the model, the owner of the records must read"
    )
    assert "dppl check TABLE --classes FILE" in last
    check = cli("check", "t.npz", "--classes", "classes.txt").stdout
    assert "GO: a fit uses 6 of 6 records.\n" in check


def test_a_strict_fit_wants_a_whole_table(folder):
    write_table(folder / "t.parquet", X, np.array(LABELS))
    parted = dppl.io.read_parts(folder / "t.parquet")
    with pytest.raises(DpplError, match=r"^strict looks at all records"):
        dppl.SoftmaxPrototypes(GaussianDP(1), CLASSES, unknown_labels="strict").fit(
            parted
        )


def test_strict_in_python(letters):
    model = PrivateClassifier("letters", GaussianDP(1), CLASSES)
    assert (
        Term(Caveat.STRICT_STOP)
        in model.set_params(unknown_labels="strict")
        .fit(TEXTS, LABELS)
        .guarantee_.not_covered
    )
    for texts, labels in (([*TEXTS[:5], ""], LABELS), (TEXTS, [*LABELS[:5], "Jane"])):
        with pytest.raises(DpplError) as caught:
            model.fit(texts, labels)
        assert str(caught.value) == f"strict {NOT_ALL_USABLE}"
    assert (
        Term(Caveat.STRICT_STOP)
        not in model.set_params(unknown_labels="error")
        .fit(TEXTS, LABELS)
        .guarantee_.not_covered
    )
    with pytest.raises(DpplError, match=r"^options must not hold unknown_labels"):
        model.set_params(options={"unknown_labels": "strict"}).fit(TEXTS, LABELS)


def test_items_are_checked_before_they_are_embedded(letters, monkeypatch):
    monkeypatch.setattr(
        "dppl.training.classifier.embed_items",
        lambda *_, **__: pytest.fail("it was embedded"),
    )
    for unknown, texts, labels in (
        ("error", TEXTS, [*LABELS[:5], "Jane"]),
        ("strict", [*TEXTS[:5], ""], LABELS),
    ):
        model = PrivateClassifier(
            "letters", GaussianDP(1), CLASSES, descriptions={}, unknown_labels=unknown
        )
        with pytest.raises(DpplError, match="at least one"):
            model.set_params(descriptions=None).fit(texts, labels)


@pytest.mark.parametrize(
    "kind", [ContinualDiscriminant, ContinualEnsemble, ContinualPrototypes]
)
def test_a_strict_task_of_a_stream_can_be_checked_before_the_charge(kind, folder):
    ledger = Ledger(folder / "ledger.db", "wards")
    model = kind(GaussianDP(0.2), CLASSES, unknown_labels="strict")
    model.partial_fit(X, LABELS, ledger=ledger, partition="one")
    assert Term(Caveat.STRICT_STOP) in model.guarantee_.not_covered
    for rows, labels in (
        (X, [*LABELS[:5], "Jane"]),
        (np.vstack([X[:5], X[5:] * np.nan]), LABELS),
    ):
        for step in (model.check, model.partial_fit):
            with pytest.raises(DpplError) as caught:
                step(rows, labels)
            assert str(caught.value) == f"strict {NOT_ALL_USABLE}"
    assert (model.n_tasks_, charges(folder)) == (1, 1)


def test_a_strict_evaluation_in_python(folder):
    model = dppl.MeanPrototypes(GaussianDP(1), CLASSES).fit(X, LABELS)
    ledger = Ledger(folder / "ledger.db", "wards")
    for rows, labels in (
        (X, [*LABELS[:5], "Jane"]),
        (np.vstack([X[:5], X[5:] * np.nan]), LABELS),
    ):
        with pytest.raises(DpplError) as caught:
            dppl.evaluate(
                model,
                rows,
                labels,
                GaussianDP(0.1),
                ledger=ledger,
                unknown_labels="strict",
            )
        assert str(caught.value) == f"strict {NOT_ALL_USABLE}"
        assert charges(folder) == 0
        found = dppl.evaluate(model, rows, labels, GaussianDP(0.1))
        assert Term(Caveat.STRICT_STOP) not in found.guarantee.not_covered
    found = dppl.evaluate(
        model, X, LABELS, GaussianDP(0.1), ledger=ledger, unknown_labels="strict"
    )
    assert Term(Caveat.STRICT_STOP) in found.guarantee.not_covered
    assert charges(folder) == 1
    with pytest.raises(DpplError, match=r"^unknown_labels must be one of"):
        dppl.evaluate(model, X, LABELS, GaussianDP(0.1), unknown_labels="error")


def test_a_fit_is_strict_in_one_way(folder, cli, error_line):
    write_table(folder / "t.npz", X, np.array(LABELS))
    result = cli(
        "fit", "t.npz", *FIT, "--unusable", "stop", "--options", "unknown_labels=ignore"
    )
    assert (result.exit_code, error_line(result)) == (
        2,
        "--unusable stop sets unknown_labels itself; leave that out of --options.",
    )


# Every command that reads records


EVALUATE = ("--mu", "0.2", *LEDGER)
# What is typed, and what it would write.
READERS = {
    "train": (["train", "mails.csv", *TRAIN], ["m.safetensors", "m.safetensors.work"]),
    "fit": (["fit", "t.npz", *FIT], ["m.safetensors"]),
    "embed": (
        ["embed", "mails.csv", "--encoder", "letters", "--out", "table"],
        ["table", "table.report.jsonl"],
    ),
    "split": (
        ["split", "mails.csv", "--test", "0.5", *SPLIT],
        ["train.csv", "test.csv"],
    ),
    "split of a table": (
        ["split", "t.npz", "--test", "0.5", *SPLIT_OF_TABLE],
        ["train.npz", "test.npz"],
    ),
    "evaluate texts": (
        ["evaluate", "public.safetensors", "mails.csv", *EVALUATE, "--out", "e.json"],
        ["e.json"],
    ),
    "evaluate a table": (
        ["evaluate", "plain.safetensors", "t.npz", *EVALUATE, "--out", "e.json"],
        ["e.json"],
    ),
    "evaluate a class list": (
        [
            "evaluate",
            "classes.txt",
            "mails.csv",
            "--x",
            "label",
            "--y",
            "label",
            *EVALUATE,
        ],
        [],
    ),
    "evaluate for the owner": (["evaluate", "public.safetensors", "mails.csv"], []),
}


@pytest.fixture
def readers(folder, letters):
    """Write records of which one cannot be used, or of which all but one cannot."""
    rows = dppl.io.EmbeddingTable.of(
        np.eye(6, 27, dtype=np.float32),
        metadata={"encoder": letters.fingerprint.text()},
    )
    dppl.MeanPrototypes(GaussianDP(1), CLASSES).fit(rows, LABELS).save(
        folder / "public.safetensors"
    )
    dppl.MeanPrototypes(GaussianDP(1), CLASSES).fit(np.asarray(rows), LABELS).save(
        folder / "plain.safetensors"
    )

    def write(n_bad):
        bad = [("\0", "Jane")] * n_bad  # neither the text nor the label can be used
        (folder / "mails.csv").write_text(rows_of(*bad))
        table = np.vstack([np.eye(6, 27), np.zeros((n_bad, 27))])
        write_table(folder / "t.npz", table, np.array([*LABELS, *["cat"] * n_bad]))

    return write


@pytest.mark.parametrize("name", READERS)
def test_every_command_stops_where_it_is_asked_to_and_only_there(
    name, folder, readers, cli, error_line, terminal
):
    arguments, outputs = READERS[name]
    answer, shown = terminal
    for n_bad in (1, 60):  # one bit
        readers(n_bad)
        result = cli(*arguments, "--unusable", "stop")
        assert (result.exit_code, error_line(result)) == (4, STRICT)
    # Under review one record that cannot be used is a question, and 60 are an error,
    # which waits for no answer.
    answer("no")
    result = cli(*arguments, "--unusable", "ask")
    assert (result.exit_code, error_line(result)) == (4, f"--unusable ask {HARDLY_ANY}")
    shown(until="6 of 66 records")
    readers(1)
    result = cli(*arguments, "--unusable", "ask")
    assert (result.exit_code, result.stdout, result.stderr) == (
        130,
        "",
        "dppl: interrupted. Nothing was charged.\n",
    )
    assert (
        charges(folder),
        [path for path in outputs if (folder / path).exists()],
    ) == (0, [])
    shown(until="6 of 7 records")
    # With neither, and with a yes, it goes on, and says nothing of the records but to
    # their owner.
    answer("yes")
    ignored = ["--options", "unknown_labels=ignore"] if name == "train" else []
    result = cli(*arguments, *ignored, "--unusable", "ask")
    assert (result.exit_code, result.stderr) == (0, "")
    shown(until="6 of 7 records")
    if name == "evaluate for the owner":
        return
    last = result.stdout.splitlines()[-1]
    assert last.startswith("Before you trust ")
    assert "the owner of the records must read " in last
    assert "6 of 7" not in result.stdout


@pytest.mark.parametrize("name", READERS)
def test_without_a_terminal_a_review_reads_nothing(
    name, folder, readers, cli, error_line, monkeypatch
):
    monkeypatch.setattr(_owner, "_TERMINAL", "/nowhere/tty")
    result = cli(*READERS[name][0], "--unusable", "ask")  # and there is nothing to read
    assert (result.exit_code, charges(folder)) == (2, 0)
    assert error_line(result).startswith(
        "--unusable ask shows private counts on a terminal and asks there"
    )


def test_records_are_checked_before_the_encoder_is_loaded(readers, cli, monkeypatch):
    readers(1)
    for target in (
        "dppl.encoders.load_encoder",
        "dppl.prediction.predictor.load_predictor",
    ):
        monkeypatch.setattr(target, lambda *_, **__: pytest.fail("it was loaded"))
    for name in ("embed", "evaluate texts", "evaluate for the owner"):
        assert cli(*READERS[name][0], "--unusable", "stop").exit_code == 4


def test_a_strict_run_of_good_records_goes_on(folder, readers, cli):
    readers(0)
    assert cli(*READERS["evaluate texts"][0], "--unusable", "stop").exit_code == 0
    assert (
        Term(Caveat.STRICT_STOP).to_dict()
        in json.loads((folder / "e.json").read_text())["guarantee"]["not_covered"]
    )
    for name in ("embed", "split", "split of a table"):
        assert cli(*READERS[name][0], "--unusable", "stop").exit_code == 0


def test_json_stays_json_under_review(readers, cli, terminal):
    readers(1)
    answer, shown = terminal
    answer("yes")
    result = cli(*READERS["evaluate texts"][0], "--unusable", "ask", "--json")
    assert json.loads(result.stdout)["n"]
    assert result.stderr.startswith("Before you trust these numbers")
    shown(until="6 of 7 records")


# --unusable ask


def shown_on(terminal, until):
    text = ""
    while (
        until not in text
    ):  # a terminal hands on what was written in pieces, and not at once
        assert select.select([terminal], [], [], 30)[0], (
            f"{until!r} never came; the terminal shows {text!r}"
        )
        text += os.read(terminal, 1 << 16).decode()
    return text


@pytest.fixture
def terminal(monkeypatch):
    """A terminal in the place of the one that controls the process; returns what writes to it and reads from it."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(_owner, "_TERMINAL", os.ttyname(theirs))

    def answer(text):
        os.write(ours, f"{text}\n".encode())

    # Of a process that leads a session without a terminal, this one takes control:
    # closing it would end the run.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield answer, functools.partial(shown_on, ours)
    os.close(ours)
    os.close(theirs)
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("command", ["train", "fit"])
def test_a_review_is_on_the_terminal_alone_and_no_stops_before_the_charge(
    command, folder, cli, terminal
):
    answer, shown = terminal
    put(folder, "ragged")
    write_table(
        folder / "t.npz", np.vstack([X, np.zeros(8)]), np.array([*LABELS, "cat"])
    )
    arguments = [
        command,
        *(("mails.csv", *TRAIN) if command == "train" else ("t.npz", *FIT)),
        "--unusable",
        "ask",
    ]
    answer("no")
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "dppl: interrupted. Nothing was charged.\n"
    assert charges(folder) == 0
    shown(until="Go on with these records?")
    answer("yes")
    result = cli(*arguments)
    assert result.exit_code == 0
    assert charges(folder) == 1
    report = shown(until="Go on with these records?")
    assert "GO: a fit uses 6 of 7 records." in report
    assert "for the data owner's eyes only" in report.lower()
    assert ("than the encoder reads, 2 windows of 64 tokens" in report) == (
        command == "train"
    )
    for stream in (result.stdout, result.stderr):
        assert "6 of 7" not in stream
        assert "longer" not in stream
        assert "unusable" not in stream


@pytest.mark.slow
def test_the_terminal_is_the_one_that_controls_the_process(folder):
    """Not stdout, nor stderr, which are pipes here."""
    write_table(folder / "t.npz", X, np.array(LABELS))
    ours, theirs = pty.openpty()
    os.write(ours, b"yes\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "dppl", "fit", "t.npz", *FIT, "--unusable", "ask"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        pass_fds=[theirs],
        text=True,
    )
    out, err = process.communicate(timeout=120)
    shown_on(ours, until="6 of 6 records")
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, err) == (0, "")
    assert "6 of 6" not in out
