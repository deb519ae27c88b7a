"""A table in the making: a folder of Parquet shards, and a manifest that says which of them are finished.

A shard holds the records of a fixed stretch of the source, without those that are skipped, so whoever goes on after an
interruption writes the bytes that an uninterrupted run would have written. A shard is written whole, then the report
is, then the manifest that counts both; what a killed process leaves beyond the manifest is written again.
"""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dppl._files import locked, part_of, write_atomically
from dppl.errors import InputError, ParameterError
from dppl.io._layouts import MANIFEST
from dppl.io.left_out import LeftOut, Report, check_place
from dppl.io.records import PersonId
from dppl.io.writing import PERSON, repeating, rows_column

_VERSION = 2


@dataclass
class Window:
    """What becomes of one stretch of the source: an entry in each list for a record that was embedded.

    `left_out` are the records that cannot be used, for their owner only.
    """

    ids: list[str | None] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    labels: list[str | int | None] = field(default_factory=list)
    persons: list[PersonId] = field(default_factory=list)
    rows: list[NDArray[Any]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def extend(self, other: Window) -> None:
        """Add what becomes of the next stretch."""
        for name, entries in vars(self).items():
            entries.extend(getattr(other, name))

    def to_bytes(self, schema: pa.Schema) -> bytes:
        """Return the Parquet file of these rows, which is the same bytes for the same rows."""
        kind = schema.field("x").type
        rows = np.stack(self.rows) if self.rows else np.empty((0, kind.list_size), kind.value_type.to_pandas_dtype())
        values = {"id": self.ids, "reference": self.references, "y": self.labels, PERSON: self.persons}
        columns = [
            rows_column(rows, kind) if column.name == "x" else pa.array(values[column.name], column.type)
            for column in schema
        ]
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns, schema=schema), buffer, use_dictionary=repeating(schema))
        return buffer.getvalue()


@dataclass(frozen=True)
class Shard:
    """A shard whose file was written: its bytes and rows, the records it stands for, and the hash of the source."""

    size: int
    rows: int
    records: int
    left_out: Sequence[LeftOut]
    source: str


@dataclass(frozen=True)
class Done:
    """A finished shard, as the manifest keeps it; `source` and `report` are the states after it."""

    file: str
    size: int
    rows: int
    records: int
    left_out: dict[str, int]
    source: str
    report: int


class OtherOptions(ParameterError):
    """A folder was begun with other options."""

    def __init__(self, folder: Path, difference: str) -> None:
        super().__init__(
            f"{folder} was begun with {difference}; choose the options of that time, or another folder, or remove this "
            "one."
        )
        self.difference = difference


class SourceChanged(InputError):
    """A folder was begun with another source."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"the source has changed since {folder} was begun; remove that folder, or choose another.")


class ShardedTable:
    """The folder of a table, open for one process.

    The JSON-ready `parameters` decide its content, together with the source. The list of skipped records, `report`,
    lies beside the folder.
    """

    def __init__(self, folder: Path, schema: pa.Schema, parameters: dict[str, Any]) -> None:
        self.folder = folder
        self.report = folder.with_name(f"{folder.name}.report.jsonl")
        self.schema = schema
        self._parameters = parameters
        # A report of something else must not be replaced by this one.
        if not folder.exists():
            check_place(self.report)
        folder.mkdir(mode=0o700, exist_ok=True)  # for its owner only
        with ExitStack() as stack:
            refusal = f"another process is writing to {folder}; wait for it, or choose another folder."
            # Nobody else writes from here on.
            stack.enter_context(locked(folder, refusal))
            self.done, self.finished = self._read_manifest()
            if not self.finished:
                kept = self.done[-1].report if self.done else 0
                self._report = stack.enter_context(closing(Report(self.report, kept)))
                for part in folder.glob(".*.part"):  # what a killed process left half-way
                    part.unlink()
                self._write_manifest()
            # Lets another process have the folder.
            self.close = stack.pop_all().close

    def append(self, shard: Shard) -> None:
        """Take the next shard into the table: first what was skipped is reported, then the manifest counts both."""
        reasons = Counter(record.reason for record in shard.left_out)
        reported = self._report.add(shard.left_out)
        name = _name(len(self.done))
        self.done.append(Done(name, shard.size, shard.rows, shard.records, dict(reasons), shard.source, reported))
        self._write_manifest()

    def refuse(self, left_out: Sequence[LeftOut]) -> NoReturn:
        """Stop because records were skipped; they are listed first."""
        if not self.finished:
            self._report.add(left_out)
        raise InputError(
            f"wants every record of the source, but one cannot be used; see {self.report}.", parameter="strict"
        )

    def finish(self) -> None:
        """Say that there are no more records."""
        reasons: Counter[str] = sum((Counter(shard.left_out) for shard in self.done), Counter())
        records, rows = (sum(getattr(shard, name) for shard in self.done) for name in ("records", "rows"))
        self._report.finish({"records": records, "embedded": rows, "left_out": dict(sorted(reasons.items()))})
        self.finished = True
        self._write_manifest()

    def _read_manifest(self) -> tuple[list[Done], bool]:
        """Return the shards that are finished, and whether all are."""
        path = self.folder / MANIFEST
        if not path.exists():
            if any(entry.name[0] != "." for entry in self.folder.iterdir()):
                raise ParameterError(f"{self.folder} must be a new folder, or a table to go on with; it is neither.")
            return [], False
        try:
            manifest = json.loads(path.read_bytes())
            version, parameters, finished = manifest["version"], manifest["parameters"], manifest["finished"]
            shards = [Done(**entry) for entry in manifest["shards"]]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{path} is damaged; write the table anew into another folder.") from None
        if (version, parameters) != (_VERSION, self._parameters):
            # What can be said in a word is.
            others = [
                f"--{key.replace('_', '-')} {parameters.get(key)}"
                if key in ("rows", "shard_rows")
                else f"another {key}"
                for key, new in sorted(self._parameters.items())
                if parameters.get(key) != new
            ]
            raise OtherOptions(self.folder, ", ".join(others) or "another version of dppl")
        # A finished table stays one, though its owner may have moved the report. An unfinished one counts up to the
        # first shard or line of the report that is not there.
        if finished and all(_has(self.folder / shard.file, shard.size) for shard in shards):
            return shards, True
        whole = itertools.takewhile(
            lambda shard: _has(self.folder / shard.file, shard.size) and _has(self.report, shard.report), shards
        )
        return list(whole), False

    def _write_manifest(self) -> None:
        content = {"version": _VERSION, "finished": self.finished, "parameters": self._parameters}
        content["shards"] = [asdict(shard) for shard in self.done]
        write_atomically(self.folder / MANIFEST, json.dumps(content, indent=1).encode(), overwrite=True, private=True)


def write_shard(folder: Path, number: int, shard: Window, schema: pa.Schema) -> int:
    """Write the file of a shard into the folder of its table, and return its size."""
    content, path = shard.to_bytes(schema), folder / _name(number)
    part_of(path).unlink(missing_ok=True)  # of a task that was killed
    write_atomically(path, content, overwrite=True, private=True)
    return len(content)


def _name(number: int) -> str:
    return f"part-{number:06}.parquet"


def _has(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size >= size
