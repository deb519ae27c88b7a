"""Exact kernels on torch tensors: lattice rows stay on their device, and sums of integers leave it.

Everything is an integer from end to end, so the bits are those of `kernels` and `gram` on NumPy arrays. Products are
those of torch's int8 kernels, which are asked first whether they are exact on the device, and of float64 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.int8 import SHAPES, extremes
from dppl.kernel.lattice.lattice import LARGEST, Lattice
from dppl.kernel.lattice.stream import RowSource
from dppl.kernel.lattice.tensors import TensorRows, as_numpy, beside, namespace, on_device

if TYPE_CHECKING:
    from dppl.kernel.lattice.kernels import SimilarityClip

Int64 = NDArray[np.int64]

# Rows at a time that keep a device busy. No result depends on it.
DEVICE_ROWS = 1 << 14
_MAPPED_ROWS = 1024
# Up to here products of int8 add up below 2³¹.
EXACT_TERMS = 2**17
# What the accumulators of products hold.
LARGEST_SIMILARITY = 2**31 - 1
# Similarities at a time, of 4 bytes each; with float64 products they take three times that.
_SIMILARITIES = 1 << 27
# CUDA's int8 products want more than 16 rows, and lengths that are multiples of these.
_LEAST, _STEP, _WIDE_STEP = 24, 8, 16


def lattice_blocks(lattice: Lattice, source: RowSource, size: int) -> Iterator[Any]:
    """Yield lattice rows in blocks of at most `size` rows; those of a tensor that computes are on its device.

    Floats are mapped by the processor, whose roundings a device need not share. Rows that are int8 and of a plain
    lattice never leave the device, but for those that break its bound.

    Parameters
    ----------
    lattice : Lattice
        Where the rows are mapped to.
    source : array, memory map, tensor or table of shape (n, d)
        The rows.
    size : int

    Yields
    ------
    ndarray or torch.Tensor of shape (at most size, dim), int8
    """
    if not on_device(source):
        yield from lattice.blocks(source, size)
    elif lattice.is_plain and source.tensor.dtype == namespace(source.tensor).int8:
        yield from (_bounded(lattice, rows) for rows in source.tensor.split(size))
    else:
        yield from (_mapped(lattice, rows) for rows in source.tensor.split(size) if len(rows))


def _mapped(lattice: Lattice, rows: Any) -> Any:
    """Map rows on the processor, which holds a few of them at a time."""
    blocks = lattice.blocks(TensorRows(rows), _MAPPED_ROWS)
    return namespace(rows).concatenate([beside(block, rows) for block in blocks])


def _bounded(lattice: Lattice, rows: Any) -> Any:
    """Enforce the bound on rows that are said to be of this lattice, as it does itself."""
    xp = namespace(rows)
    squares = xp.square(rows.to(xp.int16)).sum(dim=1, dtype=xp.int64)  # 16 bits hold that of -128 too
    bound = lattice.squared_norm
    wrong = (bound.denominator * squares > bound.numerator) | (rows.amin(dim=1) < -LARGEST)
    if not wrong.any():
        return rows
    bounded = rows.clone()
    bounded[wrong] = beside(lattice.transform(as_numpy(rows[wrong])), rows)
    return bounded


def product(left: Any, right: Any) -> Any:
    """Return ``left @ right.T``, int32 of shape (n, m), exactly for int8 rows of up to `EXACT_TERMS` columns."""
    xp = namespace(left)
    if not _int8_is_exact(left.device):
        return (left.to(xp.float64) @ right.to(xp.float64).T).to(xp.int32)
    return xp._int_mm(_padded(left), _padded(right).T)[: len(left), : len(right)]


def _padded(rows: Any) -> Any:
    n, k = rows.shape
    high, wide = max(-n % _STEP, _LEAST - n), max(-k % _WIDE_STEP, _WIDE_STEP - k)
    if high or wide:
        return namespace(rows).nn.functional.pad(rows, (0, wide, 0, high))
    return rows.contiguous()


@cache
def _int8_is_exact(device: Any) -> bool:
    """Compare torch's int8 products on a device with integers, on made-up numbers."""
    torch = sys.modules["torch"]
    try:
        for shape in SHAPES:
            left, right = extremes(shape)
            wide = left.astype(np.int64) @ right.astype(np.int64).T
            ours = (_padded(torch.asarray(rows, device=device)) for rows in (left, right))
            found = as_numpy(torch._int_mm(next(ours), next(ours).T))
            if not np.array_equal(found[: len(left), : len(right)], wide):
                return False
    except (AttributeError, RuntimeError):  # an old torch, or a device without such products
        return False
    return True


def sums_of_classes(rows: Any, codes: NDArray[np.intp], n_classes: int) -> Int64:
    """Return the int64 sums of int8 rows by class, by a product with rows that tell it; code -1 counts nowhere."""
    xp = namespace(rows)
    member = beside(np.array(codes), rows) == beside(np.arange(n_classes), rows)[:, None]
    return as_numpy(product(member.to(xp.int8), rows.T)).astype(np.int64)


def gram(rows: Any) -> Int64:
    """Return the Gram matrix of int8 rows of shape (n, dim), as int64 of shape (dim, dim)."""
    total = np.zeros((rows.shape[1],) * 2, np.int64)
    for few in rows.split(EXACT_TERMS):
        columns = few.T.contiguous()
        total += as_numpy(product(columns, columns))
    return total


class DeviceScore:
    """Utilities of a block of public rows, computed on the device of the private ones.

    `rows` are private lattice rows, those of one class after those of another, each up to its entry of `ends`. Neither
    the bounds of `clip` nor s² lie beyond `LARGEST_SIMILARITY`.
    """

    def __init__(self, rows: Any, ends: Int64, clip: SimilarityClip) -> None:
        self.rows, self.ends, self.clip = rows, ends, clip

    def __call__(self, public: Any) -> Int64:
        """Return utilities of shape (n_classes, rows), int64, of public lattice rows wherever they are."""
        public, xp = beside(public, self.rows), namespace(self.rows)
        out = xp.zeros((len(self.ends), len(public)), dtype=xp.int64, device=public.device)
        tile = max(1, min(DEVICE_ROWS, _SIMILARITIES // max(1, len(public))))
        for start in range(0, len(self.rows), tile):
            similarities = product(self.rows[start : start + tile], public).clamp_(self.clip.low, self.clip.high)
            sizes = np.diff(np.clip(self.ends, start, start + len(similarities)), prepend=start).tolist()
            for code, few in enumerate(similarities.split(sizes)):
                if len(few):
                    out[code] += few.sum(dim=0, dtype=xp.int64)
        return np.asarray(as_numpy(out) - np.diff(self.ends, prepend=0)[:, None] * self.clip.low)
