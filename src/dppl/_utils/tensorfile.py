"""Files of tensors with a JSON description, and a checksum of every byte.

They are safetensors files. The checksum finds damage. It is no signature, and finds no
lies: whoever changes a file can compute it again.
"""

import json
import os
from hashlib import sha256
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load, save

from dppl._utils.outside import MOST_BYTES, MOST_PARTS, parse_json
from dppl._utils.types import Array
from dppl.errors import ParameterError

_CHECKSUM = "checksum"
_UNSET = "0" * 64


def to_bytes(key: str, fields: dict[str, Any], tensors: dict[str, Array]) -> bytes:
    """Return the content of a file whose description is under `key`; equal values give equal bytes."""
    text = as_json({**fields, _CHECKSUM: _UNSET})
    # One entry of metadata: safetensors writes several in any order.
    content: bytes = save(
        {name: np.ascontiguousarray(one) for name, one in tensors.items()}, {key: text}
    )
    # JSON within JSON: no value of a field holds quotes that are escaped once.
    before, name, after = content.partition(rf"\"{_CHECKSUM}\": \"".encode())
    return before + name + sha256(content).hexdigest().encode() + after[len(_UNSET) :]


def read(
    path: str | os.PathLike[str], key: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description under `key` and the tensors; a ValueError says what is wrong with the file."""
    return parsed(Path(path).read_bytes(), key)


def parsed(content: bytes, key: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return what such bytes hold; a ValueError says what is wrong with them."""
    try:
        tensors = load(content)  # which checks all lengths
    except Exception:  # a damaged file may raise anything
        what = "is not a whole safetensors file: it is truncated, or not a model. Fetch it again, or name another."
        raise ValueError(what) from None
    length = int.from_bytes(content[:8], "little")
    fields: Any = None
    reason = ""
    try:
        header = parse_json(content[8 : 8 + length], 2 * MOST_BYTES)
        text = (header.get("__metadata__") or {}).get(key)
        fields = None if text is None else parse_json(text)
    except ValueError as error:
        reason = f": {error}"
    else:
        if text is None:
            raise ValueError("is a safetensors file, but not a dppl model.")
    if not isinstance(fields, dict):
        raise ValueError(f"carries a dppl description that cannot be read{reason}.")
    stated = str(fields.pop(_CHECKSUM, ""))
    # All bytes count but its own, which were zeros when it was computed.
    known = len(stated) == len(_UNSET) and content.count(stated.encode()) == 1
    if (
        not known
        or sha256(content.replace(stated.encode(), _UNSET.encode())).hexdigest()
        != stated
    ):
        if not stated:
            what = "has no checksum"
        else:
            what = "is damaged: its checksum is not the one of its content"
        raise ValueError(f"{what}. Fetch or fit it again.")
    return fields, tensors


def check_size(length: int, parts: int) -> None:
    """Raise unless a description of so many bytes and values can be read again: before it is paid for."""
    if length > MOST_BYTES or parts > MOST_PARTS:
        raise ParameterError(
            "a model of so many classes and ids of public rows is more than a model file takes; name fewer, or pass "
            "public rows without ids."
        )


def holds(path: str | os.PathLike[str], key: str) -> bool:
    """Return whether a file says that it has a description under `key`; reading it checks the rest."""
    if not os.path.isfile(path):  # a pipe would be waited for
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return key in (file.metadata() or {})
    except Exception:  # a damaged file may raise anything
        return False


def as_json(fields: dict[str, Any]) -> str:
    """Write public fields, numbers and arrays of NumPy among them."""
    # Of what came in as parameters NumPy alone has `tolist`; anything else has no place
    # in a file.
    return json.dumps(
        fields,
        sort_keys=True,
        ensure_ascii=False,
        allow_nan=False,
        default=methodcaller("tolist"),
    )
