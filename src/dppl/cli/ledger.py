"""`dppl ledger`: open an account of a private data set, and look at what was spent from it."""

from __future__ import annotations

import csv
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from dppl.cli._groups import Budget, say_if_weak
from dppl.cli._output import console, print_json, printable
from dppl.cli._request import argument, flag, option, request
from dppl.errors import LedgerError, ParameterError

if TYPE_CHECKING:
    from dppl.kernel.privacy import Guarantee, Ledger

_FILE = "SQLite file, or a database URL (postgresql+psycopg://...)."
_ADDS = " (squares of mu add, not epsilons)"
_COLUMNS = (
    *("number", "status", "mechanism", "cost", "partition", "estimator", "charged_at", "model_sha256"),
    *("adjacency", "released_at", "dppl_version"),
)
_DIGITS = 12  # of a hash, to tell files apart


@request("dataset", "epsilon", "delta", "mu", "adjacency")
class Create:
    """What `dppl ledger create` is asked."""

    file: str = argument("FILE", _FILE)
    dataset: str = option("NAME", "Name of the private data set.")
    budget: Budget
    adjacency: str = option(
        "add-remove|replace-one", "Relation in which the account is kept. Default add-remove.", "add-remove"
    )
    accounting: str | None = option(
        "gdp|renyi",
        "How an account with --epsilon and --delta adds up; fixed when it is opened. gdp: by mu, exact for Gaussian "
        "noise. renyi: also takes searches for hyper-parameters. Default gdp.",
        None,
    )
    unit: str = option(
        "record|person", "Whom it is for; person takes fits with --groups alone. Default record.", "record"
    )


def create(request: Create) -> None:
    r"""Open an account for a data set, in a new or an existing ledger.

    For example:

      dppl ledger create ledger.db --dataset wards --epsilon 2 --delta 1e-6

      dppl ledger create ledger.db --dataset trial --mu 0.5
    """
    file, dataset, unit = request.file, request.dataset, request.unit
    if "://" not in file and not Path(file).resolve().parent.is_dir():
        raise ParameterError(f"FILE must lie in an existing folder; {Path(file).parent} is not one; create it first.")
    budget = request.budget.spent()
    from dppl.kernel.privacy.ledger import Ledger, accounts

    # Asked first, for opening an account that exists with another budget would say that they differ.
    taken: list[str] = []
    with suppress(LedgerError):  # there is none yet, or opening it below says what is wrong
        taken = [account.dataset for account in accounts(file)]
    if dataset in taken:
        raise ParameterError(f"data set {dataset!r} already has an account here; its budget is fixed.")
    adjacency: Any = request.adjacency
    account = Ledger(file, dataset, budget, adjacency=adjacency, accounting=request.accounting, unit=unit)
    typer.echo(f"Data set {printable(dataset)}: {budget}, {adjacency}{_whose(unit)}, accounting {account.accounting}.")
    say_if_weak(budget)
    person = " --groups COLUMN" if unit == "person" else ""
    typer.echo(f"Next: dppl fit TABLE ...{person} --ledger {_where(file)} --dataset {printable(dataset)}")


@request()
class Show:
    """What `dppl ledger show` is asked."""

    file: str = argument("FILE", _FILE)
    dataset: str | None = option("NAME", "Only this data set.", None)
    csv: bool = flag("Print all there is of the releases, as CSV.")
    json: bool = flag("Print JSON.")


def show(request: Show) -> None:
    """Print what each data set has spent and has left, and what was released from it.

    For example:

      dppl ledger show ledger.db
      dppl ledger show ledger.db --csv > releases.csv
    """
    from dppl.kernel.privacy.ledger import accounts
    from dppl.statement.words import figures

    books = [one.to_dict() for one in accounts(request.file) if request.dataset in (None, one.dataset)]
    if request.dataset is not None and not books:
        raise ParameterError(f"the ledger has no data set {request.dataset!r}.")
    if request.json:
        print_json(books)
        return
    if request.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(["dataset", *_COLUMNS])
        for book in books:
            for release in book["releases"]:
                cells = release | {"cost": ", ".join(figures(release["cost"]))}
                writer.writerow([book["dataset"], *(cells[name] for name in _COLUMNS)])
        return
    if not books:
        typer.echo("No data set has an account here. Next: dppl ledger create")
    for book in books:
        kept = f"{book['adjacency']}{_whose(book['unit'])}, accounting {book['accounting']}"
        console().print(f"{printable(book['dataset'])} ({kept}): {_balance(book)}")
        if book["releases"]:
            console().print(_table(book["releases"]))
        console().print()


ledger = (create, show)


def tell_charge(file: str | None, account: Ledger | None, guarantee: Guarantee) -> None:
    """Say what paid for a fit, and what is left there; nothing if nothing was charged."""
    if file is None or account is None or guarantee.ledger_entry is None:
        return
    from dppl.statement.words import figures

    book = account.to_dict()
    (charge,) = (
        one for one in book["releases"] if guarantee.ledger_entry == f"{book['dataset']}, release {one['number']}"
    )
    cost, name = ", ".join(figures(charge["cost"])), printable(book["dataset"])
    typer.echo(f"Charged: {cost}, to {name} in {_where(file)}, release {charge['number']}: {_balance(book)}.")


def _balance(book: dict[str, Any]) -> str:
    """Return what an account may spend, has spent and has left."""
    from dppl.statement.words import in_words, rounded_down

    adds = _ADDS if book["accounting"] == "gdp" and "mu" not in book["budget"] else ""
    left = rounded_down(book["left"], book["budget"])
    return f"budget {in_words(book['budget'])}; spent {in_words(book['spent'])}; left {left}{adds}"


def _where(file: str) -> str:
    return "URL" if "://" in file else printable(file)  # a URL may hold a password


def _table(releases: list[dict[str, Any]]) -> Table:
    """Return a table that fits into 80 columns, with date, cost and file; `--csv` has all there is."""
    from dppl.kernel.privacy.ledger import RELEASED
    from dppl.statement.words import figures

    table = Table()
    for heading in ("no.", "date (UTC)", "release", "cost", "file (sha256)"):
        table.add_column(heading, overflow="fold")
    for release in releases:
        part = [] if release["partition"] is None else [f"part {release['partition']}"]
        file = (release["model_sha256"] or "")[:_DIGITS]
        status = file if release["status"] == RELEASED else "charged, unfinished"
        when = release["charged_at"].replace("T", " ")[: len("2026-01-31 12:00")]
        lines = ([when], [release["estimator"], release["mechanism"], *part], figures(release["cost"]), [status])
        table.add_row(str(release["number"]), *("\n".join(map(printable, several)) for several in lines))
    return table


def _whose(unit: str) -> str:
    return ", for persons" if unit == "person" else ""
