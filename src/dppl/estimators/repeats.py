"""Fits on the same records that no ledger counts: what they cost together.

Only objects are compared, by weak references: nothing of a record is read, copied or kept. Copies of the same records
are not noticed, nor are lists, which weak references cannot point to.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from dataclasses import dataclass, field
from threading import Lock
from types import FrameType
from typing import Any

from dppl.errors import BudgetError, ParameterError, RepeatedFitWarning, SplitterWarning
from dppl.estimators.splitters import outermost_splitter
from dppl.privacy import Guarantee
from dppl.privacy.composition import total_budget


@dataclass(slots=True)
class _Fits:
    """The guarantees of fits on one object, and which warnings it has had."""

    of: weakref.ref[Any]
    guarantees: list[Guarantee] = field(default_factory=list)
    told: set[type[Warning]] = field(default_factory=set)

    def first(self, warning: type[Warning]) -> bool:
        """Tell whether a warning is the first of its kind, and remember it."""
        new = warning not in self.told
        self.told.add(warning)
        return new


_LOCK = Lock()
_FITS: dict[int, _Fits] = {}


def warn_of_uncounted_fits() -> None:
    """Warn, once for each array, that every fit in a tool that cuts arrays is a release, where no ledger counts."""
    splitter = outermost_splitter(sys._getframe(1))
    if splitter is None:
        return
    fits = _fits_on(_whole(None, splitter))
    if fits is None or fits.first(SplitterWarning):
        warnings.warn(
            "this tool of scikit-learn fits several times on the same records. Each fit is a release, their costs add "
            "up (n fits of mu cost sqrt(n)*mu, and n of a pure epsilon cost n*epsilon), and no guarantee covers a "
            "choice among them; pass ledger= to keep account, or use PrivateSearch.",
            SplitterWarning,
            stacklevel=3,
        )


def count_fit(X: Any, guarantee: Guarantee) -> None:
    """Note a fit without a ledger on `X`; if there were others, warn once of what all cost together.

    Inside a tool of scikit-learn that cuts its arrays, the whole array counts, and `warn_of_uncounted_fits` warns. A
    fit with a seed is an experiment, whose model must not be released, so it counts for nothing.

    Parameters
    ----------
    X : object
        The private records.
    guarantee : Guarantee
    """
    if not guarantee.fit_for_release or not guarantee.releases:
        return
    splitter = outermost_splitter(sys._getframe(1))
    fits = _fits_on(_whole(X, splitter))
    if fits is None:
        return
    fits.guarantees.append(guarantee)
    if splitter is None and len(fits.guarantees) > 1 and fits.first(RepeatedFitWarning):
        warnings.warn(
            f"these records were fitted before in this process, without a ledger. All {len(fits.guarantees)} fits "
            f"together cost {_together(fits.guarantees)}, if their models are released. Further fits add to that, "
            "without another warning; pass ledger= to keep account.",
            RepeatedFitWarning,
            stacklevel=3,
        )


def _fits_on(X: Any) -> _Fits | None:
    """Return the fits on an object so far; None if it cannot be followed."""
    key = id(X)
    try:
        # The entry goes with the object, whose identity another may have then.
        reference = weakref.ref(X, lambda gone: _forget(key, gone))
    except TypeError:
        return None
    with _LOCK:
        known = _FITS.get(key)
        if known is None or known.of() is not X:
            known = _FITS[key] = _Fits(reference)
        return known


def _forget(key: int, gone: weakref.ref[Any]) -> None:
    known = _FITS.get(key)
    if known is not None and known.of is gone:
        del _FITS[key]


def _whole(X: Any, splitter: FrameType | None) -> Any:
    """Return the array that a tool of scikit-learn was given, of which `X` may be a part."""
    whole = None if splitter is None else splitter.f_locals.get("X")
    return X if whole is None else whole


def _together(guarantees: list[Guarantee]) -> str:
    """Return the cost of all as a text, from what they state alone."""
    try:
        return str(total_budget(guarantees[-1].budget, [cost for one in guarantees for cost in one.costs()]))
    except BudgetError:
        return "what each of their guarantees states, added up"
    except ParameterError:
        return "more than any of their guarantees states, which are for different units or relations and do not add up"
