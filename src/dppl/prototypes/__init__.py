"""The methods that release prototypes, and the linear probe, one a file."""

from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.multilabel import MultiLabelPrototypes
from dppl.prototypes.probe import LinearProbe
from dppl.prototypes.public import PublicPrototypes
from dppl.prototypes.softmax import SoftmaxPrototypes

__all__ = [
    "LinearProbe",
    "MeanPrototypes",
    "MultiLabelPrototypes",
    "PublicPrototypes",
    "SoftmaxPrototypes",
]
