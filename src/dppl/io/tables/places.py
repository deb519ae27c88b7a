"""Where tables lie: files and folders of this machine, or of a store that a URL names.

Everything is read through a file system of Arrow: ``s3://``, ``gs://``, ``hf://`` and
whatever else it opens.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow import fs

from dppl._utils.optional import how_to_install
from dppl.errors import InputError, MissingExtra
from dppl.io.records.labels import converting
from dppl.io.records.urls import URL, shown_as

# What to do where a place cannot be read.
REACHABLE = "check the URL, the credentials and the network"
READABLE = "check the path and its permissions"
_HERE = fs.LocalFileSystem()


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return the sorting key of a name, in which runs of digits count as numbers, and leading zeros only as texts."""
    parts = re.split(r"([0-9]+)", name)
    return [
        (int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)
    ], name


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """A file or folder, which can be sent to another process. `shown`, for messages, has no password."""

    system: fs.FileSystem
    path: str
    shown: str
    local: Path | None = field(init=False)  # the path on this machine, if it lies there
    name: str = field(init=False)  # the last part of the path
    suffix: str = field(init=False)  # in lower case

    def __post_init__(self) -> None:
        pure = PurePosixPath(self.path)
        local = None
        if isinstance(self.system, fs.LocalFileSystem):
            local = Path(self.path)
        for name, value in (
            ("local", local),
            ("name", pure.name),
            ("suffix", pure.suffix.lower()),
        ):
            object.__setattr__(self, name, value)

    def __truediv__(self, name: str) -> Place:
        return Place(
            self.system,
            posixpath.join(self.path, name),
            posixpath.join(self.shown, name),
        )

    def files(self, suffix: str, *, below: bool = False) -> list[Place]:
        """Return the files of a folder with a suffix, in natural order and without the hidden ones that tools leave.

        With `below`, also of the folders within.
        """
        with converting(
            f"{self} must be a readable folder",
            REACHABLE if self.local is None else READABLE,
        ):
            infos = self.system.get_file_info(
                fs.FileSelector(self.path, recursive=below)
            )
            names = [
                posixpath.relpath(info.path, self.path) if below else info.base_name
                for info in infos
            ]
        shown = [
            name
            for name in names
            if name and not any(part[0] in "._" for part in name.split("/"))
        ]
        places = [self / name for name in sorted(shown, key=natural)]
        files = [place for place in places if place.suffix == suffix]
        states = [
            os.stat(file.path)
            for file in files
            if file.local is not None and os.path.exists(file.path)
        ]
        numbers = [
            (state.st_dev, state.st_ino) for state in states if state.st_ino
        ]  # 0: no number on this system
        if len(set(numbers)) < len(numbers):
            raise InputError(
                f"{self}: every file must have one name; one has two, and would count twice; remove a link"
            )
        return files

    def size(self) -> int | None:
        """Return the bytes of a file, None for a folder; FileNotFoundError where there is neither."""
        if self.local is not None:  # whose name Arrow may not be able to write
            state = self.local.stat()
            if stat.S_ISREG(state.st_mode):
                return state.st_size
            return None
        info = self.system.get_file_info(self.path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError
        return int(info.size) if info.is_file else None

    def open(self) -> Any:
        """Open a file for reading at any position; of a URL only the bytes that are read are fetched."""
        if self.local is not None and not _is_utf8(self.path):
            return self.local.open("rb")
        return self.system.open_input_file(self.path)

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        # A repr ends up in logs, and the path within a store may hold a password.
        return f"<Place: {self.shown}>"


def _is_utf8(path: str) -> bool:
    """Return whether Arrow can name a path."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def open_place(path: str | os.PathLike[str]) -> Place:
    """Return the place of a path or URL; nothing is read."""
    match = URL.fullmatch(os.fspath(path))
    shown = shown_as(path)
    if match is None:
        scheme = "file"
    else:
        scheme = match["scheme"].lower()
    if match is None or (scheme == "file" and not match["outer"]):
        # Absolute: the process that reads it may have another working folder.
        return Place(
            _HERE, Path(os.path.abspath(shown)).as_posix() if shown else shown, shown
        )
    url = f"{match['outer']}{scheme}://{match['rest']}"
    with converting(f"{shown} must be a URL that Arrow can open", REACHABLE):
        try:
            system, inside = fs.FileSystem.from_uri(url)
        except ImportError:
            pass
        else:
            return Place(system, inside.rstrip("/"), shown)
    # Raised out of the handler, so that nothing of the URL stays attached.
    raise MissingExtra(
        f"{scheme}:// needs another package, such as huggingface-hub; install it {how_to_install('remote')}"
    )
