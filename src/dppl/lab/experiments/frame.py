"""Finished cells as a data frame of pandas: a row each, in an order that no run changes."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from dppl._utils.optional import optional
from dppl.kernel.privacy.terms import Unit
from dppl.lab.experiments.cells import NATURAL
from dppl.lab.experiments.compared_methods import ALL_METHODS
from dppl.lab.experiments.figures import Line
from dppl.lab.experiments.names import (
    budget_name,
    place_of,
    pool_name,
    position,
    ratio_name,
    series_name,
)
from dppl.lab.experiments.results import Result

BALANCED = "balanced_accuracy"
# The K that stands for all in figures that compare methods.
_MAIN_K = 5

DataFrame: TypeAlias = Any  # pandas.DataFrame


def frame(results: Iterable[Result]) -> DataFrame:
    """Return a row for each result, with its metrics and seconds as columns."""
    results = list(results)
    several = len({result["notion"] for result in results} - {"none"}) > 1
    rows = [_row(result, several) for result in sorted(results, key=_order)]
    return optional("pandas", "pandas", "lab").DataFrame(rows)


def _order(result: Result) -> tuple[Any, ...]:
    """Sort by method, start, parameters and budget, in the order of tables and legends."""
    cell = result["cell"]
    start = result["cell"].get("examples") or {}
    source = str(start.get("source") or "")
    # Numbers in parameters count as numbers: top-10 follows top-2.
    parameters = re.sub(
        r"\d+",
        lambda digits: digits[0].zfill(9),
        json.dumps(cell["parameters"], sort_keys=True),
    )
    return (
        *(
            cell["budget"] is None,
            # Those of one's own are last.
            [*ALL_METHODS, cell["method"]].index(cell["method"]),
            result["notion"],
        ),
        # From zero first, then from right examples, then from wrong ones.
        *(start.get("used", False), start.get("wrong") or "", len(source), source),
        *(cell.get("stream", {}).get("told", False), cell.get("in_all", False)),
        *(
            parameters,
            cell["trials"],
            cell.get("search", 0),
            position(cell["budget"]),
            cell["seed"],
        ),
    )


def _row(result: Result, several_notions: bool) -> dict[str, Any]:
    """Give what groups, selects or is shown a column; `cell` and `result` have the rest."""
    cell = result["cell"]
    notion = result["notion"]
    start = result["cell"].get("examples") or {}
    pool = cell["pool"] or {"name": "", "rows": None, "first": None}
    mark = ""
    if several_notions and notion != "none":
        mark = f", {notion}"
    name = series_name(cell, mark)
    place = place_of(cell)
    of_persons = ""
    if result.get("unit") == Unit.PERSON:
        of_persons = ", for persons"
    promise = "none"
    if notion != "none":
        exact = "exact" if result["exact"] else "floating point"
        promise = f"{notion}, {result['adjacency']}{of_persons}, {exact}"
    return {
        "cell": cell,
        "result": result,
        "name": series_name(cell),
        "label": name,
        "label_with_pool": f"{name}, {pool_name(pool)}" if cell["pool"] else name,
        "method": cell["method"],
        "private": cell["budget"] is not None,
        "tuned": result["tuned"],
        "notion": notion,
        "mark": mark,
        "promise": promise,
        "adjacency": result["adjacency"],
        "dataset": place[0],
        "encoder": place[1],
        "place": place,
        "ratio": 0.0 if cell["ir"] == NATURAL else float(cell["ir"]),
        "ratio_name": ratio_name(cell["ir"]),
        "mu": position(cell["budget"]),
        "budget": budget_name(cell["budget"]),
        "seed": cell["seed"],
        "pool": pool["name"],
        "pool_name": pool_name(pool),
        "pool_rows": float(pool["rows"] or "inf") if cell["pool"] else 0.0,
        "n_public": result["data"]["n_public"] or 0,
        "k": cell["parameters"].get("n_prototypes") or 0,
        "source": str(start.get("source") or ""),
        "wrong": start.get("wrong") or "",
        "used": start.get("used", False),
        "sizes": result["data"]["class_sizes"],
        **result["metrics"],
        **result.get("seconds", {}),
        "memory": result.get("peak_memory_mib"),
    }


def by(rows: DataFrame, *names: str) -> Iterator[tuple[Any, DataFrame]]:
    """Group rows by columns, in order of appearance."""
    yield from rows.groupby(names[0] if len(names) == 1 else list(names), sort=False)


def ratios(rows: DataFrame) -> dict[str, DataFrame]:
    """Group by imbalance ratio, by its name: natural class sizes first, then ascending."""
    return {group["ratio_name"].iloc[0]: group for _, group in rows.groupby("ratio")}


def lines(
    rows: DataFrame, metric: str = BALANCED, name: str = "label", x: str = "mu"
) -> list[Line]:
    """Collect the values of all seeds by label and mu, or another column; rows without the metric are skipped."""
    if metric not in rows:
        return []
    return [
        Line(
            text,
            {place: values.tolist() for place, values in one.groupby(x)[metric]},
            method=one["method"].iloc[0],
            private=bool(one["private"].iloc[0]),
            tuned=bool(one["tuned"].iloc[0]),
        )
        for text, one in by(rows.dropna(subset=[metric]), name)
    ]


def panels(
    rows: DataFrame, metric: str = BALANCED, name: str = "label"
) -> list[tuple[str, list[Line]]]:
    """Return the lines of each imbalance ratio at which the metric was measured."""
    several = [
        (ratio, lines(group, metric, name)) for ratio, group in ratios(rows).items()
    ]
    return [panel for panel in several if panel[1]]


def default_settings(rows: DataFrame) -> DataFrame:
    """Drop what has separate figures: further pools, right examples, and K of top-K except 1 and one other."""
    ks = sorted(set(rows.loc[(rows["method"] == "public-topk") & (rows["k"] > 0), "k"]))
    if _MAIN_K in ks:
        main = _MAIN_K
    elif ks:
        main = ks[len(ks) // 2]
    else:
        main = 0
    rows = main_pool(rows)
    usual_k = (rows["method"] != "public-topk") | rows["k"].isin([main, 1, 0])
    return rows[
        usual_k & (rows["used"] | (rows["source"] == "")) & (rows["wrong"] == "")
    ]


def main_pool(rows: DataFrame) -> DataFrame:
    """Drop all public pools except the largest, or the first of several such."""
    read = rows[rows["pool"] != ""]
    if read.empty:
        return rows
    main = read.loc[read["pool_rows"].idxmax()]
    same = (rows["pool"] == main["pool"]) & (rows["pool_rows"] == main["pool_rows"])
    return rows[(rows["pool"] == "") | same]
