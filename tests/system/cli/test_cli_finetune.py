"""`dppl finetune`, and what `dppl predict`, `evaluate` and `show` make of its models. Leaks: test_cli_leaks.py."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import invoke
from dppl import ApproxDP, GaussianDP, Ledger, load
from dppl.errors import InputError, ModelFileError, ParameterError
from dppl.finetune import Recipe, SparseFinetuner
from dppl.finetune.checkpoint import Checkpoint
from dppl.finetune.networks import load_network
from dppl.kernel.privacy.terms import Unit
from dppl.serve import open_model
from dppl.training import PrivateClassifier, embedding
from overhearing import overheard
from system.cli.conftest import last_of_each

CLASSES = ("blue", "green", "red")
COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
CODE = """
from pathlib import Path

import torch

Path("ran").touch()

def make():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3), torch.nn.GroupNorm(2, 6), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(24, 4),
    )
"""
NETWORK = "python:net.py:make@net.safetensors?size=6&mean=0.5,0.5,0.5"
FINETUNE = [
    *(
        "finetune",
        "photos",
        "--network",
        NETWORK,
        "--classes",
        "classes.txt",
        "--out",
        "m.safetensors",
    ),
    *(
        "--n-records",
        "24",
        "--options",
        "train=head,norm,conv",
        "--options",
        "epochs=12",
        "--options",
        "block=8",
        "--options",
        "head_learning_rate=2",
    ),
]
EXACT = [
    "--mu",
    "9000",
    "--weak",
    "--options",
    "random_state=3",
    "--options",
    "epochs=80",
]  # hardly any noise


def write_images(folder, seed):
    rng = np.random.default_rng(seed)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.clip(colour + rng.integers(-20, 20, (9, 7, 3)), 0, 255).astype(
                np.uint8
            )
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def write_task(torch, folder):
    """Write private and new images, a class list and a public network into the current folder."""
    from safetensors.torch import save_file

    write_images(folder / "photos", 0)
    write_images(folder / "new", 1)
    (folder / "photos" / "red" / "odd.png").write_text("no image")
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    (folder / "net.py").write_text(CODE)
    names = {}
    exec(CODE, names)
    torch.manual_seed(0)
    save_file(names["make"]().state_dict(), "net.safetensors")
    (folder / "ran").unlink()


@pytest.fixture
def photos(torch, tmp_path, monkeypatch):
    """A folder with private and new images, a class list and a public network, in which commands run."""
    monkeypatch.chdir(tmp_path)
    write_task(torch, tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def trained_once(torch, tmp_path_factory):
    """Such a folder, and a model in it that was trained with hardly any noise."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_task(torch, folder)
        assert invoke(last_of_each([*FINETUNE, *EXACT])).exit_code == 0
    return folder


@pytest.fixture
def trained(trained_once, tmp_path, monkeypatch):
    """A copy of that folder, in which commands run."""
    monkeypatch.chdir(shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True))
    return tmp_path


def run(cli, *arguments):
    result = cli(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


# From images to labels.


def test_it_trains_and_leaves_the_model_and_the_owners_list(photos, cli):
    shown = run(cli, *FINETUNE, *EXACT).stdout
    assert shown.startswith(
        "SparseFinetuner: 3 classes, trained head, norm, conv. Saved to m.safetensors. Next: "
    )
    assert "Next: dppl predict m.safetensors DATA --encoder URI" in shown
    given = {"photos", "new", "classes.txt", "net.py", "net.safetensors", "__pycache__"}
    left = {path.name for path in photos.iterdir()} - given
    assert left == {"ran", "m.safetensors", "m.safetensors.private.jsonl"}
    report = photos / "m.safetensors.private.jsonl"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "red/odd.png" in report.read_text()


def test_its_model_is_served(trained, cli):
    served = open_model(Path("m.safetensors"), NETWORK)
    assert (served.about.takes, served.about.features) == (["images"], None)
    labels = dict(
        line.split(",")
        for line in run(
            cli, "predict", "m.safetensors", "new", "--encoder", NETWORK
        ).stdout.split()
    )
    del labels["id"]
    for name, label in labels.items():
        prepared, reason = served.prepare(Path("new", name).read_bytes(), 100)
        (row,) = served.encoder.encode_prepared([prepared])
        found = served.prediction(row, 1, True)
        assert (reason, found.label) == (None, label)
        assert sum(found.probabilities) == pytest.approx(1)
    with pytest.raises(
        ParameterError, match="encoder must not be none for a model of `dppl finetune`"
    ):
        open_model(Path("m.safetensors"), "none")


def test_its_model_predicts_and_evaluates(trained, cli):
    lines = run(
        cli, "predict", "m.safetensors", "new", "--encoder", NETWORK
    ).stdout.splitlines()
    assert lines[0] == "id,label"
    assert sum(line.split("/")[0] == line.split(",")[1] for line in lines[1:]) > 20
    found = json.loads(
        run(
            cli, "evaluate", "m.safetensors", "new", "--encoder", NETWORK, "--json"
        ).stdout
    )
    assert (found["n"], found["n_unusable"]) == (24, 0)
    assert found["accuracy"] > 0.8
    assert [entry["class"] for entry in found["per_class"]] == list(CLASSES)
    evaluate = [
        "evaluate",
        "m.safetensors",
        "new",
        "--encoder",
        NETWORK,
        "--mu",
        "1000",
        "--weak",
        "--json",
    ]
    private = json.loads(run(cli, *evaluate).stdout)
    assert private["accuracy"]["value"] == pytest.approx(found["accuracy"], abs=0.01)
    assert (
        private["model_sha256"]
        == sha256(Path("m.safetensors").read_bytes()).hexdigest()
    )
    first = private["guarantee"]["assumptions"][0]
    assert first == {"code": "predicted_one_by_one"}


def test_the_command_trains_what_the_library_trains(trained, cli):
    network = load_network(NETWORK)
    model = SparseFinetuner.load("m.safetensors", network.module)
    table = [
        (np.asarray(network.encode([Image.open(path)]), np.float16), path.parent.name)
        for name in CLASSES
        for path in sorted((trained / "photos" / name).glob("[0-9].png"))
    ]
    again = SparseFinetuner(
        network.module, GaussianDP(9000), CLASSES, random_state=3,
        recipe=Recipe(epochs=80, batch_size=24, block=8, head_learning_rate=2.0),
    )  # fmt: skip
    again.fit(
        network.inputs(np.concatenate([row for row, _ in table])),
        [name for _, name in table],
    )
    for name, tensor in again.module_.state_dict().items():
        assert np.allclose(tensor, model.module_.state_dict()[name], atol=1e-4)


def test_a_model_says_what_it_is(trained, cli):
    shown = " ".join(run(cli, "show", "m.safetensors").stdout.split())
    for fact in (
        "trained weights 89",
        "steps 80",
        "noise multiplier 0.000993808",
        "'batch_size': 24.0",
    ):
        assert fact in shown
    assert "python:net.py:make@net.safetensors" in shown
    assert "NOT FOR RELEASE" in run(cli, "show", "m.safetensors", "--for", "hub").stdout
    card = run(cli, "show", "m.safetensors", "--for", "hub").stdout
    for row in ("trained weights | 89", "steps | 80", "noise multiplier | 0.000993808"):
        assert f"| {row} |" in card
    assert "'clip': 1.0" in card  # of the recipe
    assert re.search(r"\| software \| .*, torch \d", card)
    assert 'tags: ["differential-privacy", "classification", "images"]' in card
    assert (
        "dppl predict model.safetensors images/ --encoder 'python:net.py:make@net.safetensors?"
        in card
    )
    content = json.loads(run(cli, "show", "m.safetensors", "--json").stdout)
    assert (content["estimator"], content["n_trained"], content["n_steps"]) == (
        "SparseFinetuner",
        89,
        80,
    )
    assert not (trained / "ran").unlink()
    run(cli, "show", "m.safetensors")
    assert not (trained / "ran").exists()  # and no code of the network runs for it


def test_the_statement_obeys_the_schema(trained, cli):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(
        (Path(__file__).parents[3] / "docs" / "statement.schema.json").read_text(
            encoding="utf-8"
        )
    )
    validator = jsonschema.Draft202012Validator(schema)
    content = json.loads(run(cli, "show", "m.safetensors", "--json").stdout)
    assert not list(validator.iter_errors(content))
    assert list(
        validator.iter_errors(
            {**content, "lattice": {"n_features": 3, "pool": 1, "rotation": None}}
        )
    )
    assert list(
        validator.iter_errors(
            {name: value for name, value in content.items() if name != "module"}
        )
    )


def test_batches_are_sampled_by_default_where_the_budget_knows_that(photos, cli):
    run(cli, *FINETUNE, "--epsilon", "5", "--delta", "1e-5", "--options", "epochs=1")
    (release,) = json.loads(run(cli, "show", "m.safetensors", "--json").stdout)[
        "guarantee"
    ]["releases"]
    assert release["parameters"]["sampling_rate"] == pytest.approx(0.1)
    assert release["times"] == 10
    run(
        cli,
        *FINETUNE,
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
        "--options",
        "epochs=1",
        "--force",
        "--options",
        "sampling_rate=1",
    )
    (release,) = json.loads(run(cli, "show", "m.safetensors", "--json").stdout)[
        "guarantee"
    ]["releases"]
    assert "mu" in release["cost"]


def test_labels_may_stand_in_a_file(photos, cli):
    (photos / "labels.csv").write_text(
        "file,label\nred/1.png,red\ngreen/2.png,green\nblue/3.png,blue\n"
    )
    run(
        cli,
        *FINETUNE,
        *EXACT,
        "--read",
        "labels=labels.csv",
        "--options",
        "train=head,conv",
        "--options",
        "sparsity=0.5",
    )
    assert "['conv', 'head']" in run(cli, "show", "m.safetensors").stdout


def test_persons_are_named_as_for_a_fit(photos, cli):
    names = [f"{label}/{number}.png" for label in CLASSES for number in range(8)]
    labels = [name.split("/")[0] for name in names]
    patients = [f"Jane-Doe-{place % 5}" for place in range(24)]
    lines = map(",".join, zip(names, labels, patients, strict=True))
    (photos / "labels.csv").write_text("\n".join(["file,label,patient", *lines]))
    command = [
        *FINETUNE,
        "--mu",
        "1",
        "--options",
        "random_state=3",
        "--read",
        "labels=labels.csv",
    ]
    command += ["--groups", "patient", "--ledger", "ledger.db", "wards"]
    run(cli, "ledger", "create", "ledger.db", "wards", "--mu", "1")
    assert (
        "is accounted by the record, but this release protects a person"
        in cli(*command).stderr
    )
    assert not (
        photos / "m.safetensors.work"
    ).exists()  # which was said before an image was read
    (photos / "ledger.db").unlink()
    run(cli, "ledger", "create", "ledger.db", "wards", "--mu", "1", "--unit", "person")
    said = run(cli, *command)
    network = load_network(NETWORK)
    content = (photos / "m.safetensors").read_bytes()
    model = SparseFinetuner.load("m.safetensors", network.module)
    assert model.guarantee_.unit == Unit.PERSON
    X = np.float16(
        [network.encode([Image.open(photos / "photos" / name)])[0] for name in names]
    )
    trained = {}
    for groups in (patients, None):
        again = SparseFinetuner(**model.get_params() | {"random_state": 3})
        again.fit(network.inputs(X), labels, groups=groups)
        trained[again.guarantee_.unit] = again.module_.state_dict()["5.weight"].numpy()
    assert np.allclose(
        trained[Unit.PERSON], model.module_.state_dict()["5.weight"].numpy(), atol=1e-4
    )
    assert not np.allclose(trained[Unit.RECORD], trained[Unit.PERSON], atol=1e-2)
    left = [content, *(path.read_bytes() for path in photos.glob("*.db"))]
    assert not any(
        b"Jane" in one or b"patient" in one for one in [*left, said.output.encode()]
    )


def test_a_ledger_pays_once(photos, cli):
    run(cli, "ledger", "create", "ledger.db", "wards", "--mu", "1")
    said = run(cli, *FINETUNE, "--mu", "1", "--ledger", "ledger.db", "wards").stdout
    assert (
        "to wards in ledger.db, release 1: budget mu 1 (epsilon 4.887, delta 1e-6); spent mu 1 ("
        in said
    )
    (release,) = Ledger("ledger.db", "wards", GaussianDP(1.0)).releases()
    assert (release["status"], release["estimator"]) == ("released", "SparseFinetuner")
    (photos / "ran").unlink()
    result = cli(*FINETUNE, "--mu", "1", "--ledger", "ledger.db", "wards", "--force")
    assert result.exit_code == 3
    assert not (photos / "ran").exists()  # the code of the network
    assert not (
        photos / "m.safetensors.work"
    ).exists()  # which was said before an image was read


# Interruptions.


def killed(monkeypatch, step, end):
    """End a run when it has said that this step has begun."""
    whole = Checkpoint.write

    def write(self, state, begun):
        whole(self, state, begun)
        if begun == step:
            end()

    monkeypatch.setattr(Checkpoint, "write", write)
    return lambda: monkeypatch.setattr(Checkpoint, "write", whole)


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupted_command_goes_on_and_pays_once(photos, cli, monkeypatch):
    ledger = Ledger("ledger.db", "wards", GaussianDP(1.0))
    command = [*FINETUNE, "--mu", "1", "--ledger", "ledger.db", "wards"]
    undo = killed(monkeypatch, 5, interrupt)
    with overheard() as first:
        result = cli(*command)
    assert result.exit_code == 130
    assert "The same command continues" in result.stderr
    assert result.stderr.count("\n") == 1
    assert (photos / "m.safetensors.work" / "training").exists()
    undo()
    monkeypatch.setattr(
        embedding, "decode", lambda *_: pytest.fail("images were prepared before")
    )
    with overheard() as second:
        run(cli, *command)
    assert (len(first), len(second)) == (
        4,
        7,
    )  # the step that had begun is lost, and no step is drawn twice
    (release,) = ledger.releases()
    assert release["status"] == "released"
    assert not (photos / "m.safetensors.work").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_killed_command_goes_on(photos, cli):
    script = """
import os, signal
from dppl.cli import main
from dppl.finetune.checkpoint import Checkpoint
whole = Checkpoint.write
def write(self, state, begun):
    whole(self, state, begun)
    if begun == 7:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint.write = write
main.run()
"""
    command = [*FINETUNE, "--mu", "0.5", "--ledger", "ledger.db", "wards"]
    ledger = Ledger("ledger.db", "wards", GaussianDP(1.0))
    done = subprocess.run(
        [sys.executable, "-c", script, *command],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, b"", b"")
    assert not (photos / "m.safetensors").exists()
    with overheard() as heard:
        run(cli, *command)
    assert len(heard) == 5
    assert len(ledger.releases()) == 1


def test_a_file_that_was_being_replaced_does_not_stop_the_next_run(
    photos, cli, monkeypatch
):
    undo = killed(monkeypatch, 2, interrupt)
    cli(*FINETUNE, "--mu", "1")
    undo()
    work = photos / "m.safetensors.work"
    (work / ".0123456789abcdef.part").touch()
    run(cli, *FINETUNE, "--mu", "1")
    assert not work.exists()
    work.mkdir()
    (work / "notes.txt").touch()
    result = cli(*FINETUNE, "--mu", "1", "--force")
    assert result.exit_code == 2
    assert (work / "notes.txt").exists()


def test_another_run_does_not_go_on_from_its_checkpoint(
    photos, cli, error_line, monkeypatch
):
    undo = killed(monkeypatch, 2, interrupt)
    cli(*FINETUNE, "--mu", "1")
    undo()
    assert "a run with another budget" in error_line(cli(*FINETUNE, "--mu", "0.9"))


def test_samples_go_with_no_ledger(photos, cli, error_line):
    Ledger("l.db", "wards", ApproxDP(1, 1e-5))
    spent = ["--epsilon", "1", "--delta", "1e-5", "--ledger", "l.db", "wards"]
    result = cli(*FINETUNE, *spent, "--options", "sampling_rate=0.1")
    assert (
        result.exit_code,
        "a ledger cannot charge it; use --options sampling_rate=1."
        in error_line(result),
    ) == (
        3,
        True,
    )
    assert not Ledger("l.db", "wards").releases()


@pytest.mark.parametrize(
    ("options", "exit_code", "words"),
    [
        (["--mu", "0"], 3, "lets nothing be released, so there is nothing to train"),
        (["--epsilon", "1"], 2, "add --delta 1e-6 to the budget."),
        (
            ["--mu", "1", "--options", "sampling_rate=0.1"],
            3,
            "sampling_rate below 1 is accounted in approximate DP",
        ),
        (
            ["--mu", "1", "--options", "sampling_rate=2"],
            2,
            "sampling_rate must be above 0 and at most 1",
        ),
        (["--mu", "1", "--options", "train=head,body"], 2, "train must be one of"),
        (
            ["--mu", "1", "--options", "train=head,conv", "--options", "sparsity=7"],
            2,
            "sparsity must lie strictly",
        ),
        (["--mu", "1", "--options", "epochs=-1"], 2, "epochs must be"),
        (["--mu", "1", "--n-records", "0"], 2, "for --n-records. Must be >= 1"),
        (
            ["--mu", "1", "--network", "hf:bert"],
            2,
            "with options as ?size=224; got 'hf:bert'.",
        ),
        (
            ["--mu", "1", "--out", "photos/m.safetensors"],
            2,
            "must neither hold what is read nor lie in it",
        ),
        (
            ["--mu", "1", "--options", "train=norm"],
            2,
            "another number of outputs than there are classes",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    options, exit_code, words, photos, cli, error_line
):
    result = cli(*FINETUNE, *options)
    assert words in error_line(result)
    assert result.exit_code == exit_code
    assert not (photos / "m.safetensors").exists()


def test_without_torch_it_says_what_to_install(photos, cli, error_line, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = cli(*FINETUNE, "--mu", "1")
    assert result.exit_code == 4
    assert (
        error_line(result)
        == "this needs torch; install it from the source folder of dppl: pip install -e '.[torch]'"
    )


def test_images_need_labels(photos, cli, error_line):
    flat = photos / "flat"
    flat.mkdir()
    (photos / "photos" / "red" / "1.png").rename(flat / "1.png")
    result = cli("finetune", "flat", *FINETUNE[2:], "--mu", "1")
    assert result.exit_code == 2
    assert (
        "flat has no labels; sort the images into a folder for each class"
        in error_line(result)
    )


def test_texts_are_refused(photos, cli, error_line):
    (photos / "mails.csv").write_text("text,label\nhello,red\n")
    assert "must hold images; it holds texts" in error_line(
        cli("finetune", "mails.csv", *FINETUNE[2:], "--mu", "1")
    )


def test_a_label_outside_the_list_stops_it_and_is_not_named(photos, cli, error_line):
    (photos / "photos" / "red").rename(photos / "photos" / "secret")
    result = cli(*FINETUNE, "--mu", "1")
    assert result.exit_code == 4
    line = error_line(result)
    assert "at least one is not" in line
    assert "dppl check" in line
    assert "secret" not in line
    assert not (photos / "ran").exists()  # the code of the network
    run(cli, *FINETUNE, "--mu", "1", "--options", "unknown_labels=ignore")


def test_another_network_is_refused(trained, cli, error_line, torch):
    from safetensors.torch import load_file, save_file

    line = error_line(
        cli(
            "predict",
            "m.safetensors",
            "new",
            "--encoder",
            NETWORK.replace("size=6", "size=7"),
        )
    )
    assert "this is another one, or has other weights" in line
    weights = load_file("net.safetensors")
    weights["0.bias"][0] += 1e-6
    save_file(weights, "net.safetensors")
    result = cli("predict", "m.safetensors", "new", "--encoder", NETWORK)
    assert result.exit_code == 4
    assert "this is another one, or has other weights" in error_line(result)


def test_a_model_file_does_not_choose_code_that_runs(trained, cli, error_line):
    (trained / "ran").unlink()
    result = cli("predict", "m.safetensors", "new")
    assert result.exit_code == 4
    assert error_line(result).startswith(
        "--encoder must name the network's code and weights"
    )
    assert not (trained / "ran").exists()
    run(cli, "predict", "m.safetensors", "new", "--encoder", NETWORK)
    assert (trained / "ran").exists()


def test_a_model_on_features_of_code_does_not_choose_code_that_runs(
    photos, cli, error_line
):
    train = [
        "train",
        "photos",
        "--encoder",
        NETWORK,
        "--classes",
        "classes.txt",
        "--mu",
        "900",
        "--weak",
        "--out",
        "f.safetensors",
    ]
    assert (
        "Next: dppl predict f.safetensors DATA --encoder URI" in run(cli, *train).stdout
    )
    (photos / "ran").unlink()
    assert error_line(cli("predict", "f.safetensors", "new")).startswith(
        "--encoder must name the network's code"
    )
    with pytest.raises(InputError, match="does not decide what code runs"):
        PrivateClassifier.load("f.safetensors")
    assert not (photos / "ran").exists()
    lines = run(
        cli, "predict", "f.safetensors", "new", "--encoder", NETWORK
    ).stdout.splitlines()
    assert sum(line.split("/")[0] == line.split(",")[1] for line in lines[1:]) > 20


def test_the_whole_work_folder_is_named_where_source_or_options_have_changed(
    photos, cli, error_line, monkeypatch
):
    undo = killed(monkeypatch, 2, interrupt)
    cli(*FINETUNE, "--mu", "1")
    undo()
    other = [
        NETWORK.replace("0.5,0.5,0.5", "0.4,0.4,0.4") if word == NETWORK else word
        for word in FINETUNE
    ]
    line = error_line(cli(*other, "--mu", "1"))
    assert line.startswith("m.safetensors.work was begun with another encoder")
    (photos / "photos" / "red" / "1.png").unlink()
    line = error_line(cli(*FINETUNE, "--mu", "1"))
    assert line == (
        "the source has changed since m.safetensors.work was begun; remove that folder, or choose another. "
        "To start over, type: rm -r m.safetensors.work"
    )


def test_a_batch_is_the_sampling_rate_times_the_records(photos, cli):
    run(
        cli,
        *FINETUNE,
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
        "--options",
        "epochs=1",
        "--options",
        "sampling_rate=0.5",
    )
    content = json.loads(run(cli, "show", "m.safetensors", "--json").stdout)
    assert content["parameters"]["recipe"]["batch_size"] == 12.0


def test_embeddings_and_damaged_files_are_refused(trained, cli, error_line):
    np.save("rows.npy", np.zeros((3, 108)))
    assert "takes images" in error_line(
        cli("predict", "m.safetensors", "rows.npy", "--encoder", NETWORK)
    )
    assert "SparseFinetuner" in error_line(
        cli("show", "m.safetensors", "--public", "new", "--out", "page.html")
    )
    with pytest.raises(ModelFileError, match=r"SparseFinetuner\.load"):
        load("m.safetensors")
    content = (trained / "m.safetensors").read_bytes()
    (trained / "m.safetensors").write_bytes(
        content.replace(b"SparseFinetuner", b"DenseFinetuner!")
    )
    assert "is damaged: its checksum" in error_line(cli("show", "m.safetensors"))
    (trained / "m.safetensors").write_bytes(content[:-9])
    assert cli("show", "m.safetensors").exit_code == 4


def test_a_model_of_python_names_its_network_where_it_is_told(trained, cli, error_line):
    network = load_network(NETWORK)
    SparseFinetuner.load("m.safetensors", network.module)  # which keeps the name
    model = SparseFinetuner(
        network.module,
        GaussianDP(1.0),
        CLASSES,
        train=("head",),
        sampling_rate=1.0,
        recipe=Recipe(epochs=1),
    )
    model.fit(np.zeros((2, 3, 6, 6)), ["red", "green"]).save("python.safetensors")
    assert "does not name its network" in error_line(
        cli("predict", "python.safetensors", "new")
    )
    assert "not named" in run(cli, "show", "python.safetensors").stdout
    SparseFinetuner.load("python.safetensors", network.module).save(
        "named.safetensors", network=NETWORK
    )
    assert (
        len(
            run(
                cli, "predict", "named.safetensors", "new", "--encoder", NETWORK
            ).stdout.splitlines()
        )
        == 25
    )
    network.module[0].bias += 1e-3
    model.module = network.module
    with pytest.raises(InputError, match="has other weights than the public module"):
        model.save("other.safetensors", network=NETWORK)


def test_nobody_is_told_of_progress_where_nobody_watches(photos, cli):
    assert run(cli, *FINETUNE, "--mu", "1").stderr == ""
    assert os.path.exists("m.safetensors")


def test_auto_trains_what_public_numbers_are_enough_for(photos, cli):
    auto = ["--options", "train=auto", "--options", "epochs=1"]
    many = run(
        cli, *FINETUNE, *auto, "--mu", "20", "--weak"
    )  # 24 records of 3 classes are 160 records of a class times mu
    releases = json.loads(run(cli, "show", "m.safetensors", "--json").stdout)[
        "guarantee"
    ]["releases"]
    assert [release["statistic"] for release in releases].count(
        {"code": "before_training", "of": {"code": "number_of_records"}}
    ) == 1
    assert sum(release["cost"]["mu"] ** 2 for release in releases) == pytest.approx(
        400, rel=1e-6
    )
    assert run(cli, "verify", "m.safetensors").exit_code == 0
    assert many.stdout.startswith(
        "SparseFinetuner: 3 classes, trained head, norm, conv. "
    )
    assert "expected to be better" not in many.stderr
    few = run(cli, *FINETUNE, *auto, "--mu", "2", "--force")
    assert few.stdout.startswith("SparseFinetuner: 3 classes, trained head. ")
    assert "`dppl train` with the same network is expected to be better" in few.stderr


def test_a_network_of_timm_is_found_by_the_name_in_the_model(
    torch, photos, cli, error_line
):
    timm = pytest.importorskip("timm")
    whole = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, pretrained=False, num_classes=9
    )
    torch.save(whole.state_dict(), "vit.pth")
    uri = f"timm:vit_tiny_patch16_224@{photos / 'vit.pth'}?size=32"
    run(
        cli,
        "finetune",
        "photos",
        "--network",
        uri,
        *FINETUNE[4:],
        "--mu",
        "1",
        "--options",
        "epochs=1",
    )
    lines = run(cli, "predict", "m.safetensors", "new").stdout.splitlines()
    assert len(lines) == 25
    assert str(photos) not in run(cli, "show", "m.safetensors", "--json").stdout
    whole.norm.bias.data[0] += 1e-6
    torch.save(whole.state_dict(), "vit.pth")
    assert "this is another one, or has other weights" in error_line(
        cli("predict", "m.safetensors", "new")
    )
