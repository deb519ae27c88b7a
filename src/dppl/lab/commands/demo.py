"""`dppl demo`: a private classifier trained, evaluated, explained and saved, on real images inside a dependency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dppl._files import write_atomically
from dppl.cli._output import console, print_json, print_promise
from dppl.cli._progress import progress_bar
from dppl.data import Sample, load_messages, load_sample, write_table
from dppl.data.messages import INTENTS, NEW_MESSAGES
from dppl.errors import ParameterError
from dppl.kernel.privacy.budgets import USUAL_DELTA, rounded_up
from dppl.lab.demo import (
    BUDGETS,
    IMBALANCE_RATIOS,
    PRIVATE,
    REFERENCE,
    SEEDS,
    Runs,
    compare,
    figures,
    n_fits,
    row_name,
    sizes,
    winner,
)

if TYPE_CHECKING:
    from dppl.prototypes import SoftmaxPrototypes

_DEFAULT_FOLDER = "dppl-demo"
_RELEASED = BUDGETS[0]


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model and the tables. Default: dppl-demo, or the next free dppl-demo-N."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every accuracy, and the guarantee of the model, as JSON.")
    ] = False,
) -> None:
    """Train every method on built-in digits, compare them, and release one model.

    Takes under a minute and writes a new folder; nothing is overwritten.
    """
    from dppl.estimators import PublicData
    from dppl.prototypes import SoftmaxPrototypes  # here, because the help of a command needs no scikit-learn

    folder = _new_folder(out)
    screen = console(markup=True)
    sample = load_sample()
    if not as_json:
        screen.print(f"[bold]Task.[/bold] {sample.description}\n")
    cells = _run(sample)
    model = SoftmaxPrototypes(_RELEASED, classes=sample.classes, public=PublicData(sample.X_public))
    model.fit(sample.X, sample.y)
    accuracy = model.score(sample.X_test, sample.y_test)
    _write(folder, sample, model)
    if as_json:
        print_json(
            {
                "comparison": [cell.to_dict() for cell in cells],
                "model": str(folder / "model.safetensors"),
                "test_accuracy": accuracy,
                "guarantee": model.guarantee_.to_dict(),
            }
        )
        return
    _print_comparison(screen, sample, cells)
    screen.print(
        f"\n[bold]One model for release[/bold], {_RELEASED}; noise from the operating system: test accuracy "
        f"{accuracy:.3f}.\n"
    )
    print_promise(model.guarantee_, folder / "model.safetensors")
    screen.print(f"\n[bold]Saved[/bold] in {folder}/. Type next:\n")
    for line in _next_steps(folder):
        screen.print(f"  {line}", soft_wrap=True)


def _print_comparison(screen: Console, sample: Sample, cells: list[Runs]) -> None:
    for ratio in IMBALANCE_RATIOS:
        of_ratio = [cell for cell in cells if cell.imbalance_ratio == ratio]
        largest, smallest, rare = sizes(sample, ratio)
        if ratio == 1:
            screen.print(_table(of_ratio, f"Balanced test accuracy, {largest} records a class", _balanced))
        else:
            title = f"Balanced test accuracy, classes of {largest} to {smallest} records"
            screen.print(_table(of_ratio, title, _balanced))
            records = " and ".join(map(str, rare))
            screen.print(_table(of_ratio, f"The same models, on the rarest classes ({records} records)", _minority))
    screen.print(_legend())


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


def _run(sample: Sample) -> list[Runs]:
    with progress_bar("fitting", n_fits(), public=True) as advance:
        return compare(sample, advance or (lambda: None))


def _balanced(cell: Runs) -> Sequence[float]:
    return cell.balanced


def _minority(cell: Runs) -> Sequence[float]:
    return cell.minority


def _table(cells: list[Runs], title: str, values: Callable[[Runs], Sequence[float]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("method", no_wrap=True)
    for budget in BUDGETS:
        mu = rounded_up(budget.gaussian_allowance().mu, 4)
        table.add_column(f"epsilon {budget.epsilon:g}\nmu {mu}", justify="right", no_wrap=True)
    columns = [
        {cell.method: values(cell) for cell in cells if cell.method in PRIVATE and cell.budget == budget}
        for budget in BUDGETS
    ]
    winners = [winner(column) for column in columns]
    for method in PRIVATE:
        marks = ["*" if method == name else " " for name in winners]
        table.add_row(
            row_name(method), *[figures(column[method]) + mark for column, mark in zip(columns, marks, strict=True)]
        )
    (reference,) = [cell for cell in cells if cell.method == REFERENCE]
    table.add_section()
    table.add_row(row_name(REFERENCE), *[f"{figures(values(reference))} "] * len(BUDGETS))
    return table


def _legend() -> str:
    return (
        f"Means over {SEEDS} seeded runs, ± their standard error. * is ahead of every other private row by more than "
        "two standard errors of the difference; a column without * has no winner. Budgets are epsilons at "
        f"delta = {rounded_up(USUAL_DELTA)}, with the mu of Gaussian DP that is spent. Indented rows change the row "
        "above; the two as published take the class sizes as public, so they never get a *. The last row is not "
        "private."
    )


def _write(folder: Path, sample: Sample, model: SoftmaxPrototypes) -> None:
    model.save(folder / "model.safetensors")
    write_table(folder / "private.npz", sample.X, sample.y)
    write_table(folder / "public.npz", sample.X_public)
    write_table(folder / "test.npz", sample.X_test, sample.y_test)
    _write_lines(folder / "classes.txt", sample.classes)
    _write_lines(folder / "messages.csv", ["text,label", *(f'"{text}",{label}' for text, label in load_messages())])
    _write_lines(folder / "intents.txt", INTENTS)
    _write_lines(folder / "new.txt", NEW_MESSAGES)


def _write_lines(path: Path, lines: Iterable[object]) -> None:
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8"), overwrite=True)


def _next_steps(folder: Path) -> list[str]:
    return [
        f"dppl show {folder}/model.safetensors",
        f"dppl evaluate {folder}/model.safetensors {folder}/test.npz",
        f"dppl check {folder}/private.npz --classes {folder}/classes.txt",
        f"dppl fit {folder}/private.npz --classes {folder}/classes.txt --public {folder}/public.npz "
        f"--epsilon 1 --delta 1e-6 --out {folder}/mine.safetensors",
    ]
