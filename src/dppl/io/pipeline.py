"""From records to a table of embeddings, in bounded memory."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dppl import _validate
from dppl._files import write_atomically
from dppl.encoders import Encoder
from dppl.engines import Engine
from dppl.errors import DpplError, ParameterError
from dppl.io.cache import Cache
from dppl.io.decoding import decode, described, quiet
from dppl.io.left_out import LeftOut
from dppl.io.records import BadRecord, Payload, Record, Source
from dppl.io.shards import Shard, ShardedTable, SourceChanged, Window, write_shard
from dppl.io.writing import ROWS, Rows, table_schema, to_storage

Progress: TypeAlias = Callable[[int], object]
# An interrupted run begins a shard anew: images take long, and texts fill batches of many lengths.
_SHARD_ROWS = {"image": 512}
_OTHER_SHARD_ROWS = 4096
_MOST_WORKERS = 8
_NOT_COVERED = "on this device an embedding may differ by rounding with the records that were embedded beside it"


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
    strict: bool = False,
    shard_rows: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] | None = None,
    engine: Engine | None = None,
) -> Embedded:
    """Embed the records of a source and write them as a folder of Parquet shards.

    Interrupted work goes on at the last finished shard and ends with the same bytes. Memory does not grow with the
    number of records.

    Parameters
    ----------
    source : Source
        See `open_source`.
    encoder : Encoder
        A frozen public encoder of the source's modality.
    out : path-like
        Folder for the table: a new one, or one to go on with. The report on skipped records is written next to it.
    rows : {"float16", "int8", "float32"}, default="float16"
        int8 means rows of the plain lattice, a quarter of the size of float32.
    workers : int, default=None
        Threads that read, decode and prepare; None takes one a core, at most 8.
    strict : bool, default=False
        Whether a record that cannot be used stops the work.
    shard_rows : int, default=None
        Records of the source that one shard stands for; None takes 512 of images and 4096 of others.
    cache : path-like, default=None
        Folder with embeddings of contents that were met before, for this and other tables. It holds private data as
        the table does, and outlives it.
    progress : callable, default=None
        Called with the number of records done since the last call.
    engine : Engine, default=None
        Where shards are embedded: `dppl.engines.RayEngine` does it on several machines, which see the source and `out`
        under the same paths. A task reads its records and writes its shard; neither travels. None is this process.

    Returns
    -------
    Embedded

    Raises
    ------
    ParameterError
        If a parameter breaks its rule, the encoder is of another modality than the source, or `out` holds something
        else or was begun with other parameters.
    InputError
        If the source cannot be read or has changed since the work was interrupted, or with `strict`.

    Notes
    -----
    **Privacy.** Unit: one record of the source. Nothing is released: the table, the report and the cache are as
    private as the records. An embedding depends on its record alone if the encoder's fingerprint says that its rows are
    independent; else the table's metadata say ``not_covered``. Whether a record is skipped depends on that record
    alone. No message tells a record or a number of them.
    """
    _validate.one_of(ROWS, rows=rows)
    shard_rows = _SHARD_ROWS.get(source.modality, _OTHER_SHARD_ROWS) if shard_rows is None else shard_rows
    _validate.positive_integer(shard_rows=shard_rows)
    if workers is not None:
        _validate.positive_integer(workers=workers)
    _check_modality(source, encoder)
    # What decides the bytes of the table goes into its manifest, so that nobody goes on with other options.
    maker = table_metadata(encoder)
    parameters = {**maker, "source": source.parameters, "rows": rows, "shard_rows": shard_rows}
    schema = table_schema(source.label_type, encoder.dimension, rows, maker, person_type=source.person_type)
    report = progress or _ignore
    with ExitStack() as stack:
        table = stack.enter_context(closing(ShardedTable(Path(out), schema, parameters)))
        # Records of finished shards are passed over; their hash must be that of before: a table is of one source.
        records = _Stream(source)
        for done in table.done:
            records.skip(done.records)
            if records.digest != done.source:
                raise SourceChanged(table.folder)
            report(done.records)
        if table.finished and next(records, None) is not None:
            raise SourceChanged(table.folder)
        if strict and any(shard.left_out for shard in table.done):
            table.refuse([])
        if table.finished:
            return Embedded(table.folder, table.report, False)
        if engine is not None:
            if cache is not None:
                raise ParameterError("goes with one process, and not with an engine.", parameter="cache")
            if source.reopen is None:
                raise ParameterError("goes with a source in files, which tasks open by themselves.", parameter="engine")
            task = {"reopen": source.reopen, "encoder": encoder, "folder": table.folder.absolute()}
            task |= {"schema": schema.serialize().to_pybytes(), "rows": rows, "workers": workers}
            job = _Job(pickle.dumps({**task, "run": time.time_ns()}))  # two runs must not share a stream
            # Before a shard is written, so that a cluster that cannot be used costs nothing.
            engine.check()
            shards = _embed_in_tasks(records, table, engine, job, shard_rows, report)
        else:
            store = None
            if cache is not None:
                store = stack.enter_context(closing(Cache(Path(cache), repr(sorted(maker.items())), encoder.dimension)))
            work = stack.enter_context(_at_work(encoder, rows, workers, store))
            shards = _embed_here(records, table, work, shard_rows, strict, report)
        for shard in shards:
            if strict and shard.left_out:
                table.refuse(shard.left_out)
            table.append(shard)
        # Only now do readers take the folder for a table.
        table.finish()
    return Embedded(table.folder, table.report, True)


def embed_windows(
    source: Source,
    encoder: Encoder,
    *,
    rows: Rows = "float32",
    workers: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Window]:
    """Yield what `embed` would write, at most ``encoder.window`` records at a time, and write nothing."""
    _validate.one_of(ROWS, rows=rows)
    _check_modality(source, encoder)
    with _at_work(encoder, rows, workers) as work:
        yield from work.windows(_Stream(source), progress or _ignore)


def _ignore(_: int) -> None:
    pass


def _check_modality(source: Source, encoder: Encoder) -> None:
    if encoder.modality != source.modality:
        raise ParameterError(
            f"the encoder must be one for {source.modality}s, as the source holds; {encoder.fingerprint.uri} is for "
            f"{encoder.modality}s."
        )


def table_metadata(encoder: Encoder) -> dict[str, str]:
    """Return what the embeddings come from, as the table's metadata say it."""
    maker = {"encoder": encoder.fingerprint.text(), "decoder": described(encoder.modality)}
    # An encoder for predictions lets company decide the shape of a batch, which no fit may rest on.
    fixed = encoder.fingerprint.row_independent and not getattr(encoder, "spares", False)
    return maker if fixed else {**maker, "not_covered": _NOT_COVERED}


class _Stream(Iterator[Record]):
    """The records of a source, with the number and the hash of those that went by."""

    def __init__(self, source: Source) -> None:
        self.count = 0
        self._records = iter(source)
        self._hash = sha256()

    def __next__(self) -> Record:
        record = next(self._records)
        self.count += 1
        # Versions stand for contents, which are not loaded to be compared.
        seen = repr((record.id, record.reference, record.label, record.version, record.person))
        self._hash.update(seen.encode("utf-8", "backslashreplace"))
        return record

    @property
    def digest(self) -> str:
        """Hash of ids, references, labels, versions and ids of persons so far."""
        return self._hash.hexdigest()

    def skip(self, records: int) -> int:
        """Pass over some records; return how many there were."""
        before = self.count
        deque(islice(self, records), maxlen=0)
        return self.count - before


def _embed_here(
    records: _Stream, table: ShardedTable, work: _Work, shard_rows: int, strict: bool, progress: Progress
) -> Iterator[Shard]:
    """Write shard after shard of the records that are left; with `strict`, stop at the first that cannot be used."""
    taken = shard_rows
    while taken == shard_rows:
        before, window = records.count, Window()
        for part in work.windows(islice(records, shard_rows), progress):
            window.extend(part)
            if strict and window.left_out:
                table.refuse(window.left_out)
        taken = records.count - before
        # A source without records still has one shard, which holds the schema.
        if taken or not table.done:
            size = write_shard(table.folder, len(table.done), window, table.schema)
            yield Shard(size, len(window.rows), taken, window.left_out, records.digest)


class _Stretch(NamedTuple):
    """The records that one shard stands for; `digest` is the hash of the source up to its end."""

    number: int
    first: int
    records: int
    digest: str


def _embed_in_tasks(
    records: _Stream, table: ShardedTable, engine: Engine, job: _Job, shard_rows: int, progress: Progress
) -> Iterator[Shard]:
    """Let tasks write the shards that are missing, and yield them in order."""
    begun, stretches = len(table.done), list[_Stretch]()
    taken = shard_rows
    while taken == shard_rows:
        first = records.count
        taken = records.skip(shard_rows)
        if taken or not (begun or stretches):
            stretches.append(_Stretch(begun + len(stretches), first, taken, records.digest))
    written: dict[int, tuple[int, int]] = {}
    for place, (digest, size, rows) in engine.each(job, stretches):
        if digest != stretches[place].digest:
            raise SourceChanged(table.folder)
        written[place] = size, rows
        progress(stretches[place].records)
        # Tasks end in any order; the table grows in that of the source.
        while (number := len(table.done) - begun) in written:
            stretch = stretches[number]
            report = _left_out_file(table.folder, stretch.number)
            left_out = [LeftOut(*entry) for entry in json.loads(report.read_bytes())]
            report.unlink()
            yield Shard(*written.pop(number), stretch.records, left_out, stretch.digest)


@dataclass(frozen=True, slots=True)
class _Job:
    """Embeds a stretch in a task. It travels with paths, names and the public encoder, all pickled once."""

    state: bytes

    def __call__(self, stretch: _Stretch) -> tuple[str, int, int]:
        """Embed a stretch, write its shard and the list of what was skipped; return digest, size and rows."""
        opened = _opened(self.state)
        # A task that ran again elsewhere may come after a later one.
        if opened.records is None or opened.records.count > stretch.first:
            opened.records = _Stream(opened.reopen())
        records = opened.records
        records.skip(stretch.first - records.count)
        window = Window()
        with _at_work(opened.encoder, opened.rows, opened.workers) as work:
            for part in work.windows(islice(records, stretch.records), _ignore):
                window.extend(part)
        # What is skipped is private: it goes through a file of its owner, and not over the network.
        content, folder = json.dumps(window.left_out).encode(), opened.folder
        write_atomically(_left_out_file(folder, stretch.number), content, overwrite=True, private=True)
        # Arrow's own pickle of a schema drops what lists call their elements.
        schema = pa.ipc.read_schema(pa.py_buffer(opened.schema))
        return records.digest, write_shard(folder, stretch.number, window, schema), len(window.rows)


@lru_cache(maxsize=1)  # one encoder and one pass over the source for all tasks of a process
def _opened(state: bytes) -> SimpleNamespace:
    return SimpleNamespace(**pickle.loads(state), records=None)


def _left_out_file(folder: Path, number: int) -> Path:
    # Whoever goes on after an interruption removes such names.
    return folder / f".left-out-{number:06}.part"


@dataclass(slots=True)
class _Item:
    """A record on its way: prepared, embedded before, or skipped for a reason."""

    record: Record
    key: bytes | None = None
    prepared: Any = None
    x: NDArray[Any] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """Embeds records: worker threads read, decode and prepare ahead, this thread encodes."""

    encoder: Encoder
    rows: str
    cache: Cache | None
    pool: ThreadPoolExecutor
    ahead: int

    def windows(self, records: Iterable[Record], progress: Progress) -> Iterator[Window]:
        """Yield what becomes of some records, a window at a time."""
        items = self._prepared(records)
        while window := list(islice(items, self.encoder.window)):
            # What the cache has, or what cannot be used, needs no encoder.
            fresh = [item for item in window if item.x is None and item.reason is None]
            if fresh:
                # In this thread alone: encoders own their device.
                embeddings = self.encoder.encode_prepared([item.prepared for item in fresh], progress)
                for item, x in zip(fresh, embeddings, strict=True):
                    item.x, item.prepared = x, None
            if self.cache is not None:
                self.cache.add((item.key, item.x) for item in fresh if item.key is not None and item.x is not None)
            progress(len(window) - len(fresh))
            yield self._stored(window)

    def _prepared(self, records: Iterable[Record]) -> Iterator[_Item]:
        """Prepare records in threads, no more than `ahead` at a time, and yield them in order."""
        waiting: deque[Future[_Item]] = deque()
        for record in records:
            waiting.append(self.pool.submit(self._prepare, record))
            if len(waiting) >= self.ahead:  # bounds the memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _prepare(self, record: Record) -> _Item:
        item = _Item(record)
        try:
            payload = record.load()
            if self.cache is not None:
                content = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
                item.key = self.cache.key(content)
                item.x = self.cache.get(item.key)
            if item.x is None:
                item.prepared = prepared(self.encoder, payload)
        except BadRecord as reason:
            item.reason = str(reason)
        return item

    def _stored(self, window: list[_Item]) -> Window:
        """Return what was embedded, in the order of the source, and the list of what was not."""
        embedded = [item for item in window if item.x is not None]
        if embedded:
            x = np.stack([item.x for item in embedded if item.x is not None])
            # A number that float32 holds may be infinite in float16.
            stored = to_storage(x, self.rows)
            finite = np.isfinite(x).all(axis=1) & np.isfinite(stored).all(axis=1)
            for item, row, good in zip(embedded, stored, finite, strict=True):
                item.x, item.reason = row, None if good else f"its embedding is not finite in {self.rows}"
        outcome = Window()
        for item in window:
            record = item.record
            if item.reason is not None:
                outcome.left_out.append(LeftOut(record.id, record.reference, item.reason))
            elif item.x is not None:
                outcome.ids.append(record.id)
                outcome.references.append(record.reference)
                outcome.labels.append(record.label)
                outcome.persons.append(record.person)
                outcome.rows.append(item.x)
        return outcome


def prepared(encoder: Encoder, payload: Payload) -> Any:
    """Return what a record holds as the encoder takes it."""
    content = decode(payload, encoder.modality)
    try:
        return encoder.prepare(content)
    except (DpplError, MemoryError):
        raise
    except Exception:  # whatever an encoder says of an odd image or text may quote it
        raise BadRecord("the encoder cannot prepare it") from None


@contextmanager
def _at_work(encoder: Encoder, rows: str, workers: int | None, cache: Cache | None = None) -> Iterator[_Work]:
    workers = workers or min(_MOST_WORKERS, os.cpu_count() or 1)
    # Libraries would warn about single files, which are private. Pillow and tokenizers let go of the lock.
    with quiet(), ThreadPoolExecutor(workers) as pool:
        try:
            yield _Work(encoder, rows, cache, pool, encoder.window + workers)
        finally:
            pool.shutdown(cancel_futures=True)
