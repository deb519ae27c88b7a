"""Loops over rows, compiled by numba: what NumPy does in many passes over memory, in one, with the same bits.

Every addition of floats has the order of the NumPy path, and no compiler may change it:
no fast mathematics, and no multiplication fused with an addition.
`dppl.kernel.lattice.stream.compiled_kernels` imports this module, where it pays.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config as config
from numba import njit, types
from numba.extending import intrinsic


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for these types when it is defined, or load what an earlier process compiled."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, nogil=True, error_model="numpy")(
                function
            )
        except Exception:  # nowhere to keep it, a full disk, or a damaged file
            return njit(signature, nogil=True, error_model="numpy")(function)

    return decorate


@njit
def _scale_to(row: Any, bits: Any, squares: Any, length: float, far: int) -> bool:
    """Make a row so long, and return whether it has a direction; `bits` are the bits of its numbers."""
    largest = np.int64(0)
    for j in range(row.size):
        largest = max(
            largest, bits[j] & 0x7FFFFFFFFFFFFFFF
        )  # of absolute values bits are in order as numbers are
    if (
        not 0 < largest < 0x7FF0000000000000
    ):  # infinity, above which is what is no number
        return False
    power: Any = 1022 - (largest >> 52)
    if abs(power) > far:
        factor = math.ldexp(1.0, min(max(power, -1022), 1022))
        for j in range(row.size):
            row[j] *= factor
    for j in range(row.size):
        squares[j] = row[j] * row[j]
    left = row.size
    while left > 1:
        half = left // 2
        for j in range(half):
            squares[j] += squares[half + j]
        if left % 2:
            squares[0] += squares[left - 1]
        left = half
    factor = length / math.sqrt(squares[0])
    for j in range(row.size):
        row[j] *= factor
    return True


@njit
def _rotate(row: Any, spare: Any, signs: Any, parts: int, width: int) -> None:
    root = 1.0 / math.sqrt(width)
    share = 2.0 / parts
    for turn in range(len(signs)):
        for j in range(row.size):
            row[j] *= signs[turn, j]
        part = row[row.size - spare.size :] if turn % 2 else row[: spare.size]
        if parts > 1:
            total = spare[:width]
            total[:] = part[:width]
            for k in range(1, parts):
                for j in range(width):
                    total[j] += part[k * width + j]
            for j in range(width):
                total[j] *= share
            for k in range(parts):
                for j in range(width):
                    part[k * width + j] -= total[j]
        for k in range(parts):
            source = part[k * width : (k + 1) * width]
            target = spare[k * width : (k + 1) * width]
            half = width // 2
            left = half
            while left:
                for j in range(half):
                    one = source[2 * j]
                    two = source[2 * j + 1]
                    target[j], target[half + j] = one + two, one - two
                source, target = target, source
                left //= 2
            for j in range(width):
                part[k * width + j] = root * source[j]


def _array(kind: Any, ndim: int) -> Any:
    """Return the type of an array that is read only."""
    return types.Array(kind, ndim, "C", readonly=True)


_Float = types.float64
_Int = types.int64


@compiled(
    types.void(
        *(
            _Float[:, ::1],
            types.int8[:, ::1],
            _array(_Float, 1),
            _Int,
            _array(_Float, 2),
            _Int,
            _Int,
        ),
        *(_Float, _Int, _Int, _Float, _Int),
    )
)
def map_rows(
    rows: Any,
    out: Any,
    center: Any,
    pool: int,
    signs: Any,
    parts: int,
    width: int,
    scale: float,
    numerator: int,
    denominator: int,
    shrink: float,
    far: int,
) -> None:
    """Write the lattice rows of `rows`, which are overwritten."""
    dim = out.shape[1]
    spare = np.empty(parts * width)
    squares = np.empty(rows.shape[1])
    bits = rows.view(np.int64)
    moved = center.size > 0 or pool > 1
    for i in range(len(rows)):
        row = rows[i]
        q = out[i]
        usable = _scale_to(row, bits[i], squares, 1.0 if moved else scale, far)
        if usable and moved:
            if center.size:
                for j in range(row.size):
                    row[j] -= center[j]
            if pool > 1:
                for j in range(dim):
                    total = row[j * pool]
                    for k in range(1, pool):
                        total += row[j * pool + k]
                    row[j] = total
            usable = _scale_to(row[:dim], bits[i, :dim], squares, scale, far)
        if not usable:
            q[:] = 0
            continue
        row = row[:dim]
        _rotate(row, spare, signs, parts, width)
        while True:
            total = np.int64(0)
            for j in range(dim):
                step = np.int32(min(max(np.rint(row[j]), -127.0), 127.0))
                total += np.int64(step * step)
                q[j] = step
            if denominator * total <= numerator:
                break
            factor = min(math.sqrt(numerator / denominator / total), shrink)
            for j in range(dim):
                row[j] *= factor


# Integers are multiplied as pairs of 16 bits, whose two products most processors add up
# in 32 bits by one instruction. The sums of a tile stay in registers: so many rows
# down, and so many vectors of 32-bit lanes across.
_DOWN, _ACROSS, _LANES = (
    (4, 4, 16) if binding.get_host_cpu_features().get("avx512bw") else (4, 2, 8)
)
_PANEL = _ACROSS * _LANES
# What is longer than 16 bits is low + 2¹⁰·high: up to 2²⁴, |high| is at most 2¹⁴.
_LOW_BITS = np.int32(10)
_HALF = np.int32(2**9)
# Rows whose products with steps of up to 2²⁰, where |high| is at most 2¹⁰, add up below
# 2³¹.
MOST_ROWS = 16_384
# Rows that stay near a core while they meet one public panel after the other.
_TILE_ROWS = 256
_ONE = np.float32(1)


_ROWS = _array(types.int8, 2)
_STEPS = _array(types.int32, 2)
_PAIRS = _array(types.int32, 2)
_LOGITS = _array(types.float32, 2)
_FLOATS = _array(types.float32, 1)
_CODES = _array(types.intp, 1)


@intrinsic
def _multiply_tile(
    _: Any, left: Any, stride: Any, panel: Any, n_pairs: Any, out: Any, out_stride: Any
) -> Any:
    """Multiply `_DOWN` rows of pairs with a panel of them: the arguments are addresses, and strides in int32."""
    i32 = ir.IntType(32)
    i64 = ir.IntType(64)
    lanes = ir.VectorType(i32, _LANES)
    halves = ir.VectorType(ir.IntType(16), 2 * _LANES)
    products = ir.VectorType(i32, 2 * _LANES)
    zeros = ir.Constant(lanes, [0] * _LANES)
    even, odd = (
        ir.Constant(lanes, list(range(first, 2 * _LANES, 2))) for first in (0, 1)
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, stride, panel, n_pairs, out, out_stride = arguments
        left, out = (
            builder.inttoptr(address, i32.as_pointer()) for address in (left, out)
        )
        panel = builder.inttoptr(panel, lanes.as_pointer())

        def place(start: Any, count: Any, factor: Any, more: Any) -> Any:
            return builder.gep(start, [builder.add(builder.mul(count, factor), more)])

        def widened(vector: Any) -> Any:
            return builder.sext(builder.bitcast(vector, halves), products)

        before = builder.block
        loop = builder.append_basic_block()
        after = builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(i64)
        sums = [builder.phi(lanes) for _ in range(_DOWN * _ACROSS)]
        k.add_incoming(i64(0), before)
        right = [
            widened(builder.load(place(panel, k, i64(_ACROSS), i64(j)), align=4))
            for j in range(_ACROSS)
        ]
        for i in range(_DOWN):
            pair = builder.load(place(left, stride, i64(i), k), align=4)
            repeated = widened(
                builder.shuffle_vector(
                    builder.insert_element(zeros, pair, i32(0)), zeros, zeros
                )
            )
            for j in range(_ACROSS):
                total = sums[i * _ACROSS + j]
                both = builder.mul(repeated, right[j])
                added = builder.add(
                    *(
                        builder.shuffle_vector(both, both, which)
                        for which in (even, odd)
                    )
                )
                sums[i * _ACROSS + j] = builder.add(total, added)
                total.add_incoming(zeros, before)
                total.add_incoming(sums[i * _ACROSS + j], loop)
        following = builder.add(k, i64(1))
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, n_pairs), loop, after)
        builder.position_at_end(after)
        for index, total in enumerate(sums):
            target = place(
                out, out_stride, i64(index // _ACROSS), i64(index % _ACROSS * _LANES)
            )
            builder.store(total, builder.bitcast(target, lanes.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), generate


@njit(error_model="numpy")
def _multiply(left: Any, panel: Any, sums: Any) -> None:
    """Fill `sums`, shape (m, _PANEL), with products of pairs; m is a multiple of _DOWN."""
    for i in range(0, len(left), _DOWN):
        _multiply_tile(
            left.ctypes.data + i * left.strides[0],
            left.shape[1],
            panel.ctypes.data,
            len(panel),
            sums.ctypes.data + i * sums.strides[0],
            _PANEL,
        )


@njit(error_model="numpy")
def _pair(first: Any, second: Any) -> Any:
    return np.int32(
        np.int32(np.int32(second) << 16) | np.int32(np.int32(first) & 0xFFFF)
    )


@njit(error_model="numpy")
def _pack(rows: Any, panel: Any) -> None:
    """Write the pairs of each row into a column of the panel."""
    n, d = rows.shape
    for k in range(d // 2):
        for j in range(n):
            panel[k, j] = _pair(rows[j, 2 * k], rows[j, 2 * k + 1])
    if d % 2:
        for j in range(n):
            panel[d // 2, j] = _pair(rows[j, d - 1], 0)


@njit(error_model="numpy")
def _halves(value: Any, n_limbs: Any) -> Any:
    """Return a value as low and high, or as it is."""
    high = (
        np.int32(np.int32(value + _HALF) >> _LOW_BITS) if n_limbs == 2 else np.int32(0)
    )
    return np.int32(value - np.int32(high << _LOW_BITS)), high


@compiled(types.int32[:, ::1](_STEPS, types.int64))
def pairs_of(integers: Any, n_limbs: Any) -> Any:
    """Return pairs of the integers of each row, of up to 16 bits, or of their low and then of their high parts."""
    m, n = integers.shape
    tall = (m + _DOWN - 1) // _DOWN * _DOWN
    # Rows end with what keeps them from the same place in a cache.
    out = np.zeros((n_limbs * tall, (n + 1) // 2 + _LANES), np.int32)
    for i in range(m):
        row = integers[i]
        low = out[i]
        high = out[(n_limbs - 1) * tall + i]
        for k in range(n // 2):
            first, first_high = _halves(row[2 * k], n_limbs)
            second, second_high = _halves(row[2 * k + 1], n_limbs)
            high[k] = _pair(first_high, second_high)
            low[k] = _pair(first, second)
        if n % 2:
            first, first_high = _halves(row[n - 1], n_limbs)
            high[n // 2] = _pair(first_high, 0)
            low[n // 2] = _pair(first, 0)
    return out


@compiled(types.float32[:, ::1](_PAIRS, _ROWS, _FLOATS, _FLOATS))
def logits(weights: Any, rows: Any, scales: Any, offsets: Any) -> Any:
    """Return the logits of rows, shape (m, n); weights are `pairs_of` integers whose products stay below 2²⁴."""
    (n, d), m = rows.shape, len(scales)
    panel = np.zeros(((d + 1) // 2, _PANEL), np.int32)
    sums = np.empty((len(weights), _PANEL), np.int32)
    tall = (m + _DOWN - 1) // _DOWN * _DOWN
    out = np.empty((m, n), np.float32)
    for start in range(0, n, _PANEL):
        width = min(_PANEL, n - start)
        _pack(rows[start : start + width], panel)
        _multiply(weights, panel, sums)
        for c in range(m):
            low = sums[c]
            high = sums[len(weights) - tall + c]
            here = out[c, start : start + width]
            for j in range(width):
                product = (
                    low[j]
                    if len(weights) == tall
                    else np.int32(low[j] + np.int32(high[j] << _LOW_BITS))
                )
                here[j] = np.float32(product) * scales[c] + offsets[c]
    return out


@compiled(types.int64[:, ::1](_STEPS, _ROWS))
def products(steps: Any, rows: Any) -> Any:
    """Return ``steps @ rows``, of at most `MOST_ROWS` rows and of steps of up to 2²⁰."""
    (n, d), m = rows.shape, len(steps)
    if n > MOST_ROWS:
        raise ValueError("products are of at most 16,384 rows")
    left = pairs_of(steps, 2)
    panel = np.zeros(((n + 1) // 2, _PANEL), np.int32)
    sums = np.empty((len(left), _PANEL), np.int32)
    out = np.empty((m, d), np.int64)
    for start in range(0, d, _PANEL):
        width = min(_PANEL, d - start)
        for k in range(n // 2):
            first = rows[2 * k, start : start + width]
            second = rows[2 * k + 1, start : start + width]
            here = panel[k, :width]
            for j in range(width):
                here[j] = _pair(first[j], second[j])
        if n % 2:
            for j in range(width):
                panel[n // 2, j] = _pair(rows[n - 1, start + j], 0)
        _multiply(left, panel, sums)
        for c in range(m):
            low = sums[c]
            high = sums[len(left) // 2 + c]
            there = out[c, start : start + width]
            for j in range(width):
                there[j] = np.int64(low[j]) + (np.int64(high[j]) << _LOW_BITS)
    return out


@compiled(_Int[:, ::1](_STEPS, _ROWS, _array(_Int, 1), _array(_Int, 1)))
def person_squares(steps: Any, rows: Any, starts: Any, sizes: Any) -> Any:
    """Return N² and D of `joint` as high·2²⁰ + low, shape (n, 4), of persons of so many records from `starts` on."""
    m = len(steps)
    d = rows.shape[1]
    out = np.zeros((len(starts), 4), np.int64)
    residuals = np.empty((sizes.max(), m), np.int64)
    for person in range(len(starts)):
        start = starts[person]
        size = sizes[person]
        for c in range(m):
            for i in range(size):
                residuals[i, c] = steps[c, start + i]
        for i in range(size):
            one = residuals[i]
            row = rows[start + i]
            for j in range(i + 1):
                other = residuals[j]
                column = rows[start + j]
                a = np.int64(0)
                g = np.int32(0)
                for c in range(m):
                    a += one[c] * other[c]
                for k in range(d):
                    g += np.int32(np.int32(row[k]) * np.int32(column[k]))
                high = (a >> 20) * np.int64(g)
                low = (a & 0xFFFFF) * np.int64(g)
                times = 1 if i == j else 2
                out[person, 0] += times * high
                out[person, 2] += times * low
                if i == j:
                    out[person, 1] += high
                    out[person, 3] += low
    return out


@compiled(types.int32[:, ::1](_STEPS, _array(_Float, 1)))
def shortened(steps: Any, shares: Any) -> Any:
    """Return each column times its share, cut off towards zero."""
    out = np.empty(steps.shape, np.int32)
    for c in range(len(steps)):
        for i in range(steps.shape[1]):
            out[c, i] = np.int32(np.float64(steps[c, i]) * shares[i])
    return out


@njit(error_model="numpy")
def _add_rows(values: Any, size: Any) -> None:
    """Add rows of `_PANEL` numbers pairwise into the first, in the order of `residuals`."""
    while size > _PANEL:
        half = (size // _PANEL + 1) // 2 * _PANEL
        for i in range(size - half):
            values[i] += values[half + i]
        size = half


@compiled(
    types.int32[:, ::1](
        *(_LOGITS, _CODES, _array(_Float, 1), types.float32, types.boolean),
        *(
            types.float32,
            types.float32,
            types.UniTuple(types.float32, 7),
            types.float32,
            types.int64,
        ),
    )
)
def softmax_steps(
    logits: Any,
    codes: Any,
    weights: Any,
    clip: Any,
    shortfalls: Any,
    log2_e: Any,
    smallest: Any,
    exp2: Any,
    length: Any,
    squared_length: Any,
) -> Any:
    """Return residuals (or 1/C - p) on the grid, shape (C, n), by the operations of `residuals` in their order.

    So many records at a time that all stays in a core's first cache. Its numbers are
    arguments: code that was kept by an earlier process would not notice that another
    module has changed them.
    """
    m, n = logits.shape
    size = m * _PANEL
    half = (m + 1) // 2 * _PANEL
    r = np.zeros(size, np.float32)
    powers = np.empty(size, np.float32)
    few = np.empty(half, np.float32)
    exponents = powers.view(np.int32)
    lane = np.zeros(_PANEL, np.float32)
    squares = np.empty(_PANEL)
    kept = np.empty(_PANEL)
    out = np.empty((m, n), np.int32)
    for start in range(0, n, _PANEL):
        width = min(_PANEL, n - start)
        lane[:width] = logits[0, start : start + width]
        for c in range(1, m):
            here = logits[c, start : start + width]
            for j in range(width):
                lane[j] = max(lane[j], here[j])
        for c in range(m):
            here = logits[c, start : start + width]
            there = r[c * _PANEL : (c + 1) * _PANEL]
            for j in range(width):
                there[j] = here[j] - lane[j]
        for i in range(size):
            x = r[i] * log2_e
            x = smallest if x < smallest else x  # NaN stays
            whole = np.rint(x)
            x -= whole
            power = exp2[6] * x + exp2[5]
            power = power * x + exp2[4]
            power = power * x + exp2[3]
            power = power * x + exp2[2]
            power = power * x + exp2[1]
            r[i] = power * x + exp2[0]
            exponents[i] = np.int32(np.int32(np.int32(whole) + 127) << 23)
        for i in range(size):
            r[i] *= powers[i]
        few[:] = r[:half]
        for i in range(size - half):
            few[i] += r[half + i]
        _add_rows(few, half)
        for c in range(m):
            there = r[c * _PANEL : (c + 1) * _PANEL]
            for j in range(_PANEL):
                there[j] /= -few[j]
        if shortfalls:
            for i in range(size):
                r[i] += np.float32(1 / m)
        else:
            for j in range(width):
                if 0 <= codes[start + j] < m:
                    r[codes[start + j] * _PANEL + j] += _ONE
        for i in range(half):
            few[i] = r[i] * r[i]
        for i in range(size - half):
            few[i] += r[half + i] * r[half + i]
        _add_rows(few, half)
        for j in range(_PANEL):
            lane[j] = length / max(np.sqrt(few[j]), clip)
            squares[j] = 0
        for c in range(m):
            there = r[c * _PANEL : (c + 1) * _PANEL]
            for j in range(_PANEL):
                there[j] = np.trunc(there[j] * lane[j])
                squares[j] += np.float64(there[j]) * np.float64(there[j])
        # The check that sensitivities rest on, of integers below 2⁵³. NaN does not
        # pass.
        kept[:] = 0
        for j in range(width):
            if codes[start + j] >= 0 and squares[j] <= squared_length:
                kept[j] = weights[start + j]
        for c in range(m):
            there = r[c * _PANEL : (c + 1) * _PANEL]
            here = out[c, start : start + width]
            for j in range(width):
                here[j] = np.int32(
                    np.float64(there[j]) * kept[j] if kept[j] > 0 else 0.0
                )
    return out


@compiled(
    types.int64[:, ::1](_ROWS, _CODES, _ROWS, types.int64, types.int32, types.int32)
)
def clipped_sums(
    rows: Any, codes: Any, public: Any, n_classes: Any, low: Any, high: Any
) -> Any:
    """Sum ``clip(q·p, low, high) - low`` over the rows q of each class, for public rows p: shape (n_classes, m)."""
    (n, d), m, n_pairs = rows.shape, len(public), (rows.shape[1] + 1) // 2
    panels = np.zeros(((m + _PANEL - 1) // _PANEL, n_pairs, _PANEL), np.int32)
    for p in range(len(panels)):
        _pack(public[p * _PANEL : (p + 1) * _PANEL], panels[p])
    left = np.zeros((_TILE_ROWS, n_pairs + _LANES), np.int32)
    sums = np.empty((_TILE_ROWS, _PANEL), np.int32)
    out = np.zeros((n_classes, len(panels) * _PANEL), np.int64)
    for start in range(0, n, _TILE_ROWS):
        few = min(_TILE_ROWS, n - start)
        for i in range(few):
            row = rows[start + i]
            there = left[i]
            for k in range(d // 2):
                there[k] = _pair(row[2 * k], row[2 * k + 1])
            if d % 2:
                there[d // 2] = _pair(row[d - 1], 0)
        for p in range(len(panels)):
            _multiply(left[: (few + _DOWN - 1) // _DOWN * _DOWN], panels[p], sums)
            for i in range(few):
                here = sums[i]
                total = out[codes[start + i], p * _PANEL : (p + 1) * _PANEL]
                for j in range(_PANEL):
                    total[j] += np.int64(min(max(here[j], low), high)) - low
    return out[:, :m].copy()
