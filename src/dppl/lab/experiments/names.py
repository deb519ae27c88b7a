"""What data sets, budgets and methods of cells are called in tables, figures and progress; all of it is in the cell."""

from collections.abc import Mapping
from typing import Any

from dppl.errors import BudgetError
from dppl.kernel.privacy import Budget, GaussianDP, PureDP
from dppl.kernel.privacy.budgets import USUAL_DELTA, budget_from_dict, rounded_up
from dppl.lab.experiments.cells import NATURAL, NO_NOISE, NON_PRIVATE, NOT_NAMED
from dppl.lab.experiments.compared_methods import ALL_METHODS, label
from dppl.lab.experiments.datasets import Merged
from dppl.lab.experiments.method_kinds import OwnMethod
from dppl.lab.task_streams import Stream

TUNED = "tuned on private data, not covered"
AT_DELTA = f"epsilon at delta = {rounded_up(USUAL_DELTA)}"

Cell = Mapping[str, Any]


def paper_epsilon(budget: Budget) -> float:
    """Return mu of the Gaussian noise that a budget allows, or for pure DP sqrt(2·rho) of the rho that it implies."""
    if isinstance(budget, PureDP):
        return budget.epsilon
    # The allowance of GaussianDP may be a rounding below, which would be another
    # position.
    if isinstance(budget, GaussianDP):
        return budget.mu
    return budget.gaussian_allowance().mu


def position(budget: Mapping[str, float] | None) -> float:
    """Return mu of a cell's budget, without the last digits of its way through rho; 0 for references."""
    if budget is None:
        return 0.0
    return nine_digits(paper_epsilon(budget_from_dict(dict(budget))))


def nine_digits(mu: float) -> float:
    """Return mu without its last digits, which depend on its way through other notions."""
    return float(f"{mu:.9g}")


def budget_name(budget: Mapping[str, float] | None) -> str:
    """Name a budget by mu of Gaussian noise with its epsilon at `USUAL_DELTA`, or by an epsilon with its mu.

    >>> budget_name({"rho": 0.5}), budget_name({"epsilon": 2.0})
    ('mu 1 (epsilon 4.887)', 'pure epsilon 2 (at mu 2)')
    >>> budget_name({"epsilon": 2.0, "delta": 1e-6})
    'epsilon 2 at delta 1e-6 (mu 0.4484)'
    """
    mu = position(budget)
    if budget is None:
        return ""
    if budget == {"mu": NO_NOISE}:
        return NON_PRIVATE
    if "epsilon" not in budget:
        return f"mu {rounded_up(mu)} (epsilon {epsilon_name(mu)})"
    if "delta" not in budget:
        return f"pure epsilon {budget['epsilon']:g} (at mu {rounded_up(mu, 4)})"
    delta = f"{budget['delta']:g}".replace("e-0", "e-")
    return f"epsilon {budget['epsilon']:g} at delta {delta} (mu {rounded_up(mu, 4)})"


def epsilon_name(mu: float) -> str:
    """Return the exact epsilon of mu-GDP at `USUAL_DELTA`, rounded up to four digits; infinity where it is too large.

    >>> [epsilon_name(mu) for mu in (0, 0.05, 1, 64, 1e9)]
    ['0', '0.1893', '4.887', '2,352', '∞']
    """
    if not mu:
        return "0"
    try:
        epsilon = GaussianDP(mu).to_approx(USUAL_DELTA).epsilon
    except BudgetError:
        return "∞"
    return f"{float(rounded_up(epsilon, 4)):,g}"


def place_of(cell: Cell) -> tuple[str, ...]:
    """Return data set and encoder of a cell, its stream, and its imbalance ratio except the natural one.

    >>> place_of({"dataset": "scans", "classes": {"alone": 1}, "encoder": "not named", "ir": 10})
    ('scans (one class against the rest)', 'encoder not named', 'IR = 10')
    """
    dataset = str(cell["dataset"]) + (
        f" ({Merged(**cell['classes']).name})" if "classes" in cell else ""
    )
    few = [f"{cell['ways']}-way"] if "ways" in cell else []
    few += [f"{cell['shots']} records a class"] if "shots" in cell else []
    if few:
        dataset += f" ({', '.join(few)})"
    encoder = str(cell["encoder"]).replace(NOT_NAMED, f"encoder {NOT_NAMED}")
    names = [dataset, encoder]
    if "stream" in cell:
        names.append(Stream(**cell["stream"]).name)
    if cell["ir"] != NATURAL:
        names.append(ratio_name(cell["ir"]))
    return tuple(names)


def pool_name(pool: Mapping[str, Any]) -> str:
    """Name the public rows of a pool."""
    name = str(pool["name"])
    without = pool.get("without")
    size = pool["rows"] or pool["first"]
    if without:
        name += f" without {' and '.join(without)}"
    return f"{name}, {size:,} rows" if size else name


def ratio_name(ratio: float | str) -> str:
    """Name an imbalance ratio."""
    if ratio == NATURAL:
        return "natural class sizes"
    return f"IR = {ratio:g}"


def pays_again(cell: Cell) -> bool:
    """Return whether the tasks of a stream cost a record more than the budget of one."""
    several = cell.get("stream", {}).get("n_tasks", 1) > 1 and not cell.get("in_all")
    return several and ALL_METHODS[cell["method"]].overlaps(cell["parameters"])


def series_name(cell: Cell, notion: str = "") -> str:
    """Name a cell's line or row: its method with all that was done to it, and the `notion` where there are several."""
    text = label(cell["method"], cell["parameters"], cell.get("examples"))
    method = ALL_METHODS[cell["method"]]
    # Results may name files of others, which nothing runs to describe them.
    own = isinstance(method, OwnMethod)
    if cell["pool"] is None and not own and method.uses_public({}):
        text += " (no public rows)"
    if cell.get("stream", {}).get("told"):
        text += ", told the classes of each task"
    if pays_again(cell):
        text += ", the budget again for every task"
    elif cell.get("in_all"):
        text += ", the budget for all tasks together"
    if "search" in cell:
        text += ", settings by a private search"
    if cell.get("tuned_on"):
        text += ", one setting of all tasks and streams"
    tuned = f" ({TUNED})" if cell["trials"] else ""
    return text + notion + tuned + (" (not private)" if cell["budget"] is None else "")
