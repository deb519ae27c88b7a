"""Learning from a stream of tasks, each of which spends the budget on records of its own."""

from dppl.continual._state import recover
from dppl.continual.prototypes import ContinualPrototypes

__all__ = ["ContinualPrototypes", "recover"]
