"""Results as series: the numbers of all seeds by method and budget, which tables and figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from dppl.errors import BudgetError
from dppl.experiments.config import NATURAL
from dppl.experiments.methods import METHODS, label
from dppl.experiments.results import Record
from dppl.privacy import GaussianDP
from dppl.privacy.budgets import rounded_up
from dppl.privacy.guarantee import USUAL_DELTA

__all__ = [
    "AT_DELTA",
    "TUNED",
    "Series",
    "best",
    "budget_name",
    "by_notion",
    "by_task",
    "default_settings",
    "epsilon_name",
    "grouped",
    "main_pool",
    "pool_name",
    "position",
    "ratio_name",
    "ratios",
    "series",
    "setting_name",
]

TUNED = "tuned on private data, not covered"
_NO_PUBLIC_ROWS = "no public rows"
AT_DELTA = f"epsilon at delta = {rounded_up(USUAL_DELTA)}"
# The K that stands for all in figures that compare methods.
_MAIN_K = 5


@dataclass(slots=True)
class Series:
    """One line of a figure, or one row of a table.

    Attributes
    ----------
    label : str
    method : str
        Name in the registry.
    tuned : bool
        Whether hyper-parameters were chosen on private data.
    private : bool
        False for references, which have one value for all budgets.
    promise : str
        Notion, adjacency and arithmetic.
    adjacency : str or None
    n_public : set of int
        Numbers of public rows read; 0 for none.
    values : dict of float to list of float
        Values of the seeds by mu, the position on the x-axis; by 0 for references.
    """

    label: str
    method: str
    tuned: bool
    private: bool
    promise: str
    adjacency: str | None
    n_public: set[int] = field(default_factory=set)
    values: dict[float, list[float]] = field(default_factory=dict)

    @property
    def reference(self) -> list[float]:
        """Values of a reference."""
        return self.values.get(0.0, [])

    def quantile(self, share: float) -> tuple[list[float], list[float]]:
        """Return all mu, ascending, and the quantile of the seeds' values at each."""
        places = sorted(self.values)
        return places, [float(np.quantile(self.values[place], share)) for place in places]


def series(
    records: Iterable[Record],
    metric: str | Callable[[Record], float | None] = "balanced_accuracy",
    *,
    name: Callable[[Record], str] | None = None,
) -> list[Series]:
    """Collect records into series, in the order of the registry.

    Parameters
    ----------
    records : iterable of dict
        Finished cells.
    metric : str or callable
        Name among the record's ``metrics``, or a function; cells where it is None or missing are left out.
    name : callable, default=None
        Label of a record; None takes the method's and its parameters'. Tuned ones are marked in any case, and so is
        the notion where there are several.
    """
    found: dict[str, Series] = {}
    for notion, record in [(notion, record) for notion, group in by_notion(records).items() for record in group]:
        value = record["metrics"].get(metric) if isinstance(metric, str) else metric(record)
        if value is None:
            continue
        cell, private = record["cell"], record["e"] is not None
        text = (name or _label)(record) + notion
        if record["tuned"]:
            text += f" ({TUNED})"
        if not private:
            text += " (not private)"
        start = Series(text, cell["method"], record["tuned"], private, _promise(record), record["adjacency"])
        one = found.setdefault(text, start)
        one.n_public.add(record["data"]["n_public"] or 0)
        one.values.setdefault(position(record), []).append(value)
    order = {method: place for place, method in enumerate(METHODS)}
    return sorted(found.values(), key=lambda one: (not one.private, order.get(one.method, len(order))))


def position(record: Record) -> float:
    """Return mu of a record, freed from the last digits of its way through rho; 0 for references.

    Records name it e, as the DPPL papers do.
    """
    return 0.0 if record["e"] is None else float(f"{record['e']:.9g}")


def grouped(records: Iterable[Record], key: Callable[[Record], Any]) -> dict[Any, list[Record]]:
    """Group records by what `key` returns, in order of appearance."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def by_notion(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group by notion of privacy, named as labels end: not at all for references, and where there is only one.

    Budgets of different notions may have one position, and allow selections of different sharpness there.
    """
    records = list(records)
    notions = {record["notion"] for record in records if record["e"] is not None}
    return grouped(records, lambda record: "" if record["e"] is None or len(notions) == 1 else f", {record['notion']}")


def by_task(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """Group by data set and encoder."""
    return grouped(records, lambda record: (record["cell"]["dataset"], record["cell"]["encoder"]))


def ratios(records: Iterable[Record]) -> dict[float | str, list[Record]]:
    """Group by imbalance ratio: natural class sizes first, then ascending."""
    groups = grouped(records, lambda record: record["cell"]["ir"])
    return dict(sorted(groups.items(), key=lambda item: 0.0 if item[0] == NATURAL else float(item[0])))


def best(several: Iterable[Series], mu: float) -> list[tuple[Series, float]]:
    """Return the private series that have a value at mu, with their means to three digits, the best first.

    Tuned ones are left out: they saw the private data once more than their budget says. So are methods that this
    version does not have, because a reader cannot choose them.
    """
    means = [
        (one, round(fmean(one.values[mu]), 3))
        for one in several
        if one.private and not one.tuned and one.method in METHODS and one.values.get(mu)
    ]
    return sorted(means, key=lambda item: -item[1])


def default_settings(records: list[Record]) -> list[Record]:
    """Leave out what has figures of its own: further pools and their sizes, and K of top-K but 1 and one other."""
    ks = sorted(k for k in {_k(r) for r in records if r["cell"]["method"] == "public-topk"} if k is not None)
    k = _MAIN_K if _MAIN_K in ks else ks[len(ks) // 2] if ks else None
    return [
        record
        for record in main_pool(records)
        if record["cell"]["method"] != "public-topk" or _k(record) in (k, 1, None)
    ]


def main_pool(records: list[Record]) -> list[Record]:
    """Leave out all public pools but the largest, or the first of several such."""
    pools = [record["cell"]["pool"] for record in records if record["cell"]["pool"] is not None]
    main = max(pools, key=lambda pool: _size(pool)) if pools else None
    first = next((pool["name"] for pool in pools if _size(pool) == _size(main)), None) if main else None
    return [
        record
        for record in records
        if record["cell"]["pool"] is None
        or (record["cell"]["pool"]["name"] == first and _size(record["cell"]["pool"]) == _size(main))
    ]


def budget_name(record: Record) -> str:
    """Say the budget of a record: mu of Gaussian noise with its epsilon at `USUAL_DELTA`, or an epsilon with its mu.

    Examples
    --------
    >>> budget_name({"cell": {"budget": {"rho": 0.5}}, "e": 1.0})
    'mu 1 (epsilon 4.887)'
    >>> budget_name({"cell": {"budget": {"epsilon": 2.0, "delta": 1e-6}}, "e": 0.4483})
    'epsilon 2 at delta 1e-6 (mu 0.4483)'
    >>> budget_name({"cell": {"budget": {"epsilon": 2.0}}, "e": 2.0})
    'pure epsilon 2 (at mu 2)'
    """
    budget, mu = record["cell"]["budget"], position(record)
    if "epsilon" not in budget:
        return f"mu {rounded_up(mu)} (epsilon {epsilon_name(mu)})"
    if "delta" in budget:
        delta = f"{budget['delta']:g}".replace("e-0", "e-")
        return f"epsilon {budget['epsilon']:g} at delta {delta} (mu {rounded_up(mu, 4)})"
    return f"pure epsilon {budget['epsilon']:g} (at mu {rounded_up(mu, 4)})"


def epsilon_name(mu: float) -> str:
    """Say the exact epsilon of mu-GDP at `USUAL_DELTA`, rounded up to four digits; infinity where it is beyond all use.

    Examples
    --------
    >>> [epsilon_name(mu) for mu in (0.05, 1, 64, 1e9)]
    ['0.1893', '4.887', '2,352', '∞']
    """
    try:
        epsilon = GaussianDP(mu).to_approx(USUAL_DELTA).epsilon
    except BudgetError:
        return "∞"
    return f"{float(rounded_up(epsilon, 4)):,g}"


def pool_name(pool: Record) -> str:
    """Say which public rows a pool is."""
    left_out, size = pool.get("without"), pool["rows"] or pool["first"]
    name = f"{pool['name']} without {' and '.join(left_out)}" if left_out else str(pool["name"])
    return f"{name}, {size:,} rows" if size else name


def ratio_name(ratio: float | str) -> str:
    """Say an imbalance ratio."""
    return "natural class sizes" if ratio == NATURAL else f"IR = {ratio:g}"


def setting_name(record: Record) -> str:
    """Say imbalance ratio, and the one that the class sizes have where they are too few for it."""
    ratio, sizes = record["cell"]["ir"], [size for size in record["data"]["class_sizes"] if size > 0]
    reached = max(sizes) / min(sizes)
    short = ratio != NATURAL and reached < 0.9 * ratio
    return ratio_name(ratio) + (f" (reached: {reached:.3g})" if short else "")


def _label(record: Record) -> str:
    cell = record["cell"]
    text = label(cell["method"], cell["parameters"])
    method = METHODS.get(cell["method"])
    lacks = method is not None and cell["pool"] is None and method.uses_public({})
    return f"{text} ({_NO_PUBLIC_ROWS})" if lacks else text


def _promise(record: Record) -> str:
    if record["e"] is None:
        return "none"
    return f"{record['notion']}, {record['adjacency']}, {'exact' if record['exact'] else 'floating point'}"


def _size(pool: Record | None) -> float:
    return float("inf") if pool is None or pool["rows"] is None else float(pool["rows"])


def _k(record: Record) -> int | None:
    """K where the configuration fixes it; None for the default and for a search."""
    k = record["cell"]["parameters"].get("n_prototypes")
    return None if k is None else int(k)
