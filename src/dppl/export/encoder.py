"""An encoder of texts as one ONNX file for `dppl.encoders.onnx`: its network, its tokenizer, and what is stated."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dppl._optional import optional
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.frozen import FrozenModel
from dppl.encoders.load import load_adapter, load_encoder
from dppl.encoders.tokens import TextAdapter
from dppl.encoders.windows import PUBLIC
from dppl.errors import InputError, ParameterError

__all__ = ["to_bytes"]

# Short, odd, empty, of one window, and of several: every branch of tokenizer, padding and windows is taken.
_TEXTS = ("card", "", "Schöne Grüße, 你好!\n\t\N{WAVING HAND SIGN}", PUBLIC, PUBLIC * 30)
_ROUNDING = 1e-4  # of the largest coordinate


def to_bytes(uri: str) -> bytes:
    """Return an encoder as a file that was read back, tried in full, and compared with the encoder on fixed texts."""
    onnx = optional("onnx", "onnx", "export")
    optional("onnxruntime", "onnxruntime", "onnx")
    adapter = load_adapter(uri, "cpu")
    if not isinstance(adapter, TextAdapter) or adapter.stated is None or not isinstance(adapter.compute, FrozenModel):
        raise ParameterError(
            f"must be an encoder of texts that torch computes, such as minilm, st:NAME or hf:NAME; got {uri}.",
            parameter="model",
        )
    tokens, _ = adapter.pieces(adapter.prepare(_TEXTS[0]))[0]
    made = onnx.load_from_string(adapter.compute.to_onnx(adapter.arrays([tokens, tokens], adapter.shape_of(tokens))))
    made.metadata_props.add(key="dppl", value=json.dumps(adapter.stated()))
    content: bytes = made.SerializeToString(deterministic=True)
    expected = FixedShapeEncoder(adapter, uri, trial=False).encode(_TEXTS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.onnx"
        path.write_bytes(content)
        read = load_encoder(f"onnx:{path}", device="cpu").encode(_TEXTS)
    if not np.abs(read - expected).max() <= _ROUNDING * np.abs(expected).max():
        raise InputError(
            f"ONNX Runtime does not compute what {uri} does: embeddings of fixed texts differ by more than rounding. "
            "An encoder with max_windows is exported without, and then is onnx:FILE?max_windows=N."
        )
    return content
