"""The report on private records and the question before a fit, for the eyes of their owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from rich.console import Console

from dppl import io
from dppl.cli._output import console, print_facts, table_of
from dppl.cli._records import MISSING_IDS
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
    # First, because whoever reads one line alone acts on it.
    goes, verdict = verdict_on(report, fit=fit)
    screen.print(f"{'GO' if goes else 'STOP'}: {verdict}", soft_wrap=True)
    screen.print()
    print_facts(_facts(report), 15, screen)
    if labels is not None and (sizes := labels["class_sizes"]):
        # Entries have the number of records, and of persons where ids are given.
        headings = ("class", "records", "persons")[: len(sizes[0])]
        screen.print(
            table_of(headings, (entry.values() for entry in sizes), headings[1:])
        )


def verdict_on(report: dict[str, Any], *, fit: bool = True) -> tuple[bool, str]:
    """Return whether a fit, or another use of the records, goes through, and what to do."""
    labels = report["labels"]
    uses = f"{report['used']} of {report['n']} records"
    if fit and labels is None:
        return False, (
            "there are no labels. Name their array or column with --y, or their file with --read labels."
        )
    if fit and labels["unknown"]:
        such = "labels" if "labels_each" in labels else "records"
        # Raw records are read before anything is charged.
        charged = (
            ""
            if "modality" in report
            else " `dppl fit` stops after it has charged the budget."
        )
        several = ""
        for entry in labels["unknown"]:
            if "separator" in entry:
                several = f" If a record may have several labels, add --read labels_separator={entry['separator']!r}."
                break
        return False, (
            f"a fit would stop at the labels outside the class list, which are named below.{several} Correct them or "
            f"add them to the list, or skip such {such} with --options unknown_labels=ignore: then it uses {uses}."
            f"{charged}"
        )
    if not report["used"]:
        return False, f"{'a fit' if fit else 'this run'} would use {uses}."
    silently = ""
    if report["used"] != report["n"]:
        silently = " It skips the others without a word."
    return True, f"{'a fit' if fit else 'this run'} uses {uses}.{silently}"


def _facts(report: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield what is known of the records, their persons and their labels."""
    if "modality" in report:
        # Whoever mends a sheet counts its title and header, too.
        rows = (
            ""
            if report["modality"] == "image"
            else "; row 1 is the first below any header"
        )
        yield "records", f"{report['n']} {report['modality']}s{rows}"
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
        if scripts := report.get("scripts"):
            texts = ", ".join(f"{name} {n}" for name, n in scripts["texts"].items())
            yield (
                "scripts",
                f"{texts}; {scripts['beyond_english']} texts have Latin letters that English lacks, such as ä",
            )
        for column, oddities in report.get("columns", {}).items():
            counts = [f"{n} {what}" for what, n in oddities.items() if n]
            yield column, ", ".join(counts) or "nothing odd"
        if any(one["unknown"] for one in report.get("columns", {}).values()):
            yield (
                "unknown",
                "is not as the schema says, and all such cells count alike. Write numbers without a unit (12, not 12 mg), "
                'a decimal comma with decimal = ",", dates with four digits of the year (2024-05-03 or 03.05.2024), '
                "and categories as the schema spells them",
            )
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
                f"{persons['records_in_main_class']} in each person's commonest class, as one row a person (column persons)",
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
                f"{'(missing)' if entry['label'] is None else repr(entry['label'])}: {entry['n']}{_meant(entry)} "
                f"({_places(entry)})",
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
    if "separator" in entry:
        return f", classes of the list with {entry['separator']!r} between"
    return ""


def _places(entry: dict[str, Any]) -> str:
    """Return the first places where something is."""
    listed = ", ".join(map(str, entry["first"]))
    return f"{listed}, ..." if entry["n"] > len(entry["first"]) else listed
