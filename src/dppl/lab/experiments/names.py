"""What data sets, budgets and methods of cells are called in tables, figures and progress; all of it is in the cell."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dppl.errors import BudgetError
from dppl.kernel.privacy import Budget, GaussianDP, PureDP
from dppl.kernel.privacy.budgets import USUAL_DELTA, budget_from_dict, rounded_up
from dppl.lab.experiments.config import NATURAL, NO_NOISE, NON_PRIVATE, NOT_NAMED
from dppl.lab.experiments.datasets import Merged
from dppl.lab.experiments.methods import ALL_METHODS, label
from dppl.lab.experiments.streams import Stream

TUNED = "tuned on private data, not covered"
AT_DELTA = f"epsilon at delta = {rounded_up(USUAL_DELTA)}"

Cell = Mapping[str, Any]


def paper_epsilon(budget: Budget) -> float:
    """Return the position on the x-axis: mu of the Gaussian noise that the budget allows.

    In zCDP that is sqrt(2·rho), the x-axis of the DPPL papers' figures. Pure DP allows no Gaussian noise and stands at
    sqrt(2·rho) for the rho that it implies.
    """
    if isinstance(budget, PureDP):
        return budget.epsilon
    if isinstance(budget, GaussianDP):
        return budget.mu  # its allowance may be a rounding below, which is no place of its own
    return budget.gaussian_allowance().mu


def position(budget: Mapping[str, float] | None) -> float:
    """Return mu of a cell's budget, without the last digits of its way through rho; 0 for references."""
    return 0.0 if budget is None else _position(tuple(budget.items()))


@lru_cache
def _position(budget: tuple[tuple[str, float], ...]) -> float:
    return rounding_aside(paper_epsilon(budget_from_dict(dict(budget))))


def rounding_aside(mu: float) -> float:
    """Return mu without its last digits, which it has from its way through other notions."""
    return float(f"{mu:.9g}")


def budget_name(budget: Mapping[str, float] | None) -> str:
    """Say mu of Gaussian noise with its epsilon at `USUAL_DELTA`, or an epsilon with its mu.

    >>> budget_name({"rho": 0.5}), budget_name({"epsilon": 2.0})
    ('mu 1 (epsilon 4.887)', 'pure epsilon 2 (at mu 2)')
    >>> budget_name({"epsilon": 2.0, "delta": 1e-6})
    'epsilon 2 at delta 1e-6 (mu 0.4484)'
    """
    if budget is None:
        return ""
    mu = position(budget)
    if budget == {"mu": NO_NOISE}:
        return NON_PRIVATE
    if "epsilon" not in budget:
        return f"mu {rounded_up(mu)} (epsilon {epsilon_name(mu)})"
    if "delta" in budget:
        delta = f"{budget['delta']:g}".replace("e-0", "e-")
        return f"epsilon {budget['epsilon']:g} at delta {delta} (mu {rounded_up(mu, 4)})"
    return f"pure epsilon {budget['epsilon']:g} (at mu {rounded_up(mu, 4)})"


def epsilon_name(mu: float) -> str:
    """Say the exact epsilon of mu-GDP at `USUAL_DELTA`, rounded up to four digits; infinity where it is beyond all use.

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


def dataset_name(cell: Cell) -> str:
    """Say the data set of a cell, and how its classes are merged.

    >>> dataset_name({"dataset": "scans", "classes": {"alone": 1}})
    'scans (one class against the rest)'
    """
    return str(cell["dataset"]) + (f" ({Merged(**cell['classes']).name})" if "classes" in cell else "")


def encoder_name(cell: Cell) -> str:
    """Say the encoder of a cell, or that the configuration does not.

    >>> encoder_name({"encoder": "not named"})
    'encoder not named'
    """
    return str(cell["encoder"]).replace(NOT_NAMED, f"encoder {NOT_NAMED}")


def place_of(cell: Cell) -> tuple[str, ...]:
    """Return data set and encoder of a cell, its stream, and its imbalance ratio if that is not the natural one."""
    stream = (Stream(**cell["stream"]).name,) if "stream" in cell else ()
    ratio = () if cell["ir"] == NATURAL else (ratio_name(cell["ir"]),)
    return (dataset_name(cell), encoder_name(cell), *stream, *ratio)


def pool_name(pool: Mapping[str, Any]) -> str:
    """Say which public rows a pool is."""
    without, size = pool.get("without"), pool["rows"] or pool["first"]
    name = f"{pool['name']} without {' and '.join(without)}" if without else str(pool["name"])
    return f"{name}, {size:,} rows" if size else name


def ratio_name(ratio: float | str) -> str:
    """Say an imbalance ratio."""
    return "natural class sizes" if ratio == NATURAL else f"IR = {ratio:g}"


def method_name(cell: Cell) -> str:
    """Say the method with its parameters, whether it lacks public rows, and what a stream's tasks tell and cost."""
    text = label(cell["method"], cell["parameters"], cell.get("examples"))
    if cell["pool"] is None and ALL_METHODS[cell["method"]].uses_public({}):
        text += " (no public rows)"
    if cell.get("stream", {}).get("told"):
        text += ", told the classes of each task"
    if pays_again(cell):
        return f"{text}, the budget again for every task"
    return text + (", the budget for all tasks together" if cell.get("in_all") else "")


def pays_again(cell: Cell) -> bool:
    """Tell whether the tasks of a stream cost a record more than the budget of one."""
    several = cell.get("stream", {}).get("n_tasks", 1) > 1 and not cell.get("in_all")
    return several and ALL_METHODS[cell["method"]].overlaps(cell["parameters"])


def series_name(cell: Cell, notion: str = "") -> str:
    """Say which line of a figure, or row of a table, holds a cell.

    Budgets of different notions may stand at one mu and allow selections of different sharpness, so a report of several
    gives the `notion`.
    """
    tuned = f" ({TUNED})" if cell["trials"] else ""
    return method_name(cell) + notion + tuned + (" (not private)" if cell["budget"] is None else "")
