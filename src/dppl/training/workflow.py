"""From raw records to a model: public data and the account first, then the private records, then the fit.

`train` keeps the embeddings of a source in a folder until the model is saved; `PrivateClassifier` takes the same steps
with items in memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dppl._files import write_atomically
from dppl._metadata import COLUMNS
from dppl.encoders import Encoder
from dppl.errors import InputError, ParameterError
from dppl.estimators.public_data import PublicData
from dppl.io import PERSON, Columns, Embedded, EmbeddingTable, Source, embed, read_ids, read_table
from dppl.io.decoding import quiet
from dppl.io.pipeline import prepared
from dppl.io.records import BadRecord, Record
from dppl.io.shards import OtherOptions, Skipped, SourceChanged, as_line
from dppl.kernel.lattice import usable_rows
from dppl.kernel.persons import ids_of_fit
from dppl.kernel.reading import NOT_ALL_USABLE, class_codes, refuse_unusable_records
from dppl.training.descriptions import embed_examples

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.kernel.privacy import Ledger

__all__ = ["ROWS", "TRAINING", "no_records", "report_of", "save", "settle", "train", "work_in"]

# What embeddings of a fit are held in, as `dppl embed` does by itself.
ROWS: Final = "float16"
# What lies beside them while weights are trained.
TRAINING = "training"
_WORK = ("private", "private.report.jsonl", "public", "public.report.jsonl", TRAINING, f"{TRAINING}.lock")
_CHECKED = 1024  # records at a time
_UNKNOWN_LABEL = "its label is not in the list of classes"
_NO_DIRECTION = "its embedding is all zeros"
# Shows how far a stage is: the embedding of a source, whose progress it takes, or the fit (None).
Watch: TypeAlias = Callable[[Source | None], AbstractContextManager[Callable[[int], object] | None]]


def settle(
    estimator: EmbeddingClassifier,
    dimension: int,
    public: EmbeddingTable | None,
    examples: EmbeddingTable | None,
    *,
    ledger: Ledger | None,
    partition: str | None,
    of_persons: bool,
) -> bool:
    """Give an estimator its public data, and check what its fit promises and the account that pays for it.

    Return whether the fit reads private records: a budget of mu = 0 makes a model of examples alone. Whatever is wrong
    with public data or the account shows here, before private records take their time.
    """
    estimator.public = PublicData(public, examples)
    plan = estimator.plan(dimension)
    promised = plan.guarantee_on(None, () if of_persons else None)
    if ledger is not None and promised.releases:
        ledger.check(promised, partition=partition)
    return examples is None or bool(plan.guarantee.releases)


def no_records(dimension: int, examples: EmbeddingTable, of_persons: bool) -> tuple[EmbeddingTable, Any, Any]:
    """Return rows, labels and ids of persons for a fit that reads no private records."""
    nothing = np.empty(0, np.int64)
    rows = EmbeddingTable.of(np.empty((0, dimension)), metadata=examples.metadata)
    return rows, nothing, nothing if of_persons else None


def check_records(
    source: Source, encoder: Encoder, classes: NDArray[Any], unknown_labels: str, *, strict: bool
) -> None:
    """Stop over what cannot be used before anything is embedded or charged, as a fit would stop over it."""
    if unknown_labels == "ignore" and not strict:
        return
    records = iter(source)
    with quiet():
        while window := list(islice(records, _CHECKED)):
            labels = np.array([*(record.label for record in window), None], object)[:-1]
            known = class_codes(labels, classes, "ignore") >= 0
            # Only these need be read: a record that cannot be used does not stop a fit by its label.
            doubtful = [place for place in range(len(window)) if strict or not known[place]]
            usable = np.ones(len(window), bool)
            usable[doubtful] = [_is_usable(window[place], encoder) for place in doubtful]
            if strict:
                refuse_unusable_records(usable, labels, classes)
            else:
                class_codes(labels[usable], classes, unknown_labels)


def _is_usable(record: Record, encoder: Encoder) -> bool:
    try:
        prepared(encoder, record.load())
    except BadRecord:
        return False
    return True


def embed_all(
    source: Source,
    encoder: Encoder,
    folder: Path,
    progress: Callable[[int], object] | None,
    *,
    strict: bool,
) -> Embedded:
    """Embed the private records; a strict run stops by the message of `check_records`."""
    try:
        return embed(source, encoder, folder, rows=ROWS, progress=progress, strict=strict)
    except InputError as error:
        if error.parameter != "strict":
            raise
        raise InputError(NOT_ALL_USABLE, parameter="strict") from None


def left_out_of(report: Path, table: EmbeddingTable, classes: NDArray[Any], usable: NDArray[np.bool_]) -> bytes:
    """Return the owner's list of the records that a fit leaves out: those of `embed`, and those of the fit itself.

    `report` is that of `embed`, `table` what it embedded, and `usable` says which of its rows the fit can use.
    """
    assert table.y is not None
    places = np.flatnonzero((class_codes(table.y, classes, "ignore") < 0) | ~usable)
    named = pa.concat_tables(part.columns(["id", "reference"]) for part in table.fragments()).take(places)
    rest = [
        Skipped(**row, reason=_UNKNOWN_LABEL if usable[place] else _NO_DIRECTION)
        for place, row in zip(places, named.to_pylist(), strict=True)
    ]
    *lines, totals = report.read_bytes().splitlines(keepends=True)
    counts = json.loads(totals)
    counts["left_out"] = dict(sorted((Counter(counts["left_out"]) + Counter(one.reason for one in rest)).items()))
    counts["used"] = counts["embedded"] - len(rest)
    return b"".join([*lines, *(as_line(one._asdict()) for one in rest), as_line(counts)])


def train(
    estimator: EmbeddingClassifier,
    source: Source,
    encoder: Encoder,
    out: Path,
    folder: Path,
    *,
    public: Source | EmbeddingTable | None = None,
    examples: Source | None = None,
    overwrite: bool = False,
    columns: Columns | None = None,
    ledger: Ledger | None = None,
    partition: str | None = None,
    watch: Watch = lambda _: nullcontext(),
) -> None:
    """Embed a labelled source, fit an estimator on it, and write the model, then the report on what was left out.

    Adjacency must be add-remove, because records that cannot be used are left out. With ids of persons the guarantee is
    for a person with all of their records. The folder holds tables of embeddings and is removed at the end:
    nothing that is read may lie in it. `columns`, for predictions, are published with the model, so they are
    only those that were typed: what a file calls its columns is its owner's. `watch` is opened with a source while it
    is embedded, and with None while the estimator is fitted.

    After an interruption the same call goes on where it stopped.
    """
    if estimator.adjacency != "add-remove":
        raise ParameterError(
            "adjacency must be 'add-remove', since records that cannot be used are left out; got "
            f"{estimator.adjacency!r}."
        )
    if source.label_type is None:
        raise InputError("the records have no labels.")
    of_persons = source.person_type is not None
    # Before hours of embedding.
    ids_of_fit([] if of_persons else None, np.empty((0, 1)), estimator.max_classes_per_person)
    # Persons have no place in a model, and nor has the name of their column.
    published = asdict(replace(columns or Columns(), person=None))
    typed = {name: value for name, value in published.items() if value is not None}
    kept = {COLUMNS: json.dumps(typed)} if typed else {}
    classes, strict = np.asarray(estimator.classes), estimator.unknown_labels == "strict"
    if not estimator.budget.is_zero:
        check_records(source, encoder, classes, estimator.unknown_labels, strict=strict)
    with work_in(folder):
        example_rows = None
        if examples is not None:  # first: they take less time than public rows
            with watch(examples) as progress:
                example_rows = embed_examples(examples, encoder, rows=ROWS, progress=progress)
            example_rows.metadata.update(kept)  # a model of examples alone keeps them, too
        if isinstance(public, Source):
            with watch(public) as progress:
                done = embed_all(public, encoder, folder / "public", progress, strict=False)
            public = read_table(done.table, y=None)
        reads = settle(
            estimator,
            encoder.dimension,
            public,
            example_rows,
            ledger=ledger,
            partition=partition,
            of_persons=of_persons,
        )
        left_out = b""
        if reads:
            with watch(source) as progress:
                done = embed_all(source, encoder, folder / "private", progress, strict=strict)
            rows = read_table(done.table)
            labels, groups = rows.y, read_ids(folder / "private", PERSON) if of_persons else None
            left_out = left_out_of(done.report, rows, classes, usable_rows(rows))
            rows.metadata.update(kept)
        else:
            assert example_rows is not None
            rows, labels, groups = no_records(encoder.dimension, example_rows, of_persons)
        with watch(None):
            estimator.fit(rows, labels, groups=groups, ledger=ledger, partition=partition)
        save(estimator, out, overwrite=overwrite)
        write_atomically(report_of(out), left_out, overwrite=True, private=True)


def report_of(model: Path) -> Path:
    """Return where `train` lists the records that it left out, for their owner only."""
    return model.with_name(f"{model.name}.private.jsonl")


def save(model: EmbeddingClassifier, out: Path, *, overwrite: bool) -> None:
    """Write a model; an error says whether its charge stays."""
    try:
        model.save(out, overwrite=overwrite)
    except OSError as error:
        if model.guarantee_.ledger_entry is not None:
            error.add_note(f"The ledger keeps the charge: {model.guarantee_.ledger_entry}.")
        raise


@contextmanager
def work_in(folder: Path) -> Iterator[None]:
    """Make the folder for the tables, or go on with one; after success remove it."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # It is removed at the end, so it must hold nothing of someone else; a part is a file that was being written.
        names = os.listdir(folder) if folder.is_dir() else ["a file"]
        if any(name not in _WORK and not (name[0] == "." and name.endswith(".part")) for name in names):
            raise ParameterError(
                f"{folder} must be a new folder, or one that an interrupted run left; it is something else, or holds "
                "it. Name another folder for the work."
            ) from None
    try:
        yield
    except SourceChanged:
        raise SourceChanged(folder) from None  # what else lies there, such as a checkpoint, is of the same records
    except OtherOptions as error:
        raise OtherOptions(folder, error.difference) from None
    except BaseException as error:
        if getattr(error, "parameter", None) == "strict":
            shutil.rmtree(folder)  # what lies there would tell how far the run came, and so at which record it stopped
        with suppress(OSError):
            folder.rmdir()  # if nothing was begun
        raise
    shutil.rmtree(folder)
