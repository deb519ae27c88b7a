"""The methods that an experiment can compare: one entry each.

A target is a class named ``module:Class`` and imported only when an experiment names its method, so an entry may stand
here before its module does; naming it is an error of the configuration then.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dppl.errors import ParameterError
from dppl.privacy import Budget

__all__ = ["METHODS", "Choice", "Method", "Range", "check_parameters", "label", "needs_public", "uses_public"]

# What the runner passes itself.
_GIVEN = ("budget", "classes", "random_state")
# Values of parameters that are fitted on public rows.
_PUBLIC_VALUES = ("public", "auto")
_PUBLIC_PARAMETERS = ("center", "rotation")


@dataclass(frozen=True, slots=True)
class Choice:
    """A hyper-parameter that takes one of some values."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A hyper-parameter between two numbers, searched on a logarithmic scale."""

    low: float
    high: float


Space = Mapping[str, Choice | Range]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to train a classifier.

    Parameters
    ----------
    label : str
        Name in tables and figures.
    target : str
        ``module:Class``.
    fixed : mapping
        Parameters that make the method what it is.
    public : bool
        Whether it reads public rows. Others get them only where a parameter asks for them (``center: public``).
    public_optional : bool
        Whether it can do without them where a data set names none.
    private : bool
        False for references without any guarantee, which take no budget.
    pure : bool
        Whether it can spend a pure-DP budget.
    exact : bool
        Whether its sums and its noise for release are exact integers; a test compares with the guarantee.
    space : mapping of str to Choice or Range
        Hyper-parameters to search.
    defaults : mapping
        Values for what neither a configuration nor a search sets, where the class's own defaults would miss the point.
    """

    label: str
    target: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    public: bool = False
    public_optional: bool = False
    private: bool = True
    pure: bool = False
    exact: bool = True
    space: Space = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """Import the class.

        Raises
        ------
        ImportError, AttributeError
            If this version of dppl does not have it.
        """
        module, name = self.target.split(":")
        return getattr(importlib.import_module(module), name)

    def build(self, budget: Budget | None, classes: Any, random_state: int, parameters: Mapping[str, Any]) -> Any:
        """Return the unfitted classifier."""
        kind = self.load()
        given: dict[str, Any] = {"budget": budget, "classes": classes, "random_state": random_state}
        accepted = inspect.signature(kind).parameters
        return kind(**{name: value for name, value in given.items() if name in accepted}, **self.fixed, **parameters)


_POOL = Choice((1, 2, 4, 8))
# Bounds on 1 + cosine, DPPL-v1's d_min and d_max; "auto" reads them off public rows.
_CLIP = Choice(("auto", (0.0, 2.0), (1.0, 2.0), (1.0, 1.5), (1.1, 1.5), (1.2, 1.8), (1.5, 2.0)))
# DPPL-v1, section C.4.1.
_K = Choice((1, 2, 3, 5, 10, 20))
_STEPS = Choice((10, 40, 100))
_CLIP_NORM = Range(0.1, 1.4)

METHODS: dict[str, Method] = {
    "softmax": Method("Softmax prototypes", "dppl.prototypes:SoftmaxPrototypes", public=True, public_optional=True),
    "softmax-alone": Method("Softmax prototypes, no public rows", "dppl.prototypes:SoftmaxPrototypes"),
    "mean": Method("DPPL-Mean", "dppl.prototypes:MeanPrototypes", space={"pool": _POOL}),
    "mean-replace-one": Method(
        "DPPL-Mean as published (AAAI)",
        "dppl.prototypes:MeanPrototypes",
        {"adjacency": "replace-one"},
        space={"pool": _POOL},
    ),
    "coinpress": Method(
        "DPPL-Mean, CoinPress (v1)",
        "dppl.prototypes:MeanPrototypes",
        {"adjacency": "replace-one", "mechanism": "coinpress"},
        space={"pool": _POOL},
    ),
    "public": Method(
        "DPPL-Public", "dppl.prototypes:PublicPrototypes", public=True, pure=True, space={"clip": _CLIP, "pool": _POOL}
    ),
    "public-topk": Method(
        "DPPL-Public top-K",
        "dppl.prototypes:PublicPrototypes",
        public=True,
        pure=True,
        space={"n_prototypes": _K, "clip": _CLIP},
        defaults={"n_prototypes": 5},
    ),
    "linear-probe": Method(
        "Linear probe, DP-SGD",
        "dppl.baselines:LinearProbe",
        space={"steps": _STEPS, "learning_rate": Range(0.1, 30.0), "clip": _CLIP_NORM},
    ),
    "global-adapt": Method(
        "DPSGD-Global-Adapt",
        "dppl.baselines:GlobalAdapt",
        space={"steps": _STEPS, "learning_rate": Range(0.1, 30.0), "clip": _CLIP_NORM, "threshold": Range(0.3, 3.0)},
    ),
    "least-squares": Method(
        "DP-LS",
        "dppl.baselines:LeastSquares",
        space={"alpha": Range(1e-3, 1.0), "ridge": Range(1e-2, 1e3), "pool": _POOL},
    ),
    "feature-covariance": Method(
        "DP-FC",
        "dppl.baselines:FeatureCovariance",
        space={"steps": Choice((3, 10, 30)), "learning_rate": Range(0.3, 10.0), "ridge": Range(1e-2, 1e3)},
    ),
    "newton": Method(
        "DP-Newton",
        "dppl.baselines:Newton",
        space={"steps": Choice((1, 3, 10)), "learning_rate": Range(0.1, 2.0), "ridge": Range(1e-2, 1e3)},
    ),
    "ncm": Method("Nearest class mean", "dppl.baselines:NonPrivateNearestMean", private=False),
    "lda": Method("LDA", "dppl.baselines:NonPrivateLDA", private=False),
    "logistic": Method("Logistic regression", "dppl.baselines:NonPrivateLogisticRegression", private=False),
}


def check_parameters(name: str, parameters: Mapping[str, Any], where: str) -> Method:
    """Return the method called `name`, if it can be imported and takes `parameters`.

    Parameters
    ----------
    name : str
    parameters : mapping
    where : str
        Place in the configuration, for messages.

    Raises
    ------
    ParameterError
        If there is no such method, this version does not have it, or it does not take a parameter.
    """
    if name not in METHODS:
        raise ParameterError(f"{where} must be one of {', '.join(METHODS)}; got {name!r}.")
    method = METHODS[name]
    try:
        kind = method.load()
    except (ImportError, AttributeError) as error:
        raise ParameterError(f"{where} is {name!r}, which this version of dppl does not have ({error}).") from None
    allowed = [n for n in inspect.signature(kind).parameters if n not in (*_GIVEN, *method.fixed)]
    for parameter in parameters:
        if parameter not in allowed:
            raise ParameterError(
                f"{where}: {name} has no parameter {parameter!r} to set; it has {', '.join(allowed) or 'none'}."
            )
    return method


def uses_public(method: Method, parameters: Mapping[str, Any]) -> bool:
    """Tell whether a fit with these parameters reads public rows where there are some."""
    return method.public or _asks_for_public(parameters)


def needs_public(method: Method, parameters: Mapping[str, Any]) -> bool:
    """Tell whether a fit with these parameters is impossible without public rows."""
    return (method.public and not method.public_optional) or _asks_for_public(parameters)


def _asks_for_public(parameters: Mapping[str, Any]) -> bool:
    return any(parameters.get(name) in _PUBLIC_VALUES for name in _PUBLIC_PARAMETERS)


def label(name: str, parameters: Mapping[str, Any]) -> str:
    """Return what a method with these parameters is called in tables and figures.

    Examples
    --------
    >>> label("public-topk", {"n_prototypes": 5})
    'DPPL-Public top-5'
    >>> label("mean", {"pool": 2})
    'DPPL-Mean (pool 2)'
    >>> label("discriminant", {})
    'discriminant (of an earlier version)'
    """
    rest = dict(parameters)
    text = METHODS[name].label if name in METHODS else f"{name} (of an earlier version)"
    if name == "public-topk" and "n_prototypes" in rest:
        text = text.replace("top-K", f"top-{rest.pop('n_prototypes')}")
    details = ", ".join(f"{key} {value}" for key, value in sorted(rest.items()))
    return f"{text} ({details})" if details else text
