"""Images of experiments: folders with a subfolder for each class, or scikit-learn's digits; and their features."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.optional import optional
from dppl._utils.types import Array, Float32
from dppl.encoders.pixels import Preprocessing
from dppl.errors import InputError
from dppl.io.records.decoding import decode
from dppl.io.records.images import ImageFolder
from dppl.io.records.record import BadRecord
from dppl.lab.experiments.datasets import DIGITS, held_out
from dppl.lab.experiments.network_methods import new_on_pixels, on_pixels

_BATCH = 64


def read_folder(folder: Path, size: int) -> tuple[NDArray[np.uint8], Array]:
    """Return the images below a folder, shape (n, size, size, 3), and the names of their subfolders."""
    prepare = Preprocessing(size=size)
    images = []
    labels = []
    for record in ImageFolder(folder):
        try:
            image = decode(record.load(), "image")
        except BadRecord:
            raise InputError(
                f"{folder}: {record.reference} is no image that can be read."
            ) from None
        pixels = np.rint(255 * prepare(image)).clip(0, 255)
        images.append(pixels.astype(np.uint8).transpose(1, 2, 0))
        labels.append(record.label or "")
    if not images:
        raise InputError(f"{folder} holds no images.")
    return np.stack(images), np.array(labels)


def read_parts(place: Path, size: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return training and test images with their labels, by the names of `Dataset`, and public images.

    A folder has the subfolders train and test, or one for each class: then a random
    fifth, always the same, is the test set and nothing else.
    """
    if place == Path(DIGITS):
        images, labels = _digits()
        test, rest = held_out(len(images))
        # Another fifth has no labels and is public.
        public, private = held_out(len(rest))
        pools = {DIGITS: images[rest[public]]}
        return _parts(images, labels, rest[private], test), pools
    if not place.is_dir():
        raise InputError(f"there is no folder of images {place}.")
    split = [(place / part).is_dir() for part in ("train", "test")]
    if not any(split):
        images, labels = read_folder(place, size)
        test, train = held_out(len(images))
        return _parts(images, labels, train, test), {}
    if not all(split):
        raise InputError(
            f"{place} must have both of the subfolders train and test, or neither."
        )
    (X, y), (X_test, y_test) = (
        read_folder(place / part, size) for part in ("train", "test")
    )
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}, {}


def read_all(place: Path, network: str) -> tuple[NDArray[np.uint8], Array]:
    """Return all images of a folder, or the digits, for a new network, and their labels."""
    if place == Path(DIGITS):
        return _digits()
    return read_folder(place, new_on_pixels(network).size)


def features(network: str, images: NDArray[np.uint8]) -> Float32:
    """Return what the head of a public network is given for each image, shape (n, width)."""
    torch = optional("torch", "torch", "torch")
    module, head = on_pixels(network)
    body = deepcopy(module)
    body.set_submodule(head, torch.nn.Identity())

    def each() -> Iterator[Any]:
        for start in range(0, len(images), _BATCH):
            batch = torch.from_numpy(images[start : start + _BATCH])
            yield body(batch.to(body.mean.device)).flatten(1).cpu().numpy()

    with torch.no_grad():
        return np.concatenate([*each()])


def _digits() -> tuple[NDArray[np.uint8], Array]:
    from sklearn.datasets import load_digits  # here, because it takes a second

    digits = load_digits()
    grey = (digits.images * (255 / 16)).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1), digits.target


def _parts(images: Array, labels: Array, train: Array, test: Array) -> dict[str, Array]:
    return {
        "X": images[train],
        "y": labels[train],
        "X_test": images[test],
        "y_test": labels[test],
    }
