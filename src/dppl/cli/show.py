"""`dppl show`: what is in a model file, and what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.padding import Padding
from rich.table import Table

from dppl import _validate
from dppl._files import write_atomically
from dppl._fingerprint import in_short
from dppl.cli._groups import Items
from dppl.cli._output import console, numbers, print_json, printable
from dppl.cli._paths import check_inputs, check_output, opened, opened_pool
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError
from dppl.estimators.model_file import describe
from dppl.finetune.workflow import Finetuned
from dppl.io import Source
from dppl.kernel.privacy import Guarantee, Release
from dppl.kernel.privacy.budgets import rounded_up
from dppl.statement import contact_sheet, model_card, words
from dppl.statement.pictures import selected_items
from dppl.statement.words import in_a_row

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.prototypes import PublicPrototypes

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
    if delta is not None and (request.card or public is not None):
        raise ParameterError("--delta adds a number to the statement or to --json; leave --card and --public out.")
    if public is not None:
        if request.json or request.card:
            raise ParameterError("--public shows texts or images; leave --json and --card out.")
        check_inputs(public)
        _show_selected(model, opened_pool(public, request.items), public, request.sheet, force=request.force)
        return
    if request.sheet or request.items.x or request.items.read:
        raise ParameterError("--sheet, --x and --read go with --public POOL; name it too.")
    if delta is not None:
        _validate.open_unit(delta=delta)
    fitted = opened(model)
    if request.license is not None and not request.card:
        raise ParameterError("--license stands in a model card; add --card.")
    if request.card:
        content = _description(model, fitted)
        typer.echo(model_card(content, sha256=_hash(model), license=request.license or "unknown"), nl=False)
        return
    if request.json:
        print_json(whole(model, delta))
        return
    _print(fitted, _hash(model), delta)


def whole(model: Path, delta: float | None = None) -> dict[str, Any]:
    """Return everything that a model file says, and what follows from it, JSON-ready."""
    content = _description(model, opened(model))
    implied = Guarantee.from_dict(content["guarantee"]).implied(delta)
    return {**content, "implied": implied, "file_sha256": _hash(model)}


def _description(model: Path, fitted: EmbeddingClassifier | Finetuned) -> dict[str, Any]:
    return fitted.description if isinstance(fitted, Finetuned) else describe(model)


def _print(fitted: EmbeddingClassifier | Finetuned, sha256: str, delta: float | None) -> None:
    from dppl.prototypes import PublicPrototypes  # here, because the help of a command needs no scikit-learn

    screen = console()
    guarantee = fitted.guarantee_
    budget = ("budget", guarantee.budget)
    for name, value in [*_facts(fitted), budget, ("unit", guarantee.unit), ("sha256", sha256)]:
        screen.print(f"{name:<11} {printable(value)}")
    screen.print()
    screen.print(printable(guarantee.summary()))
    screen.print()
    screen.print(numbers(guarantee, delta))
    if guarantee.releases:
        screen.print()
        screen.print(_releases(guarantee.releases))
    for heading, items in words.details(guarantee):
        screen.print(f"\n{heading}")
        for item in items:
            screen.print(Padding.indent(f"- {printable(item)}", 2))
    if isinstance(fitted, Finetuned):
        return
    if isinstance(fitted, PublicPrototypes):
        screen.print()
        screen.print(_public_rows(fitted))
    if fitted.examples_ is not None and fitted.examples_.texts is not None:
        screen.print()
        screen.print(_descriptions(fitted, fitted.examples_.texts))


def _show_selected(file: Path, source: Source, public: Path, sheet: Path | None, *, force: bool) -> None:
    """Print the public texts that a model selected, or draw the images."""
    from dppl.prototypes import PublicPrototypes  # here, because the help of a command needs no scikit-learn

    model = opened(file)
    if not isinstance(model, PublicPrototypes):
        kind = "SparseFinetuner" if isinstance(model, Finetuned) else type(model).__name__
        raise ParameterError(
            f"--public is for models that select public rows (--method public); {file} is of {kind}, which selects "
            "none."
        )
    if model.public_ids_ is None:
        raise ParameterError(
            "--public needs a model fitted on public rows with ids, which `dppl embed` and `dppl train` write; this "
            "model has only the numbers of the rows: leave --public out to see them."
        )
    if (source.modality == "image") != (sheet is not None):
        raise ParameterError(
            f"{public} holds images; add --sheet FILE.png to draw those that were selected."
            if sheet is None
            else f"{public} holds texts, which are printed; leave --sheet out."
        )
    if sheet is not None:
        check_output(sheet, (file, public), force=force, option="--sheet")
    content = selected_items(source, set(model.public_ids_.ravel().tolist()), public)
    rows = [
        (str(name), [content[one] for one in ids]) for name, ids in zip(model.classes_, model.public_ids_, strict=True)
    ]
    if sheet is not None:
        write_atomically(sheet, contact_sheet(rows), overwrite=force)
        typer.echo(f"Selected images: {printable(sheet)}")
        return
    table = Table("class", "selected public texts")
    for name, texts in rows:
        table.add_row(printable(name), "\n".join(printable(text) for text in texts))
    console().print(table)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _facts(model: EmbeddingClassifier | Finetuned) -> list[tuple[str, Any]]:
    names = [str(name) for name in model.classes_[:_NAMES].tolist()]
    more = len(model.classes_) - len(names)
    listed = f"{len(model.classes_)}: {', '.join(names)}{f' and {more} more' if more else ''}"
    if isinstance(model, Finetuned):
        said = model.description
        return [
            ("estimator", said["estimator"]),
            ("classes", listed),
            ("trained", f"{said['n_trained']} weights of {', '.join(said['parameters']['train'])}"),
            ("training", _recipe(said)),
            ("network", "not named" if said["encoder"] is None else in_short(said["encoder"])),
            ("digest", said["module"]),
        ]
    lattice = model.lattice_
    facts = [
        ("estimator", type(model).__name__),
        ("classes", listed),
        ("features", f"{model.n_features_in_}, {lattice.dim} after the public map"),
        (model._RELEASED.rstrip("_"), " x ".join(map(str, getattr(model, model._RELEASED).shape))),
    ]
    if model.examples_ is not None:
        facts.append(("examples", f"{model.examples_}, all public"))
    encoder = getattr(model, "encoder_", None)
    return facts if encoder is None else [*facts, ("encoder", in_short(encoder))]


def _recipe(said: dict[str, Any]) -> str:
    """Return how a network was trained; all of it is public."""
    given = said["parameters"]
    return (
        f"{said['n_steps']} steps ({given['epochs']:g} epochs), sampling rate {given['sampling_rate']:g}, expected "
        f"batch {given['batch_size']:g}, clip {given['clip']:g}, noise multiplier {said['noise_multiplier']:.4g}"
    )


def _releases(releases: tuple[Release, ...]) -> Table:
    """Return a table with a row for each release, or for several equal ones; it fits into 80 columns."""
    table = Table()
    for heading in ("release", "sensitivity and parameters", "cost"):
        table.add_column(heading, overflow="fold")
    last = 0
    for release, times in in_a_row(releases):
        first, last = last + 1, last + times
        number = str(first) if times == 1 else f"{first} to {last}, each"
        what = f"{number}: {release.statistic.rstrip(',')}, by the {release.drawn}"
        sensitivity = f"{release.norm.rstrip(',')} sensitivity {words.sensitivity(release)}"
        costs = (f"{name} = {rounded_up(value)}" for name, value in release.cost.items())
        table.add_row(*(_lines(cell) for cell in ([what], [sensitivity, *words.noise(release)], costs)))
    return table


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(map(printable, texts))


def _descriptions(model: EmbeddingClassifier, texts: tuple[tuple[str, ...], ...]) -> Table:
    """Return a table of the public texts that describe the classes, for no more of these than are listed above."""
    table = Table("class", "public descriptions")
    described = [(name, some) for name, some in zip(model.classes_.tolist(), texts, strict=True) if some]
    for name, some in described[:_NAMES]:
        table.add_row(printable(name), _lines(some))
    if len(described) > _NAMES:
        table.add_row(f"and {len(described) - _NAMES} more", "see --json")
    return table


def _public_rows(model: PublicPrototypes) -> Table:
    table = Table("class", "public rows, counted from 0")
    for name, rows in zip(model.classes_.tolist(), model.public_indices_.tolist(), strict=True):
        table.add_row(printable(name), ", ".join(map(str, rows)))
    return table
