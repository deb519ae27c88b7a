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

__all__ = ["APART", "KINDS", "RECIPES", "Recipe", "Stream"]

_CUTS: dict[str, Callable[..., list[Task]]] = {
    "class-incremental": class_incremental,
    "shuffled": shuffled,
    "blurry": blurry,
}
DATA_SETS = "data-sets"
KINDS = (*_CUTS, DATA_SETS)
# Kinds whose tasks have separate classes, which a method may be given.
APART = ("class-incremental", DATA_SETS)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A benchmark of DP-CL."""

    # names of the data sets, and of their folders unless a configuration says otherwise
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
    told: bool = False  # whether the classes of each task are public, and given to the method
    recipe: str | None = None  # name in `RECIPES`

    @property
    def name(self) -> str:
        """Its name, whichever classes a method is given."""
        if self.recipe is not None:
            return self.recipe
        elsewhere = "" if self.elsewhere is None else f", a share of {self.elsewhere:g} anywhere"
        return f"{self.n_tasks} tasks, {self.kind}{elsewhere}"

    def check(self, dataset: Dataset) -> None:
        """Look whether the data set has the classes and test rows that the stream needs."""
        sizes = dataset.n_classes_of_parts or (len(dataset.classes),)
        if self.recipe is not None and sizes != (expected := RECIPES[self.recipe].n_classes):
            named, actual = (" + ".join(map(str, numbers)) for numbers in (expected, sizes))
            raise InputError(f"{self.recipe} has {named} classes; the data has {actual}.")
        if self.kind != "shuffled" and self.n_tasks > len(dataset.classes):
            raise InputError(f"{self.n_tasks} tasks need as many classes; the data has {len(dataset.classes)}.")
        if self.n_tasks > len(dataset.y_test):
            raise InputError(f"{self.n_tasks} tasks need as many test rows; the data has {len(dataset.y_test)}.")

    def tasks(self, dataset: Dataset, y: NDArray[Any], seed: int) -> list[Task]:
        """Cut rows with labels `y` into tasks; the seed orders classes and places rows."""
        if self.kind == DATA_SETS:
            lists = np.split(dataset.classes, np.cumsum(dataset.n_classes_of_parts)[:-1])
            return data_sets([int(np.isin(y, names).sum()) for names in lists], lists)
        more = {} if self.elsewhere is None else {"elsewhere": self.elsewhere}
        return _CUTS[self.kind](y, dataset.classes, self.n_tasks, seed, **more)

    def test_tasks(self, dataset: Dataset, seed: int) -> list[Task]:
        """Cut the test rows into the tasks that they belong to; in a blurry stream by the classes at home in a task."""
        home = replace(self, kind="class-incremental", elsewhere=None) if self.kind == "blurry" else self
        tasks = home.tasks(dataset, dataset.y_test, seed)
        if not all(len(task.rows) for task in tasks):
            raise InputError("every task of a stream must have test rows, and one has none; take fewer tasks.")
        return tasks
