"""The results file: one JSON object a line, appended and on disk before the next cell counts as done.

Finished results can be packed into Parquet, a tenth the size, with a typed column for each number, text or list of
them, and JSON text for the rest.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from dppl._files import locked, named, write_atomically
from dppl.errors import InputError
from dppl.lab.experiments.config import SCHEMA

Result = dict[str, Any]
DONE, FAILED = "done", "failed"
PACKED = ".parquet"  # suffix of packed results
SUFFIXES = (".jsonl", PACKED)
# The column that lists the fields of each result, so that a missing one is not taken for None.
_FIELDS = "fields"
_DIGEST, _JSON = b"dppl results, sha256", b"dppl columns of JSON"
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


class ResultsFile:
    """A results file of one runner; opening cuts off, or completes, a last line that a crash left without its end."""

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
    results = _unpack(path) if path.suffix == PACKED else _parse(_whole_lines(path.read_bytes()), path)
    latest: dict[str, Result] = {}
    for result in results:
        if latest.get(result["key"], {}).get("status") != DONE or result["status"] == DONE:
            latest[result["key"]] = result
    return list(latest.values())


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write results to a new file, packed or as JSON lines, from which `read_results` gives exactly the same."""
    content = _packed(results) if path.suffix == PACKED else b"".join(map(_line, results))
    write_atomically(path, content, overwrite=False)


def _line(result: Result) -> bytes:
    return json.dumps(result, allow_nan=False).encode() + b"\n"


def _digest(results: Iterable[Result]) -> str:
    """Hash results as JSON lines."""
    return sha256(b"".join(map(_line, results))).hexdigest()


def _packed(results: Sequence[Result]) -> bytes:
    rows = [dict(_flat(result)) for result in results]
    columns = {_FIELDS: pa.array([json.dumps(list(row)) for row in rows])}
    texts = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(name) for row in rows]
        kind = _type(values)
        if kind is None:
            texts.append(name)
            values = [json.dumps(value) for value in values]
        columns[name] = pa.array(values, kind or pa.string())
    table = pa.table(columns).replace_schema_metadata({_DIGEST: _digest(results), _JSON: json.dumps(texts)})
    packed = io.BytesIO()
    pq.write_table(table, packed, compression="zstd", compression_level=19, write_page_checksum=True)
    return packed.getvalue()


def _flat(result: Result) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a result; a field of a dictionary goes by both names, with a dot."""
    for name, value in result.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{inner}", one) for inner, one in value.items())
        else:
            yield name, value


def _type(values: Iterable[Any]) -> pa.DataType | None:
    """Return the Arrow type that holds these values exactly; None if they are mixed, or dictionaries."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind is not list:
        return _TYPES.get(kind)
    inner = _type(chain.from_iterable(present))
    return None if inner is None else pa.list_(inner)


def _unpack(path: Path) -> list[Result]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        texts, results = json.loads(table.schema.metadata[_JSON]), []
        for row in table.to_pylist():
            result: Result = {}
            for field in json.loads(row[_FIELDS]):
                value = json.loads(row[field]) if field in texts else row[field]
                name, nested, inner = field.partition(".")
                place, key = (result.setdefault(name, {}), inner) if nested else (result, name)
                place[key] = value
            results.append(result)
        # The hash is of what was packed, so neither damage nor a wrong decoding goes unnoticed.
        whole = _digest(results) == table.schema.metadata[_DIGEST].decode()
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise InputError(f"{path} is damaged, or no results of `dppl bench`; restore it, or pack them again.")
    for number, result in enumerate(results, start=1):
        _check(result, f"{path}: row {number}")
    return results


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
            result["schema"], result["key"], result["status"]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path}: line {number} is no result of an experiment; remove it, or restore the file."
            ) from None
        _check(result, f"{path}: line {number}")
        results.append(result)
    return results


def _check(result: Result, where: str) -> None:
    """Raise for results of another schema: their numbers mean something else, so they are not mixed with these."""
    schema, key, status = (result.get(name) for name in ("schema", "key", "status"))
    if schema != SCHEMA or not isinstance(key, str) or status not in (DONE, FAILED):
        raise InputError(f"{where} has schema {schema!r} and status {status!r}; this version reads schema {SCHEMA}.")
