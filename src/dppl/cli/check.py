"""`dppl check`: what the owner of private records should know of them before a fit."""

from __future__ import annotations

from pathlib import Path

import typer

from dppl import io
from dppl.cli._groups import Labelled
from dppl.cli._output import console, print_json
from dppl.cli._owner import WARNING, print_report
from dppl.cli._paths import check_inputs, ids_of_persons, opened_source
from dppl.cli._progress import working
from dppl.cli._request import argument, flag, option, request


@request("classes", "labels", "groups", "json")
class Check:
    """What `dppl check` is asked."""

    table: Path = argument("DATA", "Embeddings (see `dppl fit`), or images or texts (see `dppl embed`).")
    classes: Path = option("FILE", "Public list of classes, one per line.")
    items: Labelled
    groups: str | None = option(
        "NAME|FILE",
        "Array or column of person ids: also report how many records persons have, and what of them a fit keeps.",
        None,
        typed={"person": "--groups"},
    )
    json: bool = flag("Print JSON.")


def check(request: Check) -> None:
    """Report on private records, before a fit: bad ones, unknown labels, class sizes.

    For the data owner's eyes only: the report describes private records, and
    no guarantee protects it. Type it before `dppl train`, `dppl fit` and `dppl
    finetune`: they leave a bad record out (under replace-one a row counts as
    one of zeros) and say nothing about it, even if it is every one; this
    command finds it, and counts the labels of the others. The last line says
    how many records a fit uses. Rows and records are counted from 0. Of
    images and texts it reads every record, and needs no encoder. The exit code
    is 0 whatever is found. What a budget buys is a question for `dppl plan`: a
    budget chosen with this report in view is a choice made by looking at
    private records.

    For example:

      dppl check mails.csv --classes classes.txt
      dppl check scans/ --classes classes.txt
      dppl check notes.csv --read encoding=cp1252 --classes classes.txt
      dppl check train.npy --labels y.txt --classes classes.txt --json
      dppl check mails.csv --x body --y folder --classes folders.txt
      dppl check mails.csv --groups customer --classes folders.txt
    """
    from dppl.checks import report_on_source, report_on_table

    path, items = request.table, request.items
    check_inputs(path, request.classes, items.labels)
    classes = io.read_classes(request.classes)
    how = items.how()
    if how.get("kind", "auto") == "auto" and io.holds_embeddings(path, x=items.x or "x"):
        y = items.y or "y"
        table = io.read_table(path, x=items.x or "x", y=y, labels=items.labels)
        with working("reading"):
            report = report_on_table(table, classes, ids_of_persons(path, request.groups, y=y, labels=items.labels))
    else:
        source = opened_source(path, items, items.columns(request.groups), items.labels)
        with working("reading"):
            report = report_on_source(source, classes)
    typer.echo(WARNING, err=request.json)
    if request.json:
        print_json({"for_the_owner_only": WARNING, **report})
    else:
        print_report(report, console())
