"""The only code that draws privacy noise."""

from dppl.mechanisms.coinpress import COINPRESS_SPLIT, DPPL_SPLIT, CoinPress
from dppl.mechanisms.exponential import ExponentialMechanism
from dppl.mechanisms.gaussian import RoundedGaussian, overheard
from dppl.mechanisms.randomness import Randomness, randomness
from dppl.mechanisms.sampled import SampledGaussian
from dppl.mechanisms.symmetric import SymmetricRoundedGaussian
from dppl.mechanisms.tally import Tally

__all__ = [
    "COINPRESS_SPLIT",
    "DPPL_SPLIT",
    "CoinPress",
    "ExponentialMechanism",
    "Randomness",
    "RoundedGaussian",
    "SampledGaussian",
    "SymmetricRoundedGaussian",
    "Tally",
    "overheard",
    "randomness",
]
