"""Tuning of hyper-parameters on a part of the private records. No guarantee covers what it finds.

DPPL-v1 (arXiv:2406.08039, B.1) searches with Optuna's tree-structured Parzen estimator for all methods; so does this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from dppl._optional import optional
from dppl.lab.experiments.config import Cell
from dppl.lab.experiments.methods import Method, Range, Space
from dppl.lab.experiments.splits import validation_split
from dppl.metrics import balanced_accuracy

__all__ = ["VALIDATION_SHARE", "tune"]

VALIDATION_SHARE = 0.2

Fit = Callable[[Mapping[str, Any], Any, Any, int, Any], Any]


def tune(
    cell: Cell,
    method: Method,
    fit: Fit,
    X: NDArray[Any],
    y: NDArray[Any],
    classes: NDArray[Any],
    groups: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Return the settings with the best balanced accuracy on held-out private records, the defaults among them.

    A fifth of the records, or of the persons, is held out. The cell's seed fixes the split, the sampler and the noise
    of every trial; parameters that the cell fixes stay as they are. `fit` takes settings, records, a noise seed, and
    ids of persons or None.
    """
    optuna = optional("optuna", "Optuna", "lab")
    optuna.logging.set_verbosity(logging.WARNING)
    # The split is by the cell's seed, and the same for every trial.
    fitting, held_out = validation_split(len(y), VALIDATION_SHARE, cell.seed, groups)
    persons = None if groups is None else groups[fitting]
    free = {name: axis for name, axis in method.space.items() if name not in cell.parameters}

    def score(settings: Mapping[str, Any], noise_seed: int) -> float:
        model = fit({**cell.parameters, **settings}, X[fitting], y[fitting], noise_seed, persons)
        return balanced_accuracy(y[held_out], model.predict(X[held_out]), classes)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=cell.noise_seed))
    first = cell.noise_seed + 1
    study.optimize(lambda trial: score(_suggest(trial, free), first + 1 + trial.number), n_trials=cell.trials)
    # The defaults are one more setting, which the search must beat.
    defaults = {name: value for name, value in method.defaults.items() if name in free}
    of_defaults, of_search = score(defaults, first), float(study.best_value)
    return {
        "best": defaults if of_defaults >= of_search else _suggest(study.best_trial, free),
        "score": max(of_defaults, of_search),
        "trials": cell.trials,
        "validation_rows": len(held_out),
    }


def _suggest(trial: Any, space: Space) -> dict[str, Any]:
    """Take a value for every hyper-parameter; of a finished trial, those it took."""
    settings = {}
    for name, axis in space.items():
        if isinstance(axis, Range):
            settings[name] = trial.suggest_float(name, axis.low, axis.high, log=True)
        else:
            # Optuna chooses among positions, since it keeps plain values only and some here are pairs.
            settings[name] = axis.values[trial.suggest_categorical(name, list(range(len(axis.values))))]
    return settings
