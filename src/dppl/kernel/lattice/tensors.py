"""Torch tensors as rows, without importing torch: whoever hands one in has imported it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError

_NUMPY_FLOATS = ("torch.float16", "torch.float32", "torch.float64")


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def as_numpy(array: Any) -> NDArray[Any]:
    """Return an array or tensor as an ndarray: the same memory where possible, a copy from another device.

    Gradients are left behind. Floats that NumPy does not know (bfloat16) become float32, which holds them exactly.
    """
    if isinstance(array, np.ndarray):
        return array
    if str(array.layout) != "torch.strided" or array.device.type == "meta":
        raise InputError(
            f"tensors must be dense and hold values; got layout {array.layout} on device {array.device}. Pass "
            "tensor.to_dense()."
        )
    return np.asarray((array.float() if _is_foreign(array) else array).numpy(force=True))


@dataclass(frozen=True, slots=True, eq=False)
class TensorRows:
    """A torch tensor as a table that streams: its rows reach the processor a block at a time.

    Parameters
    ----------
    tensor : torch.Tensor of shape (n, d)
        On any device.
    """

    tensor: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        rows, columns = self.tensor.shape
        return rows, columns

    @property
    def streams(self) -> bool:
        """Whether NumPy cannot read the tensor where it is."""
        return self.tensor.device.type != "cpu" or _is_foreign(self.tensor)

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield consecutive blocks of at most `size` rows."""
        for part in self.tensor.split(size):
            yield as_numpy(part)

    def shares_memory(self, other: TensorRows) -> bool:
        """Whether two tensors are views of one storage."""
        return bool(self.tensor.untyped_storage().data_ptr() == other.tensor.untyped_storage().data_ptr())


def _is_foreign(tensor: Any) -> bool:
    return tensor.is_floating_point() and str(tensor.dtype) not in _NUMPY_FLOATS
