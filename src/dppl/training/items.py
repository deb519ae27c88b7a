"""Raw images and texts that are in memory, as a source of records; and their embeddings, one row an item."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from dppl._optional import optional
from dppl.encoders import Encoder
from dppl.errors import InputError
from dppl.io import EmbeddingTable, Source
from dppl.io.decoding import upright_rgb
from dppl.io.images import read_image
from dppl.io.pipeline import embed_windows, table_metadata
from dppl.io.records import BadRecord, Record
from dppl.io.writing import Rows

_OPENING = Lock()  # of images that the caller opened: two threads must not read on in one file
_KINDS = {
    "text": "str",
    "image": "Pillow images, uint8 arrays, paths or bytes of files",
}


class Items(Source):
    """Items in memory, whose ids are their places.

    Texts are str or bytes; images are Pillow images, uint8 arrays of shape (height, width) or (height, width, 3),
    paths, or the bytes of files. Messages call the argument `name`.
    """

    label_type = None

    def __init__(self, items: Any, modality: str, name: str) -> None:
        check_items(modality, items, name)
        self.items = items
        self.modality = modality
        self.parameters = {"kind": "items"}

    def __iter__(self) -> Iterator[Record]:
        for place, item in enumerate(self.items):
            yield Record(str(place), f"item {place}", None, partial(_load, item, self.modality), None)


def embed_items(encoder: Encoder, items: Any, name: str, *, rows: Rows = "float32") -> EmbeddingTable:
    """Return the embeddings of images or texts, in a table that names its encoder; NaN where an item cannot be used."""
    source = Items(items, encoder.modality, name)
    table = np.full((len(source.items), encoder.dimension), np.nan, rows)
    for window in embed_windows(source, encoder, rows=rows):
        if window.rows:
            table[[int(place) for place in window.ids if place is not None]] = window.rows
    return EmbeddingTable.of(table, metadata=table_metadata(encoder))


def check_items(modality: str, items: Any, name: str) -> None:
    """Refuse what holds no items at all: an array of another form, or a list of nothing but other things.

    Of the items no more is looked at than their types, and one that may be an item is enough: a single odd one is
    private, and counts as an item that cannot be used.
    """
    shape, dtype = tuple(getattr(items, "shape", ())), getattr(items, "dtype", np.dtype(object))
    if isinstance(items, str | bytes | Path) or not hasattr(items, "__len__") or len(shape) == 2:
        raise InputError(
            f"{name} must be a sequence of {modality}s, one a record, such as a list or one column of a table; "
            "for arrays of embeddings use an estimator such as SoftmaxPrototypes."
        )
    if len(shape) > 2:
        # An array of images. Floats may be on any scale, and channels first would be other images.
        fits = modality == "image" and str(dtype).endswith("uint8") and (len(shape) == 3 or shape[3:] == (3,))
    else:
        # A vector of numbers is neither texts nor images; columns of data frames have types of their own.
        fits = getattr(dtype, "kind", "O") not in tuple("biufc")
    if not fits:
        form = "str" if modality == "text" else "uint8, shape (n, height, width) or (n, height, width, 3)"
        raise InputError(f"{name} must hold {modality}s: {form}; got another kind of array ({dtype}).")
    if getattr(dtype, "kind", "") == "O" and len(items) and not any(_may_be_one(item, modality) for item in items):
        kinds = ", ".join(sorted({type(item).__name__ for item in items})[:3])
        raise InputError(f"{name} must hold {modality}s: {_KINDS[modality]}; got only items of other types ({kinds}).")


def _may_be_one(item: Any, modality: str) -> bool:
    if item is None or (isinstance(item, float) and item != item):  # how tables mark a missing one
        return True
    is_image = modality == "image" and (isinstance(item, Path) or hasattr(item, "shape") or hasattr(item, "convert"))
    return isinstance(item, str | bytes) or is_image


def _load(item: Any, modality: str) -> Any:
    """Return a text, the bytes of an image, or an opened image upright and in RGB."""
    if modality == "text":
        if not isinstance(item, str | bytes):
            raise BadRecord("it is no text")
        return item
    if isinstance(item, str | Path):
        return read_image(Path(item))
    if isinstance(item, bytes):
        return item
    pillow = optional("PIL.Image", "pillow", "images")
    try:
        with _OPENING:
            if isinstance(item, pillow.Image):
                return upright_rgb(item.copy())  # turning an image upright changes it
            pixels = np.asarray(item)
            if pixels.dtype != np.uint8 or not pixels.size:  # other numbers may be on any scale
                raise BadRecord("it has no uint8 pixels")
            return upright_rgb(pillow.fromarray(pixels))
    except (MemoryError, BadRecord):
        raise
    except Exception:  # Pillow raises whatever an odd array or image leads it to
        raise BadRecord("it is no image") from None
