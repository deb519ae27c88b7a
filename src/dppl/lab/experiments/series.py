"""Results as series: the numbers of all seeds by method and budget, which tables and figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from dppl.errors import BudgetError
from dppl.kernel.privacy import GaussianDP
from dppl.kernel.privacy.budgets import USUAL_DELTA, rounded_up
from dppl.lab.experiments.config import NATURAL, NO_NOISE, NON_PRIVATE, NOT_NAMED, PERSON, RECORD
from dppl.lab.experiments.datasets import Merged, Persons
from dppl.lab.experiments.methods import ALL_METHODS, label
from dppl.lab.experiments.results import Result
from dppl.lab.experiments.streams import Stream

BALANCED = "balanced_accuracy"
TUNED = "tuned on private data, not covered"
_NO_PUBLIC_ROWS = "no public rows"
AT_DELTA = f"epsilon at delta = {rounded_up(USUAL_DELTA)}"
# The K that stands for all in figures that compare methods.
_MAIN_K = 5


@dataclass(slots=True)
class Series:
    """One line of a figure, or one row of a table."""

    label: str
    method: str  # name in `ALL_METHODS`
    tuned: bool  # whether hyper-parameters were chosen on private data
    private: bool  # False for references, which have one value for all budgets
    promise: str  # notion, adjacency, arithmetic, and persons if these are protected
    adjacency: str | None
    n_public: set[int] = field(default_factory=set)  # numbers of public rows read; 0 for none
    # values of the seeds by mu, the position on the x-axis; by 0 for references
    values: dict[float, list[float]] = field(default_factory=dict)

    def at(self, mu: float) -> list[float]:
        """Return the values at a budget, which of a reference are the same everywhere."""
        return self.values.get(mu if self.private else 0.0, [])

    def quantile(self, share: float) -> tuple[list[float], list[float]]:
        """Return all mu, ascending, and the quantile of the seeds' values at each."""
        places = sorted(self.values)
        return places, [float(np.quantile(self.values[place], share)) for place in places]


Panel: TypeAlias = tuple[str, Sequence[Series]]


def series(
    results: Iterable[Result],
    metric: str = BALANCED,
    *,
    name: Callable[[Result], str] | None = None,
) -> list[Series]:
    """Collect finished cells into series, in the order of `ALL_METHODS`; cells without the metric are left out.

    `name` labels a result. Tuned ones are marked in any case, and so are the notion and whom the promise is for where
    there are several.
    """
    results = list(results)
    # Promises to records and to persons are different; a label says which where there are both.
    units = {unit_of(result) for result in results if result["e"] is not None}
    found: dict[str, Series] = {}
    for notion, group in by_notion(results).items():
        for result in sorted(group, key=_start):
            value = result["metrics"].get(metric)
            if value is None:
                continue
            method, private = result["cell"]["method"], result["e"] is not None
            unit = f", protecting {unit_of(result)}s" if private and len(units) > 1 else ""
            text = _marked((name or method_name)(result) + notion + unit, result)
            # The first result of a label makes its series; the others add their values.
            start = Series(text, method, result["tuned"], private, _promise(result), result["adjacency"])
            one = found.setdefault(text, start)
            one.n_public.add(result["data"]["n_public"] or 0)
            one.values.setdefault(position(result), []).append(value)
    order = list(ALL_METHODS)
    return sorted(found.values(), key=lambda one: (not one.private, order.index(one.method)))


def _start(result: Result) -> tuple[bool, str, int, str]:
    """Order results of a method: from zero first, then from right examples, then from wrong ones."""
    examples = examples_of(result)
    source = str(examples["source"] or "")
    return examples["used"], examples["wrong"] or "", len(source), source


def examples_of(result: Result) -> dict[str, Any]:
    """Return the examples of the classes that a result starts from; without any they have no source."""
    return result["cell"].get("examples") or {"source": None, "wrong": None, "used": False}


def position(result: Result) -> float:
    """Return mu of a result, freed from the last digits of its way through rho; 0 for references.

    Results name it e, as the DPPL papers do.
    """
    return 0.0 if result["e"] is None else rounding_aside(result["e"])


def rounding_aside(mu: float) -> float:
    """Return mu without its last digits, which it has from its way through other notions."""
    return float(f"{mu:.9g}")


def grouped(results: Iterable[Result], key: Callable[[Result], Any]) -> dict[Any, list[Result]]:
    """Group results by what `key` returns, in order of appearance."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def by_notion(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group by notion of privacy, named as labels end: not at all for references, and where there is only one.

    Budgets of different notions may have one position, and allow selections of different sharpness there.
    """
    results = list(results)
    notions = {result["notion"] for result in results} - {"none"}
    return grouped(
        results, lambda result: "" if result["notion"] == "none" or len(notions) == 1 else f", {result['notion']}"
    )


def by_task(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Group by data set, with whom the promise is for, and encoder."""
    return grouped(results, lambda result: (dataset_name(result["cell"]), encoder_name(result["cell"])))


def dataset_name(cell: Mapping[str, Any]) -> str:
    """Say the data set of a cell; where it knows of persons, also how, and whom the promise is for.

    So results of different units are never in one table or panel by accident.

    >>> dataset_name({"dataset": "scans", "persons": {"groups": "patient"}, "unit": "person"})
    'scans (persons by patient), protecting persons'
    """
    protecting = f", protecting {cell['unit']}s" if "persons" in cell else ""
    return population_name(cell) + protecting


def population_name(cell: Mapping[str, Any]) -> str:
    """Say the data set of a cell, and how its classes are put together, or how it knows of persons.

    >>> population_name({"dataset": "scans", "classes": {"alone": 1}})
    'scans (one class against the rest)'
    """
    several = [kind(**cell[key]).name for key, kind in (("classes", Merged), ("persons", Persons)) if key in cell]
    return " ".join([str(cell["dataset"]), *(f"({name})" for name in several)])


def unit_of(result: Result) -> str:
    """Return whom the promise of a result is for."""
    return str(result["cell"].get("unit", RECORD))


def encoder_name(cell: Mapping[str, Any]) -> str:
    """Say the encoder of a cell, or that the configuration does not.

    >>> encoder_name({"encoder": "not named"})
    'encoder not named'
    """
    return str(cell["encoder"]).replace(NOT_NAMED, f"encoder {NOT_NAMED}")


def place_of(cell: Mapping[str, Any]) -> tuple[str, ...]:
    """Return data set and encoder of a cell, its stream, and its imbalance ratio if that is not the natural one."""
    stream = (Stream(**cell["stream"]).name,) if "stream" in cell else ()
    ratio = () if cell["ir"] == NATURAL else (ratio_name(cell["ir"]),)
    return (dataset_name(cell), encoder_name(cell), *stream, *ratio)


def ratios(results: Iterable[Result]) -> dict[float | str, list[Result]]:
    """Group by imbalance ratio: natural class sizes first, then ascending."""
    groups = grouped(results, lambda result: result["cell"]["ir"])
    return dict(sorted(groups.items(), key=lambda item: 0.0 if item[0] == NATURAL else float(item[0])))


def panels_by_ratio(results: list[Result], metric: str = BALANCED) -> list[Panel]:
    """Collect results into panels of a figure, each with an imbalance ratio at which the metric was measured."""
    panels = [(ratio_name(ratio), series(group, metric)) for ratio, group in ratios(results).items()]
    return [panel for panel in panels if panel[1]]


def best(several: Iterable[Series], mu: float) -> list[tuple[Series, float]]:
    """Return the private series that have a value at mu, with their means to three digits, the best first.

    Tuned ones are left out: they saw the private data once more than their budget says.
    """
    means = [
        (one, round(fmean(one.values[mu]), 3))
        for one in several
        if one.private and not one.tuned and one.values.get(mu)
    ]
    return sorted(means, key=lambda item: -item[1])


def default_settings(results: list[Result]) -> list[Result]:
    """Leave out what has figures of its own.

    These are further pools and their sizes, K of top-K but 1 and one other, and what right examples are compared with.
    """
    ks = sorted({k for r in results if r["cell"]["method"] == "public-topk" and (k := n_prototypes(r))})
    k = _MAIN_K if _MAIN_K in ks else ks[len(ks) // 2] if ks else None
    return [
        result
        for result in main_pool(results)
        if (result["cell"]["method"] != "public-topk" or n_prototypes(result) in (k, 1, None))
        and (examples_of(result)["used"] or examples_of(result)["source"] is None)
        and examples_of(result)["wrong"] is None
    ]


def main_pool(results: list[Result]) -> list[Result]:
    """Leave out all public pools but the largest, or the first of several such."""
    pools = [result["cell"]["pool"] for result in results if result["cell"]["pool"] is not None]
    main = max(map(_name_and_size, pools), key=lambda pool: pool[1], default=None)
    return [r for r in results if r["cell"]["pool"] is None or _name_and_size(r["cell"]["pool"]) == main]


def n_prototypes(result: Result) -> int | None:
    """Return K where the configuration fixes it; None for the default and for a search."""
    k = result["cell"]["parameters"].get("n_prototypes")
    return None if k is None else int(k)


def budget_name(result: Result) -> str:
    """Say the budget of a result: mu of Gaussian noise with its epsilon at `USUAL_DELTA`, or an epsilon with its mu.

    >>> budget_name({"cell": {"budget": {"rho": 0.5}}, "e": 1.0})
    'mu 1 (epsilon 4.887)'
    >>> budget_name({"cell": {"budget": {"epsilon": 2.0, "delta": 1e-6}}, "e": 0.4483})
    'epsilon 2 at delta 1e-6 (mu 0.4483)'
    >>> budget_name({"cell": {"budget": {"epsilon": 2.0}}, "e": 2.0})
    'pure epsilon 2 (at mu 2)'
    """
    budget, mu = result["cell"]["budget"], position(result)
    if budget == {"mu": NO_NOISE}:
        return NON_PRIVATE
    if "epsilon" not in budget:
        return f"mu {rounded_up(mu)} (epsilon {epsilon_name(mu)})"
    if "delta" in budget:
        delta = f"{budget['delta']:g}".replace("e-0", "e-")
        return f"epsilon {budget['epsilon']:g} at delta {delta} (mu {rounded_up(mu, 4)})"
    return f"pure epsilon {budget['epsilon']:g} (at mu {rounded_up(mu, 4)})"


def budgets_note(budgets: Iterable[Mapping[str, float] | None]) -> str:
    """Say how `budget_name` names budgets of these kinds.

    >>> budgets_note([{"epsilon": 2.0, "delta": 1e-6}, None])
    'Budgets: epsilon and delta, and in brackets the mu of Gaussian noise that they allow, rounded up.'
    """
    texts = {
        "mu": f"mu, and in brackets its {AT_DELTA}",
        "delta": "epsilon and delta, and in brackets the mu of Gaussian noise that they allow, rounded up",
        "epsilon": "pure epsilon, and in brackets the mu at which it stands in figures",
        NON_PRIVATE: f"{NON_PRIVATE}, which is mu = {NO_NOISE:g}",
    }
    kinds = {_kind(budget) for budget in budgets if budget is not None}
    return f"Budgets: {'; '.join(text for kind, text in texts.items() if kind in kinds)}." if kinds else ""


def _kind(budget: Mapping[str, float]) -> str:
    if budget == {"mu": NO_NOISE}:
        return NON_PRIVATE
    return "delta" if "delta" in budget else "epsilon" if "epsilon" in budget else "mu"


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


def pool_name(pool: dict[str, Any]) -> str:
    """Say which public rows a pool is."""
    left_out, size = pool.get("without"), pool["rows"] or pool["first"]
    name = f"{pool['name']} without {' and '.join(left_out)}" if left_out else str(pool["name"])
    return f"{name}, {size:,} rows" if size else name


def ratio_name(ratio: float | str) -> str:
    """Say an imbalance ratio."""
    return "natural class sizes" if ratio == NATURAL else f"IR = {ratio:g}"


def setting_name(result: Result) -> str:
    """Say imbalance ratio, and the one that the class sizes have where they are too few for it."""
    ratio, sizes = result["cell"]["ir"], [size for size in result["data"]["class_sizes"] if size > 0]
    reached = max(sizes) / min(sizes)
    short = ratio != NATURAL and reached < 0.9 * ratio
    return ratio_name(ratio) + (f" (reached: {reached:.3g})" if short else "")


def method_name(result: Result) -> str:
    """Say the method with its parameters, and whether it would have read public rows; of results all is in the cell."""
    cell = result["cell"]
    text = label(cell["method"], cell["parameters"], cell.get("examples"))
    lacks = cell["pool"] is None and ALL_METHODS[cell["method"]].uses_public({})
    told = ", told the classes of each task" if cell.get("stream", {}).get("told") else ""
    paid = ", the budget for all tasks together" if cell.get("in_all") else ""
    if pays_again(result):
        paid = ", the budget again for every task"
    return (f"{text} ({_NO_PUBLIC_ROWS})" if lacks else text) + told + paid


def pays_again(result: Result) -> bool:
    """Tell whether the tasks of a stream cost a record more than the budget of one."""
    cell = result["cell"]
    several = cell.get("stream", {}).get("n_tasks", 1) > 1 and not cell.get("in_all")
    return several and ALL_METHODS[cell["method"]].overlaps(cell["parameters"])


def series_name(result: Result) -> str:
    """Say which of the series that `series` makes of one notion holds a result, be its cell done or not."""
    return _marked(method_name(result), result)


def name_with_pool(result: Result) -> str:
    """Say the method, and the public rows that it read."""
    pool = result["cell"]["pool"]
    return method_name(result) + ("" if pool is None else f", {pool_name(pool)}")


def _marked(text: str, result: Result) -> str:
    cell = result["cell"]
    tuned = f" ({TUNED})" if cell["trials"] else ""
    return text + tuned + (" (not private)" if cell["budget"] is None else "")


def _promise(result: Result) -> str:
    if result["notion"] == "none":
        return "none"
    unit = ", for persons" if unit_of(result) == PERSON else ""
    return f"{result['notion']}, {result['adjacency']}, {'exact' if result['exact'] else 'floating point'}{unit}"


def _name_and_size(pool: dict[str, Any]) -> tuple[str, float]:
    return pool["name"], float("inf") if pool["rows"] is None else float(pool["rows"])
