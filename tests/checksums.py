"""Model files as a forger writes them: with any content, and the checksum that fits it."""

import json
from hashlib import sha256

from safetensors.numpy import load_file, save

_UNSET = "0" * 64


def forged(path, description, tensors=None, key="dppl"):
    """Write a file of this description, of the tensors that it held if there are no others."""
    tensors = load_file(path) if tensors is None else tensors
    text = json.dumps({"checksum": _UNSET, **description}, sort_keys=True)
    content = save(tensors, {key: text})
    path.write_bytes(
        content.replace(_UNSET.encode(), sha256(content).hexdigest().encode(), 1)
    )
