"""What is paid for is written, or shows before it is paid; and the ledger tells one from the other."""

import errno
import json
import os
import shutil
from hashlib import sha256

import pytest

import dppl
from dppl.kernel.privacy.ledger import CHARGED, RELEASED, UNSAVED, Ledger

BUDGET = ["--mu", "1"]


@pytest.fixture
def wards(task, monkeypatch):
    monkeypatch.chdir(task.folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(task.folder / "state"))
    Ledger(task.folder / "ledger.db", "wards", dppl.GaussianDP(9))
    return task.folder / "ledger.db"


@pytest.fixture
def fit(task, wards, cli):
    def run(out, *options):
        return cli(
            *("fit", task.table, "--classes", task.classes, *BUDGET, "--out", out),
            *("--ledger", wards, "wards", *options),
        )

    return run


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def charges(file):
    return [(one["status"], one["model_sha256"]) for one in Ledger(file, "wards").releases()]  # fmt: skip


def shown(cli, wards):
    table = cli("ledger", "show", wards, COLUMNS="200").stdout
    (book,) = json.loads(cli("ledger", "show", wards, "--json").stdout)
    return table, [(one["status"], one["model_sha256"]) for one in book["releases"]]


@pytest.mark.parametrize(
    ("out", "code", "words"),
    [
        ("/proc/m.safetensors", 4, "/proc/m.safetensors: "),
        ("absent/m.safetensors", 2, "existing folder"),
        ("here.safetensors", 2, "is a folder"),
        (f"{'m' * 250}.safetensors", 4, "too long"),
        ("loop.safetensors", 4, "symbolic links"),
        ("read-only.safetensors", 4, "is read-only"),
        ("to-read-only.safetensors", 4, "is read-only"),
        ("m.pkl", 2, "must end in .safetensors"),
        ("m.joblib", 2, "must end in .safetensors"),
        ("m", 2, "must end in .safetensors"),
        ("ledger.db", 2, "must not be a file that is read"),
    ],
)
def test_an_output_that_cannot_be_written_shows_before_the_charge(
    out, code, words, task, wards, fit, error_line
):
    (task.folder / "here.safetensors").mkdir()
    (task.folder / "loop.safetensors").symlink_to("loop.safetensors")
    (task.folder / "read-only.safetensors").write_text("kept")
    (task.folder / "read-only.safetensors").chmod(0o444)
    (task.folder / "to-read-only.safetensors").symlink_to("read-only.safetensors")
    result = fit(out, "--force")
    assert result.exit_code == code
    assert words in error_line(result)
    assert charges(wards) == []
    assert (task.folder / "read-only.safetensors").read_text() == "kept"
    assert fit("m.safetensors", "--force").exit_code == 0  # the control
    assert len(charges(wards)) == 1


def test_a_full_disk_shows_before_the_charge(task, wards, fit, monkeypatch, error_line):
    monkeypatch.setattr(os, "posix_fallocate", full)
    result = fit("m.safetensors")
    assert result.exit_code == 4
    assert error_line(result) == (
        "m.safetensors: No space left on device. Make room there, or choose a place on another disk. Nothing was "
        "charged."
    )
    assert charges(wards) == []
    assert not [name for name in os.listdir(task.folder) if "m.safe" in name]


def test_a_model_that_cannot_be_written_is_kept_and_the_ledger_says_so(
    task, wards, fit, cli, monkeypatch, error_line
):
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(os, "replace", full)
        result = fit("m.safetensors")
    assert result.exit_code == 4
    (kept,) = (task.folder / "state" / "dppl").iterdir()
    assert str(kept) in error_line(result)
    assert "wards, release 1" in error_line(result)
    digest = sha256(kept.read_bytes()).hexdigest()
    table, books = shown(cli, wards)
    assert "not saved" in table
    assert digest[:12] not in table
    assert books == [(UNSAVED, None)]
    assert cli("predict", kept, task.table).exit_code == 0

    shutil.move(kept, "m.safetensors")
    assert cli("ledger", "saved", wards, "wards", "m.safetensors").exit_code == 0
    table, books = shown(cli, wards)
    assert "not saved" not in table
    assert digest[:12] in table
    assert books == [(RELEASED, digest)]


def test_only_the_file_of_a_charge_can_be_recorded(
    task, wards, fit, cli, monkeypatch, error_line
):
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(os, "replace", full)
        fit("m.safetensors")
    free = cli(
        *("fit", task.table, "--classes", task.classes, *BUDGET, "--out", "o.safetensors")
    )  # fmt: skip
    assert free.exit_code == 0
    result = cli("ledger", "saved", wards, "wards", "o.safetensors")
    assert result.exit_code == 4
    assert "no charge of wards" in error_line(result)
    assert [status for status, _ in charges(wards)] == [UNSAVED]


def test_a_fit_that_ends_before_its_model_is_unfinished_and_leaves_no_file(
    task, wards, fit, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(dppl.SoftmaxPrototypes, "learn", full)
        assert fit("m.safetensors").exit_code == 4
    assert charges(wards) == [(CHARGED, None)]
    assert not [name for name in os.listdir(task.folder) if name[0] == "."]


@pytest.fixture
def evaluate(task, wards, cli):
    assert cli(
        *("fit", task.table, "--classes", task.classes, *BUDGET, "--out", "m.safetensors")
    ).exit_code == 0  # fmt: skip

    def run(out):
        return cli(
            *("evaluate", "m.safetensors", task.table, *BUDGET, "--out", out),
            *("--ledger", wards, "wards"),
        )

    return run


@pytest.mark.parametrize(
    ("command", "out"),
    [
        (["fit", "train.npz", "--classes", "classes.txt", *BUDGET], "n.safetensors"),
        (["evaluate", "m.safetensors", "train.npz", *BUDGET], "e.json"),
        (["predict", "m.safetensors", "train.npz"], "l.csv"),
    ],
)
def test_an_error_of_a_place_says_what_to_do_and_that_nothing_was_charged(
    command, out, wards, fit, cli, monkeypatch, error_line
):
    assert fit("m.safetensors").exit_code == 0
    there = cli(*command, "--out", f"/proc/{out}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        patch.setattr(os, "fsync", full)
        no_room = cli(*command, "--out", out)
    for result, advice in (
        (there, "Choose a place that can be written to. Nothing was charged."),
        (no_room, "Make room there, or choose a place on another disk. Nothing was charged."),
    ):  # fmt: skip
        assert result.exit_code == 4
        assert error_line(result).endswith(advice)
    assert cli(*command, "--out", out).exit_code == 0  # the control


@pytest.mark.parametrize("out", ["/proc/e.json", "e.csv", "ledger.db"])
def test_an_evaluation_that_cannot_be_written_shows_before_the_charge(
    out, wards, evaluate
):
    assert evaluate(out).exit_code in (2, 4)
    assert charges(wards) == []


def test_an_evaluation_is_saved_or_kept(
    task, wards, evaluate, cli, monkeypatch, error_line
):
    assert evaluate("e.json").exit_code == 0
    digest = sha256((task.folder / "e.json").read_bytes()).hexdigest()
    assert charges(wards) == [(RELEASED, digest)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(os, "replace", full)
        result = evaluate("other.json")
    assert result.exit_code == 4
    (kept,) = (task.folder / "state" / "dppl").iterdir()
    assert str(kept) in error_line(result)
    assert json.loads(kept.read_text())["accuracy"]
    assert charges(wards)[1] == (UNSAVED, None)
    saved = cli("ledger", "saved", wards, "wards", kept)
    assert saved.exit_code == 0
    assert charges(wards)[1][0] == RELEASED
