"""Guesses of how many records there are, and how many of the rarest class."""

import math

import numpy as np
from scipy.optimize import brentq

from dppl._utils import validate
from dppl._utils.types import Float
from dppl.errors import ParameterError


def checked_guesses(
    n_classes: int, smallest: int | None, **total: int
) -> tuple[int, int]:
    """Return the guessed number of records, `total` by its name, and of the smallest class; None is an even share."""
    ((name, n),) = total.items()
    validate.positive_integer(
        n_classes=n_classes, **total, smallest=1 if smallest is None else smallest
    )
    least = n_classes * (smallest or 1)
    for parameter, value, bound in (("n_classes", n_classes, 2), (name, n, least)):
        if value < bound:
            raise ParameterError(
                f"must be at least {bound}; got {value!r}.", parameter=parameter
            )
    return int(n), int(smallest or n // n_classes)


def rising_sizes(n_classes: int, n_records: int, smallest: int) -> Float:
    """Return sizes that rise in equal ratios from the smallest class, and add up to the number of records."""
    if smallest == n_records // n_classes:
        return np.full(n_classes, n_records / n_classes)
    places = np.linspace(0, 1, n_classes)
    ratio = brentq(
        lambda log: smallest * np.exp(log * places).sum() - n_records,
        0,
        math.log(n_records / smallest),
    )
    return np.asarray(smallest * np.exp(ratio * places))
