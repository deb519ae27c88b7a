"""A model as an ONNX graph, from rows to labels, or behind its encoder from pixels or tokens to labels."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._fingerprint import Fingerprint
from dppl._optional import optional
from dppl.encoders import Encoder, load_encoder
from dppl.encoders.onnx import output_of
from dppl.errors import InputError
from dppl.estimators import EmbeddingClassifier
from dppl.export.scorer import TINY, Head, Scorer, fitted, scorer_of
from dppl.export.statement import statement

__all__ = ["NO_LABEL", "to_bytes", "to_onnx"]

# The label of a row without a direction: no class is called so.
NO_LABEL = {"text": "", "integer": np.iinfo(np.int64).min, "number": np.nan}
# Of the graphs that start from rows, and the least to which an encoder's graph is raised: sums take axes as inputs.
_OPSET, _LEAST_OPSET, _IR = 17, 13, 8
_PREFIX = "dppl/"


def to_onnx(model: Any, *, encoder: str | os.PathLike[str] | None = None) -> Any:
    """Return an ONNX graph that classifies rows, or what an encoder takes.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.
    encoder : path, default=None
        The model's encoder as an ONNX file, as ``onnx:FILE`` loads it, to be put before the classifier.

    Returns
    -------
    onnx.ModelProto
        The input is ``rows``, float32 of shape (n, n_features), or else the inputs of the encoder, of prepared images
        or tokens. The outputs are ``label`` (n,), ``scores`` and ``probabilities`` (n, n_classes), in float64. For
        rows without a direction (NaN, infinity, only zeros) scores and probabilities are NaN, and the label is empty;
        that of integers is the smallest of 64 bits, and that of other numbers NaN. The metadata hold the guarantee.

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
        made = _empty(onnx, scorer.n_features)
        rows = graph.cast("rows", "DOUBLE")
    else:
        found = _checked(Path(encoder), model)
        said["preprocessing"] = found.fingerprint.preprocessing
        made = _opened(onnx, Path(encoder))
        rows = graph.pooled(made.graph, *output_of(Path(encoder)), of_texts=found.modality == "text")
    graph.classify(rows, scorer)
    made.graph.node.extend(graph.nodes)
    made.graph.initializer.extend(graph.constants)
    del made.graph.output[:]
    made.graph.output.extend(graph.outputs(scorer))
    made.doc_string = said["guarantee"]
    for name, value in said.items():
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        made.metadata_props.add(key=f"dppl.{name}", value=text)
    onnx.checker.check_model(made, full_check=True)
    return made


def to_bytes(model: Any, *, encoder: str | os.PathLike[str] | None = None) -> bytes:
    """Return `to_onnx` as a file, which has at most 2 GB."""
    made = to_onnx(model, encoder=encoder)
    if made.ByteSize() >= 2**31:
        raise InputError("an ONNX file has at most 2 GB, and this encoder has more; export the classifier alone.")
    content: bytes = made.SerializeToString(deterministic=True)
    return content


def _empty(onnx: Any, n_features: int) -> Any:
    """Return a graph of one input and no node."""
    rows = onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["n", n_features])
    graph = onnx.helper.make_graph([], "dppl", [rows], [])
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="dppl"
    )


def _checked(path: Path, model: EmbeddingClassifier) -> Encoder:
    """Load an encoder, and see that it is the model's as far as the model says."""
    found = load_encoder(f"onnx:{path}", predicting=True)
    if model.encoder_ is not None and not found.fingerprint.same_function(Fingerprint.parse(model.encoder_)):
        raise InputError(f"{path} is not the encoder that the model was fitted with, or is prepared for otherwise.")
    if found.dimension != model.n_features_in_:
        raise InputError(
            f"{path} gives {found.dimension} features, but the model expects {model.n_features_in_}; name the encoder "
            "that it was fitted with."
        )
    return found


def _opened(onnx: Any, path: Path) -> Any:
    made = onnx.load(str(path))
    opset = next(one.version for one in made.opset_import if one.domain in ("", "ai.onnx"))
    return made if opset >= _LEAST_OPSET else onnx.version_converter.convert_version(made, _OPSET)


class _Graph:
    """Nodes and constants, whose names begin with a prefix that no encoder has."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        output = f"{_PREFIX}{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Append a tensor and return its name."""
        name = f"{_PREFIX}constant{len(self.constants)}"
        array = np.asarray(value)
        texts = array.astype(object) if array.dtype.kind == "U" else np.ascontiguousarray(array)
        self.constants.append(self._onnx.numpy_helper.from_array(texts.reshape(array.shape), name))
        return name

    def cast(self, name: str, kind: str) -> str:
        return self.node("Cast", name, to=getattr(self._onnx.TensorProto, kind))

    def pooled(self, graph: Any, output: str, pooling: str, *, of_texts: bool) -> str:
        """Return what an encoder's output is as one row an item, up to its length, which the classifier ignores."""
        if pooling == "none":
            return self.cast(self.node("Flatten", output, axis=1), "DOUBLE")
        rank = next(len(one.type.tensor_type.shape.dim) for one in graph.output if one.name == output)
        output = self.cast(output, "DOUBLE")
        if pooling == "cls":
            return self.node("Gather", output, self.constant(np.int64(0)), axis=1)
        if not of_texts:
            return self._sum(output, [2, 3] if rank == 4 else [1], keep=0)
        mask = "attention_mask"
        if mask not in [one.name for one in graph.input]:  # the encoder does not ask for it, but its rows are padded
            helper = self._onnx.helper
            shape = ["n", "length"]
            graph.input.append(helper.make_tensor_value_info(mask, self._onnx.TensorProto.INT64, shape))
        weights = self.node("Unsqueeze", self.cast(mask, "DOUBLE"), self.constant([2]))
        return self._sum(self.node("Mul", output, weights), [1], keep=0)

    def classify(self, rows: str, scorer: Scorer) -> None:
        """Append the classifier."""
        features = self._unit(rows)
        if scorer.moves:
            features = self._unit(self._moved(features, scorer))
        scores, *others = (self._scores(features, head) for head in scorer.heads)
        for other in others:
            scores = getattr(self, f"_{scorer.together}")(scores, other)
        logits = self.node("Mul", scores, self.constant(scorer.sharpness))
        # The last nodes carry the names of the outputs.
        self._named("scores", "Identity", scores)
        self._named("probabilities", "Softmax", logits, axis=1)
        self._label(scores, scorer.classes)

    def outputs(self, scorer: Scorer) -> list[Any]:
        """Return the declarations of the outputs."""
        types, make = self._onnx.TensorProto, self._onnx.helper.make_tensor_value_info
        label = {"text": types.STRING, "integer": types.INT64, "number": types.DOUBLE}[_kind(scorer.classes)]
        wide = ["n", len(scorer.classes)]
        return [
            make("label", label, ["n"]),
            make("scores", types.DOUBLE, wide),
            make("probabilities", types.DOUBLE, wide),
        ]

    def _named(self, output: str, kind: str, *inputs: str, **attributes: Any) -> None:
        self.node(kind, *inputs, **attributes)
        self.nodes[-1].output[0] = output

    def _moved(self, features: str, scorer: Scorer) -> str:
        if scorer.center is not None:
            features = self.node("Sub", features, self.constant(scorer.center))
        if scorer.pool == 1:
            return features
        bounds = (self.constant([at]) for at in (0, scorer.dim * scorer.pool, 1))
        kept = self.node("Slice", features, *bounds)
        return self._sum(self.node("Reshape", kept, self.constant([0, scorer.dim, scorer.pool])), [2], keep=0)

    def _scores(self, rows: str, head: Head) -> str:
        if head.center is not None:
            rows = self.node("Sub", rows, self.constant(head.center))
        if head.projection is not None:
            rows = self.node("MatMul", rows, self.constant(head.projection.T))
        if head.moves:
            length = self.node("Max", self._length(rows), self.constant(TINY))
            rows = self.node("Div", rows, length)
        return self.node("Add", self.node("MatMul", rows, self.constant(head.weights.T)), self.constant(head.offsets))

    def _label(self, scores: str, classes: NDArray[Any]) -> None:
        kind = _kind(classes)
        codes = self.node("ArgMax", scores, axis=1, keepdims=0)
        names = classes if kind == "text" else classes.astype(np.int64 if kind == "integer" else np.float64)
        found = self.node("Gather", self.constant(names), codes)
        first = self.node("Gather", scores, self.constant(np.int64(0)), axis=1)
        none = np.array(NO_LABEL[kind], dtype=names.dtype)
        self._named("label", "Where", self.node("IsNaN", first), self.constant(none), found)

    def _unit(self, rows: str) -> str:
        # Rows are float32 at first, so their squares stay in range; what has no direction becomes NaN.
        return self.node("Div", rows, self._length(rows))

    def _length(self, rows: str) -> str:
        return self.node("Sqrt", self._sum(self.node("Mul", rows, rows), [1], keep=1))

    def _sum(self, name: str, axes: list[int], keep: int) -> str:
        return self.node("ReduceSum", name, self.constant(axes), keepdims=keep)

    def _maximum(self, one: str, other: str) -> str:
        return self.node("Max", one, other)

    def _logaddexp(self, one: str, other: str) -> str:
        apart = self.node("Neg", self.node("Abs", self.node("Sub", one, other)))
        above = self.node("Log", self.node("Add", self.node("Exp", apart), self.constant(1.0)))
        return self.node("Add", self.node("Max", one, other), above)


def _kind(classes: NDArray[Any]) -> str:
    """Return what labels are: texts, integers (truth values as 0 and 1) or other numbers."""
    return {"U": "text", "f": "number"}.get(classes.dtype.kind, "integer")
