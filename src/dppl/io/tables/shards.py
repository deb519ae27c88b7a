"""Resumable writing of a table: a folder of Parquet shards, a manifest of those that are finished, and a skip report.

A shard holds a fixed range of the source's records, less the skipped ones, so whoever
makes it, in whatever order, writes the same bytes. First the shard is written, then a
hidden note of what is in it; the process that owns the table takes the notes in order
into the report and the manifest. What a killed process wrote beyond the manifest is
written again, but for shards with a note.

Only the skip report, which is for the owner, says anything about single records.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dppl._utils.files import locked, named, write_atomically
from dppl._utils.outside import parse_any, parse_json
from dppl.errors import InputError, ParameterError
from dppl.io.records.record import PersonId, Record
from dppl.io.tables.read import MANIFEST
from dppl.io.tables.writing import PERSON, repeating, rows_column
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason

NOTICE = (
    "For the owner of the records only: this report describes private records, and no guarantee protects it. Do not "
    "publish it, and do not pass it on with the table or a model. Whether a record is skipped depends on that record "
    "alone."
)
# The first line of a report, which identifies one of any version.
HEADER = {"file": "dppl.skipped", "notice": NOTICE}
_MARK = b'{"file": "dppl.skipped"'
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
_VERSION = 6


class Skipped(NamedTuple):
    """A record that cannot be used."""

    id: str | None
    reference: str
    reason: Term[SkipReason]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the report."""
        return {**self._asdict(), "reason": self.reason.to_dict()}


Counts: TypeAlias = "Counter[Term[SkipReason]]"  # of skipped records, by reason


def counts_to_list(counts: Counts) -> list[dict[str, Any]]:
    """Return the counts JSON-ready, in the order of the codes; `counts_from_list` reads them back."""
    ordered = sorted(counts, key=lambda reason: (reason.code, reason.values))
    return [{"n": counts[reason], "reason": reason.to_dict()} for reason in ordered]


def counts_from_list(entries: Iterable[dict[str, Any]]) -> Counts:
    """Read what `counts_to_list` wrote."""
    return Counter(
        {Term.from_dict(SkipReason, one["reason"]): one["n"] for one in entries}
    )


@dataclass
class Window:
    """The outcome of a range of records: lists with one entry for each that was embedded.

    Two differ: `skipped` lists the others, for the owner; `usable` has all records.
    """

    ids: list[str | None] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    labels: list[str | int | None] = field(default_factory=list)
    persons: list[PersonId] = field(default_factory=list)
    rows: list[NDArray[Any]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    usable: list[bool] = field(default_factory=list)

    def add(self, record: Record, row: NDArray[Any] | Term[SkipReason]) -> None:
        """Append what became of the next record: its embedding, or why it has none."""
        self.usable.append(not isinstance(row, Term))
        if isinstance(row, Term):
            self.skipped.append(Skipped(record.id, record.reference, row))
            return
        self.ids.append(record.id)
        self.references.append(record.reference)
        self.labels.append(record.label)
        self.persons.append(record.person)
        self.rows.append(row)

    def extend(self, other: Window) -> None:
        """Append the outcome of the next range."""
        for name, entries in vars(self).items():
            entries.extend(getattr(other, name))

    def to_bytes(self, schema: pa.Schema) -> bytes:
        """Return these rows as a Parquet file; equal rows give equal bytes."""
        kind = schema.field("x").type
        if self.rows:
            rows = np.stack(self.rows)
        else:
            rows = np.empty((0, kind.list_size), kind.value_type.to_pandas_dtype())
        values = {
            "id": self.ids,
            "reference": self.references,
            "y": self.labels,
            PERSON: self.persons,
        }
        columns = []
        for column in schema:
            if column.name == "x":
                columns.append(rows_column(rows, kind))
            else:
                columns.append(pa.array(values[column.name], column.type))
        buffer = io.BytesIO()
        pq.write_table(
            pa.table(columns, schema=schema), buffer, use_dictionary=repeating(schema)
        )
        return buffer.getvalue()


def check_place(path: Path) -> None:
    """Raise unless this path is free or holds a report, perhaps one that a killed process began."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            with _opened(path, "rb") as file:
                if _MARK.startswith(file.read(len(_MARK))):
                    return
    except FileNotFoundError:
        return
    raise ParameterError(
        f"{path} is in the way of the report; move it away, or choose another folder."
    )


def as_line(entry: dict[str, Any]) -> bytes:
    """Return an entry as a line of the report."""
    return json.dumps(entry).encode() + b"\n"


def _opened(path: Path, mode: str) -> IO[bytes]:
    """Open a file without following links; only its owner may read a new one."""
    return open(
        path, mode, opener=lambda name, flags: os.open(name, flags | _NO_LINK, 0o600)
    )


@dataclass(frozen=True)
class Made:
    """The note of a shard: what the manifest and the report will say of it."""

    size: int
    rows: int
    records: int
    source: str  # a hash of the records
    skipped: list[dict[str, Any]]  # entries of the report


def write_shard(
    folder: Path, number: int, window: Window, schema: pa.Schema, source: str
) -> None:
    """Write a shard, then its note. Both are private, and hold all that there is to say of its records."""
    content = window.to_bytes(schema)
    write_atomically(_shard(folder, number), content, overwrite=True, private=True)
    made = Made(
        len(content),
        len(window.rows),
        len(window.usable),
        source,
        [one.to_dict() for one in window.skipped],
    )
    note = json.dumps(asdict(made)).encode()
    write_atomically(_note(folder, number), note, overwrite=True, private=True)


def made_before(folder: Path, number: int) -> Made | None:
    """Return the note of a shard that is written and not in the manifest yet."""
    try:
        made = Made(**parse_any(_note(folder, number).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return made if _has(_shard(folder, number), made.size) else None


def _shard(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.parquet"


def _note(folder: Path, number: int) -> Path:
    return folder / f".part-{number:06}.json"


@dataclass(frozen=True)
class Shard:
    """A finished shard in the manifest: `source` is a hash of its records, `report` the size of the report after it."""

    file: str
    size: int
    rows: int
    records: int
    skipped: list[dict[str, Any]]
    source: str
    report: int


class OtherOptions(ParameterError):
    """A folder was begun with other options."""

    def __init__(self, folder: Path, difference: str) -> None:
        super().__init__(
            f"{folder} was begun with {difference}; use the same options, choose another folder, or remove this one."
        )
        self.difference = difference


class SourceChanged(InputError):
    """A folder was begun with another source."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the source has changed since {folder} was begun; remove that folder, or choose another."
        )


class ShardedTable:
    """The folder of a table, open in one process, and the report next to it."""

    def __init__(self, folder: Path, parameters: dict[str, Any]) -> None:
        self.folder = folder
        self.report = folder.with_name(f"{folder.name}.report.jsonl")
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
                check_place(self.report)
                if self.done:
                    self.report.chmod(0o600)
                    # What a killed process wrote beyond the manifest is rewritten.
                    os.truncate(self.report, self.done[-1].report)
                else:
                    self.report.unlink(missing_ok=True)
                    self._add_to_report(HEADER)
                self._write_manifest()
            # Lets another process have the folder.
            self.close = stack.pop_all().close

    def append(self, made: Made) -> None:
        """Take in the next shard, which is written."""
        number = len(self.done)
        reported = self._add_to_report(*made.skipped)
        reasons = Counter(
            Term.from_dict(SkipReason, one["reason"]) for one in made.skipped
        )
        shard = Shard(
            _shard(self.folder, number).name,
            made.size,
            made.rows,
            made.records,
            counts_to_list(reasons),
            made.source,
            reported,
        )
        self.done.append(shard)
        self._write_manifest()

    def refuse(self, skipped: Sequence[dict[str, Any]]) -> NoReturn:
        """List records that cannot be used, and raise."""
        if not self.finished:
            self._add_to_report(*skipped)
        raise InputError(
            f"is stop, but a record of the source cannot be used; see {self.report}.",
            parameter="unusable",
        )

    def finish(self) -> None:
        """Mark the table as finished: only now can it be read."""
        skipped: Counts = sum(
            (counts_from_list(shard.skipped) for shard in self.done), Counter()
        )
        self._add_to_report(
            {
                "records": sum(shard.records for shard in self.done),
                "embedded": sum(shard.rows for shard in self.done),
                "skipped": counts_to_list(skipped),
            }
        )
        for note in self.folder.glob(".part-*.json"):
            note.unlink()
        self.finished = True
        self._write_manifest()

    def _add_to_report(self, *entries: dict[str, Any]) -> int:
        """Add lines to the report, wait until they are on disk, and return its size."""
        with named(self.report), _opened(self.report, "ab") as file:
            file.writelines(map(as_line, entries))
            file.flush()
            # The manifest counts these bytes, so they come to the disk before it.
            os.fsync(file.fileno())
            return file.tell()

    def _read_manifest(self) -> tuple[list[Shard], bool]:
        """Return the finished shards, and whether the table is finished."""
        path = self.folder / MANIFEST
        if not path.exists():
            if any(entry.name[0] != "." for entry in self.folder.iterdir()):
                raise ParameterError(
                    f"{self.folder} must be a new folder or an unfinished table; it is neither."
                )
            return [], False
        try:
            manifest = parse_json(path.read_bytes())
            version = manifest["version"]
            parameters = manifest["parameters"]
            finished = manifest["finished"]
            shards = [Shard(**entry) for entry in manifest["shards"]]
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"{path} is damaged; write the table to another folder."
            ) from None
        if (version, parameters) != (_VERSION, self._parameters):
            others = [
                f"another {key}"
                for key, new in sorted(self._parameters.items())
                if parameters.get(key) != new
            ]
            raise OtherOptions(
                self.folder, ", ".join(others) or "another version of dppl"
            )

        # A finished table stays finished, even if its owner moved the report. An
        # unfinished one goes on from the first shard or line of the report that is gone.
        if finished and all(
            _has(self.folder / shard.file, shard.size) for shard in shards
        ):
            return shards, True
        whole = itertools.takewhile(
            lambda shard: (
                _has(self.folder / shard.file, shard.size)
                and _has(self.report, shard.report)
            ),
            shards,
        )
        return list(whole), False

    def _write_manifest(self) -> None:
        content = {
            "version": _VERSION,
            "finished": self.finished,
            "parameters": self._parameters,
        }
        content["shards"] = [asdict(shard) for shard in self.done]
        write_atomically(
            self.folder / MANIFEST,
            json.dumps(content, indent=1).encode(),
            overwrite=True,
            private=True,
        )


def _has(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size >= size
