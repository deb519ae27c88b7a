"""The results file: one JSON object a line, appended and on disk before the next cell counts as done.

Finished results can be packed with xz, to a tenth of the size.
"""

import json
import lzma
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from dppl._utils.files import locked, named, write_atomically
from dppl._utils.outside import parse_any
from dppl.errors import InputError
from dppl.lab.experiments.cells import SCHEMA

Result = dict[str, Any]
DONE = "done"
FAILED = "failed"
PACKED = ".xz"  # suffix of packed results
SUFFIXES = (".jsonl", PACKED)


class ResultsFile:
    """A results file of one runner; opening cuts off a last line that a crash left without its end."""

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
            self._file.write(_line(result))
            self._sync()
        self.results.append(result)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with named(self.path):  # closing writes what could not be written before
            self._stack.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def read_results(path: str | os.PathLike[str]) -> list[Result]:
    """Return the last word on every cell: its result, or how it failed if it was never done; skip a torn last line."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no results file {path}; `dppl bench` writes one.")
    content = path.read_bytes()
    if path.suffix == PACKED:
        try:
            content = lzma.decompress(content)
        except lzma.LZMAError:
            raise InputError(
                f"{path} is damaged, or not packed by `dppl bench`; restore or pack it again."
            ) from None
    latest: dict[str, Result] = {}
    for result in _parse(_whole_lines(content), path):
        if (
            latest.get(result["key"], {}).get("status") != DONE
            or result["status"] == DONE
        ):
            latest[result["key"]] = result
    return list(latest.values())


def write_results(results: Iterable[Result], path: Path) -> None:
    """Write results to a new file, packed or not, from which `read_results` gives exactly the same."""
    content = b"".join(map(_line, results))
    write_atomically(
        path,
        lzma.compress(content, preset=9) if path.suffix == PACKED else content,
        overwrite=False,
    )


def _line(result: Result) -> bytes:
    return json.dumps(result, allow_nan=False).encode() + b"\n"


def _whole_lines(content: bytes) -> bytes:
    """Return the lines without what a crash cut short after the last line break."""
    return content[: content.rfind(b"\n") + 1]


def _parse(content: bytes, path: Path) -> list[Result]:
    results = []
    for number, line in enumerate(content.splitlines(), start=1):
        where = f"{path}: line {number}"
        try:
            result = parse_any(line)
            schema = result["schema"]
            key = result["key"]
            status = result["status"]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{where} is no result of an experiment; remove it, or restore the file."
            ) from None
        # Numbers of another schema mean something else, so they are not mixed with
        # these.
        if schema != SCHEMA or not isinstance(key, str) or status not in (DONE, FAILED):
            raise InputError(
                f"{where} has schema {schema!r} and status {status!r}; this version reads schema {SCHEMA}."
            )
        results.append(result)
    return results
