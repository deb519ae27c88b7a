"""The results file: one JSON object a line, appended and on disk before the next cell counts as done."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from dppl._files import locked, named
from dppl.errors import InputError
from dppl.lab.experiments.config import SCHEMA

__all__ = ["DONE", "FAILED", "Result", "ResultsFile", "read_results"]

Result = dict[str, Any]
DONE, FAILED = "done", "failed"


class ResultsFile:
    """A results file held open by one runner, which alone may append to it.

    A crash can leave a last line without its end. It is cut off when the file is opened next, or completed if only the
    line break is missing; nothing else in the file is ever changed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with ExitStack() as stack:
            self._file = stack.enter_context(self.path.open("a+b"))
            refusal = f"{path} is in use by another run; wait for it to end, or write to another file with --out."
            stack.enter_context(locked(self.path, refusal))
            self._file.seek(0)
            content = self._file.read()
            whole = _whole_lines(content)
            if len(whole) < len(content):
                self._file.truncate(len(whole))
            self._file.write(whole[len(content) :])
            self._sync()
            self.results = _parse(whole, self.path)
            self._stack = stack.pop_all()

    @property
    def done(self) -> set[str]:
        """Keys of the cells that need no run: all but those that failed or are missing."""
        return {result["key"] for result in self.results if result["status"] == DONE}

    def append(self, result: Result) -> None:
        """Add a result; when this returns it is on disk."""
        with named(self.path):
            self._file.write(json.dumps(result, allow_nan=False).encode() + b"\n")
            self._sync()
        self.results.append(result)

    def close(self) -> None:
        """Give the file free."""
        with named(self.path):  # closing writes what could not be written before
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def read_results(path: str | os.PathLike[str]) -> list[Result]:
    """Return the last word on every cell: its result, or how it failed if it was never done.

    May be called while a runner writes; a torn last line is left out.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no results file {path}; `dppl bench` writes one.")
    latest: dict[str, Result] = {}
    for result in _parse(_whole_lines(path.read_bytes()), path):
        if latest.get(result["key"], {}).get("status") != DONE or result["status"] == DONE:
            latest[result["key"]] = result
    return list(latest.values())


def _whole_lines(content: bytes) -> bytes:
    """Return the lines without what a crash cut short after the last line break."""
    lines, _, torn = content.rpartition(b"\n")
    try:
        whole = isinstance(json.loads(torn), dict)
    except ValueError:
        whole = False
    return content + b"\n" if whole else lines + b"\n" * bool(lines)


def _parse(content: bytes, path: Path) -> list[Result]:
    results = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            result = json.loads(line)
            schema, key, status = result["schema"], result["key"], result["status"]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path}: line {number} is no result of an experiment; remove it, or restore the file."
            ) from None
        # Numbers of another schema mean something else, so they are not mixed with these.
        if schema != SCHEMA or not isinstance(key, str) or status not in (DONE, FAILED):
            raise InputError(
                f"{path}: line {number} has schema {schema!r} and status {status!r}; this version reads schema "
                f"{SCHEMA}."
            )
        results.append(result)
    return results
