"""`dppl embed`: raw images or texts to a table of embeddings, with a frozen public encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dppl import _validate, io
from dppl.cli._groups import Labelled, named_values
from dppl.cli._output import printable
from dppl.cli._paths import check_inputs, how_to_label, opened_source
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, option, request
from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.encoders import Encoder

_WHOLE = ("workers", "shard_rows")
_OPTIONS = (*_WHOLE, "precision", "strict")


@request("out", "encoder", "x", "y", "labels")
class Embed:
    """What `dppl embed` is asked."""

    source: Path = argument(
        "SOURCE",
        "Folder of images; .csv, .tsv, .jsonl, .parquet or .txt; folder of .parquet files.",
    )
    out: Path = option("TABLE", "Folder to write: a new one, or an unfinished one to continue.")
    encoder: str = option("URI", "Frozen public encoder.")
    rows: str = option(
        "float16|int8|float32",
        "How embeddings are stored; int8 takes a quarter of float32's space. Default float16.",
        "float16",
    )
    items: Labelled
    groups: str | None = option(
        "NAME",
        "Column of person ids, which are private and may repeat. The table keeps them in its column person, for dppl "
        "fit --groups person (docs/persons.md).",
        None,
        typed={"person": "--groups"},
    )
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")
    options: list[str] = option(
        "NAME=VALUE",
        "May be repeated. strict=true: stop at a record that cannot be used. workers: threads that read and decode, by "
        "default one for each core, at most 8. shard_rows: records in a shard, by default 512 images or 4096 others; "
        "an interrupted run continues after the last shard. precision: float32 or float16, of the arithmetic.",
        (),
    )


def embed(request: Embed) -> None:
    r"""Embed raw images or texts with a frozen public encoder.

    Writes a folder of Parquet shards for `dppl fit`. After an interruption the
    same command continues, and the result is the same, byte for byte.

    Records that cannot be used (damaged or huge images, empty texts) are left
    out and listed in TABLE.report.jsonl. The table and the report are as
    private as the records: they stay with their owner, and no guarantee
    protects them.

    For example:

      dppl embed photos/ --encoder timm:vit_base_patch16_224 --out train

      dppl embed mails.csv --x body --y folder --encoder minilm --out train

      dppl embed scans/ --labels scans.csv --encoder vit-b-16 --rows int8 \
        --options workers=8 --out train
    """
    out = request.out
    check_inputs(request.source, request.items.labels)
    _check_out(out, request.source)
    _validate.one_of(io.ROWS, rows=request.rows)
    options = _options(request.options)
    precision = options.pop("precision", "auto")
    # The source is opened before the encoder is loaded, which takes seconds.
    records = opened_source(request.source, request.items, request.items.columns(request.groups), request.items.labels)
    encoder = loaded(request.encoder, request.device, precision)
    rows: Any = request.rows
    with resumable(out), embedding_bar(records) as progress:
        done = io.embed(records, encoder, out, rows=rows, progress=progress, **options)
    typer.echo(f"Table: {printable(out)}" + ("" if done.is_new else ", finished before; nothing to do"))
    typer.echo(f"Records that cannot be used, if any, are listed for their owner only in {printable(done.report)}")
    if records.label_type is None:
        typer.echo(f"The table has no labels, which dppl predict does not need; for a fit {how_to_label(records)}.")
    else:
        persons = "" if request.groups is None else f" --groups {io.PERSON}"
        typer.echo(f"Next: dppl fit {printable(out)}{persons} --classes FILE ...")


def _options(given: list[str]) -> dict[str, Any]:
    """Return what ``--options`` says, each with a value of its type."""
    options = named_values(given, known=_OPTIONS)
    for name, value in options.items():
        if name in _WHOLE:
            _validate.positive_integer(**{name: value})
        if name == "strict" and not isinstance(value, bool):
            raise ParameterError(f"must be true or false; got {value!r}.", parameter="strict")
    return options


def loaded(encoder: str, device: str, precision: str = "auto") -> Encoder:
    """Load an encoder, and say so if a person is watching, because it takes a while."""
    from dppl.encoders import load_encoder

    with working(f"loading {encoder}"):
        return load_encoder(encoder, device=device, precision=precision)  # type: ignore[arg-type]


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say to a user who interrupts the work how to continue it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"The same command continues after the last complete part; parts are kept in {folder}.")
        raise


def _check_out(out: Path, source: Path) -> None:
    if out.name in ("", ".."):
        raise ParameterError(f"--out must name a folder; got {out}.")
    if not out.parent.is_dir():
        raise ParameterError(f"--out must lie in an existing folder; {out.parent} is not one; create it first.")
    if out.exists() and not out.is_dir():
        raise ParameterError(f"--out must name a folder; {out} is a file.")
    if out.resolve().is_relative_to(source.resolve()):
        raise ParameterError(f"--out must not lie in SOURCE, which is read; {out} does.")
