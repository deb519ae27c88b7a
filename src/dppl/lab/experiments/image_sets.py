"""Images of experiments: folders with a subfolder for each class, or scikit-learn's digits; and their features."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dppl._utils.optional import optional
from dppl._utils.types import Array, Float32
from dppl.encoders.load import parse
from dppl.encoders.pixels import Preprocessing
from dppl.errors import InputError
from dppl.io.records.decoding import decode
from dppl.io.records.images import ImageFolder
from dppl.io.records.record import BadRecord
from dppl.lab.experiments.datasets import (
    DIGITS,
    Dataset,
    DatasetSpec,
    held_out,
    load_dataset,
)
from dppl.lab.experiments.network_methods import FORMS, on_pixels

_BATCH = 64


def load(spec: DatasetSpec) -> Dataset:
    """Load a data set of embeddings, or of images, which its network embeds."""
    if spec.images is None:
        return load_dataset(spec)
    spec.check()
    parts, pools = split_images(spec.images, spec.network)
    for name, path in spec.pools.items():
        pools[name], _ = read_folder(path, spec.network)
    embedded = {name: features(spec.network, rows) for name, rows in pools.items()}
    images = parts["X"], parts["X_test"]
    X, X_test = (features(spec.network, one) for one in images)
    y, y_test = parts["y"], parts["y_test"]
    classes = np.unique(np.concatenate([y, y_test]))
    network = spec.network
    return Dataset(
        X, y, X_test, y_test, classes, embedded, images=images, network=network
    )


def read_folder(place: Path, network: str) -> tuple[NDArray[np.uint8], Array]:
    """Return the images below a folder, as large as a network takes them, and their subfolders; or the digits."""
    if place == Path(DIGITS):
        from sklearn.datasets import load_digits  # here, because it takes a second

        digits = load_digits()
        grey = (digits.images * (255 / 16)).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1), digits.target
    if not place.is_dir():
        raise InputError(f"there is no folder of images {place}.")
    size = parse(network, ("timm", "python"), FORMS, "network").number("size", 224)
    prepare = Preprocessing(size=size)
    images = []
    labels = []
    for record in ImageFolder(place):
        try:
            image = decode(record.load(), "image")
        except BadRecord:
            raise InputError(
                f"{place}: {record.reference} is no image that can be read."
            ) from None
        pixels = np.rint(255 * prepare(image)).clip(0, 255)
        images.append(pixels.astype(np.uint8).transpose(1, 2, 0))
        labels.append(record.label or "")
    if not images:
        raise InputError(f"{place} holds no images.")
    return np.stack(images), np.array(labels)


def split_images(
    place: Path, network: str
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return training and test images with their labels, by the names of `Dataset`, and public images.

    A folder has the subfolders train and test, or one for each class: then a random
    fifth, always the same, is the test set and nothing else.
    """
    split = [(place / part).is_dir() for part in ("train", "test")]
    if any(split) and not all(split):
        raise InputError(
            f"{place} must have both of the subfolders train and test, or neither."
        )
    if all(split):
        X, y = read_folder(place / "train", network)
        X_test, y_test = read_folder(place / "test", network)
        return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}, {}
    images, labels = read_folder(place, network)
    test, train = held_out(len(images))
    pools = {}
    if place == Path(DIGITS):
        # Another fifth has no labels and is public.
        public, private = held_out(len(train))
        pools[DIGITS] = images[train[public]]
        train = train[private]
    parts = {"X": images[train], "y": labels[train]}
    return {**parts, "X_test": images[test], "y_test": labels[test]}, pools


def features(network: str, images: NDArray[np.uint8]) -> Float32:
    """Return what the head of a public network is given for each image, shape (n, width)."""
    torch = optional("torch", "torch", "torch")
    module, head = on_pixels(network)
    body = deepcopy(module)
    body.set_submodule(head, torch.nn.Identity())
    with torch.no_grad():
        return np.concatenate(
            [
                body(batch.to(body.mean.device)).cpu().numpy()
                for batch in torch.from_numpy(images).split(_BATCH)
            ]
        )
