"""``onnx:FILE``: any model as an ONNX file, run by ONNX Runtime.

The preprocessing is not part of such a file and must be stated, as JSON in a file of the same name with the suffix
``.json``, or in the file's own metadata under the key ``dppl``. For images::

    {"modality": "image", "size": 224, "crop_pct": 0.875, "interpolation": "bicubic",
     "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

with the fields of `dppl.encoders.images.Preprocessing`; the model's one input has the shape (rows, 3, size, size). For
texts::

    {"modality": "text", "tokenizer": "tokenizer.json", "max_tokens": 256, "pooling": "mean"}

where the tokenizer is a file of the library tokenizers, beside the model; the inputs are of ``input_ids``,
``attention_mask`` and ``token_type_ids`` those that the model has. ``pad_id`` is the token to pad with (default 0).
Both may name an ``output`` (default: the first) and a ``pooling``: ``mean``, ``cls``, or ``none`` (default) for an
output that is one row per example already.

A model with a fixed number of rows is run with that. Scales that a quantised model takes from a whole batch mix its
rows; such a model is refused unless ``batch_rows=1``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl._optional import optional
from dppl.encoders.fixed import Network
from dppl.encoders.hub import contents, digest
from dppl.encoders.images import OPTIONS, ImageNetwork, Preprocessing
from dppl.encoders.load import Source
from dppl.encoders.tokens import TextNetwork, Tokens
from dppl.errors import InputError, ParameterError

# Fields of a statement beside modality, output and pooling: required ones, and others.
_FIELDS = {"image": (("size",), OPTIONS), "text": (("tokenizer", "max_tokens"), ("pad_id",))}
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


def load(source: Source, device: str, precision: str) -> Network:
    """Load a model in the file's own precision; one that quantises rows together is refused."""
    source.check(())
    runtime = optional("onnxruntime", "onnxruntime", "onnx")
    path = Path(source.name)
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    session = _session(runtime, path, device)
    stated = _stated(session, path)
    modality, pooling = stated.pop("modality"), stated.pop("pooling", "none")
    model = _Model(session, stated.pop("output", None), pooling)
    if precision not in ("auto", model.dtype):
        raise ParameterError(f"must be 'auto' or {model.dtype!r}, which the ONNX file decides.", parameter="precision")
    shared: dict[str, Any] = {
        "library": "onnxruntime",
        "weights": digest(contents(path.parent, (path.name, *_external_files(path)))),
        "pooling": f"{pooling} of {model.output}",
        "versions": f"onnxruntime {runtime.__version__}",
        "dtype": model.dtype,
        "device": "cuda" if session.get_providers()[0] == "CUDAExecutionProvider" else "cpu",
        "compute": model,
        "only_rows": _only_rows(path, model.rows),
    }
    if modality == "text":
        return _texts(path, **stated, shared=shared)
    preprocessing = Preprocessing.of(stated)
    return ImageNetwork(**shared, preprocessing=str(preprocessing), prepare=preprocessing, batch_rows=8)


def output_of(path: Path) -> tuple[str, str]:
    """Return the name of the output that a file's embeddings are made of, and how it is pooled."""
    session = _session(optional("onnxruntime", "onnxruntime", "onnx"), path, "cpu")
    stated = _stated(session, path)
    model = _Model(session, stated.get("output"), stated.get("pooling", "none"))
    return model.output, model.pooling


def _only_rows(path: Path, rows: int | None) -> int | None:
    """Return the one number of rows that a model takes, if there is one.

    A dynamic quantisation takes its scale from the whole batch, so that one bright image would move all others; it gets
    one row a batch. The names of operators stand in the file as they are.
    """
    if b"DynamicQuantize" not in path.read_bytes():
        return rows
    if rows not in (None, 1):
        raise ParameterError(
            f"{path.name} quantises a batch of {rows} rows at once, so that one record would change the embeddings of "
            "others; export it with a free number of rows."
        )
    return 1


def _external_files(path: Path) -> list[str]:
    """Return the names of files beside the model that hold its larger tensors, as the model's bytes tell them.

    They are the values of the key "location" (ONNX, TensorProto.external_data). Whatever else looks like one and is a
    file there is hashed too, which costs nothing but time.
    """
    found = set()
    for match in re.finditer(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])", path.read_bytes()):
        size = match[1][0] & 0x7F | (match[1][1] << 7 if len(match[1]) > 1 else 0)
        found.add(match.string[match.end() : match.end() + size].decode("utf-8", "replace"))
    return sorted(name for name in found if "\0" not in name and (path.parent / name).is_file())


def _session(runtime: Any, path: Path, device: str) -> Any:
    """Open a session in which each run has one thread, so that their number changes nothing."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    available = "CUDAExecutionProvider" in runtime.get_available_providers()
    if device == "cuda" and not available:
        raise ParameterError("device='cuda' needs the package onnxruntime-gpu.")
    gpu = ["CUDAExecutionProvider"] if available and device != "cpu" else []
    try:
        return runtime.InferenceSession(str(path), options, providers=[*gpu, "CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has a family of errors of its own
        raise InputError(f"{path} is not a model that ONNX Runtime can open: {str(error).splitlines()[0]}") from None


def _stated(session: Any, path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    text = session.get_modelmeta().custom_metadata_map.get("dppl")
    if beside.is_file():
        text = beside.read_text(encoding="utf-8")
    if text is None:
        raise InputError(f"state the preprocessing of {path.name} in {beside}; the module dppl.encoders.onnx says how.")
    try:
        stated = json.loads(text)
        required, others = _FIELDS[stated["modality"]]
    except (ValueError, TypeError, KeyError):
        raise InputError(f"what is stated for {path.name} must be JSON with a modality, 'image' or 'text'.") from None
    if unknown := sorted(set(stated) - {"modality", "output", "pooling", *required, *others}):
        raise InputError(f"what is stated for {path.name} has a field {unknown[0]!r} that nothing is known of.")
    if missing := sorted(set(required) - set(stated)):
        raise InputError(f"what is stated for {path.name} lacks {missing[0]!r}.")
    return dict(stated)


class _Model:
    """A session and how its output becomes one row per example."""

    def __init__(self, session: Any, output: str | None, pooling: str) -> None:
        _validate.one_of(("none", "cls", "mean"), pooling=pooling)
        outputs = [one.name for one in session.get_outputs()]
        self.output = outputs[0] if output is None else output
        _validate.one_of(outputs, output=self.output)
        self._session, self.pooling = session, pooling
        self._inputs = {one.name: _TYPES[one.type] for one in session.get_inputs()}
        self.dtype = "float16" if np.float16 in self._inputs.values() else "float32"
        rows = session.get_inputs()[0].shape[0]
        self.rows = rows if isinstance(rows, int) else None

    def __call__(self, arrays: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        if "pixel_values" in arrays:
            arrays = {next(iter(self._inputs)): arrays["pixel_values"]}
        feed = {name: arrays[name].astype(dtype, copy=False) for name, dtype in self._inputs.items()}
        hidden = self._session.run([self.output], feed)[0].astype(np.float32)
        mask = arrays.get("attention_mask")
        if self.pooling == "none":
            return np.asarray(hidden.reshape(len(hidden), -1))
        if self.pooling == "cls":
            return np.asarray(hidden[:, 0])
        if mask is None:
            return np.asarray(hidden.mean(axis=(2, 3) if hidden.ndim == 4 else 1))
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((hidden * weights).sum(axis=1) / weights.sum(axis=1))


def _texts(path: Path, tokenizer: str, max_tokens: int, shared: dict[str, Any], pad_id: int = 0) -> TextNetwork:
    _validate.positive_integer(max_tokens=max_tokens)
    file = path.parent / tokenizer
    if not file.is_file():
        raise InputError(f"there is no tokenizer {file}.")
    fast = optional("tokenizers", "tokenizers", "onnx").Tokenizer.from_file(str(file))
    fast.no_padding()
    fast.enable_truncation(max_tokens)

    def prepare(text: str) -> Tokens:
        encoded = fast.encode(text)
        return {"input_ids": np.array(encoded.ids), "token_type_ids": np.array(encoded.type_ids)}

    network = TextNetwork(
        **shared,
        preprocessing=f"tokens {digest(contents(path.parent, [tokenizer]))}, at most {max_tokens}, padding {pad_id}",
        prepare=prepare,
        limit=max_tokens,
        padding={"input_ids": pad_id},
        vocabulary=np.array(sorted(fast.get_vocab(with_added_tokens=False).values()), np.int64),
        batch_rows=32,
    )
    # The model must have an embedding for the last token: one text with it would else stop the work on all.
    last = max(fast.get_vocab().values())
    row = {"input_ids": np.full(2, last), "token_type_ids": np.zeros(2, np.int64)}
    try:
        network.forward([row] * (network.only_rows or 1), network.shape_class(row))
    except Exception:  # ONNX Runtime has a family of errors of its own
        raise ParameterError(f"the tokenizer has tokens up to number {last}, which {path.name} cannot take.") from None
    return network
