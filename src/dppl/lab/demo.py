"""The comparison that `dppl demo` shows: prototype methods and the DP-SGD probe on the built-in sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dppl.data import Sample
from dppl.estimators import PublicData
from dppl.kernel.privacy import ApproxDP
from dppl.kernel.privacy.budgets import USUAL_DELTA
from dppl.lab import long_tailed, long_tailed_sizes
from dppl.lab.experiments.methods import METHODS, label
from dppl.metrics import class_accuracies, class_sizes, is_ahead, minority_classes, standard_error

Rows: TypeAlias = NDArray[np.int64]
Accuracies: TypeAlias = tuple[float, float]

# The one to start from first.
BUDGETS = tuple(ApproxDP(epsilon, USUAL_DELTA) for epsilon in (1.0, 3.0, 8.0))
# Of classes of 59 records: at 3 the smallest two have 20 and 22, few for privacy and enough to measure a difference.
IMBALANCE_RATIOS = (1, 3)
SEEDS = 30

# Names of methods, in the order of the table; what changes the row above is indented there.
PRIVATE = ("softmax", "mean", "mean-replace-one", "coinpress", "public", "public-topk", "linear-probe")
# These take class sizes as public, so they protect less, and are no winners.
AS_PUBLISHED = ("mean-replace-one", "coinpress")
REFERENCE = "ncm"


@dataclass(frozen=True, slots=True)
class Runs:
    """Accuracies of one method at one budget and imbalance ratio."""

    method: str  # name in `METHODS`
    imbalance_ratio: int
    budget: ApproxDP | None  # None for the non-private reference
    balanced: tuple[float, ...]  # mean accuracy over classes, seed by seed
    # the same over the smallest quarter of the training classes; empty where all classes have one size
    minority: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the runs as JSON content."""
        return {
            "method": self.method,
            "imbalance_ratio": self.imbalance_ratio,
            "budget": None if self.budget is None else self.budget.to_dict(),
            "balanced_accuracy": list(self.balanced),
            "minority_accuracy": list(self.minority),
        }


def compare(sample: Sample, advance: Callable[[], None]) -> list[Runs]:
    """Fit every method at every budget and imbalance ratio, seeded: numbers for people, no models for release.

    `advance` is called after each of the `n_fits` fits.
    """
    cells = []
    for ratio in IMBALANCE_RATIOS:
        subsets = [long_tailed(sample.y, ratio, seed) for seed in range(SEEDS)]
        for name, budget in _settings():
            runs = []
            for seed, rows in enumerate(subsets):
                predicted = _predicted(name, budget, sample, rows, seed)
                runs.append(_accuracies(predicted, sample, rows, ratio))
                advance()
            balanced, minority = zip(*runs, strict=True)
            cells.append(Runs(name, ratio, budget, balanced, () if ratio == 1 else minority))
    return cells


def n_fits() -> int:
    """Return how often `compare` calls `advance`."""
    return len(IMBALANCE_RATIOS) * len(_settings()) * SEEDS


def _settings() -> list[tuple[str, ApproxDP | None]]:
    return [(REFERENCE, None), *((name, budget) for name in PRIVATE for budget in BUDGETS)]


def _predicted(name: str, budget: ApproxDP | None, sample: Sample, rows: Rows, seed: int) -> NDArray[Any]:
    method = METHODS[name]
    model = method.build(budget, sample.classes, seed, method.defaults, PublicData(sample.X_public))
    with threadpool_limits(1):  # in products this small, threads wait for each other longer than they compute
        model.fit(sample.X[rows], sample.y[rows])
        return np.asarray(model.predict(sample.X_test))


def _accuracies(predicted: NDArray[Any], sample: Sample, rows: Rows, ratio: int) -> Accuracies:
    per_class = class_accuracies(sample.y_test, predicted, sample.classes)
    smallest = minority_classes(class_sizes(sample.y[rows], sample.classes))
    return float(per_class.mean()), float(per_class[smallest].mean()) if ratio > 1 else np.nan


def sizes(sample: Sample, ratio: int) -> tuple[int, int, list[int]]:
    """Return the records of the largest and of the smallest class, and those of the smallest quarter of the classes."""
    counts = class_sizes(sample.y, sample.classes)
    all_sizes = long_tailed_sizes(int(counts.min()), len(counts), ratio)
    smallest = sorted(int(all_sizes[place]) for place in minority_classes(all_sizes))
    return int(all_sizes.max()), int(all_sizes.min()), smallest


def row_name(method: str) -> str:
    """Return the name of a row: the method's own in all tables, without what it shares with the row that it changes.

    >>> row_name("mean"), row_name("coinpress"), row_name("public-topk")
    ('DPPL-Mean', '  CoinPress (v1)', '  top-5')
    """
    own = label(method, METHODS[method].defaults)
    base = next(name for name in (*PRIVATE, method) if METHODS[name].estimator == METHODS[method].estimator)
    return own if base == method else f"  {own.removeprefix(METHODS[base].label).lstrip(', ')}"


def figures(values: Sequence[float]) -> str:
    """Return a mean and its standard error, as text."""
    error = standard_error(values)
    return f"{fmean(values):.3f}" + ("" if error is None else f" ± {error:.3f}")


def winner(values: Mapping[str, Sequence[float]]) -> str | None:
    """Return the method that is ahead of every other, or None where no lead is beyond two standard errors.

    >>> winner({"one": [0.5, 0.6], "two": [0.2, 0.3]})
    'one'
    >>> winner({"one": [0.5, 0.6], "two": [0.4, 0.5]}) is None
    True
    """
    rivals = {name: several for name, several in values.items() if name not in AS_PUBLISHED}
    best = max(rivals, key=lambda name: fmean(rivals[name]))
    ahead = all(is_ahead(rivals[best], rivals[name]) for name in rivals if name != best)
    return best if ahead else None
