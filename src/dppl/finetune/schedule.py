"""How often a training asks for gradients, how its budget is shared with the heads, and what a guarantee says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dppl.errors import ParameterError
from dppl.kernel.privacy.composition import Cost, total_mu
from dppl.kernel.privacy.guarantee import Guarantee
from dppl.kernel.privacy.release import Release
from dppl.kernel.privacy.terms import Statistic, Term

# Percent of mu² for the first head, the training and the last head.
SHARES = (10, 50, 40)


def n_steps(epochs: float, rate: float) -> int:
    """Return the number of steps in which a record takes part as often on average, rounded up."""
    if epochs > 10**5 * rate:  # which no training needs, and no account adds up in time
        raise ParameterError(
            "must come to 100,000 steps at most, of sampling_rate each.",
            parameter="epochs",
        )
    return math.ceil(epochs / rate - 1e-9)


def statistic_of(size: int) -> Term[Statistic]:
    """Return what the statement calls the sum of gradients, for so many trained weights."""
    return Term(Statistic.NETWORK_GRADIENTS, n_weights=size)


def training_of(guarantee: Guarantee) -> Release:
    """Return the entry of the training in a statement, which may name heads, too."""
    (release,) = (
        one
        for one in guarantee.releases
        if one.statistic.code is Statistic.NETWORK_GRADIENTS
    )
    return release


def releases_of(
    heads: Sequence[Any], width: int | None
) -> tuple[list[Release], list[Release], float]:
    """Return what each of the two releases of features of this width, and what all of it costs in Gaussian DP.

    Without heads these are nothing and 0.
    """
    before = list[Release]()
    after = list[Release]()
    for model, releases, when in zip(
        heads,
        (before, after),
        (Statistic.BEFORE_TRAINING, Statistic.AFTER_TRAINING),
        strict=False,
    ):
        planned = model.plan(width).guarantee.releases
        releases += [
            replace(one, statistic=Term(when, of=one.statistic)) for one in planned
        ]
    costs = [Cost.from_dict(one.cost) for one in (*before, *after)]
    return before, after, total_mu(costs) if costs else 0.0
