"""Exact sums of clipped gradients of the softmax loss of a linear layer.

A record's gradient is the outer product of a residual (the one-hot label minus the
predicted probabilities) with its lattice row. What a record adds depends on no other,
to the last bit:

* Weights become integers so short that a product with a lattice row stays below 2²⁴,
  where float32 holds every integer: the order in which BLAS adds does not show.
* Everything between, softmax included, is additions, multiplications, divisions and
  roots of single numbers, which IEEE 754 rounds in one way only, in an order that
  depends on the number of classes. A library's exponential may treat the end of an
  array in another way than its middle, and differ between processors.
* Residuals are clipped, put on a grid of integers and their norm is checked there. Sums
  over records are integers below 2⁵³, which float64 holds exactly, and then int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import ParameterError
from dppl.kernel.lattice.kernels import Codes
from dppl.kernel.lattice.lattice import Int8, Lattice
from dppl.kernel.lattice.stream import compiled_kernels, cut, in_order, small_steps
from dppl.kernel.privacy.sensitivity import RESOLUTION

if TYPE_CHECKING:
    from dppl.kernel.lattice.joint import Persons

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]
Float32 = NDArray[np.float32]

# Steps of the grid of the weights of single records, per unit.
WEIGHT_STEPS = 2**20
# Blocks are cut so that their class by row arrays hold as many numbers as fit into a
# core's cache, but not into fewer rows than pay for adding up their products. No result
# depends on either.
_BLOCK_NUMBERS = 1 << 18
_LEAST_ROWS = 1024
# Compiled, a few records at a time stay there, whatever the block.
_COMPILED_ROWS = 1024
# NumPy takes as long for the gradients of one class as for mapping a hundredth of the
# rows.
_CLASSES_A_MAP = 100
# Rounding in float32 lengthens a residual by less than 2⁻¹⁶ of it; the check in
# integers does not rely on it.
LENGTH = np.float32(RESOLUTION * (1 - 2.0**-16))
# Beyond, logits could leave the range of float32.
_LARGEST_WEIGHT = 2.0**90
_CLIPS = 2.0**-20, 2.0**20
_LARGEST_DIM = 300_000
# Probabilities below 2⁻⁴⁰ of the largest are that; they are far below the grid and
# would be slow to square.
SMALLEST_LOG2 = np.float32(-40)
LOG2_E = np.float32(1 / math.log(2))
# Taylor series of 2^f; for |f| ≤ 1/2 its remainder is below the rounding of float32.
EXP2 = tuple(np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7))
# As compiled code takes them.
NUMBERS = LOG2_E, SMALLEST_LOG2, EXP2, LENGTH, RESOLUTION**2


@dataclass(frozen=True, slots=True)
class SoftmaxGradient:
    r"""Sum the clipped gradients of softmax regression over lattice rows, as exact integers.

    For a lattice row q = s·φ of class y and weights W the logits are W·φ + offsets,
    their softmax is p, and the residual r = onehot(y) - p. The record adds the integer
    matrix R·q with R = trunc(`RESOLUTION`·r/max(clip, \|r\|)), the *descent* direction.
    Divide by `unit` and multiply by clip to get the sum of gradients clipped to norm
    clip.

    The matrix that a record adds has the Frobenius norm \|R\|·\|(q, bias)\|: an outer
    product's norm is the product of norms. \|R\|² ≤ RESOLUTION² is checked in integers
    for every record, with those that failed set to zero, and \|q\|² ≤ s² is what a
    lattice row is. So `squared_sensitivity` bounds what adding or removing a record
    changes, whatever weights, offsets and clip are, as long as they do not depend on it
    other than through released values.

    >>> gradient = SoftmaxGradient(Lattice(4))
    >>> rows = gradient.lattice.transform([[1.0, 0.0, 0.0, 0.0]])
    >>> total = gradient.sum([rows], np.array([1]), np.zeros((2, 4)))
    >>> (total / gradient.unit).round(3)
    array([[-0.496,  0.   ,  0.   ,  0.   ],
           [ 0.496,  0.   ,  0.   ,  0.   ]])
    """

    lattice: Lattice
    # A constant coordinate, in lattice steps, that ends every row for the sum (not for
    # the logits, where the caller puts it into the offsets). 0 leaves it out.
    bias: int = 0

    def __post_init__(self) -> None:
        if (
            self.lattice.dim > _LARGEST_DIM
        ):  # integer weights of wider rows would be too coarse
            raise ParameterError(
                f"gradients are for rows of up to 300,000 coordinates; got {self.lattice.dim}."
            )

    @property
    def squared_sensitivity(self) -> Fraction:
        """Square of the Frobenius norm that one record's matrix can have, in units of the sum."""
        return RESOLUTION**2 * (self.lattice.squared_norm + self.bias**2)

    @property
    def unit(self) -> float:
        """Units of the sum for a residual of the clipping norm and a unit row."""
        return RESOLUTION * self.lattice.scale

    def sum(
        self,
        blocks: Iterable[Int8],
        codes: Codes,
        weights: Float,
        offsets: Float | None = None,
        *,
        clip: float = 1.0,
        persons: Persons | None = None,
        residuals_of: Callable[[Any, Float32], tuple[Float32, Float32]] | None = None,
    ) -> Int64:
        """Return the sum of all records' matrices, shape (n_classes, dim), with one column more if there is a bias.

        Lattice rows come in blocks of any length, in the order of `codes`, where -1
        skips a row. Weights are in units of φ, and offsets are added to all logits.
        Residuals longer than `clip` are shortened to it (none is longer than √2), and
        with `persons` the matrix of all records of a person to the longest of one
        record.

        Another loss has its own `residuals_of` the records of a part and their logits,
        with their norms.
        """
        check_clip(clip)
        layer = IntegerLayer(weights, offsets, self.lattice, len(codes))
        n_classes, dim = weights.shape

        def exact_sum(item: tuple[int, Int8]) -> Int64:
            start, block = item
            part: Any = slice(start, start + len(block))
            if persons is not None:
                part = persons.order[part]
            if residuals_of is None:
                steps = layer.steps(block, codes[part], clip, None)
            else:
                logits = layer.logits(block)
                with turns(logits.size):
                    steps = on_grid(*residuals_of(part, logits), clip)
            if persons is not None:
                steps = persons.clipped(
                    steps, block, start, self.lattice, layer.kernels
                )
            exact = layer.products(steps, block)
            if self.bias:
                exact = np.column_stack(
                    [exact, self.bias * steps.sum(axis=1).astype(np.int64)]
                )
            return exact

        total = np.zeros((n_classes, dim + (self.bias != 0)), np.int64)
        rows = layer.block_rows
        if persons:
            pieces = persons.blocks(blocks, rows)
        else:
            pieces = cut(blocks, rows)
        for exact in in_order(exact_sum, pieces):
            total += exact
        return total

    def count_long(
        self,
        blocks: Iterable[Int8],
        codes: Codes,
        weights: Float,
        offsets: Float | None,
        threshold: float,
    ) -> int:
        """Return the number of records whose residual, before clipping, is longer than `threshold`."""
        layer = IntegerLayer(weights, offsets, self.lattice, len(codes) // 2)

        def count(item: tuple[int, Int8]) -> int:
            start, block = item
            _, norms = softmax_residuals(
                layer.logits(block), codes[start : start + len(block)]
            )
            return int(np.count_nonzero(norms > np.float32(threshold)))

        return sum(in_order(count, cut(blocks, layer.block_rows)))

    def hits(
        self,
        blocks: Iterable[Int8],
        codes: Codes,
        weights: Float,
        offsets: Float | None = None,
    ) -> NDArray[np.bool_]:
        """Mark the records whose own class has the largest logit, or shares it; each by its own row alone."""
        layer = IntegerLayer(weights, offsets, self.lattice, len(codes) // 2)

        def right(item: tuple[int, Int8]) -> NDArray[np.bool_]:
            start, block = item
            part = codes[start : start + len(block)]
            logits = layer.logits(block)
            own = logits[
                part, np.arange(len(block))
            ]  # of code -1 the last class, which counts for nothing
            return np.asarray((part >= 0) & (own >= logits.max(axis=0)))

        return np.concatenate(
            [np.zeros(0, bool), *in_order(right, cut(blocks, layer.block_rows))]
        )

    def shortfalls(
        self,
        blocks: Iterable[Int8],
        codes: Codes,
        weights: Float,
        of_records: Callable[[slice], Int64],
    ) -> Int64:
        r"""Return the weighted sum over records of 1/C - p: how much less often than others each class is predicted.

        A vector p of C probabilities has \|1/C - p\|² = \|p\|² - 1/C ≤ 1 - 1/C, the
        square of `longest_shortfall`. A record adds trunc(`RESOLUTION`·(1/C -
        p)/`longest_shortfall`) times its weight, and the norm is checked in integers.
        So it moves the sum by at most `RESOLUTION`, whatever the weights of the softmax
        are.
        """
        layer = IntegerLayer(weights, None, self.lattice, len(codes) // 2)
        longest = longest_shortfall(len(weights))

        def exact_sum(item: tuple[int, Int8]) -> Int64:
            start, block = item
            part = slice(start, start + len(block))
            steps = layer.steps(
                block, codes[part], longest, of_records(part), shortfalls=True
            )
            return np.asarray(steps.sum(axis=1), np.int64)

        total = np.zeros(len(weights), np.int64)
        for exact in in_order(exact_sum, cut(blocks, layer.block_rows)):
            total += exact
        return total


def longest_shortfall(n_classes: int) -> float:
    """Return how far probabilities may lie from equal ones; 1 for a single class, whose probability is 1."""
    return math.sqrt(1 - 1 / n_classes) or 1.0


def check_clip(clip: float) -> None:
    """Raise for a clipping norm that float32 could not apply."""
    if not _CLIPS[0] <= clip <= _CLIPS[1]:
        raise ParameterError(f"clip must lie between 2**-20 and 2**20; got {clip!r}.")


class IntegerLayer:
    """A linear layer whose products with lattice rows are exact in float32, for so many records.

    What follows is computed by NumPy, or compiled, with the same bits.
    """

    def __init__(
        self,
        weights: Float,
        offsets: Float | None,
        lattice: Lattice,
        n_records: int = 0,
    ) -> None:
        if offsets is None:
            offsets = np.zeros(len(weights))
        if not all(
            (np.abs(values) <= _LARGEST_WEIGHT).all() for values in (weights, offsets)
        ):  # NaN is not either
            raise ParameterError(
                "weights and offsets must be finite and at most 2**90; these steps diverge."
            )
        norms = np.sqrt(np.square(weights).sum(axis=1))
        # Rounding moves a coordinate by at most 1/2, so a vector by √dim/2; |q·w| ≤
        # s·‖w‖ stays below 2²⁴.
        longest = 2.0**24 / (lattice.scale + 1) - math.sqrt(lattice.dim) / 2
        steps = longest / np.where(norms > 0, norms, 1.0)
        self.weights = np.rint(weights * steps[:, None]).astype(np.float32)
        self.scales = (1 / (steps * lattice.scale)).astype(np.float32)
        self.offsets = offsets.astype(np.float32)
        self.block_rows = max(_LEAST_ROWS, _BLOCK_NUMBERS // len(weights))
        self.kernels = compiled_kernels(n_records * weights.size // _CLASSES_A_MAP)
        if self.kernels:
            self.block_rows = _COMPILED_ROWS
            n_limbs = 1 if np.abs(self.weights).max() < 2**15 else 2
            self._pairs = self.kernels.pairs_of(
                self.weights.astype(np.int32, order="C"), n_limbs
            )

    def logits(self, rows: Int8) -> Float32:
        """Return logits of shape (n_classes, n)."""
        if self.kernels:
            return np.asarray(
                self.kernels.logits(self._pairs, rows, self.scales, self.offsets)
            )
        # Integers are finite, but a library may compute with what lies beside them.
        with np.errstate(invalid="ignore"):
            products = self.weights @ rows.astype(np.float32).T
        products *= self.scales[:, None]
        products += self.offsets[:, None]
        return products

    def steps(
        self,
        rows: Int8,
        codes: Codes,
        clip: float,
        of_records: Int64 | None,
        *,
        shortfalls: bool = False,
    ) -> Any:
        """Return the residuals of softmax (or 1/C - p) as integers on the grid, shape (n_classes, n)."""
        logits = self.logits(rows)
        if self.kernels:
            if of_records is None:
                weights = np.ones(len(codes))
            else:
                weights = of_records / WEIGHT_STEPS
            return self.kernels.softmax_steps(
                logits, codes, weights, np.float32(clip), shortfalls, *NUMBERS
            )
        with turns(logits.size):
            return on_grid(
                *softmax_residuals(logits, codes, shortfalls=shortfalls),
                clip,
                of_records,
            )

    def products(self, steps: Any, rows: Int8) -> Int64:
        """Return ``steps @ rows``, exactly."""
        if self.kernels:
            return np.asarray(
                self.kernels.products(steps.astype(np.int32, copy=False), rows)
            )
        # Integers below 2⁵³: exact in any order.
        return np.asarray((steps @ rows.astype(np.float64)).astype(np.int64))


def turns(numbers: int) -> AbstractContextManager[Any]:
    """Let few threads at a time work on so many numbers, if they are few."""
    if numbers <= _BLOCK_NUMBERS:
        return small_steps
    return nullcontext()


def softmax_residuals(
    logits: Float32, codes: Codes, *, shortfalls: bool = False
) -> tuple[Float32, Float32]:
    """Return residuals (or 1/C - p), of shape (n_classes, n), over the logits, and their norms."""
    logits -= logits.max(axis=0)
    r = exp_of(logits)
    r /= -sum_of_rows(r)
    if shortfalls:
        r += np.float32(1 / len(r))
    else:
        counted = np.flatnonzero(codes >= 0)
        r[codes[counted], counted] += np.float32(1)
    if (codes < 0).any():
        r[:, codes < 0] = 0
    return r, np.sqrt(sum_of_rows(np.square(r)))


def on_grid(
    columns: Float32, norms: Float32, clip: float, of_records: Int64 | None = None
) -> Float:
    """Return integers of squared norm at most RESOLUTION², one column a record, over the columns; perhaps weighted."""
    columns *= LENGTH / np.maximum(norms, np.float32(clip))
    steps = np.trunc(columns, out=columns).astype(np.float64)
    # The check that sensitivities rest on. Integers below 2⁵³ are exact in any order;
    # NaN is set to zero, too.
    steps[:, ~(np.einsum("ij,ij->j", steps, steps) <= RESOLUTION**2)] = 0
    if of_records is not None:
        # Products below 2⁵³ are exact, and cutting them off lengthens nothing.
        steps *= of_records / WEIGHT_STEPS
        np.trunc(steps, out=steps)
    return steps


def exp_of(x: Float32) -> Float32:
    """Replace x ≤ 0 by exp(x), floored at 2⁻⁴⁰, with operations that IEEE 754 defines to the last bit."""
    x *= LOG2_E
    np.maximum(x, SMALLEST_LOG2, out=x)
    whole = np.rint(x)
    x -= whole
    power = np.full_like(x, EXP2[-1])
    for coefficient in reversed(EXP2[:-1]):
        power *= x
        power += coefficient
    # 2^whole, by writing the exponent of a float32.
    exponents = whole.astype(np.int32)
    exponents += 127
    exponents <<= 23
    power *= exponents.view(np.float32)
    return power


def sum_of_rows(values: Float32) -> Float32:
    """Add rows pairwise, in an order that their number alone decides."""
    while len(values) > 1:
        pairs, odd = divmod(len(values), 2)
        total = values[:pairs] + values[pairs + odd :]
        if odd:
            values = np.concatenate([total, values[pairs : pairs + 1]])
        else:
            values = total
    return np.asarray(values[0])
