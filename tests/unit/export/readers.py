"""What reads each format, and predicts with it."""

import io
from types import SimpleNamespace

import pytest

from dppl.export import onnx_graph, torch_module
from inside import sharpness_of

# What an export states: scores differ by no more than this, in lengths of the longest
# weights.
ROUNDING = 1e-6


def by_onnx(model):
    """Return what predicts by ONNX Runtime."""
    pytest.importorskip("onnx", reason="needs the extra export")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    session = runtime.InferenceSession(
        onnx_graph.to_bytes(model), providers=["CPUExecutionProvider"]
    )

    def predict(rows):
        label, scores, probabilities = session.run(None, {"rows": rows})
        return SimpleNamespace(label=label, scores=scores, probabilities=probabilities)

    return predict


def by_torch(model):
    """Return what predicts by a file of torch.export."""
    library = pytest.importorskip("torch", reason="needs the extra torch")
    module = library.export.load(io.BytesIO(torch_module.to_bytes(model))).module()

    def predict(rows):
        logits = module(library.from_numpy(rows))
        return SimpleNamespace(
            label=model.classes_[logits.argmax(1).numpy()],
            scores=logits.numpy() / sharpness_of(model),
            probabilities=logits.softmax(1).numpy(),
        )

    return predict


READERS = {"onnx": by_onnx, "torch": by_torch}
