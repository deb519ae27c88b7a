"""The files of a table, which may be a folder of Parquet shards, or of npy shards with ``metadata_N.parquet``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from dppl._fingerprint import same_encoder
from dppl._metadata import LATTICE
from dppl.errors import InputError
from dppl.io._places import Place
from dppl.io._reading import Array, converting
from dppl.io.fragments import Fragment, read_outline

MANIFEST = "_manifest.json"  # of a table that dppl embed writes; readers of Parquet pass over such names
_NUMBERED = re.compile(r"(?P<stem>.*?)_?(?P<number>[0-9]+)\.[a-z]+", re.DOTALL)
_SUFFIXES = (".npy", ".npz", ".parquet")
_AT_ONCE = 16  # files that are asked for over a network

# A file with rows; and the Parquet file with the other columns of an npy file, if there is one.
Files: TypeAlias = tuple[Place, Place | None]
# What is known of a table: rows, labels and metadata.
Layout: TypeAlias = tuple[tuple[Fragment, ...], Array | None, dict[str, str]]


def table_files(place: Place) -> list[Files]:
    """Return the files of a table in the order of its rows."""
    info = place.info()
    if info.is_file:
        if place.suffix not in _SUFFIXES:
            raise InputError(f"path must end in {', '.join(_SUFFIXES)}; got {place.name!r}; convert the file")
        # An empty file is no table of any size: what was to write it has failed.
        if info.size == 0:
            raise InputError(f"{place} must hold a table; it is empty; write it again.")
        return [(place, None)]
    folder = _shards_folder(place)
    numbered = _npy_shards(folder)
    if not numbered:
        files = folder.files(".parquet")
        if not files:
            raise InputError(
                f"{folder} must hold .parquet files, or .npy shards; found none, and folders within are not looked "
                "through; name the right folder, or embed raw records first"
            )
        _check_finished(folder, files)
        return [(file, None) for file in files]
    # The metadata lie in the folder of the shards, or in the one next to it.
    files = [file for file in folder.files(".parquet") if _is_sidecar(file)]
    if not files and folder.name.endswith("_emb") and folder.sibling("metadata").exists():
        files = folder.sibling("metadata").files(".parquet")
    sidecars = _numbered(files, folder)
    if sidecars and sidecars.keys() != numbered.keys():
        number = min(sidecars.keys() ^ numbered.keys())
        alone = numbered.get(number) or sidecars[number]
        raise InputError(
            f"{folder}: every .npy shard must have a metadata_N.parquet of its number, and the other way round; "
            f"{alone.name} is alone; fetch the other"
        )
    return [(numbered[number], sidecars.get(number)) for number in sorted(numbered)]


def is_npy_pool(place: Place) -> bool:
    """Return whether a folder holds npy shards."""
    try:
        return bool(_npy_shards(_shards_folder(place)))
    except InputError:
        return False


def read_layout(place: Place, x: str, y: str | None) -> Layout:
    """Read the outline of a table: headers, labels and metadata, but no rows."""
    files = table_files(place)
    # Over a network several at a time, since each waits for answers.
    with ThreadPoolExecutor(1 if place.local is not None else _AT_ONCE) as threads:
        outlines = list(threads.map(lambda file: read_outline(file[0], file[1], x, y), files))
    fragments = [one.fragment for one in outlines]
    forms = [
        (one.column, one.width, one.dtype, labels is not None and labels.dtype.kind, metadata.get(LATTICE))
        for one, labels, metadata in outlines
    ]
    other = next((one for one, form in zip(fragments, forms, strict=True) if form != forms[0]), None)
    if other is not None:
        names = [one.place.name for one in (other, fragments[0]) if one.place is not None]
        raise InputError(
            f"{place}: all shards must have the same columns and types; {' differs from '.join(names)}; write both in "
            "one form"
        )
    if not fragments[0].width:
        # The first list has the width that the schema leaves open.
        width = next((width for width in (one.longest_list() for one in fragments) if width), 0)
        if not width:
            raise InputError(
                f"{place}: column {fragments[0].column!r} must hold lists of numbers; got none; fix the list size"
            )
        fragments = [one.with_width(width) for one in fragments]
    labels = [one.labels for one in outlines if one.labels is not None]
    metadata = _shared(place, [one.metadata for one in outlines])
    return tuple(fragments), np.concatenate(labels) if labels else None, metadata


def _shards_folder(folder: Place) -> Place:
    """Return the folder that holds the shards: ``img_emb``, where it lies next to ``metadata``."""
    # A folder with tables of its own is taken as it is.
    entries = folder.entries()
    inner = [entry for entry in entries if entry.name.endswith("_emb") and entry.is_folder()]
    if not inner or any(entry.suffix in (".npy", ".parquet") for entry in entries):
        return folder
    if len(inner) > 1:
        names = ", ".join(entry.name for entry in inner)
        raise InputError(f"{folder} must hold one folder of embeddings; there are {names}; name one of them")
    return inner[0]


def _npy_shards(folder: Place) -> dict[int, Place]:
    """Return the npy shards of a folder by number; none if it is a folder of another kind."""
    shards = folder.files(".npy")
    if not shards or not all(map(_is_sidecar, folder.files(".parquet"))):
        return {}
    numbered = _numbered(shards, folder)
    # A gap means a shard that was not fetched, whose rows would be missing unseen.
    if sorted(numbered) != list(range(min(numbered), max(numbered) + 1)):
        raise InputError(f"{folder}: numbers of .npy shards must follow one another; one is missing; fetch it again")
    return numbered


def _is_sidecar(file: Place) -> bool:
    match = _NUMBERED.fullmatch(file.name)
    return match is not None and match["stem"] == "metadata"


def _numbered(files: Sequence[Place], folder: Place) -> dict[int, Place]:
    """Return files by the number at the end of their names, which must be the same in front of it."""
    matches = [(_NUMBERED.fullmatch(file.name), file) for file in files]
    numbered = {int(match["number"]): file for match, file in matches if match is not None}
    if len(numbered) < len(files) or len({match["stem"] for match, _ in matches if match is not None}) > 1:
        raise InputError(
            f"{folder}: shards must be named NAME_0, NAME_1 and so on, each number once; others are there; move them "
            "elsewhere"
        )
    return numbered


def _check_finished(folder: Place, files: Sequence[Place]) -> None:
    """Raise if `dppl embed` has not finished a folder, or a shard is gone: it holds only some of the records."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        return
    with converting(f"{manifest} must be JSON", "run the same dppl embed again"), manifest.open() as file:
        content = json.loads(file.read())
        finished, names = content["finished"], {shard["file"] for shard in content.get("shards", ())}
    if finished is not True:
        raise InputError(f"{folder} is unfinished; run the same dppl embed again, which goes on where it stopped.")
    if not names <= {file.name for file in files}:
        raise InputError(f"{folder} must hold every shard of its manifest; one is missing; fetch or embed it again")


def _shared(place: Place, metadata: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the entries that all files share."""
    # Names of one encoder may differ in parts that change no embedding.
    first, *others = [entries.get("encoder") for entries in metadata]
    if any(one != first and (one is None or first is None or not same_encoder(one, first)) for one in others):
        raise InputError(f"{place}: all shards must name the same encoder; they differ; embed the records with one.")
    shared = dict(set.intersection(*(set(entries.items()) for entries in metadata)))
    shared |= {} if first is None else {"encoder": first}
    for entries in metadata:  # what one file does not promise, the table does not
        shared |= {key: text for key, text in entries.items() if key == "not_covered"}
    return dict(sorted(shared.items()))
