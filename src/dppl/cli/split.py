"""`dppl split`: hold records out for an evaluation. What it prints is the same whatever the records are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from dppl import io
from dppl.cli._groups import QUERY, BeforeCharge, Query, Records, check_output, parse_pairs
from dppl.cli._output import printable, tell_owner
from dppl.cli._request import argument, option, request
from dppl.errors import ParameterError

_READING = ("kind", "encoding", "sheet")


@request("test", "groups", "out_train", "out_test", "key")
class Split(BeforeCharge, Query):
    r"""Hold records out for an evaluation: each falls into one of two files by a coin.

    A model of the one file and its evaluation on the other then share no record,
    so a record pays the larger of both costs, not their sum. Name the parts to a
    ledger: --dataset NAME/train and --dataset NAME/test.

    With --groups a person falls on one side with all of their records. With --key
    an id falls on the same side whenever you split: next quarter, or in another
    file. Draw the key once, before you look at a record, and keep it secret; a key
    that was chosen for its result is not covered by any guarantee.

    Both files are as private as the records. How many records they hold is shown
    to their owner by `dppl check`.

    For example:

      dppl split mails.csv --test 0.2 --out-train train.csv --out-test test.csv

      openssl rand -hex 32 > split.key
      dppl split visits.parquet --test 0.2 --groups patient --key split.key \
        --out-train train.parquet --out-test test.parquet
    """

    data: Path = argument(
        "DATA", "Labelled records: .csv, .tsv, .jsonl, .parquet or a folder of them, .npz, .xlsx, .ods.", QUERY
    )
    test: float = option(
        "SHARE", "Chance of a record, or of a person, to be held out, such as 0.2.", typed={"share": "--test"}
    )
    groups: str | None = option(
        "NAME", "Column of ids of persons, who fall on one side with all of their records; or of records.", None
    )
    out_train: Path = option(
        "FILE", "New file for the records to train on, of the same kind as DATA; of a workbook or query .csv."
    )
    out_test: Path = option("FILE", "New file for the records that are held out.")
    key: Path | None = option("FILE", "File with a secret, by which an id always falls on the same side.", None)

    x: str | None = option("NAME", "For --strict and --review: column of texts, images or embeddings.", None)
    read: list[str] = option(
        "NAME=VALUE",
        "How DATA is read, as by `dppl embed`: kind, encoding, sheet.",
        (),
        typed={name: f"--read {name}" for name in _READING},
    )

    def run(self) -> None:
        """Write both files and say what to do with them."""
        outs = (self.out_train, self.out_test)
        for name, out in zip(("out_train", "out_test"), outs, strict=True):
            check_output(out, (self.data, self.key), parameter=name)
        if self.out_train.resolve() == self.out_test.resolve():
            raise ParameterError("must be another file than --out-train.", parameter="out_test")
        if self.key is not None and not self.key.exists():
            draw = f"openssl rand -hex 32 > {shlex.quote(str(self.key))}"
            raise ParameterError(f"must be a file with a secret; there is none. Draw one: {draw}", parameter="key")
        how: Any = parse_pairs(self.read, "read", _READING, literal=False)
        place = self.place_of_query(self.data)
        self.check_first(
            lambda: Records(x=self.x, read=self.read, sql=self.sql, database=self.database).open_any(self.data, None)
        )
        key = None if self.key is None else self.key.read_bytes().strip()
        io.split_file(place or self.data, *outs, self.test, groups=self.groups, key=key, sql=self.sql, **how)
        train, test = map(printable, outs)
        typer.echo(f"Two files that share no record{'' if self.groups is None else ', and no id'}: {train}, {test}")
        typer.echo("They are as private as the records.")
        typer.echo(
            f"Next: train on {train} with --ledger FILE --dataset NAME/train; then dppl evaluate MODEL {test} "
            "--private with --ledger FILE --dataset NAME/test"
        )
        tell_owner("a model of them", "what dppl check FILE --classes FILE prints")
