"""The list of records that were left out. It is the only place where anything is said about single records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["NOTICE", "LeftOut", "Report"]

NOTICE = (
    "For the owner of the records only: this report describes private records, and no guarantee protects it. Do not "
    "publish it, and do not pass it on with the table or a model. Whether a record is left out depends on that record "
    "alone, but for a repeated id, where the first record is taken: mend repeated ids before you rely on a guarantee, "
    "because adding or removing one such record can bring another in or out."
)


class LeftOut(NamedTuple):
    """A record that was left out."""

    id: str | None
    reference: str
    reason: str


class Report:
    """A file of JSON lines: a notice, the records that were left out, and at the end the totals.

    Parameters
    ----------
    path : Path
    size : int
        Bytes that are worth keeping of an earlier run, 0 for a new report.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        self._file.truncate(size)
        self._file.seek(size)
        if not size:
            self._write({"notice": NOTICE})

    def add(self, records: Iterable[LeftOut]) -> int:
        """Add records, wait until they are on disk, and return the size of the file."""
        for record in records:
            self._write(record._asdict())
        return self._saved()

    def finish(self, totals: dict[str, Any]) -> None:
        """Add the totals."""
        self._write(totals)
        self._saved()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")

    def _saved(self) -> int:
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()
