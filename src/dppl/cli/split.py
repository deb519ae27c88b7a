"""`dppl split`: hold records out for an evaluation. What it prints is the same whatever the records are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from dppl import io
from dppl._utils.files import remove_left
from dppl.cli._output import echo, printable, tell_owner
from dppl.cli._paths import check_output
from dppl.cli._records import reading
from dppl.cli._request import argument, option, request
from dppl.cli._unusable import BeforeCharge
from dppl.errors import ParameterError


@request("test", "groups", "out", "key")
class Split(BeforeCharge):
    r"""Hold records out for an evaluation: each falls into one of two files by a coin.

    A model of the one file and its evaluation on the other then share no record,
    so a record pays the larger of both costs, not their sum. Name the parts to a
    ledger: --ledger FILE NAME/train and --ledger FILE NAME/test.

    With --groups a person falls on one side with all of their records. With --key
    an id falls on the same side whenever you split: next quarter, or in another
    file. Draw the key once, before you look at a record, and keep it secret; a key
    that was chosen for its result is not covered by any guarantee.

    Both files are as private as the records. How many records they hold is shown
    to their owner by `dppl check`.

    For example:

      dppl split mails.csv --test 0.2 --out train.csv test.csv

      openssl rand -hex 32 > split.key
      dppl split visits.parquet --test 0.2 --groups patient --key split.key \
        --out train.parquet test.parquet
    """

    data: str = argument(
        "DATA",
        "Labelled records: .csv, .tsv, .jsonl, .parquet or a folder of them, .npz, .xlsx, .ods; or a database.",
    )
    test: float = option(
        "SHARE",
        "Chance of a record, or of a person, to be held out, such as 0.2.",
        typed={"share": "--test"},
    )
    groups: str | None = option(
        "NAME",
        "Column of ids of persons, who fall on one side with all of their records; or of records.",
        None,
    )
    out: tuple[Path, Path] = option(
        "TRAIN TEST",
        "New files for the records to train on, and for those that are held out: of the same kind as DATA, and of a "
        "workbook or query .csv.",
        typed={"out_train": "TRAIN of --out", "out_test": "TEST of --out"},
    )
    key: Path | None = option(
        "FILE",
        "File with a secret, by which an id always falls on the same side.",
        None,
    )
    read: list[str] = reading(
        "x", "kind", "encoding", "sheet", "header", "sql", raw=False
    )

    def run(self) -> None:
        """Write both files and say what to do with them."""
        remove_left(self.out)
        for name, out in zip(("out_train", "out_test"), self.out, strict=True):
            check_output(out, (self.path, self.key), parameter=name)
        if len({out.resolve() for out in self.out}) == 1:
            raise ParameterError(
                "must be another file than TRAIN.", parameter="out_test"
            )
        if self.key is not None and not self.key.exists():
            draw = f"openssl rand -hex 32 > {shlex.quote(str(self.key))}"
            raise ParameterError(
                f"must be a file with a secret; there is none. Draw one: {draw}",
                parameter="key",
            )
        how: Any = {name: value for name, value in self.how.items() if name != "x"}
        place = self.database() if "sql" in how else self.path
        self.check_first(lambda: self.open_any(None))
        key = None
        if self.key is not None:
            key = self.key.read_bytes().strip()
        io.split_file(place, *self.out, self.test, groups=self.groups, key=key, **how)
        train, test = map(printable, self.out)
        echo(
            f"Two files that share no record{'' if self.groups is None else ', and no id'}: {train}, {test}"
        )
        echo("They are as private as the records.")
        echo(
            f"Next: train on {train} with --ledger FILE NAME/train; then dppl evaluate MODEL {test} with "
            "a budget and --ledger FILE NAME/test"
        )
        tell_owner("a model of them", "what dppl check FILE --classes FILE prints")
