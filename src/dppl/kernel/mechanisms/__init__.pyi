from .coinpress import COINPRESS_SPLITS as COINPRESS_SPLITS
from .coinpress import CoinPress as CoinPress
from .exponential import ExponentialMechanism as ExponentialMechanism
from .exponential import Tally as Tally
from .gaussian import RoundedGaussian as RoundedGaussian
from .randomness import Randomness as Randomness
from .sampled import SampledGaussian as SampledGaussian
from .symmetric import SymmetricRoundedGaussian as SymmetricRoundedGaussian
