"""The embeddings that the authors of DPPL publish become the folders that the configuration `paper` reads."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dppl._utils.files import atomic_file
from dppl._utils.types import Array
from dppl.errors import InputError

ENCODERS = ("vit-b-16", "vit-l-16", "vit-h-14", "resnet-50")
SETS = ("cifar10", "cifar100", "food101", "stl10")
POOLS = ("imagenet", "cc3m")
_SPLITS = {"train": "train", "test": "test", "val": "test", "validation": "test"}
_FORMS = (".npy", ".npz", ".parquet", ".arrow")
# What an array is called where a file holds several of its kind.
_NAMES = {
    "x": ("rows", "x", "embedding", "embeddings", "features"),
    "y": ("labels", "y", "label", "targets"),
}
_BLOCK = 2**16  # rows in memory at once


def convert(published: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Write every array whose place its path names; return the files written, and those left out.

    A path names encoder, data set and split, as folders or in the file's name, in any
    spelling: `vit_h_14/cifar100/train.npz`. A float array with two axes is rows, an
    integer array with one is labels. Several files of one place follow each other in
    the order of their names.
    """
    paths = sorted(path for path in published.rglob("*") if path.suffix in _FORMS)
    places: dict[str, list[Path]] = {}
    left_out = list[str]()
    for path in paths:
        name = str(path.relative_to(published))
        place = _place(name)
        if place is None:
            left_out.append(name)
        else:
            places.setdefault(place, []).append(path)
    if not places:
        raise InputError(
            f"{published} must hold .npy, .npz, .parquet or .arrow files whose paths name an encoder "
            f"({', '.join(ENCODERS)}), a data set ({', '.join((*SETS, *POOLS))}) and train or test; found none."
        )
    written = [
        file
        for place, several in sorted(places.items())
        for file in _write(place, several, folder)
    ]
    return written, left_out


def _place(path: str) -> str | None:
    """Return the encoder's folder, the data set and the split that a path names, or None.

    >>> _place("ViT_H_14/CIFAR-100/train-00000.parquet"), _place("vit_b_16/imagenet/x.npy"), _place("notes/x.npy")
    ('vit-h-14/cifar100/train', 'vit-b-16/imagenet', None)
    """
    encoder = _named(path, ENCODERS)
    # A pool only where no set is named: "cifar10/imagenet_weights" is no pool.
    dataset = _named(path, SETS) or _named(path, POOLS)
    split = _SPLITS.get(str(_named(path, tuple(_SPLITS))))
    if encoder is None or dataset is None:
        return None
    # Of public rows, those of training are the pool.
    if dataset in POOLS:
        return None if split == "test" else f"{encoder}/{dataset}"
    return None if split is None else f"{encoder}/{dataset}/{split}"


def _named(path: str, names: tuple[str, ...]) -> str | None:
    """Return the only one of the names that stands in a path as a word, in any spelling."""
    found = [
        name
        for name in names
        if re.search(
            "(?<![a-z])"
            + "[-_ ]?".join(re.findall("[a-z]+|[0-9]+", name))
            + "(?![a-z0-9])",
            path.lower(),
        )
    ]
    return found[0] if len(found) == 1 else None


def _write(place: str, paths: list[Path], folder: Path) -> Iterator[str]:
    """Write rows and labels of a place block by block, and yield the names of the files."""
    is_pool = place.rpartition("/")[2] in POOLS
    kinds = {"x": "/x.npy"} if is_pool else {"x": "_x.npy", "y": "_y.npy"}
    n_rows = dict[str, int]()
    for kind, end in kinds.items():
        blocks = (block for path in paths for block in _blocks(path, kind))
        first = next(blocks, None)
        if first is None:
            continue
        name = place + end
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        n_rows[kind] = 0
        # How many rows there are shows at the end only, so the header is written twice.
        with atomic_file(folder / name, overwrite=False) as file:
            # NumPy leaves room in a header for any number of rows.
            _write_header(file, first, 0)
            for block in chain([first], blocks):
                if (block.shape[1:], block.dtype) != (first.shape[1:], first.dtype):
                    raise InputError(
                        f"{place}: all files must have {first.shape[1:]} numbers a row, as {first.dtype}; "
                        f"got {block.shape[1:]} as {block.dtype}."
                    )
                file.write(np.ascontiguousarray(block).tobytes())
                n_rows[kind] += len(block)
            file.seek(0)
            _write_header(file, first, n_rows[kind])
        yield name
    if len(set(n_rows.values())) > 1:
        raise InputError(
            f"{place} must have a label for each row; got {n_rows['x']} rows and {n_rows['y']} labels."
        )


def _write_header(file: IO[bytes], rows: Array, n_rows: int) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(rows.dtype),
        "fortran_order": False,
        "shape": (n_rows, *rows.shape[1:]),
    }
    np.lib.format.write_array_header_1_0(file, header)


def _blocks(path: Path, kind: str) -> Iterator[Array]:
    """Yield the rows, or the labels, of a file; nothing where it holds the other kind only."""
    axes, numbers = (2, np.floating) if kind == "x" else (1, np.integer)
    for arrays in _arrays(path):
        # Type and number of axes tell rows from labels, whatever they are called.
        found = {
            name: one
            for name, one in arrays.items()
            if one.ndim == axes and np.issubdtype(one.dtype, numbers)
        }
        if len(found) > 1:
            found = {name: one for name, one in found.items() if name in _NAMES[kind]}
            if len(found) != 1:
                raise InputError(
                    f"{path} must hold one array of {_NAMES[kind][0]}, or name it so; "
                    f"got {', '.join(arrays)}."
                )
        for one in found.values():
            for start in range(0, len(one), _BLOCK):
                yield one[start : start + _BLOCK]


def _arrays(path: Path) -> Iterator[Mapping[str, Array]]:
    """Yield the arrays of a file by name; of a table, those of one batch after another."""
    if path.suffix == ".npy":
        yield {path.stem: np.load(path, mmap_mode="r", allow_pickle=False)}
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            yield dict(archive)
    elif path.suffix == ".parquet":
        file = parquet.ParquetFile(path)
        yield from map(_columns, file.iter_batches(_BLOCK))
    else:
        with pa.memory_map(str(path)) as file:
            yield from map(_columns, pa.ipc.open_stream(file))


def _columns(batch: pa.RecordBatch) -> dict[str, Array]:
    columns = dict[str, Array]()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_integer(column.type):
            columns[name] = column.to_numpy()
        elif pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
            columns[name] = column.flatten().to_numpy().reshape(len(batch), -1)
    return columns
