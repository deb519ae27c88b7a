"""`dppl ledger`: open an account of a private data set, and look at what was spent from it."""

from __future__ import annotations

import csv
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.table import Table

from dppl.cli._groups import Budget
from dppl.cli._output import console, print_json, printable
from dppl.cli._request import argument, command, flag, option, request
from dppl.errors import LedgerError, ParameterError
from dppl.kernel.privacy.guarantee import Adjacency, Guarantee
from dppl.statement.words import figures, in_words, rounded_down

if TYPE_CHECKING:
    from dppl.kernel.privacy import Ledger

ledger = typer.Typer(
    name="ledger",
    help="Keep an account of everything released from a private data set.",
    no_args_is_help=True,
    add_completion=False,
)

_FILE = "SQLite file, or a database URL (postgresql+psycopg://...)."
_ADDS = " (squares of mu add, not epsilons)"
_COLUMNS = ("number", "status", "mechanism", "cost", "partition", "estimator", "charged_at", "model_sha256")

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
    from dppl.kernel.privacy.ledger import Ledger, accounts  # SQLAlchemy, which no help needs

    taken: list[str] = []
    with suppress(LedgerError):  # there is none yet, or opening it below says what is wrong
        taken = [account.dataset for account in accounts(file)]
    if dataset in taken:
        raise ParameterError(f"data set {dataset!r} already has an account here; its budget is fixed.")
    adjacency = cast(Adjacency, request.adjacency)
    account = Ledger(file, dataset, budget, adjacency=adjacency, accounting=request.accounting, unit=unit)
    typer.echo(f"Data set {printable(dataset)}: {budget}, {adjacency}{_whose(unit)}, accounting {account.accounting}.")
    person = " --groups COLUMN" if unit == "person" else ""
    typer.echo(f"Next: dppl fit TABLE ...{person} --ledger {_where(file)} --dataset {printable(dataset)}")


@request()
class Show:
    """What `dppl ledger show` is asked."""

    file: str = argument("FILE", _FILE)
    json: bool = flag("Print JSON.")


def show(request: Show) -> None:
    """Print what each data set has spent and has left, and what was released from it.

    For example:

      dppl ledger show ledger.db
    """
    from dppl.kernel.privacy.ledger import accounts

    books = [account.to_dict() for account in accounts(request.file)]
    if request.json:
        print_json(books)
        return
    if not books:
        typer.echo("No data set has an account here. Next: dppl ledger create")
    for book in books:
        kept = f"{book['adjacency']}{_whose(book['unit'])}, accounting {book['accounting']}"
        console().print(f"{printable(book['dataset'])} ({kept}): {_balance(book)}")
        if book["releases"]:
            console().print(_table(book["releases"]))
        console().print()


@request()
class Export:
    """What `dppl ledger export` is asked."""

    file: str = argument("FILE", _FILE)
    dataset: str | None = option("NAME", "Only this data set.", None)


def export(request: Export) -> None:
    """Print all releases as CSV.

    For example:

      dppl ledger export ledger.db > releases.csv
    """
    from dppl.kernel.privacy.ledger import accounts

    dataset = request.dataset
    books = [account for account in accounts(request.file) if dataset in (None, account.dataset)]
    if dataset is not None and not books:
        raise ParameterError(f"the ledger has no data set {dataset!r}.")
    writer = csv.writer(sys.stdout)
    writer.writerow(["dataset", *_COLUMNS, "adjacency", "released_at", "dppl_version"])
    for account in books:
        for release in account.releases():
            cells = [release[name] for name in (*_COLUMNS, "adjacency", "released_at", "dppl_version")]
            writer.writerow(
                [account.dataset, *[", ".join(figures(cell)) if isinstance(cell, dict) else cell for cell in cells]]
            )


for run in (create, show, export):
    ledger.command()(command(run))


def tell_charge(file: str | None, account: Ledger | None, guarantee: Guarantee, *, err: bool = False) -> None:
    """Say what paid for a fit, and what is left there; nothing if nothing was charged."""
    if file is None or account is None or guarantee.ledger_entry is None:
        return
    book = account.to_dict()
    (charge,) = (
        one for one in book["releases"] if guarantee.ledger_entry == f"{book['dataset']}, release {one['number']}"
    )
    cost, name = ", ".join(figures(charge["cost"])), printable(book["dataset"])
    typer.echo(f"Charged: {cost}, to {name} in {_where(file)}, release {charge['number']}: {_balance(book)}.", err=err)


def _balance(book: dict[str, Any]) -> str:
    """Return what an account may spend, has spent and has left."""
    adds = _ADDS if book["accounting"] == "gdp" and "mu" not in book["budget"] else ""
    left = rounded_down(book["left"], book["budget"])
    return f"budget {in_words(book['budget'])}; spent {in_words(book['spent'])}; left {left}{adds}"


def _where(file: str) -> str:
    return "URL" if "://" in file else printable(file)  # a URL may hold a password


def _table(releases: list[dict[str, Any]]) -> Table:
    """Return a table that fits into 80 columns, with date, cost and file; `export` has all there is."""
    from dppl.kernel.privacy.ledger import RELEASED

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
