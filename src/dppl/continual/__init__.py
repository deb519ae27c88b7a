"""Learning from a stream of tasks, each of which spends the budget on records of its own."""

from dppl.continual._state import recover
from dppl.continual.discriminant import ContinualDiscriminant
from dppl.continual.prototypes import ContinualPrototypes

__all__ = ["ContinualDiscriminant", "ContinualPrototypes", "recover"]
