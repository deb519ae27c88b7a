"""Draw the README's two pictures, docs/accuracy.png and docs/records.png, from the committed results.

    python tools/readme_picture.py

Needs `pip install -e '.[lab]'`.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from dppl.kernel.privacy import GaussianDP
from dppl.lab.experiments.results import Result, read_results

DOCS = Path(__file__).parents[1] / "docs"
DELTA = 1e-6
MESSAGES, REQUESTS = "banking77", "hwu64"
# What a fit starts from, and how its line looks.
STARTS: dict[str, tuple[Any, dict[str, str]]] = {
    "dppl, told what the classes are called": (
        {"source": "names", "wrong": None, "used": True},
        {"color": "tab:green", "marker": "D"},
    ),
    "dppl": (None, {"color": "tab:blue", "marker": "o"}),
}
NEAR_ONE = 0.25  # the mu of the measurements that is nearest to epsilon 1


def fits(results: list[Result], start: Any, datasets: tuple[str, ...]) -> Iterator[Result]:
    """Yield the fits of the default method that read private records."""
    for result in results:
        cell = result["cell"]
        if (cell["method"], cell.get("examples"), cell["parameters"]) == ("softmax", start, {}):
            if cell["dataset"] in datasets and result["e"] > 0:
                yield result


def draw_accuracy(axis: Axes, results: list[Result], ceiling: float) -> None:
    """Draw balanced accuracy over epsilon, on classes as large as they are."""
    for label, (start, look) in STARTS.items():
        values = defaultdict(list)
        for result in fits(results, start, (MESSAGES,)):
            if result["cell"]["ir"] == "natural":
                values[result["e"]].append(result["metrics"]["balanced_accuracy"])
        epsilons = [GaussianDP(mu).to_approx(DELTA).epsilon for mu in sorted(values)]
        axis.plot(epsilons, [np.mean(values[mu]) for mu in sorted(values)], label=label, markersize=4, **look)
    axis.axhline(ceiling, color="black", linestyle=":", label="no privacy")
    axis.set_title("What privacy costs: 10,003 messages, 77 classes", fontsize=10)
    axis.set_xlabel("epsilon (smaller is more private)")
    axis.set_ylabel("correct predictions")
    set_ticks(axis, (0.25, 0.5, 1, 2, 5, 10, 20, 50))


def draw_records(axis: Axes, results: list[Result]) -> None:
    """Draw the recall of a class over the number of its records, near epsilon 1."""
    edges = np.geomspace(2, 180, 10)
    for label, (start, look) in STARTS.items():
        sizes, recalls = [], []
        for result in fits(results, start, (MESSAGES, REQUESTS)):
            if result["e"] == NEAR_ONE:
                sizes += result["data"]["class_sizes"]
                recalls += result["metrics"]["class_accuracies"]
        bins = np.digitize(sizes, edges)
        shown = [place for place in range(1, len(edges)) if np.sum(bins == place) >= 20]
        means = [np.mean(np.asarray(recalls)[bins == place]) for place in shown]
        middles = [np.sqrt(edges[place - 1] * edges[place]) for place in shown]
        axis.plot(middles, means, label=label, markersize=4, **look)
    axis.set_title("How many records a class needs, near epsilon 1", fontsize=10)
    axis.set_xlabel("records of the class")
    axis.set_ylabel("messages of the class recognised")
    set_ticks(axis, (2, 5, 10, 20, 50, 100))


def set_ticks(axis: Axes, ticks: tuple[float, ...]) -> None:
    """Make the x-axis logarithmic, with these ticks, and the y-axis one of percents."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter(PercentFormatter(1))
    axis.set_ylim(0, 1)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8.5, loc="lower right")


def main() -> None:
    """Draw and write both files."""
    results = read_results(DOCS / "results" / "examples.parquet")
    (ceiling,) = {
        result["metrics"]["balanced_accuracy"]
        for result in read_results(DOCS / "results" / "text.parquet")
        if (result["cell"]["method"], result["cell"]["ir"]) == ("logistic", "natural")
    }
    for name in ("accuracy", "records"):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axis = figure.subplots()
        if name == "accuracy":
            draw_accuracy(axis, results, ceiling)
        else:
            draw_records(axis, results)
        figure.savefig(DOCS / f"{name}.png", dpi=100)


if __name__ == "__main__":
    main()
