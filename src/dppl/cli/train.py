"""`dppl train`: from raw images or texts to a private model in one command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dppl import io
from dppl.cli._groups import Account, Budget, Care, Labelled, Method, say_if_weak
from dppl.cli._output import printable
from dppl.cli._owner import review
from dppl.cli._paths import (
    check_inputs,
    check_line,
    check_output,
    opened_labelled,
    overlaps,
    read_public_list,
    refuse_private,
)
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.cli.embed import loaded, resumable
from dppl.cli.fit import print_summary
from dppl.cli.ledger import tell_charge
from dppl.errors import InputError, ParameterError, UnknownLabelError

if TYPE_CHECKING:
    from dppl.encoders import Encoder

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
    care: Care
    budget: Budget
    method: Method
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")
    account: Account
    force: bool = flag("Replace the output file if it exists.")


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
    from dppl.encoders.load import is_code
    from dppl.training import workflow
    from dppl.training.descriptions import described, names_by_default, takes_examples

    data, labels, out, public = request.data, request.items.labels, request.out, request.public
    described_in = None if request.descriptions in ("auto", "names", "none") else Path(request.descriptions)
    # What is public is checked first, so that a slip costs neither time nor budget.
    for name, path in (("public", public), ("descriptions", described_in)):
        refuse_private(path, (data, labels, out.with_name(f"{out.name}.work") / "private"), name)
    folder, report = check_outputs(out, (data, request.classes, public, labels, described_in), force=request.force)
    budget = request.budget.spent()
    if described_in is not None and not (request.descriptions and described_in.exists()):
        raise ParameterError(
            f"must be names, none, or an existing file or folder; there is no {request.descriptions!r}.",
            parameter="descriptions",
        )
    classes = read_public_list(request.classes)
    check_inputs(data, public, labels)
    estimator = request.method.estimator(budget, classes, public)
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
    source = opened_labelled(data, request.items, request.care.groups)
    encoder = loaded(request.encoder, request.device)
    pool = None if public is None else _public_records(public, encoder)
    if request.descriptions == "auto":
        examples = names_by_default(estimator, encoder)
    if request.care.review:
        from dppl.checks import report_on_source

        review(partial(report_on_source, source, classes))
    say_if_weak(budget)
    with stoppable(folder, check_line(data, request.classes, request.items, request.care.groups)):
        workflow.train(
            estimator,
            source,
            encoder,
            out,
            folder,
            public=pool,
            examples=examples,
            overwrite=request.force,
            columns=request.items.columns(request.care.groups),
            ledger=account,
            partition=request.account.partition,
            watch=partial(_watched, folder),
        )
    # When all is done, for whoever reads it may go away.
    print_summary(estimator, out, " --encoder URI, as here" if is_code(request.encoder) else "")
    tell_charge(request.account.ledger, account, estimator.guarantee_)
    if request.descriptions == "auto" and takes_examples(estimator) and encoder.modality == "text":
        typer.echo(_NAMES if examples is not None else _NO_NAMES)
    tell_left_out(report)


@contextmanager
def _watched(folder: Path, records: io.Source | None) -> Iterator[Callable[[int], object] | None]:
    """Show how far it is; an interrupted embedding says how to continue."""
    if records is None:
        with working("fitting"):
            yield None
    else:
        with resumable(folder), embedding_bar(records) as progress:
            yield progress


def check_outputs(out: Path, read: Sequence[Path | None], *, force: bool) -> tuple[Path, Path]:
    """Refuse what cannot be written; return the folder for the work, which is removed, and the report for the owner."""
    from dppl.training.workflow import report_of

    folder, report = out.with_name(f"{out.name}.work"), report_of(out)
    for written in (out, report):
        check_output(written, read, force=force)
    if overlaps(folder, read):
        raise ParameterError(
            f"{folder}, the folder for the tables, must neither hold what is read nor lie in it; choose another --out."
        )
    return folder, report


def tell_left_out(report: Path) -> None:
    """Say last, in the same words whatever the records are, that the model is not to be trusted unseen."""
    typer.echo(
        f"Before you trust this model, read {printable(report)}: it lists, for the owner of the records only, those "
        "that were left out. Nothing above says how many they are; it may be all."
    )


@contextmanager
def stoppable(folder: Path, command: str) -> Iterator[None]:
    """Name the command that shows an owner the record that stopped a run, or that removes what another run left."""
    try:
        yield
    except (InputError, ParameterError) as error:
        if isinstance(error, UnknownLabelError) or error.parameter == "strict":
            error.add_note(f"Here that is: {command}")
        if (folder / "private").is_dir() and str(folder) in str(error):
            error.add_note(f"To begin anew, type: rm -r {shlex.quote(str(folder))}")
        raise


def _public_records(public: Path, encoder: Encoder) -> io.Source | io.EmbeddingTable:
    """Open public records, or their embeddings by this encoder."""
    from dppl._fingerprint import same_encoder

    if not io.holds_embeddings(public):
        try:
            return io.open_source(public)
        except InputError as error:  # options say how DATA is read, not this
            if error.parameter == "encoding":
                raise InputError(f"{public} is not UTF-8; save it again as UTF-8.") from None
            raise InputError(f"{public}: {error.text}") from None
    table = io.read_table(public, y=None)
    named = table.metadata.get("encoder")
    if table.shape[1] != encoder.dimension or (named and not same_encoder(named, encoder.fingerprint.text())):
        raise InputError(f"{public} must hold embeddings by the encoder that --encoder names; they are by another one.")
    return table
