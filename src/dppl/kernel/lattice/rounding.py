"""Rounding to integers without ever leaving a ball: the step on which exact sensitivities rest."""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

_SHRINK = 1 - 2.0**-10


def round_within(steps: Float, squared_norm: Fraction, largest: float = math.inf, *, out: Float | None = None) -> Float:
    r"""Round rows to integers and shrink those toward zero whose squared norm would exceed `squared_norm`.

    Rows are finite. Squared norms of the rounded rows, times the denominator of `squared_norm`, must lie below 2⁵³, so
    that floats hold them exactly and every comparison is one of integers. `largest` bounds each |q_j|. Each row depends
    on its own row alone; `out` is overwritten and must not be `steps`.
    """
    numerator, denominator = squared_norm.numerator, squared_norm.denominator
    q = _round(steps, largest, out)
    squares = _squared_norms(q)
    over = np.flatnonzero(denominator * squares > numerator)
    long, squares = steps[over], squares[over]
    while over.size:
        long *= np.minimum(np.sqrt(float(squared_norm) / squares), _SHRINK)[:, None]
        rounded = _round(long, largest)
        q[over] = rounded
        squares = _squared_norms(rounded)
        still = denominator * squares > numerator
        over, long, squares = over[still], long[still], squares[still]
    return q


def _round(steps: Float, largest: float, out: Float | None = None) -> Float:
    q = np.rint(steps, out=out)
    return np.clip(q, -largest, largest, out=q)


def _squared_norms(q: Float) -> Float:
    return np.asarray(np.einsum("ij,ij->i", q, q))
