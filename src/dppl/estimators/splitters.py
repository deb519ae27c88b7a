"""Public rows where scikit-learn cuts data into parts.

Its cross-validation and its ensembles cut every argument of `fit` that is as long as X. Public rows of that length
would be cut, too, and with one record more they would not: which public rows a model reads would tell of a record. So
inside such a tool public rows must be wrapped, whatever their number.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dppl.errors import ParameterError

# What hands arguments on whole. All else in scikit-learn that calls a fit may cut them.
_WHOLE = ("sklearn.base", "sklearn.pipeline", "sklearn.compose", "sklearn.utils")


@dataclass(frozen=True, slots=True, eq=False)
class PublicRows:
    """Public rows, or public items, that scikit-learn's tools hand to `fit` whole.

    Cross-validation, searches and ensembles of scikit-learn cut arguments that are as long as X. They leave this alone,
    because it has neither a length nor a shape: ``cross_val_score(model, X, y, params={"X_public": PublicRows(P)})``.
    Wrap at the outermost call. Bare rows are refused where such a tool is among the callers; a fit in a thread or
    process of its own, within code that is not scikit-learn's, does not show its callers.

    Parameters
    ----------
    rows : array-like, tensor, table or sequence of items
        What `X_public`, `X_examples` or `y_examples` would be.
    """

    rows: Any


def whole_public_rows(given: Any, name: str = "X_public") -> Any:
    """Return public rows, or other public arguments, without their wrapper.

    Raises
    ------
    ParameterError
        If they stand bare inside a tool of scikit-learn that may have cut them.
    """
    if isinstance(given, PublicRows):
        return given.rows
    if given is not None and inside_splitter():
        raise ParameterError(
            f"{name} must be wrapped here: this tool of scikit-learn cuts arguments that are as long as X, so which "
            "public rows are read could depend on the number of private records. Pass "
            f"{name}=dppl.PublicRows({name})."
        )
    return given


def inside_splitter() -> bool:
    """Tell whether a tool of scikit-learn that may cut arguments is calling."""
    return outermost_splitter(sys._getframe(1)) is not None


def outermost_splitter(frame: FrameType | None) -> FrameType | None:
    """Return the outermost call of such a tool, or None if there is none."""
    found = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("sklearn.") and not module.startswith(_WHOLE):
            found = frame
        frame = frame.f_back
    return found
