"""The one place where privacy noise gets its randomness.

`SystemRandomness` is the operating system's: cryptographic, never repeatable, fit for
release. It keeps no state in the process, so clones of one never draw equal noise.
`SeededRandomness` repeats runs for experiments; whoever guesses the seed can take its
noise out again, so a guarantee that rests on it says that the model must not be
released.
"""

import functools
import math
import os
import secrets
from abc import ABC, abstractmethod
from numbers import Integral

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from dppl.errors import ParameterError

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]

# Bound on the error of the float quantile at a tail probability p, in units of 1 +
# quantile. Its rational approximations err by 2⁻⁵⁰ at most in comparisons with ball
# arithmetic (tests/unit/kernel/mechanisms); about 30 float operations could at worst
# err by 2⁻⁴⁸. The rest covers the rounding of p to a float, which moves the quantile by
# less than 2⁻⁵², and the three float operations that follow.
_QUANTILE_ERROR = 2.0**-43
# Coefficients of numerator and denominator, of the largest power first, for p from
# 0.075, down to e⁻²⁵, and below: Wichura (1988), Algorithm AS 241: the percentage
# points of the normal distribution. fmt: off
_MIDDLE = (
    (
        2509.0809287301227,
        33430.57558358813,
        67265.7709270087,
        45921.95393154987,
        13731.69376550946,
        1971.5909503065513,
        133.14166789178438,
        3.3871328727963665,
    ),
    (
        5226.495278852854,
        28729.085735721943,
        39307.89580009271,
        21213.794301586597,
        5394.196021424751,
        687.1870074920579,
        42.31333070160091,
        1.0,
    ),
)
_TAIL = (
    (
        0.0007745450142783414,
        0.022723844989269184,
        0.2417807251774506,
        1.2704582524523684,
        3.6478483247632045,
        5.769497221460691,
        4.630337846156546,
        1.4234371107496835,
    ),
    (
        1.0507500716444169e-09,
        0.0005475938084995345,
        0.015198666563616457,
        0.14810397642748008,
        0.6897673349851,
        1.6763848301838038,
        2.053191626637759,
        1.0,
    ),
)
_FAR = (
    (
        2.0103343992922881e-07,
        2.7115555687434876e-05,
        0.0012426609473880784,
        0.026532189526576124,
        0.29656057182850487,
        1.7848265399172913,
        5.463784911164114,
        6.657904643501103,
    ),
    (
        2.0442631033899397e-15,
        1.421511758316446e-07,
        1.8463183175100548e-05,
        0.0007868691311456133,
        0.014875361290850615,
        0.1369298809227358,
        0.599832206555888,
        1.0,
    ),
)
# fmt: on
# Values drawn at a time, so that their floats stay in a core's cache.
_BLOCK = 1 << 14


class Randomness(ABC):
    """A source of the three kinds of draws that the mechanisms need."""

    secure_noise: bool

    @abstractmethod
    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""

    @abstractmethod
    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""

    @abstractmethod
    def rounded_gaussian(self, noise_std: float, shape: tuple[int, ...]) -> Int64:
        """Return independent integers round(noise_std·Z), Z standard normal, for a noise_std above 0."""


class SystemRandomness(Randomness):
    r"""Randomness of the operating system, and exactly rounded Gaussian noise from it.

    A draw of the noise is ±round(sigma·z) for a fair sign and the z ≥ 0 with P(Z > z) =
    U, where U is uniform on (0, 1/2). U has infinitely many bits, of which 63 are drawn
    at first. They say that z lies in a certain interval. If all of it rounds to one
    integer, by a bound on the error of floats or else by ball arithmetic (Arb [1]_,
    through python-flint), that integer is the draw; if not, more bits are. So no draw
    is decided by a rounding error or because bits are missing.

    .. [1] Johansson (2017), Arb: efficient arbitrary-precision midpoint-radius interval
    arithmetic, arXiv:1611.02831.
    """

    secure_noise = True

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        return secrets.randbelow(bound)

    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""
        return secrets.randbits(count)

    def rounded_gaussian(self, noise_std: float, shape: tuple[int, ...]) -> Int64:
        """Return independent integers that have exactly the law of round(noise_std·Z)."""
        noise = np.empty(math.prod(shape), np.int64)
        for start in range(0, len(noise), _BLOCK):
            block = noise[start : start + _BLOCK]
            words = np.frombuffer(self._bytes(8 * len(block)), "<u8")
            tails = words >> np.uint64(1)
            negative = words & np.uint64(1)
            block[:], certain = _rounded(noise_std, tails)
            for place in np.flatnonzero(~certain):
                block[place] = self._decided(noise_std, int(tails[place]))
            np.negative(block, out=block, where=negative.astype(bool))
        return noise.reshape(shape)

    def _decided(self, noise_std: float, tail: int) -> int:
        """Return the one integer to which noise_std·z rounds, where U begins with the 63 bits of `tail` after a zero.

        Balls enclose all values that are possible with the bits drawn so far.
        """
        count = precision = 64
        while True:
            # Whatever the precision is, a ball holds the true value; another thread may
            # change it here.
            with ctx.workprec(precision + 64):
                twice = arb(tail).union(arb(tail + 1)) / arb(2) ** (count - 1)
                nearest = (
                    (arb(noise_std) * arb(2).sqrt() * twice.erfcinv() + arb(0.5))
                    .floor()
                    .unique_fmpz()
                )
            if nearest is not None:
                return int(nearest)
            tail = (tail << 64) | self.bits(64)
            count = count + 64
            precision = precision + 128

    def _bytes(self, count: int) -> bytes:
        return os.urandom(count)


class SeededRandomness(Randomness):
    """Repeatable NumPy draws for experiments. Not private: a seed has few bits, NumPy's generator is predictable."""

    secure_noise = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        count = bound.bit_length()
        while (draw := self.bits(count)) >= bound:
            pass
        return draw

    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""
        return int.from_bytes(self._generator.bytes((count + 7) // 8), "little") >> (
            -count % 8
        )

    def rounded_gaussian(self, noise_std: float, shape: tuple[int, ...]) -> Int64:
        """Return float Gaussian draws rounded to integers."""
        return np.rint(self._generator.normal(scale=noise_std, size=shape)).astype(
            np.int64
        )


def randomness(random_state: int | None) -> Randomness:
    """Return the source that a `random_state` parameter names.

    None is the operating system; an integer of at least 0 is a seed, for experiments
    only. Generator objects are refused: shared between fits or copied to workers they
    would repeat or correlate noise.
    """
    if random_state is None:
        return SystemRandomness()
    if (
        isinstance(random_state, bool)
        or not isinstance(random_state, Integral)
        or random_state < 0
    ):
        raise ParameterError(
            f"must be None or an integer of at least 0; got {type(random_state).__name__}.",
            parameter="random_state",
        )
    return SeededRandomness(int(random_state))


def _rounded(
    noise_std: float, tails: NDArray[np.uint64]
) -> tuple[Int64, NDArray[np.bool_]]:
    """Return round(noise_std·z) for z with P(Z > z) in [tails, tails + 1)·2⁻⁶⁴, and where floats are certain of it."""
    p = tails.astype(np.float64)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # the tail 0, of which nothing is certain
        z = quantile(p * 2.0**-64)
        # Relative to U its interval is 1/tails wide, and |dz/dlog(U)| = (1 -
        # Phi(z))/phi(z) is less than 1.26.
        error = noise_std * (_quantile_error() * (1 + z) + 2 / p)
        nearest = np.rint(noise_std * z - error)
        certain = nearest == np.rint(noise_std * z + error)
    return np.where(certain, nearest, 0).astype(np.int64), certain


def quantile(p: Float) -> Float:
    """Return the z at which a standard normal variable is larger with probability p, of at least 2⁻⁶⁴ and at most 1/2.

    SciPy has it, too, but its import takes longer than a small fit.
    """
    from_middle = 0.5 - p
    z = from_middle * _ratio(_MIDDLE, 0.180625 - from_middle**2)
    (tail,) = np.nonzero(from_middle > 0.425)
    depth = np.sqrt(-np.log(p[tail]))
    z[tail] = np.where(depth <= 5, _ratio(_TAIL, depth - 1.6), _ratio(_FAR, depth - 5))
    return z


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Float) -> Float:
    numerator, denominator = (np.full_like(x, first) for first, *_ in polynomials)
    for value, coefficients in zip((numerator, denominator), polynomials, strict=True):
        for one in coefficients[1:]:
            value *= x
            value += one
    return np.divide(numerator, denominator, out=numerator)


@functools.cache
def _quantile_error() -> float:
    """Return the bound on the error of the quantile, or infinity, so that balls decide all, where it fails.

    The bound was found on the machines of the tests; this looks whether the processor
    and the logarithm at hand keep a sixteenth of it at a few hundred points.
    """
    exponents = np.concatenate([np.arange(1, 65), np.linspace(1, 64, 257)])
    points = 2.0**-exponents
    with ctx.workprec(128):
        errors = [
            abs(float(arb(2).sqrt() * (2 * arb(p)).erfcinv() - arb(z))) / (1 + z)
            for p, z in zip(points.tolist(), quantile(points).tolist(), strict=True)
        ]
    if max(errors) <= _QUANTILE_ERROR / 16:
        return _QUANTILE_ERROR
    return math.inf
