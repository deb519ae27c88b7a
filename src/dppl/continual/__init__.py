"""Learning from a stream of tasks, each of which spends the budget on records of its own."""

from dppl.continual.ensemble import ContinualEnsemble
from dppl.continual.naive import NaiveContinual
from dppl.continual.prototypes import ContinualPrototypes

__all__ = ["ContinualEnsemble", "ContinualPrototypes", "NaiveContinual"]
