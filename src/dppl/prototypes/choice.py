"""Which prototypes to use when nobody says."""

from __future__ import annotations

from dppl.estimators import PrivateClassifier
from dppl.privacy import Budget, PureDP
from dppl.prototypes.discriminant import DiscriminantPrototypes
from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.public import PublicPrototypes


def automatic(budget: Budget, adjacency: str = "add-remove") -> type[PrivateClassifier]:
    """Return the estimator that is most accurate in most cases, among those that can spend `budget`.

    Parameters
    ----------
    budget : PureDP, ZCDP or ApproxDP
    adjacency : {"add-remove", "replace-one"}, default="add-remove"

    Returns
    -------
    type
        `PublicPrototypes` for pure DP, where Gaussian noise gives no guarantee; `MeanPrototypes` under replace-one;
        else `DiscriminantPrototypes`. The choice depends on nothing else, so it costs nothing.

    Examples
    --------
    >>> from dppl import ZCDP, PureDP
    >>> automatic(ZCDP(0.5)).__name__, automatic(PureDP(1.0)).__name__
    ('DiscriminantPrototypes', 'PublicPrototypes')
    """
    if isinstance(budget, PureDP):
        return PublicPrototypes
    return DiscriminantPrototypes if adjacency == "add-remove" else MeanPrototypes
