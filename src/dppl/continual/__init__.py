"""Learning from a stream of tasks, each of which spends the budget on its records."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.continual.discriminant import ContinualDiscriminant
    from dppl.continual.ensemble import ContinualEnsemble
    from dppl.continual.prototypes import ContinualPrototypes
    from dppl.kernel.streams import recover

__all__ = [
    "ContinualDiscriminant",
    "ContinualEnsemble",
    "ContinualPrototypes",
    "recover",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "recover": "dppl.kernel.streams",
        "ContinualDiscriminant": "dppl.continual.discriminant",
        "ContinualEnsemble": "dppl.continual.ensemble",
        "ContinualPrototypes": "dppl.continual.prototypes",
    },
)
