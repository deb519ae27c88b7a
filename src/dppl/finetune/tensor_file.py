"""Tensors and a description in one safetensors file, with a digest by which damage shows.

The digest finds damage. It cannot find lies, so whoever reads a file checks what it says all the same.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import Any

from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

__all__ = ["as_json", "read", "to_bytes"]

_DIGEST = "sha256"


def to_bytes(key: str, fields: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> bytes:
    """Return the content of a file whose description stands under `key`."""
    text = as_json(fields)
    content: bytes = save(tensors, {key: text, _DIGEST: _digest(text, tensors)})
    return content


def read(path: str | os.PathLike[str], key: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Return the description and the tensors of a file; None if it is damaged or something else."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        text = metadata[key]
        fields = json.loads(text)
        whole = isinstance(fields, dict) and metadata[_DIGEST] == _digest(text, tensors)
    except Exception:  # a damaged file may raise anything
        return None
    return (fields, tensors) if whole else None


def as_json(fields: dict[str, Any]) -> str:
    """Write public fields, numbers of NumPy among them."""
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, allow_nan=False, default=lambda number: number.item())


def _digest(text: str, tensors: dict[str, NDArray[Any]]) -> str:
    digest = sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"\n{name} {tensors[name].dtype} {tensors[name].shape}\n".encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
