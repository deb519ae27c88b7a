"""Streams of evaluation data: which rows of a labelled set are in which task, and what a model forgets of earlier ones.

All randomness is public. A stream of real records is cut by the calendar or by source,
and never by what the records hold; see docs/continual.md. Functions take labels `y`,
the public list of classes, the number of tasks, and a seed, and return a list of tasks.

What a model knows is computed from a(t, i), the accuracy on the test rows of task i
after task t: entry (t, i) of a square matrix of which nothing above the diagonal is
read. No task is named at the test. These are plain numbers without protection: on
private records no guarantee covers them.

References
----------
DP-CL: Tobaben, Klasson, Li, Solin, Honkela, arXiv:2411.04680v2, section 4 and appendix C, whose benchmarks have names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils import validate
from dppl._utils.types import Array, Float
from dppl.errors import InputError, ParameterError

if TYPE_CHECKING:
    from dppl.lab.experiments.datasets import Dataset


class StreamTask(NamedTuple):
    """One task of a stream."""

    rows: NDArray[np.int64]  # in increasing order
    classes: Array  # those that it may hold, which is public


def class_incremental(
    y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int
) -> list[StreamTask]:
    """Give each task its own classes, in a random order and in nearly equal numbers.

    >>> [task.rows.tolist() for task in class_incremental(["a", "b", "a", "c"], ["a", "b", "c"], 2, seed=0)]
    [[0, 2, 3], [1]]
    """
    labels, names = _checked(y, classes, n_tasks)
    if n_tasks > len(names):
        raise ParameterError(
            f"n_tasks must be at most the number of classes, {len(names)}; got {n_tasks}."
        )
    parts = np.array_split(np.random.default_rng(seed).permutation(names), n_tasks)
    return [
        StreamTask(np.flatnonzero(np.isin(labels, part)), np.sort(part))
        for part in parts
    ]


def shuffled(
    y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int
) -> list[StreamTask]:
    """Spread all classes over all tasks: each row goes to a task at random, and each task may hold every class."""
    labels, names = _checked(y, classes, n_tasks)
    return _placed(
        np.random.default_rng(seed).integers(n_tasks, size=len(labels)), names, n_tasks
    )


def blurry(
    y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int, *, elsewhere: float = 0.1
) -> list[StreamTask]:
    """Give each task its own classes, but let rows go to any task with the probability `elsewhere`."""
    if not 0 <= elsewhere <= 1:
        raise ParameterError(f"elsewhere must be from 0 to 1; got {elsewhere!r}.")
    labels, names = _checked(y, classes, n_tasks)
    place = np.empty(len(labels), np.intp)
    for number, task in enumerate(class_incremental(labels, names, n_tasks, seed)):
        place[task.rows] = number
    # Not the random numbers that ordered the classes.
    rng = np.random.default_rng([seed, 1])
    moved = rng.random(len(labels)) < elsewhere
    anywhere = rng.integers(n_tasks, size=len(labels))
    return _placed(np.where(moved, anywhere, place), names, n_tasks)


def drifting(
    y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int
) -> list[StreamTask]:
    """Let each class become more or less frequent from task to task, by up to tenfold from the first to the last."""
    labels, names = _checked(y, classes, n_tasks)
    # Rates first, so that training and test rows drift alike.
    rng = np.random.default_rng(seed)
    rates = rng.uniform(-1, 1, size=(len(names), 1))
    shares = 10.0 ** (rates * np.linspace(0, 1, n_tasks))
    below = shares.cumsum(axis=1)[np.searchsorted(np.sort(names), labels)]
    drawn = rng.random((len(labels), 1)) * below[:, -1:]
    return _placed((drawn >= below).sum(axis=1), names, n_tasks)


def data_sets(lengths: Sequence[int], classes: Sequence[ArrayLike]) -> list[StreamTask]:
    """Make each data set a task, of data sets of these lengths whose rows stand one after another.

    >>> [task.rows.tolist() for task in data_sets([2, 1], [["a", "b"], ["c"]])]
    [[0, 1], [2]]
    """
    if len(lengths) != len(classes):
        raise InputError(
            f"there must be a class list for each data set; got {len(classes)} for {len(lengths)}."
        )
    rows = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    return [
        StreamTask(part, np.sort(np.asarray(names)))
        for part, names in zip(rows, classes, strict=True)
    ]


def _placed(place: Array, names: Array, n_tasks: int) -> list[StreamTask]:
    return [
        StreamTask(np.flatnonzero(place == number), np.sort(names))
        for number in range(n_tasks)
    ]


def _checked(y: ArrayLike, classes: ArrayLike, n_tasks: int) -> tuple[Array, Array]:
    validate.positive_integer(n_tasks=n_tasks)
    labels = np.asarray(y)
    names = np.asarray(classes)
    if labels.ndim != 1 or names.ndim != 1 or len(np.unique(names)) != len(names):
        raise InputError(
            "y and classes must be one-dimensional, and the classes different."
        )
    if not np.isin(labels, names).all():
        raise InputError("every label of a stream must be one of its classes.")
    return labels, names


def average_accuracy(accuracies: Float) -> Float:
    """Return the mean of a(t, i) over the tasks i up to t, after each task t.

    >>> average_accuracy(np.array([[0.9, 0.0], [0.5, 0.7]])).tolist()
    [0.9, 0.6]
    """
    return np.array([row[: t + 1].mean() for t, row in enumerate(accuracies)])


def forgetting(accuracies: Float) -> Float:
    """Return how much lower accuracies on earlier tasks are than they once were, after each task; 0 after the first.

    For an earlier task i that is the largest a(s, i) after the tasks s from i to t - 1,
    minus a(t, i), averaged over all i before t. The maximum does not include the
    current task, so forgetting is negative where an accuracy rises above all it was
    before.

    >>> forgetting(np.array([[0.9, 0.0], [0.5, 0.7]])).tolist()
    [0.0, 0.4]
    """
    a = accuracies
    lost = [[a[i:t, i].max() - a[t, i] for i in range(t)] for t in range(len(a))]
    return np.array([np.mean(task) if task else 0.0 for task in lost])


_CUTS: dict[str, Callable[..., list[StreamTask]]] = {
    "class-incremental": class_incremental,
    "shuffled": shuffled,
    "blurry": blurry,
    "drifting": drifting,
}
DATA_SETS = "data-sets"
KINDS = (*_CUTS, DATA_SETS)
# Kinds whose tasks have separate classes, which a method may be given.
APART = ("class-incremental", DATA_SETS)


@dataclass(frozen=True, slots=True)
class StreamRecipe:
    """A benchmark of DP-CL."""

    # names of the data sets, and of their folders unless a configuration says otherwise
    datasets: tuple[str, ...]
    kind: str
    n_tasks: int
    n_classes: tuple[int, ...]  # of each data set
    whole: bool = False  # whether the data set comes in one piece, of which a random fifth is the test set


RECIPES = {
    "cifar100-10x10": StreamRecipe(("cifar100",), "class-incremental", 10, (100,)),
    "imagenet-r-10x20": StreamRecipe(
        ("imagenet-r",), "class-incremental", 10, (200,), whole=True
    ),
    "5-dataset": StreamRecipe(
        ("mnist", "svhn", "notmnist", "fashion-mnist", "cifar10"),
        DATA_SETS,
        5,
        (10,) * 5,
    ),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """How a data set becomes a stream, as a configuration says it."""

    kind: str  # one of `KINDS`
    n_tasks: int
    elsewhere: float | None = (
        None  # share of the rows that go anywhere; for ``"blurry"``
    )
    told: bool = (
        False  # whether the classes of each task are public, and given to the method
    )
    recipe: str | None = None  # name in `RECIPES`

    @property
    def name(self) -> str:
        """Its name, whichever classes a method is given."""
        if self.recipe is not None:
            return self.recipe
        elsewhere = ""
        if self.elsewhere is not None:
            elsewhere = f", a share of {self.elsewhere:g} anywhere"
        return f"{self.n_tasks} tasks, {self.kind}{elsewhere}"

    def check(self, dataset: Dataset) -> None:
        """Look whether the data is what a benchmark is cut from."""
        sizes = dataset.n_classes_of_parts or (len(dataset.classes),)
        if self.recipe is not None and sizes != (
            expected := RECIPES[self.recipe].n_classes
        ):
            named, actual = (
                " + ".join(map(str, numbers)) for numbers in (expected, sizes)
            )
            raise InputError(
                f"{self.recipe} has {named} classes; the data has {actual}."
            )

    def tasks(self, dataset: Dataset, y: Array, seed: int) -> list[StreamTask]:
        """Cut rows with labels `y` into tasks; the seed orders classes and places rows."""
        if self.kind == DATA_SETS:
            lists = np.split(
                dataset.classes, np.cumsum(dataset.n_classes_of_parts)[:-1]
            )
            return data_sets([int(np.isin(y, names).sum()) for names in lists], lists)
        if self.elsewhere is None:
            more = {}
        else:
            more = {"elsewhere": self.elsewhere}
        return _CUTS[self.kind](y, dataset.classes, self.n_tasks, seed, **more)

    def test_tasks(self, dataset: Dataset, seed: int) -> list[StreamTask]:
        """Cut the test rows into the tasks that they belong to; in a blurry stream by the classes at home in a task."""
        if self.kind == "blurry":
            home = replace(self, kind="class-incremental", elsewhere=None)
        else:
            home = self
        tasks = home.tasks(dataset, dataset.y_test, seed)
        if not all(len(task.rows) for task in tasks):
            raise InputError(
                "every task of a stream must have test rows, and one has none; take fewer tasks."
            )
        return tasks
