"""`dppl demo`: a private classifier trained, compared, explained and saved, on real images inside a dependency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table
from threadpoolctl import threadpool_limits

from dppl._utils.files import write_atomically
from dppl._utils.progress import progress
from dppl.cli._output import console, print_model
from dppl.cli._request import option, request
from dppl.errors import ParameterError
from dppl.io import Sample, load_messages, load_sample, write_table
from dppl.io.sample import INTENTS, NEW_MESSAGES
from dppl.kernel.privacy import ApproxDP
from dppl.kernel.privacy.budgets import USUAL_DELTA, rounded_up
from dppl.lab import long_tailed, long_tailed_sizes
from dppl.lab.experiments.compared_methods import METHODS, label
from dppl.metrics import (
    class_accuracies,
    class_sizes,
    is_ahead,
    minority_classes,
    standard_error,
)

if TYPE_CHECKING:
    from dppl.methods import EmbeddingClassifier

_DEFAULT_FOLDER = "dppl-demo"

# The one to start from first.
BUDGETS = tuple(ApproxDP(epsilon, USUAL_DELTA) for epsilon in (1.0, 3.0, 8.0))
# Of classes of 59 records: at 3 the smallest two have 20 and 22, few for privacy and
# enough to measure a difference.
IMBALANCE_RATIOS = (1, 3)
SEEDS = 30

# Names of methods, in the order of the table; what changes the row above is indented
# there.
PRIVATE = (
    "softmax",
    "mean",
    "mean-replace-one",
    "coinpress",
    "public",
    "public-topk",
    "linear-probe",
)
# These take class sizes as public, so they protect less, and are no winners.
AS_PUBLISHED = ("mean-replace-one", "coinpress")
REFERENCE = "ncm"
_SETTINGS = [
    (REFERENCE, None),
    *((name, budget) for name in PRIVATE for budget in BUDGETS),
]
_RELEASED = BUDGETS[0]
_LEGEND = (
    f"Means over {SEEDS} seeded runs, ± their standard error. * is ahead of every other private row by more than "
    "two standard errors of the difference; a column without * has no winner. Budgets are epsilons at "
    f"delta = {rounded_up(USUAL_DELTA)}, with the mu of Gaussian DP that is spent. Indented rows change the row "
    "above; the two as published take the class sizes as public, so they never get a *. The last row is not "
    "private."
)
_NEXT = """\
dppl show {folder}/model.safetensors
dppl evaluate {folder}/model.safetensors {folder}/test.npz
dppl check {folder}/private.npz --classes {folder}/classes.txt
dppl fit {folder}/private.npz --classes {folder}/classes.txt --public {folder}/public.npz \
--epsilon 1 --delta 1e-6 --out {folder}/mine.safetensors"""


@request()
class Demo:
    """Train every method on built-in digits, compare them, and release one model.

    Takes under a minute and writes a new folder; nothing is overwritten.
    """

    out: Path | None = option(
        "FOLDER",
        "Folder for the model and the tables. Default: dppl-demo, or the next free dppl-demo-N.",
        None,
    )

    def run(self) -> None:
        """Fit, compare, print and write."""
        from dppl.methods import PublicData, SoftmaxPrototypes

        folder = _new_folder(self.out)
        screen = console(markup=True)
        sample = load_sample()
        screen.print(f"[bold]Task.[/bold] {sample.description}\n")
        with progress(
            "fitting", len(IMBALANCE_RATIOS) * len(_SETTINGS) * SEEDS
        ) as advance:
            runs = compare(sample, advance)
        # The one model for release: its noise is from the operating system.
        model = SoftmaxPrototypes(
            _RELEASED, classes=sample.classes, public=PublicData(sample.X_public)
        )
        model.fit(sample.X, sample.y)
        accuracy = model.score(sample.X_test, sample.y_test)
        write_demo_files(folder, sample, model)
        # What came out, and what to type next.
        for ratio in IMBALANCE_RATIOS:
            here = [one for one in runs if one.imbalance_ratio == ratio]
            largest, smallest, rare = sizes(sample, ratio)
            if ratio == 1:
                what = f"{largest} records a class"
            else:
                what = f"classes of {largest} to {smallest} records"
            screen.print(
                _table(here, f"Balanced test accuracy, {what}", "balanced_accuracy")
            )
            if ratio > 1:
                title = f"The same models, on the rarest classes ({' and '.join(map(str, rare))} records)"
                screen.print(_table(here, title, "minority_accuracy"))
        screen.print(_LEGEND)
        screen.print(
            f"\n[bold]One model for release[/bold], {_RELEASED}; noise from the operating system: test accuracy "
            f"{accuracy:.3f}.\n"
        )
        print_model(model.guarantee_, folder / "model.safetensors")
        screen.print(f"\n[bold]Saved[/bold] in {folder}/. Type next:\n")
        for line in _NEXT.format(folder=folder).splitlines():
            screen.print(f"  {line}", soft_wrap=True)


def write_demo_files(folder: Path, sample: Sample, model: EmbeddingClassifier) -> None:
    """Write the released model and the tables and texts that the printed commands need."""
    model.save(folder / "model.safetensors")
    write_table(folder / "private.npz", sample.X, sample.y)
    write_table(folder / "public.npz", sample.X_public)
    write_table(folder / "test.npz", sample.X_test, sample.y_test)
    messages = ["text,label", *(f'"{text}",{label}' for text, label in load_messages())]
    texts: dict[str, Iterable[object]] = {
        "classes.txt": sample.classes,
        "messages.csv": messages,
        "intents.txt": INTENTS,
        "new.txt": NEW_MESSAGES,
        "tumours.csv": _tumours(),
        "diagnoses.txt": ("benign", "malignant"),
    }
    for name, lines in texts.items():
        write_atomically(
            folder / name,
            "".join(f"{line}\n" for line in lines).encode("utf-8"),
            overwrite=True,
        )


def _tumours() -> Iterator[str]:
    """Yield five columns of scikit-learn's breast tumours and their diagnoses, as lines of CSV."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    places = [0, 1, 4, 6, 8]
    yield "radius,texture,smoothness,concavity,symmetry,label"
    for row, code in zip(table.data, table.target, strict=True):
        cells = row[places].round(4)
        yield ",".join([*map(str, cells), table.target_names[code]])


def _new_folder(out: Path | None) -> Path:
    """Make an empty folder, so that nothing of the user's is overwritten; an interrupted demo leaves one."""

    def free(folder: Path) -> bool:
        return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))

    if out is not None and not free(out):
        raise ParameterError(
            f"--out must name a new folder, or an empty one; {out} is neither."
        )
    numbered = (
        Path(_DEFAULT_FOLDER if number == 1 else f"{_DEFAULT_FOLDER}-{number}")
        for number in count(1)
    )
    folder = out or next(filter(free, numbered))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Runs(NamedTuple):
    """Accuracies of one method at one budget and imbalance ratio, seed by seed."""

    method: str  # name in `METHODS`
    imbalance_ratio: int
    budget: ApproxDP | None  # None for the non-private reference
    balanced_accuracy: tuple[float, ...]  # mean accuracy over classes
    # the same over the smallest quarter of the training classes; empty where all
    # classes have one size
    minority_accuracy: tuple[float, ...] = ()


def compare(sample: Sample, advance: Callable[[], None]) -> list[Runs]:
    """Fit every method at every budget and imbalance ratio, seeded: numbers for people, no models for release."""
    from dppl.methods import PublicData

    runs = []
    for ratio in IMBALANCE_RATIOS:
        subsets = [long_tailed(sample.y, ratio, seed) for seed in range(SEEDS)]
        for name, budget in _SETTINGS:
            balanced = []
            minority = []
            method = METHODS[name]
            for seed, rows in enumerate(subsets):
                model = method.build(
                    budget,
                    sample.classes,
                    seed,
                    method.defaults,
                    PublicData(sample.X_public),
                )
                with threadpool_limits(
                    1
                ):  # in small products threads wait for each other longer than they compute
                    predicted = model.fit(sample.X[rows], sample.y[rows]).predict(
                        sample.X_test
                    )
                # The mean over classes, and over the rare ones alone: the smallest
                # quarter in training.
                each = class_accuracies(sample.y_test, predicted, sample.classes)
                balanced.append(float(each.mean()))
                if ratio > 1:
                    rare = minority_classes(class_sizes(sample.y[rows], sample.classes))
                    minority.append(float(each[rare].mean()))
                advance()
            runs.append(Runs(name, ratio, budget, tuple(balanced), tuple(minority)))
    return runs


def sizes(sample: Sample, ratio: int) -> tuple[int, int, list[int]]:
    """Return the records of the largest and of the smallest class, and of each in the smallest quarter of them."""
    counts = class_sizes(sample.y, sample.classes)
    every = long_tailed_sizes(int(counts.min()), len(counts), ratio)
    return (
        int(every.max()),
        int(every.min()),
        sorted(every[minority_classes(every)].tolist()),
    )


def _table(runs: list[Runs], title: str, metric: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("method", no_wrap=True)
    values = {(one.method, one.budget): getattr(one, metric) for one in runs}
    winners = []
    for budget in BUDGETS:
        mu = rounded_up(budget.gaussian_allowance().mu, 4)
        table.add_column(
            f"epsilon {budget.epsilon:g}\nmu {mu}", justify="right", no_wrap=True
        )
        winners.append(winner({name: values[name, budget] for name in PRIVATE}))
    # Each method is a row; a star goes to the winner of a column, if there is one.
    for name in PRIVATE:
        stars = ["*" if name == best else " " for best in winners]
        cells = [figures(values[name, budget]) for budget in BUDGETS]
        table.add_row(
            row_name(name),
            *(cell + star for cell, star in zip(cells, stars, strict=True)),
        )
    table.add_section()
    table.add_row(
        row_name(REFERENCE), *[f"{figures(values[REFERENCE, None])} "] * len(BUDGETS)
    )
    return table


def row_name(method: str) -> str:
    """Return the name of a row: the method's own in all tables, without what it shares with the row that it changes.

    >>> row_name("mean"), row_name("coinpress"), row_name("public-topk")
    ('DPPL-Mean', '  CoinPress (v1)', '  top-5')
    """
    own = label(method, METHODS[method].defaults)
    base = next(
        name
        for name in (*PRIVATE, method)
        if METHODS[name].estimator == METHODS[method].estimator
    )
    if base == method:
        return own
    return f"  {own.removeprefix(METHODS[base].label).lstrip(', ')}"


def figures(values: Sequence[float]) -> str:
    """Return a mean and its standard error, as text."""
    error = standard_error(values)
    return f"{fmean(values):.3f}" + ("" if error is None else f" ± {error:.3f}")


def winner(values: Mapping[str, Sequence[float]]) -> str | None:
    """Return the method that is ahead of every other, or None where no lead is beyond two standard errors.

    >>> winner({"one": [0.5, 0.6], "two": [0.2, 0.3]})
    'one'
    >>> winner({"one": [0.5, 0.6], "two": [0.4, 0.5]}) is None
    True
    """
    rivals = {
        name: several for name, several in values.items() if name not in AS_PUBLISHED
    }
    best = max(rivals, key=lambda name: fmean(rivals[name]))
    ahead = all(is_ahead(rivals[best], rivals[name]) for name in rivals if name != best)
    return best if ahead else None
