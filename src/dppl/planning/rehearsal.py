"""Simulated fits on a public labelled table, with class sizes as they are guessed to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl.errors import InputError
from dppl.estimators.public_data import PublicData
from dppl.estimators.registry import BY_METHOD
from dppl.io.labels import as_labels
from dppl.kernel.privacy import Budget

__all__ = ["RUNS", "Rehearsal", "rehearse"]

Float = NDArray[np.float64]

RUNS = 5
# Of each class, this share of its rows tests, up to so many.
_TEST_SHARE, _MOST_TESTED = 0.2, 200


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Measured recalls."""

    recalls: Float  # shape (runs, n_classes); of the classes from the smallest to the largest, in each run

    @property
    def balanced(self) -> Float:
        """Balanced accuracy of each run."""
        return np.asarray(self.recalls.mean(axis=1))


def rehearse(
    method: str,
    budget: Budget,
    X: NDArray[Any],
    y: ArrayLike,
    sizes: ArrayLike,
    public: PublicData | None = None,
    runs: int = RUNS,
) -> Rehearsal:
    """Fit parts of a public table several times and measure the recall of each class on the rest.

    `sizes` are those of the classes, ascending. Which classes, which rows and the noise are drawn with the number of
    the run as seed, so the same table gives the same numbers. **Privacy.** None is given: the table must be public.
    """
    _validate.positive_integer(runs=runs)
    labels, rounded = as_labels(y), np.maximum(np.rint(np.asarray(sizes)).astype(int), 1)
    if X.ndim != 2 or len(X) != len(labels):
        raise InputError("the rehearsal table must be a matrix with one label a row.")
    recalls = []
    for run in range(runs):
        classes, fitted, tested = _draw(labels, rounded, np.random.default_rng(run))
        model: Any = BY_METHOD[method].load()(budget, classes=classes, public=public, random_state=run)
        model.fit(X[fitted], labels[fitted])
        right = model.predict(X[tested]) == labels[tested]
        recalls.append([right[labels[tested] == name].mean() for name in classes])
    return Rehearsal(np.array(recalls))


def _draw(
    y: NDArray[Any], sizes: NDArray[np.int_], rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Return random classes, or the largest, in the order of the sizes, with rows to fit and rows to test."""
    names, counts = np.unique(y, return_counts=True)
    held_out = np.clip((_TEST_SHARE * counts).astype(int), 1, _MOST_TESTED)
    left = counts - held_out
    if len(names) < len(sizes):
        raise InputError(f"the rehearsal table has {len(names)} classes, fewer than {len(sizes)}; take one with more.")
    for order in (rng.permutation(len(names)), np.argsort(-left)):
        chosen = np.sort(order[: len(sizes)])
        chosen = chosen[np.argsort(left[chosen], kind="stable")]
        if (left[chosen] >= sizes).all():
            break
    else:
        short = int(np.flatnonzero(left[chosen] < sizes)[-1])
        raise InputError(
            f"the rehearsal table is too small: a class of {sizes[short]} records is wanted, and its classes leave "
            f"{left[chosen][short]} after those that test; plan with fewer records, or take a larger table."
        )
    rows = [rng.permutation(np.flatnonzero(y == names[c])) for c in chosen]
    fitted = np.concatenate([own[held_out[c] :][:n] for own, c, n in zip(rows, chosen, sizes, strict=True)])
    tested = np.concatenate([own[: held_out[c]] for own, c in zip(rows, chosen, strict=True)])
    return names[chosen], np.sort(fitted), np.sort(tested)
