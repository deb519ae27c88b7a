"""Where tables lie: files and folders of this machine, or of a store that a URL names; and the order of files.

Paths of this machine are read with the standard library. URLs go through file systems of Arrow: its own for ``s3://``
and ``gs://``, those of fsspec for any other scheme. fsspec is imported when such a URL is given and not before.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow import fs

from dppl._optional import how_to_install, optional
from dppl.data._reading import converting
from dppl.errors import InputError, MissingExtra, ParameterError

# One slash is enough: `pathlib.Path` takes the other away. Two letters at least: C: is a drive.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)
# What may be a name and a password: a colon before the first slash that no port follows.
_SECRET = re.compile(r"[^/]*:(?![0-9]+(/|$))")
_CHAINED = re.compile(r"::[A-Za-z][A-Za-z0-9+.-]+:/+")
_OF_ARROW = ("s3", "gs")
_READABLE = "check the path and its permissions"
_REACHABLE = "check the URL, the credentials and the network"
# Seconds that a store of Google may fail to answer; Arrow waits a quarter of an hour by itself.
_PATIENCE = "retry_limit_seconds"
_SECONDS = 60


def is_url(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a URL, also if it went through `pathlib.Path`."""
    return _URL.fullmatch(_text(path)) is not None


def shown_as(path: str | os.PathLike[str]) -> str:
    """Return a path as messages call it: a URL without what may be a password, that of a local file as its path."""
    found = _URL.fullmatch(_text(path))
    if found is None:
        *outer, last = _CHAINED.split(_text(path))
        return f"{'::'.join(outer)}::{_without_secrets(last)}" if outer else os.fspath(path)
    scheme, rest = found["scheme"].lower(), found["rest"]
    return f"/{rest.partition('?')[0]}" if scheme == "file" else f"{scheme}://{_without_secrets(rest)}".rstrip("/")


def _without_secrets(rest: str) -> str:
    """Return what follows the scheme without name, password and query; a password may hold slashes and "?"."""
    shown = rest.partition("?")[0]
    if _SECRET.match(rest):
        return (shown if "@" in shown else rest).rpartition("@")[2].partition("?")[0]
    return re.sub("^[^/]*@", "", shown)


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return what names are sorted by: runs of digits count as numbers, so that shard_2 comes before shard_10.

    Names that differ in leading zeros alone are sorted as texts, so the order never depends on that of a folder.
    """
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)], name


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """A file or folder. It can be sent to another process."""

    path: str  # within its file system
    system: Any  # None is this machine
    shown: str  # as messages call it: without what may be a password

    @classmethod
    def of(cls, path: str | os.PathLike[str] | Place) -> Place:
        """Find a path or URL; nothing is read."""
        if isinstance(path, Place):
            return path
        found, shown = _URL.fullmatch(_text(path)), shown_as(path)
        if found is None or _URL.fullmatch(shown) is None:
            # Absolute: a process that it is sent to may work elsewhere.
            return cls(os.path.abspath(shown) if shown else shown, None, shown)
        scheme = found["scheme"].lower()
        system, inside = _opened(scheme, f"{scheme}://{found['rest']}", shown)
        return cls(inside.rstrip("/"), system, shown)

    @property
    def local(self) -> Path | None:
        """The path on this machine, if it lies there."""
        return Path(self.path) if self.system is None else None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return Path(self.path).name if self.system is None else PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        """How the name ends, in lower case."""
        return PurePosixPath(self.name).suffix.lower()

    @property
    def hint(self) -> str:
        """What to do where it cannot be read."""
        return _READABLE if self.system is None else _REACHABLE

    def __truediv__(self, name: str) -> Place:
        if self.system is None:
            return replace(self, path=str(Path(self.path) / name), shown=str(Path(self.shown) / name))
        return replace(self, path=f"{self.path}/{name}", shown=f"{self.shown}/{name}")

    @property
    def parent(self) -> Place:
        """The folder that it lies in."""
        if self.system is None:
            path = str(Path(os.path.abspath(self.path)).parent)
            return replace(self, path=path, shown=path)
        return replace(self, path=self.path.rpartition("/")[0], shown=self.shown.rpartition("/")[0])

    def is_folder(self) -> bool:
        """Tell whether something that exists is a folder."""
        with converting(f"{self} must be an existing file or folder", self.hint):
            if self.system is None:
                return stat.S_ISDIR(os.stat(self.path).st_mode)
            return bool(self._info().type == fs.FileType.Directory)

    def exists(self) -> bool:
        """Tell whether there is such a file or folder."""
        if self.system is None:
            return os.path.exists(self.path)
        with converting(f"{self} must be reachable", self.hint):
            return bool(self.system.get_file_info(self.path).type != fs.FileType.NotFound)

    def size(self) -> int:
        """Return the bytes of a file."""
        with converting(f"{self} must be a readable file", self.hint):
            return os.stat(self.path).st_size if self.system is None else int(self._info().size)

    def check_not_empty(self) -> None:
        """Refuse a file without a byte, which is no table of any size: what came before it has failed."""
        if self.size() == 0:
            raise InputError(f"{self} must hold a table; it is empty; write it again.")

    def entries(self) -> list[Place]:
        """Return what lies in a folder in natural order, without the hidden names that tools leave there."""
        with converting(f"{self} must be a readable folder", self.hint):
            if self.system is None:
                names = os.listdir(self.path)
            else:
                names = [info.base_name for info in self.system.get_file_info(fs.FileSelector(self.path))]
        return [self / name for name in sorted(names, key=natural) if name and name[0] not in "._"]

    def files(self, suffix: str) -> list[Place]:
        """Return those entries whose names end so, in upper or lower case.

        Two names of one file of this machine are refused: its records would count twice.
        """
        found = [entry for entry in self.entries() if entry.suffix == suffix]
        files = [os.stat(entry.path) for entry in found if entry.system is None and os.path.exists(entry.path)]
        seen = [(file.st_dev, file.st_ino) for file in files if file.st_ino]  # some file systems number no files
        if len(set(seen)) < len(seen):
            raise InputError(
                f"{self}: every file must have one name; one has two, and would count twice; remove a link"
            )
        return found

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open a file for reading at any position; of a URL only the bytes that are asked for are fetched."""
        with open(self.path, "rb") if self.system is None else self.system.open_input_file(self.path) as file:
            yield file

    def _info(self) -> Any:
        info = self.system.get_file_info(self.path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError
        return info

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        # A repr ends up in logs, and the path within a store may hold a password.
        return f"<Place: {self.shown}>"


def _text(path: str | os.PathLike[str]) -> str:
    return path.as_posix() if isinstance(path, Path) else os.fspath(path)


def _opened(scheme: str, url: str, shown: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path within it."""
    if scheme in _OF_ARROW:
        with converting(f"{shown} must be a URL that Arrow can open", _REACHABLE):
            system, path = fs.FileSystem.from_uri(_impatient(url) if scheme == "gs" else url)
            return system, str(path)
    fsspec = optional("fsspec", "fsspec", "remote")
    if scheme not in fsspec.available_protocols():
        raise ParameterError(f"{shown} must be a path, or a URL of a file system that fsspec knows; {scheme} is not.")
    with converting(f"{shown} must be a URL that fsspec can open", _REACHABLE):
        try:
            system, path = fsspec.core.url_to_fs(url)
        except ImportError:
            system = None
    if system is None:
        raise MissingExtra(f"{scheme}:// needs a package beside fsspec; {_how(scheme)}")
    return fs.PyFileSystem(fs.FSSpecHandler(system)), str(path)


def _impatient(url: str) -> str:
    """Add a limit to the time in which a store is asked again, unless the URL has one."""
    return url if f"{_PATIENCE}=" in url else f"{url}{'&' if '?' in url else '?'}{_PATIENCE}={_SECONDS}"


def _how(scheme: str) -> str:
    if scheme == "hf":
        return f"install huggingface-hub {how_to_install('remote')}"
    known = optional("fsspec.registry", "fsspec", "remote").known_implementations.get(scheme, {}).get("err")
    return "install the one that fsspec's documentation names for it." if known is None else f"fsspec says: {known}"
