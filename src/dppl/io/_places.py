"""Where tables lie: files and folders of this machine, or of a store that a URL names.

Everything is read through a file system of Arrow: its own for this machine, ``s3://`` and ``gs://``; for any other
scheme one of fsspec, which is imported only then.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow import fs

from dppl._optional import how_to_install, optional
from dppl.errors import InputError, MissingExtra, ParameterError
from dppl.io._reading import converting

# One slash is enough: `pathlib.Path` takes the other away. Two letters at least: C: is a drive.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)
# What may be a name and a password: a colon before the first slash that no port follows.
_SECRET = re.compile(r"[^/]*:(?![0-9]+(/|$))")
_CHAINED = re.compile(r"::[A-Za-z][A-Za-z0-9+.-]+:/+")
_REACHABLE = "check the URL, the credentials and the network"
# By itself Arrow asks a store of Google again for a quarter of an hour.
_PATIENCE = "retry_limit_seconds=60"
_HERE = fs.LocalFileSystem()


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL, also if it went through `pathlib.Path`."""
    return _URL.fullmatch(os.fspath(path)) is not None


def shown_as(path: str | os.PathLike[str]) -> str:
    """Return a path as messages show it: a URL without possible passwords, the URL of a local file as its path."""
    match = _URL.fullmatch(os.fspath(path))
    if match is None:
        *outer, last = _CHAINED.split(os.fspath(path))
        return f"{'::'.join(outer)}::{_without_secrets(last)}" if outer else os.fspath(path)
    scheme, rest = match["scheme"].lower(), match["rest"]
    return f"/{rest.partition('?')[0]}" if scheme == "file" else f"{scheme}://{_without_secrets(rest)}".rstrip("/")


def _without_secrets(rest: str) -> str:
    """Return what follows the scheme without name, password and query; a password may hold slashes and "?"."""
    shown = rest.partition("?")[0]
    if _SECRET.match(rest):
        return (shown if "@" in shown else rest).rpartition("@")[2].partition("?")[0]
    return re.sub("^[^/]*@", "", shown)


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return the sorting key of a name: runs of digits count as numbers, so that shard_2 precedes shard_10.

    Names that differ in leading zeros alone are sorted as texts, so the order never depends on the folder's.
    """
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)], name


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """A file or folder, which can be sent to another process. `shown`, for messages, has no password."""

    system: fs.FileSystem
    path: str
    shown: str
    name: str
    suffix: str  # in lower case
    local: Path | None  # on this machine, if it lies there
    hint: str  # what to do where it cannot be read

    def __truediv__(self, name: str) -> Place:
        return _place(self.system, posixpath.join(self.path, name), posixpath.join(self.shown, name))

    def sibling(self, name: str) -> Place:
        """Return an entry of the folder that this one lies in."""
        folder = posixpath.dirname(self.path)
        return _place(self.system, folder, posixpath.dirname(self.shown) if self.local is None else folder) / name

    def info(self) -> fs.FileInfo:
        """Return type and size of a file or folder, which must exist."""
        with converting(f"{self} must be an existing file or folder", self.hint):
            info = self.system.get_file_info(self.path)
            if info.type == fs.FileType.NotFound:
                raise FileNotFoundError
            return info

    def is_folder(self) -> bool:
        """Return whether it is a folder and not a file; it must exist."""
        return not self.info().is_file

    def exists(self) -> bool:
        """Return whether there is such a file or folder."""
        with converting(f"{self} must be reachable", self.hint):
            return bool(self.system.get_file_info(self.path).type != fs.FileType.NotFound)

    def entries(self) -> list[Place]:
        """Return the entries of a folder in natural order, without hidden names, which tools leave there."""
        with converting(f"{self} must be a readable folder", self.hint):
            names = [info.base_name for info in self.system.get_file_info(fs.FileSelector(self.path))]
        return [self / name for name in sorted(names, key=natural) if name and name[0] not in "._"]

    def files(self, suffix: str) -> list[Place]:
        """Return the entries with a suffix, in upper or lower case.

        Two names of one file of this machine are an error: its records would count twice.
        """
        files = [entry for entry in self.entries() if entry.suffix == suffix]
        states = [os.stat(file.path) for file in files if file.local is not None and os.path.exists(file.path)]
        numbers = [(state.st_dev, state.st_ino) for state in states if state.st_ino]  # 0: no number on this system
        if len(set(numbers)) < len(numbers):
            raise InputError(
                f"{self}: every file must have one name; one has two, and would count twice; remove a link"
            )
        return files

    def open(self) -> Any:
        """Open a file for reading at any position; of a URL only the bytes that are read are fetched."""
        return self.system.open_input_file(self.path)

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        # A repr ends up in logs, and the path within a store may hold a password.
        return f"<Place: {self.shown}>"


def open_place(path: str | os.PathLike[str]) -> Place:
    """Return the place of a path or URL; nothing is read."""
    match, shown = _URL.fullmatch(os.fspath(path)), shown_as(path)
    scheme = "file" if match is None else match["scheme"].lower()
    if match is None or scheme == "file":
        # Absolute: the process that reads it may have another working folder.
        return _place(_HERE, Path(os.path.abspath(shown)).as_posix() if shown else shown, shown)
    url = f"{scheme}://{match['rest']}"
    if scheme in ("s3", "gs"):
        if scheme == "gs" and "retry_limit_seconds=" not in url:
            url += f"{'&' if '?' in url else '?'}{_PATIENCE}"
        with converting(f"{shown} must be a URL that Arrow can open", _REACHABLE):
            system, inside = fs.FileSystem.from_uri(url)
            return _place(system, inside.rstrip("/"), shown)
    fsspec = optional("fsspec", "fsspec", "remote")
    if scheme not in fsspec.available_protocols():
        raise ParameterError(f"{shown} must be a path, or a URL of a file system that fsspec knows; {scheme} is not.")
    with converting(f"{shown} must be a URL that fsspec can open", _REACHABLE):
        try:
            system, inside = fsspec.core.url_to_fs(url)
            return _place(fs.PyFileSystem(fs.FSSpecHandler(system)), str(inside).rstrip("/"), shown)
        except ImportError:
            pass
    # fsspec itself is there; the package for this scheme is not.
    known = optional("fsspec.registry", "fsspec", "remote").known_implementations.get(scheme, {}).get("err")
    advice = "install the one that fsspec's documentation names for it." if known is None else f"fsspec says: {known}"
    if scheme == "hf":
        advice = f"install huggingface-hub {how_to_install('remote')}"
    raise MissingExtra(f"{scheme}:// needs a package beside fsspec; {advice}")


def _place(system: fs.FileSystem, path: str, shown: str) -> Place:
    local = Path(path) if isinstance(system, fs.LocalFileSystem) else None
    name, hint = posixpath.basename(path), _REACHABLE if local is None else "check the path and its permissions"
    return Place(system, path, shown, name, PurePosixPath(name).suffix.lower(), local, hint)
