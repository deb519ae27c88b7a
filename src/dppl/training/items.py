"""Embed raw images and texts that are in memory, one row an item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dppl._optional import optional
from dppl.data import EmbeddingTable
from dppl.embedding.decoding import decode, quiet, upright_rgb
from dppl.embedding.images import read_image
from dppl.embedding.pipeline import table_metadata
from dppl.embedding.records import Unusable
from dppl.encoders import Encoder
from dppl.errors import DpplError, InputError


def embed_items(encoder: Encoder, items: Any, name: str) -> EmbeddingTable:
    """Return the embeddings of images or texts as a table that names its encoder.

    Parameters
    ----------
    encoder : Encoder
    items : sequence of n items
        Texts: str or bytes. Images: Pillow images, uint8 arrays of shape (height, width) or (height, width, 3), paths,
        or the bytes of files.
    name : str
        Name of the argument, for messages.

    Returns
    -------
    EmbeddingTable
        n rows of ``encoder.dimension`` float32. A row of NaN stands for an item that cannot be used, so that no item
        stops the others.

    Raises
    ------
    InputError
        If `items` is no sequence of items.
    """
    check_items(encoder, items, name)
    rows = np.full((len(items), encoder.dimension), np.nan, np.float32)
    with quiet():
        places = iter(_prepared(encoder, items))
        while window := list(islice(places, encoder.window)):
            rows[[place for place, _ in window]] = encoder.encode_prepared([prepared for _, prepared in window])
    return EmbeddingTable.of(rows, metadata=table_metadata(encoder))


def check_items(encoder: Encoder, items: Any, name: str) -> None:
    """Refuse what holds no items at all: an array of another form, or a list of nothing but other things.

    Of the items no more is looked at than their types, and one that may be an item is enough: a single odd one is
    private, and counts as an item that cannot be used.

    Raises
    ------
    InputError
        If it does.
    """
    shape, dtype = tuple(getattr(items, "shape", ())), str(getattr(items, "dtype", "object"))
    if isinstance(items, str | bytes | Path) or not hasattr(items, "__len__") or len(shape) == 2:
        raise InputError(
            f"{name} must be a sequence of {encoder.modality}s, one a record, such as a list or one column of a table; "
            "for arrays of embeddings use an estimator such as SoftmaxPrototypes."
        )
    if len(shape) > 2:
        # An array of images. Floats may be on any scale, and channels first would be other images.
        fits = encoder.modality == "image" and dtype.endswith("uint8") and (len(shape) == 3 or shape[3:] == (3,))
    else:
        fits = getattr(getattr(items, "dtype", None), "kind", "O") not in tuple("biufc")
    if not fits:
        wanted = "str" if encoder.modality == "text" else "uint8, shape (n, height, width) or (n, height, width, 3)"
        raise InputError(f"{name} must hold {encoder.modality}s: {wanted}; got another kind of array ({dtype}).")
    if dtype == "object" and len(items) and not any(_may_be_one(item, encoder.modality) for item in items):
        wanted = "str" if encoder.modality == "text" else "Pillow images, uint8 arrays, paths or bytes of files"
        kinds = ", ".join(sorted({type(item).__name__ for item in items})[:3])
        raise InputError(f"{name} must hold {encoder.modality}s: {wanted}; got only items of other types ({kinds}).")


def _may_be_one(item: Any, modality: str) -> bool:
    if item is None or (isinstance(item, float) and item != item):  # how tables mark a missing one
        return True
    if modality == "text":
        return isinstance(item, str | bytes)
    return isinstance(item, str | bytes | Path) or hasattr(item, "shape") or hasattr(item, "convert")


def unusable_items(encoder: Encoder, items: Sequence[Any]) -> list[tuple[int, str]]:
    """Return position and reason of each item that cannot be used: private, like the items."""
    found = []
    with quiet():
        for place, item in enumerate(items):
            try:
                _prepare(encoder, item)
            except Unusable as reason:
                found.append((place, str(reason)))
    return found


def _prepared(encoder: Encoder, items: Any) -> Iterator[tuple[int, Any]]:
    for place, item in enumerate(items):
        try:
            yield place, _prepare(encoder, item)
        except Unusable:
            continue


def _prepare(encoder: Encoder, item: Any) -> Any:
    content = _text(item) if encoder.modality == "text" else _image(item)
    try:
        return encoder.prepare(content)
    except (DpplError, MemoryError):
        raise
    except Exception:  # whatever an encoder says of an odd item may quote it
        raise Unusable("the encoder cannot prepare it") from None


def _text(item: Any) -> Any:
    if not isinstance(item, str | bytes):
        raise Unusable("it is no text")
    return decode(item, "text")


def _image(item: Any) -> Any:
    if isinstance(item, str | Path):
        item = read_image(Path(item))
    if isinstance(item, bytes):
        return decode(item, "image")
    pillow = optional("PIL.Image", "pillow", "images")
    try:
        # A copy, because turning an image upright changes it.
        return upright_rgb(item.copy() if isinstance(item, pillow.Image) else pillow.fromarray(_pixels(item)))
    except (MemoryError, Unusable):
        raise
    except Exception:  # Pillow raises whatever an odd array or image leads it to
        raise Unusable("it is no image") from None


def _pixels(item: Any) -> Any:
    pixels = np.asarray(item)
    if pixels.dtype != np.uint8 or not pixels.size:  # other numbers may be on any scale
        raise Unusable("it has no uint8 pixels")
    return pixels
