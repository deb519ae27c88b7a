"""From raw records to a model: public data and the account first, then the private records, then the fit.

`train` keeps the embeddings of a source in a folder until the model is saved;
`PrivateClassifier` takes the same steps with items in memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from dppl._utils.files import Output, remove_left, reserved, unpaid, write_atomically
from dppl._utils.metadata import COLUMNS
from dppl._utils.outside import parse_json
from dppl._utils.types import Array, Flags
from dppl.encoders import Encoder
from dppl.engines import Engine
from dppl.errors import InputError, ParameterError
from dppl.io import PERSON, Columns, EmbeddingTable, Source, read_ids, read_table
from dppl.io.records.decoding import decode, quiet
from dppl.io.records.record import BadRecord
from dppl.io.tables.shards import (
    OtherOptions,
    Skipped,
    SourceChanged,
    as_line,
    counts_from_list,
    counts_to_list,
)
from dppl.kernel.checking import NOT_ALL_USABLE, are_known, refuse_unusable_records
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.lattice import usable_rows
from dppl.kernel.persons import are_missing, ids_of_fit
from dppl.kernel.privacy.terms import Term
from dppl.kernel.reading import check_kind, public_classes, refuse_unknown_labels
from dppl.methods import EmbeddingClassifier, PublicData
from dppl.methods.fit_plan import Plan
from dppl.methods.released import Reported
from dppl.methods.start import Start
from dppl.reasons import SkipReason
from dppl.training import Embedded, embed
from dppl.training.descriptions import embed_examples
from dppl.training.embedding import prepared, table_metadata

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

# What embeddings of a fit are held in, as `dppl embed` does by itself.
ROWS: Final = "float16"
# What lies with them while weights are trained.
TRAINING = "training"
# The hashes of the model that is about to be saved and of what was asked for, and the
# list of skipped records.
_SAVED = "saved"
_WORK = (
    _SAVED,
    "private",
    "private.report.jsonl",
    "public",
    "public.report.jsonl",
    TRAINING,
    f"{TRAINING}.lock",
)
_CHECKED = 1024  # records at a time
# Shows how far a stage is: the embedding of a source, whose progress it takes, or the
# fit (None).
Watch: TypeAlias = Callable[
    [Source | None], AbstractContextManager[Callable[[int], object] | None]
]


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
    engine: Engine | None = None,
    ledger: Ledger | None = None,
    partition: str | None = None,
    asked: str = "",
    compared: bool = False,
    watch: Watch = lambda _: nullcontext(),
) -> None:
    """Embed a labelled source, fit an estimator on it, and write the model, then the report on what was skipped.

    The folder holds tables of embeddings and is removed at the end; after an
    interruption the same call goes on with it. `columns`, for predictions, are
    published with the model, so they are only those that were typed. `asked` is what
    `finish` compares. Labels that `refuse_early` has `compared` are not read again: to an
    encoder no more records are usable.
    """
    if estimator.adjacency != "add-remove":
        raise ParameterError(
            "adjacency must be 'add-remove', since records that cannot be used are skipped; got "
            f"{estimator.adjacency!r}."
        )
    if source.label_type is None:
        raise InputError("the records have no labels.")
    persons = source.person_type is not None
    # Before hours of embedding.
    check_start(estimator, encoder)
    if estimator.several is None:
        kind = "i8" if source.label_type == pa.int64() else "O"
        check_kind(np.empty(0, kind), public_classes(estimator.classes))
    ids_of_fit(
        [] if persons else None, np.empty((0, 1)), estimator.max_classes_per_person
    )
    classes = np.asarray(estimator.classes)
    strict = estimator.unknown_labels == "strict"
    if not estimator.budget.is_zero and (strict or not compared):
        check_records(
            source, encoder, classes, estimator.unknown_labels, estimator.several
        )
    # Persons have no place in a model, and nor has the name of their column.
    if columns is None:
        typed = {}
    else:
        typed = {"x": columns.x, "y": columns.y, "id": columns.id}
    # Those of a schema are the encoder's.
    typed = {name: value for name, value in typed.items() if isinstance(value, str)}
    own_metadata = {COLUMNS: json.dumps(typed)} if typed else {}

    with work_in(folder):
        # What is public, and the account, before the private records, which take most
        # of the time.
        example_rows = None
        left_out = b""
        if examples is not None:
            with watch(examples) as progress:
                example_rows = embed_examples(
                    examples, encoder, rows=ROWS, progress=progress
                )
        if isinstance(public, Source):
            with watch(public) as progress:
                done = embed_all(
                    public,
                    encoder,
                    folder / "public",
                    progress,
                    strict=False,
                    engine=engine,
                )
            public = read_table(done.table, y=None)
        data = PublicData(public, example_rows)
        plan = settle(estimator, encoder.dimension, data, persons, ledger, partition)
        rows = EmbeddingTable.of(
            np.empty((0, encoder.dimension)),
            metadata=table_metadata(encoder) | own_metadata,
        )
        groups = np.empty(0, np.int64) if persons else None
        labels: Array | None = np.empty(0, object)
        # Room for the model before the hours of work, and before it is paid for.
        with reserved(
            out, estimator.most_bytes(plan, rows, groups), overwrite=overwrite
        ) as output:
            if reads_records(plan):
                with watch(source) as progress:
                    done = embed_all(
                        source,
                        encoder,
                        folder / "private",
                        progress,
                        strict=strict,
                        engine=engine,
                    )
                rows = read_table(done.table)
                labels = rows.y
                groups = read_ids(done.table, PERSON) if persons else None
                left_out = left_out_of(
                    done.report, rows, classes, usable_rows(rows), estimator.several
                )
                rows.metadata.update(own_metadata)
            with watch(None):
                if strict and plan.guarantee.releases:
                    estimator.check(rows, labels, groups=groups)
                estimator.fit(
                    rows, labels, groups=groups, ledger=ledger, partition=partition
                )
            save(estimator, output, out, left_out, folder, asked)


def check_start(estimator: EmbeddingClassifier, encoder: Encoder) -> None:
    """Refuse a start by another encoder, of which a plan knows the width alone."""
    width = encoder.dimension
    table = EmbeddingTable.of(np.empty((0, width)), metadata=table_metadata(encoder))
    classes = public_classes(estimator.classes, in_order=estimator.multilabel)
    Start.of(estimator, classes, width, table)


def settle(
    estimator: EmbeddingClassifier,
    width: int,
    public: PublicData,
    persons: bool,
    ledger: Ledger | None,
    partition: str | None,
) -> Plan:
    """Give an estimator its public data, check promise and account, and return the plan of its fit."""
    estimator.public = public
    plan = estimator.plan(width)
    promised = plan.guarantee_on(None, () if persons else None)
    if ledger is not None and promised.releases:
        ledger.check(promised, partition=partition)
    return plan


def reads_records(plan: Plan) -> bool:
    """Return whether a fit reads private records; one of public examples and no budget does not."""
    return plan.setting.public.examples is None or bool(plan.guarantee.releases)


def refuse_early(
    estimator: EmbeddingClassifier,
    source: Source,
    ledger: Ledger | None = None,
    partition: str | None = None,
    width: int = 384,
) -> None:
    """Refuse an account, a start or labels that `train` would refuse: an encoder, which it needs, takes minutes to load.

    A fit costs the same at any `width`, which is that of the start if there is one.
    """
    if estimator.budget.is_zero:
        return
    estimator.check_parameters()
    try:
        persons = source.person_type is not None
        settle(estimator, width, PublicData(), persons, ledger, partition)
    except ParameterError as error:
        # Other parameters are refused later, with all that they depend on.
        if error.parameter == "start":
            raise
    classes = np.asarray(estimator.classes)
    strict = estimator.unknown_labels == "strict"
    # A strict run decodes every record; images are decoded once, later.
    if source.label_type is not None and not (strict and source.modality == "image"):
        check_records(
            source, None, classes, estimator.unknown_labels, estimator.several
        )


def check_records(
    source: Source,
    encoder: Encoder | None,
    classes: Array,
    unknown_labels: str,
    several: MultiLabel | None = None,
    y: Array | None = None,
    ids: Array | None = None,
) -> None:
    """Stop over what cannot be used before anything is embedded or charged, as a fit would stop over it.

    Each record has its label, or `y` holds all labels in one form: no record decides
    how others are read. Likewise records have the ids of their persons, or `ids` are.
    Without an encoder, which may refuse more, a record can be used if it is decoded.
    """
    if unknown_labels == "ignore":
        return
    strict = unknown_labels == "strict"
    if y is not None and not strict and are_known(y, classes, several).all():
        return
    records = iter(source)
    n = 0
    used = 0
    with quiet():
        while window := list(islice(records, _CHECKED)):
            each = np.fromiter((record.label for record in window), object, len(window))
            labels = each if y is None else y[n : n + len(window)]
            known = are_known(labels, classes, several)
            usable = np.ones(len(window), bool)
            # Only these need be read: a record that cannot be used does not stop a fit
            # by its label.
            for place in np.flatnonzero(~known | strict):
                try:
                    payload = window[place].load()
                    if encoder is None:
                        decode(payload, source.modality)
                    else:
                        prepared(encoder, payload)
                except BadRecord:
                    usable[place] = False
            if not strict:
                refuse_unknown_labels(known[usable], classes, several)
            n = n + len(window)
            if strict and (ids is not None or source.person_type is not None):
                own = (record.person for record in window)
                if ids is None:
                    whose = np.fromiter(own, object)
                else:
                    whose = ids[n - len(window) : n]
                usable &= ~are_missing(whose)
            used = used + int((known & usable).sum())
    if strict:
        refuse_unusable_records(used, n)


def embed_all(
    source: Source,
    encoder: Encoder,
    folder: Path,
    progress: Callable[[int], object] | None,
    *,
    strict: bool,
    engine: Engine | None = None,
) -> Embedded:
    """Embed the private records; a strict run stops by the message of `check_records`."""
    try:
        return embed(
            source,
            encoder,
            folder,
            rows=ROWS,
            progress=progress,
            unusable="stop" if strict else "skip",
            engine=engine,
        )
    except InputError as error:
        if error.parameter != "unusable":
            raise
        raise InputError(NOT_ALL_USABLE, parameter="strict") from None


def left_out_of(
    report: Path,
    table: EmbeddingTable,
    classes: Array,
    usable: Flags,
    several: MultiLabel | None = None,
) -> bytes:
    """Return the owner's list of the records that were skipped: by `embed`, whose `report` goes on, and by the fit.

    Of a record that may have several labels, the fit drops those outside the list, and
    the record stays.
    """
    assert table.y is not None
    known = are_known(table.y, classes, several)
    places = np.flatnonzero(~known | ~usable)
    named = pa.concat_tables(
        part.columns(["id", "reference"]) for part in table.fragments()
    ).take(places)
    if several is None:
        without_class = SkipReason.UNKNOWN_LABEL
    else:
        without_class = SkipReason.UNKNOWN_LABELS_DROPPED
    rest = [
        Skipped(
            **row,
            reason=Term(without_class if usable[place] else SkipReason.ALL_ZEROS),
        )
        for place, row in zip(places, named.to_pylist(), strict=True)
    ]
    # The last line holds the totals, which count these records, too.
    *lines, totals = report.read_bytes().splitlines(keepends=True)
    counts = parse_json(totals)
    skipped = counts_from_list(counts["skipped"])
    skipped.update(one.reason for one in rest)
    counts["skipped"] = counts_to_list(skipped)
    counts["used"] = counts["embedded"] - (
        len(rest) if several is None else int((~usable).sum())
    )
    return b"".join(
        [*lines, *(as_line(one.to_dict()) for one in rest), as_line(counts)]
    )


def save(
    model: Reported,
    output: Output,
    out: Path,
    left_out: bytes,
    folder: Path,
    asked: str,
) -> None:
    """Write a model and the list of skipped records; a note lets `finish` do the rest, if this process is killed."""
    hashes = sha256(model.to_bytes()).digest() + sha256(asked.encode()).digest()
    note = hashes + left_out
    with suppress(OSError):  # the model comes first
        write_atomically(folder / _SAVED, note, overwrite=True, private=True)
    model.save(output)
    _write_report(out, left_out)


def finish(out: Path, folder: Path, asked: str) -> str | None:
    """Do what a run that was killed after it had saved its model left to do; return the hash of the model.

    A run that asks for something else finishes nothing.
    """
    with suppress(OSError):
        folder.rmdir()  # the last thing to do
    note = folder / _SAVED
    if not (_is_work(folder) and note.is_file() and out.is_file()):
        return None
    noted = note.read_bytes()
    digest = sha256(out.read_bytes())
    hashes = digest.digest() + sha256(asked.encode()).digest()
    if hashes != noted[: len(hashes)]:
        return None
    remove_left([out])
    _write_report(out, noted[len(hashes) :])
    _remove(folder)
    return digest.hexdigest()


def _write_report(model: Path, left_out: bytes) -> None:
    """Write the list of skipped records; nobody named its file, so a link that lies there is not followed."""
    report = report_of(model)
    if report.is_symlink():
        report.unlink()
    write_atomically(report, left_out, overwrite=True, private=True)


def report_of(model: Path) -> Path:
    """Return where `train` lists the records that it skipped, for their owner only."""
    return model.with_name(f"{model.name}.private.jsonl")


@contextmanager
def work_in(folder: Path) -> Iterator[None]:
    """Make the folder for the tables, or go on with one; after success remove it."""
    try:
        with unpaid():
            folder.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_work(folder):
            raise ParameterError(
                f"{folder} must be a new folder, or one that an interrupted run left; it is something else, or holds "
                "it. Name another folder for the work."
            ) from None
    try:
        yield
    except SourceChanged:
        raise SourceChanged(
            folder
        ) from None  # what else lies there, such as a checkpoint, is of the same records
    except OtherOptions as error:
        raise OtherOptions(folder, error.difference) from None
    except BaseException as error:
        with suppress(FileNotFoundError):  # the block may have removed it
            if getattr(error, "parameter", None) == "strict":
                shutil.rmtree(
                    folder
                )  # what lies there would tell how far the run came, and so at which record it stopped
        with suppress(OSError):
            folder.rmdir()  # if nothing was begun
        raise
    _remove(folder)


def _is_work(folder: Path) -> bool:
    """Return whether a folder holds nothing but a run's work, since it is removed at the end, whole."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    # A part is a file that was being written.
    return all(
        name in _WORK or (name[0] == "." and name.endswith(".part"))
        for name in os.listdir(folder)
    )


def _remove(folder: Path) -> None:
    """Remove the folder for the work, the note of `save` last, by which `finish` goes on."""
    for one in folder.iterdir():
        if one.is_dir():
            shutil.rmtree(one)
        elif one.name != _SAVED:
            one.unlink()
    shutil.rmtree(folder)
