"""`dppl check`: let the owner of private records find the mistakes that `dppl fit` must keep silent about."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from dppl.cli import _options as options
from dppl.cli._options import DATA, budget_from_options, option
from dppl.cli._output import console, print_json, printable
from dppl.cli._paths import check_inputs, ids_of_persons
from dppl.cli._persons_check import persons_report, print_persons
from dppl.cli._progress import working
from dppl.cli._raw_check import source_lines, source_report
from dppl.data import EmbeddingTable, read_classes, read_table
from dppl.embedding import Columns, holds_embeddings, open_source
from dppl.errors import ParameterError
from dppl.estimators.persons import checked_ids
from dppl.estimators.reading import class_codes
from dppl.lattice import usable_rows
from dppl.privacy import Budget

WARNING = "For the data owner's eyes only: this report describes private records, and no guarantee protects it."

_BLOCK_ROWS = 4096
_ROW_NUMBERS = 10
_UNKNOWN_SHOWN = 20
_KINDS = ("nan", "infinite", "all_zero")
# What dppl.data puts in the place of a missing label.
_MISSING = ("", int(np.iinfo(np.int64).min))
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
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    as_json: options.Json = False,
) -> None:
    """Report on private records: bad ones, duplicates, unknown labels, class sizes.

    For the data owner's eyes only: the report describes private records, and
    no guarantee protects it. `dppl fit` leaves a bad row out (under replace-one
    it counts as a row of zeros) and says nothing about it; this command finds
    it, and counts the labels of the other rows. Rows are counted from 0. Of
    images and texts it reads every record, and needs no encoder. The exit code
    is 0 whatever is found. With --person it also tells how many records
    persons have, and what of them a fit keeps. With a budget it also says
    which classes of a table a fit of the default method without public rows
    is expected to find; `dppl plan` says that from guesses. A budget chosen
    with this report in view is a choice made by looking at private records.

    For example:

      dppl check train.npz --classes classes.txt
      dppl check train.npz --classes classes.txt --mu 1
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
            # Labels of the rows that can be used, as of raw records.
            report, usable = _rows_report(private), usable_rows(private)
            found = None if private.y is None else private.y[usable]
            if person is not None:
                ids = checked_ids(ids_of_persons(table, person, y=y or "y", labels=labels), private)
                report["persons"] = persons_report(ids, private.y, usable, class_list)
    elif budget is not None:
        raise ParameterError("a budget goes with a table of embeddings: run dppl embed first, or dppl plan.")
    else:
        source = open_source(table, kind=kind, columns=Columns(x, y, identity, person), labels=labels, split=split)
        with working("reading"):
            report, found, ids = source_report(source)
            if person is not None:
                report["persons"] = persons_report(ids, found, np.ones(len(ids), bool), class_list)
    report["labels"] = None if found is None else _labels_report(found, class_list)
    if person is not None and report["labels"] is not None:
        for entry, n in zip(report["labels"]["class_sizes"], report["persons"]["class_sizes"], strict=True):
            entry["persons"] = n
    if budget is not None and report["labels"] is not None:
        _add_expectations(report["labels"], budget, report["dimension"])
    typer.echo(WARNING, err=as_json)
    if as_json:
        print_json({"for_the_owner_only": WARNING, **report})
    else:
        _print_report(report)


@dataclass
class _BadRows:
    """Rows of one kind: how many, and the first few."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: NDArray[np.intp], start: int) -> None:
        self.count += len(rows)
        self.first += (rows[: _ROW_NUMBERS - len(self.first)] + start).tolist()


def _rows_report(table: EmbeddingTable) -> dict[str, Any]:
    bad = {kind: _BadRows() for kind in _KINDS}
    digests = []
    start = 0
    for block in table.blocks(_BLOCK_ROWS):
        usable = _sort_out(block, start, bad)
        digests.append(_digests(block[usable]))
        start += len(block)
    return {
        "rows": table.shape[0],
        "dimension": table.shape[1],
        "dtype": table.dtype.name,
        "bad_rows": {kind: {"count": rows.count, "first": rows.first} for kind, rows in bad.items()},
        "duplicate_rows": _repeats(digests),
    }


def _sort_out(block: NDArray[Any], start: int, bad: dict[str, _BadRows]) -> NDArray[np.bool_]:
    """File each bad row under the first kind that fits; return which rows are good."""
    usable = np.ones(len(block), bool)
    for kind, rows in zip(
        _KINDS, (np.isnan(block).any(axis=1), np.isinf(block).any(axis=1), ~block.any(axis=1)), strict=True
    ):
        bad[kind].add(np.flatnonzero(rows & usable), start)
        usable &= ~rows
    return usable


def _digests(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 8 bytes for each row: among a million rows two different ones agree with odds of 3 in 100 million."""
    rows = rows + rows.dtype.type(0)  # -0.0 becomes 0.0, which is equal to it
    return np.frombuffer(b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows), np.uint64)


def _repeats(digests: list[NDArray[np.uint64]]) -> int:
    """Count rows that equal an earlier one."""
    every = np.concatenate([np.empty(0, np.uint64), *digests])
    return len(every) - len(np.unique(every))


def _labels_report(labels: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any]:
    codes = class_codes(labels, classes, "ignore")  # as a fit meets them
    names, counts = np.unique(labels[codes < 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    unknown = zip(names[order].tolist(), counts[order].tolist(), strict=True)
    sizes = np.bincount(codes[codes >= 0], minlength=len(classes)).tolist()
    return {
        "type": "integers" if labels.dtype.kind == "i" else "text",
        "unknown": [{"label": None if name in _MISSING else name, "n": count} for name, count in unknown],
        "class_sizes": [{"class": name, "n": size} for name, size in zip(classes.tolist(), sizes, strict=True)],
        "classes_without_records": [name for name, size in zip(classes.tolist(), sizes, strict=True) if not size],
    }


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


def _print_report(report: dict[str, Any]) -> None:
    screen = console()
    screen.print()
    for line in source_lines(report) if "modality" in report else _rows_lines(report):
        screen.print(line, soft_wrap=True)
    if "persons" in report:
        print_persons(report["persons"], screen)
    if report["labels"] is None:
        screen.print(f"{'labels':<15} none found; name their array or column with --y, or their file with --labels")
    else:
        _print_labels(report["labels"])


def _rows_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"{name:<15} {report[name]}" for name in ("rows", "dimension", "dtype")]
    for kind, rows in report["bad_rows"].items():
        numbers = ", ".join(map(str, rows["first"])) + (", ..." if rows["count"] > len(rows["first"]) else "")
        lines.append(f"{kind.replace('_', '-') + ' rows':<15} {rows['count']}" + (f": {numbers}" if numbers else ""))
    return [*lines, f"{'duplicate rows':<15} {report['duplicate_rows']} (good rows equal to an earlier one)"]


def _print_labels(labels: dict[str, Any]) -> None:
    screen = console()
    unknown = labels["unknown"]
    screen.print(f"{'labels':<15} {labels['type']}")
    screen.print(f"{'unknown labels':<15} {sum(entry['n'] for entry in unknown)} records, {len(unknown)} labels")
    for entry in unknown[:_UNKNOWN_SHOWN]:
        name = "(missing)" if entry["label"] is None else printable(repr(entry["label"]))
        screen.print(f"{'':<15} {name}: {entry['n']}")
    if len(unknown) > _UNKNOWN_SHOWN:
        screen.print(f"{'':<15} and {len(unknown) - _UNKNOWN_SHOWN} more labels (--json shows all)")
    screen.print(f"{'empty classes':<15} {len(labels['classes_without_records'])}")
    table = Table()
    table.add_column("class")
    of_persons = any("persons" in entry for entry in labels["class_sizes"])
    counts = ("records", "persons") if of_persons else ("records",)
    for name in (*counts, *(("recall", "range") if "budget" in labels else ())):
        table.add_column(name, justify="right")
    if "budget" in labels:
        table.add_column("found")
    for entry in labels["class_sizes"]:
        persons = [str(entry["persons"])] if of_persons else []
        table.add_row(printable(entry["class"]), str(entry["n"]), *persons, *_expectation(entry))
    screen.print(table)
    if "budget" in labels:
        screen.print(f"{len(labels['not_found'])} classes are not expected to be found by a fit with this budget")
        if of_persons:
            screen.print("Recall is that of a fit with --person, in which a person counts as one record of one class.")


def _expectation(entry: dict[str, Any]) -> tuple[str, ...]:
    if "found" not in entry:
        return ()
    return f"{entry['recall']:.2f}", f"{entry['low']:.2f} to {entry['high']:.2f}", entry["found"]
