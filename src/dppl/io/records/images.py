"""Images in a folder: one class a subfolder, no classes, or a CSV file that names files and labels."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import pyarrow as pa

from dppl.io.records.decoding import MOST_BYTES
from dppl.io.records.lines import CsvTexts, Form
from dppl.io.records.record import (
    PATHS,
    BadRecord,
    Columns,
    Content,
    Record,
    Source,
    file_version,
    make_record,
    rejected,
)
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason

SUFFIXES = {
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".bmp",
    ".tif",
    ".tiff",
    ".webp",
    ".avif",
    ".jp2",
    ".ppm",
}
_REASONS = {
    errno.ELOOP: SkipReason.LOOP_OF_LINKS,
    errno.ENOENT: SkipReason.NO_FILE,
}


class ImageFolder(Source):
    """Every visible file below a folder in the order of names; the first folder on the way is its label, if any."""

    modality = "image"

    def __init__(self, path: Path) -> None:
        self._path = path
        classes = path.is_dir() and any(map(_is_folder, _entries(path)))
        self.label_type = pa.string() if classes else None
        self.parameters = {"kind": "images"}

    def __iter__(self) -> Iterator[Record]:
        if self._path.is_dir():
            yield from self._below(
                _entries(self._path), (), {_identity(os.stat(self._path))}
            )
        else:
            name = _shown(self._path.name)
            yield make_record(name, name, None, *_image(self._path))

    # Folders are read as they are reached, so that memory does not grow with the number
    # of files.
    def _below(
        self,
        entries: list[os.DirEntry[str]],
        parts: tuple[str, ...],
        above: set[tuple[int, int]],
    ) -> Iterator[Record]:
        for entry in entries:
            names = (*parts, entry.name)
            reference = _shown("/".join(names))
            record = make_record(
                reference,
                reference,
                names[0] if self.label_type else None,
                *_image(Path(entry.path)),
            )
            if self.label_type and len(names) == 1:
                record = rejected(record, Term(SkipReason.NO_CLASS_FOLDER))
            if not _is_folder(entry):
                yield record
                continue
            try:
                # Two names of one folder are fine, but one within itself would never
                # end.
                here = _identity(entry.stat())
                inside = _entries(entry)
            except OSError as error:
                yield rejected(record, Term(_reason(error)))
                continue
            if here in above:
                yield rejected(record, Term(SkipReason.LOOP_OF_LINKS))
            else:
                yield from self._below(inside, names, above | {here})


class ListedImages(CsvTexts):
    """The images that the rows of a CSV file name; the path of a file is its id unless there is a column of ids."""

    modality = "image"
    _kind = "images"
    _usual = PATHS

    def __init__(self, folder: Path, table: Path, columns: Columns, form: Form) -> None:
        self._folder = folder
        super().__init__(table, columns, form)

    def _record(self, number: int, fields: dict[str, str]) -> Record:
        name = fields["x"]
        # A row must not reach files that its owner did not put into the folder.
        inside = PurePosixPath(name)
        outside = inside.is_absolute() or ".." in inside.parts
        content: Content = (str, None) if outside else _image(self._folder / inside)
        record = make_record(
            name,
            fields.get("id", name),
            fields.get("y"),
            *content,
            fields.get("person"),
        )
        if outside:
            return rejected(record, Term(SkipReason.OUTSIDE_FOLDER))
        return record


def _image(file: Path) -> Content:
    """Return the way to read an image, and its version; a file that is gone has none, and reading it says why."""
    try:
        return partial(read_image, file), file_version(file)
    except (OSError, ValueError):
        return partial(read_image, file), None


def _entries(folder: os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        # By bytes: an order of texts would depend on the locale, and some names are no
        # text.
        return sorted(
            (entry for entry in entries if entry.name[0] != "."),
            key=lambda entry: os.fsencode(entry.name),
        )


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


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
            raise BadRecord(SkipReason.NO_REGULAR_FILE)
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadRecord(_reason(error)) from None
    except ValueError:  # a path with a NUL character
        raise BadRecord(SkipReason.NO_PATH) from None


def _reason(error: OSError) -> SkipReason:
    return _REASONS.get(error.errno or 0, SkipReason.CANNOT_BE_OPENED)
