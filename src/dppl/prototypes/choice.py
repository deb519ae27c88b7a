"""Which prototypes to use when nobody says."""

from __future__ import annotations

from dppl.estimators import EmbeddingClassifier
from dppl.privacy import Budget, PureDP
from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.public import PublicPrototypes
from dppl.prototypes.softmax import SoftmaxPrototypes

METHODS: dict[str, type[EmbeddingClassifier]] = {
    "softmax": SoftmaxPrototypes,
    "public": PublicPrototypes,
    "mean": MeanPrototypes,
}


def method_for(budget: Budget, adjacency: str = "add-remove") -> str:
    """Return the method that is most accurate in most cases, among those that can spend `budget`.

    Parameters
    ----------
    budget : GaussianDP, ZCDP, ApproxDP or PureDP
    adjacency : {"add-remove", "replace-one"}, default="add-remove"

    Returns
    -------
    str
        A key of `METHODS`: ``"public"`` for pure DP, where Gaussian noise gives no guarantee; ``"mean"`` under
        replace-one; else ``"softmax"``. The choice depends on nothing else, so it costs nothing.

    Examples
    --------
    >>> from dppl import ZCDP, PureDP
    >>> method_for(ZCDP(0.5)), method_for(PureDP(1.0))
    ('softmax', 'public')
    """
    if isinstance(budget, PureDP):
        return "public"
    return "softmax" if adjacency == "add-remove" else "mean"
