"""The default method as the head of a network: on its features before the training, and after it on the new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dppl.estimators.plan import seed_of
from dppl.kernel.privacy import Budget, Release
from dppl.kernel.privacy.composition import Cost, split, total_mu
from dppl.kernel.reading import UnknownLabels

# Percent of mu² for the first head, the training and the last head.
SHARES = (10, 50, 40)


def default_heads(
    budget: Budget,
    classes: NDArray[Any],
    unknown_labels: UnknownLabels | Literal["strict"] = "ignore",
    random_state: int | None = None,
) -> list[Any]:
    """Return the two models that are fitted on features, each with its share of the budget."""
    from dppl.prototypes import SoftmaxPrototypes  # here, because a page of a model needs no scikit-learn

    first, _, last = split(budget, SHARES)
    seeds = [None, None] if random_state is None else [seed_of(random_state, part) for part in (1, 2)]
    unknown = "ignore" if unknown_labels == "strict" else unknown_labels  # all records were looked at
    return [
        SoftmaxPrototypes(share, classes, unknown_labels=unknown, random_state=seed)
        for share, seed in zip((first, last), seeds, strict=True)
    ]


def releases_of(heads: Sequence[Any], width: int | None) -> tuple[list[Release], list[Release], float]:
    """Return what each of the two releases of features of this width, and what all of it costs in Gaussian DP.

    Without heads these are nothing and 0.
    """
    before, after = (
        [
            replace(one, statistic=f"{one.statistic}, {when} the training")
            for model in one_head
            for one in model.plan(width).guarantee.releases
        ]
        for one_head, when in ((heads[:1], "before"), (heads[1:], "after"))
    )
    costs = [Cost.from_dict(one.cost) for one in (*before, *after)]
    return before, after, total_mu(costs) if costs else 0.0


def unit_rows(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Bring what a head is given to length 1, as the default method does; a hook of the head."""
    (x,) = given
    return (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12),)


def set_head(layer: Any, model: Any) -> None:
    """Make a linear layer on unit rows score them as a fitted model does."""
    intercept = model.intercept_ - model.coef_ @ model.lattice_.center  # of rows that are not centred
    for weight, values in ((layer.weight, model.coef_), (layer.bias, intercept)):
        weight.data.copy_(weight.data.new_tensor(np.asarray(values, np.float32)))
