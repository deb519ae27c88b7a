"""`dppl plan`: what a budget buys, before any private record is read."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from rich.table import Table as Grid

from dppl.cli._groups import METHODS, Budget
from dppl.cli._output import console, print_json, printable
from dppl.cli._paths import check_inputs, check_output, check_table, require_labels
from dppl.cli._progress import working
from dppl.cli._request import flag, option, request
from dppl.errors import ParameterError
from dppl.estimators.registry import Method
from dppl.io import read_table

if TYPE_CHECKING:
    from dppl.planning import BudgetPlan
    from dppl.planning.plan import Describe


@request("n_classes", "n_records", "smallest", "encoder", "epsilon", "delta")
class Plan:
    """What `dppl plan` is asked."""

    n_classes: int = option("N", "How many classes there are.", min=1)
    n_records: int = option(
        "N", "A guess of the number of records (of persons, for `dppl fit --groups`), never their count.", min=1
    )
    smallest: int | None = option(
        "N", "A guess of the records (or persons) of the rarest class. Default: all classes alike.", None, min=1
    )
    n_features: int | None = option("D", "Width of the embeddings; or name an encoder.", None, min=1)
    encoder: str | None = option("NAME", "Encoder whose width is known, such as minilm.", None)
    budget: Budget
    method: str = option(METHODS, "As of `dppl fit`. Default auto: the first that can spend the budget.", "auto")
    n_public: int = option("N", "Unlabelled public rows that the fit may use. Default 0.", 0, min=0)
    ceiling: float | None = option(
        "A", "Balanced accuracy that such data reach without privacy, from public sources: a closer range.", None
    )
    describe: str = option(
        "names|none",
        "names: what `dppl train` starts from with texts, as it does by itself where classes are called by words. "
        "Default none, as `dppl fit` starts.",
        "none",
    )
    rehearsal: Path | None = option(
        "TABLE", "Public embeddings of a similar kind, with labels: simulated fits in place of the model.", None
    )
    public: Path | None = option("TABLE", "Public rows for the rehearsal.", None)
    runs: int = option("N", "Simulated fits of a rehearsal. Default 5.", 5, min=1)
    out: Path | None = option("FILE", "Figure of recall by class size: .png, .svg or .html. Needs the extra lab.", None)
    force: bool = flag("Replace the output file if it exists.")
    json: bool = flag("Print JSON.")


def plan(request: Plan) -> None:
    r"""Say what accuracy a budget buys, by class size, before any private record is read.

    All inputs are public: guess the numbers of records, do not count them.
    For the actual table there is `dppl check`, for its owner only.

    For example:

      dppl plan --n-classes 10 --n-records 5000 --smallest 20 \
        --encoder minilm --describe names --epsilon 1 --delta 1e-6

      dppl plan --n-classes 77 --n-records 9000 --n-features 384 \
        --epsilon 1 --delta 1e-6 --ceiling 0.9 --out plan.png

      dppl plan --n-classes 10 --n-records 400 --smallest 10 --mu 0.5 \
        --rehearsal similar.npz
    """
    from dppl.estimators import PublicData
    from dppl.planning import plan_budget  # here, because the help of a command needs no SciPy

    figure = importlib.import_module("dppl.lab.experiments.plan_figure")

    if request.out is not None:
        if request.out.suffix.lower() not in figure.SUFFIXES:
            raise ParameterError(f"--out must end in {', '.join(figure.SUFFIXES)}; got {request.out.name!r}.")
        check_output(request.out, (request.rehearsal, request.public), force=request.force)
    if request.rehearsal is None and request.public is not None:
        raise ParameterError("belongs to --rehearsal; without it it has no effect.", parameter="public")
    budget = request.budget.spent()
    rehearsal, public = None, None
    for path in (request.rehearsal, request.public):
        check_inputs(path)
        check_table(path)
    if request.rehearsal is not None:
        table = read_table(request.rehearsal)
        rehearsal = np.asarray(table), require_labels(table, request.rehearsal)
    if request.public is not None:
        public = PublicData(np.asarray(read_table(request.public, y=None)))
    with working("planning"):
        expected = plan_budget(
            budget,
            n_classes=request.n_classes,
            n_records=request.n_records,
            smallest=request.smallest,
            n_features=request.n_features,
            encoder=request.encoder,
            n_public=request.n_public,
            method=cast(Method, request.method),
            ceiling=request.ceiling,
            describe=cast("Describe", request.describe),
            rehearsal=rehearsal,
            public=public,
            runs=request.runs,
        )
    if request.out is not None:
        figure.save_plan(expected, request.out)
    if request.json:
        print_json(expected.to_dict())
    else:
        _print(expected)


def _print(plan: BudgetPlan) -> None:
    screen = console()
    rows = Grid(title="What to expect by class size", title_justify="left")
    for name in ("records of the class", "recall", "range", "found"):
        rows.add_column(name, justify="left" if name == "found" else "right")
    for one in plan.classes:
        rows.add_row(str(one.size), f"{one.recall:.2f}", f"{one.low:.2f} to {one.high:.2f}", one.found)
    screen.print(rows)
    for sentence in plan.sentences():
        screen.print(f"- {printable(sentence)}")
