"""`dppl table`: look at a table of embeddings, and write it in another form or order."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table

from dppl._fingerprint import in_short
from dppl.cli import _options as options
from dppl.cli._options import option
from dppl.cli._output import console, print_json, printable
from dppl.cli._paths import check_inputs, check_output, overlaps
from dppl.cli._progress import progress_bar
from dppl.errors import ParameterError
from dppl.io import ROWS, convert_table, read_table, sort_table
from dppl.io.writing import SUFFIXES, Rows

OWNER = "For the owner of the records only: what this prints of a private table is not covered by any guarantee."
_NUMBERS = 4

_Lattice = Annotated[bool, typer.Option("--lattice", help="Write lattice rows as bytes.")]
_Id = Annotated[str, option("NAME", "Column of ids, which becomes id. Default id.", None, "--id")]

table = typer.Typer(
    name="table",
    help="Look at a table of embeddings, convert or sort it; for the owner of the records only.",
    no_args_is_help=True,
    add_completion=False,
)


@table.command()
def info(path: options.Table, x: options.X = "x", y: options.Y = "y", as_json: options.Json = False) -> None:
    """Print the shape, type, labels and encoder of a table.

    For the owner of the records only: the number of rows and the classes that
    occur are private, and no guarantee protects them.

    For example:

      dppl table info train
    """
    check_inputs(path)
    rows = read_table(path, x=x, y=y)
    facts = {
        "rows": rows.shape[0],
        "dimension": rows.shape[1],
        "dtype": rows.dtype.name,
        "classes": None if rows.y is None else len(set(rows.y.tolist())),
        "files": len(rows.fragments()),
        "metadata": rows.metadata,
    }
    if as_json:
        print_json({"for_the_owner_only": OWNER, **facts})
        return
    typer.echo(OWNER)
    shown = {**facts, "classes": "no labels" if rows.y is None else facts["classes"], **rows.metadata}
    for name, value in shown.items():
        if name != "metadata":
            text = in_short(str(value)) if name == "encoder" else value
            console().print(f"{printable(name):<10} {printable(text)}", soft_wrap=True)


@table.command()
def head(
    path: options.Table,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many rows.")] = 10,
    x: options.X = "x",
    y: options.Y = "y",
) -> None:
    """Print ids, labels and the first numbers of the first rows.

    For the owner of the records only: these are private records, and no
    guarantee protects them.

    For example:

      dppl table head train -n 5
    """
    check_inputs(path)
    rows = read_table(path, x=x, y=y)
    typer.echo(OWNER)
    view = Table("row", "id", "label", "embedding")
    ids, start = (one for part in rows.fragments() for one in part.ids or [""] * part.rows), 0
    for block in islice(rows.blocks(n), 1):
        for row in block:
            label = "" if rows.y is None else rows.y[start]
            numbers = " ".join(f"{number:.4g}" for number in row[:_NUMBERS].tolist())
            view.add_row(str(start), printable(next(ids, "")), printable(label), f"{numbers} ...")
            start += 1
    console().print(view)


@table.command()
def convert(
    path: options.Table,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write: .parquet, .npz or .npy (rows only).")],
    rows: Annotated[str | None, option("|".join(ROWS), "How embeddings are stored. Default: as they are.")] = None,
    lattice: _Lattice = False,
    x: options.X = "x",
    y: options.Y = "y",
    ids: _Id = "id",
    force: options.Force = False,
) -> None:
    """Write a table as another file, or with embeddings in another form.

    For the owner of the records only: the new file is as private as the table.
    int8 rows are those of the lattice, a quarter of the size of float32; only
    their directions can be recovered. --lattice writes them as bytes, which
    are read as fast as memory is copied. Fits without centre, pool or rotation
    release the same bits from them; others take them as directions.
    .npz and .npy keep neither ids nor the encoder's name, which is compared
    with that of a model.

    For example:

      dppl table convert train train.parquet --rows int8
      dppl table convert train train.npz --rows float32
      dppl table convert s3://bucket/laion pool.parquet --lattice --id url
    """
    if out.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"OUT must end in {', '.join(SUFFIXES)}; got {out}.")
    check_output(out, (path,), force=force, option="OUT")
    check_inputs(path)
    convert_table(path, out, rows=cast(Rows | None, rows), lattice=lattice, x=x, y=y, ids=ids)
    typer.echo(f"Saved to {printable(out)}.")


@table.command()
def sort(
    path: Annotated[Path, typer.Argument(metavar="TABLE", help="Embeddings: .parquet, or a folder of such files.")],
    by: Annotated[
        str, option("NAME", "Column to sort by, such as that of person ids: texts, integers, bytes, floats.")
    ],
    out: Annotated[Path, option("FILE", "File to write, .parquet.")],
    x: options.X = "x",
    force: options.Force = False,
) -> None:
    """Write a Parquet table in the order of a column, such as that of person ids.

    For the owner of the records only: the new file is as private as the table.
    Fits with --person bring the rows of each person together. Where these are
    not adjacent in the table, memory holds sums or rows of most persons at a
    time, so this is for millions of records. What fits release does not change.
    The table may be larger than memory; its rows lie on the disk of FILE once
    more while they are sorted. Rows of equal values stay in their order, those
    without one come last, and all columns and the encoder's name are kept.

    For example:

      dppl table sort scans --by patient --out sorted.parquet
    """
    check_output(out, (path,), force=force)
    check_inputs(path)
    if overlaps(out, (path,)):
        raise ParameterError(f"--out must lie outside the table, whose files are read; {out} does not.")
    with progress_bar("sorting", lambda: 2 * len(read_table(path, x=x, y=None))) as told:
        sort_table(path, out, by=by, x=x, progress=told)
    typer.echo(f"Saved to {printable(out)}.")
