"""Released models in the formats of others: ONNX, PyTorch, scikit-learn, and a folder for a model hub.

An export is computed from what was released, and so costs nothing. It holds the guarantee of the model.
"""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.export.files import TARGETS, save
    from dppl.export.hub import to_hub
    from dppl.export.onnx import to_onnx
    from dppl.export.pipeline import to_sklearn
    from dppl.export.torch import to_torch

__all__ = ["TARGETS", "save", "to_hub", "to_onnx", "to_sklearn", "to_torch"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "TARGETS": "dppl.export.files",
        "save": "dppl.export.files",
        "to_hub": "dppl.export.hub",
        "to_onnx": "dppl.export.onnx",
        "to_sklearn": "dppl.export.pipeline",
        "to_torch": "dppl.export.torch",
    },
)
