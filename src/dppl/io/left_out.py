"""The list of records that were skipped. It is the only place where anything is said about single records."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

from dppl._files import named
from dppl.errors import ParameterError

NOTICE = (
    "For the owner of the records only: this report describes private records, and no guarantee protects it. Do not "
    "publish it, and do not pass it on with the table or a model. Whether a record is left out depends on that record "
    "alone."
)
# By which a report is known, also one of another version.
_MARK = json.dumps({"notice": NOTICE.partition(":")[0]}).removesuffix('"}').encode()
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # not on Windows


class LeftOut(NamedTuple):
    """A record that was skipped."""

    id: str | None
    reference: str
    reason: str


class Report:
    """A file of JSON lines: a notice, the records that were skipped, and at the end the totals.

    `size` bytes of an earlier run are kept; 0 starts a new report.
    """

    def __init__(self, path: Path, size: int) -> None:
        check_place(path)
        self._path = path
        if not size:
            path.unlink(missing_ok=True)
        self._file = _opened(path, "r+b" if size else "xb")
        if size:
            path.chmod(0o600)
            # What a killed process wrote beyond the manifest is written anew.
            self._file.truncate(size)
            self._file.seek(size)
        else:
            with named(path):
                self._file.write(as_line({"notice": NOTICE}))

    def add(self, records: Iterable[LeftOut]) -> int:
        """Add records, wait until they are on disk, and return the size of the file."""
        return self.finish(*(record._asdict() for record in records))

    def finish(self, *entries: dict[str, Any]) -> int:
        """Add entries, the last of which are the totals; as `add`."""
        with named(self._path):
            self._file.writelines(map(as_line, entries))
            self._file.flush()
            # The manifest counts these bytes, so they come to the disk before it.
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        with named(self._path):  # closing writes what could not be written before
            self._file.close()


def check_place(path: Path) -> None:
    """See that there is nothing at this path, or a report, perhaps only the beginning that a killed process left."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            with _opened(path, "rb") as file:
                if _MARK.startswith(file.read(len(_MARK))):
                    return
    except FileNotFoundError:
        return
    raise ParameterError(f"{path} is in the way of the report; move it away, or choose another folder.")


def as_line(entry: dict[str, Any]) -> bytes:
    """Return an entry as a line of the report."""
    return json.dumps(entry).encode() + b"\n"


def _opened(path: Path, mode: str) -> IO[bytes]:
    """Open a file, but through no link; a new one is for its owner only."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | _NO_LINK, 0o600))
