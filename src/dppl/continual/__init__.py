"""Learning from a stream of tasks, each of which spends the budget on its records."""

from dppl.continual._state import recover
from dppl.continual.discriminant import ContinualDiscriminant
from dppl.continual.ensemble import ContinualEnsemble
from dppl.continual.full_data import FullDataContinual
from dppl.continual.naive import NaiveContinual
from dppl.continual.prototypes import ContinualPrototypes

__all__ = [
    "ContinualDiscriminant",
    "ContinualEnsemble",
    "ContinualPrototypes",
    "FullDataContinual",
    "NaiveContinual",
    "recover",
]
