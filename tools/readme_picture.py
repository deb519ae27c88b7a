"""Draw the README's picture, docs/accuracy.png, from the committed results.

    python tools/readme_picture.py

Needs `pip install -e '.[lab]'`.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from dppl.kernel.privacy import GaussianDP
from dppl.lab.experiments.results import read_results

DOCS = Path(__file__).parents[1] / "docs"
DELTA = 1e-6
PANELS = {
    "Class sizes as they are": (("text", "banking77", "natural"), ("images", "cifar10", 1.0)),
    "Long tail: the largest class is 10 × the smallest": (("text", "banking77", 10.0), ("images", "cifar10", 10.0)),
}
LOOKS = {"banking77": ("tab:blue", "messages, 77 intents"), "cifar10": ("tab:orange", "images, 10 classes")}
NAMES = {"source": "names", "wrong": None, "used": True}
METHODS = {
    "softmax": ("-", "o", "dppl"),
    "mean": ("-.", "^", "DPPL-Mean"),
    "linear-probe": ("--", "s", "DP-SGD probe"),
    "logistic": (":", "", "no privacy"),
}
TICKS = (0.25, 0.5, 1, 2, 5, 10, 20, 50)


def accuracies(name, dataset, ratio, method, examples=None):
    """Return mean balanced test accuracies over the seeds, by mu."""
    found = {}
    for result in read_results(next((DOCS / "results").glob(f"{name}.*"))):
        cell = result["cell"]
        kept = (cell["method"], cell["dataset"], cell["ir"], cell["parameters"], cell.get("examples"))
        # Searches on private data are not covered; mu = 0 has no place on a logarithmic scale.
        if kept == (method, dataset, ratio, {}, examples) and not cell["trials"] and result["e"] != 0:
            found.setdefault(result["e"], []).append(result["metrics"]["balanced_accuracy"])
    return {mu: np.mean(values) for mu, values in found.items()}


def draw(axis, values, **look):
    """Draw a line over epsilon."""
    epsilons = {GaussianDP(mu).to_approx(DELTA).epsilon: value for mu, value in sorted(values.items())}
    shown = {epsilon: value for epsilon, value in epsilons.items() if epsilon < TICKS[-1]}
    axis.plot(shown.keys(), shown.values(), markersize=4, **look)


def main():
    """Draw both panels and write the file."""
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (title, sets) in zip(axes, PANELS.items(), strict=True):
        for name, dataset, ratio in sets:
            color, what = LOOKS[dataset]
            for method, (line, marker, who) in METHODS.items():
                look = {"color": color, "linestyle": line, "label": f"{who}: {what}"}
                values = accuracies(name, dataset, ratio, method)
                if method == "logistic":
                    (height,) = values.values()
                    axis.axhline(height, **look)
                else:
                    draw(axis, values, marker=marker, **look)
            if dataset == "banking77":
                look = {"color": "tab:green", "marker": "D", "label": "dppl, given the names of the 77 intents"}
                draw(axis, accuracies("examples", dataset, ratio, "softmax", NAMES), **look)
        axis.set_title(title, fontsize=10)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(TICKS))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
        axis.set_xlabel("epsilon at delta = 1e-6")
    axes[0].set_ylabel("balanced test accuracy")
    axes[0].set_ylim(0, 1)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5, frameon=False
    )
    figure.savefig(DOCS / "accuracy.png", dpi=110)


if __name__ == "__main__":
    main()
