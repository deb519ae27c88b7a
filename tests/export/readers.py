"""What reads each format, and predicts with it."""

import io
from types import SimpleNamespace

import pytest

from dppl.export import onnx, pipeline, torch

# What an export states: scores differ by no more than this, in lengths of the longest weights.
ROUNDING = 1e-6


def by_onnx(model):
    """Return what predicts by ONNX Runtime."""
    pytest.importorskip("onnx", reason="needs the extra export")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    session = runtime.InferenceSession(onnx.to_bytes(model), providers=["CPUExecutionProvider"])

    def predict(rows):
        label, scores, probabilities = session.run(None, {"rows": rows})
        return SimpleNamespace(label=label, scores=scores, probabilities=probabilities)

    return predict


def by_torch(model):
    """Return what predicts by a file of torch.export."""
    library = pytest.importorskip("torch", reason="needs the extra torch")
    module = library.export.load(io.BytesIO(torch.to_bytes(model))).module()

    def predict(rows):
        logits = module(library.from_numpy(rows))
        return SimpleNamespace(
            label=model.classes_[logits.argmax(1).numpy()],
            scores=logits.numpy() / model._sharpness(),
            probabilities=logits.softmax(1).numpy(),
        )

    return predict


def by_skops(model):
    """Return what predicts by a file of skops."""
    skops = pytest.importorskip("skops.io", reason="needs the extra export")
    content = pipeline.to_bytes(model)
    assert skops.get_untrusted_types(data=content) == []
    made = skops.loads(content)

    def predict(rows):
        logits = made.decision_function(rows) / model._sharpness()
        return SimpleNamespace(label=made.predict(rows), scores=logits, probabilities=made.predict_proba(rows))

    return predict


READERS = {"onnx": by_onnx, "torch": by_torch, "skops": by_skops}
