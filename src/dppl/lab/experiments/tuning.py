"""Settings that private records choose: with Optuna as in DPPL-v1 (B.1), which no guarantee covers, or by a private search."""

import logging
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from dppl._utils.optional import optional
from dppl._utils.types import Array
from dppl.errors import ParameterError
from dppl.lab.experiments.cells import Cell
from dppl.lab.experiments.method_kinds import ComparedMethod, Range
from dppl.metrics import balanced_accuracy

_VALIDATION_SHARE = 0.2
# Settings of a private search, drawn at random; more of them cost nothing, and time.
_CANDIDATES = 20

Fit = Callable[[Mapping[str, Any], Any, Any, int], Any]


class TunedOn(NamedTuple):
    """Records that judge settings, and what fits some of them."""

    fit: Fit
    X: Array
    y: Array
    classes: Array


def tune(
    cell: Cell, method: ComparedMethod, parts: Sequence[TunedOn]
) -> dict[str, Any]:
    """Return the settings with the best balanced accuracy on a held-out fifth of each part, defaults among them."""
    optuna = optional("optuna", "Optuna", "lab")
    optuna.logging.set_verbosity(logging.WARNING)
    splits = [_split(len(part.y), cell.seed) for part in parts]
    free = {
        name: axis for name, axis in method.space.items() if name not in cell.parameters
    }

    def score(settings: Mapping[str, Any], noise_seed: int) -> float:
        settings = {**cell.parameters, **settings}
        reached = []
        for part, (held_out, rows) in zip(parts, splits, strict=True):
            model = part.fit(settings, part.X[rows], part.y[rows], noise_seed)
            predicted = model.predict(part.X[held_out])
            reached.append(balanced_accuracy(part.y[held_out], predicted, part.classes))
        return fmean(reached)

    def suggest(trial: Any) -> dict[str, Any]:
        # Optuna chooses among positions, since it keeps plain values only and some here
        # are pairs. Of a finished trial it returns what that took.
        chosen: dict[str, Any] = {}
        for name, axis in free.items():
            if isinstance(axis, Range):
                chosen[name] = trial.suggest_float(name, *axis, log=True)
            else:
                places = list(range(len(axis)))
                chosen[name] = axis[trial.suggest_categorical(name, places)]
        return chosen

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=cell.noise_seed)
    )
    first = cell.noise_seed + 1

    def attempt(trial: Any) -> float:
        try:
            return score(suggest(trial), first + 1 + trial.number)
        except ParameterError:
            # Some settings do not go together, such as a pool and more components than it
            # leaves.
            raise optuna.TrialPruned from None

    study.optimize(
        attempt,
        n_trials=cell.trials,
    )
    # The defaults are one more setting, which the search must beat.
    defaults = {name: value for name, value in method.defaults.items() if name in free}
    of_defaults = score(defaults, first)
    tried = [trial.value for trial in study.trials if trial.value is not None]
    of_search = max(tried, default=-1.0)
    return {
        "best": defaults if of_defaults >= of_search else suggest(study.best_trial),
        "score": max(of_defaults, of_search),
        # Of each setting that was tried and could be fitted, in their order.
        "tried": tried,
        "trials": cell.trials,
        "validation_rows": sum(len(held_out) for held_out, _ in splits),
    }


def _split(n: int, seed: int) -> tuple[Array, Array]:
    """Return the places that validate, and those that are fitted: by the cell's seed, and one of each at least."""
    order = np.random.default_rng(seed).permutation(n)
    size = min(max(1, round(_VALIDATION_SHARE * n)), n - 1)
    return np.sort(order[:size]), np.sort(order[size:])


def search_privately(
    cell: Cell, method: ComparedMethod, model: Any, X: Array, y: Array
) -> tuple[Any, dict[str, Any]]:
    """Fit the best of some settings at the budget of `model`, defaults among them; return the fit and the settings."""
    from dppl.methods import PrivateSearch  # which imports scikit-learn

    rng = np.random.default_rng(cell.seed)
    free = method.space.keys() - cell.parameters.keys()
    candidates: list[dict[str, list[Any]]] = [{}]
    for _ in range(_CANDIDATES - 1):
        # In the order of their names, for sets have none.
        candidates.append(
            {name: [_drawn(method.space[name], rng)] for name in sorted(free)}
        )
    search = PrivateSearch(
        model,
        candidates,
        mean_runs=cell.search,
        scoring="balanced",
        random_state=cell.noise_seed,
    ).fit(X, y)
    return search.best_estimator_, {
        "best": search.best_params_,
        "score": search.best_score_,
        "candidates": len(candidates),
        "mean_runs": cell.search,
    }


def _drawn(axis: Range | tuple[Any, ...], rng: np.random.Generator) -> Any:
    if isinstance(axis, Range):
        return float(np.exp(rng.uniform(*np.log(axis))))
    return axis[rng.integers(len(axis))]
