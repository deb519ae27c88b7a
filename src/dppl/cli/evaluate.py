"""`dppl evaluate`: how good a model is on labelled records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from dppl import io
from dppl.cli._groups import Labelled, ModelEncoder
from dppl.cli._output import console, note, print_json, printable
from dppl.cli._paths import check_inputs, how_to_label, ids_of_persons, opened, read_rows_for, require_labels
from dppl.cli._progress import embedding_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.cli.predict import DATA, is_table, opened_for
from dppl.errors import InputError


@request("labels", "x", "y", "encoder", "json")
class Evaluate:
    """What `dppl evaluate` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
    table: Path = argument("DATA", f"{DATA}, with labels.")
    items: Labelled
    groups: str | None = option(
        "NAME|FILE",
        "Array or column of person ids (for .npy a second .npy file): also report the mean accuracy per person.",
        None,
        typed={"person": "--groups"},
    )
    encoder: ModelEncoder
    json: bool = flag("Print JSON.")


def evaluate(request: Evaluate) -> None:
    """Compare a model's predictions with the labels of a table or source.

    Figures computed on private records are not covered by the guarantee:
    do not publish them with the model.

    Balanced accuracy is the mean of the class accuracies, over the classes
    with records in the table; guessing gets 1 / number of classes, and classes
    that get no more are named. Minority accuracy is that mean over the smallest
    25 % of them (rounded down, but at least one), by their sizes in the table;
    of equal sizes the first class in the model's order counts as smaller, and
    where all sizes are equal there is no minority. In the accuracy a label
    that the model does not know counts as a wrong prediction; the means over
    classes leave it out. Records that cannot be used are left out of these
    figures; n_unusable says how many there are.

    With --groups, the accuracy per person is the mean over persons of the share
    of their records that is right: each person counts once. A missing id is a
    person of its own.

    --json also has all confusions, the most frequent first; `dppl show
    --results` draws them.

    For example:

      dppl evaluate my.safetensors test.npz
      dppl evaluate my.safetensors scans.parquet --groups patient
      dppl evaluate my.safetensors test.npy --labels y.npy --json
      dppl evaluate my.safetensors scans/
    """
    import numpy as np

    from dppl.evaluation import evaluate as compare
    from dppl.predictions import predict_table, windows

    model, table, items = opened(request.model), request.table, request.items
    check_inputs(table, items.labels)
    truth: list[Any] = []
    predicted: list[Any] = []
    persons: list[Any] = []
    unusable = 0
    if is_table(model, table, items, request.encoder.encoder):
        y = items.y or "y"
        rows = read_rows_for(model, table, x=items.x or "x", y=y, labels=items.labels)
        with working("predicting"):
            labels = predict_table(model, rows).labels
        ids = labels if request.groups is None else ids_of_persons(table, request.groups, y=y, labels=items.labels)
        if len(ids) != len(labels):
            raise InputError(f"must name one id for each row of {table}; their numbers differ.", parameter="groups")
        usable = [one for one in zip(require_labels(rows, table), labels, ids, strict=True) if one[1] is not None]
        truth, predicted, persons = map(list, zip(*usable, strict=True)) if usable else ([], [], [])
        unusable = len(labels) - len(usable)
    else:
        known = (
            getattr(model, "columns_", {})
            if items.labels is None and io.has_columns(table, items.how().get("kind", "auto"))
            else {}
        )
        columns = replace(items.columns(request.groups), y=items.y or known.get("y"))
        source = opened_for(model, table, items, columns, items.labels)
        if source.label_type is None:
            raise InputError(f"{table} has no labels; {how_to_label(source)}.")
        predictor = request.encoder.predictor(model)
        # A window at a time: no embedding of a private record outlives its window.
        with embedding_bar(source) as progress:
            for window, found in windows(source, predictor, progress):
                truth += window.labels
                predicted += found.labels
                persons += window.persons
                unusable += len(window.skipped)
    if not truth:
        raise InputError(f"{table} has no rows{' that can be used' * bool(unusable)}, so there is nothing to evaluate.")
    groups = None
    if request.groups is not None:
        groups = np.empty(len(persons), object)
        groups[:] = persons
    report = compare(truth, predicted, model.classes_, groups) | {"n_unusable": unusable}
    note("figures computed on private records are not covered by the model's guarantee.")
    if report["balanced_accuracy"] is None:
        note("no label of these records is a class of the model; see --y and --labels.")
    if request.json:
        print_json(report)
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    for key in ("balanced_accuracy", "accuracy", "minority_accuracy"):
        if key != "minority_accuracy" or report[key] is not None:
            typer.echo(f"{key.replace('_', ' '):<18} {_shown(report[key])}")
    if "n_persons" in report:
        each = (
            f"{_shown(report['person_accuracy'])}, mean over {report['n_persons']} persons of the share of their "
            "records that is right"
        )
        typer.echo(f"{'person accuracy':<18} {each}")
    typer.echo(f"{'records':<18} {report['n']}, {report['n_unknown_labels']} with a label that the model does not know")
    if report["n_unusable"]:
        typer.echo(f"{report['n_unusable']} records could not be used and are not counted.")
    lost = ", ".join(printable(name) for name in report["at_or_below_chance"])
    typer.echo(f"Classes at or below chance ({report['chance']:.4f}): {lost or 'none'}")
    table = Table()
    table.add_column("class")
    table.add_column("records", justify="right")
    table.add_column("accuracy", justify="right")
    for entry in report["per_class"]:
        table.add_row(printable(entry["class"]), str(entry["n"]), _shown(entry["accuracy"]))
    console().print(table)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
