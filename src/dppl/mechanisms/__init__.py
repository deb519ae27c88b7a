"""The only code that draws privacy noise."""

from dppl.mechanisms.coinpress import COINPRESS_SPLIT, DPPL_SPLIT, CoinPress
from dppl.mechanisms.exponential import ExponentialMechanism
from dppl.mechanisms.gaussian import DiscreteGaussian, overheard
from dppl.mechanisms.randomness import Randomness, randomness
from dppl.mechanisms.symmetric import SymmetricDiscreteGaussian

__all__ = [
    "COINPRESS_SPLIT",
    "DPPL_SPLIT",
    "CoinPress",
    "DiscreteGaussian",
    "ExponentialMechanism",
    "Randomness",
    "SymmetricDiscreteGaussian",
    "overheard",
    "randomness",
]
