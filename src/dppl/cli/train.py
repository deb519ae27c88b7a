"""`dppl train`: from raw images or texts to a private model in one command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dppl import _validate
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
    working,
)
from dppl.cli.embed import bar, how_to_label, loaded, resumable, tell_report
from dppl.cli.fit import (
    ClassesOption,
    DatasetOption,
    DeltaOption,
    EpsilonOption,
    LedgerOption,
    ModelOption,
    PartitionOption,
    PrototypesOption,
    SeedOption,
    UnknownLabelsOption,
    build,
    check_account,
    check_method,
    method_option,
    print_summary,
    required_classes,
)
from dppl.data import EmbeddingTable, read_classes, read_table
from dppl.embedding import Columns, Source, holds_embeddings, open_source
from dppl.encoders import Encoder
from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.estimators.registry import BY_METHOD, method_for
from dppl.privacy import PureDP
from dppl.training import workflow

_Method = Annotated[str, method_option("the first of them that can spend the budget")]


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
    method: _Method = "auto",
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
    report = workflow.report_of(out)
    check_output(report, (data, classes, public, labels), force=force)
    options = {"n_prototypes": prototypes, "random_state": seed, "unknown_labels": unknown_labels}
    _validate.one_of(("auto", *BY_METHOD), method=method)
    check_account(ledger, dataset, partition)
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    if isinstance(budget, PureDP) and public is None and method in ("auto", "public"):
        raise ParameterError(
            "--epsilon alone is pure DP, which selects rows of public data; add --public POOL, or --delta D."
        )
    named = method != "auto"
    method = method if named else method_for(budget)
    check_method(method, budget, options, public, named=named)
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
    pool = None if public is None else _public_records(public, public_x, model)
    estimator = build(method, budget, class_list, options)
    with _checkable(folder / "private", classes):
        workflow.train(
            estimator,
            source,
            model,
            out,
            folder,
            public=pool,
            keep=work is not None,
            overwrite=force,
            workers=workers,
            ledger=account,
            partition=partition,
            watch=partial(_watched, folder),
        )
    print_summary(estimator, out)  # when all is done, for whoever reads it may go away
    tell_report(report)


@contextmanager
def _watched(folder: Path, records: Source | None) -> Iterator[Callable[[int], object] | None]:
    """Show how far it is; an interrupted embedding says how it goes on."""
    if records is None:
        with working("fitting"):
            yield None
    else:
        with resumable(folder), bar(records) as progress:
            yield progress


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


def _public_records(public: Path, x: str | None, encoder: Encoder) -> Source | EmbeddingTable:
    """Open public records, or their embeddings by this encoder."""
    if not holds_embeddings(public):
        return open_source(public, columns=Columns(x))
    table = read_table(public, y=None)
    named = table.metadata.get("encoder")
    if table.shape[1] != encoder.dimension or (named and not same_encoder(named, encoder.fingerprint.text())):
        raise InputError(f"{public} must hold embeddings by the encoder that --encoder names; they are by another one.")
    return table
