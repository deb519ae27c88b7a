"""The estimators that there are: the one place that announces and names them.

The model file, `--method`, `PrivateClassifier`, comparisons and tests read it. Classes
are imported only when they are asked for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from dppl._utils import validate
from dppl.errors import Argument, ParameterError

if TYPE_CHECKING:
    from dppl.kernel.privacy import Budget
    from dppl.kernel.privacy.guarantee import Adjacency
    from dppl.methods.base import EmbeddingClassifier


@dataclass(frozen=True, slots=True)
class Entry:
    """An estimator."""

    name: str  # its class, by which model files and ledgers know it
    module: str  # where that is imported from
    # What commands, configurations and results files call it, and what tables and
    # figures do; None is its name.
    method: str | None = None
    label: str | None = None
    hint: str = ""  # what it does, for help texts
    adjacencies: tuple[str, ...] = (
        "add-remove",
    )  # relations of neighbours that it offers
    pure: bool = False  # whether it spends budgets of pure DP

    def load(self) -> type[EmbeddingClassifier]:
        """Import the class."""
        kind: type[EmbeddingClassifier] = getattr(
            importlib.import_module(self.module), self.name
        )
        return kind


_BOTH = ("add-remove", "replace-one")
_GRADIENTS = "noisy gradients; uses public rows if there are any"
_SELECTED = "public rows, selected privately"
_SEVERAL = "noisy gradients, where a record may have several labels"
# The first method that offers the relation is what "auto" takes.
ENTRIES = (
    Entry(
        "SoftmaxPrototypes",
        "dppl.methods",
        "softmax",
        "Softmax prototypes",
        _GRADIENTS,
    ),
    Entry(
        "MeanPrototypes",
        "dppl.methods",
        "mean",
        "DPPL-Mean",
        "noisy class sums",
        _BOTH,
    ),
    Entry(
        "PublicPrototypes",
        "dppl.methods",
        "public",
        "DPPL-Public",
        _SELECTED,
        _BOTH,
        pure=True,
    ),
    Entry(
        "MultiLabelPrototypes",
        "dppl.methods",
        "multilabel",
        "Multi-label prototypes",
        _SEVERAL,
    ),
    Entry("ProjectedPrototypes", "dppl.lab", "projected", "Projected prototypes"),
    Entry(
        "PublishedTopK",
        "dppl.lab",
        "public-topk-published",
        "DPPL-Public top-K as published",
        adjacencies=_BOTH,
        pure=True,
    ),
    Entry("AdaptivePrototypes", "dppl.lab", "adaptive", "DPPL-Public or DPPL-Mean"),
    Entry("FriendlyCoreMeans", "dppl.lab", "friendly-core", "DPPL-Mean, FriendlyCore"),
    Entry("ContinualPrototypes", "dppl.continual"),
    Entry("ContinualDiscriminant", "dppl.continual"),
    Entry("ContinualEnsemble", "dppl.continual"),
    Entry("NaiveContinual", "dppl.lab"),
    Entry("FullDataContinual", "dppl.lab"),
    Entry("AdaMix", "dppl.lab", "adamix", "AdaMix"),
    Entry("FeatureCovariance", "dppl.lab", "feature-covariance", "DP-FC"),
    Entry("GlobalAdapt", "dppl.lab", "global-adapt", "DPSGD-Global-Adapt"),
    Entry("LeastSquares", "dppl.lab", "least-squares", "DP-LS, one Gram matrix"),
    Entry("LinearProbe", "dppl.methods", "linear-probe", "Linear probe, DP-SGD"),
    Entry("Newton", "dppl.lab", "newton", "DP-Newton"),
    Entry("PrivateNeighbours", "dppl.lab", "private-knn", "Private-kNN"),
    Entry("TeacherEnsemble", "dppl.lab", "pate", "PATE"),
)
# What `--method` and `PrivateClassifier` offer.
Method: TypeAlias = Literal["softmax", "mean", "public", "multilabel"]
BY_NAME = {entry.name: entry for entry in ENTRIES}
BY_METHOD = {
    entry.method: entry
    for entry in ENTRIES
    if entry.method is not None and entry.method in get_args(Method)
}


def method_for(budget: Budget, adjacency: Adjacency = "add-remove") -> str:
    """Return the method that is most accurate in most cases under a relation of neighbours.

    The choice depends on nothing else, so it costs nothing. Pure DP is spent by a
    method that is named: a delta that was forgotten must not choose another method.

    >>> from dppl import ZCDP
    >>> method_for(ZCDP(0.5)), method_for(ZCDP(0.5), "replace-one")
    ('softmax', 'mean')
    """
    from dppl.kernel.privacy import (
        PureDP,
    )  # here, since helps name methods and need no NumPy
    from dppl.kernel.privacy.budgets import USUAL_DELTA
    from dppl.kernel.privacy.guarantee import ADJACENCIES

    validate.one_of(ADJACENCIES, adjacency=adjacency)
    if isinstance(budget, PureDP):
        raise ParameterError(
            "add ",
            Argument("delta", USUAL_DELTA),
            " to the budget, which the default method needs. Pure DP has no delta; it needs public rows and ",
            Argument("method", "public"),
            ".",
        )
    return next(
        method for method, one in BY_METHOD.items() if adjacency in one.adjacencies
    )


def estimator_of(
    method: str, budget: Budget, classes: Any, /, **options: Any
) -> EmbeddingClassifier:
    """Return an unfitted estimator by the name of its method, or the default one for ``"auto"``."""
    from dppl.methods.parameters import with_options  # which NumPy comes with

    validate.one_of(("auto", *BY_METHOD), method=method)
    if method == "auto":
        method = method_for(budget, options.get("adjacency", "add-remove"))
    kind = BY_METHOD[method].load()
    known = set(with_options(kind._get_param_names())) - {"budget", "classes"}
    for name in options:
        if name == "start" and name not in known:
            raise ParameterError(
                f"is for methods that start from a model; {kind.__name__} does not.",
                parameter="start",
            )
        if name not in known:
            listed = ", ".join(sorted(known - {"public", "start", "random_state"}))
            raise ParameterError(
                f"must be parameters of {kind.__name__}: {listed}; got {name!r}.",
                parameter="options",
            )
    return kind(budget, classes).set_params(**options)
