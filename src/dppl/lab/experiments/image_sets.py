"""Images of experiments: folders with a subfolder for each class, or scikit-learn's digits; and their features."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
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
    BASE,
    DIGITS,
    IMAGES,
    Dataset,
    DatasetSpec,
    held_out,
    load_dataset,
)
from dppl.lab.experiments.network_methods import FORMS, on_pixels

_BATCH = 64
_NO_PIXELS = np.zeros(0, np.uint8)


def load(spec: DatasetSpec, *, whole: bool = True) -> Dataset:
    """Load a data set of embeddings, or of images, which its network embeds.

    Unless it is `whole`, images are not read, and zeros stand for their embeddings: all
    else can be checked with them.
    """
    if spec.images is None:
        return load_dataset(spec)
    spec.check()
    parts, pools = split_images(spec.images, spec.network, whole)
    for name, path in spec.pools.items():
        pools[name], _ = read_folder(path, spec.network, whole)

    def embed(images: NDArray[np.uint8]) -> Float32:
        if whole:
            return features(spec.network, images)
        module, head = on_pixels(spec.network)
        width = module.get_submodule(head).in_features
        return np.zeros((len(images), width), np.float32)

    base = None
    if spec.base is not None:
        rows, labels = read_folder(spec.base, spec.network, whole)
        base = embed(rows), labels
    y, y_test = parts["y"], parts["y_test"]
    return Dataset(
        embed(parts["X"]),
        y,
        embed(parts["X_test"]),
        y_test,
        np.unique(np.concatenate([y, y_test])),
        {name: embed(rows) for name, rows in pools.items()},
        images=(parts["X"], parts["X_test"]),
        network=spec.network,
        base=base,
    )


def write(spec: DatasetSpec, folder: Path) -> DatasetSpec:
    """Embed the images of a data set once, and return where files of all its parts are; others are as they are."""
    if spec.images is None:
        return spec
    loaded = load(spec)
    parts = {
        "train_x": loaded.X,
        "train_y": loaded.y,
        "test_x": loaded.X_test,
        "test_y": loaded.y_test,
        **dict(zip(IMAGES, loaded.images, strict=True)),
    }
    if loaded.base is not None:
        parts |= dict(zip(BASE, loaded.base, strict=True))
    folder.mkdir()
    files = {name: folder / f"{name}.npy" for name in parts}
    pools = {
        name: folder / f"pool-{place}.npy" for place, name in enumerate(loaded.pools)
    }
    for name, rows in parts.items():
        np.save(files[name], rows)
    for name, rows in loaded.pools.items():
        np.save(pools[name], rows)
    return replace(spec, images=None, base=None, files=files, pools=pools)


def read_folder(
    place: Path, network: str, whole: bool = True
) -> tuple[NDArray[np.uint8], Array]:
    """Return the images below a folder, as large as a network takes them, and their subfolders; or the digits.

    Unless they are read as a `whole`, images have no pixels.
    """
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
        labels.append(record.label or "")
        if not whole:
            images.append(_NO_PIXELS)
            continue
        try:
            image = decode(record.load(), "image")
        except BadRecord:
            raise InputError(
                f"{place}: {record.reference} is no image that can be read."
            ) from None
        pixels = np.rint(255 * prepare(image)).clip(0, 255)
        images.append(pixels.astype(np.uint8).transpose(1, 2, 0))
    if not images:
        raise InputError(f"{place} holds no images.")
    return np.stack(images), np.array(labels)


def split_images(
    place: Path, network: str, whole: bool = True
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
        X, y = read_folder(place / "train", network, whole)
        X_test, y_test = read_folder(place / "test", network, whole)
        return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}, {}
    images, labels = read_folder(place, network, whole)
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
