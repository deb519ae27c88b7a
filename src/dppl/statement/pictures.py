"""The public images or texts that a model selected, looked up in their pool and made small for a page."""

import base64
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dppl._utils.optional import optional
from dppl.errors import InputError, ParameterError
from dppl.io import Source
from dppl.io.records.decoding import decode, quiet
from dppl.io.records.record import BadRecord

# Pixels of an image's longer side, letters of a text, and bytes of all items, so that a
# page stays small.
_TILE = 96
_LETTERS = 400
_MOST_BYTES = 100_000


def selected_items(
    description: Mapping[str, Any], source: Source
) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return for each class the images or texts of a public pool that a model selected, with their IDs."""
    if description.get("public_indices") is None:
        raise ParameterError(
            f"is for models that select public rows (PublicPrototypes); {description['estimator']} selects none.",
            parameter="public",
        )
    # Positions would refer to the table that was embedded, whose order the pool need
    # not have.
    ids: list[list[str]] | None = description.get("public_ids")
    if ids is None:
        raise ParameterError(
            "needs a model that was fitted on public rows with ids, which `dppl embed` and `dppl train` write.",
            parameter="public",
        )
    missing = {one for several in ids for one in several}
    items: dict[str, Any] = {}
    with quiet():
        for record in source:
            if record.id in items:
                raise InputError(
                    "the pool must have one record of each id that the model selected; some have more."
                )
            # Only what was selected is decoded; a pool may hold millions.
            if record.id in missing:
                with suppress(BadRecord):
                    items[record.id] = decode(record.load(), source.modality)
                    if (
                        source.modality == "image"
                    ):  # the photographs of all classes may not fit into memory
                        items[record.id].thumbnail((_TILE, _TILE))
    if len(items) < len(missing):
        raise InputError(
            "the pool must hold the records that the model selected; some are missing or cannot be read."
        )
    names = map(str, description["classes"])
    return [
        (name, [(one, items[one]) for one in several])
        for name, several in zip(names, ids, strict=True)
    ]


def gallery_of(
    selected: Sequence[tuple[str, Sequence[tuple[str, Any]]]], kind: str
) -> dict[str, Any]:
    """Return what was selected for each class, images or texts by ID, for as many classes as fit."""
    rows: list[dict[str, Any]] = []
    left = _MOST_BYTES
    for name, several in selected:
        items = [
            {"id": one, kind: _jpeg(item) if kind == "image" else _line(item)}
            for one, item in several
        ]
        # At least one class is shown, however large its items are.
        left -= sum(len(one[kind].encode("utf-8")) for one in items)
        if left < 0 and rows:
            break
        rows.append({"class": name, "items": items})
    return {"kind": kind, "classes": rows, "n_left_out": len(selected) - len(rows)}


def _line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _LETTERS:
        return line
    return line[: _LETTERS - 1] + "…"


def _jpeg(picture: Any) -> str:
    """Return a small image as a data URI, on white where it is transparent."""
    pillow = optional("PIL.Image", "pillow", "images")
    tile = picture.convert("RGBA")
    tile.thumbnail((_TILE, _TILE))
    paper = pillow.new("RGB", tile.size, (255, 255, 255))
    paper.paste(tile, mask=tile.getchannel("A"))
    buffer = io.BytesIO()
    paper.save(buffer, "JPEG", quality=80)
    return (
        f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
    )
