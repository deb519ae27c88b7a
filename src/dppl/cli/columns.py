"""`dppl columns`: a first schema of the columns of a file, which names and types decide."""

from __future__ import annotations

import shlex
from pathlib import Path

from dppl.cli._output import echo, printable
from dppl.cli._paths import check_output
from dppl.cli._records import Records, Y, reading
from dppl.cli._request import argument, flag, option, request


@request("out", "y", "force")
class Columns(Y, Records):
    r"""Propose a schema of columns, by which rows of an ordinary table are embedded.

    Reads the names of the columns of a file, and the types of .parquet, and no
    value. The schema is public: fill in bounds and values from knowledge of the
    field, never from the data. Lines with "?" must be filled in; columns that a
    schema does not name are not read.

    For example:

      dppl columns visits.csv --y outcome --out visits.toml
      dppl check visits.csv --y outcome --encoder columns:visits.toml \
        --classes outcomes.txt
      dppl train visits.csv --y outcome --encoder columns:visits.toml \
        --classes outcomes.txt --epsilon 1 --delta 1e-6 --out my.safetensors
    """

    data: str = argument(
        "DATA",
        "Records in columns: .csv, .tsv, .jsonl, .parquet, .xlsx, .ods; or a database.",
    )
    read: list[str] = reading("kind", "encoding", "sheet", "header", "sql", raw=False)
    out: Path = option("FILE", "File of TOML to write.")
    force: bool = flag("Replace the output file if it exists.")

    def run(self) -> None:
        """Write the proposal."""
        from dppl._utils.files import write_atomically
        from dppl.encoders.proposals import proposed
        from dppl.io.records.record import LABELS
        from dppl.io.records.sources import column_types

        check_output(self.out, (self.path,), force=self.force, suffixes=(".toml",))
        place = self.database() if "sql" in self.how else self.path
        # Names and types alone: a value that was read here could end in the schema.
        names = column_types(place, **self.how)
        # The labels are what is predicted, and no column to predict from.
        labels = self.y or next((one for one in LABELS if one in names), None)
        text = "\n".join([*proposed(names, labels), ""])
        write_atomically(self.out, text.encode(), overwrite=self.force)
        echo(
            f"Schema: {printable(self.out)}. Fill in the lines with ?, from knowledge and not from the data."
        )
        words = self.again()
        if labels is None:
            echo("Remove the column of the labels, too, or name it with --y.")
            words += ["--y", "COLUMN"]
        words += ["--encoder", f"columns:{self.out}", "--classes", "FILE"]
        echo(printable(f"Next: dppl check {shlex.join(words)}"))
