"""Which method a command fits, and which options go with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dppl import _validate
from dppl.cli._options import FLAGS, METHOD, option
from dppl.errors import BudgetError, ParameterError
from dppl.estimators.registry import BY_METHOD, BY_NAME, method_for
from dppl.kernel.privacy import Budget, PureDP

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier

# Parameters that not every method has, with the value that stands for none.
_UNSET = {
    "adjacency": "add-remove",
    "center": None,
    "clip": None,
    "mechanism": None,
    "metric": None,
    "n_prototypes": None,
    "pool": 1,
    "rotation": None,
}
# Values that divide by class sizes, which replace-one alone treats as public.
_OF_REPLACE_ONE = {"mechanism": "coinpress", "metric": "euclidean"}


def method_option(automatic: str) -> Any:
    """Return the option ``--method``; `automatic` says which one is taken by itself."""
    hints = "".join(f"{method}: {entry.hint}. " for method, entry in BY_METHOD.items())
    return option(f"auto|{'|'.join(BY_METHOD)}", f"{hints}Default auto: {automatic}.", METHOD, callback=_known_method)


def _known_method(method: str) -> str:
    short = BY_NAME[method].method if method in BY_NAME else None
    if short in BY_METHOD:
        raise ParameterError(f"takes the short names of methods; got {method}.", parameter="method", suggestion=short)
    _validate.one_of(("auto", *BY_METHOD), method=method)
    return method


def chosen_method(method: str, budget: Budget, options: dict[str, Any], public: Path | None) -> str:
    """Return the method of a fit, the default one for ``"auto"``; refuse what it cannot do."""
    if isinstance(budget, PureDP) and public is None and method in ("auto", "public"):
        raise ParameterError(
            "--epsilon alone is pure DP, which selects rows of public data; add --public, or --delta D."
        )
    if method == "auto":
        method = method_for(budget, options.get("adjacency", "add-remove"))
        check_options(method, budget, options, this=f"the default method, {method}", use="add --method")
    else:
        check_options(method, budget, options, this=f"--method {method}", use="use --method")
    if method != "softmax":  # which fits with public rows and without
        _check_public(method, options, public)
    return method


def check_options(method: str, budget: Budget, options: dict[str, Any], *, this: str, use: str) -> None:
    """Refuse a budget that the method cannot spend, and options without effect: their giver expects another fit.

    Messages call the method `this`, and put `use` before the name of another one.
    """
    entry = BY_METHOD[method]
    if isinstance(budget, PureDP) and not entry.pure:
        raise BudgetError(
            f"--epsilon without --delta is pure DP, which the Gaussian noise of {this} cannot give at any scale; add "
            f"--delta (far below 1 / number of records), give --mu or --rho instead, or {use} public."
        )
    for name, unset in _UNSET.items():
        if options.get(name) not in (None, unset) and name not in entry.parameters:
            flag = f"{FLAGS[name]} {options[name]}" if name == "adjacency" else FLAGS[name]
            others = " or ".join(other for other, one in BY_METHOD.items() if name in one.parameters)
            raise ParameterError(f"{flag} does not go with {this}; leave it out, or {use} {others}.")
    for name, value in _OF_REPLACE_ONE.items():
        if options.get(name) == value and options.get("adjacency") == "add-remove":
            raise ParameterError(
                f"{FLAGS[name]} {value} divides by class sizes, which only --adjacency replace-one treats as public; "
                "add that, or leave it out."
            )


def _check_public(method: str, options: dict[str, Any], public: Path | None) -> None:
    """Refuse public rows without effect, and none where they are needed."""
    maps = "center" in options  # whether this command has options of the map, and of the relation
    uses_public = method == "public" or options.get("center") is not None or options.get("rotation") == "auto"
    if uses_public and public is None:
        raise ParameterError(
            "--public is required with --method public (which --epsilon without --delta needs)"
            f"{', --center-public and --rotation auto' * maps}; add it."
        )
    if public is not None and not uses_public:
        raise ParameterError(
            f"--public has no effect with --method {method}{' (which auto takes under replace-one)' * maps}; use "
            f"--method public, {'add --center-public or --rotation auto, ' * maps}or leave it out."
        )


def check_examples(flag: str, method: str) -> None:
    """Refuse public examples of the classes without effect."""
    if not BY_METHOD[method].starts_from_examples:
        takers = " or ".join(f"--method {other}" for other, entry in BY_METHOD.items() if entry.starts_from_examples)
        raise ParameterError(
            f"{flag} has no effect with --method {method}, which starts from no examples of the classes; use {takers}, "
            "or leave it out."
        )


def build(method: str, budget: Budget, classes: Any, options: dict[str, Any]) -> EmbeddingClassifier:
    """Return the unfitted estimator, with those options that are given and that it has."""
    entry = BY_METHOD[method]
    given = {name: options[name] for name in entry.parameters if options.get(name) is not None}
    return entry.load()(budget, classes, **given)
