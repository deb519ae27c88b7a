"""Options that several commands have, and the names by which a message calls them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from dppl.cli._output import note
from dppl.errors import ParameterError, WeakBudgetWarning
from dppl.io import KINDS
from dppl.kernel.privacy import ZCDP, ApproxDP, Budget, GaussianDP, PureDP

_Command = TypeVar("_Command", bound=Callable[..., None])

# Panels of the help.
DATA, ENCODER, BUDGET, METHOD, ACCOUNT = "Data", "Encoder", "Budget (exactly one)", "Method", "Ledger"
ENGINE = "Engine"
# What the library calls a parameter, and what users of the command line type for it.
FLAGS = {
    "accounting": "--accounting",
    "address": "--address",
    "adjacency": "--adjacency",
    "batch_size": "--batch-size",
    "block": "--block",
    "by": "--by",
    "ceiling": "--ceiling",
    "describe": "--describe",
    "center": "--center-public",
    "clip": "--clip",
    "columns": "--x, --y, --id and --person",
    "confidence": "--confidence",
    "dataset": "--dataset",
    "delta": "--delta",
    "delimiter": "--delimiter",
    "descriptions": "--describe",
    "device": "--device",
    "embeddings_only": "--embeddings-only",
    "encoder": "--encoder",
    "encoding": "--encoding",
    "engine": "--engine",
    "epochs": "--epochs",
    "epsilon": "--epsilon",
    "head_learning_rate": "--head-learning-rate",
    "host": "--host",
    "groups": "--person",
    "id": "--id",
    "jobs": "--jobs",
    "kind": "--format",
    "labels": "--labels",
    "lattice": "--lattice",
    "license": "--license",
    "learning_rate": "--learning-rate",
    "max_classes_per_person": "--classes-per-person",
    "max_records": "--max-records",
    "mechanism": "--mechanism",
    "method": "--method",
    "metric": "--metric",
    "mu": "--mu",
    "network": "--network",
    "n_classes": "--classes",
    "n_features": "--features",
    "n_prototypes": "--prototypes",
    "n_public": "--public-rows",
    "n_records": "--records",
    "partition": "--partition",
    "person": "--person",
    "person_records": "--person-records",
    "pool": "--pool",
    "precision": "--precision",
    "public": "--public",
    "public_x": "--public-x",
    "random_state": "--seed",
    "rho": "--rho",
    "rotation": "--rotation",
    "rows": "--rows",
    "runs": "--runs",
    "sampling_rate": "--sampling-rate",
    "shard_rows": "--shard-rows",
    "smallest": "--smallest",
    "sparsity": "--sparsity",
    "shares": "--shares",
    "split": "--split",
    "spread": "--spread",
    "strict": "--strict",
    "to": "--to",
    "token": "--token",
    "train": "--train",
    "unknown_labels": "--unknown-labels",
    "workers": "--workers",
    "x": "--x",
    "y": "--y",
}


def option(metavar: str, text: str, panel: str | None = None, *names: str, **limits: Any) -> Any:
    """Return an option whose help says the default itself."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, show_default=False, **limits)


def first(*names: str) -> Callable[[_Command], _Command]:
    """Return a decorator that puts these options of a command first in its help, and all others under "Advanced"."""

    def arranged(command: _Command) -> _Command:
        hints = get_type_hints(command, include_extras=True)
        for name in names:
            if name not in hints:
                raise KeyError(name)
        for name, hint in hints.items():
            for info in getattr(hint, "__metadata__", ()):
                if isinstance(info, OptionInfo):
                    panel = None if name in names else _advanced(info.rich_help_panel)
                    hints[name] = Annotated[hint.__origin__, _moved(info, panel)]
        command.__annotations__ = hints
        return command

    return arranged


def _advanced(panel: str | None) -> str:
    return "Advanced" if panel is None else f"Advanced: {panel.partition(' (')[0].lower()}"


def _moved(info: OptionInfo, panel: str | None) -> OptionInfo:
    """Return a copy of an option, which several commands may share, in another panel."""
    info = copy(info)
    info.rich_help_panel = panel
    return info


Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file of `dppl fit`, `dppl train` or `dppl finetune`.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WholeJson = Annotated[bool, typer.Option("--json", help="Print the whole guarantee as JSON, as `dppl show --json`.")]

# A table of embeddings.
Table = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE", help="Embeddings: .npy, .npz, .parquet, a folder of .parquet or .npy shards, or a URL of one."
    ),
]
Labels = Annotated[
    Path | None,
    option("FILE", "Labels in a file of their own: .npy, or .txt or .csv with one label per line and no header.", DATA),
]
X = Annotated[str, option("NAME", "Array or column that holds the embeddings. Default x.", DATA, "--x")]
Y = Annotated[str, option("NAME", "Array or column that holds the labels. Default y.", DATA, "--y")]

# A source of raw records, and an encoder.
Kind = Annotated[str, option("KIND", f"What the source is: {', '.join(KINDS)}.", DATA, "--format")]
Items = Annotated[str | None, option("NAME", "Column of texts or images. Default: text, image, ...", DATA, "--x")]
ItemLabels = Annotated[str | None, option("NAME", "Column of labels. Default: label, labels or y.", DATA, "--y")]
Id = Annotated[
    str | None,
    option(
        "NAME",
        "Column of ids of records, not of persons, which no fit uses. Default: the row number, or the path.",
        DATA,
        "--id",
    ),
]
ItemPerson = Annotated[
    str | None,
    option(
        "NAME",
        "Column of person ids, which are private and may repeat: protect each person with all of their records, not "
        "each record (docs/persons.md).",
        DATA,
    ),
]
Encoding = Annotated[
    str | None,
    option(
        "NAME",
        "Encoding of a CSV, JSON lines or text file, such as cp1252 of spreadsheets in Western Europe. Default: UTF-8, "
        "or UTF-16 by its byte order mark.",
        DATA,
    ),
]
Delimiter = Annotated[
    str | None,
    option(
        "CHAR|tab",
        "What stands between the columns of a CSV file. Default: a comma, in .tsv a tab; or ; tab or |, if the header "
        "has that and no comma.",
        DATA,
    ),
]
Split = Annotated[str | None, option("NAME", "Split of a saved data set or of arrays.", DATA)]
Workers = Annotated[
    int | None,
    option("N", "Threads that read and decode. Default: one for each core, at most 8.", ENCODER, min=1),
]
Device = Annotated[str, option("auto|cpu|cuda", "Where the encoder runs. Default auto.", ENCODER)]
Precision = Annotated[
    str, option("auto|float32|float16", "Precision of the encoder's arithmetic. Default auto.", ENCODER)
]

# Where the work is done.
EngineOption = Annotated[
    str,
    option("local|ray", "ray: read and compute in tasks of Ray (docs/scale.md). Default local.", ENGINE, "--engine"),
]
Address = Annotated[
    str | None,
    option("ADDRESS", "ray: the cluster, such as auto or ray://HOST:10001. Default: this machine alone.", ENGINE),
]

# A budget; what epsilon and delta mean beside the others, commands say themselves.
Mu = Annotated[
    float | None,
    option(
        "M",
        "Gaussian DP: sensitivity / noise. 0.2368, 0.5 and 1 are epsilon 1, 2.3 and 4.9 at delta 1e-6; 0 is a model of "
        "public examples alone.",
        BUDGET,
    ),
]
Rho = Annotated[float | None, option("R", "zCDP; for Gaussian noise rho = mu²/2.", BUDGET)]
Epsilon = Annotated[
    float | None,
    option("E", "With --delta: approximate DP. Alone: pure DP, which selects rows of --public.", BUDGET),
]
Delta = Annotated[float | None, option("D", "Far below 1 / number of records, such as 1e-6.", BUDGET)]
MaxRecords = Annotated[
    int | None,
    option(
        "N",
        "Public bound on the number of records; --delta must be below 1 / N. Never the private number itself.",
        BUDGET,
        min=1,
    ),
]

# A fit.
ModelOut = Annotated[Path, option("MODEL", "Model file to write.")]
Classes = Annotated[
    Path | None,
    option("FILE", "Public list of classes, one per line. Required: it is never taken from the labels.", DATA),
]
Person = Annotated[
    str | None,
    option(
        "NAME|FILE",
        "Array or column of person ids, which are private (person, in a table of dppl embed; for .npy a second .npy "
        "file): protect each person with all of their records, not each record (docs/persons.md).",
        DATA,
    ),
]
ClassesPerPerson = Annotated[
    int | None,
    option(
        "N",
        "With --person: in how many classes a person counts at most, those of most of their rows. By default all "
        "with --method softmax, and 1 with others, where more means more noise (docs/persons.md).",
        DATA,
        min=1,
    ),
]
UnknownLabels = Annotated[
    str,
    option(
        "error|ignore",
        "With a label outside --classes: stop the fit, or leave the record out; neither names it. Default error.",
        DATA,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Stop before anything is charged if one record cannot be used, or has a label outside --classes. That is "
        "one bit about the records, which no guarantee covers.",
        rich_help_panel=DATA,
    ),
]
Review = Annotated[
    bool,
    typer.Option(
        "--review",
        help="First show what `dppl check` shows on your terminal, never in a log or pipe, and ask whether to go on. "
        "No guarantee covers your choice.",
        rich_help_panel=DATA,
    ),
]
Adjacency = Annotated[
    str, option("add-remove|replace-one", "Which data sets are neighbours. Default add-remove.", METHOD)
]
Prototypes = Annotated[int | None, option("K", "public: rows per class. Default 1.", METHOD, min=1)]
Mechanism = Annotated[
    str | None, option("gaussian|coinpress", "mean: coinpress needs replace-one. Default gaussian.", METHOD)
]
Ledger = Annotated[str | None, option("FILE", "Ledger that pays for the release; see `dppl ledger`.", ACCOUNT)]
Dataset = Annotated[str | None, option("NAME", "Data set in the ledger that is fitted.", ACCOUNT)]
Partition = Annotated[
    str | None, option("NAME", "Part of the data set that is fitted; it shares no record with other parts.", ACCOUNT)
]
Seed = Annotated[
    int | None, option("INT", "Repeatable noise, for experiments only: the model must not be released.", min=0)
]


def budget_from_options(
    mu: float | None, rho: float | None, epsilon: float | None, delta: float | None, max_records: int | None = None
) -> Budget:
    """Return the budget that ``--mu``, ``--rho``, ``--epsilon`` and ``--delta`` name, and say so if it is weak."""
    if sum(value is not None for value in (mu, rho, epsilon)) != 1:
        raise ParameterError(
            "name exactly one budget: --epsilon E --delta D, --mu M, --rho R, or --epsilon E alone, which is pure DP."
        )
    if max_records is not None and delta is None:
        raise ParameterError("--max-records only checks --delta; without --delta it has no effect.")
    if epsilon is None and delta is not None:
        raise ParameterError("--delta belongs to --epsilon; --mu and --rho need none.")
    budget: Budget
    if mu is not None:
        budget = GaussianDP(mu)
    elif rho is not None:
        budget = ZCDP(rho)
    else:
        assert epsilon is not None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", WeakBudgetWarning)
            budget = PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta, max_records)  # type: ignore[call-arg]
        for warning in said:
            note(str(warning.message))
    if budget.is_weak:
        note(budget.weakness)
    return budget
