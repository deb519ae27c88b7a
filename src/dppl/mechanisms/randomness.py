"""The one place where privacy noise gets its randomness.

`SystemRandomness` is the operating system's: cryptographic, never repeatable, fit for release. `SeededRandomness`
repeats runs for experiments; whoever guesses the seed can take its noise out again, so a guarantee that rests on it
says that the model must not be released.
"""

from __future__ import annotations

import functools
import secrets
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from dppl.errors import ParameterError

Int64 = NDArray[np.int64]

dp.enable_features("contrib")  # OpenDP's proven but not yet audited constructors; Gaussian noise is one of them


class Randomness(ABC):
    """A source of the three kinds of draws that the mechanisms need."""

    fit_for_release: bool

    @abstractmethod
    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""

    @abstractmethod
    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""

    @abstractmethod
    def discrete_gaussian(self, noise_std: float, shape: tuple[int, ...]) -> Int64:
        """Return independent discrete Gaussian integers: P(k) proportional to exp(-k²/(2·noise_std²))."""


class SystemRandomness(Randomness):
    """Randomness of the operating system; Gaussian noise is sampled exactly by OpenDP."""

    fit_for_release = True

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        return secrets.randbelow(bound)

    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""
        return secrets.randbits(count)

    def discrete_gaussian(self, noise_std: float, shape: tuple[int, ...]) -> Int64:
        """Return exact discrete Gaussian integers (Canonne, Kamath, Steinke 2020, arXiv:2004.00010v5)."""
        size = int(np.prod(shape))
        if size == 0:
            return np.zeros(shape, np.int64)
        sample = _opendp_gaussian(noise_std, size)
        return np.asarray(sample(np.zeros(size, np.int64)), np.int64).reshape(shape)


class SeededRandomness(Randomness):
    """Repeatable NumPy draws for experiments. Not private: a seed has few bits, and NumPy's generator is predictable.

    The Gaussian is rounded from a float, which for a `noise_std` of a few steps or more no experiment can tell from the
    exact one.

    Parameters
    ----------
    seed : int
        At least 0.
    """

    fit_for_release = False

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
        return int.from_bytes(self._generator.bytes((count + 7) // 8), "little") >> (-count % 8)

    def discrete_gaussian(self, noise_std: float, shape: tuple[int, ...]) -> Int64:
        """Return Gaussian draws rounded to integers."""
        return np.rint(self._generator.normal(scale=noise_std, size=shape)).astype(np.int64)


def randomness(random_state: int | None) -> Randomness:
    """Return the source that a `random_state` parameter names.

    Parameters
    ----------
    random_state : int or None
        None is the operating system; an integer of at least 0 is a seed, for experiments only.

    Raises
    ------
    ParameterError
        If it is anything else. Generator objects are refused: shared between fits or copied to workers they would
        repeat or correlate noise.
    """
    if random_state is None:
        return SystemRandomness()
    if isinstance(random_state, bool) or not isinstance(random_state, Integral) or random_state < 0:
        raise ParameterError(
            f"random_state must be None or an integer of at least 0; got {type(random_state).__name__}."
        )
    return SeededRandomness(int(random_state))


@functools.lru_cache(maxsize=8)
def _opendp_gaussian(noise_std: float, size: int) -> Any:
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=noise_std)
