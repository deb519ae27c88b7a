"""`dppl train`: from raw images or texts to a private model in one command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dppl._fingerprint import same_encoder
from dppl.cli import _options as options
from dppl.cli._methods import build, check_examples, chosen_method, method_option
from dppl.cli._options import DATA, ENCODER, budget_from_options, option
from dppl.cli._output import printable
from dppl.cli._owner import report_on_source
from dppl.cli._paths import (
    check_inputs,
    check_line,
    check_output,
    opened_source,
    overlaps,
    refuse_private,
    required_classes,
)
from dppl.cli._progress import embedding_bar, working
from dppl.cli._review import review
from dppl.cli.embed import how_to_label, loaded, resumable
from dppl.cli.fit import print_summary
from dppl.cli.ledger import open_account, tell_charge
from dppl.encoders import Encoder
from dppl.encoders.load import is_code
from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.io import Columns, EmbeddingTable, Source, holds_embeddings, open_source, read_classes, read_table
from dppl.training import workflow
from dppl.training.descriptions import described, names_by_default, takes_examples

_NAMES = "Class names are used as public descriptions (--describe none leaves them out)."
_NO_NAMES = (
    "Classes are not described, since some names are not words, or only numbers and single letters tell them apart "
    "(--describe FILE describes them; --describe names takes the names all the same)."
)
_Method = Annotated[str, method_option("the first that can spend the budget")]


@options.first("encoder", "out", "classes", "epsilon", "delta")
def train(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Labelled images or texts, as for `dppl embed`.", show_default=False)
    ],
    encoder: Annotated[str, option("URI", "Frozen public encoder, as for `dppl embed`.", ENCODER)],
    out: options.ModelOut,
    classes: options.Classes = None,
    public: Annotated[
        Path | None,
        option("POOL", "Public images or texts, or a table of their embeddings by the same encoder.", DATA),
    ] = None,
    labels: Annotated[Path | None, option("FILE", "Labels of DATA in a file of their own.", DATA)] = None,
    x: options.Items = None,
    y: options.ItemLabels = None,
    identity: options.Id = None,
    person: options.ItemPerson = None,
    classes_per_person: options.ClassesPerPerson = None,
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    describe: Annotated[
        str,
        option(
            "names|FILE|none",
            "Public descriptions of the classes, which softmax starts from: what they are called; a CSV file with the "
            "columns class and text, or a folder with a subfolder of images for each class; or none. Never written or "
            "chosen by looking at private records. Default: names for texts, if all are words.",
            DATA,
        ),
    ] = "auto",
    public_x: Annotated[
        str | None, option("NAME", "Column of texts or images in POOL. Default as for --x.", DATA)
    ] = None,
    unknown_labels: options.UnknownLabels = "error",
    strict: options.Strict = False,
    ask: options.Review = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    max_records: options.MaxRecords = None,
    method: _Method = "auto",
    prototypes: options.Prototypes = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    work: Annotated[
        Path | None,
        option("FOLDER", "Keep the tables of embeddings there. Default: MODEL.work, removed at the end.", ENCODER),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Remove what an interrupted run left, and begin anew.")
    ] = False,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    partition: options.Partition = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: options.WholeJson = False,
) -> None:
    r"""Embed images or texts, train a private classifier, and save it.

    Does what `dppl embed` and `dppl fit` do, one after the other. After an
    interruption the same command continues where it stopped; embeddings are
    kept in MODEL.work until the model is saved. Records that cannot be used
    are left out and listed in MODEL.private.jsonl, for the owner of the data
    only. How many they are is private, and shown nowhere: type `dppl check` with
    the same data first. Labels are compared with --classes before anything is
    embedded.

    For example:

      dppl check mails.csv --x body --y folder --classes folders.txt

      dppl train mails.csv --x body --y folder --encoder minilm \
        --public sentences.txt --classes folders.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl train mails.csv --encoder minilm --classes classes.txt \
        --describe sentences.csv --epsilon 1 --delta 1e-6 \
        --out my.safetensors

      dppl train scans/ --encoder vit-b-16 --public photos/ \
        --classes classes.txt --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl train mails.csv --person customer --encoder minilm \
        --classes classes.txt --epsilon 1 --delta 1e-6 --out my.safetensors
    """
    report = workflow.report_of(out)
    examples_in = None if describe in ("auto", "names", "none") else Path(describe)
    for path in (out, report):
        check_output(path, (data, classes, public, labels, examples_in), force=force)
    given = {
        "max_classes_per_person": classes_per_person,
        "n_prototypes": prototypes,
        "random_state": seed,
        "strict": strict,
        "unknown_labels": unknown_labels,
    }
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    method = chosen_method(method, budget, given, public)
    if describe not in ("auto", "none"):
        check_examples("--describe", method)
    if examples_in is not None and not (describe and examples_in.exists()):
        raise ParameterError(
            f"--describe must be names, none, or an existing file or folder; there is no {describe!r}."
        )
    classes = required_classes(classes)
    check_inputs(data, classes, public, labels)
    folder = out.with_name(f"{out.name}.work") if work is None else work
    _check_public(public, public_x, (data, labels, folder / "private"))
    refuse_private(examples_in, (data, labels, folder / "private"), "--describe")
    check_folder(folder, (data, labels) if work is not None else (data, labels, classes, public, examples_in))
    class_list = read_classes(classes)
    estimator = build(method, budget, class_list, given)
    examples = None if describe in ("auto", "none") else described(examples_in or describe, estimator)
    account = open_account(ledger, dataset, partition)
    if kind == "auto" and data.suffix.lower() in (".npy", ".npz"):
        raise ParameterError(f"{data} is a table of embeddings, not of raw records; train on it with dppl fit {data}.")
    columns = Columns(x, y, identity, person)
    how: dict[str, Any] = {"labels": labels, "split": split, "encoding": encoding, "delimiter": delimiter}
    source = opened_source(data, kind=kind, columns=columns, **how)
    if source.label_type is None:
        raise ParameterError(f"{data} has no labels; {how_to_label(source)}.")
    model = loaded(encoder, device, precision)
    pool = None if public is None else _public_records(public, public_x, model)
    if describe == "auto":
        examples = names_by_default(estimator, model)
    if restart:
        workflow.discard(folder)
    if ask:
        review(partial(report_on_source, source, class_list))
    owners_look = check_line(data, classes, kind=None if kind == "auto" else kind, **asdict(columns), **how)
    with checkable(owners_look), leftover(folder, "add --restart, or "):
        workflow.train(
            estimator,
            source,
            model,
            out,
            folder,
            public=pool,
            examples=examples,
            keep=work is not None,
            overwrite=force,
            workers=workers,
            columns=columns,
            ledger=account,
            partition=partition,
            watch=partial(_watched, folder),
        )
    # When all is done, for whoever reads it may go away.
    print_summary(estimator, out, as_json=as_json, needs_code=is_code(encoder))
    tell_charge(ledger, account, estimator.guarantee_, err=as_json)
    if describe == "auto" and takes_examples(estimator) and model.modality == "text":
        typer.echo(_NAMES if examples is not None else _NO_NAMES, err=as_json)
    tell_left_out(report, err=as_json)


@contextmanager
def _watched(folder: Path, records: Source | None) -> Iterator[Callable[[int], object] | None]:
    """Show how far it is; an interrupted embedding says how to continue."""
    if records is None:
        with working("fitting"):
            yield None
    else:
        with resumable(folder), embedding_bar(records) as progress:
            yield progress


def tell_left_out(report: Path, *, err: bool = False) -> None:
    """Say last, in the same words whatever the records are, that the model is not to be trusted unseen."""
    typer.echo(
        f"Before you trust this model, read {printable(report)}: it lists, for the owner of the records only, those "
        "that were left out. Nothing above says how many they are; it may be all.",
        err=err,
    )


@contextmanager
def checkable(command: str) -> Iterator[None]:
    """Tell whoever is stopped by a record what its owner can type."""
    try:
        yield
    except InputError as error:
        if isinstance(error, UnknownLabelError) or error.parameter == "strict":
            error.add_note(f"Here that is: {command}")
        raise


@contextmanager
def leftover(folder: Path, otherwise: str = "") -> Iterator[None]:
    """Tell whoever meets what another run left how to be rid of it, and what to do in place of that."""
    try:
        yield
    except (InputError, ParameterError) as error:
        if (folder / "private").is_dir() and str(folder) in str(error):
            error.add_note(f"To begin anew, {otherwise}type: rm -r {shlex.quote(str(folder))}")
        raise


def check_folder(folder: Path, read: Sequence[Path | None]) -> None:
    """Refuse a folder for tables that what is read lies in, since it is removed at the end."""
    if overlaps(folder, read):
        raise ParameterError(
            f"{folder}, the folder for the tables, must neither hold what is read nor lie in it; choose another with "
            "--work, or another --out."
        )


def _check_public(public: Path | None, x: str | None, private: Sequence[Path | None]) -> None:
    refuse_private(public, private, "--public")
    if x is not None and (public is None or holds_embeddings(public)):
        raise ParameterError("--public-x names a column of texts or images in --public, which has none; leave it out.")


def _public_records(public: Path, x: str | None, encoder: Encoder) -> Source | EmbeddingTable:
    """Open public records, or their embeddings by this encoder."""
    if not holds_embeddings(public):
        try:
            return open_source(public, columns=Columns(x))
        except InputError as error:
            if error.parameter == "encoding":  # --encoding is that of DATA
                raise InputError(f"{public} is not UTF-8; save it again as UTF-8.") from None
            if error.parameter != "x":
                raise
            raise InputError(error.text.removeprefix("x "), parameter="public_x") from None
    table = read_table(public, y=None)
    named = table.metadata.get("encoder")
    if table.shape[1] != encoder.dimension or (named and not same_encoder(named, encoder.fingerprint.text())):
        raise InputError(f"{public} must hold embeddings by the encoder that --encoder names; they are by another one.")
    return table
