"""`dppl show`: what is in a model file, and what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from rich.padding import Padding
from rich.table import Table

from dppl import _validate
from dppl._files import write_atomically
from dppl.cli._groups import Items
from dppl.cli._output import console, in_columns, print_json, printable
from dppl.cli._paths import check_inputs, check_output, opened_pool
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError
from dppl.io import Source
from dppl.kernel.privacy import Guarantee
from dppl.statement import model_card, words
from dppl.statement.data import content, describe
from dppl.statement.pictures import contact_sheet, selected_items

_NAMES = 20


@request("json", "card", "license", "delta", "public")
class Show:
    """What `dppl show` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
    json: bool = flag("Print JSON.")
    card: bool = flag("Print a model card: Markdown with YAML front matter, for a model hub.")
    license: str | None = option("ID", "With --card: licence of the model, such as apache-2.0. Default unknown.", None)
    delta: float | None = option("D", "Another delta at which to give epsilon.", None)
    public: Path | None = option(
        "POOL",
        "Public images or texts among which a model of public rows selected; shows those that it selected.",
        None,
    )
    sheet: Path | None = option("FILE", "PNG to write for --public images: one row per class.", None)
    items: Items
    force: bool = flag("Replace the output file if it exists.")


def show(request: Show) -> None:
    """Show a model: its classes, its guarantee in words and numbers, and every release behind it.

    Reading a model file runs no code from it.

    For example:

      dppl show my.safetensors
      dppl show my.safetensors --delta 1e-7
      dppl show my.safetensors --json
      dppl show my.safetensors --card > README.md
      dppl show my.safetensors --public sentences.txt
      dppl show my.safetensors --public photos/ --sheet chosen.png
    """
    model, delta, public = request.model, request.delta, request.public
    if request.json and request.card:
        raise ParameterError("--json and --card are two forms of one text; choose one.")
    if delta is not None:
        if request.card or public is not None:
            raise ParameterError("--delta adds a number to the statement or to --json; leave --card and --public out.")
        _validate.open_unit(delta=delta)
    if public is not None and (request.json or request.card):
        raise ParameterError("--public shows texts or images; leave --json and --card out.")
    if public is None and (request.sheet or request.items.x or request.items.read):
        raise ParameterError("--sheet, --x and --read go with --public POOL; name it too.")
    if request.license is not None and not request.card:
        raise ParameterError("--license stands in a model card; add --card.")
    if public is not None:
        check_inputs(public)
        _show_selected(model, opened_pool(public, request.items), public, request.sheet, force=request.force)
    elif request.card:
        card = model_card(describe(model), sha256=_hash(model), license=request.license or "unknown")
        typer.echo(card, nl=False)
    elif request.json:
        print_json(whole(model, delta))
    else:
        _print(describe(model), _hash(model), delta)


def whole(model: Path, delta: float | None = None) -> dict[str, Any]:
    """Return everything that a model file says, and what follows from it, JSON-ready."""
    description = describe(model)
    implied = Guarantee.from_dict(description["guarantee"]).implied(delta)
    return {**description, "implied": implied, "file_sha256": _hash(model)}


def _print(description: dict[str, Any], sha256: str, delta: float | None) -> None:
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


def _show_selected(file: Path, source: Source, public: Path, sheet: Path | None, *, force: bool) -> None:
    """Print the public texts that a model selected, or draw the images."""
    if (source.modality == "image") != (sheet is not None):
        raise ParameterError(
            f"{public} holds images; add --sheet FILE.png to draw those that were selected."
            if sheet is None
            else f"{public} holds texts, which are printed; leave --sheet out."
        )
    if sheet is not None:
        check_output(sheet, (file, public), force=force, option="--sheet")
    selected = selected_items(describe(file), source, public)
    rows = [(name, [item for _, item in items]) for name, items in selected]
    if sheet is not None:
        write_atomically(sheet, contact_sheet(rows), overwrite=force)
        typer.echo(f"Selected images: {printable(sheet)}")
        return
    table = Table("class", "selected public texts")
    for name, texts in rows:
        table.add_row(printable(name), _lines(texts))
    console().print(table)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
