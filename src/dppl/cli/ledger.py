"""`dppl ledger`: open an account of a private data set, and look at what was spent from it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.table import Table

from dppl.cli._output import (
    balance,
    console,
    echo,
    note,
    place,
    print_json,
    printable,
    table_of,
)
from dppl.cli._request import argument, flag, option, request
from dppl.cli._training import Budget
from dppl.errors import InputError, LedgerError, ParameterError

_FILE = "SQLite file, or a database URL (postgresql+psycopg://...)."
_DIGITS = 12  # of a hash, to distinguish files


@request("epsilon", "delta", "mu", "adjacency")
class Create(Budget):
    r"""Open an account for a data set, in a new or an existing ledger.

    For example:

      dppl ledger create ledger.db wards --epsilon 2 --delta 1e-6
    """

    file: str = argument("FILE", _FILE)
    dataset: str = argument("DATASET", "Name of the private data set.")
    adjacency: str = option(
        "add-remove|replace-one",
        "Relation in which the account is kept. Default add-remove.",
        "add-remove",
    )
    accounting: str | None = option(
        "gdp|renyi",
        "How an account with --epsilon and --delta adds up. gdp: by mu, exact for Gaussian noise. renyi: also takes "
        "searches for hyper-parameters. Default gdp.",
        None,
    )
    unit: str = option(
        "record|person",
        "Whom it is for; person takes fits with --groups alone. Default record.",
        "record",
    )

    def run(self) -> None:
        """Open the account and say what it holds."""
        from dppl.kernel.privacy.ledger import Ledger, accounts
        from dppl.kernel.privacy.terms import Unit

        file = self.file
        dataset = self.dataset
        budget = self.budget()
        # Asked first, for opening an account that exists with another budget would say
        # that they differ.
        taken: list[str] = []
        with suppress(
            LedgerError
        ):  # there is none yet, or opening it below says what is wrong
            taken = [account.dataset for account in accounts(file)]
        if dataset in taken:
            raise ParameterError(
                f"data set {dataset!r} already has an account here; its budget is fixed."
            )
        adjacency: Any = self.adjacency
        account = Ledger(
            file,
            dataset,
            budget,
            adjacency=adjacency,
            accounting=self.accounting,
            unit=self.unit,
        )
        rules = _rules(account.adjacency, account.unit, account.accounting)
        echo(f"Data set {printable(dataset)}: {budget}, {rules}.")
        note(budget.weakness)
        person = ""
        if self.unit == Unit.PERSON:
            person = "--groups COLUMN "
        echo(
            f"Next: add {person}--ledger {place(file)} {printable(dataset)} to dppl train, fit or finetune"
        )


@request()
class Show:
    """Print what each data set has spent and has left, and what was released from it.

    For example:

      dppl ledger show ledger.db
      dppl ledger show ledger.db --json
    """

    file: str = argument("FILE", _FILE)
    dataset: str | None = argument("DATASET", "Only this data set.", None)
    json: bool = flag("Print JSON, with all there is of the releases.")

    def run(self) -> None:
        """Print the accounts."""
        from dppl.kernel.privacy.ledger import UNSAVED, Ledger, accounts

        # A ledger without the data set that is named is a slip; one without any is new.
        if self.dataset is None:
            shown = accounts(self.file)
        else:
            shown = [Ledger(self.file, self.dataset)]
        books = [one.to_dict() for one in shown]
        if self.json:
            for release in (one for book in books for one in book["releases"]):
                if release["status"] == UNSAVED:
                    release["model_sha256"] = None  # there is no such file yet
            print_json(books)
        elif not books:
            echo("No data set has an account here. Next: dppl ledger create")
        else:
            screen = console()
            for book in books:
                rules = _rules(book["adjacency"], book["unit"], book["accounting"])
                screen.print(f"{printable(book['dataset'])} ({rules}): {balance(book)}")
                if book["releases"]:
                    screen.print(_table(book["releases"]))
                screen.print()


@request()
class Saved:
    """Record that a file is there, which was moved from where an error said it is.

    For example:

      dppl ledger saved ledger.db wards my.safetensors
    """

    file: str = argument("FILE", _FILE)
    dataset: str = argument("DATASET", "The data set that paid for it.")
    model: Path = argument("MODEL", "The model file, or the evaluation (.json).")

    def run(self) -> None:
        """Find the charge of the file, and mark it."""
        from hashlib import sha256

        from dppl.cli._models import load_model
        from dppl.kernel.privacy.ledger import RELEASED, Ledger
        from dppl.statement.data import charges_of_evaluation, read_evaluation

        account = Ledger(self.file, self.dataset)
        digest = sha256(self.model.read_bytes()).hexdigest()
        if self.model.suffix.lower() == ".json":
            charges = charges_of_evaluation(read_evaluation(self.model))
        else:
            charges = load_model(self.model).guarantee_.charges
        for charge in charges:
            account.saved(charge, digest)
        numbers = [
            one["number"]
            for one in account.releases()
            if (one["model_sha256"], one["status"]) == (digest, RELEASED)
        ]
        if not numbers:
            raise InputError(
                f"no charge of {self.dataset} in this ledger paid for {self.model}."
            )
        echo(
            f"{printable(self.model)} is the file of release {numbers[-1]} of {printable(self.dataset)}."
        )


COMMANDS = (Create, Show, Saved)


def _table(releases: list[dict[str, Any]]) -> Table:
    """Return a table that fits into 80 columns, with date, cost and file; `--json` has all there is."""
    from dppl.statement.words import IN_NO_FILE, charged, figures

    rows = []
    for release in releases:
        if release["partition"] is None:
            part = []
        else:
            part = [f"part {release['partition']}"]
        file = (release["model_sha256"] or "")[:_DIGITS]
        status = IN_NO_FILE.get(release["status"], file)
        when = release["charged_at"].replace("T", " ")[: len("2026-01-31 12:00")]
        what = [release["estimator"], charged(release["mechanism"]), *part]
        rows.append([release["number"], when, what, figures(release["cost"]), status])
    return table_of(("no.", "date (UTC)", "release", "cost", "file, sha256"), rows)


def _rules(adjacency: str, unit: str, accounting: str) -> str:
    from dppl.kernel.privacy.terms import Unit

    return f"{adjacency}{', for persons' if unit == Unit.PERSON else ''}, accounting {accounting}"
