"""`dppl check`, and the question before a fit: what only the owner of private records may see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from rich.console import Console

from dppl import io
from dppl._utils.progress import progress
from dppl.cli._output import console, echo, print_facts, print_json, table_of
from dppl.cli._records import MISSING_IDS, Persons, Records, X, Y, reading
from dppl.cli._request import flag, option, request
from dppl.cli._training import Classes
from dppl.errors import ParameterError
from dppl.kernel.checking import refuse_unusable_records
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason
from dppl.statement import words

WARNING = "For the data owner's eyes only: this report describes private records, and no guarantee protects it."
_UNKNOWN_SHOWN = 20
MAX_LABELS = 5  # that are counted of a record, by default
_CUT = f"sizes count the first {MAX_LABELS} in the class list, or N with --options max_labels=N; training sees all"
_TERMINAL = "/dev/tty"


@request("classes", "x", "y", "groups", "read", "json")
class Check(X, Y, Persons, Classes, Records):
    r"""Report on private records, before a fit: bad ones, unknown labels, class sizes.

    For the data owner's eyes only: the report describes private records, and
    no guarantee protects it. Type it before `dppl train`, `dppl fit` and `dppl
    finetune`: they skip a bad record (under replace-one a row counts as one of
    zeros) and say nothing about it, even if it is every one. The last line says
    how many records a fit uses. Rows are counted from 1, without a header.
    The exit code is 0 whatever it finds. Choose the budget with `dppl plan`, not
    with this report: that is a choice made by looking at private records.

    For example:

      dppl check mails.csv --classes classes.txt
      dppl check notes.csv --read encoding=cp1252 --classes classes.txt
      dppl check notes.xlsx --read sheet=2026 --classes classes.txt
      dppl check notes.duckdb --classes classes.txt \
        --read sql="select text, label from notes order by id"
      dppl check train.npy --read labels=y.txt --classes classes.txt --json
      dppl check mails.csv --x body --groups customer --classes folders.txt
      dppl check letters.csv --classes classes.txt --encoder minilm
    """

    read: list[str] = reading("labels", "separator")
    encoder: str | None = option(
        "URI",
        "Encoder of texts, to also count those longer than it reads; only its tokenizer is loaded. Or columns:SCHEMA, "
        "to count the cells that are missing, unknown or beyond the bounds.",
        None,
    )
    json: bool = flag("Print JSON.")

    def run(self) -> None:
        """Read everything and print the report."""
        about = self.open_any(self.class_list())
        if self.encoder is not None:
            # Here, because few ask for it.
            from dppl.encoders.load import load_windows, schema_of

            modality = getattr(about[0], "modality", None)
            if modality not in ("text", "row"):
                raise ParameterError(
                    f"is for texts, which an encoder may cut; {self.shown()} holds none.",
                    parameter="encoder",
                )
            reads = load_windows if modality == "text" else schema_of
            about = (*about[:2], None, reads(self.encoder))
        with progress("reading"):
            report = report_on(*about, several=self.several())
        echo(WARNING, err=self.json)
        if self.json:
            print_json({"for_the_owner_only": WARNING, **report})
        else:
            print_report(report, console())


def report_on(
    records: Any,
    classes: Any,
    ids: Any = None,
    windows: Any = None,
    *,
    several: Any = None,
) -> dict[str, Any]:
    """Report on a table, with ids of persons, or on a source, which has its own, with windows of its texts.

    Classes may be None.
    """
    from dppl.io import skip_report

    if isinstance(records, io.Source):
        return skip_report.report_on_source(records, classes, windows, several=several)
    return skip_report.report_on_table(records, classes, ids, several=several)


@contextmanager
def terminal() -> Iterator[tuple[IO[str], IO[str]]]:
    """Open the terminal that controls this process twice, to read and to write: it has no place to go back to."""
    with ExitStack() as stack:
        try:
            answers = stack.enter_context(
                open(_TERMINAL, encoding="utf-8", errors="replace")
            )
            shown = stack.enter_context(
                open(_TERMINAL, "w", encoding="utf-8", errors="backslashreplace")
            )
        except OSError:
            raise ParameterError(
                "shows private counts on a terminal and asks there, but this run has none; use dppl check before it, "
                "or --unusable stop.",
                parameter="review",
            ) from None
        yield answers, shown


def review(report: dict[str, Any], *, fit: bool) -> None:
    """Show the owner's report, and ask whether to go on; what is piped or logged gets no word of it."""
    with terminal() as (answers, shown):
        screen = console(file=shown)
        screen.print(WARNING, soft_wrap=True)
        print_report(report, screen, fit=fit)
        refuse_unusable_records(report["used"], report["n"], "review")
        screen.print("Go on with these records? [y/N] ", end="")
        shown.flush()
        if answers.readline().strip().lower() not in ("y", "yes"):
            stop = KeyboardInterrupt()
            stop.add_note("Nothing was charged.")
            raise stop


def print_report(report: dict[str, Any], screen: Console, *, fit: bool = True) -> None:
    """Print a report of `dppl.io.skip_report` for people, before a fit or another use of the records."""
    labels = report["labels"]
    screen.print()
    print_facts(_facts(report), 15, screen)
    if labels is None:
        screen.print(
            "There are no labels; name their array or column with --y, or their file with --read labels."
        )
        if fit:
            return
    elif sizes := labels["class_sizes"]:
        # Entries have the number of records, and of persons where ids are given.
        headings = ("class", "records", "persons")[: len(sizes[0])]
        screen.print(
            table_of(headings, (entry.values() for entry in sizes), headings[1:])
        )
    silently = (
        "" if report["used"] == report["n"] else "; it skips the others without a word"
    )
    screen.print(
        f"{'A fit' if fit else 'This run'} uses {report['used']} of {report['n']} records{silently}.",
        soft_wrap=True,
    )
    if fit and labels["unknown"]:
        screen.print(
            "But it stops at a label outside the class list, and `dppl fit` after the charge, unless --options "
            f"unknown_labels=ignore skips {'such labels' if 'labels_each' in labels else 'such records'}. Or add the "
            "class to the list.",
            soft_wrap=True,
        )


def _facts(report: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield what is known of the records, their persons and their labels."""
    if "modality" in report:
        yield "records", f"{report['n']} {report['modality']}s"
        yield (
            "unusable",
            f"{sum(entry['n'] for entry in report['unusable'])} (a fit skips them)",
        )
        for entry in report["unusable"]:
            reason = words.text(Term.from_dict(SkipReason, entry["reason"]))
            yield "", f"{reason}: {_places(entry)}"
        if cut := report.get("cut"):
            reads = f"{cut['max_windows']} windows of {cut['max_tokens']} tokens"
            yield (
                "longer texts",
                f"{cut['n']} than the encoder reads, {reads}{': ' if cut['n'] else ''}{_places(cut)}",
            )
        for column, oddities in report.get("columns", {}).items():
            counts = [f"{n} {what}" for what, n in oddities.items() if n]
            yield column, ", ".join(counts) or "nothing odd"
        if report["repeated_ids"]["n"]:
            repeated = report["repeated_ids"]
            yield (
                "repeated ids",
                f"{repeated['n']} (a fit takes them all): {_places(repeated)}",
            )
    else:
        yield from (
            ("rows", report["n"]),
            ("dimension", report["dimension"]),
            ("dtype", report["dtype"]),
        )
        for kind, rows in report["bad_rows"].items():
            yield (
                f"{kind.replace('_', '-')} rows",
                f"{rows['n']}: {_places(rows)}" if rows["n"] else "0",
            )
    yield "duplicates", f"{report['duplicates']} (usable, and equal to an earlier one)"
    if persons := report.get("persons"):
        yield (
            "persons",
            f"{persons['n']}, of which {persons['missing_ids']} are records without an id",
        )
        if persons["missing_ids"]:
            yield "", f"{MISSING_IDS} (--unusable stop refuses them)"
        if each := persons["records_each"]:
            yield (
                "records each",
                f"median {each['median']:g}, at most {each['largest']}",
            )
        if (report["labels"] or {}).get("labels_each") is not None:
            yield (
                "a fit uses",
                f"{persons['used']} persons, with all of their {persons['records_in_classes']} records",
            )
        else:
            yield (
                "several classes",
                f"{persons['in_several_classes']} persons have records in more than one",
            )
            yield (
                "a fit uses",
                f"{persons['used']} persons: with --method softmax, the default, all of their "
                f"{persons['records_in_classes']} records in classes of the list; with other methods the "
                f"{persons['records_in_main_class']} in each person's commonest class, as one row a person",
            )
    if labels := report["labels"]:
        unknown = labels["unknown"]
        yield "labels", labels["type"]
        if each := labels.get("labels_each"):
            yield (
                "labels each",
                ", ".join(f"{one['labels']}: {one['n']} records" for one in each),
            )
            more = sum(one["n"] for one in each if one["labels"] > MAX_LABELS)
            yield f"more than {MAX_LABELS}", f"{more} records ({_CUT})"
        yield (
            "unknown labels",
            f"{labels['unknown_records']} records, {len(unknown)} labels",
        )
        for entry in unknown[:_UNKNOWN_SHOWN]:
            yield (
                "",
                f"{'(missing)' if entry['label'] is None else repr(entry['label'])}: {entry['n']}{_meant(entry)}",
            )
        if len(unknown) > _UNKNOWN_SHOWN:
            yield (
                "",
                f"and {len(unknown) - _UNKNOWN_SHOWN} more labels (--json shows all)",
            )
        yield "empty classes", len(labels["classes_without_records"])


def _meant(entry: dict[str, Any]) -> str:
    """Return what an unknown label seems to mean."""
    if "like" in entry:
        return f", like the class {entry['like']!r} but for case, spaces or accents"
    return (
        f", classes of the list with {entry['separator']!r} between (--read separator)"
        if "separator" in entry
        else ""
    )


def _places(entry: dict[str, Any]) -> str:
    """Return the first places where something is."""
    listed = ", ".join(map(str, entry["first"]))
    return f"{listed}, ..." if entry["n"] > len(entry["first"]) else listed
