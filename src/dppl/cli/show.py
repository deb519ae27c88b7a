"""`dppl show`: what is in a model file, and what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.table import Table

from dppl import io
from dppl._utils import validate
from dppl.cli._output import (
    console,
    echo,
    note,
    print_facts,
    print_json,
    printable,
    table_of,
)
from dppl.cli._pairs import parse_pairs
from dppl.cli._paths import check_output
from dppl.cli._records import reading
from dppl.cli._request import argument, flag, option, request
from dppl.cli._training import Account
from dppl.errors import ParameterError

_NAMES = 20
_PAGES = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
}
_READING = ("x", "id", "kind", "encoding")


@request("for_", "json", "out", "delta")
class Show(Account):
    """Show a model: its classes, its guarantee in words and numbers, and every release behind it.

    Reading a model file runs no code from it. With --out FILE.html it writes a
    page for people: one file without scripts that needs no network. A page of
    the model holds nothing private, also with a private evaluation (--results).
    Exact numbers on private records are not covered: do not publish such a page.

    For example:

      dppl show my.safetensors
      dppl show my.safetensors --json
      dppl show my.safetensors --trust
      dppl show my.safetensors --for hub > README.md
      dppl show my.safetensors --out my.html --ledger ledger.db wards
      dppl show my.safetensors --out my.html --results evaluation.json
      dppl show my.safetensors --out my.html --public sentences.txt
      dppl show my.safetensors --for dpo --purpose "Sort referrals" --out dpo.html
      dppl show my.safetensors --for dpo --language de --out dsb.html
    """

    model: Path = argument(
        "MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`."
    )
    for_: str | None = option(
        "hub|dpo",
        "hub: a card for a model hub, Markdown with YAML front matter. dpo: one page for a data protection officer. "
        "Printed, or written to --out.",
        None,
    )
    language: str | None = option(
        "en|de|fr", "With --for dpo: the language of the page. Default en.", None
    )
    json: bool = flag("Print JSON.")
    out: Path | None = option("FILE", "Page to write: .html, .md or .json.", None)
    delta: float | None = option("D", "Another delta at which to give epsilon.", None)
    public: Path | None = option(
        "POOL",
        "For the page: public images or texts among which a model of public rows selected; shows those.",
        None,
    )
    read: list[str] = reading(*_READING, raw=False, what="POOL")
    results: Path | None = option(
        "FILE",
        "What `dppl evaluate --out` wrote; for a page also what it printed with --json alone.",
        None,
    )
    by: str | None = option("NAME", "For the page: who made the model.", None)
    purpose: str | None = option(
        "TEXT", "With --for: what the model is for. Anyone may read it.", None
    )
    trust: bool = flag(
        "List the files of dppl that the releases of this model rest on, with lines and hashes."
    )
    force: bool = flag("Replace the output file if it exists.")

    def run(self) -> None:
        """Print the model, or write its page."""
        if self.trust and (self.out is not None or self.for_ is not None):
            raise ParameterError(
                "is a list by itself; leave --out and --for out.", parameter="trust"
            )
        card = self.for_ == "hub"
        page = self.for_ not in (None, "hub")
        if self.json and self.out is not None:
            raise ParameterError("--json and --out are forms of one text; choose one.")
        if self.for_ is not None and (
            self.json or self.public is not None or self.delta is not None
        ):
            raise ParameterError(
                "is one page; leave --json, --public and --delta out.", parameter="for_"
            )
        for name in ("purpose", "language"):
            if getattr(self, name) is not None and not page:
                raise ParameterError(
                    "is for the page of --for dpo; add that.", parameter=name
                )
        for name in ("public", "read", "ledger", "by"):
            if getattr(self, name) and (card or (self.out is None and not page)):
                raise ParameterError(
                    "says what is on a page; add --out FILE.html.", parameter=name
                )
        if self.delta is not None and self.out:
            raise ParameterError(
                "adds a number to the text or to --json; leave it out.",
                parameter="delta",
            )
        if self.json and self.results is not None:
            raise ParameterError(
                "is not in the statement; leave --json out, or write a page.",
                parameter="results",
            )
        model = self.model
        delta = self.delta
        if page or (self.out is not None and not card):
            self._write_page(self.out)
            return
        if delta is not None:
            validate.open_unit(delta=delta)
        from dppl.kernel.privacy import Guarantee
        from dppl.statement import (
            model_card,
        )  # here, because the help of a command needs no scikit-learn
        from dppl.statement.data import describe, is_private, of_model, read_evaluation

        description = describe(model)
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
        if self.trust:
            guarantee = Guarantee.from_dict(description["guarantee"])
            _print_trusted(guarantee.trusted_code(), as_json=self.json)
            return
        if self.json:
            implied = Guarantee.from_dict(description["guarantee"]).implied(delta)
            print_json({**description, "implied": implied, "file_sha256": sha256})
            return
        results = None
        if self.results is not None:
            results = read_evaluation(self.results)
        if results is not None and not is_private(results):
            raise ParameterError(
                "holds exact numbers, which no guarantee covers; for a page for their owner, add --out FILE.html.",
                parameter="results",
            )
        if card:
            self._check_output()
            self._print_or_write(
                f"{model_card(description, sha256=sha256, results=results)}\n"
            )
            return
        evaluation = None
        if results is not None:
            evaluation = of_model(results, description, sha256)
        _print(description, sha256, delta)
        if evaluation is not None:
            _print_evaluation(evaluation)

    def _write_page(self, out: Path | None) -> None:
        """Write a page about a model; without a file print it."""
        from dppl.statement import make_report

        self._check_output()
        pool = None
        how = parse_pairs(self.read, "read", _READING, literal=False)
        if self.public is not None:
            if "kind" not in how and io.holds_embeddings(self.public):
                raise ParameterError(
                    "must be the images or texts, and not their embeddings.",
                    parameter="public",
                )
            columns = io.Columns(how.pop("x", None), id=how.pop("id", None))
            pool = io.open_source(self.public, columns=columns, **how)
        report = make_report(
            self.model,
            results=self.results,
            ledger=self.account()["ledger"],
            public=pool,
            by=self.by,
            purpose=self.purpose,
        )
        if report.dict()["evaluation"] is not None:
            note(
                "figures computed on private records are not covered by the model's guarantee."
            )
        if out is None:
            form = "markdown"
        else:
            form = _PAGES[out.suffix.lower()]
        given = {} if self.for_ is None else {"for_": self.for_}
        if self.language is not None:
            given["language"] = self.language
        text = getattr(report, form)(**given)
        self._print_or_write(text)

    def _check_output(self) -> None:
        """Refuse a file that cannot be written."""
        forms = {None: ("html", "markdown", "json"), "hub": ("markdown",)}.get(
            self.for_, ("html", "markdown")
        )
        suffixes = [suffix for suffix, form in _PAGES.items() if form in forms]
        if self.out is not None:
            check_output(
                self.out,
                (self.model, self.public, self.results, *self.account_file()),
                force=self.force,
                suffixes=tuple(suffixes),
            )

    def _print_or_write(self, text: str) -> None:
        """Print a page, or write it to --out."""
        from dppl._utils.files import write_atomically

        if self.out is None:
            echo(text, end="")
            return
        write_atomically(self.out, text.encode("utf-8"), overwrite=self.force)
        echo(f"Page: {printable(self.out)}")


def _print(description: dict[str, Any], sha256: str, delta: float | None) -> None:
    """Print a model for people."""
    from dppl.kernel.privacy import Guarantee
    from dppl.statement import words
    from dppl.statement.data import content

    screen = console()
    said = content(description, sha256=sha256, delta=delta)
    model = said["model"]
    guarantee = said["guarantee"]
    classes = model["classes"]
    # What it is and promises comes first, and what it was made with last.
    estimator, *made_with = model["facts"]
    facts = [
        estimator,
        ("classes", f"{len(classes)}: {words.listed(classes, _NAMES)}"),
        ("budget", Guarantee.from_dict(description["guarantee"]).budget),
        ("unit", guarantee["protects"]),
    ]
    print_facts(facts, 11, screen, soft_wrap=False)
    screen.print(f"\n{printable(guarantee['sentence'])}\n")
    # A grid without lines, because it belongs to the sentence above it.
    numbers = Table.grid(padding=(0, 2, 0, 0))
    for row in guarantee["numbers"]:
        numbers.add_row(*map(printable, row))
    screen.print(Padding.indent(numbers, 2))
    if guarantee["releases"]:
        screen.print()
        screen.print(
            table_of(
                ("release", "sensitivity and parameters", "cost"),
                _rows(guarantee["releases"]),
            )
        )
    for one in guarantee["details"]:
        screen.print(f"\n{one['heading']}")
        for item in one["items"]:
            screen.print(Padding.indent(f"- {printable(item)}", 2))
    if guarantee["releases"]:
        screen.print(
            "\nWhat the file states fits together. That its method makes these releases with its parameters was not "
            "computed again: run dppl verify."
        )
    screen.print()
    print_facts([*made_with, ("sha256", sha256)], 21, screen, soft_wrap=False)
    for heading, rows in (
        ("public rows, by id or counted from 1", model["selected"]),
        ("public descriptions", model["descriptions"]),
    ):
        named = [
            (name, list(some))
            for name, some in zip(classes, rows or (), strict=False)
            if some
        ]
        if named:
            screen.print()
            screen.print(table_of(("class", heading), named[:_NAMES]))
        if len(named) > _NAMES:  # no more classes than are listed above
            screen.print(f"and {len(named) - _NAMES} more: --json has all")


def _print_trusted(code: Any, *, as_json: bool) -> None:
    """Print the files that the releases of a model rest on."""
    if as_json:
        print_json(code.to_dict())
        return
    rows = [
        (f"{one.path} {one.when}".rstrip(), one.lines, one.tokens, one.sha256)
        for one in code.files
    ]
    screen = console()
    screen.print(table_of(("file", "lines", "tokens", "sha256"), rows))
    screen.print(
        f"In every such fit: {code.lines} lines, {code.tokens} tokens, of which {code.tokens_of_releases} decide what "
        "leaves the records."
    )
    for text in code.stated:
        screen.print(printable(f"Proved by the author of its query: {text}."))
    if code.made_by != code.version:
        note(
            f"the model was made by dppl {code.made_by}, and these are the files of {code.version}."
        )


def _print_evaluation(evaluation: dict[str, Any]) -> None:
    """Print a private evaluation for people."""
    screen = console()
    screen.print(
        f"\nHow good it is, on private {evaluation['counted']}, each interval with {100 * evaluation['confidence']:g} %"
    )
    if evaluation["same_file"] is None:
        note("these results are of predictions whose model is not named.")
    elif not evaluation["same_file"]:
        note(
            "these results do not hold the hash of this file: they are of another model, or of another copy of it."
        )
    print_facts([*evaluation["facts"], *evaluation["guarantee"]], 26, screen)
    rows = [
        (one["class"], one["recall"]["text"], one["n"])
        for one in evaluation["per_class"]
    ]
    screen.print(table_of(("class", "recall", evaluation["counted"]), rows[:_NAMES]))
    if len(rows) > _NAMES:
        screen.print(f"and {len(rows) - _NAMES} more: a page has all")


def _rows(releases: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield a row for each release, or for several equal ones."""
    last = 0
    for one in releases:
        first = last + 1
        last = last + one["times"]
        if first == last:
            number = str(first)
        else:
            number = f"{first} to {last}, each"
        what = f"{number}: {one['statistic']}, by the {one['drawn']}"
        sensitivity = f"{one['norm']} sensitivity {one['sensitivity']}"
        yield [what, [sensitivity, *one["parameters"]], one["cost"]]
