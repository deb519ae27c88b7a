"""Commands that are killed before any change of a directory or ledger: typed again they leave the files of one run."""

import os

import numpy as np
import pytest

import dppl
from dppl.kernel.privacy.ledger import RELEASED
from killing import killed_everywhere, needs_fork, typed
from system.cli.test_cli_finetune import NETWORK, write_task

X = np.random.default_rng(0).standard_normal((40, 8)).astype("float32")
Y = np.repeat(["a", "b"], 20)
PHOTOS = ["photos", "--classes", "classes.txt", "--mu", "0.1"]
PAID = ["--out", "m.safetensors", "--ledger", "ledger.db", "wards"]
COMMANDS = {
    "split": ["t.csv", "--test", "0.3", "--out", "train.csv", "test.csv"],
    "merge": ["n.safetensors", "s.safetensors", "--out", "both.safetensors"],
    "show": ["n.safetensors", "--out", "page.html"],
    "embed": ["photos", "--encoder", NETWORK, "--out", "table"],
    "train": [*PHOTOS, "--encoder", NETWORK, *PAID],
    "finetune": [
        *(*PHOTOS, "--network", NETWORK, "--n-records", "24", *PAID),
        *("--options", "train=head", "--options", "epochs=2"),
    ],
}
# Moments between two that are tried, where there are many.
STRIDES = {"embed": 3, "train": 4, "finetune": 6}
CHARGES = "[one['status'] for one in Ledger('ledger.db', 'wards').releases()]"


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "prepared"
    folder.mkdir()
    dppl.Ledger(folder / "ledger.db", "wards", dppl.GaussianDP(9))
    return folder


def names(state):
    return {name for name in state.files if "ran" not in name}


def check(killed, whole, before):
    """Raise unless there is one run's worth of files after a repeat, whose code says whether they were there."""
    outs = names(whole) - before
    for one in killed:
        assert names(one.repeated) == names(whole), one.repeated.text
        if one.repeated.code:
            assert outs <= names(one.killed)
            assert "exists; choose another name" in one.repeated.text
    assert any(outs - names(one.killed) for one in killed)


@needs_fork
@pytest.mark.parametrize("command", ["split", "merge", "show"])
def test_a_killed_command_leaves_nothing_hidden_and_no_half(
    command, prepared, tmp_path
):
    rows = [f"word{row},{'ab'[row % 2]}" for row in range(40)]
    (prepared / "t.csv").write_text("\n".join(["text,label", *rows, ""]))
    for name in "ns":
        model = dppl.MeanPrototypes(dppl.GaussianDP(0.1), classes=["a", "b"])
        model.fit(X, Y).save(prepared / f"{name}.safetensors")
    killed, whole = killed_everywhere(
        tmp_path,
        typed(command, *COMMANDS[command]),
        imports="import dppl.cli.main, dppl.federation",
    )
    check(killed, whole, set(os.listdir(prepared)))


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("command", STRIDES)
def test_a_killed_training_goes_on_or_had_ended_and_a_fine_tuning_pays_once(
    command, prepared, torch, tmp_path, monkeypatch
):
    monkeypatch.chdir(prepared)
    write_task(torch, prepared)
    before = {str(one.relative_to(prepared)) for one in prepared.rglob("*")}
    monkeypatch.undo()
    killed, whole = killed_everywhere(
        tmp_path,
        typed(command, *COMMANDS[command]),
        imports="import torch, dppl.cli.main, dppl.finetune.tune; from dppl import Ledger",
        look=CHARGES,
        stride=STRIDES[command],
    )
    check(killed, whole, before)
    for one in killed:
        charges = one.repeated.seen
        assert charges[-1:] == [RELEASED] * (command != "embed")
        # A fit that was killed before its model was saved draws other noise, and pays.
        if command == "finetune" or RELEASED in one.killed.seen:
            assert len(charges) == len(whole.seen)
