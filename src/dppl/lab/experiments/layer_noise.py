"""What a private training takes of each layer, and its noise over the gradients there, for data that need no protection."""

from typing import Any

import numpy as np

from dppl._utils.types import Array
from dppl.finetune.gradients import NetworkGradients
from dppl.finetune.schedule import training_of
from dppl.finetune.weights import is_convolution, sizes_of


def layers_of(model: Any, X: Array, y: Array) -> list[dict[str, Any]]:
    """Return, of each layer with weights: its kind, how many it has, how many are trained, and two lengths.

    `gradient` is the length of the sum of clipped gradients that a step expects, at the
    trained weights: the sampling rate times the sum over all records, of which samples
    are a part. At the start it would be zero below a head of zeros. `noise` is the
    root mean square length of a step's noise, in the same unit.
    """
    module = model.module_
    selection = model.selection_
    gradients = NetworkGradients(
        module,
        selection,
        clip=model.recipe.clip,
        shape=X.shape[1:],
        integral=True,
        block=model.recipe.block,
    )
    codes = np.searchsorted(model.classes_, y)
    total = np.zeros(gradients.size)
    for start in range(0, len(y), model.recipe.block):
        part = slice(start, start + model.recipe.block)
        total += gradients.block_sum(X[part], codes[part])
    total *= model.sampling_rate_ / gradients.unit
    noise_std = 0.0
    if hasattr(model, "guarantee_"):  # the bound without noise has none
        noise_std = training_of(model.guarantee_).parameters["noise_std"]
    sizes = sizes_of(module, selection)
    parts = dict(zip(selection, np.split(total, np.cumsum(sizes)[:-1]), strict=True))
    layers = []
    for name, layer in module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not own:
            continue
        kind = "norm"
        if name == model.head:
            kind = "head"
        elif is_convolution(layer):
            kind = "conv"
        trained = [
            part for key, part in parts.items() if key.rpartition(".")[0] == name
        ]
        count = sum(map(len, trained))
        layers.append(
            {
                "kind": kind,
                "weights": sum(one.numel() for one in own.values()),
                "trained": count,
                "gradient": float(np.linalg.norm([np.linalg.norm(p) for p in trained])),
                "noise": noise_std / gradients.unit * count**0.5,
            }
        )
    return layers
