"""`dppl demo`: a private classifier trained, evaluated, explained and saved, on real images inside a dependency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dppl.data import Sample, load_sample, write_table
from dppl.errors import ParameterError
from dppl.experiments.demo import IMBALANCE_RATIOS, METHODS, PAPER_EPSILONS, REFERENCE, SEEDS, Cell, compare, n_fits
from dppl.privacy import ZCDP
from dppl.prototypes import MeanPrototypes

_DEFAULT_FOLDER = "dppl-demo"
_RELEASED = ZCDP(0.5)


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model and the tables. Default: dppl-demo, or the next free dppl-demo-N."),
    ] = None,
) -> None:
    """Train every method on built-in digits, compare them, and release one model.

    Takes well under a minute and writes a new folder; nothing is overwritten.
    """
    folder = _new_folder(out)
    console = Console(width=None if Console().is_terminal else 110)
    sample = load_sample()
    console.print(f"[bold]Task.[/bold] {sample.description}\n", highlight=False)
    cells = _run(sample)
    console.print(_table(cells))
    console.print(_legend(), highlight=False)
    model = MeanPrototypes(_RELEASED, classes=sample.classes).fit(sample.X, sample.y)
    accuracy = model.score(sample.X_test, sample.y_test)
    _write(folder, sample, model)
    console.print(
        f"\n[bold]One model for release[/bold], {_RELEASED}; noise from the operating system: test accuracy "
        f"{accuracy:.3f}.\n",
        highlight=False,
    )
    console.print(str(model.guarantee_), highlight=False)
    console.print(f"\n[bold]Saved[/bold] in {folder}/. Type next:\n", highlight=False)
    for line in _next_steps(folder):
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def _new_folder(out: Path | None) -> Path:
    """Make an empty folder, so that nothing of the user's is overwritten."""
    if out is not None:
        if out.exists():
            raise ParameterError(f"--out must name a new folder; {out} exists.")
        folder = out
    else:
        number = 1
        folder = Path(_DEFAULT_FOLDER)
        while folder.exists():
            number += 1
            folder = Path(f"{_DEFAULT_FOLDER}-{number}")
    folder.mkdir(parents=True)
    return folder


def _run(sample: Sample) -> list[Cell]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fitting", total=n_fits())
        return compare(sample, lambda: progress.advance(task))


def _table(cells: list[Cell]) -> Table:
    table = Table(title="Balanced test accuracy (minority classes)", title_justify="left")
    table.add_column("method")
    for ratio in IMBALANCE_RATIOS:
        for paper_epsilon in PAPER_EPSILONS:
            rho = ZCDP.from_paper_epsilon(paper_epsilon).rho
            table.add_column(f"IR {ratio}\nrho {rho:.3g}", justify="right", no_wrap=True)
    by_key = {(cell.method, cell.imbalance_ratio, cell.paper_epsilon): cell for cell in cells}
    for method in METHODS:
        keys = [(method, ratio, epsilon) for ratio in IMBALANCE_RATIOS for epsilon in PAPER_EPSILONS]
        table.add_row(method, *[_figures(by_key[key]) for key in keys])
    table.add_section()
    keys_once = [(REFERENCE, ratio, None) for ratio in IMBALANCE_RATIOS for _ in PAPER_EPSILONS]
    table.add_row(REFERENCE, *[_figures(by_key[key]) for key in keys_once])
    return table


def _figures(cell: Cell) -> str:
    return f"{cell.balanced:.2f}" + ("" if cell.minority is None else f" ({cell.minority:.2f})")


def _legend() -> str:
    epsilons = ", ".join(
        f"rho {ZCDP.from_paper_epsilon(e).rho:.3g} is e = {e:g} on the papers' axis and epsilon = "
        f"{ZCDP.from_paper_epsilon(e).to_approx(1e-5).epsilon:.3g} at delta = 1e-5"
        for e in PAPER_EPSILONS
    )
    return (
        f"Means over {SEEDS} seeded runs. IR: largest class divided by smallest. In brackets: the smallest quarter of "
        f"the classes. Budgets in zCDP: {epsilons}. Indented rows change the row above; the two as published take the "
        "class sizes as public."
    )


def _write(folder: Path, sample: Sample, model: MeanPrototypes) -> None:
    model.save(folder / "model.safetensors")
    write_table(folder / "private.npz", sample.X, sample.y)
    write_table(folder / "public.npz", sample.X_public)
    write_table(folder / "test.npz", sample.X_test, sample.y_test)
    (folder / "classes.txt").write_text("".join(f"{label}\n" for label in sample.classes), encoding="utf-8")


def _next_steps(folder: Path) -> list[str]:
    return [
        f"dppl show {folder}/model.safetensors",
        f"dppl evaluate {folder}/model.safetensors {folder}/test.npz",
        f"dppl check {folder}/private.npz --classes {folder}/classes.txt",
        f"dppl fit {folder}/private.npz --classes {folder}/classes.txt --method public --public {folder}/public.npz "
        f"--epsilon 1 --out {folder}/mine.safetensors",
    ]
