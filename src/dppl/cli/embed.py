"""`dppl embed`: from raw images or texts to a table of embeddings. It says nothing about any of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast

import typer

from dppl import _validate
from dppl.cli import _options as options
from dppl.cli._options import DATA, ENCODER, option
from dppl.cli._output import printable
from dppl.cli._paths import check_inputs, opened_source
from dppl.cli._progress import embedding_bar, working
from dppl.encoders import Encoder, load_encoder
from dppl.encoders.load import Device, Precision
from dppl.engines import engine_of
from dppl.errors import ParameterError
from dppl.io import PERSON, ROWS, Columns, Source
from dppl.io import embed as embed_source
from dppl.io.writing import Rows

_TABLE = "Table"


@options.first("out", "encoder", "x", "y", "labels")
def embed(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of images; .csv, .tsv, .jsonl, .parquet or .txt; folder of .parquet files, of a saved Hugging "
            "Face data set, or of published arrays SPLIT_x.npy.",
        ),
    ],
    out: Annotated[Path, option("TABLE", "Folder to write: a new one, or an unfinished one to continue.", _TABLE)],
    encoder: Annotated[
        str | None, option("URI", "Frozen public encoder; not for arrays, which are embeddings already.", ENCODER)
    ] = None,
    rows: Annotated[
        str,
        option(
            "|".join(ROWS),
            "How embeddings are stored; int8 takes a quarter of float32's space. Default float16.",
            _TABLE,
        ),
    ] = "float16",
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a record that cannot be used.", rich_help_panel=_TABLE)
    ] = False,
    kind: options.Kind = "auto",
    labels: Annotated[
        Path | None,
        option("FILE", "Images: CSV file that names files and labels. Text: a file with one label per line.", DATA),
    ] = None,
    x: options.Items = None,
    y: options.ItemLabels = None,
    identity: options.Id = None,
    person: Annotated[
        str | None,
        option(
            "NAME",
            "Column of person ids, which are private and may repeat. The table keeps them in its column person, for "
            "dppl fit --person person (docs/persons.md).",
            DATA,
        ),
    ] = None,
    split: options.Split = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    workers: options.Workers = None,
    shard_rows: Annotated[
        int | None,
        option(
            "N",
            "Records in a shard; an interrupted run continues after the last one. Default 512 images, or 4096 others.",
            _TABLE,
            min=1,
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Keep embeddings by content, so that embedding the same data again is almost free. Off unless named, "
            "because it holds embeddings of private records, and outlives the table.",
            _TABLE,
        ),
    ] = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    engine: options.EngineOption = "local",
    address: options.Address = None,
) -> None:
    r"""Embed raw images or texts with a frozen public encoder.

    Writes a folder of Parquet shards for `dppl fit`. After an interruption the
    same command continues, and the result is the same, byte for byte.

    Records that cannot be used (damaged or huge images, empty texts) are left
    out and listed in TABLE.report.jsonl. The table, the report and the cache
    are as private as the records: they stay with their owner, and no guarantee
    protects them.

    For example:

      dppl embed photos/ --encoder timm:vit_base_patch16_224 --out train

      dppl embed mails.csv --x body --y folder --encoder minilm --out train

      dppl embed scans/ --labels scans.csv --encoder vit-b-16 --rows int8 \
        --workers 8 --out train
    """
    spread = engine_of(engine, address)
    check_inputs(source, labels)
    _check_out(out, source)
    _validate.one_of(ROWS, rows=rows)
    columns = Columns(x, y, identity, person)
    records = opened_source(
        source, kind=kind, columns=columns, labels=labels, split=split, encoding=encoding, delimiter=delimiter
    )
    model = None if encoder is None else loaded(encoder, device, precision)
    with resumable(out), embedding_bar(records) as progress:
        done = embed_source(
            records,
            model,
            out,
            rows=cast(Rows, rows),
            workers=workers,
            strict=strict,
            shard_rows=shard_rows,
            cache=cache,
            progress=progress,
            engine=None if engine == "local" else spread,
        )
    typer.echo(f"Table: {printable(out)}" + ("" if done.is_new else ", finished before; nothing to do"))
    tell_report(done.report)
    if records.label_type is None:
        typer.echo(f"The table has no labels, which dppl predict does not need; for a fit {how_to_label(records)}.")
    else:
        persons = "" if person is None else f" --person {PERSON}"
        typer.echo(f"Next: dppl fit {printable(out)}{persons} --classes FILE ...")


def loaded(encoder: str, device: str, precision: str) -> Encoder:
    """Load an encoder, and say so if a person is watching, because it takes a while."""
    with working(f"loading {encoder}"):
        return load_encoder(encoder, device=cast(Device, device), precision=cast(Precision, precision))


def how_to_label(records: Source) -> str:
    """Say where labels of this kind of source come from."""
    kind = records.parameters["kind"]
    if kind == "images":
        return "sort the images into a folder for each class, or name a CSV file with --labels"
    return "name a file with one label per line with --labels" if kind == "text" else "name their column with --y"


def tell_report(report: Path, *, err: bool = False) -> None:
    """Say where records are listed that were left out, whether there are any or not; on stderr with `err`."""
    typer.echo(f"Records that cannot be used, if any, are listed for their owner only in {printable(report)}", err=err)


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Tell whoever interrupts the work how to continue it."""
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
