"""The default method as the head of a network: on its features before the training, and after it on the new ones."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dppl.finetune.schedule import SHARES
from dppl.finetune.weights import WeightSelection
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.budgets import split
from dppl.kernel.reading import UnknownLabels
from dppl.methods.fit_plan import seed_of


def default_heads(
    budget: Budget,
    classes: NDArray[Any],
    unknown_labels: UnknownLabels | Literal["strict"] = "ignore",
    random_state: int | None = None,
) -> list[Any]:
    """Return the two models that are fitted on features, each with its share of the budget."""
    from dppl.methods import (
        SoftmaxPrototypes,
    )  # here, because a page of a model needs no scikit-learn

    first, _, last = split(budget, SHARES)
    seeds: list[int | None] = [None, None]
    if random_state is not None:
        seeds = [seed_of(random_state, part) for part in (1, 2)]
    unknown = unknown_labels
    if unknown == "strict":
        unknown = "ignore"  # all records were looked at
    return [
        SoftmaxPrototypes(share, classes, unknown_labels=unknown, random_state=seed)
        for share, seed in zip((first, last), seeds, strict=True)
    ]


def make_default(layer: Any) -> None:
    """Have a linear layer score what the default method scores: unit rows about a centre, of length 1 again."""
    layer.register_buffer("center", layer.weight.new_zeros(layer.in_features))
    layer.register_forward_pre_hook(_centred)


def set_head(layer: Any, model: Any) -> None:
    """Make such a layer score as a fitted model does."""
    for own, values in (
        ("weight", model.coef_),
        ("bias", model.intercept_),
        ("center", model.lattice_.center),
    ):
        tensor = getattr(layer, own).data
        tensor.copy_(tensor.new_tensor(np.asarray(values, np.float32)))


def with_center(selection: WeightSelection, head: str | None) -> WeightSelection:
    """Return what a training keeps of a module: the trained weights, then the centre of such a head."""
    return {**selection, f"{head}.center": None}


def _centred(layer: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    (x,) = given
    for center in (0, layer.center):
        x = x - center
        x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return (x,)
