"""A model as an ONNX graph, from rows to labels, or behind its encoder from pixels or tokens; and encoders of texts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dppl._utils.fingerprint import Fingerprint
from dppl._utils.optional import optional
from dppl.encoders import Encoder, load_encoder
from dppl.encoders.columns import schema_in
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.frozen import FrozenModel
from dppl.encoders.load import load_adapter
from dppl.encoders.onnx import output_of
from dppl.encoders.tokens import TextAdapter
from dppl.encoders.windows import PUBLIC
from dppl.errors import InputError, ParameterError
from dppl.export import onnx_columns
from dppl.export.scorer import Scorer, fitted, scorer_of, statement
from dppl.methods import EmbeddingClassifier

# Of the graphs that start from rows, and the least to which an encoder's graph is
# raised: sums take axes as inputs.
_OPSET = 17
_LEAST_OPSET = 13
_ML_OPSET = 3
_IR = 8
_PREFIX = "dppl/"
# Short, odd, empty, of one window, and of several: every branch of tokenizer, padding
# and windows is taken.
_TEXTS = (
    "card",
    "",
    "Schöne Grüße, 你好!\n\t\N{WAVING HAND SIGN}",
    PUBLIC,
    PUBLIC * 30,
)
_ROUNDING = 1e-4  # of the largest coordinate


def to_onnx(model: Any, *, encoder: str | os.PathLike[str] | None = None) -> Any:
    """Return an ONNX graph that classifies rows, or what an encoder takes.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.
    encoder : path, default=None
        The model's encoder as an ONNX file, as ``onnx:FILE`` loads it, to be put before
        the classifier.

    Returns
    -------
    onnx.ModelProto
        The input is ``rows``, float32 of shape (n, n_features), or else the inputs of
        the encoder, of prepared images or tokens. A model of columns has one of shape
        (n,) for each: float64 of numbers (NaN is missing), texts of categories, int64 of
        dates (days since 1970, the least is missing). The outputs are ``label`` (n,),
        ``scores`` and ``probabilities`` (n, n_classes), in float64. For rows without a
        direction (NaN, infinity, only zeros) scores and probabilities are NaN, and the
        label is empty; for integers the label is the smallest of 64 bits, for other
        numbers NaN. The metadata hold the guarantee.

    Raises
    ------
    MissingExtra
        If onnx is not installed, or with an encoder what that needs.
    InputError
        If the model cannot be exported, or the encoder is not the model's.
    """
    onnx = optional("onnx", "onnx", "export")
    model = fitted(model)
    scorer = scorer_of(model)
    graph = _Graph(onnx)
    said = statement(model)
    if encoder is None:
        columns = schema_in(model.encoder_, scorer.n_features)
        if columns is None:
            inputs = [("rows", "FLOAT", ["n", scorer.n_features])]
            features = graph.cast("rows", "DOUBLE")
        else:
            features = onnx_columns.rows(graph, columns)
            inputs = [
                (one.name, onnx_columns.TYPES[type(one)], ["n"]) for one in columns
            ]
        made = onnx.helper.make_model(
            onnx.helper.make_graph([], "dppl", graph.values(inputs), []),
            opset_imports=[
                onnx.helper.make_opsetid("", _OPSET),
                onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
            ],
            ir_version=_IR,
            producer_name="dppl",
        )
    else:
        path = Path(encoder)
        loaded = _load_encoder(path, model)
        said["preprocessing"] = loaded.fingerprint.preprocessing
        made = onnx.load(str(path))
        opset = next(
            one.version for one in made.opset_import if one.domain in ("", "ai.onnx")
        )
        if opset < _LEAST_OPSET:
            made = onnx.version_converter.convert_version(made, _OPSET)
        features = graph.pooled_items(
            made.graph, *output_of(path), texts=loaded.modality == "text"
        )
    graph.classify(features, scorer)
    made.graph.node.extend(graph.nodes)
    made.graph.initializer.extend(graph.constants)
    del made.graph.output[:]
    made.graph.output.extend(graph.outputs)
    made.doc_string = said["guarantee"]
    for name, value in said.items():
        if isinstance(value, str):
            text = value
        else:
            text = json.dumps(value, allow_nan=False)
        made.metadata_props.add(key=f"dppl.{name}", value=text)
    onnx.checker.check_model(made, full_check=True)
    return made


def to_bytes(model: Any, *, encoder: str | os.PathLike[str] | None = None) -> bytes:
    """Return `to_onnx` as a file, which has at most 2 GB."""
    made = to_onnx(model, encoder=encoder)
    if made.ByteSize() >= 2**31:
        raise InputError(
            "an ONNX file has at most 2 GB, and this encoder has more; export the classifier alone."
        )
    content: bytes = made.SerializeToString(deterministic=True)
    return content


def encoder_to_bytes(uri: str) -> bytes:
    """Return an encoder as a file that was read back, tried in full, and compared with the encoder on fixed texts."""
    onnx = optional("onnx", "onnx", "export")
    optional("onnxruntime", "onnxruntime", "onnx")
    adapter = load_adapter(uri, "cpu")
    if (
        not isinstance(adapter, TextAdapter)
        or adapter.stated is None
        or not isinstance(adapter.compute, FrozenModel)
    ):
        raise ParameterError(
            f"must be an encoder of texts that torch computes, such as minilm, st:NAME or hf:NAME; got {uri}.",
            parameter="model",
        )
    tokens, _ = adapter.pieces(adapter.prepare(_TEXTS[0]))[0]
    made = onnx.load_from_string(
        adapter.compute.to_onnx(
            adapter.arrays([tokens, tokens], adapter.shape_of(tokens))
        )
    )
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


def _load_encoder(path: Path, model: EmbeddingClassifier) -> Encoder:
    """Load an encoder, and check that it is the model's as far as the model says."""
    # Options of the model's encoder say how long texts may be, which the file does not.
    uri = f"onnx:{path}"
    if model.encoder_ is not None:
        place, mark, options = Fingerprint.parse(model.encoder_).uri.partition("?")
        if place.startswith("onnx:"):
            uri += mark + options
    loaded = load_encoder(uri)
    if model.encoder_ is not None and not loaded.fingerprint.same_function(
        Fingerprint.parse(model.encoder_)
    ):
        raise InputError(
            f"{path} is not the encoder that the model was fitted with, or is prepared for otherwise."
        )
    if loaded.dimension != model.n_features_in_:
        raise InputError(
            f"{path} gives {loaded.dimension} features, but the model expects {model.n_features_in_}; name the encoder "
            "that it was fitted with."
        )
    return loaded


@dataclass(frozen=True, slots=True)
class _Value:
    """An output of a node, whose operators append nodes."""

    graph: _Graph
    name: str

    def __add__(self, other: _Value) -> _Value:
        return self.graph.node("Add", self, other)

    def __sub__(self, other: _Value) -> _Value:
        return self.graph.node("Sub", self, other)

    def __mul__(self, other: _Value) -> _Value:
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other: _Value) -> _Value:
        return self.graph.node("Div", self, other)

    def __matmul__(self, other: _Value) -> _Value:
        return self.graph.node("MatMul", self, other)


class _Graph:
    """Nodes and constants, whose names begin with a prefix that no encoder has, and what `Scorer` asks of them."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []

    def node(self, kind: str, *inputs: _Value | str, **attributes: Any) -> _Value:
        """Append a node."""
        output = f"{_PREFIX}{len(self.nodes)}"
        names = [one if isinstance(one, str) else one.name for one in inputs]
        self.nodes.append(
            self._onnx.helper.make_node(
                kind, names, [output], name=output, **attributes
            )
        )
        return _Value(self, output)

    def output(
        self,
        name: str,
        element: str,
        shape: list[Any],
        kind: str,
        *inputs: _Value,
        **attributes: Any,
    ) -> None:
        """Append a node whose output is one of the graph."""
        self.node(kind, *inputs, **attributes)
        self.nodes[-1].output[0] = name
        self.outputs += self.values([(name, element, shape)])

    def values(self, described: Iterable[tuple[str, str, list[Any]]]) -> list[Any]:
        """Return inputs or outputs by name, type and shape."""
        types = self._onnx.TensorProto
        make = self._onnx.helper.make_tensor_value_info
        return [
            make(name, getattr(types, kind), shape) for name, kind, shape in described
        ]

    def number(self, value: float) -> _Value:
        return self.constant(f"number {value!r}", np.float64(value))

    def whole(self, value: int) -> _Value:
        return self.constant(f"whole {value}", np.int64(value))

    def constant(self, name: str, value: Any) -> _Value:
        """Append a tensor, of which a graph has one by each name."""
        name = f"{_PREFIX}{name}"
        array = np.asarray(value)
        if name not in [one.name for one in self.constants]:
            if array.dtype.kind == "U":
                texts = array.astype(object)
            else:
                texts = np.ascontiguousarray(array)
            self.constants.append(
                self._onnx.numpy_helper.from_array(texts.reshape(array.shape), name)
            )
        return _Value(self, name)

    def cast(self, value: _Value | str, kind: str) -> _Value:
        return self.node("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def pooled_items(
        self, graph: Any, output: str, pooling: str, *, texts: bool
    ) -> _Value:
        """Return what an encoder's output is as one row an item, up to its length, which the classifier ignores."""
        if pooling == "none":
            return self.cast(self.node("Flatten", output, axis=1), "DOUBLE")
        rank = next(
            len(one.type.tensor_type.shape.dim)
            for one in graph.output
            if one.name == output
        )
        wide = self.cast(output, "DOUBLE")
        if pooling == "cls":
            return self.node(
                "Gather", wide, self.constant("first", np.int64(0)), axis=1
            )
        if not texts:
            return self._sum(wide, [2, 3] if rank == 4 else [1], keepdims=0)
        # Sums over tokens stand for means, because the classifier scales rows to length
        # 1.
        mask = "attention_mask"
        if mask not in [
            one.name for one in graph.input
        ]:  # the encoder does not ask for it, but its rows are padded
            make = self._onnx.helper.make_tensor_value_info
            kind = self._onnx.TensorProto.INT64
            graph.input.append(make(mask, kind, ["n", "length"]))
        weights = self.node(
            "Unsqueeze", self.cast(mask, "DOUBLE"), self.constant("last", [2])
        )
        return self._sum(wide * weights, [1], keepdims=0)

    def classify(self, rows: _Value, scorer: Scorer) -> None:
        """Append the classifier."""
        classes = scorer.classes
        shape = ["n", len(scorer.classes)]
        scores = scorer.scores(rows, self)
        logits = scores * self.constant("sharpness", scorer.sharpness)
        # Texts, integers (truth values as 0 and 1) or other numbers.
        element, dtype, missing = {
            "U": ("STRING", None, ""),
            "f": ("DOUBLE", np.float64, np.nan),
        }.get(classes.dtype.kind, ("INT64", np.int64, np.iinfo(np.int64).min))
        if dtype is None:
            names = classes
        else:
            names = classes.astype(dtype)
        best = self.node(
            "Gather",
            self.constant("classes", names),
            self.node("ArgMax", scores, axis=1, keepdims=0),
        )
        score = self.node("Gather", scores, self.constant("first", np.int64(0)), axis=1)
        none = self.constant("no_label", np.array(missing, names.dtype))
        self.output(
            "label", element, ["n"], "Where", self.node("IsNaN", score), none, best
        )
        self.output("scores", "DOUBLE", shape, "Identity", scores)
        self.output("probabilities", "DOUBLE", shape, "Softmax", logits, axis=1)

    def largest(self, rows: _Value) -> _Value:
        return self.node("ReduceMax", self.node("Abs", rows), axes=[1], keepdims=1)

    def length(self, rows: _Value) -> _Value:
        return self.node("Sqrt", self._sum(rows * rows, [1], keepdims=1))

    def pooled(self, rows: _Value, dim: int, pool: int) -> _Value:
        bounds = (self.constant(f"at{at}", [at]) for at in (0, dim * pool, 1))
        kept = self.node("Slice", rows, *bounds)
        return self._sum(
            self.node("Reshape", kept, self.constant("pools", [0, dim, pool])),
            [2],
            keepdims=0,
        )

    def maximum(self, one: _Value, other: _Value) -> _Value:
        return self.node("Max", one, other)

    def logaddexp(self, one: _Value, other: _Value) -> _Value:
        above = self.node(
            "Exp", self.node("Neg", self.node("Abs", one - other))
        ) + self.constant("one", 1.0)
        return self.node("Max", one, other) + self.node("Log", above)

    def _sum(self, value: _Value, axes: list[int], keepdims: int) -> _Value:
        return self.node(
            "ReduceSum", value, self.constant(f"axes{axes}", axes), keepdims=keepdims
        )
