"""`dppl embed`: raw images or texts to a table of embeddings, with a frozen public encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import typer

from dppl import _validate
from dppl.cli._groups import Labelled, Where
from dppl.cli._output import printable
from dppl.cli._paths import check_inputs, how_to_label, opened_source
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.encoders import Encoder, load_encoder
from dppl.encoders.load import Device, Precision
from dppl.errors import ParameterError
from dppl.io import PERSON, ROWS
from dppl.io import embed as embed_source
from dppl.io.writing import Rows


@request("out", "encoder", "x", "y", "labels")
class Embed:
    """What `dppl embed` is asked."""

    source: Path = argument(
        "SOURCE",
        "Folder of images; .csv, .tsv, .jsonl, .parquet or .txt; folder of .parquet files, or of a saved Hugging Face "
        "data set.",
    )
    out: Path = option("TABLE", "Folder to write: a new one, or an unfinished one to continue.")
    encoder: str = option("URI", "Frozen public encoder.")
    rows: str = option(
        "|".join(ROWS),
        "How embeddings are stored; int8 takes a quarter of float32's space. Default float16.",
        "float16",
    )
    strict: bool = flag("Stop at a record that cannot be used.")
    items: Labelled
    groups: str | None = option(
        "NAME",
        "Column of person ids, which are private and may repeat. The table keeps them in its column person, for dppl "
        "fit --groups person (docs/persons.md).",
        None,
        typed={"person": "--groups"},
    )
    workers: int | None = option(
        "N", "Threads that read and decode. Default: one for each core, at most 8.", None, min=1
    )
    shard_rows: int | None = option(
        "N",
        "Records in a shard; an interrupted run continues after the last one. Default 512 images, or 4096 others.",
        None,
        min=1,
    )
    cache: Path | None = option(
        "FOLDER",
        "Keep embeddings by content, so that embedding the same data again is almost free. Off unless named, because "
        "it holds embeddings of private records, and outlives the table.",
        None,
    )
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")
    precision: str = option("auto|float32|float16", "Precision of the encoder's arithmetic. Default auto.", "auto")
    where: Where


def embed(request: Embed) -> None:
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
    engine, out = request.where.opened(), request.out
    check_inputs(request.source, request.items.labels)
    _check_out(out, request.source)
    _validate.one_of(ROWS, rows=request.rows)
    records = opened_source(request.source, request.items, request.items.columns(request.groups), request.items.labels)
    encoder = loaded(request.encoder, request.device, request.precision)
    with resumable(out), embedding_bar(records) as progress:
        done = embed_source(
            records,
            encoder,
            out,
            rows=cast(Rows, request.rows),
            workers=request.workers,
            strict=request.strict,
            shard_rows=request.shard_rows,
            cache=request.cache,
            progress=progress,
            engine=engine,
        )
    typer.echo(f"Table: {printable(out)}" + ("" if done.is_new else ", finished before; nothing to do"))
    typer.echo(f"Records that cannot be used, if any, are listed for their owner only in {printable(done.report)}")
    if records.label_type is None:
        typer.echo(f"The table has no labels, which dppl predict does not need; for a fit {how_to_label(records)}.")
    else:
        persons = "" if request.groups is None else f" --groups {PERSON}"
        typer.echo(f"Next: dppl fit {printable(out)}{persons} --classes FILE ...")


def loaded(encoder: str, device: str, precision: str = "auto") -> Encoder:
    """Load an encoder, and say so if a person is watching, because it takes a while."""
    with working(f"loading {encoder}"):
        return load_encoder(encoder, device=cast(Device, device), precision=cast(Precision, precision))


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
