"""What the commands share: options, checks of paths, and how things are printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from dppl.data import EmbeddingTable, read_table
from dppl.embedding import KINDS
from dppl.errors import InputError, ParameterError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.reading import check_encoder
from dppl.privacy import ZCDP, ApproxDP, Budget, GaussianDP, Guarantee, PureDP
from dppl.privacy.ledger import Ledger, accounts
from dppl.privacy.names import refuse_look_alike

DATA, ENCODER, BUDGET = "Data", "Encoder", "Budget (exactly one)"  # panels of the help
# Larger deltas get a note. A fixed number, since what is printed must not depend on the number of records.
_LARGEST_DELTA = 1e-3
# How files of raw records end that `dppl embed` reads and that are no tables.
_RAW = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")


def option(metavar: str, text: str, panel: str | None = None, *names: str, **limits: Any) -> Any:
    """Return an option whose help says the default itself."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, show_default=False, **limits)


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file of `dppl fit` or `dppl train`.")]
TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Embeddings: .npy, .npz, .parquet, or a folder of .parquet files.")
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Labels in a file of their own: .npy, or .txt or .csv with one label a line and no header.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
XOption = Annotated[
    str, typer.Option("--x", metavar="NAME", help="Array or column that holds the embeddings.", rich_help_panel=DATA)
]
YOption = Annotated[
    str, typer.Option("--y", metavar="NAME", help="Array or column that holds the labels.", rich_help_panel=DATA)
]
# Half of the options that name a budget; what epsilon and delta mean beside them, each command says itself.
MuOption = Annotated[
    float | None,
    option("M", "Gaussian DP: sensitivity / noise. 0.5, 1 and 2 are epsilon 2.3, 4.9 and 11 at delta 1e-6.", BUDGET),
]
RhoOption = Annotated[float | None, option("R", "zCDP; of Gaussian noise rho = mu²/2.", BUDGET)]
# How a source of raw records is read, and an encoder runs.
KindOption = Annotated[str, option("KIND", f"What the source is: {', '.join(KINDS)}.", DATA, "--format")]
ItemsOption = Annotated[str | None, option("NAME", "Column of texts or images. Default: text, image, ...", DATA, "--x")]
ItemLabelsOption = Annotated[str | None, option("NAME", "Column of labels. Default: label, labels or y.", DATA, "--y")]
IdOption = Annotated[str | None, option("NAME", "Column of ids. Default: the row, or the path.", DATA, "--id")]
SplitOption = Annotated[str | None, option("NAME", "Split of a saved data set or of arrays.", DATA)]
WorkersOption = Annotated[
    int | None, option("N", "Threads that read and decode. Default: a core each, 8 at most.", ENCODER, min=1)
]
DeviceOption = Annotated[str, option("auto|cpu|cuda", "Where the encoder runs. Default auto.", ENCODER)]
PrecisionOption = Annotated[str, option("auto|float32|float16", "Of the encoder's arithmetic. Default auto.", ENCODER)]
MaxRecordsOption = Annotated[
    int | None,
    typer.Option(
        "--max-records",
        metavar="N",
        min=1,
        help="Public bound on the number of records; --delta must be below 1 / N. Never the private number itself.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class _Plain(Console):
    """Prints texts as they are, since class names may look like markup, and leaves a broken pipe to `dppl.cli.main`."""

    def __init__(self, *, markup: bool = False) -> None:
        super().__init__(markup=markup, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, markup: bool = False) -> Console:
    """Return a console on stdout, for texts of others unless `markup` is asked for."""
    return _Plain(markup=markup)


def printable(text: object) -> str:
    """Replace control characters by their escapes, so that no text can steer a terminal or fake a line."""
    return "".join(repr(char)[1:-1] if _is_control(char) else char for char in str(text))


def _is_control(char: str) -> bool:
    return ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029"


def is_one_line(text: str) -> bool:
    """Tell whether `text` stays one line when it is printed."""
    return not any(map(_is_control, text))


def note(text: str) -> None:
    """Say something beside the result, on stderr."""
    typer.echo(f"dppl: note: {text}", err=True)


def print_json(content: dict[str, Any] | list[Any]) -> None:
    """Print JSON; ASCII, so that it survives every terminal and pipe."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def print_lines(lines: Iterable[object]) -> None:
    """Print lines as UTF-8, which is what files of labels are on every system."""
    content = memoryview("".join(f"{line}\n" for line in lines).encode("utf-8"))
    stream = sys.stdout.buffer
    sys.stdout.flush()
    # With PYTHONUNBUFFERED a write may stop half-way and say so in its result only.
    while content:
        content = content[stream.write(content) or 0 :]
    stream.flush()


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show that work is going on, if a person is watching. The message must say nothing about private data."""
    if sys.stderr.isatty():
        with Console(stderr=True).status(message):
            yield
    else:
        yield


def check_output(path: Path, inputs: Sequence[Path | None], *, force: bool, option: str = "--out") -> None:
    """Refuse an output path before any work is done for it.

    Raises
    ------
    ParameterError
        If its folder does not exist, it is a folder, it is one of the `inputs`, or it exists and `force` is False.
    PermissionError
        If nothing can be written into its folder.
    """
    if not path.parent.is_dir():
        raise ParameterError(f"{option} must lie in an existing folder; {path.parent} is none; create it first.")
    if path.is_dir():
        raise ParameterError(f"{option} must name a file; {path} is a folder.")
    if path.exists() and any(source and source.exists() and path.samefile(source) for source in inputs):
        raise ParameterError(f"{option} must not be a file that is read; {path} is; choose another name.")
    if os.path.lexists(path) and not force:
        raise ParameterError(f"{option} must name a new file; {path} exists; choose another name, or add --force.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} cannot be written to.")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that an option, by the name that users type, does not have.

    Raises
    ------
    ParameterError
    """
    choices = list(choices)
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")


def budget_from_options(
    mu: float | None, rho: float | None, epsilon: float | None, delta: float | None, max_records: int | None = None
) -> Budget:
    """Return the budget that ``--mu``, ``--rho``, ``--epsilon`` and ``--delta`` name, and say so if it is weak.

    Raises
    ------
    ParameterError
        If they name none or several, or a value breaks its rule.
    BudgetError
        If delta is too large for `max_records`.
    """
    if sum(value is not None for value in (mu, rho, epsilon)) != 1:
        raise ParameterError("name exactly one budget: --mu M, --rho R, --epsilon E --delta D, or --epsilon E.")
    if max_records is not None and delta is None:
        raise ParameterError("--max-records is there to check --delta; without that it has no effect.")
    if epsilon is None and delta is not None:
        raise ParameterError("--delta belongs to --epsilon; --mu and --rho need none.")
    budget: Budget
    if mu is not None:
        budget = GaussianDP(mu)
    elif rho is not None:
        budget = ZCDP(rho)
    else:
        assert epsilon is not None
        budget = PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta, max_records)
    if budget.is_weak:
        note(budget.weakness)
    if isinstance(budget, ApproxDP) and budget.delta > _LARGEST_DELTA:
        note(
            f"delta = {budget.delta:g} is too large for most data: with a delta of 1 / number of records or more, a "
            "mechanism may publish a whole record. Choose one far below that, for instance 1e-6."
        )
    return budget


def numbers(guarantee: Guarantee, delta: float | None = None) -> Padding:
    """Return what a guarantee promises in numbers, as a small table without lines."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in guarantee.table(delta):
        table.add_row(*row)
    return Padding.indent(table, 2)


def open_ledger(file: str, dataset: str) -> Ledger:
    """Open the account of a data set in an existing ledger.

    Raises
    ------
    LedgerError
        If there is no ledger.
    ParameterError
        If it has no such data set, or one whose name only looks the same.
    """
    names = [account.dataset for account in accounts(file)]
    if dataset not in names:
        refuse_look_alike("--dataset", dataset, names)
        raise ParameterError(
            f"the ledger has no data set {dataset!r}, but {', '.join(map(repr, names)) or 'none at all'}; name one of "
            "them, or open an account with `dppl ledger create`."
        )
    return Ledger(file, dataset)


def check_inputs(*paths: Path | None) -> None:
    """Refuse a path that does not exist.

    Raises
    ------
    FileNotFoundError
    """
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(f"there is no file or folder {path}.")


def check_table(path: Path) -> None:
    """Refuse raw records where embeddings are wanted.

    Raises
    ------
    InputError
        If the path ends as files of texts do.
    """
    if path.suffix.lower() in _RAW and path.is_file():
        raise InputError(
            f"{path} is no table of embeddings; if it holds raw records, embed them first: dppl embed {path} --encoder "
            "URI --out FOLDER."
        )


def require_labels(table: EmbeddingTable, path: Path) -> Any:
    """Return the labels of a table.

    Raises
    ------
    InputError
        If it has none.
    """
    if table.y is None:
        raise InputError(f"{path} has no labels; name their array or column with --y, or their file with --labels.")
    return table.y


def read_rows_for(
    model: EmbeddingClassifier, path: Path, *, x: str, y: str | None = None, labels: Path | None = None
) -> EmbeddingTable:
    """Read a table that `model` can classify.

    Raises
    ------
    InputError
        If it cannot be read, or its rows have another width than those the model was fitted on.
    """
    check_inputs(path, labels)
    table = read_table(path, x=x, y=y, labels=labels)
    if table.shape[1] != model.n_features_in_:
        raise InputError(
            f"{path} has {table.shape[1]} features, but the model expects {model.n_features_in_}; embed the records "
            "with the encoder that the model was fitted on."
        )
    check_encoder(table, model.encoder_, str(path))
    return table
