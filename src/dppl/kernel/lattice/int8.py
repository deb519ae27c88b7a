"""Exact products of small integers through torch's int8 kernels, where it is installed and they are faster.

Wider integers are split into limbs of eight bits, and the products of the limbs are added up. Everything is
an integer from end to end, so that which path was taken never shows in a bit.
"""

import sys
import timeit
import warnings
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.stream import one_thread_each

Int8 = NDArray[np.int8]

# Multiplications of this process before int8 kernels are looked at, which takes milliseconds, and before torch is
# imported for them alone, which takes seconds and 200 MB: then they took BLAS about ten seconds on each core.
_WORTH_A_LOOK = 2**32
_WORTH_AN_IMPORT = 2**39
_SHAPES = (2, 2, 2), (2, 67, 33), (131, 257, 66), (512, 512, 512)
_SPEEDUP = 1.2
_work = 0


def int8_pays(multiplications: int) -> bool:
    """Whether to multiply int8 numbers with torch; the more a process multiplies, the more is tried."""
    global _work
    _work += multiplications
    imported = "torch" in sys.modules
    if _work < (_WORTH_A_LOOK if imported else _WORTH_AN_IMPORT * one_thread_each.n_threads()):
        return False
    return _exact_and_fast()


@cache
def _exact_and_fast() -> bool:
    """Compare int8 with float32 products, on made-up numbers and one thread."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch = import_module("torch")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with one_thread_each:
                return all(map(_is_exact, _SHAPES)) and _is_fast(*_SHAPES[-1])
        finally:
            torch.set_num_threads(threads)
    except Exception:  # a missing, damaged or too old torch: there is another way
        return False


def _is_exact(shape: tuple[int, int, int]) -> bool:
    """Compare products of the largest numbers: processors without instructions for int8 add in int16, and overflow."""
    n, dim, m = shape
    mixed = np.arange((n + m) * dim, dtype=np.uint32).reshape(-1, dim) * np.uint32(2654435761) >> np.uint32(16) & 1 == 1
    left, right = np.where(mixed[:n], 127, -128).astype(np.int8), np.where(mixed[n:], 127, -127).astype(np.int8)
    product = np.zeros((n, m), np.int32)
    _kernel(left, right.T, product)
    return bool((product == left.astype(np.float32) @ right.astype(np.float32).T).all())


def _is_fast(n: int, dim: int, m: int) -> bool:
    left, right = np.ones((n, dim), np.int8), np.ones((m, dim), np.int8)
    wide_left, wide_right = left.astype(np.float32), right.astype(np.float32)
    integers = min(timeit.repeat(lambda: multiply(left, right.T), number=1, repeat=5))
    return _SPEEDUP * integers < min(timeit.repeat(lambda: wide_left @ wide_right.T, number=1, repeat=5))


def multiply(left: Int8, right: Int8, out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
    """Return the int32 product of int8 matrices of shapes (n, k) and (k, m); torch must be imported.

    torch does not say when its kernel refuses to work, as it does for some rows or columns of length 1 (PyTorch issue
    195066) and could without memory, and leaves in `out` what was there. So one entry is computed twice.
    """
    if out is None:
        out = np.empty((len(left), right.shape[1]), np.int32)
    if min(*left.shape, *right.shape) > 1:
        last = int(np.dot(left[-1].astype(np.int64), right[:, -1].astype(np.int64)))
        out[-1, -1] = ~last
        _kernel(left, right, out)
        if out[-1, -1] == last:
            return out
    np.copyto(out, left.astype(np.float64) @ right.astype(np.float64), casting="unsafe")
    return out


def _kernel(left: Int8, right: Int8, out: NDArray[np.int32]) -> None:
    torch = sys.modules["torch"]

    def tensor(array: Int8) -> Any:
        if not (array.flags.writeable and array.flags.forc):
            array = array.copy()  # torch warns of arrays that it must not write to
        return torch.from_numpy(array)

    torch._int_mm(tensor(left), tensor(right), out=torch.from_numpy(out))


def limbs(integers: NDArray[Any], largest: int) -> Int8:
    """Split integers of shape (n, k), at most 8,355,711, into signed bytes: the sum of ``limb[i] * 256**i``."""
    n_limbs = next(k for k in (1, 2, 3) if largest <= 127 * (256**k - 1) // 255)
    half = np.int32(128 * (256**n_limbs - 1) // 255)
    # With 128 added to each, limbs are the bytes of a number without a sign; and byte ^ 128 is byte - 128, as int8.
    rest = integers.astype(np.int32)
    rest += half
    rest ^= half
    out = np.empty((n_limbs, *integers.shape), np.int8)
    for limb in out:
        np.copyto(limb, rest, casting="unsafe")
        rest >>= 8
    return out


def multiply_limbs(left: Int8, right: Int8, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    """Return the product of integers, given as limbs, with an int8 matrix of at most 2¹⁷ rows; `dtype` holds it."""
    n_limbs, n, k = left.shape
    parts = multiply(left.reshape(n_limbs * n, k), right).reshape(n_limbs, n, -1)
    # Limbs of higher order may leave the range on the way; modulo 2³² or 2⁶⁴ all is right, and the result fits.
    total: NDArray[Any] = parts[-1].astype(dtype)
    for part in parts[-2::-1]:
        total <<= 8
        total += part
    return total
