"""``onnx:FILE``: any model as an ONNX file, run by ONNX Runtime.

The preprocessing is not part of such a file and must be stated, as JSON in a file of
the same name with the suffix ``.json``, or in the file's own metadata under the key
``dppl``. For images::

    {"modality": "image", "size": 224, "crop_pct": 0.875, "interpolation": "bicubic",
     "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

with the fields of `dppl.encoders.pixels.Preprocessing`; the model's one input has the
shape (rows, 3, size, size). For texts::

    {"modality": "text", "tokenizer": "tokenizer.json", "max_tokens": 256, "pooling":
    "mean"}

where the tokenizer is a file of the library tokenizers, next to the model, or the
content of one; the inputs are of ``input_ids``, ``attention_mask`` and
``token_type_ids`` those that the model has. ``pad_id`` is the token to pad with
(default 0), and ``prompt`` what every text begins with. `dppl.export.save` writes such
files. Both may name an ``output`` (default: the first) and a ``pooling``: ``mean``,
``cls``, or ``none`` (default) for an output that is one row per example already. The
option ``max_windows`` of a URI is as in `dppl.encoders.transformers`.

A model with a fixed number of rows is run with that. Scales that a quantised model
takes from a whole batch mix its rows; such a model is refused unless ``batch_rows=1``.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl._utils.outside import parse_json
from dppl._utils.types import Array, Float32
from dppl.encoders.fixed import Adapter
from dppl.encoders.hub import files_digest
from dppl.encoders.load import EncoderUri
from dppl.encoders.pixels import OPTIONS, ImageAdapter, Preprocessing
from dppl.encoders.tokens import TextAdapter, pooled
from dppl.encoders.windows import TextWindows, Tokens
from dppl.errors import Argument, InputError, ParameterError

# Fields of a statement besides modality, output and pooling: required ones, and others.
_FIELDS = {
    "image": (("size",), OPTIONS[1:]),
    "text": (("tokenizer", "max_tokens"), ("pad_id", "prompt")),
}
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


def load(source: EncoderUri, device: str, precision: str) -> Adapter:
    """Load a model in the file's own precision; one that quantises rows together is refused."""
    path = Path(source.name)
    model = _Model(path, device)
    source.check(("max_windows",) if model.modality == "text" else ())
    if precision not in ("auto", model.dtype):
        raise ParameterError(
            f"must be 'auto' or {model.dtype!r}, which the ONNX file decides.",
            parameter="precision",
        )
    shared: dict[str, Any] = {
        "library": "onnxruntime",
        "weights": files_digest(path.parent, (path.name, *_external_files(path))),
        "pooling": f"{model.pooling} of {model.output}",
        "versions": model.versions,
        "dtype": model.dtype,
        "device": model.device,
        "compute": model,
        "batch_rows": 8,
        "only_rows": _only_rows(path, model.rows),
    }
    if model.modality == "text":
        return _texts(path, source, model.options, shared)
    preprocessing = Preprocessing.of(model.options)
    return ImageAdapter(
        **shared, preprocessing=str(preprocessing), prepare=preprocessing
    )


def output_of(path: Path) -> tuple[str, str]:
    """Return the name of the output that a file's embeddings are made of, and how it is pooled."""
    model = _Model(path, "cpu")
    return model.output, model.pooling


class _Model:
    """A session, what is stated for it, and how its output becomes one row per example."""

    def __init__(self, path: Path, device: str) -> None:
        runtime = optional("onnxruntime", "onnxruntime", "onnx")
        if not path.is_file():
            raise InputError(f"there is no file {path}.")
        on_gpu = "CUDAExecutionProvider" in runtime.get_available_providers()
        if device == "cuda" and not on_gpu:
            raise ParameterError(
                Argument("device", "cuda"), " needs the package onnxruntime-gpu."
            )
        if on_gpu and device != "cpu":
            gpu = ["CUDAExecutionProvider"]
        else:
            gpu = []
        threads = runtime.SessionOptions()
        threads.intra_op_num_threads = threads.inter_op_num_threads = (
            1  # so that their number changes nothing
        )
        try:
            session = runtime.InferenceSession(
                str(path), threads, providers=[*gpu, "CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has its own family of errors
            raise InputError(
                f"{path} is not a model that ONNX Runtime can open: {str(error).splitlines()[0]}"
            ) from None
        self._session = session
        self.versions = f"onnxruntime {runtime.__version__}"
        if session.get_providers()[0] == "CUDAExecutionProvider":
            self.device = "cuda"
        else:
            self.device = "cpu"
        self._inputs = {one.name: _TYPES[one.type] for one in session.get_inputs()}
        if np.float16 in self._inputs.values():
            self.dtype = "float16"
        else:
            self.dtype = "float32"
        rows = session.get_inputs()[0].shape[0]
        self.rows = rows if isinstance(rows, int) else None

        self.options = _statement(
            path, session.get_modelmeta().custom_metadata_map.get("dppl")
        )
        self.modality, self.pooling = (
            self.options.pop("modality"),
            self.options.pop("pooling", "none"),
        )
        validate.one_of(("none", "cls", "mean"), pooling=self.pooling)
        outputs = [one.name for one in session.get_outputs()]
        self.output = self.options.pop("output", outputs[0])
        validate.one_of(outputs, output=self.output)

    def __call__(self, arrays: dict[str, Array]) -> Float32:
        if "pixel_values" in arrays:
            arrays = {next(iter(self._inputs)): arrays["pixel_values"]}
        feed = {
            name: arrays[name].astype(dtype, copy=False)
            for name, dtype in self._inputs.items()
        }
        hidden = self._session.run([self.output], feed)[0].astype(np.float32)
        if self.pooling == "none":
            return np.asarray(hidden.reshape(len(hidden), -1))
        mask = arrays.get("attention_mask")
        return np.asarray(
            pooled(
                self.pooling, hidden, None if mask is None else mask.astype(np.float32)
            )
        )


def _statement(path: Path, metadata: str | None) -> dict[str, Any]:
    """Return what is stated for a model: in the file of its name, or in its own metadata."""
    file = path.with_suffix(".json")
    text = metadata
    if file.is_file():
        text = file.read_text(encoding="utf-8")
    if text is None:
        raise InputError(
            f"state the preprocessing of {path.name} in {file}; the module dppl.encoders.onnx says how."
        )
    try:
        stated = dict(parse_json(text))
        required, others = _FIELDS[stated["modality"]]
    except (ValueError, TypeError, KeyError):
        raise InputError(
            f"what is stated for {path.name} must be JSON with a modality, 'image' or 'text'."
        ) from None
    if (
        not set(required)
        <= set(stated)
        <= {"modality", "output", "pooling", *required, *others}
    ):
        raise InputError(
            f"what is stated for {path.name} must have {' and '.join(required)}, and of other fields only output, "
            f"pooling, {', '.join(others)}."
        )
    return stated


def _only_rows(path: Path, rows: int | None) -> int | None:
    """Return the one number of rows that a model takes, if there is one.

    A dynamic quantisation takes its scale from the whole batch, so that one bright
    image would move all others; it gets one row a batch. The names of operators are in
    the file as they are.
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
    """Return the names of files that hold the model's larger tensors, as the model's bytes have them.

    They are the values of the key "location" (ONNX, TensorProto.external_data).
    Whatever else looks like one and is a file there is hashed too, which costs nothing
    but time.
    """
    names = set()
    for match in re.finditer(
        rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])", path.read_bytes()
    ):
        size = match[1][0] & 0x7F | (match[1][1] << 7 if len(match[1]) > 1 else 0)
        names.add(
            match.string[match.end() : match.end() + size].decode("utf-8", "replace")
        )
    return sorted(
        name for name in names if "\0" not in name and (path.parent / name).is_file()
    )


def windows(source: EncoderUri) -> TextWindows | None:
    """Load the tokenizer of a model of texts alone; None for images."""
    path = Path(source.name)
    model = _Model(path, "cpu")
    if model.modality == "text":
        return _tokenizer(path, source, model.options)[1]
    return None


def _tokenizer(
    path: Path, source: EncoderUri, options: dict[str, Any]
) -> tuple[Any, TextWindows]:
    name = options["tokenizer"]
    limit = options["max_tokens"]
    validate.positive_integer(max_tokens=limit)
    library = optional("tokenizers", "tokenizers", "onnx").Tokenizer
    if isinstance(name, dict):
        tokenizer = library.from_str(json.dumps(name))
    elif (path.parent / name).is_file():
        tokenizer = library.from_file(str(path.parent / name))
    else:
        raise InputError(f"there is no tokenizer {path.parent / name}.")
    tokenizer.no_padding()

    def encode(text: str, most: int) -> Tokens:
        if tokenizer.truncation is None or tokenizer.truncation["max_length"] != most:
            tokenizer.enable_truncation(most)
        encoded = tokenizer.encode(text)
        return {
            "input_ids": np.array(encoded.ids, np.int32),
            "token_type_ids": np.array(encoded.type_ids, np.int32),
        }

    return tokenizer, TextWindows.of(
        encode, limit, source.number("max_windows"), options.get("prompt", "")
    )


def _texts(
    path: Path, source: EncoderUri, options: dict[str, Any], shared: dict[str, Any]
) -> TextAdapter:
    tokenizer, made = _tokenizer(path, source, options)
    name = options["tokenizer"]
    pad = options.get("pad_id", 0)
    prompt = options.get("prompt", "")
    within = isinstance(name, dict)
    digest: str | None
    if within:
        digest = sha256(json.dumps(name).encode()).hexdigest()
    else:
        digest = files_digest(path.parent, [name])
    said = f", prompt {prompt!r}" if prompt else ""
    adapter = TextAdapter(
        **shared,
        preprocessing=f"tokens {digest}, at most {made.limit}, padding {pad}{said}{made}",
        windows=made,
        padding={"input_ids": pad},
        vocabulary=np.array(
            sorted(tokenizer.get_vocab(with_added_tokens=False).values()), np.int64
        ),
    )
    # The model must have an embedding for the last token: one text with it would else
    # stop the work on all.
    last = max(tokenizer.get_vocab().values())
    row = {"input_ids": np.full(2, last), "token_type_ids": np.zeros(2, np.int64)}
    try:
        adapter.forward([row] * (adapter.only_rows or 1), adapter.shape_of(row))
    except Exception:  # ONNX Runtime has its own family of errors
        raise ParameterError(
            f"the tokenizer has tokens up to number {last}, which {path.name} cannot take."
        ) from None
    return adapter
