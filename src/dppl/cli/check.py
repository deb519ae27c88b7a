"""`dppl check`: let the owner of private records find the mistakes that `dppl fit` must keep silent about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dppl.cli import _options as options
from dppl.cli._options import DATA, budget_from_options, option
from dppl.cli._output import console, print_json
from dppl.cli._owner import WARNING, print_report, report_on_source, report_on_table
from dppl.cli._paths import check_inputs, ids_of_persons, opened_source
from dppl.cli._progress import working
from dppl.errors import ParameterError
from dppl.io import Columns, holds_embeddings, read_classes, read_table
from dppl.kernel.privacy import Budget

_X = Annotated[str | None, option("NAME", "Array or column of embeddings, texts or images.", DATA, "--x")]
_Y = Annotated[str | None, option("NAME", "Array or column of labels. Default: y, or label or labels.", DATA, "--y")]


@options.first("classes", "epsilon", "delta", "labels", "as_json")
def check(
    table: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="Embeddings (see `dppl fit`), or images or texts (see `dppl embed`)."),
    ],
    classes: Annotated[Path, option("FILE", "Public list of classes, one per line.")],
    labels: options.Labels = None,
    x: _X = None,
    y: _Y = None,
    person: options.Person = None,
    identity: options.Id = None,
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    as_json: options.Json = False,
) -> None:
    """Report on private records, before a fit: bad ones, unknown labels, class sizes.

    For the data owner's eyes only: the report describes private records, and
    no guarantee protects it. Type it before `dppl train`, `dppl fit` and `dppl
    finetune`: they leave a bad record out (under replace-one a row counts as
    one of zeros) and say nothing about it, even if it is every one; this
    command finds it, and counts the labels of the others. The last line says
    how many records a fit uses. Rows and records are counted from 0. Of
    images and texts it reads every record, and needs no encoder. The exit code
    is 0 whatever is found. With --person it also tells how many records
    persons have, and what of them a fit keeps. With a budget it also says
    which classes of a table a fit of the default method without public rows
    is expected to find; `dppl plan` says that from guesses. A budget chosen
    with this report in view is a choice made by looking at private records.

    For example:

      dppl check mails.csv --classes classes.txt
      dppl check scans/ --classes classes.txt
      dppl check notes.csv --encoding cp1252 --classes classes.txt
      dppl check train.npz --classes classes.txt --epsilon 1 --delta 1e-6
      dppl check train.npy --labels y.txt --classes classes.txt --json
      dppl check mails.csv --x body --y folder --classes folders.txt
      dppl check mails.csv --person customer --classes folders.txt
    """
    check_inputs(table, classes, labels)
    given = any(value is not None for value in (mu, rho, epsilon, delta))
    budget = budget_from_options(mu, rho, epsilon, delta) if given else None
    class_list = read_classes(classes)
    if kind == "auto" and holds_embeddings(table, x=x or "x"):
        private = read_table(table, x=x or "x", y=y or "y", labels=labels)
        with working("reading"):
            ids = None if person is None else ids_of_persons(table, person, y=y or "y", labels=labels)
            report = report_on_table(private, class_list, ids)
    elif budget is not None:
        raise ParameterError("a budget goes with a table of embeddings: run dppl embed first, or dppl plan.")
    else:
        columns = Columns(x, y, identity, person)
        source = opened_source(
            table, kind=kind, columns=columns, labels=labels, split=split, encoding=encoding, delimiter=delimiter
        )
        with working("reading"):
            report = report_on_source(source, class_list)
    if budget is not None and report["labels"] is not None:
        _add_expectations(report["labels"], budget, report["dimension"])
    typer.echo(WARNING, err=as_json)
    if as_json:
        print_json({"for_the_owner_only": WARNING, **report})
    else:
        print_report(report, console())


def _add_expectations(labels: dict[str, Any], budget: Budget, n_features: int) -> None:
    """Say of each class whether a fit is expected to find it: of its records, or of the persons that count in it."""
    from dppl.planning import NO, plan_of_sizes  # here, because the help of a command needs no SciPy

    sizes = [entry.get("persons", entry["n"]) for entry in labels["class_sizes"]]
    # Pure DP selects public rows; how many there are does not matter to the plan.
    expected = plan_of_sizes(budget, sizes, n_features, n_public=1)
    for entry, one in zip(labels["class_sizes"], expected, strict=True):
        entry |= {"recall": one.recall, "low": one.low, "high": one.high, "found": one.found}
    labels["budget"] = {"notion": budget.notion, **budget.to_dict()}
    labels["not_found"] = [entry["class"] for entry in labels["class_sizes"] if entry["found"] == NO]
