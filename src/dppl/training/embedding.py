"""From records to a table of embeddings, in bounded memory: in this process, or in tasks of an engine."""

from __future__ import annotations

import json
import os
import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import chdir, closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa

from dppl._utils import validate
from dppl._utils.outside import parse_json
from dppl._utils.types import Float32
from dppl.encoders import Encoder
from dppl.encoders.columns import ColumnsEncoder
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.engines import Engine, LocalEngine
from dppl.errors import DpplError, EngineError, ParameterError
from dppl.io.kept import Kept, kept_in
from dppl.io.records.decoding import decode, described, quiet
from dppl.io.records.record import BadRecord, Payload, Record, Source
from dppl.io.tables.read import read_table
from dppl.io.tables.shards import (
    ShardedTable,
    SourceChanged,
    Window,
    made_before,
    write_shard,
)
from dppl.io.tables.writing import ROWS, Rows, table_schema, to_storage
from dppl.kernel.parts import once_each
from dppl.kernel.privacy.terms import Caveat, Term
from dppl.reasons import SkipReason

Progress: TypeAlias = Callable[[int], object]
# A record, what the encoder takes of it and the hash of its content, or why there is
# nothing.
_Item: TypeAlias = tuple[Record, Any, bytes, Term[SkipReason] | None]
# Images take more memory.
_SHARD_ROWS = {"image": 512}
_OTHER_SHARD_ROWS = 4096
_MOST_WORKERS = 8
_ROWS = 1024  # of a window of a finished table
_KEPT = ".embeddings"  # of the shard that is not finished


@dataclass(frozen=True, slots=True)
class Embedded:
    """Where a table lies.

    Attributes
    ----------
    table : Path
        Folder of Parquet shards, for `dppl.io.read_table`.
    report : Path
        List of the records that were skipped, for their owner only.
    is_new : bool
        False if the table was finished before.
    """

    table: Path
    report: Path
    is_new: bool


def embed(
    source: Source,
    encoder: Encoder,
    out: str | os.PathLike[str],
    *,
    rows: Rows = "float16",
    workers: int | None = None,
    unusable: Literal["skip", "stop"] = "skip",
    shard_rows: int | None = None,
    progress: Callable[[int], object] | None = None,
    engine: Engine | None = None,
) -> Embedded:
    """Embed the records of a source and write them as a folder of Parquet shards.

    Interrupted work goes on where it stopped and ends with the same bytes, as does work of tasks in any order. Memory
    does not grow with the number of records.

    Parameters
    ----------
    source : Source
        See `open_source`.
    encoder : Encoder
        A frozen public encoder of the source's modality.
    out : path-like
        Folder for the table: a new one, or one to go on with. The report on skipped
        records is written next to it.
    rows : {"float16", "int8", "float32"}, default="float16"
        int8 means rows of the plain lattice, a quarter of the size of float32.
    workers : int, default=None
        Threads that read, decode and prepare; None takes one a core, at most 8.
    unusable : {"skip", "stop"}, default="skip"
        What a record that cannot be used does: it is skipped, or stops the work.
    shard_rows : int, default=None
        Records of the source that one shard stands for; None takes 512 of images and
        4096 of others.
    progress : callable, default=None
        Called with the number of records done since the last call.
    engine : Engine, default=None
        Where shards are made: `dppl.engines.RayEngine` makes them in tasks, on machines
        that see the files of the source and `out` under the same paths. None is this
        process.

    Returns
    -------
    Embedded

    Raises
    ------
    ParameterError
        If a parameter breaks its rule, the encoder is of another modality than the
        source, `out` holds something else or was begun with other parameters, or the
        records lie in no files that tasks could read.
    InputError
        If the source cannot be read or has changed since the work was interrupted, or a
        record stops the work.
    EngineError
        If the engine does not work, or an encoder differs on one of its machines.

    Notes
    -----
    **Privacy.** Unit: one record of the source. Nothing is released: the table and the
    report are as private as the records. An embedding depends on its record alone if
    the encoder's fingerprint says that its rows are independent; else the table's
    metadata say ``not_covered``. Whether a record is skipped depends on that record
    alone. No message tells a record or a number of them. Tasks read records and write
    shards themselves: what travels is paths and parameters.
    """
    validate.one_of(ROWS, rows=rows)
    validate.one_of(("skip", "stop"), unusable=unusable)
    if shard_rows is None:
        shard_rows = _SHARD_ROWS.get(source.modality, _OTHER_SHARD_ROWS)
    validate.positive_integer(shard_rows=shard_rows)
    _check(source, encoder, workers)
    # What decides the bytes of the table goes into its manifest, so that nobody goes on
    # with other options.
    maker = table_metadata(encoder)
    parameters = {
        **maker,
        "source": source.parameters,
        "rows": rows,
        "shard_rows": shard_rows,
    }
    report = progress or _no_progress
    shards = _Shards(
        source=source,
        encoder=encoder,
        folder=Path(out).absolute(),
        rows=rows,
        shard_rows=shard_rows,
        workers=workers,
        stops=unusable == "stop",
    )
    if engine is None or isinstance(engine, LocalEngine):
        engine = LocalEngine()
        shards.progress = report
        make: Callable[[int], None] = shards.make
    else:
        if source.again is None:
            raise ParameterError(
                "needs records in files that every task can read; write these to a file first.",
                parameter="engine",
            )
        engine.check()
        make = partial(_make_in_task, shards.to_bytes(), getattr(engine, "cores", 1))
    with closing(ShardedTable(Path(out), parameters)) as table:
        n = source.count()
        # A source without records still has one shard, which holds the schema.
        numbers = range(max(1, -(-n // shard_rows)))
        # Records of finished shards are passed over; their hashes must be the same as
        # before: a table has one source.
        for number, shard in enumerate(table.done):
            with shards.records(number) as records:
                deque(records, maxlen=0)
            if number not in numbers or records.digest != shard.source:
                raise SourceChanged(table.folder)
            report(shard.records)
        if table.finished and len(table.done) < len(numbers):
            raise SourceChanged(table.folder)
        if shards.stops and any(shard.skipped for shard in table.done):
            table.refuse([])
        if table.finished:
            (table.folder / _KEPT).unlink(missing_ok=True)
            return Embedded(table.folder, table.report, False)
        numbers = numbers[len(table.done) :]
        with kept_in(table.folder / _KEPT, maker_of(encoder)) as shards.kept:
            written = set()
            for place, _ in once_each(engine, make, numbers):
                written.add(numbers[place])
                while (number := len(table.done)) in written:
                    made = made_before(table.folder, number)
                    if made is not None and made.skipped and shards.stops:
                        table.refuse(made.skipped)
                    expected = min(shard_rows, n - number * shard_rows)
                    if made is None or made.records != expected:
                        raise SourceChanged(table.folder)
                    table.append(made)
                    if shards.progress is not report:
                        report(made.records)
                    if shards.kept is not None:
                        shards.kept.clear()
        table.finish()
    return Embedded(table.folder, table.report, True)


def _no_progress(_: int) -> None:
    """Show nothing."""


@dataclass(kw_only=True)
class _Shards:
    """Makes the shards of a table, one at a time: in the process that owns the table, or in a task."""

    source: Source
    encoder: Encoder
    folder: Path
    rows: Rows
    shard_rows: int
    workers: int | None
    stops: bool  # at a record that cannot be used
    progress: Progress = _no_progress
    kept: Kept | None = None
    # A place and the records from there, for whoever makes a later shard.
    _open: tuple[int, Iterator[Record]] | None = field(default=None, init=False)

    def schema(self) -> pa.Schema:
        """Return the schema of a shard. Pickled, it would have another order of metadata and so other bytes."""
        return table_schema(
            self.source.label_type,
            self.encoder.dimension,
            self.rows,
            table_metadata(self.encoder),
            person_type=self.source.person_type,
        )

    def make(self, number: int) -> None:
        """Write a shard and its note, unless they are there from the same records."""
        made = made_before(self.folder, number)
        if made is not None:
            with self.records(number) as records:
                deque(records, maxlen=0)
            if records.digest == made.source:
                self.progress(made.records)
                return
        window = Window()
        with self.records(number) as records:
            for part in _windows(
                records,
                self.encoder,
                self.rows,
                self.workers,
                self.progress,
                self.kept,
            ):
                window.extend(part)
                if self.stops and window.skipped:
                    break
        write_shard(self.folder, number, window, self.schema(), records.digest)

    @contextmanager
    def records(self, number: int) -> Iterator[_Stream]:
        """Give the records of a shard, read on from those of the last one where these come before."""
        first = number * self.shard_rows
        place, records = self._open or (first + 1, iter(()))
        # Where the block raises it stays like this, for then nobody knows the place.
        self._open = None
        if place > first or (self.source.seeks and place < first):
            place, records = first, self.source.since(first)
        deque(islice(records, first - place), maxlen=0)
        window = _Stream(islice(records, self.shard_rows))
        yield window
        self._open = first + window.count, records

    def to_bytes(self) -> bytes:
        """Return what a task needs. Each work has a name, so that none reads on in what was opened for another."""
        names = ("folder", "rows", "shard_rows", "workers", "stops")
        return pickle.dumps(
            (
                uuid4().hex,
                Path.cwd(),
                table_metadata(self.encoder),
                pickle.dumps((self.source.again, self.encoder)),
                {name: getattr(self, name) for name in names},
            )
        )


def _make_in_task(content: bytes, cores: int, number: int) -> None:
    _shards_from(content, cores).make(number)


@lru_cache(maxsize=1)
def _shards_from(content: bytes, cores: int) -> _Shards:
    """Open the source and load the encoder in another process, whose tasks share both."""
    _, folder, maker, opened, common = pickle.loads(content)
    with chdir(folder):  # the URI of an encoder may be a relative path
        again, encoder = pickle.loads(opened)
    if table_metadata(encoder) != maker:
        raise EngineError(
            "the encoder must be the same on all machines of a cluster; libraries, weights or processors differ."
        )
    if isinstance(encoder, FixedShapeEncoder):
        encoder.workers = cores
    common["workers"] = common["workers"] or cores
    return _Shards(source=again(), encoder=encoder, **common)


def embed_windows(
    source: Source,
    encoder: Encoder,
    *,
    rows: Rows = "float32",
    progress: Callable[[int], object] | None = None,
    kept: Kept | None = None,
) -> Iterator[Window]:
    """Yield what `embed` would write, at most ``encoder.window`` records at a time, and write nothing but `kept`."""
    _check(source, encoder, None)
    return _windows(source, encoder, rows, None, progress or (lambda _: None), kept)


def windows_of(source: Source, done: Embedded) -> Iterator[Window]:
    """Yield what `embed_windows` would of a source that `embed` has made a table of."""
    rows = chain.from_iterable(read_table(done.table, y=None).blocks(_ROWS))
    records = iter(source)
    with done.report.open("rb") as report:
        # Between a head and the totals, the skipped records in their order.
        listed = map(parse_json, islice(report, 1, None))
        skipped = next(listed)
        while some := list(islice(records, _ROWS)):
            window = Window()
            for record in some:
                row: Any
                if (record.id, record.reference) == (
                    skipped.get("id"),
                    skipped.get("reference"),
                ):
                    row = Term.from_dict(SkipReason, skipped["reason"])
                    skipped = next(listed)
                else:
                    row = next(rows, None)
                if row is None:
                    raise SourceChanged(done.table)
                window.add(record, row)
            yield window


def _check(source: Source, encoder: Encoder, workers: int | None) -> None:
    if workers is not None:
        validate.positive_integer(workers=workers)
    if source.modality not in ("", encoder.modality):
        raise ParameterError(
            f"the encoder must be one for {source.modality}s, as the source holds; {encoder.fingerprint.uri} is for "
            f"{encoder.modality}s."
        )


def table_metadata(encoder: Encoder) -> dict[str, str]:
    """Return what the embeddings come from, as the table's metadata say it."""
    maker = {
        "encoder": encoder.fingerprint.text(),
        "decoder": described(encoder.modality),
    }
    # Where rows of one batch may change each other, a fit must say so.
    fixed = encoder.fingerprint.row_independent
    if fixed:
        return maker
    return {**maker, "not_covered": Caveat.ROWS_MIX.value}


def maker_of(encoder: Encoder) -> str:
    """Return what decides embeddings besides the records, for `Kept`."""
    return json.dumps(table_metadata(encoder), sort_keys=True)


class _Stream(Iterator[Record]):
    """Records of a source, with the number and the hash of those that went by."""

    def __init__(self, records: Iterator[Record]) -> None:
        self.count = 0
        self._records = records
        self._hash = sha256()

    def __next__(self) -> Record:
        record = next(self._records)
        self.count += 1
        # Versions stand for contents, which are not loaded to be compared.
        seen = repr(
            (record.id, record.reference, record.label, record.version, record.person)
        )
        self._hash.update(seen.encode("utf-8", "backslashreplace"))
        return record

    @property
    def digest(self) -> str:
        """Hash of ids, references, labels, versions and ids of persons so far."""
        return self._hash.hexdigest()


def _windows(
    records: Iterable[Record],
    encoder: Encoder,
    rows: str,
    workers: int | None,
    progress: Progress,
    kept: Kept | None = None,
) -> Iterator[Window]:
    """Embed records: worker threads read, decode and prepare ahead, this thread encodes."""
    if _is_quick(encoder):
        kept = None
    workers = workers or min(_MOST_WORKERS, os.cpu_count() or 1)
    # Libraries would warn about single files, which are private. Pillow and tokenizers
    # let go of the lock.
    with quiet(), ThreadPoolExecutor(workers) as pool:
        try:
            ahead = encoder.window + workers
            items = _prepared_ahead(records, encoder, pool, ahead, kept is not None)
            while batch := list(islice(items, encoder.window)):
                usable = [item for item in batch if item[-1] is None]
                window = Window()
                # In this thread alone: encoders own their device.
                x = np.empty((0, encoder.dimension), np.float32)
                if usable:
                    x = _encoded(usable, encoder, progress, kept)
                progress(len(batch) - len(usable))
                # A number that float32 holds may be infinite in float16.
                stored = to_storage(np.asarray(x), rows)
                finite = np.isfinite(x).all(axis=1) & np.isfinite(stored).all(axis=1)
                embedded = iter(zip(stored, finite, strict=True))
                for record, _, _, reason in batch:
                    if reason is None:
                        row, good = next(embedded)
                        if not good:
                            reason = Term(SkipReason.NOT_FINITE, rows=rows)
                    window.add(record, row if reason is None else reason)
                yield window
        finally:
            pool.shutdown(cancel_futures=True)


def _encoded(
    items: Sequence[_Item], encoder: Encoder, progress: Progress, kept: Kept | None
) -> Float32:
    """Embed prepared records, except for those whose embeddings are kept."""
    batch = [content for _, content, _, _ in items]
    if kept is None:
        return encoder.encode_prepared(batch, progress)

    def recall(
        shape: Hashable,
        places: Sequence[tuple[int, int]],
        compute: Callable[[], Float32],
    ) -> Float32:
        # What is computed together may round together, so all of it is the key.
        key = sha256(repr(shape).encode())
        for place, piece in places:
            key.update(items[place][2] + piece.to_bytes(8, "big"))
        return kept.rows(key.digest(), encoder.dimension, compute)

    if isinstance(encoder, FixedShapeEncoder):
        return encoder.encode_prepared(batch, progress, recall)
    return recall(
        "window",
        [(place, 0) for place in range(len(batch))],
        lambda: encoder.encode_prepared(batch, progress),
    )


def _prepared_ahead(
    records: Iterable[Record],
    encoder: Encoder,
    pool: ThreadPoolExecutor,
    ahead: int,
    hashes: bool,
) -> Iterator[_Item]:
    """Prepare records in threads, no more than `ahead` at a time, and yield them in order."""
    if _is_quick(encoder):
        yield from (_prepare(record, encoder, hashes) for record in records)
        return
    waiting: deque[Future[_Item]] = deque()
    for record in records:
        waiting.append(pool.submit(_prepare, record, encoder, hashes))
        if len(waiting) >= ahead:  # bounds the memory
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _is_quick(encoder: Encoder) -> bool:
    """Return whether to embed a record takes less than to hand it to a thread, or to keep its embedding."""
    return isinstance(encoder, ColumnsEncoder) and not encoder.reads_texts


def _prepare(record: Record, encoder: Encoder, hashes: bool) -> _Item:
    try:
        payload = record.load()
        content = prepared(encoder, payload)
    except BadRecord as skipped:
        return record, None, b"", skipped.reason
    return record, content, _hash(payload) if hashes else b"", None


def _hash(payload: Any) -> bytes:
    """Return the hash of a content, or nothing of an image in memory, of which nothing is kept."""
    if isinstance(payload, Mapping):
        payload = repr(payload)
    if isinstance(payload, str):
        payload = payload.encode()
    if isinstance(payload, bytes):
        return sha256(payload).digest()
    return b""


def prepared(encoder: Encoder, payload: Payload) -> Any:
    """Return what a record holds as the encoder takes it."""
    content = decode(payload, encoder.modality)
    try:
        return encoder.prepare(content)
    except (DpplError, MemoryError):
        raise
    except Exception:  # whatever an encoder says of an odd image or text may quote it
        raise BadRecord(SkipReason.NOT_PREPARED) from None
