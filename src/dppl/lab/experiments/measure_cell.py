"""What happens in one cell: draw the subset, fit, predict, measure."""

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
from dppl._utils.types import Array
from dppl.errors import DpplError, InputError, ParameterError
from dppl.kernel.mechanisms import CoinPress
from dppl.kernel.persons import ids_of_fit
from dppl.kernel.privacy.budgets import split
from dppl.kernel.privacy.guarantee import software_versions
from dppl.lab import long_tailed
from dppl.lab.experiments.cells import NATURAL, NO_NOISE, SCHEMA, Cell
from dppl.lab.experiments.compared_methods import ALL_METHODS, searched_method
from dppl.lab.experiments.datasets import (
    Dataset,
    DatasetSpec,
    rows_of_classes,
)
from dppl.lab.experiments.image_sets import load
from dppl.lab.experiments.layer_noise import layers_of
from dppl.lab.experiments.names import paper_epsilon
from dppl.lab.experiments.results import DONE, FAILED, Result
from dppl.lab.experiments.tuning import TunedOn, search_privately, tune
from dppl.lab.task_streams import StreamTask, average_accuracy, forgetting
from dppl.methods import PublicData
from dppl.methods.fit_plan import seed_of

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_Specs = Mapping[tuple[str, str], DatasetSpec]
_POINTS = 1000  # rows of each kind that a picture shows
_LOADED: dict[tuple[str, str], Dataset] = {}  # once a process
_TUNED: dict[str, dict[str, Any]] = {}  # settings of all tasks, by the key of a search


def check_cells(cells: Iterable[Cell], datasets: _Specs) -> None:
    """Look for what would stop cells, without a fit: shapes, pools, parameters, and streams with every seed."""
    cells = list(cells)
    loaded = {key: load(spec, whole=False) for key, spec in datasets.items()}
    # Neither seed nor imbalance ratio matters here.
    different = {replace(cell, ir=NATURAL, seed=0).key: cell for cell in cells}
    for cell in different.values():
        dataset = _given_to(cell, loaded[cell.dataset, cell.encoder])
        if cell.pool is not None:
            dataset.available(cell.pool)
        dataset.split(cell.examples, cell.seed)
        if cell.stream is not None:
            cell.stream.check(dataset)
        alone = cell.trials or cell.search or cell.stream is not None
        if dataset.groups is not None and alone:
            raise ParameterError(
                f"data set {cell.dataset!r} has groups in files; tune, search and streams take none."
            )
        try:
            model = _start(cell, dataset, cell.noise_seed)
            method = ALL_METHODS[cell.method]
            if method.private and not method.of_images:
                most = getattr(model, "max_tasks", None)
                if (
                    cell.stream is not None
                    and most is not None
                    and most < cell.stream.n_tasks
                ):
                    raise ParameterError(
                        f"max_tasks is {most}, and the stream has {cell.stream.n_tasks} tasks."
                    )
                model.check_parameters()
                ids_of_fit(dataset.groups, dataset.X, model.max_classes_per_person)
                width = dataset.X.shape[1]
                model._lattice(
                    width,
                    None if cell.pool is None else np.ones((1, width), np.float32),
                )
        except (DpplError, TypeError, ValueError) as error:
            given = (
                ", ".join(f"{name}: {value}" for name, value in cell.parameters.items())
                or "no parameters"
            )
            raise ParameterError(
                f"{cell.method} with {given}, on data set {cell.dataset!r}: {error}"
            ) from None
    for key, stream, seed in dict.fromkeys(
        ((c.dataset, c.encoder), c.stream, c.seed) for c in cells
    ):
        if stream is not None:
            try:
                stream.test_tasks(loaded[key], seed)
            except (InputError, ParameterError) as error:
                raise type(error)(
                    f"{stream.name}, of data set {key[0]!r} with seed {seed}: {error}"
                ) from None


def run_cell(cell: Cell, datasets: _Specs) -> Result:
    """Compute a cell; one that fails gives a result too, with class and message of the error."""
    try:
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
            warnings.simplefilter("always")
            needed = [(cell.dataset, cell.encoder)]
            needed += [(name, encoder) for name, encoder, _ in cell.tuned_on]
            for key in needed:
                if key not in _LOADED:
                    _LOADED[key] = load(datasets[key])
            dataset = _given_to(cell, _LOADED[needed[0]])
            if cell.stream is None:
                content = _measure(cell, dataset)
            else:
                content = _measure_stream(cell, dataset)
    except Exception as error:
        return failure(cell, type(error).__name__, str(error))
    texts = sorted(
        {f"{warning.category.__name__}: {warning.message}" for warning in caught}
    )
    return {**_head(cell, DONE), **content, "warnings": texts}


def _given_to(cell: Cell, dataset: Dataset) -> Dataset:
    """Return the data set as the cell has it: with its classes, and what its method is given."""
    dataset = dataset.few(cell.ways, cell.shots, cell.seed)
    dataset = dataset.merged(cell.classes, cell.seed)
    if ALL_METHODS[cell.method].of_images:
        return dataset.of_images()
    return dataset


def failure(cell: Cell, error: str, message: str) -> Result:
    """Return the result of a cell that failed."""
    return {**_head(cell, FAILED), "error": error, "message": message}


def _head(cell: Cell, status: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "key": cell.key,
        "status": status,
        "cell": cell.to_dict(),
        "software": software_versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _measure(cell: Cell, dataset: Dataset) -> Result:
    method = ALL_METHODS[cell.method]
    budget = cell.make_budget()
    rows, examples = dataset.split(cell.examples, cell.seed)
    X, y, persons = _records(cell, dataset, rows)
    further: dict[str, Any] = {}
    if method.private:
        further = persons
    elif method.from_base:
        further = {"base": dataset.base}
    # Rows that serve as examples are public, so no private record is among them.
    given = PublicData(dataset.public(cell.pool, cell.seed), *examples)
    parameters = dataset.given | cell.parameters
    searched = None
    seconds = dict[str, float]()

    def fit(
        settings: Mapping[str, Any], X: Any, y: Any, seed: int, **further: Any
    ) -> Any:
        model = method.build(budget, dataset.classes, seed, settings, given)
        return method.sized(model, len(y)).fit(X, y, **further)

    if cell.trials:
        # The search looks at private records and pays nothing for it; `covered` says so
        # in the result.
        with _timed(seconds, "tune"):
            searched = tune(cell, method, [TunedOn(fit, X, y, dataset.classes)])
        parameters |= searched["best"]
    with _timed(seconds, "fit"):
        if cell.search:
            start = method.build(
                budget, dataset.classes, cell.noise_seed, parameters, given
            )
            model, searched = search_privately(cell, method, start, X, y)
            parameters |= searched["best"]
        else:
            model = fit(parameters, X, y, cell.noise_seed, **further)
    with _timed(seconds, "predict"):
        predicted = model.predict(np.asarray(dataset.X_test))
    measured = _result(cell, dataset, model, y, predicted, seconds)
    error = None
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(np.asarray(dataset.X_test))
        error = metrics.calibration_error(dataset.y_test, probabilities, model.classes_)
    measured["metrics"]["calibration_error"] = error
    if cell.method == "coinpress":
        # Published figures trace its radius, so it is fitted again with fewer steps and
        # the same noise.
        sizes = measured["data"]["class_sizes"]
        measured["coinpress"] = _coinpress(
            lambda more: fit(parameters | more, X, y, cell.noise_seed), model, sizes
        )
    if cell.scatter:
        measured["scatter"] = _in_plane(model, X, y, dataset, predicted)
    if cell.layers:
        measured["layers"] = layers_of(model, X, y)
    return {**measured, "parameters": parameters, "search": searched}


def _measure_stream(cell: Cell, dataset: Dataset) -> Result:
    """Learn task after task, and test the model after each on the test rows of all tasks so far, without naming one."""
    assert cell.stream is not None
    cell.stream.check(dataset)
    X, y, _ = _records(cell, dataset, np.arange(len(dataset.y)))
    X_test = np.asarray(dataset.X_test)
    tasks = cell.stream.tasks(dataset, y, cell.seed)
    tests = cell.stream.test_tasks(dataset, cell.seed)
    is_told = cell.stream.told
    seconds: dict[str, float] = {}
    settled = cell
    searched = None
    if cell.trials or cell.search:
        first = tasks[0].rows
        with _timed(seconds, "tune"):
            settled, searched = _settled(cell, dataset, X[first], y[first])
    alone = tasks if cell.alone else []
    method = ALL_METHODS[cell.method]
    model = method.sized(_start(settled, dataset, cell.noise_seed), len(y) / len(tasks))
    if getattr(model, "takes_earlier_records", False):
        so_far = [tasks[: place + 1] for place in range(len(tasks))]
        tasks = [
            StreamTask(
                *(
                    np.unique(np.concatenate(parts))
                    for parts in zip(*several, strict=True)
                )
            )
            for several in so_far
        ]
    # Entry (t, i) is the accuracy on task i after task t; what lies above the diagonal
    # is not measured.
    accuracies = np.full((len(tests), len(tests)), np.nan)
    # A classifier of correlated noise has its private state in a file, which ends with
    # the stream.
    with tempfile.TemporaryDirectory() as folder:

        def learn(model: Any, task: StreamTask, name: str) -> Any:
            told = task.classes if is_told else None
            state = {"state": Path(folder) / name} if _correlates(model) else {}
            return model.partial_fit(
                X[task.rows], y[task.rows], task_classes=told, **state
            )

        for number, task in enumerate(tasks):
            with _timed(seconds, "fit"):
                learn(model, task, "state")
            with _timed(seconds, "predict"):
                predicted = model.predict(X_test)
            right = predicted == dataset.y_test
            accuracies[number, : number + 1] = [
                right[test.rows].mean() for test in tests[: number + 1]
            ]
        # The model of a task by itself has the noise that the task had in the stream, so
        # those of an ensemble are its members.
        reached = []
        for number, (task, test) in enumerate(zip(alone, tests, strict=False)):
            seed = seed_of(cell.noise_seed, number) if number else cell.noise_seed
            one = _start(settled, dataset, seed, n_tasks=1)
            one = learn(method.sized(one, len(y) / len(tasks)), task, str(number))
            right = one.predict(X_test[test.rows]) == dataset.y_test[test.rows]
            reached.append(float(right.mean()))
    # A model of all tasks at once says how much of the loss is due to learning one
    # after the other; its noise is not the noise of the first task.
    with _timed(seconds, "joint"):
        at_once = _start(settled, dataset, cell.noise_seed + 1, n_tasks=1)
        joint = method.sized(at_once, len(y)).fit(X, y).predict(X_test)
    averages = average_accuracy(accuracies)
    forgot = forgetting(accuracies)
    measured = _result(cell, dataset, model, y, predicted, seconds)
    joint_accuracy = metrics.accuracy(dataset.y_test, joint)
    measured["metrics"] |= {
        "average_accuracy": float(averages[-1]),
        "forgetting": float(forgot[-1]),
        "joint_accuracy": joint_accuracy,
        "below_joint": joint_accuracy - measured["metrics"]["accuracy"],
        # A model of one task states the cost of that task.
        "total_mu": getattr(model, "total_mu_", model.guarantee_.mu)
        if method.private
        else None,
    }
    if method.of_images:
        size = model.values_.nbytes
    else:
        size = len(model.to_bytes())
    stream = {
        "accuracies": [
            row[: place + 1].tolist() for place, row in enumerate(accuracies)
        ],
        "average_accuracy": averages.tolist(),
        "forgetting": forgot.tolist(),
        "model_bytes": size,
        **({"alone": reached} if reached else {}),
    }
    return {
        **measured,
        "parameters": settled.parameters,
        "search": searched,
        "stream": stream,
    }


def _settled(
    cell: Cell, dataset: Dataset, X: Array, y: Array
) -> tuple[Cell, dict[str, Any]]:
    """Return a cell of a stream with the settings of DP-SGD that its first task chooses, and how they were found.

    DP-CL tunes once for each budget and seed, and takes what it finds for all of its
    methods and data sets; that is free (`trials`), and by all tasks of all streams
    (`tuned_on`) as published. A private search takes half of epsilon and of delta from
    the stream: costs of both add up for records of the first task.
    """
    method = ALL_METHODS[cell.method]
    searched = searched_method(cell.method)
    shared = {
        name: one
        for name, one in cell.parameters.items()
        if name in searched.parameters
    }
    # Without what tells methods apart, so that all of them have one setting.
    alike = replace(cell, method="", parameters=shared, in_all=False, alone=False)
    if cell.trials:
        parts = [_part(cell, dataset, X, y)]
        if cell.tuned_on:
            alike = replace(alike, dataset="", encoder="", stream=None)
            parts = list(_parts(cell))
        # Cells of other methods and streams ask again.
        if alike.key not in _TUNED:
            _TUNED[alike.key] = tune(alike, searched, parts)
        found = _TUNED[alike.key]
        budget = cell.budget
    else:
        assert cell.budget is not None
        budget = {name: value / 2 for name, value in cell.budget.items()}
        half = replace(cell, budget=budget).make_budget()
        start = searched.build(half, dataset.classes, alike.noise_seed, shared)
        _, found = search_privately(alike, searched, start, X, y)
    parameters = cell.parameters | method.taken(found["best"])
    return replace(cell, parameters=parameters, budget=budget), found


def _parts(cell: Cell) -> Iterator[TunedOn]:
    """Yield every task of the streams that a cell is tuned on."""
    for name, encoder, stream in cell.tuned_on:
        dataset = _given_to(cell, _LOADED[name, encoder])
        X, y, _ = _records(cell, dataset, np.arange(len(dataset.y)))
        for task in stream.tasks(dataset, y, cell.seed):
            yield _part(cell, dataset, X[task.rows], y[task.rows])


def _part(cell: Cell, dataset: Dataset, X: Array, y: Array) -> TunedOn:
    """Return records of a task, to judge settings of the single fit by."""
    searched = searched_method(cell.method)

    def fit(settings: Mapping[str, Any], X: Any, y: Any, seed: int) -> Any:
        model = searched.build(cell.make_budget(), dataset.classes, seed, settings)
        return searched.sized(model, len(y)).fit(X, y)

    return TunedOn(fit, X, y, np.unique(y))


def _start(cell: Cell, dataset: Dataset, seed: int, n_tasks: int | None = None) -> Any:
    """Return the unfitted classifier, for as many tasks as the stream has unless their number is given."""
    budget = cell.make_budget()
    public = PublicData(dataset.public(cell.pool, cell.seed))
    model = ALL_METHODS[cell.method].build(
        budget, dataset.classes, seed, dataset.given | cell.parameters, public
    )
    if cell.stream is None:
        return model
    n_tasks = n_tasks or cell.stream.n_tasks
    if _correlates(model) and model.max_tasks is None:
        model.max_tasks = n_tasks
    if cell.in_all:
        if getattr(model, "tasks", "disjoint") == "disjoint" or budget is None:
            raise ParameterError(
                "in_all is for methods whose tasks overlap, so that their costs add up."
            )
        model.budget = split(budget, [1] * n_tasks)[0]
    return model


def _correlates(model: Any) -> bool:
    return getattr(model, "noise", "independent") != "independent"


def _records(
    cell: Cell, dataset: Dataset, rows: NDArray[np.int64]
) -> tuple[Array, Array, dict[str, Array]]:
    """Return the private records of a cell, drawn from these rows, and whose they are."""
    if cell.shots is not None:
        rows = rows[rows_of_classes(dataset.y[rows], cell.shots, cell.seed)]
    if cell.ir != NATURAL:
        tailed = long_tailed if cell.classes is None else cell.classes.long_tailed
        rows = rows[tailed(dataset.y[rows], float(cell.ir), cell.seed)]
    if dataset.groups is None:
        persons = {}
    else:
        persons = {"groups": dataset.groups[rows]}
    return dataset.X[rows], dataset.y[rows], persons


def _result(
    cell: Cell,
    dataset: Dataset,
    model: Any,
    y: Array,
    predicted: Array,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Return what was measured, and what it holds under: budget, promise, and whether that covers the parameters."""
    budget = cell.make_budget()
    # So little noise is no privacy, whatever a guarantee says.
    if budget is None or cell.budget == {"mu": NO_NOISE}:
        guarantee = None
    else:
        guarantee = model.guarantee_
    sizes = metrics.class_sizes(y, dataset.classes)
    public = dataset.public(cell.pool, cell.seed)
    each = metrics.class_accuracies(dataset.y_test, predicted, dataset.classes)
    # Rare are classes of few training records; the test set may hold none of some.
    smallest = each[metrics.minority_classes(sizes)]
    smallest = smallest[~np.isnan(smallest)]
    return {
        "e": None if budget is None else paper_epsilon(budget),
        "notion": "none" if budget is None or guarantee is None else budget.notion,
        **{
            name: guarantee and getattr(guarantee, name)
            for name in ("adjacency", "unit", "exact")
        },
        "tuned": cell.trials > 0,
        "covered": None if guarantee is None else not cell.trials,
        "data": {
            "n_train": int(sizes.sum()),
            "n_test": len(dataset.y_test),
            "n_public": None if public is None else len(public),
            "dim": int(np.prod(dataset.X.shape[1:])),
            "class_sizes": sizes.tolist(),
        },
        "metrics": {
            "accuracy": metrics.accuracy(dataset.y_test, predicted),
            "balanced_accuracy": metrics.balanced_accuracy(
                dataset.y_test, predicted, dataset.classes
            ),
            "minority_accuracy": float(smallest.mean()) if len(smallest) else None,
            "class_accuracies": [
                None if np.isnan(value) else float(value) for value in each
            ],
        },
        "seconds": seconds,
        # In bytes on macOS, else in KiB; of the process so far, with data and
        # libraries.
        "peak_memory_mib": resource
        and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / 2 ** (20 if sys.platform == "darwin" else 10),
    }


def _coinpress(
    refit: Callable[[dict[str, Any]], Any], model: Any, sizes: list[int]
) -> dict[str, list[float]]:
    """Return the mean radius first and after each step, and the mean norm of estimates, in the mechanism's units."""
    (release,) = model.guarantee_.releases
    split = tuple(share for name, share in release.parameters.items() if name != "mu")
    mechanism = CoinPress(release.cost["mu"], split=split)
    radii = zip(*(mechanism.radii(n, model.lattice_) for n in sizes), strict=True)
    # A fit that stops after the first steps has them as the whole one does: shares of
    # the budget are from the whole.
    models = [
        *(refit({"coinpress": split[:steps]}) for steps in range(1, len(split))),
        model,
    ]
    norms = [
        float(np.linalg.norm(one.prototypes_, axis=1).mean() * one.lattice_.dim**0.5)
        for one in models
    ]
    return {"radius": [fmean(each) for each in radii], "norm": norms}


def _in_plane(
    model: Any, X: Array, y: Array, dataset: Dataset, predicted: Array
) -> dict[str, list[Any]]:
    """Return means and some rows on the principal axes of the true means, for data that need no protection."""
    classes = model.classes_
    rows = model.lattice_.features(np.asarray(X)).astype(np.float64)
    codes = np.searchsorted(classes, y)
    true = np.stack([rows[codes == code].mean(axis=0) for code in np.unique(codes)])
    centre = true.mean(axis=0)
    axes = np.linalg.svd(true - centre, full_matrices=False)[2][:2].T

    def at(several: Array) -> list[list[float]]:
        return np.round((several - centre) @ axes, 4).tolist()  # type: ignore[no-any-return]

    tested = model.lattice_.features(np.asarray(dataset.X_test[:_POINTS]))
    return {
        "true": at(true),
        "private": at(model.prototypes_[np.unique(codes)]),
        "train": at(rows[:_POINTS]),
        "train_codes": np.unique(codes, return_inverse=True)[1][:_POINTS].tolist(),
        "test": at(tested),
        "right": (predicted == dataset.y_test)[:_POINTS].tolist(),
    }


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    wall = time.perf_counter()
    cpu = time.process_time()
    yield
    for clock, passed in (
        ("wall", time.perf_counter() - wall),
        ("cpu", time.process_time() - cpu),
    ):
        seconds[f"{name}_{clock}"] = seconds.get(f"{name}_{clock}", 0.0) + passed
