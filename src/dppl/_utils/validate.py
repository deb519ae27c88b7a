"""Checks of parameters: one line each at the call, one form of message for all."""

import math
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real

from dppl.errors import Argument, ParameterError


def numbers(rule: str, fits: Callable[[float], bool], /, **named: object) -> None:
    """Refuse what is no number, or does not fit."""
    for name, value in named.items():
        try:
            fine = (
                isinstance(value, Real)
                and not isinstance(value, bool)
                and fits(float(value))
            )
        except OverflowError:  # a whole number beyond all floats
            fine = False
        if not fine:
            raise ParameterError(f"must {rule}; got {value!r}.", parameter=name)


positive = partial(
    numbers, "be a finite number greater than 0", lambda value: 0 < value < math.inf
)
not_negative = partial(
    numbers, "be a finite number of at least 0", lambda value: 0 <= value < math.inf
)
open_unit = partial(
    numbers, "lie strictly between 0 and 1", lambda value: 0 < value < 1
)
share = partial(
    numbers, "lie between 0 and 1, such as 0.2", lambda value: 0 < value < 1
)
closed_unit = partial(numbers, "lie between 0 and 1", lambda value: 0 <= value <= 1)
cosine = partial(numbers, "lie between -1 and 1", lambda value: -1 <= value <= 1)
probability = partial(numbers, "be above 0 and at most 1", lambda value: 0 < value <= 1)


def positive_integer(**named: object) -> None:
    """Accept only an integer of at least 1."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ParameterError(
                f"must be an integer of at least 1; got {value!r}.", parameter=name
            )


def one_of(options: Collection[str], /, *hint: str | Argument, **named: object) -> None:
    """Accept only one of `options`; `hint` says what to do about another."""
    for name, value in named.items():
        if not isinstance(value, str) or value not in options:
            allowed = ", ".join(repr(option) for option in options)
            raise ParameterError(
                f"must be one of {allowed}; got {value!r}",
                *(("; ", *hint) if hint else ()),
                ".",
                parameter=name,
                suggestion=closest(value, options),
            )


def closest(value: object, options: Collection[str]) -> str | None:
    """Return the option that a misspelt value may mean."""
    return next(iter(get_close_matches(str(value), options, 1)), None)
