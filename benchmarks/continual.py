"""Accuracy after a stream of tasks, for docs/continual.md: python benchmarks/continual.py DATA [SEEDS].

DATA holds a folder for each data set with train_x.npy, train_y.npy, test_x.npy and
test_y.npy; labels are 0 to C - 1. Prints mean accuracy and standard deviation over
seeds; of a stream whose tasks have classes of their own also the average forgetting.
Prototypes come first, then ensembles and baselines. Seeded noise, so nothing here is
private.
"""

import sys
import warnings
from copy import copy
from pathlib import Path

import numpy as np

from dppl import ApproxDP, MeanPrototypes
from dppl.continual import ContinualEnsemble, ContinualPrototypes
from dppl.kernel.privacy.budgets import split
from dppl.lab import FullDataContinual, NaiveContinual
from dppl.lab.task_streams import (
    StreamTask,
    blurry,
    class_incremental,
    data_sets,
    forgetting,
    shuffled,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from overhearing import overheard

EPSILONS = (0.5, 1.0, 8.0)


def read(folder):
    x, y, x_test, y_test = (
        np.load(folder / f"{n}.npy") for n in ("train_x", "train_y", "test_x", "test_y")
    )
    return x.astype(np.float32), y, x_test.astype(np.float32), y_test


def joined(first, second):
    """Return two data sets one after the other, with classes of their own."""
    shift = first[1].max() + 1
    second = [part + shift if part.ndim == 1 else part for part in second]
    return tuple(np.concatenate(parts) for parts in zip(first, second, strict=True))


def in_three(y, classes, n_tasks, seed):
    """Put each class into three tasks at random."""
    rng = np.random.default_rng(seed)
    homes = np.stack([rng.permutation(n_tasks)[:3] for _ in classes])
    place = homes[y, rng.integers(3, size=len(y))]
    return [
        StreamTask(np.flatnonzero(place == number), classes)
        for number in range(n_tasks)
    ]


def in_three_tenths_elsewhere(y, classes, n_tasks, seed):
    return blurry(y, classes, n_tasks, seed, elsewhere=0.3)


def of_two_sets(y, classes, n_tasks, seed):
    first = int(np.argmax(y >= 77))  # banking77 comes first
    return data_sets([first, len(y) - first], [classes[:77], classes[77:]])


def learned(
    data, tasks, tests, budget, classes, seed, *, accumulate, told=False, shrink=False
):
    """Return accuracy and forgetting of a model of all tasks; `shrink` adds sums up as James and Stein do."""
    x, y, x_test, y_test = data
    model = ContinualPrototypes(
        budget, classes, accumulate=accumulate, random_state=1000 + seed
    )
    matrix = np.zeros((len(tasks), len(tasks)))
    total = 0.0
    for number, task in enumerate(tasks):
        with overheard() as released:
            model.partial_fit(
                x[task.rows], y[task.rows], task_classes=task.classes if told else None
            )
        ((mechanism, sums),) = released
        noise = (
            sums.shape[1]
            * mechanism.noise_std**2
            / np.square(sums, dtype=np.float64).sum(axis=1, keepdims=True)
        )
        total = total + np.maximum(0, 1 - noise) * sums if shrink else 0.0
        if shrink:
            model.prototypes_ = total
        right = model.predict(x_test) == y_test
        matrix[number] = [right[test.rows].mean() for test in tests]
    return right.mean(), forgetting(matrix)[-1]


def compare(title, data, make, n_tasks, seeds):
    x, y, x_test, y_test = data
    classes = np.arange(y.max() + 1)
    # Where every task may hold every class there are no test rows of its own.
    apart = make in (class_incremental, of_two_sets)
    rules = {
        "published sum": {"accumulate": "sum"},
        "James-Stein": {"accumulate": "sum", "shrink": True},
        "weighted": {"accumulate": "weighted"},
    } | ({"public task classes": {"accumulate": "sum", "told": True}} if apart else {})
    for epsilon in EPSILONS:
        budget = ApproxDP(epsilon, 1e-5)
        found = {}
        for seed in range(seeds):
            tasks = make(y, classes, n_tasks, seed)
            tests = (make if apart else class_incremental)(
                y_test, classes, n_tasks, seed
            )
            mean = MeanPrototypes(budget, classes, random_state=1000 + seed).fit(x, y)
            found.setdefault("one task", []).append((mean.score(x_test, y_test), 0.0))
            for name, rule in rules.items():
                found.setdefault(name, []).append(
                    learned(data, tasks, tests, budget, classes, seed, **rule)
                )
        show(f"{title}, epsilon {epsilon:g}", found, apart)


def show(title, found, apart):
    cells = []
    for name, pairs in found.items():
        accuracy, forgot = np.array(pairs).T
        cells.append(f"{name} {accuracy.mean():.3f} ± {accuracy.std(ddof=1):.3f}")
        cells[-1] += (
            f" (forgetting {forgot.mean():.3f})" if apart and name != "one task" else ""
        )
    print(f"{title}: {'; '.join(cells)}", flush=True)


def compare_heads(title, data, make, n_tasks, seeds):
    """Compare ensembles, by both rules of scores, and the baselines."""
    x, y, x_test, y_test = data
    classes = np.arange(y.max() + 1)
    apart = make is class_incremental
    for epsilon in EPSILONS:
        budget = ApproxDP(epsilon, 1e-5)
        found = {}
        methods = {
            "ensemble of probes": (ContinualEnsemble, budget, {}),
            "ensemble of softmax prototypes": (
                ContinualEnsemble,
                budget,
                {"head": "softmax"},
            ),
            "naive": (NaiveContinual, budget, {}),
            "all data, epsilon each": (FullDataContinual, budget, {}),
            "all data, epsilon in all": (
                FullDataContinual,
                split(budget, [1] * n_tasks)[0],
                {},
            ),
        }
        for seed in range(seeds):
            tasks = make(y, classes, n_tasks, seed)
            tests = class_incremental(y_test, classes, n_tasks, seed)
            for name, (estimator, each, options) in methods.items():
                model = estimator(each, classes, random_state=1000 + seed, **options)
                rules = (
                    ("normalised", "largest")
                    if estimator is ContinualEnsemble
                    else (None,)
                )
                matrix = {rule: np.zeros((n_tasks, n_tasks)) for rule in rules}
                for number, task in enumerate(tasks):
                    first = 0 if estimator.takes_earlier_records else number
                    given = np.concatenate(
                        [one.rows for one in tasks[first:number]] + [task.rows]
                    )
                    model.partial_fit(x[given], y[given])
                    for rule in rules:
                        right = predicted(model, x_test, rule) == y_test
                        matrix[rule][number] = [
                            right[test.rows].mean() for test in tests
                        ]
                for rule in rules:
                    accuracy = (predicted(model, x_test, rule) == y_test).mean()
                    key = name if rule is None else f"{name}, {rule}"
                    found.setdefault(key, []).append(
                        (accuracy, forgetting(matrix[rule])[-1])
                    )
        show(f"{title}, epsilon {epsilon:g}", found, apart)


def predicted(model, x, rule):
    """Return the labels by a rule of scores, which is no part of a fit."""
    used = model if rule is None else copy(model).set_params(scores=rule)
    return used.predict(x)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    banking, hwu, images = (
        read(folder / name) for name in ("banking77", "hwu64", "cifar10_mobilenetv2")
    )
    compare("banking77, 11 tasks of 7 classes", banking, class_incremental, 11, seeds)
    compare("banking77, shuffled over 11", banking, shuffled, 11, seeds)
    compare(
        "banking77, 11, three tenths elsewhere",
        banking,
        in_three_tenths_elsewhere,
        11,
        seeds,
    )
    compare("banking77, each class in 3 of 11", banking, in_three, 11, seeds)
    compare("banking77, 77 tasks of one class", banking, class_incremental, 77, seeds)
    compare("banking77, shuffled over 77", banking, shuffled, 77, seeds)
    compare("banking77 and hwu64, 2 tasks", joined(banking, hwu), of_two_sets, 2, seeds)
    compare(
        "cifar10_mobilenetv2, 5 tasks of 2 classes", images, class_incremental, 5, seeds
    )
    compare("cifar10_mobilenetv2, shuffled over 10", images, shuffled, 10, seeds)
    compare_heads(
        "banking77, 11 tasks of 7 classes", banking, class_incremental, 11, seeds
    )
    compare_heads("banking77, shuffled over 11", banking, shuffled, 11, seeds)
    compare_heads("hwu64, 8 tasks of 8 classes", hwu, class_incremental, 8, seeds)
    compare_heads("hwu64, shuffled over 8", hwu, shuffled, 8, seeds)
    compare_heads(
        "cifar10_mobilenetv2, 5 tasks of 2 classes", images, class_incremental, 5, seeds
    )
    compare_heads("cifar10_mobilenetv2, shuffled over 10", images, shuffled, 10, seeds)
