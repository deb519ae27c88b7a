"""Public training of a network, by default as in Luo et al. (CVPR 2021), section 5.8. It goes on after an interruption."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.files import write_atomically
from dppl._utils.optional import optional
from dppl.encoders.frozen import device_of
from dppl.encoders.load import without_folders
from dppl.errors import ParameterError
from dppl.finetune.checkpoint import Checkpoint, State
from dppl.finetune.weights import module_digest, set_weights, sizes_of, weights_of
from dppl.lab.experiments.network_methods import new_on_pixels


@dataclass(frozen=True, kw_only=True)
class PublicRecipe:
    """How weights move."""

    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1  # falls as a cosine over all epochs
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: bool = False  # crops after padding by an eighth, and flips
    seed: int = 0


def pretrain(
    network: str,
    images: NDArray[np.uint8],
    codes: NDArray[np.intp],
    recipe: PublicRecipe,
    out: Path,
    progress: Callable[[int], object] = lambda epochs: None,
) -> None:
    """Train the network of a URI without weights on public images, and write its weights to a file.

    The checkpoint beside that file is of one run: of the same start, images and recipe.
    """
    torch = optional("torch", "torch", "torch")
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        module = new_on_pixels(network)
        n_outputs = module(torch.from_numpy(images[:1])).shape[1]
        if n_outputs <= codes.max():
            raise ParameterError(
                f"must have an output for each of {codes.max() + 1} classes; it has {n_outputs}.",
                parameter="network",
            )
        identity = {
            "network": without_folders(network),
            "start": module_digest(module),
            "images": sha256(images.tobytes() + codes.tobytes()).hexdigest(),
            "recipe": asdict(recipe),
        }
        module.to(device_of(torch, "auto")).train()
        trained = dict(module.named_parameters())
        kept = dict.fromkeys(
            name for name, one in module.state_dict().items() if one.is_floating_point()
        )
        velocity = {name: torch.zeros_like(one) for name, one in trained.items()}
        work = out.with_name(f"{out.name}.work")
        file = Checkpoint(work, identity)
        with file.held():
            values = weights_of(module, kept)
            state = file.read(values.size, recipe.epochs)
            if state is None:
                state = State(0, values, np.zeros_like(values))
            set_weights(module, kept, state.values)
            parts = np.split(state.velocity, np.cumsum(sizes_of(module, kept))[:-1])
            for name, part in zip(kept, parts, strict=True):
                if name in velocity:
                    velocity[name].view(-1).copy_(torch.from_numpy(part))
            for epoch in range(state.begun, recipe.epochs):
                _descend(torch, module, velocity, images, codes, recipe, epoch)
                moving = [
                    velocity.get(name, torch.zeros(size)).cpu().numpy().reshape(-1)
                    for name, size in zip(kept, sizes_of(module, kept), strict=True)
                ]
                state = State(
                    epoch + 1, weights_of(module, kept), np.concatenate(moving)
                )
                file.write(state, epoch + 1)
                progress(epoch + 1)
    weights = {
        name: one.cpu().contiguous()
        for name, one in module.network.state_dict().items()
    }
    save = optional("safetensors.torch", "safetensors", "torch").save
    write_atomically(out, save(weights), overwrite=True)
    for path in (work, work.with_name(f"{work.name}.lock")):
        path.unlink()


def _descend(
    torch: Any,
    module: Any,
    velocity: dict[str, Any],
    images: NDArray[np.uint8],
    codes: NDArray[np.intp],
    recipe: PublicRecipe,
    epoch: int,
) -> None:
    """Take the steps of an epoch, whose draws follow from the seed and its number alone."""
    torch.manual_seed(recipe.seed + 7919 * (epoch + 1))
    rate = recipe.learning_rate * (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
    device = next(module.parameters()).device
    for places in torch.randperm(len(images)).split(recipe.batch_size):
        x = torch.from_numpy(images[places.numpy()])
        if recipe.augment:
            x = _augmented(torch, x)
        y = torch.from_numpy(codes[places.numpy()])
        loss = torch.nn.functional.cross_entropy(module(x.to(device)), y.to(device))
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for name, weight in module.named_parameters():
                slope = weight.grad + recipe.weight_decay * weight
                velocity[name].mul_(recipe.momentum).add_(slope)
                weight.sub_(rate * velocity[name])


def _augmented(torch: Any, x: Any) -> Any:
    """Flip half of the images, and move each by up to an eighth of its side."""
    side = x.shape[1]
    most = side // 8
    flipped = torch.where((torch.rand(len(x)) < 0.5)[:, None, None, None], x.flip(2), x)
    padded = torch.nn.functional.pad(flipped, (0, 0, most, most, most, most))
    places = torch.randint(2 * most + 1, (len(x), 2)).tolist()
    return torch.stack(
        [
            one[top : top + side, left : left + side]
            for one, (top, left) in zip(padded, places, strict=True)
        ]
    )
