"""`dppl table`: look at a table of embeddings, or write it in another form or order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import typer
from rich.table import Table as Grid

from dppl._fingerprint import in_short
from dppl.cli._output import console, print_json, printable
from dppl.cli._paths import check_inputs, check_output, overlaps
from dppl.cli._progress import progress_bar
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError
from dppl.io import ROWS, EmbeddingTable, convert_table, read_table, sort_table
from dppl.io.writing import SUFFIXES, Rows

OWNER = "For the owner of the records only: what this prints of a private table is not covered by any guarantee."
_NUMBERS = 4


@request("head", "out", "rows", "by", "json")
class Table:
    """What `dppl table` is asked."""

    path: Path = argument(
        "TABLE", "Embeddings: .npy, .npz, .parquet, a folder of .parquet or .npy shards, or a URL of one."
    )
    head: int = option("N", "Print ids, labels and the first numbers of so many rows, too. Default 0.", 0, min=0)
    out: Path | None = option("FILE", "File to write: .parquet, .npz or .npy (rows only).", None)
    rows: str | None = option("|".join(ROWS), "With --out: how embeddings are stored. Default: as they are.", None)
    lattice: bool = flag("With --out: write lattice rows as bytes.")
    by: str | None = option(
        "NAME",
        "With --out FILE.parquet: write the rows in the order of this column, such as that of person ids: texts, "
        "integers, bytes, floats.",
        None,
    )
    x: str = option("NAME", "Array or column that holds the embeddings. Default x.", "x")
    y: str = option("NAME", "Array or column that holds the labels. Default y.", "y")
    ids: str = option("NAME", "Column of ids, which becomes id. Default id.", "id")
    force: bool = flag("Replace the output file if it exists.")
    json: bool = flag("Print JSON.")


def table(request: Table) -> None:
    """Look at a table of embeddings, or write it in another form or order.

    For the owner of the records only: the number of rows and the classes that
    occur are private, a new file is as private as the table, and no guarantee
    protects them.

    int8 rows are those of the lattice, a quarter of the size of float32; only
    their directions can be recovered. --lattice writes them as bytes, which
    are read as fast as memory is copied. Fits without centre, pool or rotation
    release the same bits from them; others take them as directions.
    .npz and .npy keep neither ids nor the encoder's name, which is compared
    with that of a model.

    --by sorts. Fits with --groups bring the rows of each person together. Where
    these are not adjacent in the table, memory holds sums or rows of most
    persons at a time, so this is for millions of records. What fits release
    does not change. The table may be larger than memory; its rows lie on the
    disk of FILE once more while they are sorted. Rows of equal values stay in
    their order, those without one come last, and all columns and the encoder's
    name are kept.

    For example:

      dppl table train --head 5
      dppl table train --out train.parquet --rows int8
      dppl table s3://bucket/laion --out pool.parquet --lattice --ids url
      dppl table scans --by patient --out sorted.parquet
    """
    path, out, written = request.path, request.out, (request.rows, request.by, request.lattice or None)
    if out is None:
        if any(written):
            raise ParameterError("--rows, --lattice and --by say how --out FILE is written; name it too.")
        check_inputs(path)
        _show(request, read_table(path, x=request.x, y=request.y))
        return
    if request.head or request.json:
        raise ParameterError("--head and --json show the table; leave --out out.")
    if out.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"--out must end in {', '.join(SUFFIXES)}; got {out}.")
    check_output(out, (path,), force=request.force)
    check_inputs(path)
    if request.by is None:
        rows = cast(Rows | None, request.rows)
        convert_table(path, out, rows=rows, lattice=request.lattice, x=request.x, y=request.y, ids=request.ids)
    else:
        if request.rows is not None or request.lattice:
            raise ParameterError("keeps the form of the rows; leave --rows and --lattice out.", parameter="by")
        if overlaps(out, (path,)):
            raise ParameterError(f"--out must lie outside the table, whose files are read; {out} does not.")
        with progress_bar("sorting", lambda: 2 * len(read_table(path, x=request.x, y=None))) as told:
            sort_table(path, out, by=request.by, x=request.x, progress=told)
    typer.echo(f"Saved to {printable(out)}.")


def _show(request: Table, rows: EmbeddingTable) -> None:
    facts: dict[str, Any] = {
        "rows": rows.shape[0],
        "dimension": rows.shape[1],
        "dtype": rows.dtype.name,
        "classes": None if rows.y is None else len(set(rows.y.tolist())),
        "files": len(rows.fragments()),
        "metadata": rows.metadata,
    }
    head = _head(rows, request.head) if request.head else []
    if request.json:
        print_json({"for_the_owner_only": OWNER, **facts} | ({"head": head} if head else {}))
        return
    typer.echo(OWNER)
    shown = facts | {"classes": "no labels" if rows.y is None else facts["classes"]} | rows.metadata
    for name, value in shown.items():
        if name != "metadata":
            text = in_short(str(value)) if name == "encoder" else value
            console().print(f"{printable(name):<10} {printable(text)}", soft_wrap=True)
    if head:
        view = Grid("row", "id", "label", "embedding")
        for one in head:
            numbers = " ".join(f"{number:.4g}" for number in one["embedding"])
            view.add_row(str(one["row"]), printable(one["id"]), printable(one["label"]), f"{numbers} ...")
        console().print(view)


def _head(rows: EmbeddingTable, n: int) -> list[dict[str, Any]]:
    """Return the first rows, each with the first of its numbers."""
    ids = (one for part in rows.fragments() for one in part.ids or [""] * part.rows)
    block = next(rows.blocks(n), np.empty((0, 1)))
    labels = [""] * len(block) if rows.y is None else rows.y[: len(block)].tolist()
    return [
        {"row": place, "id": next(ids, ""), "label": label, "embedding": row[:_NUMBERS].tolist()}
        for place, (label, row) in enumerate(zip(labels, block, strict=True))
    ]
