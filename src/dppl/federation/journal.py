"""A folder of numbered answers, each on the disk before anybody hears of it, and never written twice."""

from __future__ import annotations

import os
from pathlib import Path

from dppl._files import remove_parts, write_atomically
from dppl.errors import InputError


class Journal:
    """What one plan left behind: named files, and answers by their numbers.

    A file is complete or not there, whenever the process is killed (`dppl._files`).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, name: str | int) -> bytes | None:
        """Return a file, None if it is not there."""
        path = self._path(name)
        return path.read_bytes() if path.exists() else None

    def write(self, name: str | int, content: bytes) -> None:
        """Write a file that is not there yet."""
        path = self._path(name)
        remove_parts(path)
        try:
            write_atomically(path, content, overwrite=False, private=True)
        except FileExistsError:
            raise InputError(f"{path} was written by another process: only one may work in this folder.") from None

    def __len__(self) -> int:
        """Return the number of answers, which have no gap."""
        number = 0
        while self._path(number).exists():
            number += 1
        return number

    def _path(self, name: str | int) -> Path:
        return self.folder / (name if isinstance(name, str) else f"{name:05}.answer")
