"""`dppl show`: what is in a model file, and what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.padding import Padding
from rich.table import Table

from dppl import _validate, io
from dppl.cli._groups import how_to_read
from dppl.cli._output import console, note, numbers, print_json, printable
from dppl.cli._paths import check_inputs, check_output, opened
from dppl.cli._request import argument, flag, option, request
from dppl.cli.predict import is_network
from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier
    from dppl.finetune.workflow import Finetuned
    from dppl.kernel.privacy import Release
    from dppl.prototypes import PublicPrototypes

_NAMES = 20
_PAGES = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}


@request("json", "card", "out", "delta", "public")
class Show:
    """What `dppl show` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
    json: bool = flag("Print JSON.")
    card: bool = flag("Print a model card: Markdown with YAML front matter, for a model hub.")
    out: Path | None = option(
        "FILE",
        "Page to write: .html, .md or .json. With --public images a .png of those that the model selected, one row per "
        "class.",
        None,
    )
    delta: float | None = option("D", "Another delta at which to give epsilon.", None)
    public: Path | None = option(
        "POOL",
        "Public images or texts among which a model of public rows selected; shows those that it selected.",
        None,
    )
    read: list[str] = option(
        "NAME=VALUE", "How POOL is read, as by `dppl embed`; x names its column of texts or images.", ()
    )
    results: list[Path] = option(
        "FILE", "For the page: what `dppl evaluate --json` printed, or `dppl bench` wrote; one of each kind.", ()
    )
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
      dppl show my.safetensors --public photos/ --out chosen.png
    """
    model, delta, out, public = request.model, request.delta, request.out, request.public
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
    check_inputs(model, public, *request.results)
    if out is not None:
        if out.suffix.lower() not in _PAGES and not (public and out.suffix.lower() == ".png"):
            raise ParameterError(f"--out must end in {', '.join(_PAGES)}, or with --public images in .png; got {out}.")
        account = [] if request.ledger is None or "://" in request.ledger else [Path(request.ledger)]
        check_output(out, (model, public, *request.results, *account), force=request.force)
    pool = None if public is None else _pool(public, request.read)
    if pool is not None and (out is None or out.suffix.lower() == ".png"):
        _show_selected(model, pool, public, out, force=request.force)
    elif out is not None:
        _write_page(request, pool, out)
    elif request.json:
        if delta is not None:
            _validate.open_unit(delta=delta)
        print_json(_whole(model, delta))
    elif request.card:
        from dppl.statement import model_card

        typer.echo(model_card(_description(model, opened(model)), sha256=_hash(model)), nl=False)
    else:
        if delta is not None:
            _validate.open_unit(delta=delta)
        _print(opened(model), _hash(model), delta)


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
    how = how_to_read(read, ("x", "id", "kind", "split", "encoding", "delimiter"))
    if "kind" not in how and io.holds_embeddings(public):
        raise ParameterError(f"--public must be the images or texts themselves; {public} holds embeddings of them.")
    columns = io.Columns(how.pop("x", None), id=how.pop("id", None))
    return io.open_source(public, columns=columns, **how)


def _whole(model: Path, delta: float | None) -> dict[str, Any]:
    """Return everything that a model file says, and what follows from it, JSON-ready."""
    from dppl.kernel.privacy import Guarantee

    content = _description(model, opened(model))
    implied = Guarantee.from_dict(content["guarantee"]).implied(delta)
    return {**content, "implied": implied, "file_sha256": _hash(model)}


def _description(model: Path, fitted: EmbeddingClassifier | Finetuned) -> dict[str, Any]:
    from dppl.estimators.model_file import describe

    return fitted.description if is_network(fitted) else describe(model)


def _print(fitted: EmbeddingClassifier | Finetuned, sha256: str, delta: float | None) -> None:
    from dppl.finetune.workflow import Finetuned
    from dppl.prototypes import PublicPrototypes
    from dppl.statement import words

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


def _show_selected(file: Path, source: io.Source, public: Path | None, out: Path | None, *, force: bool) -> None:
    """Print the public texts that a model selected, or draw the images."""
    from dppl._files import write_atomically
    from dppl.prototypes import PublicPrototypes
    from dppl.statement import contact_sheet
    from dppl.statement.pictures import selected_items

    model = opened(file)
    if not isinstance(model, PublicPrototypes):
        kind = "SparseFinetuner" if is_network(model) else type(model).__name__
        raise ParameterError(
            f"--public is for models that select public rows (--method public); {file} is of {kind}, which selects "
            "none."
        )
    if model.public_ids_ is None:
        raise ParameterError(
            "--public needs a model fitted on public rows with ids, which `dppl embed` and `dppl train` write; this "
            "model has only the numbers of the rows: leave --public out to see them."
        )
    if (source.modality == "image") != (out is not None):
        raise ParameterError(
            f"{public} holds images; add --out FILE.png to draw those that were selected."
            if out is None
            else f"{public} holds texts, which are printed; leave --out out."
        )
    assert public is not None
    content = selected_items(source, set(model.public_ids_.ravel().tolist()), public)
    rows = [
        (str(name), [content[one] for one in ids]) for name, ids in zip(model.classes_, model.public_ids_, strict=True)
    ]
    if out is not None:
        write_atomically(out, contact_sheet(rows), overwrite=force)
        typer.echo(f"Selected images: {printable(out)}")
        return
    table = Table("class", "selected public texts")
    for name, texts in rows:
        table.add_row(printable(name), "\n".join(printable(text) for text in texts))
    console().print(table)


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _facts(model: EmbeddingClassifier | Finetuned) -> list[tuple[str, Any]]:
    from dppl._fingerprint import in_short
    from dppl.finetune.workflow import Finetuned

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
    from dppl.kernel.privacy.budgets import rounded_up
    from dppl.statement import words
    from dppl.statement.words import in_a_row

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
