"""Released models in the formats of others: ONNX, PyTorch, and a folder for a model hub.

An export is computed from what was released, and so costs nothing. It holds the guarantee of the model.
"""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.export.files import TARGETS, save, to_hub
    from dppl.export.onnx import to_onnx
    from dppl.export.torch import to_torch

__all__ = ["TARGETS", "save", "to_hub", "to_onnx", "to_torch"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(["TARGETS", "save", "to_hub"], "dppl.export.files"),
        "to_onnx": "dppl.export.onnx",
        "to_torch": "dppl.export.torch",
    },
)
