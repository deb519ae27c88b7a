"""Raw images and texts that are in memory, as a source of records; and their embeddings, one row an item."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from dppl._utils.optional import optional
from dppl.encoders import Encoder
from dppl.encoders.columns import ColumnsEncoder
from dppl.errors import InputError
from dppl.io import EmbeddingTable, Source
from dppl.io.records.decoding import upright_rgb
from dppl.io.records.images import read_image
from dppl.io.records.labels import listed
from dppl.io.records.record import BadRecord, Record, as_cells, as_row
from dppl.io.tables.writing import Rows
from dppl.reasons import SkipReason
from dppl.training.embedding import embed_windows, table_metadata

_OPENING = (
    Lock()
)  # of images that the caller opened: two threads must not read on in one file
_ROWS_AT_ONCE = 4096  # of a frame
_PLAIN = {str, int, float, bool}  # of which each cell is as a list of mappings has it
_KINDS = {
    "text": "str",
    "row": "a frame, or mappings from column to cell",
    "image": "Pillow images, paths, bytes of files, or uint8 of shape (height, width[, 3])",
}


class Items(Source):
    """Items in memory, whose ids are their places, and which messages call `name`."""

    label_type = None

    def __init__(self, items: Any, encoder: Encoder, name: str) -> None:
        check_items(encoder, items, name)
        self.modality = encoder.modality
        self.items = items
        self._names = encoder.names if isinstance(encoder, ColumnsEncoder) else ()
        self.parameters = {"kind": "items"}

    def __iter__(self) -> Iterator[Record]:
        items = self.items
        if self._names and _columns_of(items) is not None:
            items = _rows_of(items, self._names, range(len(items)))
        elif self.modality == "row":
            items = map(_row, items)
        for place, item in enumerate(items):
            yield Record(
                str(place),
                f"item {place}",
                None,
                partial(_load, item, self.modality),
                None,
            )


def embed_items(
    encoder: Encoder, items: Any, name: str, *, rows: Rows = "float32"
) -> EmbeddingTable:
    """Return the embeddings of images or texts, in a table that names its encoder; NaN where an item cannot be used."""
    source = Items(items, encoder, name)
    table = np.full((len(source.items), encoder.dimension), np.nan, rows)
    for window in embed_windows(source, encoder, rows=rows):
        if window.rows:
            table[[int(place) for place in window.ids if place is not None]] = (
                window.rows
            )
    return EmbeddingTable.of(table, metadata=table_metadata(encoder))


def _columns_of(items: Any) -> list[str] | None:
    """Return the names of the columns of a frame of pandas, polars or Arrow."""
    if not hasattr(items, "__len__"):  # a plan of a frame
        return None
    # Of an Arrow table `columns` are the columns themselves.
    names = getattr(items, "column_names", getattr(items, "columns", None))
    return None if names is None else list(names)


def _rows_of(
    frame: Any, names: Sequence[str], places: range, n: int = _ROWS_AT_ONCE
) -> Iterator[Any]:
    """Yield rows of a frame as dictionaries, made `n` at a time: all together would outgrow the frame."""
    for start in range(0, len(places), n):
        part = places[start : start + n]
        rows: Iterable[Any]
        try:
            rows = _dictionaries(frame, names, part)
        except Exception:
            # A cell that Python has no value for, such as a far year, is of its record
            # alone.
            rows = [None] if n == 1 else _rows_of(frame, names, part, 1)
        yield from rows


def _row(item: Any) -> dict[str, str] | None:
    """Return the texts of a row's cells; None for what is none, or has a cell that raises, perhaps quoting itself."""
    with suppress(Exception):
        if isinstance(item, Mapping):
            return as_row(item)
    return None


def _dictionaries(
    frame: Any, names: Sequence[str], part: range
) -> list[dict[str, str]]:
    """Return some rows of a frame of pandas, polars or Arrow."""
    if hasattr(frame, "iloc"):
        some = frame.iloc[part.start : part.stop]
        columns = [_cells(some[name]) for name in names]
    else:
        some = frame.slice(part.start, len(part)).select(list(names))
        if hasattr(some, "to_pydict"):
            lists = some.to_pydict()
        else:
            lists = some.to_dict(as_series=False)
        columns = list(lists.values())
    texts = map(as_cells, columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*texts, strict=True)]


def _cells(column: Any) -> list[Any]:
    """Return the cells of a column of pandas."""
    cells: list[Any] = column.tolist()
    if not _PLAIN.issuperset(map(type, cells)):
        # As objects, since pandas makes floats of integers where one is missing.
        objects = column.astype(object)
        cells = objects.where(objects.notna(), None).to_frame(0).to_dict("list")[0]
    return cells


def check_items(encoder: Encoder, items: Any, name: str) -> None:
    """Refuse what holds no items at all; a single odd one is private, and only counts as one that cannot be used."""
    modality = encoder.modality
    shape = tuple(getattr(items, "shape", ()))
    dtype = getattr(items, "dtype", np.dtype(object))
    columns = _columns_of(items)
    if isinstance(encoder, ColumnsEncoder) and columns is not None:
        for column in encoder.names:
            if columns.count(column) != 1:
                raise InputError(
                    f"{name} must have one column {column!r}, as the schema says; it has {listed(columns)}."
                )
        return
    kind = getattr(dtype, "kind", "O")  # columns of data frames have their own types
    if modality == "image" and len(shape) > 2:
        # Floats may be on any scale, and channels first would be other images.
        fits = str(dtype).endswith("uint8") and (len(shape) == 3 or shape[3:] == (3,))
    else:
        single = isinstance(items, str | bytes | Path) or not hasattr(items, "__len__")
        fits = not single and len(shape) < 2 and kind not in tuple("biufc")
    if fits and kind == "O" and len(items):
        fits = any(_may_be_one(item, modality) for item in items)
    if not fits:
        raise InputError(
            f"{name} must be a sequence of {modality}s, one a record: {_KINDS[modality]}; for arrays of embeddings use "
            "an estimator such as SoftmaxPrototypes."
        )


def _may_be_one(item: Any, modality: str) -> bool:
    if item is None or (
        isinstance(item, float) and item != item
    ):  # how tables mark a missing one
        return True
    is_image = modality == "image" and (
        isinstance(item, Path) or hasattr(item, "shape") or hasattr(item, "convert")
    )
    is_row = modality == "row" and isinstance(item, Mapping)
    return is_row or (modality != "row" and (isinstance(item, str | bytes) or is_image))


def _load(item: Any, modality: str) -> Any:
    """Return a text, the cells of a row, the bytes of an image, or an opened image upright and in RGB."""
    if modality != "image":
        if not isinstance(item, dict if modality == "row" else str | bytes):
            raise BadRecord(SkipReason.NO_TEXT)
        return item
    if isinstance(item, str | Path):
        return read_image(Path(item))
    if isinstance(item, bytes):
        return item
    pillow = optional("PIL.Image", "pillow", "images")
    try:
        with _OPENING:
            if isinstance(item, pillow.Image):
                # Turning an image upright changes it.
                return upright_rgb(item.copy(), item)
            pixels = np.asarray(item)
            if (
                pixels.dtype != np.uint8 or not pixels.size
            ):  # other numbers may be on any scale
                raise BadRecord(SkipReason.NO_UINT8_PIXELS)
            return upright_rgb(pillow.fromarray(pixels))
    except (MemoryError, BadRecord):
        raise
    except Exception:  # Pillow raises whatever an odd array or image leads it to
        raise BadRecord(SkipReason.NO_IMAGE) from None
