"""Public training of a network, which goes on after an interruption."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dppl._utils.files import write_atomically
from dppl._utils.optional import optional
from dppl.encoders.frozen import device_of
from dppl.encoders.load import without_folders
from dppl.errors import ParameterError
from dppl.finetune.checkpoint import Checkpoint, State
from dppl.finetune.layers import refuse
from dppl.finetune.weights import module_digest, set_weights, weights_of
from dppl.lab.experiments.datasets import PublicTraining
from dppl.lab.experiments.image_sets import read_folder
from dppl.lab.experiments.network_methods import new_on_pixels, weights_of_uri


def pretrain(
    network: str, recipe: PublicTraining, progress: Callable[[], object] = lambda: None
) -> None:
    """Train the network that a URI names with its weights, and write these.

    The checkpoint beside that file is of one run: of the same start, images and recipe.
    """
    out = weights_of_uri(network)
    images, labels = read_folder(Path(recipe.images), network)
    classes, codes = np.unique(labels, return_inverse=True)
    torch = optional("torch", "torch", "torch")
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        module = new_on_pixels(network).train()
        kept = dict.fromkeys(dict(module.named_parameters()))
        # Batch normalisation has no place in what it is trained for.
        refuse(module, kept)
        n_outputs = module(torch.from_numpy(images[:1])).shape[1]
        if n_outputs < len(classes):
            raise ParameterError(
                f"must have an output for each of {len(classes)} classes; it has {n_outputs}.",
                parameter="network",
            )
        identity = {
            "network": without_folders(network),
            "start": module_digest(module),
            "images": sha256(images.tobytes() + codes.tobytes()).hexdigest(),
            "recipe": {**asdict(recipe), "images": None},
        }
        module.to(device_of(torch, "auto"))
        work = out.with_name(f"{out.name}.work")
        file = Checkpoint(work, identity)
        with file.held():
            values = weights_of(module, kept)
            state = file.read(values.size, recipe.epochs)
            if state is None:
                state = State(0, values, np.zeros_like(values), run=uuid4().hex)
            set_weights(module, kept, state.values)
            for epoch in range(state.begun, recipe.epochs):
                state.velocity = _descend(
                    torch, module, state.velocity, images, codes, recipe, epoch
                )
                state.values = weights_of(module, kept)
                file.write(state, epoch + 1)
                progress()
    weights = {
        name: one.cpu().contiguous()
        for name, one in module.network.state_dict().items()
    }
    save = optional("safetensors.torch", "safetensors", "torch").save
    write_atomically(out, save(weights), overwrite=False)
    for path in (work, work.with_name(f"{work.name}.lock")):
        path.unlink()


def _descend(
    torch: Any,
    module: Any,
    momentum: NDArray[np.float32],
    images: NDArray[np.uint8],
    codes: NDArray[np.intp],
    recipe: PublicTraining,
    epoch: int,
) -> NDArray[np.float32]:
    """Take the steps of an epoch, whose draws follow from the seed and its number alone; return the velocity."""
    torch.manual_seed(recipe.seed + 7919 * (epoch + 1))
    rate = recipe.learning_rate * (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
    weights = list(module.parameters())
    velocity = torch.from_numpy(momentum).to(weights[0])
    as_vector = torch.nn.utils.parameters_to_vector
    for places in torch.randperm(len(images)).split(recipe.batch_size):
        x = torch.from_numpy(images[places.numpy()])
        y = torch.from_numpy(codes[places.numpy()])
        if recipe.augment:
            x = _moved(torch, x)
        logits = module(x.to(velocity.device))
        loss = torch.nn.functional.cross_entropy(logits, y.to(velocity.device))
        slopes = as_vector(torch.autograd.grad(loss, weights))
        with torch.no_grad():
            values = as_vector(weights)
            velocity *= recipe.momentum
            velocity += slopes + recipe.weight_decay * values
            values -= rate * velocity
            torch.nn.utils.vector_to_parameters(values, weights)
    found: NDArray[np.float32] = velocity.cpu().numpy()
    return found


def _moved(torch: Any, x: Any) -> Any:
    """Flip half of the images, and move all of a batch by up to an eighth of their side."""
    side = x.shape[1]
    most = side // 8
    flips = torch.rand(len(x), 1, 1, 1) < 0.5
    x = torch.where(flips, x.flip(2), x)
    margins = (0, 0, most, most, most, most)
    x = torch.nn.functional.pad(x, margins)
    top, left = torch.randint(2 * most + 1, (2,)).tolist()
    return x[:, top : top + side, left : left + side]
