"""The only code that draws privacy noise."""

from dppl.kernel.mechanisms.coinpress import COINPRESS_SPLITS, CoinPress
from dppl.kernel.mechanisms.exponential import ExponentialMechanism, Tally
from dppl.kernel.mechanisms.gaussian import (
    RoundedGaussian,
    SampledGaussian,
    SymmetricRoundedGaussian,
)
from dppl.kernel.mechanisms.randomness import Randomness, randomness

__all__ = [
    "COINPRESS_SPLITS",
    "CoinPress",
    "ExponentialMechanism",
    "Randomness",
    "RoundedGaussian",
]
__all__ += ["SampledGaussian", "SymmetricRoundedGaussian", "Tally", "randomness"]
