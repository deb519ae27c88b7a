"""`dppl ledger`: open an account of a private data set, and look at what was spent from it."""

from __future__ import annotations

import csv
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from dppl.cli import _options as options
from dppl.cli._options import BUDGET, budget_from_options, option
from dppl.cli._output import console, print_json, printable
from dppl.errors import LedgerError, ParameterError
from dppl.kernel.privacy.guarantee import Adjacency, Guarantee
from dppl.kernel.privacy.ledger import RELEASED, Ledger, accounts, check_name
from dppl.statement.words import figures, in_words, rounded_down

ledger = typer.Typer(
    name="ledger",
    help="Keep an account of everything released from a private data set.",
    no_args_is_help=True,
    add_completion=False,
)

_File = Annotated[
    str, typer.Argument(metavar="FILE", help="SQLite file, or a database URL (postgresql+psycopg://...).")
]
_ADDS = " (squares of mu add, not epsilons)"
_COLUMNS = ("number", "status", "mechanism", "cost", "partition", "estimator", "charged_at", "model_sha256")

_DIGITS = 12  # of a hash, to tell files apart


@ledger.command()
@options.first("dataset", "epsilon", "delta", "mu", "adjacency")
def create(
    file: _File,
    dataset: Annotated[str, typer.Option(metavar="NAME", help="Name of the private data set.", show_default=False)],
    epsilon: Annotated[float | None, option("E", "With --delta: approximate DP. Alone: pure DP.", BUDGET)] = None,
    delta: Annotated[float | None, option("D", "Far below 1 / number of records.", BUDGET)] = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    max_records: options.MaxRecords = None,
    adjacency: Annotated[
        str, typer.Option(metavar="add-remove|replace-one", help="Relation in which the account is kept.")
    ] = "add-remove",
    accounting: Annotated[
        str | None,
        option(
            "gdp|renyi",
            "How an account with --epsilon and --delta adds up; fixed when it is opened. gdp: by mu, exact for "
            "Gaussian noise. renyi: also takes searches for hyper-parameters. Default gdp.",
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(metavar="record|person", help="Whom it is for; person takes fits with --groups alone.")
    ] = "record",
) -> None:
    r"""Open an account for a data set, in a new or an existing ledger.

    For example:

      dppl ledger create ledger.db --dataset wards --epsilon 2 --delta 1e-6

      dppl ledger create ledger.db --dataset trial --mu 0.5
    """
    if "://" not in file and not Path(file).resolve().parent.is_dir():
        raise ParameterError(f"FILE must lie in an existing folder; {Path(file).parent} is not one; create it first.")
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    taken: list[str] = []
    with suppress(LedgerError):  # there is none yet, or opening it below says what is wrong
        taken = [account.dataset for account in accounts(file)]
    if dataset in taken:
        raise ParameterError(f"data set {dataset!r} already has an account here; its budget is fixed.")
    account = Ledger(file, dataset, budget, adjacency=cast(Adjacency, adjacency), accounting=accounting, unit=unit)
    typer.echo(f"Data set {printable(dataset)}: {budget}, {adjacency}{_whose(unit)}, accounting {account.accounting}.")
    person = " --groups COLUMN" if unit == "person" else ""
    typer.echo(f"Next: dppl fit TABLE ...{person} --ledger {_where(file)} --dataset {printable(dataset)}")


@ledger.command()
def show(file: _File, as_json: options.Json = False) -> None:
    """Print what each data set has spent and has left, and what was released from it.

    For example:

      dppl ledger show ledger.db
    """
    books = [account.to_dict() for account in accounts(file)]
    if as_json:
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


@ledger.command()
def export(
    file: _File, dataset: Annotated[str | None, typer.Option(metavar="NAME", help="Only this data set.")] = None
) -> None:
    """Print all releases as CSV.

    For example:

      dppl ledger export ledger.db > releases.csv
    """
    books = [account for account in accounts(file) if dataset in (None, account.dataset)]
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


def open_account(file: str | None, dataset: str | None, partition: str | None) -> Ledger | None:
    """Open the account that ``--ledger`` and ``--dataset`` name, in an existing ledger; None if they name none."""
    if file is None and dataset is None and partition is None:
        return None
    if file is None or dataset is None:
        raise ParameterError("--ledger FILE and --dataset NAME go together, and --partition with them.")
    names = [account.dataset for account in accounts(file)]
    if dataset not in names:
        check_name("dataset", dataset, names)
        raise ParameterError(
            f"the ledger has no data set {dataset!r}, but {', '.join(map(repr, names)) or 'none at all'}; name one of "
            "them, or open an account with `dppl ledger create`."
        )
    return Ledger(file, dataset)


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
