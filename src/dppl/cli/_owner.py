"""What only the owner of private records may see: a report printed, and a question asked on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

from dppl.cli._output import console, printable
from dppl.errors import ParameterError

WARNING = "For the data owner's eyes only: this report describes private records, and no guarantee protects it."

_UNKNOWN_SHOWN = 20
_TERMINAL = "/dev/tty"


def review(report: Callable[[], dict[str, Any]]) -> None:
    """Show the owner's report, and ask whether to go on; what is piped or logged gets no word of it.

    Without a terminal nothing is read.
    """
    with ExitStack() as stack:
        try:
            # Two files, for a terminal has no place to go back to.
            answers = stack.enter_context(open(_TERMINAL, encoding="utf-8", errors="replace"))
            terminal = stack.enter_context(open(_TERMINAL, "w", encoding="utf-8", errors="backslashreplace"))
        except OSError:
            raise ParameterError(
                "shows private counts on a terminal and asks there, but this run has none; use dppl check before it, "
                "or --options unknown_labels=strict.",
                parameter="review",
            ) from None
        screen = console(file=terminal)
        screen.print(WARNING, soft_wrap=True)
        print_report(report(), screen)
        screen.print("Go on with these records, and let the fit be charged? [y/N] ", end="")
        terminal.flush()
        if answers.readline().strip().lower() not in ("y", "yes"):
            stop = KeyboardInterrupt()
            stop.add_note("Nothing was charged.")
            raise stop


def print_report(report: dict[str, Any], screen: Console) -> None:
    """Print a report of `dppl.checks` for people."""
    raw = "modality" in report
    lines = _records_lines(report) if raw else _rows_lines(report)
    if "persons" in report:
        lines += _persons_lines(report["persons"])
    screen.print()
    for name, text in lines:
        screen.print(f"{name:<15} {text}", soft_wrap=True)
    if "persons" in report:
        screen.print(_kept(report["persons"]))
    if report["labels"] is None:
        screen.print(f"{'labels':<15} none; name their array or column with --y, or their file with --labels")
        return
    _print_labels(report["labels"], screen)
    number = report["records"] if raw else report["rows"]
    silently = "" if report["used"] == number else "; it leaves out the others without a word"
    screen.print(f"A fit uses {report['used']} of {number} records{silently}.", soft_wrap=True)


def _first(numbers: list[Any], count: int) -> str:
    """Return the first places of something, and whether there are more."""
    return ", ".join(printable(number) for number in numbers) + (", ..." if count > len(numbers) else "")


def _rows_lines(report: dict[str, Any]) -> list[tuple[str, Any]]:
    lines = [(name, report[name]) for name in ("rows", "dimension", "dtype")]
    for kind, rows in report["bad_rows"].items():
        places = f": {_first(rows['first'], rows['count'])}" if rows["count"] else ""
        lines.append((f"{kind.replace('_', '-')} rows", f"{rows['count']}{places}"))
    return [*lines, ("duplicate rows", f"{report['duplicate_rows']} (good rows equal to an earlier one)")]


def _records_lines(report: dict[str, Any]) -> list[tuple[str, Any]]:
    n_unusable = sum(entry["n"] for entry in report["unusable"])
    lines = [
        ("records", report["records"]),
        ("what they are", f"{report['modality']}s"),
        ("unusable", f"{n_unusable} (a fit leaves them out)"),
    ]
    lines += [("", f"{entry['reason']}: {_first(entry['first'], entry['n'])}") for entry in report["unusable"]]
    repeated = report["repeated_ids"]
    if repeated["n"]:
        places = _first(repeated["first"], repeated["n"])
        lines.append(("repeated ids", f"{repeated['n']} (a fit takes them all): {places}"))
    return [*lines, ("duplicates", f"{report['duplicate_records']} (usable records equal to an earlier one)")]


def _persons_lines(persons: dict[str, Any]) -> list[tuple[str, Any]]:
    lines = [("persons", f"{persons['n']}, of which {persons['missing_ids']} are records without an id")]
    each = persons["records_each"]
    if each is not None:
        most = f"90 % of the persons have at most {each['percentile_90']}, none more than {each['largest']}"
        lines.append(("records each", f"median {each['median']:g}, {most}"))
    lines.append(("several classes", f"{persons['in_several_classes']} persons have records in more than one"))
    used = (
        f"{persons['that_count']} persons: with --method softmax, the default, all of their "
        f"{persons['records_in_classes']} records in classes of the list; with other methods the "
        f"{persons['records_that_count']} in each person's commonest class, as one row a person"
    )
    return [*lines, ("a fit uses", used)]


def _kept(persons: dict[str, Any]) -> Table:
    title = "With --options max_classes_per_person=k a fit uses so many records, and needs so many times the noise:"
    table = Table(title=title, title_justify="left", title_style="")
    for name in ("k", "records used", "rows", "softmax", "mean", "others"):
        table.add_column(name, justify="right")
    for row in persons["kept"]:
        share = f" ({row['records'] / persons['records_in_classes']:.0%})" if persons["records_in_classes"] else ""
        noise = (f"x {factor:.2f}" for factor in row["noise"].values())
        table.add_row(str(row["max_classes_per_person"]), f"{row['records']}{share}", str(row["rows"]), *noise)
    return table


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
    columns = [name for name in ("n", "persons") if any(name in entry for entry in labels["class_sizes"])]
    table = Table("class")
    for name in columns:
        table.add_column("records" if name == "n" else name, justify="right")
    for entry in labels["class_sizes"]:
        table.add_row(printable(entry["class"]), *(str(entry[name]) for name in columns))
    screen.print(table)
