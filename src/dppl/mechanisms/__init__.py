"""The only code that draws privacy noise."""

from dppl.mechanisms.coinpress import COINPRESS_SPLIT, DPPL_SPLIT, CoinPress
from dppl.mechanisms.exponential import ExponentialMechanism
from dppl.mechanisms.gaussian import DiscreteGaussian
from dppl.mechanisms.randomness import Randomness, randomness

__all__ = [
    "COINPRESS_SPLIT",
    "DPPL_SPLIT",
    "CoinPress",
    "DiscreteGaussian",
    "ExponentialMechanism",
    "Randomness",
    "randomness",
]
