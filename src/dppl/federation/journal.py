"""A folder of numbered answers, each on the disk before anybody hears of it, and never written twice."""

from __future__ import annotations

import os
from pathlib import Path

from dppl._utils.files import lasting_folder, write_atomically
from dppl.errors import InputError


class Journal:
    """What one plan left behind: named files, and answers by their numbers; without a folder nothing is kept.

    A file is complete or not there, whenever the process is killed (`dppl._utils.files`).
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = None
        if folder is not None:
            self.folder = lasting_folder(Path(folder))

    def read(self, name: str | int) -> bytes | None:
        """Return a file, None if it is not there."""
        path = self._path(name)
        if path is not None and path.exists():
            return path.read_bytes()
        return None

    def write(self, name: str | int, content: bytes) -> None:
        """Write a file that is not there yet."""
        path = self._path(name)
        if path is None:
            return
        try:
            write_atomically(path, content, overwrite=False, private=True)
        except FileExistsError:
            raise InputError(
                f"{path} was written by another process: only one may work in this folder."
            ) from None

    def __len__(self) -> int:
        """Return the number of answers, which have no gap."""
        number = 0
        while self.read(number) is not None:
            number += 1
        return number

    def _path(self, name: str | int) -> Path | None:
        # Names are numbers with leading zeros, so that a listing has the order of the
        # asks.
        if self.folder is None:
            return None
        return self.folder / (name if isinstance(name, str) else f"{name:05}.answer")
