"""The public images or texts that a model selected, small enough for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dppl._optional import optional
from dppl.cards.contact_sheet import TILE
from dppl.errors import InputError
from dppl.io import Source
from dppl.io.decoding import decode, quiet
from dppl.io.records import BadRecord

__all__ = ["gallery_of", "selected_items"]

# Bytes of all items together, so that the page stays under 500 kB.
_MOST_BYTES = 100_000
_LETTERS = 400


def selected_items(source: Source, wanted: set[str], path: Path) -> dict[str, Any]:
    """Return the images or texts of a public pool with these ids, each of which it must hold once."""
    found: dict[str, Any] = {}
    with quiet():
        for record in source:
            if record.id in found:
                raise InputError(f"{path} must have one record of each id that the model selected; some have more.")
            if record.id in wanted:
                with suppress(BadRecord):
                    found[record.id] = decode(record.load(), source.modality)
                    if source.modality == "image":
                        found[record.id].thumbnail((TILE, TILE))  # whole photographs of all classes may be too many
    if len(found) < len(wanted):
        raise InputError(
            f"{path} must hold the public records that the model selected; some are missing or cannot be read."
        )
    return found


def gallery_of(
    classes: Sequence[Any], ids: Sequence[Sequence[str]], items: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    """Return what was selected for each class, images or texts by id, for as many classes as fit."""
    rows: list[dict[str, Any]] = []
    left = _MOST_BYTES
    for name, several in zip(classes, ids, strict=True):
        shown = [_jpeg(items[one]) if kind == "image" else _clipped(items[one]) for one in several]
        left -= sum(len(one.encode("utf-8")) for one in shown)
        if left < 0 and rows:
            break
        rows.append(
            {"class": str(name), "items": [{"id": one, kind: what} for one, what in zip(several, shown, strict=True)]}
        )
    return {"kind": kind, "classes": rows, "n_left_out": len(classes) - len(rows)}


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LETTERS else line[: _LETTERS - 1] + "…"


def _jpeg(picture: Any) -> str:
    """Return a small image as a data URI, on white where it is transparent."""
    pillow = optional("PIL.Image", "pillow", "images")
    tile = picture.convert("RGBA")
    tile.thumbnail((TILE, TILE))
    paper = pillow.new("RGB", tile.size, (255, 255, 255))
    paper.paste(tile, mask=tile.getchannel("A"))
    buffer = io.BytesIO()
    paper.save(buffer, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
