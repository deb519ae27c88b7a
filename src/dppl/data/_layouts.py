"""What a folder holds: shards of Parquet, or shards of npy with what else is known in ``metadata_N.parquet``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from dppl._fingerprint import same_encoder
from dppl._metadata import LATTICE
from dppl.data._npy import ArrayShard, NpyShard, NpzShard, outline_of, read_npz
from dppl.data._parquet import (
    ParquetShard,
    column_labels,
    first_width,
    is_text,
    open_parquet,
    pick_labels,
    shard_of,
    text_metadata,
)
from dppl.data._places import Place
from dppl.data._reading import Array, converting
from dppl.errors import InputError

MANIFEST = "_manifest.json"  # of a table that dppl embed writes; readers of Parquet pass over such names
_ENCODER, _NOT_COVERED = "encoder", "not_covered"
_BESIDE, _EMBEDDINGS = "metadata", "_emb"
_NUMBERED = re.compile(r"(?P<stem>.*?)_?(?P<number>[0-9]+)\.[a-z]+", re.DOTALL)

_AT_ONCE = 16  # outlines that are asked for over a network

_Item = TypeVar("_Item")
_Read = TypeVar("_Read")
Shard: TypeAlias = ParquetShard | NpyShard | NpzShard | ArrayShard


@dataclass(frozen=True, slots=True)
class Layout:
    """The outline of a table."""

    shards: tuple[Shard, ...]  # in the order of rows, of one width and type
    labels: Array | None = None  # shape (n,)
    metadata: dict[str, str] = field(default_factory=dict)


def read_layout(place: Place, x: str, y: str | None) -> Layout:
    """Read the outline of a file or folder: headers, labels and metadata, no rows."""
    if place.is_folder():
        return _read_folder(place, x, y)
    readers = {".npy": _one_npy, ".npz": _one_npz, ".parquet": _one_parquet}
    if place.suffix not in readers:
        raise InputError(f"path must end in {', '.join(readers)}; got {place.name!r}; convert the file")
    place.check_not_empty()
    return readers[place.suffix](place, x, y)


def check_ids(layout: Layout, place: Place, name: str) -> None:
    """Refuse a table whose records cannot all be named by this column."""
    for shard in layout.shards:
        file = shard.beside if isinstance(shard, NpyShard) else shard.place
        if file is None or isinstance(shard, ArrayShard):
            raise InputError(f"{place} must have a column {name!r} of ids; nothing is beside its rows; write .parquet")
        with open_parquet(file) as parquet:
            schema = parquet.schema_arrow
        kind = schema.field(name).type if schema.names.count(name) == 1 else None
        kind = kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind
        if kind is None or not (is_text(kind) or pa.types.is_integer(kind)):
            there = ", ".join(map(repr, schema.names))
            found = f"there are {there}; name one" if kind is None else f"it holds {kind}; name another"
            raise InputError(f"{file} must have one column {name!r} of texts or integers; {found}")


def parquet_shards(folder: Place) -> list[Place]:
    """Return the Parquet files of a folder in the order of their names, in which numbers count as such."""
    files = folder.files(".parquet")
    if not files:
        raise InputError(
            f"{folder} must hold .parquet files, or .npy shards; found none, and folders within are not looked "
            "through; name the right folder, or embed raw records first"
        )
    return files


def files_beside(folder: Place) -> dict[int, Place]:
    """Return ``metadata_N.parquet`` by number: those in a folder of npy shards, or in the folder beside it."""
    own = [file for file in folder.files(".parquet") if _is_beside(file)]
    if not own and folder.name.endswith(_EMBEDDINGS) and (folder.parent / _BESIDE).exists():
        own = (folder.parent / _BESIDE).files(".parquet")
    return _by_number(own, folder) if own else {}


def npy_shards(folder: Place) -> dict[int, Place]:
    """Return the npy shards of a folder by number; none if it is a folder of another kind."""
    shards = folder.files(".npy")
    if not shards or not all(map(_is_beside, folder.files(".parquet"))):
        return {}
    found = _by_number(shards, folder)
    if sorted(found) != list(range(min(found), max(found) + 1)):
        raise InputError(f"{folder}: numbers of .npy shards must follow one another; one is missing; fetch it again")
    return found


def is_npy_pool(place: Place) -> bool:
    """Tell whether a folder holds npy shards."""
    try:
        return bool(npy_shards(shards_folder(place)))
    except InputError:
        return False


def shards_folder(folder: Place) -> Place:
    """Return the folder that holds the shards: of ``img_emb`` beside ``metadata``, the former."""
    entries = folder.entries()
    inner = [entry for entry in entries if entry.name.endswith(_EMBEDDINGS) and entry.is_folder()]
    if not inner or any(entry.suffix in (".npy", ".parquet") for entry in entries):
        return folder
    if len(inner) > 1:
        names = ", ".join(entry.name for entry in inner)
        raise InputError(f"{folder} must hold one folder of embeddings; there are {names}; name one of them")
    return inner[0]


def _read_folder(place: Place, x: str, y: str | None) -> Layout:
    folder = shards_folder(place)
    numbered = npy_shards(folder)
    if not numbered:
        files = parquet_shards(folder)
        _check_finished(folder)
        return _joined_parquet(folder, files, x, y)
    beside = files_beside(folder)
    if beside and beside.keys() != numbered.keys():
        number = min(beside.keys() ^ numbered.keys())
        there = numbered.get(number) or beside[number]
        raise InputError(
            f"{folder}: every .npy shard must have a metadata_N.parquet of its number, and the other way round; "
            f"{there.name} is alone; fetch the other"
        )
    return _joined(folder, _each(lambda n: _numbered_shard(numbered[n], beside.get(n), y), sorted(numbered), folder))


def _each(read: Callable[[_Item], _Read], items: Sequence[_Item], place: Place) -> list[_Read]:
    """Read all outlines in order; over a network several at a time, since each waits for answers."""
    if place.local is not None:
        return list(map(read, items))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(read, items))


def _numbered_shard(place: Place, beside: Place | None, y: str | None) -> Layout:
    """Read the outline of an npy shard, and labels and metadata of the file beside it."""
    shard = outline_of(place, beside)
    if beside is None:
        return Layout((shard,))
    with open_parquet(beside) as file:
        if file.metadata.num_rows != shard.rows:
            raise InputError(
                f"{place} and {beside} must have one row a record, in one order; the numbers of rows differ; fetch or "
                "write both again"
            )
        name = pick_labels(file.schema_arrow.names, y, beside)
        labels = None if name is None else column_labels(file, beside, name)
        return Layout((shard,), labels, text_metadata(file.schema_arrow))


def _by_number(files: Sequence[Place], folder: Place) -> dict[int, Place]:
    """Return files by the number at the end of their names, which are the same in front of it."""
    matches = [(_NUMBERED.fullmatch(file.name), file) for file in files]
    found = {int(match["number"]): file for match, file in matches if match is not None}
    if len(found) < len(files) or len({match["stem"] for match, _ in matches if match is not None}) > 1:
        raise InputError(
            f"{folder}: shards must be named NAME_0, NAME_1 and so on, each number once; others are there; move them "
            "elsewhere"
        )
    return found


def _is_beside(file: Place) -> bool:
    match = _NUMBERED.fullmatch(file.name)
    return match is not None and match["stem"] == _BESIDE


def _one_npy(place: Place, _x: str, _y: str | None) -> Layout:
    return Layout((outline_of(place),))


def _one_npz(place: Place, x: str, y: str | None) -> Layout:
    shard, labels = read_npz(place, x, y)
    return Layout((shard,), labels)


def _one_parquet(place: Place, x: str, y: str | None) -> Layout:
    return _joined_parquet(place, [place], x, y)


def _joined_parquet(place: Place, files: Sequence[Place], x: str, y: str | None) -> Layout:
    """Read the outlines of Parquet files of one schema; the first list tells a width that the schema leaves open."""
    read = _each(lambda file: shard_of(file, x, y), files, place)
    joined = _joined(place, [Layout((shard,), labels, metadata) for shard, labels, metadata in read])
    if read[0][0].width:
        return joined
    width = first_width([shard for shard, _, _ in read], place)
    shards = tuple(replace(shard, width=width) for shard, _, _ in read)
    for shard in shards:
        shard.check_width()
    return replace(joined, shards=shards)


def _joined(place: Place, parts: Sequence[Layout]) -> Layout:
    """Make one table of shards that agree."""
    outlines = [
        (
            getattr(shard, "column", None),
            shard.width,
            shard.dtype,
            None if part.labels is None else part.labels.dtype.kind,
            part.metadata.get(LATTICE),
        )
        for part in parts
        for shard in part.shards
    ]
    shards = tuple(shard for part in parts for shard in part.shards)
    other = next((shard for shard, outline in zip(shards, outlines, strict=True) if outline != outlines[0]), None)
    if other is not None:
        raise InputError(
            f"{place}: all shards must have the same columns and types; {_name(other)} differs from "
            f"{_name(shards[0])}; write both in one form"
        )
    labels = [part.labels for part in parts if part.labels is not None]
    return Layout(
        shards,
        np.concatenate(labels) if labels else None,
        _shared(place, [part.metadata for part in parts]),
    )


def _name(shard: Shard) -> str:
    return "an array" if isinstance(shard, ArrayShard) else shard.place.name


def _shared(place: Place, metadata: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the entries that all shards share."""
    encoders = [entries.get(_ENCODER) for entries in metadata]
    if any(not _same(encoder, encoders[0]) for encoder in encoders):
        raise InputError(f"{place}: all shards must name the same encoder; they differ; embed the records with one.")
    shared = dict(set.intersection(*(set(entries.items()) for entries in metadata)))
    shared |= {} if encoders[0] is None else {_ENCODER: encoders[0]}
    for entries in metadata:  # what one shard does not promise, the table does not
        shared |= {key: text for key, text in entries.items() if key == _NOT_COVERED}
    return dict(sorted(shared.items()))


def _same(first: str | None, second: str | None) -> bool:
    return first == second or (first is not None and second is not None and same_encoder(first, second))


def _check_finished(folder: Place) -> None:
    """Refuse a folder that `dppl embed` has not finished, or of which a shard is gone: it holds some records only."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        return
    with converting(f"{manifest} must be JSON", "run the same dppl embed again"), manifest.opened() as file:
        content = json.loads(file.read())
        finished, names = content["finished"], {shard["file"] for shard in content.get("shards", ())}
    if finished is not True:
        raise InputError(f"{folder} is unfinished; run the same dppl embed again, which goes on where it stopped.")
    if not names <= {file.name for file in folder.files(".parquet")}:
        raise InputError(f"{folder} must hold every shard of its manifest; one is missing; fetch or embed it again")
