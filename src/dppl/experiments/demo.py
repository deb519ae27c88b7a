"""The comparison that `dppl demo` shows: every prototype method on the built-in sample, balanced and long-tailed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl.data import Sample, long_tailed
from dppl.experiments.methods import METHODS
from dppl.experiments.metrics import class_accuracies, class_sizes, minority_classes
from dppl.privacy import GaussianDP

Rows: TypeAlias = NDArray[np.int64]
Accuracies: TypeAlias = tuple[float, float | None]

# Values of mu, which are positions on the x-axis of the papers' figures.
PAPER_EPSILONS = (0.25, 1.0, 8.0)
IMBALANCE_RATIOS = (1, 50)
SEEDS = 5

# Names in the table, and the methods of experiments that they stand for.
PRIVATE = {
    "SoftmaxPrototypes": "softmax",
    "MeanPrototypes": "mean",
    "  as published, DPPL-AAAI": "mean-replace-one",
    "  CoinPress, DPPL-v1": "coinpress",
    "PublicPrototypes": "public",
    "  top-5": "public-topk",
}
REFERENCE = "class means, not private"
_METHODS = {**PRIVATE, REFERENCE: "ncm"}


@dataclass(frozen=True, slots=True)
class Average:
    """Accuracies of one method at one budget and imbalance ratio, means over the seeds.

    Parameters
    ----------
    method : str
    imbalance_ratio : int
    paper_epsilon : float or None
        None for the non-private reference.
    balanced : float
        Mean accuracy over classes.
    minority : float or None
        The same over the smallest quarter of the training classes; None where all classes have one size.
    """

    method: str
    imbalance_ratio: int
    paper_epsilon: float | None
    balanced: float
    minority: float | None


def compare(sample: Sample, advance: Callable[[], None]) -> list[Average]:
    """Fit every method at every budget and imbalance ratio.

    Parameters
    ----------
    sample : Sample
    advance : callable
        Called after each of the `n_fits` fits, for a progress bar.

    Returns
    -------
    list of Average
        Runs are seeded: numbers for people, not models for release.
    """
    averages = []
    for ratio in IMBALANCE_RATIOS:
        subsets = [long_tailed(sample.y, ratio, seed) for seed in range(SEEDS)]
        for name, paper_epsilon in _settings():
            runs = []
            for seed, rows in enumerate(subsets):
                predicted = _predicted(_METHODS[name], paper_epsilon, sample, rows, seed)
                runs.append(_accuracies(predicted, sample, rows, ratio))
                advance()
            averages.append(_average(name, ratio, paper_epsilon, runs))
    return averages


def n_fits() -> int:
    """Return how often `compare` calls `advance`."""
    return len(IMBALANCE_RATIOS) * len(_settings()) * SEEDS


def _settings() -> list[tuple[str, float | None]]:
    return [(REFERENCE, None), *((name, mu) for name in PRIVATE for mu in PAPER_EPSILONS)]


def _predicted(name: str, paper_epsilon: float | None, sample: Sample, rows: Rows, seed: int) -> NDArray[Any]:
    method = METHODS[name]
    budget = None if paper_epsilon is None else GaussianDP(paper_epsilon)
    model = method.build(budget, sample.classes, seed, method.defaults)
    model.fit(sample.X[rows], sample.y[rows], X_public=sample.X_public)
    return np.asarray(model.predict(sample.X_test))


def _accuracies(predicted: NDArray[Any], sample: Sample, rows: Rows, ratio: int) -> Accuracies:
    per_class = class_accuracies(sample.y_test, predicted, sample.classes)
    if ratio == 1:
        return float(per_class.mean()), None
    smallest = minority_classes(class_sizes(sample.y[rows], sample.classes))
    return float(per_class.mean()), float(per_class[smallest].mean())


def _average(method: str, ratio: int, paper_epsilon: float | None, runs: Iterable[Accuracies]) -> Average:
    balanced, minority = zip(*runs, strict=True)
    return Average(
        method=method,
        imbalance_ratio=ratio,
        paper_epsilon=paper_epsilon,
        balanced=float(np.mean(balanced)),
        minority=None if ratio == 1 else float(np.mean(minority)),
    )
