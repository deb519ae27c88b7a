"""`dppl plan`: what a budget buys, before any private record is read."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np
from rich.table import Table

from dppl.cli import _options as options
from dppl.cli._methods import method_option
from dppl.cli._options import DATA, budget_from_options, option
from dppl.cli._output import console, print_json, printable
from dppl.cli._paths import check_inputs, check_output, check_table, require_labels
from dppl.cli._progress import working
from dppl.errors import ParameterError
from dppl.estimators.registry import Method
from dppl.io import read_classes, read_table

if TYPE_CHECKING:
    from dppl.planning import BudgetPlan
    from dppl.planning.plan import Describe

_Classes = Annotated[str, option("N|FILE", "How many classes, or the public list of them.", DATA)]
_Records = Annotated[
    int,
    option(
        "N", "A guess of the number of records (of persons, for `dppl fit --person`), never their count.", DATA, min=1
    ),
]
_Smallest = Annotated[
    int | None,
    option("N", "A guess of the records (or persons) of the rarest class. Default: all classes alike.", DATA, min=1),
]
_Features = Annotated[int | None, option("D", "Width of the embeddings; or name an encoder.", DATA, min=1)]
_Encoder = Annotated[str | None, option("NAME", "Encoder whose width is known, such as minilm.", DATA)]
_PublicRows = Annotated[int, option("N", "Unlabelled public rows that the fit may use. Default 0.", DATA, min=0)]
_Ceiling = Annotated[
    float | None,
    option("A", "Balanced accuracy that such data reach without privacy, from public sources: a closer range.", DATA),
]
_Describe = Annotated[
    str,
    option(
        "names|none",
        "names: what `dppl train` starts from with texts, as it does by itself where classes are called by words. "
        "Default none, as `dppl fit` starts.",
        DATA,
    ),
]
_Rehearse = Annotated[
    Path | None,
    option("TABLE", "Public labelled embeddings of a similar kind: simulated fits in place of the model.", DATA),
]
_Public = Annotated[Path | None, option("TABLE", "Public rows for the rehearsal.", DATA)]
_Labels = Annotated[
    Path | None, option("FILE", "Labels of the rehearsal in a file of their own: .npy, .txt or .csv.", DATA, "--labels")
]
_Runs = Annotated[int, option("N", "Simulated fits of a rehearsal. Default 5.", DATA, min=1)]
_Method = Annotated[str, method_option("the first that can spend the budget")]
_Out = Annotated[
    Path | None, option("FILE", "Figure of recall by class size: .png, .svg or .html. Needs the extra lab.")
]


@options.first("classes", "records", "smallest", "encoder", "epsilon", "delta")
def plan(
    classes: _Classes,
    records: _Records,
    smallest: _Smallest = None,
    features: _Features = None,
    encoder: _Encoder = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    max_records: options.MaxRecords = None,
    method: _Method = "auto",
    public_rows: _PublicRows = 0,
    ceiling: _Ceiling = None,
    describe: _Describe = "none",
    rehearse: _Rehearse = None,
    public: _Public = None,
    rehearsal_labels: _Labels = None,
    x: options.X = "x",
    y: options.Y = "y",
    runs: _Runs = 5,
    out: _Out = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    r"""Say what accuracy a budget buys, by class size, before any private record is read.

    All inputs are public: guess the numbers of records, do not count them.
    For the actual table there is `dppl check`, for its owner only.

    For example:

      dppl plan --classes 10 --records 5000 --smallest 20 \
        --encoder minilm --describe names --epsilon 1 --delta 1e-6

      dppl plan --classes 77 --records 9000 --features 384 \
        --epsilon 1 --delta 1e-6 --ceiling 0.9 --out plan.png

      dppl plan --classes 10 --records 400 --smallest 10 --mu 0.5 \
        --rehearse similar.npz
    """
    from dppl.estimators import PublicData
    from dppl.planning import plan_budget  # here, because the help of a command needs no SciPy

    figure = importlib.import_module("dppl.lab.experiments.plan_figure")

    if out is not None:
        if out.suffix.lower() not in figure.SUFFIXES:
            raise ParameterError(f"--out must end in {', '.join(figure.SUFFIXES)}; got {out.name!r}.")
        check_output(out, (rehearse, public, rehearsal_labels), force=force)
    if rehearse is None and (public, rehearsal_labels) != (None, None):
        raise ParameterError("--public and --labels belong to --rehearse; without it they have no effect.")
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    rehearsal, pool = None, None
    if rehearse is not None:
        check_inputs(rehearse, rehearsal_labels, public)
        for path in (rehearse, public):
            if path is not None:
                check_table(path)
        table = read_table(rehearse, x=x, y=y, labels=rehearsal_labels)
        rehearsal = np.asarray(table), require_labels(table, rehearse)
        pool = None if public is None else PublicData(np.asarray(read_table(public, x=x, y=None)))
    with working("planning"):
        found = plan_budget(
            budget,
            n_classes=_count(classes),
            n_records=records,
            smallest=smallest,
            n_features=features,
            encoder=encoder,
            n_public=public_rows,
            method=cast(Method, method),
            ceiling=ceiling,
            describe=cast("Describe", describe),
            rehearsal=rehearsal,
            public=pool,
            runs=runs,
        )
    if out is not None:
        figure.save_plan(found, out)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)


def _count(classes: str) -> int:
    if classes.isdecimal():
        return int(classes)
    path = Path(classes)
    check_inputs(path)
    return len(read_classes(path))


def _print(plan: BudgetPlan) -> None:
    screen = console()
    rows = Table(title="What to expect by class size", title_justify="left")
    for name in ("records of the class", "recall", "range", "found"):
        rows.add_column(name, justify="left" if name == "found" else "right")
    for one in plan.classes:
        rows.add_row(str(one.size), f"{one.recall:.2f}", f"{one.low:.2f} to {one.high:.2f}", one.found)
    screen.print(rows)
    for sentence in plan.sentences():
        screen.print(f"- {printable(sentence)}")
