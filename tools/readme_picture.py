"""Draw the pictures of README.md and docs/results.md from the committed results.

    python tools/readme_picture.py

Writes docs/accuracy.png, docs/records.png and docs/methods.png.

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
from dppl.lab.experiments.compared_methods import METHODS
from dppl.lab.experiments.results import Result, read_results

DOCS = Path(__file__).parents[1] / "docs"
DELTA = 1e-6
MESSAGES = "banking77"
REQUESTS = "hwu64"
# What a fit starts from, and how its line looks.
STARTS: dict[str, tuple[Any, dict[str, str]]] = {
    "dppl, given the names of the classes": (
        {"source": "names", "wrong": None, "used": True},
        {"color": "tab:green", "marker": "D"},
    ),
    "dppl": (None, {"color": "tab:blue", "marker": "o"}),
}
NEAR_ONE = 0.25  # the mu of the measurements that is nearest to epsilon 1
COMPARED = {"softmax": "-o", "linear-probe": "--s", "mean": "-.^", "public": ":D"}
PANELS = {
    ("text", MESSAGES, "natural"): "Messages, class sizes as they are",
    ("images", "cifar10", 100.0): "Images, the largest class 100 × the smallest",
}


def fits(
    results: list[Result], start: Any, datasets: tuple[str, ...]
) -> Iterator[Result]:
    """Yield the fits of the default method that read private records."""
    for result in results:
        cell = result["cell"]
        known = (cell["method"], cell.get("examples"), cell["parameters"]) == (
            "softmax",
            start,
            {},
        )
        if known and cell["dataset"] in datasets and result["e"] > 0:
            yield result


def draw_accuracy(axis: Axes, results: list[Result], ceiling: float) -> None:
    """Draw balanced accuracy over epsilon, on classes as large as they are."""
    for label, (start, look) in STARTS.items():
        values = defaultdict(list)
        for result in fits(results, start, (MESSAGES,)):
            if result["cell"]["ir"] == "natural":
                values[result["e"]].append(result["metrics"]["balanced_accuracy"])
        epsilons = [GaussianDP(mu).to_approx(DELTA).epsilon for mu in sorted(values)]
        axis.plot(
            epsilons,
            [np.mean(values[mu]) for mu in sorted(values)],
            label=label,
            markersize=4,
            **look,
        )
    axis.axhline(ceiling, color="black", linestyle=":", label="no privacy")
    axis.set_title("What privacy costs: 10,003 messages, 77 classes", fontsize=10)
    axis.set_xlabel("epsilon (smaller is more private)")
    axis.set_ylabel("correct predictions")
    set_ticks(axis, (0.25, 0.5, 1, 2, 5, 10, 20, 50))


def draw_records(axis: Axes, results: list[Result]) -> None:
    """Draw the recall of a class over the number of its records, near epsilon 1."""
    edges = np.geomspace(2, 180, 10)
    for label, (start, look) in STARTS.items():
        sizes = []
        recalls = []
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
    set_ticks(axis, (2, 5, 10, 20, 50, 100), "upper left")


def draw_methods(axis: Axes, results: list[Result], dataset: str, ratio: Any) -> None:
    """Draw balanced accuracy over mu for several methods, searched on no private data."""
    values = defaultdict(list)
    for result in results:
        cell = result["cell"]
        if (cell["dataset"], cell["ir"], cell["parameters"], cell["trials"]) == (
            dataset,
            ratio,
            {},
            0,
        ):
            values[cell["method"], result["e"]].append(
                result["metrics"]["balanced_accuracy"]
            )
    for method, line in COMPARED.items():
        budgets = sorted(mu for name, mu in values if name == method and mu <= 8)
        accuracies = [np.mean(values[method, mu]) for mu in budgets]
        axis.plot(budgets, accuracies, line, label=METHODS[method].label, markersize=4)
    axis.axhline(
        np.mean(values["logistic", None]),
        color="black",
        linestyle=":",
        label="no privacy",
    )
    axis.set_xlabel("mu")
    set_ticks(axis, (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8))
    axis.get_legend().remove()  # one for both panels stands below them


def set_ticks(
    axis: Axes, ticks: tuple[float, ...], legend: str = "lower right"
) -> None:
    """Make the x-axis logarithmic, with these ticks, and the y-axis one of percents."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter(PercentFormatter(1))
    axis.set_ylim(0, 1)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc=legend)


def main() -> None:
    """Draw and write all files."""
    names = {name for name, *_ in PANELS} | {"examples"}
    results = {
        name: read_results(DOCS / "results" / f"{name}.jsonl.xz") for name in names
    }
    (ceiling,) = {
        result["metrics"]["balanced_accuracy"]
        for result in results["text"]
        if (result["cell"]["method"], result["cell"]["ir"]) == ("logistic", "natural")
    }
    figure, axis = new_figure(5.2)
    draw_accuracy(axis, results["examples"], ceiling)
    figure.savefig(DOCS / "accuracy.png", dpi=100)
    figure, axis = new_figure(5.2)
    draw_records(axis, results["examples"])
    figure.savefig(DOCS / "records.png", dpi=100)
    figure, *axes = new_figure(9.6, len(PANELS))
    for axis, ((name, dataset, ratio), title) in zip(axes, PANELS.items(), strict=True):
        draw_methods(axis, results[name], dataset, ratio)
        axis.set_title(title, fontsize=10)
        axis.set_ylabel("balanced accuracy")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        fontsize=8.5,
    )
    figure.savefig(DOCS / "methods.png", dpi=90)


def new_figure(width: float, columns: int = 1) -> tuple[Any, ...]:
    """Return a figure and its axes."""
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    return figure, *np.ravel(figure.subplots(1, columns))


if __name__ == "__main__":
    main()
