"""`dppl train`: from raw images or texts to a private model in one command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import typer

from dppl._fingerprint import same_encoder
from dppl.checks import report_on_source
from dppl.cli._groups import Account, Budget, Care, Labelled, Method, Persons
from dppl.cli._output import printable
from dppl.cli._owner import review
from dppl.cli._paths import (
    check_inputs,
    check_line,
    check_output,
    how_to_label,
    opened_source,
    overlaps,
    read_public_list,
    refuse_private,
)
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.cli.embed import loaded, resumable
from dppl.cli.fit import print_summary
from dppl.cli.ledger import tell_charge
from dppl.encoders import Encoder
from dppl.encoders.load import is_code
from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.io import EmbeddingTable, Source, holds_embeddings, open_source, read_table
from dppl.training import workflow
from dppl.training.descriptions import described, names_by_default, takes_examples

_NAMES = "Class names are used as public descriptions (--descriptions none leaves them out)."
_NO_NAMES = (
    "Classes are not described, since some names are not words, or only numbers and single letters tell them apart "
    "(--descriptions FILE describes them; --descriptions names takes the names all the same)."
)


@request("encoder", "out", "classes", "epsilon", "delta")
class Train:
    """What `dppl train` is asked."""

    data: Path = argument("DATA", "Labelled images or texts, as for `dppl embed`.")
    encoder: str = option("URI", "Frozen public encoder, as for `dppl embed`.")
    out: Path = option("MODEL", "Model file to write.")
    classes: Path | None = option(
        "FILE", "Public list of classes, one per line. Required: it is never taken from the labels.", None
    )
    public: Path | None = option(
        "POOL", "Public images or texts, or a table of their embeddings by the same encoder.", None
    )
    descriptions: str = option(
        "names|FILE|none",
        "Public descriptions of the classes, which softmax starts from: what they are called; a CSV file with the "
        "columns class and text, or a folder with a subfolder of images for each class; or none. Never written or "
        "chosen by looking at private records. Default: names for texts, if all are words.",
        "auto",
    )
    items: Labelled
    persons: Persons
    care: Care
    budget: Budget
    method: Method
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")
    work: Path | None = option(
        "FOLDER", "Keep the tables of embeddings there. Default: MODEL.work, removed at the end.", None
    )
    account: Account
    force: bool = flag("Replace the output file if it exists.")
    json: bool = flag("Print the whole guarantee as JSON, as `dppl show --json`.")


def train(request: Train) -> None:
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
        --descriptions sentences.csv --epsilon 1 --delta 1e-6 \
        --out my.safetensors

      dppl train scans/ --encoder vit-b-16 --public photos/ \
        --classes classes.txt --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl train mails.csv --groups customer --encoder minilm \
        --classes classes.txt --epsilon 1 --delta 1e-6 --out my.safetensors
    """
    data, labels, out, public = request.data, request.items.labels, request.out, request.public
    report = workflow.report_of(out)
    folder = out.with_name(f"{out.name}.work") if request.work is None else request.work
    described_in = None if request.descriptions in ("auto", "names", "none") else Path(request.descriptions)
    # What is public is checked first, so that a slip costs neither time nor budget.
    for written in (out, report):
        check_output(written, (data, request.classes, public, labels, described_in), force=request.force)
    budget = request.budget.spent()
    if described_in is not None and not (request.descriptions and described_in.exists()):
        raise ParameterError(
            f"must be names, none, or an existing file or folder; there is no {request.descriptions!r}.",
            parameter="descriptions",
        )
    classes = read_public_list(request.classes)
    check_inputs(data, public, labels)
    for name, path in (("public", public), ("descriptions", described_in)):
        refuse_private(path, (data, labels, folder / "private"), name)
    others = [] if request.work is not None else [request.classes, public, described_in]
    check_folder(folder, [data, labels, *others])
    estimator = request.method.estimator(
        budget,
        classes,
        public,
        unknown_labels="strict" if request.care.strict else request.care.unknown_labels,
        max_classes_per_person=request.persons.max_classes_per_person,
    )
    examples = None
    if request.descriptions not in ("auto", "none"):
        if not takes_examples(estimator):
            raise ParameterError(
                f"is for methods that start from examples; {type(estimator).__name__} does not. Leave it out, or use "
                "--method softmax.",
                parameter="descriptions",
            )
        examples = described(described_in or request.descriptions, estimator)
    account = request.account.opened()
    if "kind" not in request.items.how() and data.suffix.lower() in (".npy", ".npz"):
        raise ParameterError(f"{data} is a table of embeddings, not of raw records; train on it with dppl fit {data}.")
    columns = request.items.columns(request.persons.groups)
    source = opened_source(data, request.items, columns, labels)
    if source.label_type is None:
        raise ParameterError(f"{data} has no labels; {how_to_label(source)}.")
    encoder = loaded(request.encoder, request.device)
    pool = None if public is None else _public_records(public, encoder)
    if request.descriptions == "auto":
        examples = names_by_default(estimator, encoder)
    if request.care.review:
        review(partial(report_on_source, source, classes))
    assert request.classes is not None
    with checkable(check_line(data, request.classes, request.items, request.persons.groups)), leftover(folder):
        workflow.train(
            estimator,
            source,
            encoder,
            out,
            folder,
            public=pool,
            examples=examples,
            keep=request.work is not None,
            overwrite=request.force,
            columns=columns,
            ledger=account,
            partition=request.account.partition,
            watch=partial(_watched, folder),
        )
    # When all is done, for whoever reads it may go away.
    print_summary(estimator, out, as_json=request.json, needs_code=is_code(request.encoder))
    tell_charge(request.account.ledger, account, estimator.guarantee_, err=request.json)
    if request.descriptions == "auto" and takes_examples(estimator) and encoder.modality == "text":
        typer.echo(_NAMES if examples is not None else _NO_NAMES, err=request.json)
    tell_left_out(report, err=request.json)


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
def leftover(folder: Path) -> Iterator[None]:
    """Tell whoever meets what another run left how to be rid of it."""
    try:
        yield
    except (InputError, ParameterError) as error:
        if (folder / "private").is_dir() and str(folder) in str(error):
            error.add_note(f"To begin anew, type: rm -r {shlex.quote(str(folder))}")
        raise


def check_folder(folder: Path, read: Sequence[Path | None]) -> None:
    """Refuse a folder for tables that what is read lies in, since it is removed at the end."""
    if overlaps(folder, read):
        raise ParameterError(
            f"{folder}, the folder for the tables, must neither hold what is read nor lie in it; choose another with "
            "--work, or another --out."
        )


def _public_records(public: Path, encoder: Encoder) -> Source | EmbeddingTable:
    """Open public records, or their embeddings by this encoder."""
    if not holds_embeddings(public):
        try:
            return open_source(public)
        except InputError as error:  # options say how DATA is read, not this
            if error.parameter == "encoding":
                raise InputError(f"{public} is not UTF-8; save it again as UTF-8.") from None
            raise InputError(f"{public}: {error.text}") from None
    table = read_table(public, y=None)
    named = table.metadata.get("encoder")
    if table.shape[1] != encoder.dimension or (named and not same_encoder(named, encoder.fingerprint.text())):
        raise InputError(f"{public} must hold embeddings by the encoder that --encoder names; they are by another one.")
    return table
