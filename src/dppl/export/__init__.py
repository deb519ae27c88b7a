"""Released models in the formats of others: ONNX, PyTorch, scikit-learn, and a folder for a model hub.

An export is computed from what was released, and so costs nothing. It holds the guarantee of the model.
"""

from dppl.export.files import TARGETS, save
from dppl.export.hub import to_hub
from dppl.export.onnx import to_onnx
from dppl.export.pipeline import to_sklearn
from dppl.export.torch import to_torch

__all__ = ["TARGETS", "save", "to_hub", "to_onnx", "to_sklearn", "to_torch"]
