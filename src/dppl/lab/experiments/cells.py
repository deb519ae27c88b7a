"""What happens in one cell: draw the subset, fit, predict, measure."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dppl import metrics
from dppl.errors import DpplError, InputError, ParameterError
from dppl.estimators import PublicData
from dppl.kernel.mechanisms import CoinPress
from dppl.kernel.privacy import Budget, GaussianDP, PureDP
from dppl.kernel.privacy.composition import split
from dppl.kernel.privacy.guarantee import software_versions
from dppl.lab import long_tailed
from dppl.lab.experiments.config import NATURAL, PERSON, SCHEMA, Cell
from dppl.lab.experiments.datasets import Dataset, DatasetSpec, load_dataset
from dppl.lab.experiments.methods import ALL_METHODS, Method
from dppl.lab.experiments.results import DONE, FAILED, Result
from dppl.lab.experiments.splits import made_up_persons
from dppl.lab.experiments.streams import tasks_of_test_rows, tasks_of_training_rows
from dppl.lab.experiments.tuning import tune
from dppl.lab.streams import Task, average_accuracy, forgetting

__all__ = ["check_cells", "failure", "paper_epsilon", "run_cell"]

Rows = NDArray[np.int64]


def check_cells(cells: Iterable[Cell], datasets: Mapping[tuple[str, str], DatasetSpec]) -> None:
    """Look for what would stop cells, without a fit: of arrays the headers, of public pools the sizes, all parameters.

    Streams are cut with every seed. Only data sets that streams join, or that come in one piece, are read as a whole.
    """
    cells = list(cells)
    loaded = {key: load_dataset(spec) for key, spec in datasets.items()}
    # Neither seed nor imbalance ratio matters here.
    different = {replace(cell, ir=NATURAL, seed=0).key: cell for cell in cells}
    for cell in different.values():
        dataset = loaded[cell.dataset, cell.encoder].merged(cell.classes, cell.seed)
        if cell.pool is not None:
            dataset.available(cell.pool)
        dataset.split(cell.examples, cell.seed)
        if cell.stream is not None:
            cell.stream.check(dataset)
        try:
            _check_estimator(cell, dataset)
        except (DpplError, TypeError, ValueError) as error:
            given = ", ".join(f"{name}: {value}" for name, value in cell.parameters.items()) or "no parameters"
            raise ParameterError(f"{cell.method} with {given}, on data set {cell.dataset!r}: {error}") from None
    for key, stream, seed in dict.fromkeys(((c.dataset, c.encoder), c.stream, c.seed) for c in cells):
        if stream is not None:
            try:
                tasks_of_test_rows(stream, loaded[key], seed)
            except InputError as error:
                raise InputError(f"{stream.name}, of data set {key[0]!r} with seed {seed}: {error}") from None


def _check_estimator(cell: Cell, dataset: Dataset) -> None:
    """Let an estimator check its parameters, and the map that they make for rows of this width."""
    method = ALL_METHODS[cell.method]
    model = _start(cell, dataset, cell.noise_seed)
    if method.private:
        most = getattr(model, "max_tasks", None)
        if cell.stream is not None and most is not None and most < cell.stream.n_tasks:
            raise ParameterError(f"max_tasks is {most}, and the stream has {cell.stream.n_tasks} tasks.")
        width = dataset.X.shape[1]
        model.check_parameters()
        model.public_lattice(width, None if cell.pool is None else np.ones((1, width), np.float32))


def run_cell(cell: Cell, datasets: Mapping[tuple[str, str], DatasetSpec]) -> Result:
    """Compute a cell; one that fails gives a result too, with class and message of the error."""
    try:
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
            warnings.simplefilter("always")
            measure = _measure if cell.stream is None else _measure_stream
            dataset = _cached(datasets[cell.dataset, cell.encoder])
            content = measure(cell, dataset.merged(cell.classes, cell.seed))
    except Exception as error:
        return failure(cell, type(error).__name__, str(error))
    texts = sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught})
    return {**_head(cell, DONE), **content, "warnings": texts}


def failure(cell: Cell, error: str, message: str) -> Result:
    """Return the result of a cell that failed."""
    return {**_head(cell, FAILED), "error": error, "message": message}


def paper_epsilon(budget: Budget) -> float:
    """Return the position on the x-axis: mu of the Gaussian noise that the budget allows.

    In zCDP that is sqrt(2·rho), the x-axis of the DPPL papers' figures. Pure DP allows no Gaussian noise and stands at
    sqrt(2·rho) for the rho that it implies.
    """
    if isinstance(budget, PureDP):
        return budget.to_zcdp().paper_epsilon
    if isinstance(budget, GaussianDP):
        return budget.mu  # its allowance may be a rounding below, which is no place of its own
    return budget.gaussian_allowance().mu


def _measure(cell: Cell, dataset: Dataset) -> Result:
    method = ALL_METHODS[cell.method]
    rows, examples = dataset.split(cell.examples, cell.seed)
    X, y, groups = _records(cell, dataset, rows)
    # Rows that serve as examples are public, so no private record is among them.
    public = dataset.public(cell.pool, cell.seed)
    given = PublicData(public, *examples)
    budget = cell.make_budget()
    parameters, searched = dict(cell.parameters), None

    def fit(settings: Mapping[str, Any], X: Any, y: Any, seed: int, groups: Any) -> Any:
        ids = {"groups": groups} if cell.unit == PERSON and method.private else {}
        return method.build(budget, dataset.classes, seed, settings, given).fit(X, y, **ids)

    seconds: dict[str, float] = {}
    with _peak_memory() as peak:
        if cell.tuned:
            # The search looks at private records and pays nothing for it; `covered` says so in the result.
            with _timed(seconds, "tune"):
                searched = tune(cell, method, fit, X, y, dataset.classes, groups)
            parameters |= searched["best"]
        with _timed(seconds, "fit"):
            model = fit(parameters, X, y, cell.noise_seed, groups)
        with _timed(seconds, "predict"):
            predicted = model.predict(np.asarray(dataset.X_test))
        mib = peak()
    sizes = metrics.class_sizes(y, dataset.classes)
    persons = {} if groups is None else {"n_persons": len(np.unique(metrics.person_numbers(groups, len(groups))))}
    # Published figures trace its radius, so it is fitted again with fewer steps and the same noise.
    steps = {}
    if cell.method == "coinpress":
        steps["coinpress"] = _coinpress(
            lambda more: fit(parameters | more, X, y, cell.noise_seed, groups), model, sizes
        )
    return {
        **_conditions(cell, method, model),
        "parameters": _as_json(parameters),
        "search": searched and {**searched, "best": _as_json(searched["best"])},
        "data": _data(dataset, sizes, public) | persons,
        "metrics": {**_metrics(dataset, predicted, sizes), "calibration_error": _calibration_error(dataset, model)},
        "seconds": seconds,
        "peak_memory_mib": mib,
        **steps,
    }


def _measure_stream(cell: Cell, dataset: Dataset) -> Result:
    """Learn task after task, and test the model after each on the test rows of all tasks so far, without naming one."""
    assert cell.stream is not None
    cell.stream.check(dataset)
    method = ALL_METHODS[cell.method]
    X, y, _ = _records(cell, dataset, np.arange(len(dataset.y), dtype=np.int64))
    X_test = np.asarray(dataset.X_test)
    public = dataset.public(cell.pool, cell.seed)
    tests = tasks_of_test_rows(cell.stream, dataset, cell.seed)
    model = _start(cell, dataset, cell.noise_seed)
    # Entry (t, i) is the accuracy on task i after task t; what lies above the diagonal is not measured.
    accuracies = np.full((len(tests), len(tests)), np.nan)
    seconds: dict[str, float] = {}
    with _peak_memory() as peak, _kept(model) as kept:
        for number, task in enumerate(_given(model, tasks_of_training_rows(cell.stream, dataset, y, cell.seed))):
            with _timed(seconds, "fit"):
                told = task.classes if cell.stream.told else None
                model.partial_fit(X[task.rows], y[task.rows], task_classes=told, **kept)
            with _timed(seconds, "predict"):
                predicted = model.predict(X_test)
            right = predicted == dataset.y_test
            accuracies[number, : number + 1] = [right[test.rows].mean() for test in tests[: number + 1]]
        mib = peak()
    with _timed(seconds, "joint"):  # other noise than that of the first task
        joint = _start(cell, dataset, cell.noise_seed + 1, n_tasks=1).fit(X, y).predict(X_test)
    averages, forgot = average_accuracy(accuracies), forgetting(accuracies)
    sizes = metrics.class_sizes(y, dataset.classes)
    measured = _metrics(dataset, predicted, sizes)
    joint_accuracy = metrics.accuracy(dataset.y_test, joint)
    return {
        **_conditions(cell, method, model),
        "parameters": _as_json(cell.parameters),
        "search": None,
        "data": _data(dataset, sizes, public),
        "metrics": {
            **measured,
            "average_accuracy": float(averages[-1]),
            "forgetting": float(forgot[-1]),
            "joint_accuracy": joint_accuracy,
            "below_joint": joint_accuracy - measured["accuracy"],
            "total_mu": model.guarantee_.mu if method.private else None,
        },
        "stream": {
            "accuracies": [row[: place + 1].tolist() for place, row in enumerate(accuracies)],
            "average_accuracy": averages.tolist(),
            "forgetting": forgot.tolist(),
            "model_bytes": len(model.to_bytes()),
        },
        "seconds": seconds,
        "peak_memory_mib": mib,
    }


def _given(model: Any, tasks: list[Task]) -> list[Task]:
    """Return what each call of `partial_fit` takes: a task, or for some methods all tasks so far."""
    if not getattr(model, "takes_earlier_records", False):
        return tasks
    so_far = [tasks[: place + 1] for place in range(len(tasks))]
    return [
        Task(
            np.sort(np.concatenate([task.rows for task in some])), np.unique(np.concatenate([t.classes for t in some]))
        )
        for some in so_far
    ]


def _start(cell: Cell, dataset: Dataset, seed: int, n_tasks: int | None = None) -> Any:
    """Return the unfitted classifier, for as many tasks as the stream has unless their number is given."""
    budget, public = cell.make_budget(), PublicData(dataset.public(cell.pool, cell.seed))
    model = ALL_METHODS[cell.method].build(budget, dataset.classes, seed, cell.parameters, public)
    if cell.stream is None:
        return model
    n_tasks = n_tasks or cell.stream.n_tasks
    if _correlates(model) and model.max_tasks is None:
        model.max_tasks = n_tasks
    if cell.in_all:
        if getattr(model, "tasks", "disjoint") == "disjoint" or budget is None:
            raise ParameterError("in_all is for methods whose tasks overlap, so that their costs add up.")
        model.budget = split(budget, [1] * n_tasks)[0]
    return model


def _correlates(model: Any) -> bool:
    return getattr(model, "noise", "independent") != "independent"


@contextmanager
def _kept(model: Any) -> Iterator[dict[str, Path]]:
    """Give a classifier of correlated noise a file for its private state, which ends with the stream."""
    if not _correlates(model):
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        yield {"state": Path(folder) / "state"}


def _conditions(cell: Cell, method: Method, model: Any) -> dict[str, Any]:
    """Return what the result holds under: the budget, the promise, and whether that covers the parameters."""
    budget, private = cell.make_budget(), method.private and not cell.non_private
    return {
        "e": None if budget is None else paper_epsilon(budget),
        "notion": "none" if budget is None or not private else budget.notion,
        **_promise(model if private else None),
        "tuned": cell.tuned,
        "covered": not cell.tuned if private else None,
    }


def _data(dataset: Dataset, sizes: NDArray[np.int64], public: NDArray[Any] | None) -> dict[str, Any]:
    return {
        "n_train": int(sizes.sum()),
        "n_test": len(dataset.y_test),
        "n_public": None if public is None else len(public),
        "dim": dataset.X.shape[1],
        "class_sizes": sizes.tolist(),
    }


def _records(cell: Cell, dataset: Dataset, rows: Rows) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return the private records of a cell, drawn from these rows, and the ids of their persons if there are any."""
    groups = None if dataset.groups is None else dataset.groups[rows]
    if cell.ir != NATURAL:
        if cell.classes is None:
            chosen = long_tailed(dataset.y[rows], float(cell.ir), cell.seed, groups=groups)
        else:
            chosen = cell.classes.long_tailed(dataset.y[rows], float(cell.ir), cell.seed)
        rows, groups = rows[chosen], None if groups is None else groups[chosen]
    X, y = dataset.X[rows], dataset.y[rows]
    if cell.persons is None or cell.persons.number is None:
        return X, y, groups
    given = {name: getattr(cell.persons, name) for name in ("largest", "share", "offset")}
    return made_up_persons(X, y, cell.persons.number, cell.seed, **given)


def _promise(model: Any) -> dict[str, Any]:
    """Return what the guarantee says; nothing for references without one."""
    if model is None:
        return {"adjacency": None, "unit": None, "exact": None}
    guarantee = model.guarantee_
    return {"adjacency": guarantee.adjacency, "unit": guarantee.unit, "exact": guarantee.exact}


def _coinpress(refit: Callable[[dict[str, Any]], Any], model: Any, sizes: NDArray[np.int64]) -> dict[str, list[float]]:
    """Return the mean radius of the classes' balls, first and after each step, and the mean norm of their estimates.

    Both are in the mechanism's units. The first steps of a fit are a fit that stops after them: the shares of the
    budget are those of the whole.
    """
    (release,) = model.guarantee_.releases
    split = tuple(release.parameters.values())
    mechanism = CoinPress(release.cost["mu"], split=split)
    radii = zip(*(mechanism.radii(int(n), model.lattice_) for n in sizes), strict=True)
    models = [*(refit({"coinpress": split[:steps]}) for steps in range(1, len(split))), model]
    norms = [float(np.linalg.norm(one.prototypes_, axis=1).mean() * one.lattice_.dim**0.5) for one in models]
    return {"radius": [fmean(each) for each in radii], "norm": norms}


def _metrics(dataset: Dataset, predicted: NDArray[Any], sizes: NDArray[np.int64]) -> dict[str, Any]:
    each = metrics.class_accuracies(dataset.y_test, predicted, dataset.classes)
    # Rare are classes of few training records; the test set may hold none of some.
    smallest = each[metrics.minority_classes(sizes)]
    smallest = smallest[~np.isnan(smallest)]
    persons = {}
    if dataset.groups_test is not None:
        persons["person_accuracy"] = float(
            metrics.person_accuracies(dataset.y_test, predicted, dataset.groups_test).mean()
        )
    return {
        **persons,
        "accuracy": metrics.accuracy(dataset.y_test, predicted),
        "balanced_accuracy": metrics.balanced_accuracy(dataset.y_test, predicted, dataset.classes),
        "minority_accuracy": float(smallest.mean()) if len(smallest) else None,
        "class_accuracies": [None if np.isnan(value) else float(value) for value in each],
    }


def _calibration_error(dataset: Dataset, model: Any) -> float | None:
    if not hasattr(model, "predict_proba"):
        return None
    probabilities = model.predict_proba(np.asarray(dataset.X_test))
    return metrics.calibration_error(dataset.y_test, probabilities, model.classes_)


def _head(cell: Cell, status: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "key": cell.key,
        "status": status,
        "cell": cell.to_dict(),
        "software": software_versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _as_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    for clock, passed in (("wall", time.perf_counter() - wall), ("cpu", time.process_time() - cpu)):
        seconds[f"{name}_{clock}"] = seconds.get(f"{name}_{clock}", 0.0) + passed


@contextmanager
def _peak_memory() -> Iterator[Callable[[], float]]:
    """Measure the largest resident size of this process, in MiB: on Linux since here, elsewhere since its start."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
        status = Path("/proc/self/status")
        yield lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    else:
        import resource

        scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
        yield lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


_LOADED: dict[tuple[str, str], Dataset] = {}


def _cached(spec: DatasetSpec) -> Dataset:
    """Load a data set once a process."""
    key = spec.name, spec.encoder
    if key not in _LOADED:
        _LOADED[key] = load_dataset(spec)
    return _LOADED[key]
