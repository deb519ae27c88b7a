"""Streams of tasks in experiments: how evaluation data is cut, and the benchmarks of the literature by name.

References
----------
DP-CL: Tobaben, Klasson, Li, Solin, Honkela, arXiv:2411.04680v2, section 4 and appendix C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError
from dppl.lab.experiments.datasets import Dataset
from dppl.lab.streams import Task, blurry, class_incremental, data_sets, shuffled

__all__ = ["APART", "KINDS", "RECIPES", "Recipe", "Stream", "tasks_of_test_rows", "tasks_of_training_rows"]

_CUTS: dict[str, Callable[..., list[Task]]] = {
    "class-incremental": class_incremental,
    "shuffled": shuffled,
    "blurry": blurry,
}
DATA_SETS = "data-sets"
KINDS = (*_CUTS, DATA_SETS)
# Kinds whose tasks have classes of their own, which may be told.
APART = ("class-incremental", DATA_SETS)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A benchmark of DP-CL."""

    # names of the data sets, which are their folders' as well unless a configuration says otherwise
    datasets: tuple[str, ...]
    kind: str
    n_tasks: int
    n_classes: tuple[int, ...]  # of each data set
    whole: bool = False  # whether the data set comes in one piece, of which a random fifth is the test set


RECIPES = {
    "cifar100-10x10": Recipe(("cifar100",), "class-incremental", 10, (100,)),
    "imagenet-r-10x20": Recipe(("imagenet-r",), "class-incremental", 10, (200,), whole=True),
    "5-dataset": Recipe(("mnist", "svhn", "notmnist", "fashion-mnist", "cifar10"), DATA_SETS, 5, (10,) * 5),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """How a data set becomes a stream, as a configuration says it."""

    kind: str  # one of `KINDS`
    n_tasks: int
    elsewhere: float | None = None  # share of the rows that go anywhere; for ``"blurry"``
    told: bool = False  # whether the classes of each task are public, and told to the method
    recipe: str | None = None  # name in `RECIPES`

    @property
    def name(self) -> str:
        """What the stream is called, whatever is told."""
        if self.recipe is not None:
            return self.recipe
        elsewhere = "" if self.elsewhere is None else f", a share of {self.elsewhere:g} anywhere"
        return f"{self.n_tasks} tasks, {self.kind}{elsewhere}"

    def check(self, dataset: Dataset) -> None:
        """Look whether the data set has the classes and test rows that the stream needs."""
        sizes = dataset.n_classes_of_parts or (len(dataset.classes),)
        if self.recipe is not None and sizes != (expected := RECIPES[self.recipe].n_classes):
            named, found = (" + ".join(map(str, numbers)) for numbers in (expected, sizes))
            raise InputError(f"{self.recipe} has {named} classes; the data has {found}.")
        if self.kind != "shuffled" and self.n_tasks > len(dataset.classes):
            raise InputError(f"{self.n_tasks} tasks need as many classes; the data has {len(dataset.classes)}.")
        if self.n_tasks > len(dataset.y_test):
            raise InputError(f"{self.n_tasks} tasks need as many test rows; the data has {len(dataset.y_test)}.")


def tasks_of_training_rows(stream: Stream, dataset: Dataset, y: NDArray[Any], seed: int) -> list[Task]:
    """Cut training rows with labels `y` into tasks; the seed orders classes and places rows."""
    if stream.kind == DATA_SETS:
        lists = np.split(dataset.classes, np.cumsum(dataset.n_classes_of_parts)[:-1])
        return data_sets([int(np.isin(y, names).sum()) for names in lists], lists)
    more = {} if stream.elsewhere is None else {"elsewhere": stream.elsewhere}
    return _CUTS[stream.kind](y, dataset.classes, stream.n_tasks, seed, **more)


def tasks_of_test_rows(stream: Stream, dataset: Dataset, seed: int) -> list[Task]:
    """Cut test rows into the tasks that they belong to; those of a blurry stream are of the classes at home in it."""
    if stream.kind == "blurry":
        stream = replace(stream, kind="class-incremental", elsewhere=None)
    tasks = tasks_of_training_rows(stream, dataset, dataset.y_test, seed)
    if not all(len(task.rows) for task in tasks):
        raise InputError("every task of a stream must have test rows, and one has none; take fewer tasks.")
    return tasks
