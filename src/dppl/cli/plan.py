"""`dppl plan`: what a budget buys, before any private record is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid

from dppl.cli._groups import METHODS, Budget, say_if_weak
from dppl.cli._output import console, print_json, printable
from dppl.cli._progress import working
from dppl.cli._request import flag, option, request

if TYPE_CHECKING:
    from dppl.planning import BudgetPlan


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
    json: bool = flag("Print JSON.")


def plan(request: Plan) -> None:
    r"""Say what accuracy a budget buys, by class size, before any private record is read.

    All inputs are public: guess the numbers of records, do not count them.
    For the actual table there is `dppl check`, for its owner only.

    For example:

      dppl plan --n-classes 10 --n-records 5000 --smallest 20 \
        --encoder minilm --describe names --epsilon 1 --delta 1e-6

      dppl plan --n-classes 77 --n-records 9000 --n-features 384 \
        --epsilon 1 --delta 1e-6 --ceiling 0.9
    """
    from dppl.planning import plan_budget

    budget = request.budget.spent()
    how: Any = {"method": request.method, "describe": request.describe}
    with working("planning"):
        expected = plan_budget(
            budget,
            n_classes=request.n_classes,
            n_records=request.n_records,
            smallest=request.smallest,
            n_features=request.n_features,
            encoder=request.encoder,
            n_public=request.n_public,
            ceiling=request.ceiling,
            **how,
        )
    say_if_weak(budget)
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
