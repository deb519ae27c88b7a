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
    """Return the content of a file whose description is under `key`."""
    # One entry of metadata: safetensors writes several in any order, and the same model should be the same bytes.
    content: bytes = save(tensors, {key: as_json({**fields, _DIGEST: _digest(fields, tensors)})})
    return content


def read(path: str | os.PathLike[str], key: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Return the description and the tensors of a file; None if it is damaged or something else."""
    try:
        with safe_open(path, framework="numpy") as file:
            fields = json.loads(file.metadata()[key])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        whole = fields.pop(_DIGEST) == _digest(fields, tensors)
    except Exception:  # a damaged file may raise anything
        return None
    return (fields, tensors) if whole else None


def as_json(fields: dict[str, Any]) -> str:
    """Write public fields, numbers of NumPy among them."""
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, allow_nan=False, default=lambda number: number.item())


def _digest(fields: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> str:
    digest = sha256(as_json(fields).encode())
    for name in sorted(tensors):
        digest.update(f"\n{name} {tensors[name].dtype} {tensors[name].shape}\n".encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
