"""`dppl table`: look at a table of embeddings, or write it in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table as Grid

from dppl import io
from dppl.cli._groups import how_to_read
from dppl.cli._output import console, printable
from dppl.cli._paths import check_inputs, check_output
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError

OWNER = "For the owner of the records only: what this prints of a private table is not covered by any guarantee."
_NUMBERS = 4


@request("head", "out", "rows")
class Table:
    """What `dppl table` is asked."""

    path: Path = argument("TABLE", "Embeddings: .npy, .npz, .parquet, a folder of .parquet shards, or a URL of one.")
    head: int = option("N", "Print ids, labels and the first numbers of so many rows, too. Default 0.", 0, min=0)
    out: Path | None = option("FILE", "File to write: .parquet, .npz or .npy (rows only).", None)
    rows: str | None = option(
        "float16|int8|float32|lattice", "With --out: how embeddings are stored. Default: as they are.", None
    )
    read: list[str] = option(
        "NAME=VALUE",
        "Array or column of the embeddings (x), the labels (y) and the ids (id), which are called so by default; may "
        "be repeated.",
        (),
        typed={name: f"--read {name}" for name in ("x", "y", "id")} | {"ids": "--read id"},
    )
    force: bool = flag("Replace the output file if it exists.")


def table(request: Table) -> None:
    """Look at a table of embeddings, or write it in another form.

    For the owner of the records only: the number of rows and the classes that
    occur are private, a new file is as private as the table, and no guarantee
    protects them.

    int8 rows are those of the lattice, a quarter of the size of float32; only
    their directions can be recovered. --rows lattice writes them as bytes, which
    are read as fast as memory is copied. Fits without centre, pool or rotation
    release the same bits from them; others take them as directions.
    .npz and .npy keep neither ids nor the encoder's name, which is compared
    with that of a model.

    For example:

      dppl table train --head 5
      dppl table train --out train.parquet --rows int8
      dppl table s3://bucket/laion --out pool.parquet --rows lattice --read id=url
    """
    path, out, rows = request.path, request.out, request.rows
    names = {"x": "x", "y": "y", "id": "id"} | how_to_read(request.read, ("x", "y", "id"))
    x, y = names["x"], names["y"]
    check_inputs(path)
    # Without a file to write it shows the table: to its owner, since even the number of rows is private.
    if out is None:
        if rows:
            raise ParameterError("--rows says how --out FILE is written; name it too.")
        _show(io.read_table(path, x=x, y=y), request.head)
        return
    from dppl.io.writing import SUFFIXES

    if request.head:
        raise ParameterError("--head shows the table; leave --out out.")
    if out.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"--out must end in {', '.join(SUFFIXES)}; got {out}.")
    check_output(out, (path,), force=request.force)
    form: Any = rows
    io.convert_table(path, out, rows=form, x=x, y=y, ids=names["id"])
    typer.echo(f"Saved to {printable(out)}.")


def _show(rows: io.EmbeddingTable, head: int) -> None:
    from dppl._fingerprint import in_short

    facts: dict[str, Any] = {
        "rows": rows.shape[0],
        "dimension": rows.shape[1],
        "dtype": rows.dtype.name,
        "classes": "no labels" if rows.y is None else len(set(rows.y.tolist())),
        "files": len(rows.fragments()),
    }
    typer.echo(OWNER)
    for name, value in (facts | rows.metadata).items():
        text = in_short(str(value)) if name == "encoder" else value
        console().print(f"{printable(name):<10} {printable(text)}", soft_wrap=True)
    if not head:
        return
    view = Grid("row", "id", "label", "embedding")
    ids = (one for part in rows.fragments() for one in part.ids or [""] * part.rows)
    labels = iter([] if rows.y is None else rows.y[:head].tolist())
    for place, row in enumerate(next(rows.blocks(head), ())):
        numbers = " ".join(f"{number:.4g}" for number in row[:_NUMBERS].tolist())
        view.add_row(str(place), printable(next(ids, "")), printable(next(labels, "")), f"{numbers} ...")
    console().print(view)
