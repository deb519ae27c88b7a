"""How far stated probabilities are from the share of correct predictions, on embeddings that are given.

    python benchmarks/calibration.py FOLDER [FOLDER ...] [--public FILE] [--seeds 3]

A folder holds `train_x`, `train_y`, `test_x` and `test_y` as .npy, and `public_x.npy`,
in whose place `--public` may stand. Prints balanced accuracy and the expected
calibration error (15 bins, classes weighing alike), as means over seeds, at epsilon 1
and 8, for equal class sizes in the training data ("as is") and for sizes that fall
geometrically by 100 from the first class to the last ("long tail").
"""

import argparse
import statistics
import warnings
from pathlib import Path

import numpy as np

from dppl import (
    ApproxDP,
    LatticeOptions,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl.continual import ContinualDiscriminant, ContinualEnsemble, ContinualPrototypes
from dppl.errors import WeakBudgetWarning
from dppl.lab import GlobalAdapt, LeastSquares, ProjectedPrototypes
from dppl.methods import LinearProbe
from dppl.metrics import balanced_accuracy, calibration_error

DELTA = 1e-6
EPSILONS = (1.0, 8.0)
IMBALANCE = 100
PUBLIC_ROWS = 10_000
METHODS = {
    "SoftmaxPrototypes": (SoftmaxPrototypes, {}, True),
    "MeanPrototypes": (MeanPrototypes, {}, False),
    "MeanPrototypes, public centre": (
        MeanPrototypes,
        {"lattice": LatticeOptions(center="public")},
        True,
    ),
    "PublicPrototypes": (PublicPrototypes, {}, True),
    "PublicPrototypes, 5 rows": (PublicPrototypes, {"n_prototypes": 5}, True),
    "ProjectedPrototypes": (ProjectedPrototypes, {"n_components": 128}, False),
    "ContinualPrototypes": (ContinualPrototypes, {}, False),
    "ContinualDiscriminant": (ContinualDiscriminant, {}, True),
    "ContinualEnsemble": (ContinualEnsemble, {}, False),
    "LinearProbe": (LinearProbe, {}, False),
    "LeastSquares": (LeastSquares, {}, False),
    "GlobalAdapt": (GlobalAdapt, {}, False),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    for folder in options.folders:
        for shape in ("as is", "long tail"):
            for method in options.methods:
                cells = [
                    measured(folder, options.public, shape, method, eps, options.seeds)
                    for eps in EPSILONS
                ]
                print(
                    "|",
                    " | ".join([folder.name, shape, method, *cells]),
                    "|",
                    flush=True,
                )


def measured(folder, public, shape, method, epsilon, seeds):
    """Return balanced accuracy and calibration error."""
    X, y, X_test, y_test = (
        np.load(folder / f"{name}.npy")
        for name in ("train_x", "train_y", "test_x", "test_y")
    )
    own = folder / "public_x.npy"
    X_public = np.load(own if own.exists() else public, mmap_mode="r")[
        :PUBLIC_ROWS
    ].astype(np.float32)
    if shape == "long tail":
        kept = long_tail(y)
        X = X[kept]
        y = y[kept]
    kind, parameters, takes_public = METHODS[method]
    figures = []
    for seed in range(seeds):
        model = kind(
            ApproxDP(epsilon, DELTA), np.unique(y_test), random_state=seed, **parameters
        )
        model.set_params(public=PublicData(X_public if takes_public else None)).fit(
            X, y
        )
        probabilities = model.predict_proba(X_test)
        predicted = model.classes_[probabilities.argmax(axis=1)]
        accuracy = balanced_accuracy(y_test, predicted, model.classes_)
        figures.append(
            (accuracy, calibration_error(y_test, probabilities, model.classes_))
        )
    return " | ".join(
        f"{statistics.mean(column):.3f}" for column in zip(*figures, strict=True)
    )


def long_tail(y):
    """Return the rows of classes whose sizes fall geometrically, as far as there are enough."""
    names, sizes = np.unique(y, return_counts=True)
    wanted = sizes.min() * IMBALANCE ** -np.linspace(0, 1, len(names))
    order = np.random.default_rng(0).permutation(len(y))
    parts = [
        order[y[order] == name][: max(1, round(size))]
        for name, size in zip(names, wanted, strict=True)
    ]
    return np.sort(np.concatenate(parts))


if __name__ == "__main__":
    main()
