"""`dppl show`: what is in a model file, and what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from rich.padding import Padding
from rich.table import Table

from dppl import _validate, io
from dppl.cli._groups import how_to_read
from dppl.cli._output import console, in_columns, note, print_json, printable
from dppl.cli._paths import check_inputs, check_output
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError

_NAMES = 20
_PAGES = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}


@request("json", "card", "out", "delta", "public")
class Show:
    """What `dppl show` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
    json: bool = flag("Print JSON.")
    card: bool = flag("Print a model card: Markdown with YAML front matter, for a model hub.")
    out: Path | None = option("FILE", "Page to write: .html, .md or .json.", None)
    delta: float | None = option("D", "Another delta at which to give epsilon.", None)
    public: Path | None = option(
        "POOL",
        "Public images or texts among which a model of public rows selected; shows those that it selected.",
        None,
    )
    read: list[str] = option(
        "NAME=VALUE", "How POOL is read, as by `dppl embed`; x names its column of texts or images.", ()
    )
    results: Path | None = option("FILE", "For the page: what `dppl evaluate --json` printed.", None)
    ledger: str | None = option(
        "FILE", "For the page: ledger that paid for the model; only the account of its data set is shown.", None
    )
    by: str | None = option("NAME", "For the page: who made the model.", None)
    force: bool = flag("Replace the output file if it exists.")


def show(request: Show) -> None:
    """Show a model: its classes, its guarantee in words and numbers, and every release behind it.

    Reading a model file runs no code from it. With --out FILE.html it writes a
    page for people: one file without scripts that needs no network. A model
    file holds nothing private, and so does a page of it alone. What --results
    says was measured by whoever ran the command: the guarantee does not cover
    it, and a page with results on private records must not be published.

    For example:

      dppl show my.safetensors
      dppl show my.safetensors --delta 1e-7
      dppl show my.safetensors --json
      dppl show my.safetensors --card > README.md
      dppl show my.safetensors --out my.html --ledger ledger.db
      dppl show my.safetensors --out my.html --results test.json
      dppl show my.safetensors --public sentences.txt
      dppl show my.safetensors --public photos/ --out my.html
    """
    model, delta, out, public = request.model, request.delta, request.out, request.public
    # What does not go together is said before anything is read or written.
    forms = [name for name in ("json", "card", "out") if getattr(request, name)]
    if len(forms) > 1:
        raise ParameterError("--json, --card and --out are forms of one text; choose one.")
    if public is not None and forms not in ([], ["out"]):
        raise ParameterError("--public shows texts or images; leave --json and --card out.")
    if delta is not None and (forms not in ([], ["json"]) or public is not None):
        raise ParameterError("--delta adds a number to the statement or to --json; leave the other options out.")
    if request.read and public is None:
        raise ParameterError("--read goes with --public POOL; name it too.")
    if (request.results or request.ledger or request.by) and out is None:
        raise ParameterError("--results, --ledger and --by say what is on a page; add --out FILE.html.")
    check_inputs(model, public, request.results)
    if out is not None:
        if out.suffix.lower() not in _PAGES:
            raise ParameterError(f"--out must end in {', '.join(_PAGES)}; got {out}.")
        account = [] if request.ledger is None or "://" in request.ledger else [Path(request.ledger)]
        check_output(out, (model, public, request.results, *account), force=request.force)
    pool = None if public is None else _pool(public, request.read)
    if out is not None:
        _write_page(request, pool, out)
    elif pool is not None:
        _show_selected(model, pool)
    else:
        if delta is not None:
            _validate.open_unit(delta=delta)
        from dppl.statement import model_card  # here, because the help of a command needs no scikit-learn
        from dppl.statement.data import describe

        description, sha256 = describe(model), hashlib.sha256(model.read_bytes()).hexdigest()
        if request.json:
            print_json(_whole(description, sha256, delta))
        elif request.card:
            typer.echo(model_card(description, sha256=sha256))
        else:
            _print(description, sha256, delta)


def _write_page(request: Show, pool: io.Source | None, out: Path) -> None:
    """Write a page about a model."""
    from dppl._files import write_atomically
    from dppl.statement import make_report

    made = make_report(request.model, results=request.results, ledger=request.ledger, public=pool, by=request.by)
    if made.dict()["evaluation"] is not None:
        note("figures computed on private records are not covered by the model's guarantee.")
    text = getattr(made, _PAGES[out.suffix.lower()])()
    write_atomically(out, text.encode("utf-8"), overwrite=request.force)
    typer.echo(f"Page: {printable(out)}")


def _pool(public: Path, read: list[str]) -> io.Source:
    """Open the images or texts among which a model of public rows selected."""
    how = how_to_read(read, ("x", "id", "kind", "encoding", "delimiter"))
    if "kind" not in how and io.holds_embeddings(public):
        raise ParameterError(f"--public must be the images or texts themselves; {public} holds embeddings of them.")
    columns = io.Columns(how.pop("x", None), id=how.pop("id", None))
    return io.open_source(public, columns=columns, **how)


def _whole(description: dict[str, Any], sha256: str, delta: float | None) -> dict[str, Any]:
    """Return everything that a model file says, and what follows from it, JSON-ready."""
    from dppl.kernel.privacy import Guarantee

    implied = Guarantee.from_dict(description["guarantee"]).implied(delta)
    return {**description, "implied": implied, "file_sha256": sha256}


def _print(description: dict[str, Any], sha256: str, delta: float | None) -> None:
    from dppl.kernel.privacy import Guarantee
    from dppl.statement import words
    from dppl.statement.data import content

    screen, said = console(), content(description, sha256=sha256, delta=delta)
    model, guarantee = said["model"], said["guarantee"]
    classes = model["classes"]
    facts = [
        *model["facts"],
        ("classes", f"{len(classes)}: {words.listed(classes, _NAMES)}"),
        ("budget", Guarantee.from_dict(description["guarantee"]).budget),
        ("unit", guarantee["unit"]),
        ("sha256", sha256),
    ]
    for name, value in facts:
        screen.print(f"{name:<11} {printable(value)}")
    screen.print(f"\n{printable(guarantee['sentence'])}\n")
    screen.print(in_columns(guarantee["numbers"]))
    if guarantee["releases"]:
        screen.print()
        screen.print(_releases(guarantee["releases"]))
    for heading, items in guarantee["details"]:
        screen.print(f"\n{heading}")
        for item in items:
            screen.print(Padding.indent(f"- {printable(item)}", 2))
    # No more classes than are listed above: --json has all.
    for heading, rows in (
        ("public rows, by id or counted from 0", model["selected"]),
        ("public descriptions", model["descriptions"]),
    ):
        named = [(name, some) for name, some in zip(classes, rows or (), strict=False) if some]
        if named:
            table = Table("class", heading)
            for name, some in named[:_NAMES]:
                table.add_row(printable(name), _lines(some))
            if len(named) > _NAMES:
                table.add_row(f"and {len(named) - _NAMES} more", "see --json")
            screen.print()
            screen.print(table)


def _show_selected(file: Path, source: io.Source) -> None:
    """Print the public texts that a model selected."""
    from dppl.statement.data import describe
    from dppl.statement.pictures import selected_items

    if source.modality == "image":
        raise ParameterError("--public holds images; add --out FILE.html for a page with those that were selected.")
    table = Table("class", "selected public texts")
    for name, items in selected_items(describe(file), source, Path("the pool")):
        table.add_row(printable(name), _lines(text for _, text in items))
    console().print(table)


def _releases(releases: list[dict[str, Any]]) -> Table:
    """Return a table with a row for each release, or for several equal ones; it fits into 80 columns."""
    table = Table()
    for heading in ("release", "sensitivity and parameters", "cost"):
        table.add_column(heading, overflow="fold")
    last = 0
    for one in releases:
        first, last = last + 1, last + one["times"]
        number = str(first) if first == last else f"{first} to {last}, each"
        what = f"{number}: {one['statistic']}, by the {one['drawn']}"
        sensitivity = f"{one['norm']} sensitivity {one['sensitivity']}"
        table.add_row(printable(what), _lines([sensitivity, *one["parameters"]]), _lines(one["cost"]))
    return table


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(map(printable, texts))
