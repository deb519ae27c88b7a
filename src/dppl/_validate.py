"""Checks of parameters: one line each at the call, one form of message for all."""

import math
from collections.abc import Collection
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from dppl.errors import ParameterError


def positive(**named: object) -> None:
    """Refuse what is not a finite number above 0."""
    for name, value in named.items():
        if not _is_real(value) or not 0 < _as_float(value) < math.inf:
            raise ParameterError(f"must be a finite number greater than 0; got {value!r}.", parameter=name)


def not_negative(**named: object) -> None:
    """Refuse what is not a finite number of at least 0."""
    for name, value in named.items():
        if not _is_real(value) or not 0 <= _as_float(value) < math.inf:
            raise ParameterError(f"must be a finite number of at least 0; got {value!r}.", parameter=name)


def open_unit(**named: object) -> None:
    """Refuse what is not strictly between 0 and 1."""
    for name, value in named.items():
        if not _is_real(value) or not 0 < _as_float(value) < 1:
            raise ParameterError(f"must lie strictly between 0 and 1; got {value!r}.", parameter=name)


def probability(**named: object) -> None:
    """Refuse what is not above 0 and at most 1."""
    for name, value in named.items():
        if not _is_real(value) or not 0 < _as_float(value) <= 1:
            raise ParameterError(f"must be above 0 and at most 1; got {value!r}.", parameter=name)


def positive_integer(**named: object) -> None:
    """Refuse what is not an integer of at least 1."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ParameterError(f"must be an integer of at least 1; got {value!r}.", parameter=name)


def one_of(options: Collection[str], **named: object) -> None:
    """Refuse what is not among `options`."""
    for name, value in named.items():
        if not isinstance(value, str) or value not in options:
            allowed = ", ".join(repr(option) for option in options)
            meant = next(iter(get_close_matches(str(value), options, 1)), None)
            raise ParameterError(f"must be one of {allowed}; got {value!r}.", parameter=name, suggestion=meant)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
