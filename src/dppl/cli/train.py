"""`dppl train`: from raw images or texts to a private model in one command."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from dppl import _validate
from dppl._files import write_atomically
from dppl._fingerprint import same_encoder
from dppl.cli._shared import (
    DATA,
    ENCODER,
    DeviceOption,
    ForceOption,
    IdOption,
    ItemLabelsOption,
    ItemsOption,
    KindOption,
    MaxRecordsOption,
    MuOption,
    PrecisionOption,
    RhoOption,
    SplitOption,
    WorkersOption,
    budget_from_options,
    check_inputs,
    check_output,
    open_ledger,
    option,
    require_labels,
    working,
)
from dppl.cli.embed import embedded, how_to_label, loaded, resumable, tell_report
from dppl.cli.fit import (
    ClassesOption,
    DatasetOption,
    DeltaOption,
    EpsilonOption,
    LedgerOption,
    MethodOption,
    ModelOption,
    PartitionOption,
    PrototypesOption,
    SeedOption,
    UnknownLabelsOption,
    build,
    check_account,
    check_method,
    print_summary,
    required_classes,
    save,
)
from dppl.data import EmbeddingTable, align_labels, read_classes, read_table
from dppl.embedding import Columns, holds_embeddings, open_source
from dppl.encoders import Encoder
from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.estimators.registry import BY_METHOD, method_for
from dppl.privacy import PureDP

_WORK = ("private", "private.report.jsonl", "public", "public.report.jsonl")


def train(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Labelled images or texts, as for `dppl embed`.", show_default=False)
    ],
    encoder: Annotated[str, option("URI", "Frozen public encoder, as for `dppl embed`.", ENCODER)],
    out: ModelOption,
    classes: ClassesOption = None,
    public: Annotated[
        Path | None,
        option("POOL", "Public images or texts, or a table of their embeddings by the same encoder.", DATA),
    ] = None,
    labels: Annotated[Path | None, option("FILE", "Labels of DATA in a file of their own.", DATA)] = None,
    x: ItemsOption = None,
    y: ItemLabelsOption = None,
    identity: IdOption = None,
    kind: KindOption = "auto",
    split: SplitOption = None,
    public_x: Annotated[
        str | None, option("NAME", "Column of texts or images in POOL. Default as for --x.", DATA)
    ] = None,
    unknown_labels: UnknownLabelsOption = "error",
    mu: MuOption = None,
    rho: RhoOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    max_records: MaxRecordsOption = None,
    method: MethodOption = "auto",
    prototypes: PrototypesOption = None,
    workers: WorkersOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    work: Annotated[
        Path | None,
        option("FOLDER", "Keep the tables of embeddings there. Default: MODEL.work, removed at the end.", ENCODER),
    ] = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    partition: PartitionOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
) -> None:
    r"""Embed images or texts, train a private classifier, and save it.

    The same as `dppl embed` and `dppl fit` one after the other. After an
    interruption the same command goes on where it stopped; embeddings are kept
    in MODEL.work until the model is saved. Records that cannot be used are
    left out and listed in MODEL.private.jsonl, for the owner of the data only.

    For example:

      dppl train mails.csv --x body --y folder --encoder minilm \
        --public sentences.txt --classes folders.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl train scans/ --encoder vit-b-16 --public photos/ \
        --classes classes.txt --mu 1 --out my.safetensors
    """
    check_output(out, (data, classes, public, labels), force=force)
    report = out.with_name(f"{out.name}.private.jsonl")
    check_output(report, (data, classes, public, labels), force=force)
    options = {"n_prototypes": prototypes, "random_state": seed, "unknown_labels": unknown_labels}
    _validate.one_of(("auto", *BY_METHOD), method=method)
    check_account(ledger, dataset, partition)
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    if isinstance(budget, PureDP) and public is None and method in ("auto", "public"):
        raise ParameterError(
            "--epsilon alone is pure DP, which selects rows of public data; add --public POOL, or --delta D."
        )
    method = method_for(budget) if method == "auto" else method
    check_method(method, budget, options, public)
    classes = required_classes(classes)
    check_inputs(data, classes, public, labels)
    if public is not None and any(_overlap(public, private) for private in (data, labels) if private is not None):
        raise ParameterError("--public must be public data; got the private data or labels, or a part of them.")
    if public_x is not None and (public is None or holds_embeddings(public)):
        raise ParameterError(
            "--public-x names a column of texts or images in --public, which holds none; leave it out."
        )
    class_list = read_classes(classes)
    account = None if ledger is None or dataset is None else open_ledger(ledger, dataset)
    source = open_source(data, kind=kind, columns=Columns(x, y, identity), labels=labels, split=split)
    if source.label_type is None:
        raise ParameterError(f"{data} has no labels; {how_to_label(source)}.")
    model = loaded(encoder, device, precision)
    folder = out.with_name(f"{out.name}.work") if work is None else work
    read = (data, labels) if work is not None else (data, labels, classes, public)
    if any(_overlap(folder, path) for path in read if path is not None):
        raise ParameterError(
            f"{folder}, the folder for the tables, must neither hold what is read nor lie in it; choose another with "
            "--work, or another --out."
        )
    if public is not None and _overlap(public, folder / "private"):
        raise ParameterError(f"--public must be public data; {public} holds the table of private embeddings.")
    estimator = build(method, budget, class_list, options)
    with _work_in(folder, keep=work is not None):
        # The public rows first: what is wrong with them, or with the account, shows before the private records take
        # their time.
        with resumable(folder):
            public_rows = None if public is None else _public_table(public, public_x, model, folder / "public", workers)
            plan = estimator.plan(model.dimension, public_rows)
            if account is not None:
                account.check(plan.guarantee, partition=partition)
            private = embedded(source, model, folder / "private", workers=workers)
        table, left_out = read_table(private.table), private.report.read_bytes()
        with working("fitting"), _checkable(private.table, classes):
            aligned, _ = align_labels(require_labels(table, data), class_list)
            estimator.fit(table, aligned, plan=plan, ledger=account, partition=partition)
        save(estimator, out, force=force)
        write_atomically(report, left_out, overwrite=True, private=True)
    print_summary(estimator, out)  # when all is done, for whoever reads it may go away
    tell_report(report)


@contextmanager
def _work_in(folder: Path, *, keep: bool) -> Iterator[None]:
    """Make the folder for the tables, or go on with one; after success remove it unless it is to be kept."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # It may be removed at the end, so nothing else may be in it.
        if not folder.is_dir() or any(entry.name not in _WORK for entry in folder.iterdir()):
            raise ParameterError(
                f"{folder} must be a new folder, or one that this command left; choose another."
            ) from None
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # if nothing was begun
        raise
    if not keep:
        shutil.rmtree(folder)


@contextmanager
def _checkable(table: Path, classes: Path) -> Iterator[None]:
    """Tell whoever meets a label outside the list where its owner can look."""
    try:
        yield
    except UnknownLabelError as error:
        error.add_note(f"Here that is: dppl check {table} --classes {classes} (private; remove it when you are done)")
        raise


def _overlap(public: Path, private: Path) -> bool:
    """Tell whether one path is or holds the other."""
    one, other = public.resolve(), private.resolve()
    return one == other or one in other.parents or other in one.parents


def _public_table(public: Path, x: str | None, encoder: Encoder, folder: Path, workers: int | None) -> EmbeddingTable:
    if not holds_embeddings(public):
        pool = open_source(public, columns=Columns(x))
        return read_table(embedded(pool, encoder, folder, workers=workers).table, y=None)
    table = read_table(public, y=None)
    named = table.metadata.get("encoder")
    if table.shape[1] != encoder.dimension or (named and not same_encoder(named, encoder.fingerprint.text())):
        raise InputError(f"{public} must hold embeddings by the encoder that --encoder names; they are by another one.")
    return table
