"""Torch tensors as rows, without importing torch: whoever hands one in has imported it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError

# The exact kernels need float64, which these devices do not have.
_WITHOUT_FLOAT64 = ("mps",)
_NUMPY_FLOATS = ("torch.float16", "torch.float32", "torch.float64")


def is_tensor(value: object) -> bool:
    """Tell whether `value` is a torch tensor."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def namespace(array: Any) -> Any:
    """Return the module whose functions take `array`: numpy or torch."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def beside(values: NDArray[Any], array: Any) -> Any:
    """Return `values` in the library and on the device of `array`.

    Parameters
    ----------
    values : ndarray
        What is wanted there.
    array : array or tensor
        What tells where.
    """
    return values if isinstance(array, np.ndarray) else namespace(array).asarray(values, device=array.device)


def as_numpy(array: Any) -> NDArray[Any]:
    """Return an array or tensor as an ndarray: the same memory where possible, a copy from another device.

    Gradients are left behind. Floats that NumPy does not know (bfloat16) become float32, which holds them exactly.

    Raises
    ------
    InputError
        If the tensor has no dense values, for instance a sparse one.
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

    Gradient kernels keep their integer rows on the tensor's device and run there, with the same bits as NumPy.

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

    @property
    def computes(self) -> bool:
        """Whether the exact kernels can run on the tensor's device."""
        return self.tensor.device.type not in _WITHOUT_FLOAT64

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield consecutive blocks of at most `size` rows."""
        for part in self.tensor.split(size):
            yield as_numpy(part)

    def shares_memory(self, other: TensorRows) -> bool:
        """Tell whether two tensors are views of one storage."""
        return bool(self.tensor.untyped_storage().data_ptr() == other.tensor.untyped_storage().data_ptr())


def _is_foreign(tensor: Any) -> bool:
    return tensor.is_floating_point() and str(tensor.dtype) not in _NUMPY_FLOATS
