"""`dppl fit`: release a model of private records. What it prints depends on public things and on what was released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dppl.cli._shared import (
    BUDGET,
    DATA,
    ForceOption,
    LabelsOption,
    MaxRecordsOption,
    MuOption,
    RhoOption,
    TableArgument,
    XOption,
    YOption,
    budget_from_options,
    check_choice,
    check_inputs,
    check_output,
    check_table,
    console,
    numbers,
    open_ledger,
    option,
    printable,
    require_labels,
    working,
)
from dppl.data import read_classes, read_table
from dppl.errors import BudgetError, ParameterError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.registry import BY_METHOD, REPLACED, method_for
from dppl.privacy import Budget, Guarantee, PureDP
from dppl.privacy.guarantee import ADJACENCIES
from dppl.training import workflow

_METHOD, _ACCOUNT = "Method", "Ledger"
# Options that not every method has: how they are given, and the value that stands for none.
_FLAGS = {
    "adjacency": ("--adjacency replace-one", "add-remove"),
    "center": ("--center-public", None),
    "clip": ("--clip", None),
    "mechanism": ("--mechanism", None),
    "metric": ("--metric", None),
    "n_prototypes": ("--prototypes", None),
    "pool": ("--pool", 1),
    "rotation": ("--rotation", None),
}
# Values that divide by class sizes, which replace-one alone treats as public.
_OF_REPLACE_ONE = {"mechanism": "coinpress", "metric": "euclidean"}


def _known_method(method: str) -> str:
    """Refuse, for every command that has the option, a method that does not exist or was replaced."""
    if method in REPLACED:
        successor = REPLACED[method]
        raise ParameterError(
            f"--method {method} is of an earlier version, and {successor} replaced it; use --method {successor}. "
            "Models that it fitted still predict."
        )
    check_choice("--method", method, ("auto", *BY_METHOD))
    return method


def method_option(automatic: str) -> Any:
    """Return the option ``--method``; `automatic` says which one is taken by itself."""
    hints = "".join(f"{method}: {entry.hint}. " for method, entry in BY_METHOD.items())
    return option(f"auto|{'|'.join(BY_METHOD)}", f"{hints}Default auto: {automatic}.", _METHOD, callback=_known_method)


ModelOption = Annotated[Path, option("MODEL", "Model file to write.")]
ClassesOption = Annotated[
    Path | None,
    option("FILE", "Public list of classes, one a line. Required: it is never read off the labels.", DATA),
]
_Public = Annotated[Path | None, option("TABLE", "Public embeddings of the same encoder.", DATA)]
UnknownLabelsOption = Annotated[
    str,
    option(
        "error|ignore",
        "Whether a label outside --classes stops the fit, or its record is left out; neither names it. Default error.",
        DATA,
    ),
]
EpsilonOption = Annotated[
    float | None,
    option("E", "With --delta: approximate DP. Alone: pure DP, which selects rows of --public.", BUDGET),
]
DeltaOption = Annotated[float | None, option("D", "Far below 1 / number of records, such as 1e-6.", BUDGET)]
_Method = Annotated[str, method_option("the first of them that offers the relation and can spend the budget")]
_Adjacency = Annotated[
    str, option("add-remove|replace-one", "Which data sets are neighbours. Default add-remove.", _METHOD)
]
PrototypesOption = Annotated[int | None, option("K", "public: rows per class. Default 1.", _METHOD, min=1)]
_Clip = Annotated[
    str | None,
    option("auto|D_MIN,D_MAX", "public: bounds on 1 + cosine similarity, from 0 to 2. Default auto.", _METHOD),
]
_Mechanism = Annotated[
    str | None, option("gaussian|coinpress", "mean: coinpress needs replace-one. Default gaussian.", _METHOD)
]
_Metric = Annotated[
    str | None, option("cosine|euclidean", "mean: euclidean needs replace-one. Default cosine.", _METHOD)
]
_Pool = Annotated[
    int, option("N", "mean, public: average this many neighbouring coordinates. Default 1.", _METHOD, min=1)
]
_Center = Annotated[
    bool,
    typer.Option(
        "--center-public",
        help="mean, public: subtract the mean of --public. softmax centres by itself.",
        rich_help_panel=_METHOD,
    ),
]
_Rotation = Annotated[
    str | None,
    option(
        "auto|SEED",
        "mean, public: rotate, for encoders with a few huge coordinates; auto rotates if --public needs it. softmax "
        "rotates by itself.",
        _METHOD,
    ),
]
LedgerOption = Annotated[str | None, option("FILE", "Ledger that pays for the release, see `dppl ledger`.", _ACCOUNT)]
DatasetOption = Annotated[str | None, option("NAME", "Data set in the ledger that is fitted.", _ACCOUNT)]
PartitionOption = Annotated[
    str | None, option("NAME", "Part of the data set that is fitted, sharing no record with other parts.", _ACCOUNT)
]
SeedOption = Annotated[
    int | None, option("INT", "Repeatable noise, for experiments only: the model must not be released.", min=0)
]


def fit(
    table: TableArgument,
    out: ModelOption,
    classes: ClassesOption = None,
    labels: LabelsOption = None,
    public: _Public = None,
    x: XOption = "x",
    y: YOption = "y",
    unknown_labels: UnknownLabelsOption = "error",
    mu: MuOption = None,
    rho: RhoOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    max_records: MaxRecordsOption = None,
    method: _Method = "auto",
    adjacency: _Adjacency = "add-remove",
    prototypes: PrototypesOption = None,
    clip: _Clip = None,
    mechanism: _Mechanism = None,
    metric: _Metric = None,
    pool: _Pool = 1,
    center_public: _Center = False,
    rotation: _Rotation = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    partition: PartitionOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
) -> None:
    r"""Train a private classifier and save it as one file that may be published.

    The classes come from a public file. What is printed depends on nothing but
    public things and what is released; to look for mistakes in the private
    records, use `dppl check`.

    For example:

      dppl fit train.npz --classes classes.txt --public web.npz \
        --mu 1 --out my.safetensors

      dppl fit train.npy --labels y.txt --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl fit train.parquet --classes classes.txt --public web.parquet \
        --epsilon 1 --out my.safetensors
    """
    check_output(out, (table, classes, public, labels), force=force)
    options = {
        "adjacency": adjacency,
        "center": "public" if center_public else None,
        "clip": _parsed_clip(clip),
        "mechanism": mechanism,
        "metric": metric,
        "n_prototypes": prototypes,
        "pool": pool,
        "random_state": seed,
        "rotation": _parsed_rotation(rotation),
        "unknown_labels": unknown_labels,
    }
    check_choice("--adjacency", adjacency, ADJACENCIES)
    check_account(ledger, dataset, partition)
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    if isinstance(budget, PureDP) and public is None and method in ("auto", "public"):
        raise ParameterError(
            "--epsilon alone is pure DP, which selects rows of public data; add --public TABLE, or --delta D."
        )
    named = method != "auto"
    method = method if named else method_for(budget, adjacency)
    check_method(method, budget, options, public, named=named)
    classes = required_classes(classes)
    check_inputs(table, classes, public, labels)
    for path in (table, public):
        if path is not None:
            check_table(path)
    if public is not None and public.samefile(table):
        raise ParameterError("--public must be public data; got the private table itself.")
    class_list = read_classes(classes)
    private = read_table(table, x=x, y=y, labels=labels)
    public_rows = None if public is None else read_table(public, x=x, y=None)
    account = None if ledger is None or dataset is None else open_ledger(ledger, dataset)
    with working("fitting"):
        model = build(method, budget, class_list, options)
        model.fit(private, require_labels(private, table), X_public=public_rows, ledger=account, partition=partition)
    workflow.save(model, out, overwrite=force)
    print_summary(model, out)


def build(method: str, budget: Budget, classes: Any, options: dict[str, Any]) -> EmbeddingClassifier:
    """Return the unfitted estimator, with those options that are given and that it has."""
    entry = BY_METHOD[method]
    given = {name: options[name] for name in entry.parameters if options.get(name) is not None}
    return entry.load()(budget, classes, **given)


def check_account(ledger: str | None, dataset: str | None, partition: str | None) -> None:
    """Refuse half of an account."""
    if (ledger is None) != (dataset is None) or (partition is not None and ledger is None):
        raise ParameterError("--ledger FILE and --dataset NAME go together, and --partition with them.")


def check_method(
    method: str, budget: Budget, options: dict[str, Any], public: Path | None, *, named: bool = True
) -> None:
    """Refuse what the method cannot do, and options without effect: whoever gives one expects another fit.

    Parameters
    ----------
    method : str
    budget : Budget
    options : dict
    public : Path or None
    named : bool, default=True
        Whether the method was typed, and not chosen by the budget and the relation.
    """
    this, name_it = (f"--method {method}", "use") if named else (f"the default method, {method}", "add")
    if isinstance(budget, PureDP) and not BY_METHOD[method].pure:
        raise BudgetError(
            f"--epsilon without --delta is pure DP, which the Gaussian noise of --method {method} cannot give at any "
            "scale; add --delta (far below 1 / number of records), give --mu or --rho instead, or use --method public."
        )
    for flag, others in foreign_flags(method, options):
        raise ParameterError(
            f"{flag} does not go with {this}; leave it out, or {name_it} --method {' or '.join(others)}."
        )
    check_relation(options)
    if method == "softmax":  # with public rows and without
        return
    maps = "center" in options  # whether this command has options of the map, and of the relation
    uses_public = method == "public" or options.get("center") is not None or options.get("rotation") == "auto"
    if uses_public and public is None:
        raise ParameterError(
            "--public TABLE is required with --method public (which --epsilon without --delta needs)"
            f"{', --center-public and --rotation auto' * maps}; add it."
        )
    if public is not None and not uses_public:
        raise ParameterError(
            f"--public has no effect with --method {method}{' (which auto takes under replace-one)' * maps}; use "
            f"--method public, {'add --center-public or --rotation auto, ' * maps}or leave it out."
        )


def check_relation(options: dict[str, Any]) -> None:
    """Refuse what needs class sizes under a relation that keeps them private."""
    for name, value in _OF_REPLACE_ONE.items():
        if options.get(name) == value and options.get("adjacency") == "add-remove":
            raise ParameterError(
                f"{_FLAGS[name][0]} {value} divides by class sizes, which only --adjacency replace-one treats as "
                "public; add that, or leave it out."
            )


def foreign_flags(method: str, options: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield options that are given and that the method does not have, with the methods that do."""
    for name, (flag, none) in _FLAGS.items():
        if options.get(name) not in (None, none) and name not in BY_METHOD[method].parameters:
            yield flag, [other for other, entry in BY_METHOD.items() if name in entry.parameters]


def required_classes(classes: Path | None) -> Path:
    """Refuse to read the list of classes off the labels."""
    if classes is None:
        raise ParameterError(
            "--classes FILE is required. The list of classes is released with the model, so it must be public, and "
            "reading it off the labels would reveal which ones occur. Write every possible class into a text file, "
            "one a line, for instance classes.txt."
        )
    return classes


def _parsed_clip(text: str | None) -> str | tuple[float, float] | None:
    if text is None or text == "auto":
        return text
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ParameterError(f"--clip must be auto or D_MIN,D_MAX, for instance 0.8,1.6; got {text!r}.") from None
    return low, high


def _parsed_rotation(text: str | None) -> str | int | None:
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"--rotation must be auto or an integer; got {text!r}.") from None


def print_summary(model: EmbeddingClassifier, out: Path) -> None:
    """Say what was released. Everything here is in the model file, or was public before."""
    kind, count = type(model).__name__, len(model.classes_)
    typer.echo(f"{kind}: {count} classes, {model.n_features_in_} features, {model.budget}, {model.adjacency}.")
    typer.echo(f"Saved to {printable(out)}. Next: dppl predict {printable(out)} DATA")
    typer.echo()
    console().print(printable(_in_options(model.guarantee_)))
    console().print(numbers(model.guarantee_))
    typer.echo(f"The whole guarantee: dppl show {printable(out)}, or with --json for machines")


def _in_options(guarantee: Guarantee) -> str:
    """Return the summary with the names of the command's options in place of Python's parameters."""
    summary = guarantee.summary().replace("a seed (random_state)", "--seed")
    return summary.replace("Fit once more with random_state=None", "Fit once more without --seed")
