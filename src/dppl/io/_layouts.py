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
from dppl.io.fragments import Fragment, Outline, ParquetFragment, read_outline

MANIFEST = "_manifest.json"  # of a table that dppl embed writes; readers of Parquet pass over such names
_ENCODER, _NOT_COVERED = "encoder", "not_covered"
_METADATA, _EMBEDDINGS = "metadata", "_emb"
_NUMBERED = re.compile(r"(?P<stem>.*?)_?(?P<number>[0-9]+)\.[a-z]+", re.DOTALL)
_SUFFIXES = (".npy", ".npz", ".parquet")
_AT_ONCE = 16  # files that are asked for over a network

# A file with rows; and the Parquet file with the other columns of an npy file, if there is one.
Files: TypeAlias = tuple[Place, Place | None]
# What is known of a table: rows, labels and metadata.
Layout: TypeAlias = tuple[tuple[Fragment, ...], Array | None, dict[str, str]]


def table_files(place: Place) -> list[Files]:
    """Return the files of a table in the order of its rows."""
    if not place.is_folder():
        if place.suffix not in _SUFFIXES:
            raise InputError(f"path must end in {', '.join(_SUFFIXES)}; got {place.name!r}; convert the file")
        # An empty file is no table of any size: what was to write it has failed.
        if place.size() == 0:
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
    sidecars = _sidecars(folder)
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

    def read(file: Files) -> Outline:
        return read_outline(file[0], file[1], x, y)

    # Over a network several at a time, since each waits for answers.
    with ThreadPoolExecutor(1 if place.local is not None else _AT_ONCE) as threads:
        outlines = list(threads.map(read, files))
    fragments, labels, metadata = _joined(place, outlines)
    if fragments[0].width:
        return fragments, labels, metadata
    # The first list has the width that the schema leaves open.
    lists = [one for one in fragments if isinstance(one, ParquetFragment)]
    width = next((width for width in (one.longest_list() for one in lists) if width), 0)
    if not width:
        raise InputError(f"{place}: column {lists[0].column!r} must hold lists of numbers; got none; fix the list size")
    return tuple(one.with_width(width) for one in lists), labels, metadata


def _shards_folder(folder: Place) -> Place:
    """Return the folder that holds the shards: ``img_emb``, where it lies next to ``metadata``."""
    # A folder with tables of its own is taken as it is.
    entries = folder.entries()
    inner = [entry for entry in entries if entry.name.endswith(_EMBEDDINGS) and entry.is_folder()]
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
    numbered = _by_number(shards, folder)
    # A gap means a shard that was not fetched, whose rows would be missing unseen.
    if sorted(numbered) != list(range(min(numbered), max(numbered) + 1)):
        raise InputError(f"{folder}: numbers of .npy shards must follow one another; one is missing; fetch it again")
    return numbered


def _sidecars(folder: Place) -> dict[int, Place]:
    """Return ``metadata_N.parquet`` by number, from a folder of npy shards or from the folder next to it."""
    files = [file for file in folder.files(".parquet") if _is_sidecar(file)]
    # clip-retrieval puts them into a folder of their own.
    if not files and folder.name.endswith(_EMBEDDINGS) and folder.sibling(_METADATA).exists():
        files = folder.sibling(_METADATA).files(".parquet")
    return _by_number(files, folder) if files else {}


def _is_sidecar(file: Place) -> bool:
    match = _NUMBERED.fullmatch(file.name)
    return match is not None and match["stem"] == _METADATA


def _by_number(files: Sequence[Place], folder: Place) -> dict[int, Place]:
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


def _joined(place: Place, outlines: Sequence[Outline]) -> Layout:
    """Make one table of files, which must agree."""
    forms = [
        (
            getattr(one.fragment, "column", None),
            one.fragment.width,
            one.fragment.dtype,
            None if one.labels is None else one.labels.dtype.kind,
            one.metadata.get(LATTICE),
        )
        for one in outlines
    ]
    fragments = tuple(one.fragment for one in outlines)
    other = next((one for one, form in zip(fragments, forms, strict=True) if form != forms[0]), None)
    if other is not None:
        raise InputError(
            f"{place}: all shards must have the same columns and types; {_name(other)} differs from "
            f"{_name(fragments[0])}; write both in one form"
        )
    labels = [one.labels for one in outlines if one.labels is not None]
    return fragments, np.concatenate(labels) if labels else None, _shared(place, [one.metadata for one in outlines])


def _name(fragment: Fragment) -> str:
    return "an array" if fragment._place is None else fragment._place.name


def _shared(place: Place, metadata: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the entries that all files share."""
    # Names of one encoder may differ in parts that change no embedding.
    first, *others = [entries.get(_ENCODER) for entries in metadata]
    if any(one != first and (one is None or first is None or not same_encoder(one, first)) for one in others):
        raise InputError(f"{place}: all shards must name the same encoder; they differ; embed the records with one.")
    shared = dict(set.intersection(*(set(entries.items()) for entries in metadata)))
    shared |= {} if first is None else {_ENCODER: first}
    for entries in metadata:  # what one file does not promise, the table does not
        shared |= {key: text for key, text in entries.items() if key == _NOT_COVERED}
    return dict(sorted(shared.items()))
