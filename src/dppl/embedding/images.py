"""Images in a folder: one class a subfolder, no classes, or a CSV file that names files and labels."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import pyarrow as pa

from dppl.embedding.decoding import MOST_BYTES
from dppl.embedding.lines import CsvRows, Form
from dppl.embedding.records import Columns, Payload, Record, Source, Unusable, Version, left_out, record_of, version_of
from dppl.errors import InputError

__all__ = ["SUFFIXES", "open_images", "read_image"]

SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".jp2", ".ppm"}
_LOOP = "it is a loop of symbolic links"
_REASONS = {errno.ELOOP: _LOOP, errno.ENOENT: "there is no such file, or its link leads nowhere"}


def open_images(path: Path, columns: Columns, labels: Path | None, form: Form) -> Source:
    """Return the images below a folder, or those of them that a CSV file lists, or a single image."""
    if path.suffix.lower() in SUFFIXES and path.is_file() and labels is None:
        return OneImage(path)
    if not path.is_dir():
        raise InputError(f"must be another for {path}, which is a file and not a folder of images.", parameter="kind")
    return ImageFolder(path) if labels is None else ListedImages(path, labels, columns, form)


@dataclass
class ImageFolder(Source):
    """Every file below a folder, in the order of the names; the first folder on the way to a file is its label.

    With subfolders, a file beside them has no class and is left out. Names that start with a dot are skipped.
    """

    path: Path

    modality = "image"

    def __post_init__(self) -> None:
        classes = any(map(_is_folder, _entries(self.path)))
        self.label_type = pa.string() if classes else None
        self.parameters: dict[str, Any] = {"kind": "images"}

    def __iter__(self) -> Iterator[Record]:
        return self._below(_entries(self.path), (), {_identity(os.stat(self.path))})

    def _below(
        self, entries: list[os.DirEntry[str]], parts: tuple[str, ...], above: set[tuple[int, int]]
    ) -> Iterator[Record]:
        for entry in entries:
            names = (*parts, entry.name)
            record = self._record(names, Path(entry.path))
            if not _is_folder(entry):
                yield record
                continue
            try:
                here, inside = _identity(entry.stat()), _entries(entry)
            except OSError as error:
                yield left_out(record, _reason(error))
                continue
            if here in above:
                yield left_out(record, _LOOP)
            else:
                yield from self._below(inside, names, above | {here})

    def _record(self, parts: tuple[str, ...], file: Path) -> Record:
        reference = os.fsencode("/".join(parts)).decode("utf-8", "backslashreplace")
        record = record_of(reference, reference, parts[0] if self.label_type else None, *_image(file))
        return left_out(record, "it lies in no class folder") if self.label_type and len(parts) == 1 else record


@dataclass
class OneImage(Source):
    """A file by itself, without a label."""

    path: Path

    modality = "image"

    def __post_init__(self) -> None:
        self.label_type = None
        self.parameters: dict[str, Any] = {"kind": "images"}

    def __iter__(self) -> Iterator[Record]:
        name = os.fsencode(self.path.name).decode("utf-8", "backslashreplace")
        yield record_of(name, name, None, *_image(self.path))


@dataclass
class ListedImages(Source):
    """The images that the rows of a CSV file name; the path of a file is its id unless there is a column of ids."""

    path: Path
    table: Path
    columns: Columns
    form: Form

    modality = "image"

    def __post_init__(self) -> None:
        self._rows = CsvRows(self.table, self.columns, self.form, are_paths=True)
        self.label_type, self.person_type = self._rows.label_type, self._rows.person_type
        self.parameters: dict[str, Any] = {"kind": "images", **self._rows.columns.parameters, **self.form.parameters}
        self.found = self._rows.found

    def __iter__(self) -> Iterator[Record]:
        return self._rows.records(self._content)

    def _content(self, name: str) -> tuple[Callable[[], Payload], Version]:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            return _outside, None
        return _image(self.path / inside)


def _outside() -> NoReturn:
    raise Unusable("its path leads out of the folder")


def _image(file: Path) -> tuple[Callable[[], Payload], Version]:
    """Return the way to read an image, and its version; a file that is gone has none, and reading it says why."""
    try:
        return partial(read_image, file), version_of(file)
    except (OSError, ValueError):
        return partial(read_image, file), None


def _entries(folder: os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: os.fsencode(entry.name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself
        return False


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def read_image(path: Path) -> bytes:
    """Return the content of a file, of a huge one no more than shows that it is."""
    try:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):  # a pipe would wait for ever
            raise Unusable("it is not a regular file")
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unusable(_reason(error)) from None
    except ValueError:  # a path with a NUL character
        raise Unusable("its path is none") from None


def _reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0, "it cannot be opened")
