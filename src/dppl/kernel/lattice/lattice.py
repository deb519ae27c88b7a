"""The lattice: the fixed public map that turns one embedding into one integer row of bounded norm."""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import sha256, shake_256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice.stream import (
    RowSource,
    compiled_kernels,
    in_order,
    iter_blocks,
    one_thread_each,
)
from dppl.kernel.privacy.sensitivity import LARGEST, squared_row

SUM_ROWS = 4096  # 127·4096 < 2²⁴, so a block's class sums are exact in float32
# Rows are mapped in blocks of about this many numbers, which fit into a core's cache.
# No result depends on it.
_BLOCK_NUMBERS = 1 << 16
# Numbers from which blocks of a source are mapped on all cores: threads take a moment
# to start.
_WORTH_THREADS = 1 << 21
# Larger blocks there: between operations threads wait for each other, for Python runs
# one of them at a time.
_THREAD_NUMBERS = 1 << 19
_READ_ROWS = 4096
# Rotation pays off where rounding to the lattice would cut off more than this share of
# the public rows' energy.
_LOST_ENERGY = 0.01
_LOOK_AT_ROWS = 2000
# Binary exponents of the largest number of a row from which on its squares are kept in
# range.
_FAR = 300
_SHRINK = 1 - 2.0**-10

Float = NDArray[np.float64]
Int8 = NDArray[np.int8]


class Lattice:
    """Map embeddings to int8 rows whose L2 norm is at most `scale`, exactly.

    A row x becomes φ(x), a unit vector, and then q = clip(round(s·φ(x)), -127, 127)
    with s = 127·√d/4. Where rounding leaves Σq² above s², the row is shrunk toward zero
    until it is not; that comparison is one of integers. φ is x/‖x‖, optionally minus a
    public centre, average-pooled, normalised again and rotated.

    A row that holds NaN or infinity, or whose φ is zero, becomes the zero row without a
    word: a bad record must neither stop the run nor reveal itself. Each row's result
    depends on that row alone. Rows that already are int8 are taken for lattice rows, of
    which only the norm is checked; where φ does more than normalise, it maps their
    directions.

    `center` is subtracted from each unit row. `pool` is the kernel size of the pooling
    over neighbouring coordinates; a remainder is dropped. `rotation` is the seed of a
    rotation, for encoders with a few huge coordinates. All are public, and must be
    chosen without looking at private data. `dim` is the width of the lattice rows,
    `squared_norm` the exact bound s² = 127²·dim/16 on Σq², and `scale` is s.

    >>> lattice = Lattice(4)
    >>> lattice.transform([[2.0, 0.0, 0.0, 0.0], [float("nan"), 1.0, 1.0, 1.0]])
    array([[63,  0,  0,  0],
           [ 0,  0,  0,  0]], dtype=int8)
    """

    def __init__(
        self,
        n_features: int,
        *,
        center: ArrayLike | None = None,
        pool: int = 1,
        rotation: int | None = None,
    ) -> None:
        validate.positive_integer(n_features=n_features, pool=pool)
        if pool > n_features:
            raise ParameterError(
                f"must be at most the number of features, {n_features}; got {pool}.",
                parameter="pool",
            )
        if rotation is not None and (
            isinstance(rotation, bool) or not isinstance(rotation, int | np.integer)
        ):
            raise ParameterError(
                f"must be None or an integer seed; got {rotation!r}.",
                parameter="rotation",
            )
        self.n_features = int(n_features)
        self.pool = int(pool)
        self.rotation = None if rotation is None else int(rotation)
        self.center = None
        if center is not None:
            # A copy: the caller's array may change.
            self.center = np.array(center, np.float64)
        if self.center is not None and not (
            self.center.shape == (n_features,) and np.isfinite(self.center).all()
        ):
            raise ParameterError(
                f"center must be {n_features} finite numbers; got shape {self.center.shape}."
            )
        # Whether φ is x/‖x‖ alone, so that int8 rows of the input are rows of this
        # lattice.
        self.is_plain = self.center is None and self.pool == 1 and self.rotation is None
        self.dim = self.n_features // self.pool
        self.squared_norm = squared_row(self.dim)
        self.scale = LARGEST * math.sqrt(self.dim) / 4
        # How long NumPy takes for a row, in multiples of the plain map.
        self._passes = (
            1
            + 2 * (self.rotation is not None)
            + (self.center is not None or self.pool > 1)
        )
        # A text that two lattices share if they map every row alike.
        digest = None
        if self.center is not None:
            digest = sha256(self.center.tobytes()).hexdigest()
        described = {
            **self.to_dict(),
            "center": digest,
            "dim": self.dim,
            "squared_norm": str(self.squared_norm),
        }
        self.name = json.dumps(described, sort_keys=True)

    def transform(self, X: ArrayLike, *, numbers: int = _BLOCK_NUMBERS) -> Int8:
        """Return the lattice rows of numbers, so many mapped at a time; int8 means lattice rows (see the class)."""
        rows = self._checked(np.asarray(X))
        if rows.dtype == np.int8 and self.is_plain:
            return self._bounded(rows)
        kernels = compiled_kernels(rows.size * self._passes)
        out = np.empty((len(rows), self.dim), np.int8)
        step = min(
            max(1, (_BLOCK_NUMBERS if kernels else numbers) // self.n_features),
            len(rows),
        )
        # Memory that every block uses again: new pages cost more than the arithmetic.
        block, *spare = np.empty((1 if kernels else 3, step, self.n_features))
        for start in range(0, len(rows), max(step, 1)):
            here = out[start : start + step]
            given, *free = (array[: len(here)] for array in (block, *spare))
            with np.errstate(
                all="ignore"
            ):  # what underflows tells of a private row, as do signalling NaN
                # Both ways start from float64 in one memory layout, so that no sum
                # depends on how rows were given.
                np.copyto(given, rows[start : start + step], casting="unsafe")
                if kernels:
                    kernels.map_rows(given, here, *self._compiled())
                    continue
                steps = self._map(given, self.scale, free[0])
                here[:] = round_within(
                    steps, self.squared_norm, LARGEST, out=free[1][:, : self.dim]
                )
        return out

    def announce(self, n_rows: int) -> None:
        """Count rows before they are mapped, so that whatever pays off for all of them is there for the first."""
        compiled_kernels(n_rows * self.n_features * self._passes)

    def blocks(self, source: RowSource, size: int = SUM_ROWS) -> Iterator[Int8]:
        """Yield the lattice rows of an array, memory map or table in blocks of at most `size` rows."""
        self.announce(source.shape[0])
        blocks = iter_blocks(source, size)
        if (
            source.shape[0] * self.n_features < _WORTH_THREADS
            or one_thread_each.n_threads() == 1
        ):
            yield from map(self.transform, blocks)
            return
        if not isinstance(source, np.ndarray):
            # Several are held at a time, and a table may fill one array again and
            # again: rows would count twice.
            blocks = (
                block.copy() if block.flags.writeable else block for block in blocks
            )
        yield from in_order(partial(self.transform, numbers=_THREAD_NUMBERS), blocks)

    def features(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return φ(x) of rows that need no protection, without rounding: of length 1, or zero where it is undefined."""
        rows = self._checked(np.asarray(X))
        out = np.empty((len(rows), self.dim), np.float32)
        step = max(1, _BLOCK_NUMBERS // self.n_features)
        for start in range(0, len(rows), step):
            with np.errstate(all="ignore"):
                out[start : start + step] = self._map(
                    np.array(rows[start : start + step], np.float64, order="C"), 1.0
                )
        return out

    def loses_much(self, X_public: RowSource) -> bool:
        """Whether rounding would cut off over 1 % of the energy of *public* rows, or has, if they are int8."""
        block = next(
            iter_blocks(X_public, _LOOK_AT_ROWS), np.empty((0, self.n_features))
        )
        if not len(block) or block.dtype == np.int8:
            return bool(len(block))
        with np.errstate(all="ignore"):
            u = self._map(np.array(block, np.float64, order="C"), 1.0)
        excess = np.maximum(np.abs(u) * self.scale - LARGEST, 0) / self.scale
        return bool(np.sum(excess**2) > _LOST_ENERGY * np.sum(u**2))

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters except for `center`, JSON-ready."""
        return {
            "n_features": self.n_features,
            "pool": self.pool,
            "rotation": self.rotation,
        }

    def _checked(self, rows: NDArray[Any]) -> NDArray[Any]:
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise InputError(
                f"rows must have shape (n, {self.n_features}); got {rows.ndim}D or another width."
            )
        if rows.dtype.kind not in "fiub":
            raise InputError(f"rows must be real numbers; got dtype {rows.dtype}.")
        return rows

    def _bounded(self, rows: Int8) -> Int8:
        """Enforce the bound on rows that are said to be of this lattice. Those that keep it stay as they are."""
        rows = rows.copy()  # a memory map may change after the check
        numerator = self.squared_norm.numerator
        denominator = self.squared_norm.denominator
        for block in iter_blocks(rows, max(1, _BLOCK_NUMBERS // self.n_features)):
            squares = np.multiply(block, block, dtype=np.int16).sum(
                axis=1, dtype=np.int64
            )  # 16 bits hold 128² too
            wrong = (denominator * squares > numerator) | (block.min(axis=1) < -LARGEST)
            if wrong.any():
                block[wrong] = round_within(
                    block[wrong].astype(np.float64), self.squared_norm, LARGEST
                )
        return rows

    def _map(self, u: Float, length: float, squares: Float | None = None) -> Float:
        """Return a multiple of φ(x) of rows, or zero; the rows, and `squares` of their shape, are overwritten."""
        if squares is None:
            squares = np.empty_like(u)
        if self.center is not None or self.pool > 1:
            usable = _scale_to(u, 1.0, squares)
            if self.center is not None:
                u -= self.center
            if self.pool > 1:
                *others, u = (
                    u[:, k : self.dim * self.pool : self.pool]
                    for k in reversed(range(self.pool))
                )
                for other in reversed(others):
                    u += other
            u[~usable] = 0.0
        _scale_to(u, length, squares[:, : self.dim])
        if self.rotation is None:
            return u
        return rotate(u, self.rotation)

    def _compiled(self) -> tuple[Any, ...]:
        """Return what the compiled map is given of this one."""
        if self.center is None:
            center = np.empty(0)
        else:
            center = self.center
        signs = np.empty((0, self.dim))
        parts = (1, 1)
        if self.rotation is not None:
            signs = _signs(self.rotation, self.dim)
            parts = _parts(self.dim)
        bound = self.squared_norm.numerator, self.squared_norm.denominator
        return center, self.pool, signs, *parts, self.scale, *bound, _SHRINK, _FAR


def _scale_to(u: Float, length: float, squares: Float) -> NDArray[np.bool_]:
    """Make rows so long, or zero where they have no direction, and return which have one."""
    largest = np.maximum(u.max(axis=1), -u.min(axis=1))  # NaN if a row holds any
    usable: NDArray[np.bool_] = np.isfinite(largest) & (largest > 0)
    # A power of two changes no digit, and keeps the squares of huge and tiny rows in
    # range.
    power = np.frexp(largest)[1]
    power = np.where(np.abs(power) > _FAR, np.clip(-power, -1022, 1022), 0)
    if power.any():
        u *= np.ldexp(1.0, power)[:, None]
    squares = np.square(u, out=squares)
    # By halving, so that the order of additions is one that a compiler can follow.
    while (half := squares.shape[1] // 2) > 0:
        sums = squares[:, :half] + squares[:, half : 2 * half]
        if squares.shape[1] % 2:
            sums[:, 0] += squares[:, -1]
        squares = sums
    u *= length / np.sqrt(squares)
    u[~usable] = 0.0
    return usable


def usable_rows(source: RowSource) -> NDArray[np.bool_]:
    """Mark the rows that have a direction, each by itself: neither NaN nor infinity, nor only zeros."""
    step = max(1, _BLOCK_NUMBERS // source.shape[1])
    usable: list[Any] = [np.empty(0, np.bool_)]
    for block in iter_blocks(source, _READ_ROWS):
        for start in range(0, len(block), step):
            with np.errstate(
                all="ignore"
            ):  # signalling NaN and numbers beyond float64 must not warn
                rows = np.ascontiguousarray(block[start : start + step], np.float64)
            usable.append(np.isfinite(rows).all(axis=1) & rows.any(axis=1))
    return np.concatenate(usable)


def rotate(rows: Float, seed: int) -> Float:
    """Rotate each row by the orthogonal map that `seed` names; norms stay up to rounding.

    It spreads a few huge coordinates over all of them, so that rounding to the lattice
    clips nothing. The bits of one row of a BLAS product would depend on how many rows
    it came with; here every step is an element-wise addition, so a row's result depends
    on that row alone. A round gives coordinates random signs, reflects the m parts of
    m·2ᵏ coordinates about their mean (I - 2/m for each m of them), and is a
    Walsh-Hadamard transform of each part (Ailon, Chazelle 2009, The fast
    Johnson-Lindenstrauss transform). One round is enough where it covers all
    coordinates, as it does for the widths of most encoders; else there are three, on
    the first, the last and again the first coordinates. The signs come from SHAKE-256,
    so the map is the same on every machine.
    """
    n, n_features = rows.shape
    parts, width = _parts(n_features)
    # A row a column: what is added then lies together, also where coordinates are
    # neighbours.
    columns = np.array(rows.T, order="C")
    spare = np.empty((parts * width, n))
    for turn, sign in enumerate(_signs(seed, n_features)):
        columns *= sign[:, None]
        if turn % 2:
            covered = columns[n_features - parts * width :]
        else:
            covered = columns[: parts * width]
        if parts > 1:
            first, *others = pieces = covered.reshape(parts, width, n)
            mean = first.copy()
            for other in others:
                mean += other
            mean *= 2.0 / parts
            pieces -= mean
        source = covered
        target = spare
        for half in (1 << i for i in range(width.bit_length() - 1)):
            # The number of pairs is stated: with -1 instead NumPy could not tell it of
            # no rows.
            pairs, results = (
                a.reshape(parts * width // (2 * half), 2, half * n)
                for a in (source, target)
            )
            np.add(pairs[:, 0], pairs[:, 1], out=results[:, 0])
            np.subtract(pairs[:, 0], pairs[:, 1], out=results[:, 1])
            source, target = target, source
        np.multiply(source, 1.0 / math.sqrt(width), out=covered)
    return np.array(columns.T, order="C")


def _parts(n_features: int) -> tuple[int, int]:
    """Return how many parts (of more, a reflection leaves too much where it is) of which width cover most."""
    covers = []
    for m in (1, 3, 5):
        if m <= n_features:
            covers.append((m, 1 << (n_features // m).bit_length() - 1))
    return max(covers, key=math.prod)


@lru_cache(maxsize=64)
def _signs(seed: int, n_features: int) -> Float:
    """Return the signs of each round, of shape (n_rounds, n_features)."""
    n_rounds = 3
    if math.prod(_parts(n_features)) == n_features:
        n_rounds = 1
    digest = shake_256(f"dppl rotation {seed} {n_features}".encode()).digest(
        n_rounds * n_features
    )
    bits = np.frombuffer(digest, np.uint8).reshape(n_rounds, n_features) & 1
    return np.where(bits == 1, -1.0, 1.0)


def round_within(
    steps: Float,
    squared_norm: Fraction,
    largest: float = math.inf,
    *,
    out: Float | None = None,
) -> Float:
    """Round rows to integers and shrink those toward zero whose squared norm would exceed `squared_norm`.

    Exact sensitivities rest on this step, after which no row has left its ball. Rows
    are finite. Squared norms of the rounded rows, times the denominator of
    `squared_norm`, must lie below 2⁵³, so that floats hold them exactly and every
    comparison is one of integers. `largest` bounds each |q_j|; `out` is overwritten and
    must not be `steps`.
    """
    numerator = squared_norm.numerator
    denominator = squared_norm.denominator
    q = np.rint(steps, out=out)
    np.clip(q, -largest, largest, out=q)
    squares = np.vecdot(q, q)
    over = np.flatnonzero(denominator * squares > numerator)
    long = steps[over]
    squares = squares[over]
    while over.size:
        long *= np.minimum(np.sqrt(float(squared_norm) / squares), _SHRINK)[:, None]
        q[over] = rounded = np.clip(np.rint(long), -largest, largest)
        squares = np.vecdot(rounded, rounded)
        still = denominator * squares > numerator
        over = over[still]
        long = long[still]
        squares = squares[still]
    return q
