"""What the owner of private records is told of them, and nobody else: by `dppl check`, and by `--review` of a fit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dppl.cli._output import printable
from dppl.cli._persons_check import persons_report, print_persons
from dppl.cli._raw_check import source_lines, source_report
from dppl.data import EmbeddingTable
from dppl.embedding import Source
from dppl.kernel import checked_ids
from dppl.kernel.lattice import usable_rows
from dppl.kernel.reading import class_codes

WARNING = "For the data owner's eyes only: this report describes private records, and no guarantee protects it."

_BLOCK_ROWS = 4096
_ROW_NUMBERS = 10
_UNKNOWN_SHOWN = 20
_KINDS = ("nan", "infinite", "all_zero")
# What dppl.data puts in the place of a missing label.
_MISSING = ("", int(np.iinfo(np.int64).min))


def report_on_table(table: EmbeddingTable, classes: NDArray[Any], ids: Any = None) -> dict[str, Any]:
    """Read the rows of a table, with its labels and, if they are given, ids of persons."""
    # Labels of the rows that can be used, as of raw records.
    report, usable = _rows_report(table), usable_rows(table)
    if ids is not None:
        report["persons"] = persons_report(checked_ids(ids, table), table.y, usable, classes)
    return _with_labels(report, None if table.y is None else table.y[usable], classes)


def report_on_source(source: Source, classes: NDArray[Any]) -> dict[str, Any]:
    """Read and decode the records of a source, with their labels and, if there are any, ids of persons."""
    report, found, ids = source_report(source)
    if source.person_type is not None:
        report["persons"] = persons_report(ids, found, np.ones(len(ids), bool), classes)
    return _with_labels(report, found, classes)


def _with_labels(report: dict[str, Any], found: Any, classes: NDArray[Any]) -> dict[str, Any]:
    report["labels"] = labels = None if found is None else _labels_report(found, classes)
    if labels is not None:
        report["used"] = sum(entry["n"] for entry in labels["class_sizes"])
        for entry, n in zip(labels["class_sizes"], report.get("persons", {}).get("class_sizes", ()), strict=False):
            entry["persons"] = n
    return report


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


def print_report(report: dict[str, Any], screen: Console) -> None:
    """Print a report for people."""
    screen.print()
    for line in source_lines(report) if "modality" in report else _rows_lines(report):
        screen.print(line, soft_wrap=True)
    if "persons" in report:
        print_persons(report["persons"], screen)
    if report["labels"] is None:
        screen.print(f"{'labels':<15} none found; name their array or column with --y, or their file with --labels")
    else:
        _print_labels(report["labels"], screen)
        number = report["records"] if "modality" in report else report["rows"]
        silently = "" if report["used"] == number else "; it leaves out the others without a word"
        screen.print(f"A fit uses {report['used']} of {number} records{silently}.", soft_wrap=True)


def _rows_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"{name:<15} {report[name]}" for name in ("rows", "dimension", "dtype")]
    for kind, rows in report["bad_rows"].items():
        numbers = ", ".join(map(str, rows["first"])) + (", ..." if rows["count"] > len(rows["first"]) else "")
        lines.append(f"{kind.replace('_', '-') + ' rows':<15} {rows['count']}" + (f": {numbers}" if numbers else ""))
    return [*lines, f"{'duplicate rows':<15} {report['duplicate_rows']} (good rows equal to an earlier one)"]


def _print_labels(labels: dict[str, Any], screen: Console) -> None:
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
