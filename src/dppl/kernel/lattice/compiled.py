"""Loops over rows, compiled by numba: what NumPy does in many passes over memory, in one, with the same bits.

Every addition of floats has the order of the NumPy path, and no compiler may change it: no fast mathematics, and no
multiplication fused with an addition. `dppl.kernel.lattice.stream.compiled_kernels` imports this module, where it pays.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config as config
from numba import njit


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for these types when it is defined, or load what an earlier process compiled."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, nogil=True)(function)
        except Exception:  # nowhere to keep it, a full disk, or a damaged file
            return njit(signature, nogil=True)(function)

    return decorate


@compiled("void(float64[:, ::1], int8[:, ::1], float64, int64, int64, float64)")
def plain_rows(rows: Any, out: Any, scale: float, numerator: int, denominator: int, shrink: float) -> None:
    """Write the lattice rows of `rows`, which are overwritten; see `Lattice` for the bound."""
    n, d = rows.shape
    width = 1
    while width < d:
        width *= 2
    squares = np.zeros(width)
    bits = rows.view(np.int64)
    for i in range(n):
        row, q = rows[i], out[i]
        largest = np.int64(0)
        for j in range(d):
            largest = max(largest, bits[i, j] & 0x7FFFFFFFFFFFFFFF)
        if largest == 0 or largest >= 0x7FF0000000000000:
            q[:] = 0
            continue
        power: Any = min(max(1022 - (largest >> 52), -1022), 1022)
        factor = math.ldexp(1.0, power)
        for j in range(d):
            row[j] *= factor
            squares[j] = row[j] * row[j]
        squares[d:] = 0.0
        half = width // 2
        while half:
            for j in range(half):
                squares[j] += squares[j + half]
            half //= 2
        factor = scale / math.sqrt(squares[0])
        while True:
            total = np.int64(0)
            for j in range(d):
                row[j] *= factor
                step = np.int32(min(max(np.rint(row[j]), -127.0), 127.0))
                total += np.int64(step * step)
                q[j] = step
            if denominator * total <= numerator:
                break
            factor = min(math.sqrt(numerator / denominator / total), shrink)
