"""The comparison that `dppl demo` shows: every prototype method on the built-in sample, balanced and long-tailed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import normalize

from dppl.data import Sample, long_tailed
from dppl.experiments.metrics import class_accuracies, class_sizes, minority_classes
from dppl.privacy import GaussianDP
from dppl.prototypes import MeanPrototypes, PublicPrototypes, SoftmaxPrototypes

Rows: TypeAlias = NDArray[np.int64]
Accuracies: TypeAlias = tuple[float, float | None]

# Positions on the x-axis of the papers' figures, sqrt(2·rho).
PAPER_EPSILONS = (0.25, 1.0, 8.0)
IMBALANCE_RATIOS = (1, 50)
SEEDS = 5

METHODS: dict[str, Callable[..., Any]] = {
    "SoftmaxPrototypes": SoftmaxPrototypes,
    "MeanPrototypes": MeanPrototypes,
    "  as published, DPPL-AAAI": partial(MeanPrototypes, adjacency="replace-one"),
    "  CoinPress, DPPL-v1": partial(MeanPrototypes, adjacency="replace-one", mechanism="coinpress"),
    "PublicPrototypes": PublicPrototypes,
    "  top-5": partial(PublicPrototypes, n_prototypes=5),
}
REFERENCE = "class means, not private"


@dataclass(frozen=True, slots=True)
class Cell:
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


def compare(sample: Sample, advance: Callable[[], None]) -> list[Cell]:
    """Fit every method at every budget and imbalance ratio.

    Parameters
    ----------
    sample : Sample
    advance : callable
        Called after each of the `n_fits` fits, for a progress bar.

    Returns
    -------
    list of Cell
        Runs are seeded: figures for people, not models for release.
    """
    cells = []
    for ratio in IMBALANCE_RATIOS:
        subsets = [long_tailed(sample.y, ratio, seed) for seed in range(SEEDS)]
        cells.append(_average(REFERENCE, ratio, None, _reference_runs(sample, subsets, ratio)))
        for method, build in METHODS.items():
            for paper_epsilon in PAPER_EPSILONS:
                runs = []
                for seed, rows in enumerate(subsets):
                    budget = GaussianDP(paper_epsilon)
                    model = build(budget, classes=sample.classes, random_state=seed)
                    model.fit(sample.X[rows], sample.y[rows], X_public=sample.X_public)
                    runs.append(_accuracies(model.predict(sample.X_test), sample, rows, ratio))
                    advance()
                cells.append(_average(method, ratio, paper_epsilon, runs))
    return cells


def n_fits() -> int:
    """Return how often `compare` calls `advance`."""
    return len(IMBALANCE_RATIOS) * len(METHODS) * len(PAPER_EPSILONS) * SEEDS


def _reference_runs(sample: Sample, subsets: list[Rows], ratio: int) -> Iterator[Accuracies]:
    for rows in subsets:
        sums = [normalize(sample.X[rows][sample.y[rows] == c]).sum(axis=0) for c in sample.classes]
        predicted = sample.classes[cosine_similarity(sample.X_test, sums).argmax(axis=1)]
        yield _accuracies(predicted, sample, rows, ratio)


def _accuracies(predicted: NDArray[Any], sample: Sample, rows: Rows, ratio: int) -> Accuracies:
    per_class = class_accuracies(sample.y_test, predicted, sample.classes)
    if ratio == 1:
        return float(per_class.mean()), None
    smallest = minority_classes(class_sizes(sample.y[rows], sample.classes))
    return float(per_class.mean()), float(per_class[smallest].mean())


def _average(method: str, ratio: int, paper_epsilon: float | None, runs: Iterable[Accuracies]) -> Cell:
    balanced, minority = zip(*runs, strict=True)
    return Cell(
        method=method,
        imbalance_ratio=ratio,
        paper_epsilon=paper_epsilon,
        balanced=float(np.mean(balanced)),
        minority=None if ratio == 1 else float(np.mean(minority)),
    )
