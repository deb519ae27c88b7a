"""Torch tensors as rows, without importing torch: whoever hands one in has imported it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError

# The exact kernels need float64, which mps does not have. What the processor computes is NumPy's, on all cores.
_LEFT_TO_NUMPY = ("cpu", "mps")
_NUMPY_FLOATS = ("torch.float16", "torch.float32", "torch.float64")


def is_tensor(value: object) -> bool:
    """Tell whether `value` is a torch tensor."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def namespace(array: Any) -> Any:
    """Return the module whose functions take `array`: numpy or torch."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def beside(values: Any, array: Any) -> Any:
    """Return `values` in the library and on the device of `array`."""
    if isinstance(array, np.ndarray):
        return as_numpy(values)
    return namespace(array).asarray(values, device=array.device)


def empty_beside(array: Any, shape: tuple[int, ...]) -> Any:
    """Return memory in the library, on the device and of the dtype of `array`."""
    return np.empty(shape, array.dtype) if isinstance(array, np.ndarray) else array.new_empty(shape)


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

    The exact kernels keep their integer rows on the tensor's device and run there, with the same bits as NumPy.

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
        """Whether the exact kernels run on the tensor's device."""
        return self.tensor.device.type not in _LEFT_TO_NUMPY

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield consecutive blocks of at most `size` rows."""
        for part in self.tensor.split(size):
            yield as_numpy(part)

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows at these positions."""
        return as_numpy(self.tensor[beside(indices, self.tensor)])

    def usable(self, size: int) -> NDArray[np.bool_]:
        """Tell of each row whether it has a direction, as `usable_rows` does; on the device, `size` rows at a time."""
        largest = (rows.double().abs().amax(dim=1) for rows in self.tensor.split(size))
        return np.concatenate([as_numpy(few.isfinite() & (few > 0)) for few in largest])

    def shares_memory(self, other: TensorRows) -> bool:
        """Tell whether two tensors are views of one storage."""
        return bool(self.tensor.untyped_storage().data_ptr() == other.tensor.untyped_storage().data_ptr())


def on_device(source: object) -> TypeGuard[TensorRows]:
    """Tell whether rows are those of a tensor on whose device the exact kernels run."""
    return isinstance(source, TensorRows) and source.computes


def _is_foreign(tensor: Any) -> bool:
    return tensor.is_floating_point() and str(tensor.dtype) not in _NUMPY_FLOATS
