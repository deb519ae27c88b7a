"""Prototypes with and without a privately trained projection, on embeddings that are given.

    python benchmarks/projection.py FOLDER [FOLDER ...] [--public FILE] [--out
    RESULTS.json] [--figure FILE.png]

DPPL-v1 (figure 8) finds that a projection layer does not help. A folder holds
`train_x`, `train_y`, `test_x` and `test_y` as .npy, and `public_x.npy`, in whose place
`--public` may stand. Prints test accuracies, their mean and standard deviation over
seeds. "No noise" is a budget at which noise does not show, and no guarantee.
"""

import argparse
import json
import statistics
import warnings
from pathlib import Path

import numpy as np

from dppl import ApproxDP, GaussianDP, MeanPrototypes, PublicData, PublicPrototypes
from dppl.errors import WeakBudgetWarning
from dppl.lab import ProjectedPrototypes

BUDGETS = {
    "1": ApproxDP(1.0, 1e-5),
    "8": ApproxDP(8.0, 1e-5),
    "no noise": GaussianDP(1e4),
}
HEADS = {"mean": MeanPrototypes, "public": PublicPrototypes}
FORMS = ("without", "with")
COMPONENTS = 128
PUBLIC_ROWS = 10_000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    results = [
        result
        for folder in options.folders
        for result in compared(folder, options.public, options.seeds)
    ]
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        drawn(results, options.figure)


def compared(folder, public, seeds):
    """Yield one result for each head, form and budget."""
    names = ("train_x", "train_y", "test_x", "test_y")
    X, y, X_test, y_test = (np.load(folder / f"{name}.npy") for name in names)
    own = folder / "public_x.npy"
    X_public = np.load(own if own.exists() else public, mmap_mode="r")[
        :PUBLIC_ROWS
    ].astype(np.float32)
    classes = np.unique(y_test)
    for head in HEADS:
        for form in FORMS:
            for budget in BUDGETS:
                accuracies = []
                for seed in range(seeds):
                    model = (
                        build(head, form, BUDGETS[budget], classes, seed)
                        .set_params(public=PublicData(X_public))
                        .fit(X, y)
                    )
                    accuracies.append(model.score(X_test, y_test))
                result = {
                    "data": folder.name,
                    "head": head,
                    "projection": form,
                    "epsilon": budget,
                }
                result |= {
                    "accuracy": statistics.mean(accuracies),
                    "std": statistics.stdev(accuracies),
                }
                print(
                    " | ".join(
                        f"{value:.4f}" if isinstance(value, float) else value
                        for value in result.values()
                    )
                )
                yield result


def build(head, form, budget, classes, seed):
    """Return the classifier."""
    if form == "without":
        return HEADS[head](budget, classes, random_state=seed)
    return ProjectedPrototypes(
        budget, classes, head=head, n_components=COMPONENTS, random_state=seed
    )


def drawn(results, file):
    """Draw accuracies over budgets, one panel for each data set and head."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    panels = sorted({(result["data"], result["head"]) for result in results})
    figure, axes = pyplot.subplots(
        1,
        len(panels),
        figsize=(3 * len(panels), 2.8),
        sharey=True,
        layout="constrained",
    )
    for axis, panel in zip(np.atleast_1d(axes), panels, strict=True):
        for form in FORMS:
            lines = [
                r
                for r in results
                if (r["data"], r["head"]) == panel and r["projection"] == form
            ]
            height, error = ([r[name] for r in lines] for name in ("accuracy", "std"))
            axis.errorbar(
                [r["epsilon"] for r in lines],
                height,
                error,
                marker="o",
                capsize=3,
                label=form,
            )
        axis.set(title=f"{panel[0]}, {panel[1]}", xlabel="ε at δ = 1e-5")
    np.atleast_1d(axes)[0].set_ylabel("test accuracy")
    figure.legend(
        *axis.get_legend_handles_labels(),
        title="projection",
        loc="outside right center",
        frameon=False,
    )
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    main()
