"""`dppl table`: look at a table of embeddings, or write it in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dppl import io
from dppl.cli._output import echo, print_facts, printable
from dppl.cli._pairs import parse_pairs
from dppl.cli._paths import check_output
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError

_OWNER = "For the owner of the records only: what this prints of a private table is not covered by any guarantee."


@request()
class Table:
    """Look at a table of embeddings, or write it in another form.

    For the owner of the records only: the number of rows and the classes that
    occur are private, a new file is as private as the table, and no guarantee
    protects them.

    int8 rows are lattice rows, a quarter of the size of float32; only
    their directions can be recovered. --rows lattice writes them as bytes, which
    are read as fast as memory is copied. Fits without centre, pool or rotation
    release the same bits from them; others take them as directions.

    For example:

      dppl table train
      dppl table train --out train.parquet --rows int8
      dppl table s3://bucket/laion --out pool.parquet --rows lattice --read id=url
    """

    path: Path = argument(
        "TABLE",
        "Embeddings: .npy, .npz, .parquet, a folder of .parquet shards, or a URL of one.",
    )
    out: Path | None = option("FILE", "Parquet file to write.", None)
    rows: str | None = option(
        "float16|int8|float32|lattice",
        "With --out: how embeddings are stored. Default: as they are.",
        None,
    )
    read: list[str] = option(
        "NAME=VALUE",
        "Array or column of the embeddings (x), the labels (y) and the ids (id), which are called so by default; may "
        "be repeated.",
        (),
        typed={name: f"--read {name}" for name in ("x", "y", "id")}
        | {"ids": "--read id"},
    )
    force: bool = flag("Replace the output file if it exists.")

    def run(self) -> None:
        """Show the table or write it."""
        path = self.path
        out = self.out
        rows = self.rows
        names = {"x": "x", "y": "y", "id": "id"} | parse_pairs(
            self.read, "read", ("x", "y", "id"), literal=False
        )
        x = names["x"]
        y = names["y"]
        if out is None:
            if rows:
                raise ParameterError(
                    "says how --out FILE is written; name it too.", parameter="rows"
                )
            _show(io.read_table(path, x=x, y=y))
            return
        check_output(out, (path,), force=self.force, suffixes=(".parquet",))
        form: Any = rows
        io.convert_table(path, out, rows=form, x=x, y=y, ids=names["id"])
        echo(f"Saved to {printable(out)}.")


def _show(rows: io.EmbeddingTable) -> None:
    """Print what the table is."""
    from dppl._utils.fingerprint import in_short

    facts: dict[str, Any] = {
        "rows": rows.shape[0],
        "dimension": rows.shape[1],
        "dtype": rows.dtype.name,
        "classes": "no labels" if rows.y is None else len(set(rows.y.tolist())),
        "files": len(rows.fragments()),
    }
    stated = {
        name: in_short(text) if name == "encoder" else text
        for name, text in rows.metadata.items()
    }
    echo(_OWNER)
    print_facts((facts | stated).items(), 10)
