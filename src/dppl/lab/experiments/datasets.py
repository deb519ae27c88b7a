"""Evaluation data of experiments: the built-in ones, and the arrays of docs/experiments.md in a folder each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils import validate
from dppl._utils.types import Array
from dppl.errors import InputError, ParameterError
from dppl.lab import long_tailed
from dppl.lab.experiments.built_in import BUILT_IN

PARTS = ("train_x", "train_y", "test_x", "test_y")
# Of a data set in one piece.
WHOLE = ("x", "y")
_TEST_SHARE = 0.2
NAMES = "names"
# Files of images, in whole numbers of shape (n, height, width, 3), whose rows are those
# of the embeddings; and that of a data set in one piece.
IMAGES = ("train_images", "test_images")
WHOLE_IMAGES = "images"
# Rows and labels of other, public classes.
BASE = ("base_x", "base_y")
# Of scikit-learn, as images.
DIGITS = "digits"
# The file of the ids of persons, of the training rows.
GROUPS = "groups"
# How pydantic reads what a configuration gives as a dataclass.
_CLOSED = {"extra": "forbid"}


def random_rows(n: int, size: int, seed: int) -> NDArray[np.int64]:
    """Choose `size` of `n` rows without replacement."""
    return np.sort(
        np.random.default_rng(seed).choice(n, size=size, replace=False)
    ).astype(np.int64)


def held_out(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a random fifth of n places, always the same, and the others."""
    chosen = random_rows(n, int(_TEST_SHARE * n), seed=0)
    return chosen, np.setdiff1d(np.arange(n), chosen)


def rows_of_classes(
    codes: NDArray[np.intp], size: ArrayLike, seed: int
) -> NDArray[np.int64]:
    """Choose `size` rows of each class, or one size a class, without replacement; fewer are a part of more.

    >>> rows = rows_of_classes(np.array([0, 1, 0, 1, 0]), 2, seed=0)
    >>> len(rows), 1 in rows, 3 in rows
    (4, True, True)
    """
    # Other random numbers than those that a long-tailed subset is drawn from.
    order = np.random.default_rng((seed, 1)).permutation(len(codes))
    classes = np.unique(codes)
    sizes = np.broadcast_to(size, len(classes))
    chosen = [
        order[codes[order] == code][:most]
        for code, most in zip(classes, sizes, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Pool:
    """Public rows, as a configuration names them."""

    name: str
    first: int | None = None  # take the first so many rows of the file only
    rows: int | None = (
        None  # of those, draw so many at random, with the seed of the run
    )
    without: tuple[
        str, ...
    ] = ()  # skip, before all else, rows whose line in the pool's text file is one of these


@dataclass(frozen=True, slots=True)
class ExampleSpec:
    """Public examples of the classes, as a configuration names them."""

    # ``"names"`` are the rows of the data set's file of names, one of each class. A
    # number is how many training rows of each class, drawn with the seed of the run,
    # are taken to be public, and are no private records.
    source: int | str
    # whether the examples of all classes, or of half of them, stand for another class,
    # drawn with the seed of the run
    wrong: Literal["permuted", "half"] | None = None
    used: bool = True  # False only takes the rows out of the private ones, to compare a start from zero

    __pydantic_config__ = _CLOSED

    def __post_init__(self) -> None:
        if self.source != NAMES and (isinstance(self.source, str) or self.source < 1):
            raise ParameterError(
                f"must be {NAMES!r} or a number of at least 1; got {self.source!r}"
            )


@dataclass(frozen=True, slots=True)
class Merged:
    """A task of few classes, made of all classes of a data set; which ones, is drawn with the seed of the run."""

    alone: int = 0  # keep so many classes, and make one of all the others
    groups: int = (
        0  # make so many classes of all, each of as many as the others, or of one fewer
    )

    __pydantic_config__ = _CLOSED

    def __post_init__(self) -> None:
        if (self.alone < 1) == (self.groups < 2):
            raise ParameterError(
                "must have alone, of at least 1, or groups, of at least 2"
            )

    @property
    def name(self) -> str:
        """What follows the name of the data set."""
        if self.alone:
            if self.alone == 1:
                return "one class against the rest"
            return f"{self.alone} classes and the rest"
        if self.groups == 2:
            return "half of the classes against the others"
        return f"{self.groups} groups of classes"

    def codes(self, n_classes: int, seed: int) -> NDArray[np.intp]:
        """Give each class the number of its new one.

        >>> [np.bincount(task.codes(9, seed=0)).tolist() for task in (Merged(alone=2), Merged(groups=2))]
        [[1, 1, 7], [5, 4]]
        """
        if n_classes < max(self.alone + 1, self.groups):
            raise InputError(
                f"{self.name} needs more classes than the data set has, {n_classes}."
            )
        places = np.random.default_rng((seed, 4)).permutation(n_classes)
        if self.alone:
            return np.minimum(places, self.alone)
        return places % self.groups

    def long_tailed(self, y: Array, ratio: float, seed: int) -> NDArray[np.int64]:
        """Choose rows as `dppl.lab.long_tailed` does, except that the rest stays large and the others have one size."""
        if not self.alone:
            return long_tailed(y, ratio, seed)
        *sizes, rest = np.bincount(y).tolist()
        small = max(1, int(min(*sizes, rest / ratio)))
        return rows_of_classes(y, [small] * len(sizes) + [round(ratio * small)], seed)


@dataclass(frozen=True, slots=True)
class PublicTraining:
    """How a network is trained in public: by default as in Luo et al. (CVPR 2021), section 5.8."""

    images: str  # a folder with a subfolder for each class, or `DIGITS`
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1  # falls as a cosine over all epochs
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: bool = False  # flips, and moves by up to an eighth of the side
    seed: int = 0

    __pydantic_config__ = _CLOSED

    def __post_init__(self) -> None:
        validate.positive_integer(epochs=self.epochs, batch_size=self.batch_size)


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """Where a data set lies."""

    name: str
    encoder: str
    # the four parts, and the names of the classes if there are any; empty for those
    # that are built in
    files: dict[str, Path] = field(default_factory=dict)
    pools: dict[str, Path] = field(
        default_factory=dict
    )  # files of public rows by the name of their pool
    # text files with a line for each row of a pool, where one is named
    lines: dict[str, Path] = field(default_factory=dict)
    source: str = ""  # what to tell someone who does not have the files
    # data sets that this one joins, each with separate classes; it has no files then
    parts: tuple[DatasetSpec, ...] = ()
    # a folder of images, or `DIGITS`, and the network that embeds them; it has no files
    # then, and its pools are folders
    images: Path | None = None
    network: str = ""
    # a folder of images of other, public classes, which few-shot learners train on
    base: Path | None = None
    # how the network is made, with the place of the images in full
    pretrain: PublicTraining | None = None

    @property
    def has_images(self) -> bool:
        """Whether methods that train a network can be compared on it."""
        if self.parts:
            return all(part.has_images for part in self.parts)
        named = (*IMAGES, WHOLE_IMAGES)
        return self.images is not None or not self.files.keys().isdisjoint(named)

    def check(self) -> None:
        """Look whether the files are there, and text files have a line for each row."""
        for part in self.parts:
            part.check()
        files = [*self.files.values(), *self.pools.values(), *self.lines.values()]
        if self.images is not None and self.images != Path(DIGITS):
            files.append(self.images)
        if self.base is not None:
            files.append(self.base)
        # Files are looked for before anything is computed; the first that is missing is
        # named.
        missing = [path for path in files if not path.exists()]
        if missing:
            more = ""
            if len(missing) > 1:
                more = f", nor {len(missing) - 1} more of its files"
            raise InputError(
                f"data set {self.name!r} ({self.encoder}): there is no file {missing[0]}{more}; put it there, or "
                f"name the folder that holds the data with --data. {self.source}".rstrip()
            )
        for name, path in self.lines.items():
            n_lines = len(_lines(path))
            n_rows = len(_array(self.pools[name]))
            if n_lines != n_rows:
                raise InputError(
                    f"data set {self.name!r}: {path} must have a line for each of the {n_rows} rows of public pool "
                    f"{name!r}; it has {n_lines}."
                )


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Rows and labels of a data set."""

    X: Array  # X, X_test: shape (n, d)
    y: Array  # y, y_test: shape (n,)
    X_test: Array
    y_test: Array
    classes: Array  # shape (n_classes,); the labels that occur, sorted
    pools: dict[str, Array]  # shape (n_public, d)
    # a line for each row of a pool, where a text file is named
    lines: dict[str, list[str]] = field(default_factory=dict)
    names: Array | None = (
        None  # shape (n_classes, d); row c says what class c is called
    )
    # numbers of classes of the data sets that this one joins, whose rows stand one
    # after another
    n_classes_of_parts: tuple[int, ...] = ()
    groups: Array | None = (
        None  # shape (n,); the ids of persons of the rows of X, where a file holds them
    )
    images: tuple[Array, ...] = ()  # what X and X_test are embeddings of
    network: str = ""  # the one that they are by, where images name one
    given: dict[str, Any] = field(default_factory=dict)  # parameters of its methods
    # rows and labels of other classes, which are public
    base: tuple[Array, Array] | None = None

    def of_images(self) -> Dataset:
        """Return the data set with images in the place of embeddings, for methods that train its network."""
        X, X_test = self.images
        given = {"network": self.network} if self.network else {}
        return replace(self, X=X, X_test=X_test, given=given)

    def few(self, ways: int | None, shots: int | None, seed: int) -> Dataset:
        """Return the data set with so many classes, drawn with the seed of the run, each of enough records."""
        present, sizes = np.unique(self.y, return_counts=True)
        if shots is not None and sizes.min() < shots:
            raise InputError(
                f"shots: {shots} records of each class are more than class {present[sizes.argmin()]} has."
            )
        if ways is None:
            return self
        if ways > len(present):
            raise InputError(
                f"ways: {ways} classes are more than the data set has, {len(present)}."
            )
        drawn = np.random.default_rng((seed, 6)).choice(present, ways, replace=False)
        kept = [np.isin(labels, drawn) for labels in (self.y, self.y_test)]
        base = self.base
        if base is None:
            base = self.X[~kept[0]], self.y[~kept[0]]
        return replace(
            self,
            X=self.X[kept[0]],
            y=self.y[kept[0]],
            X_test=self.X_test[kept[1]],
            y_test=self.y_test[kept[1]],
            classes=np.sort(drawn),
            names=None,
            base=base,
            images=tuple(
                one[rows] for one, rows in zip(self.images, kept, strict=False)
            ),
        )

    def split(
        self, examples: ExampleSpec | None, seed: int
    ) -> tuple[NDArray[np.int64], tuple[Array, ...]]:
        """Return the places of the training rows that are private, and the examples and their classes."""
        everything = np.arange(len(self.y), dtype=np.int64)
        if examples is None:
            return everything, ()
        if examples.source == NAMES:
            if self.names is None:
                raise InputError(
                    "examples: names are rows of a file of the data set; name it with files: names."
                )
            private = everything
            X = self.names
            codes = np.arange(len(self.classes))
        else:
            places = np.searchsorted(self.classes, self.y)
            drawn = rows_of_classes(places, int(examples.source), seed)
            private = np.setdiff1d(everything, drawn)
            X = self.X[drawn]
            codes = places[drawn]
            if len(np.unique(self.y[private])) < len(np.unique(self.y)):
                raise InputError(
                    f"examples: {examples.source} rows a class leave no private row of some class."
                )
        if not examples.used:
            return private, ()
        # Wrong examples: each of these classes gets the rows of another one.
        if examples.wrong is not None:
            n_classes = len(self.classes)
            moved = np.arange(len(self.classes))
            cycle = np.random.default_rng((seed, 2)).permutation(n_classes)
            if examples.wrong != "permuted":
                cycle = cycle[: max(2, n_classes // 2)]
            moved[cycle] = np.roll(cycle, 1)
            codes = moved[codes]
        return private, (np.asarray(X), self.classes[codes])

    def merged(self, classes: Merged | None, seed: int) -> Dataset:
        """Return the data set with its classes merged to the classes of a task, which are numbers, or as it is."""
        if classes is None:
            return self
        new = classes.codes(len(self.classes), seed)
        y, y_test = (
            new[np.searchsorted(self.classes, labels)]
            for labels in (self.y, self.y_test)
        )
        return replace(self, y=y, y_test=y_test, classes=np.unique(new), names=None)

    def public(self, pool: Pool | None, seed: int) -> Array | None:
        """Return the rows of a pool."""
        if pool is None:
            return None
        rows = self.available(pool)
        if pool.rows is None:
            return rows
        return np.asarray(rows[random_rows(len(rows), pool.rows, seed)])

    def available(self, pool: Pool) -> Array:
        """Return the rows that a pool takes, or draws from, still on disk if none are skipped."""
        rows = self.pools[pool.name]
        if pool.without:
            lines = self.lines[pool.name]
            unknown = [text for text in pool.without if text not in lines]
            if unknown:
                raise InputError(
                    f"public pool {pool.name!r}: no row has the line {unknown[0]!r}, which without names."
                )
            rows = rows[
                np.flatnonzero([line not in pool.without for line in lines])[
                    : pool.first
                ]
            ]
        rows = rows[: pool.first]
        if pool.rows is not None and pool.rows > len(rows):
            raise InputError(
                f"public pool {pool.name!r} has {len(rows)} rows; {pool.rows} were to be drawn from it."
            )
        return rows


def load_dataset(spec: DatasetSpec) -> Dataset:
    """Load a data set of embeddings; rows stay on disk until they are used."""
    if spec.parts:
        return _joined([load_dataset(part) for part in spec.parts])
    if not spec.files:
        _, made = BUILT_IN[spec.name]
        X, y, X_test, y_test, pools = made()
        return Dataset(X, y, X_test, y_test, np.unique(y), pools)
    spec.check()
    parts = {name: _array(path) for name, path in spec.files.items()}
    groups = parts.pop(GROUPS, None)
    if groups is not None:
        _check_labels(spec, GROUPS, groups, parts["x" if "x" in parts else "train_x"])
    # A random fifth of a data set in one piece is its test set, always the same; a
    # fifth of its persons.
    if set(WHOLE) <= set(parts):
        x, y = (parts.pop(name) for name in WHOLE)
        if groups is None:
            units = np.arange(len(x))
        else:
            units = np.unique(groups, return_inverse=True)[1]
        n_units = int(units.max(initial=-1)) + 1
        tested = np.isin(
            units, random_rows(n_units, int(_TEST_SHARE * n_units), seed=0)
        )
        test = np.flatnonzero(tested)
        train = np.flatnonzero(~tested)
        groups = None if groups is None else groups[train]
        _check_labels(spec, "y", y, x)
        parts |= {
            "train_x": x[train],
            "train_y": y[train],
            "test_x": x[test],
            "test_y": y[test],
        }
        if WHOLE_IMAGES in parts:
            whole = parts.pop(WHOLE_IMAGES)
            parts |= dict(zip(IMAGES, (whole[train], whole[test]), strict=True))
    names = parts.pop(NAMES, None)
    base = None
    if BASE[0] in parts:
        base = parts[BASE[0]], np.asarray(parts[BASE[1]])
    pools = {name: _array(path) for name, path in spec.pools.items()}
    # Rows of all files are by one encoder, so they have one width.
    width = parts["train_x"].shape[-1]
    for name, rows in {
        "train_x": parts["train_x"],
        "test_x": parts["test_x"],
        **pools,
    }.items():
        if rows.ndim != 2 or rows.shape[1] != width:
            raise InputError(
                f"data set {spec.name!r}: {name} must have two dimensions and {width} features; got shape {rows.shape}."
            )
    images = tuple(parts[name] for name in IMAGES if name in parts)
    for part in ("train", "test"):
        _check_labels(spec, f"{part}_y", parts[f"{part}_y"], parts[f"{part}_x"])
        if images:
            _check_images(spec, parts, part)
    # Labels are few and are read whole; rows stay on disk.
    y = np.asarray(parts["train_y"])
    y_test = np.asarray(parts["test_y"])
    classes = np.unique(np.concatenate([y, y_test]))
    if names is not None and names.shape != (len(classes), width):
        raise InputError(
            f"data set {spec.name!r}: names must hold a row of {width} features for each of the {len(classes)} "
            f"classes; got shape {names.shape}."
        )
    lines = {name: _lines(path) for name, path in spec.lines.items()}
    return Dataset(
        parts["train_x"],
        y,
        parts["test_x"],
        y_test,
        classes,
        pools,
        lines,
        names,
        groups=groups,
        images=images,
        network=spec.network,
        base=base,
    )


def _check_labels(spec: DatasetSpec, name: str, labels: Array, rows: Array) -> None:
    if labels.shape != (len(rows),):
        raise InputError(
            f"data set {spec.name!r}: {name} must hold one value for each of the {len(rows)} rows; "
            f"got shape {labels.shape}."
        )


def _check_images(spec: DatasetSpec, parts: dict[str, Array], part: str) -> None:
    images = parts.get(f"{part}_images", np.empty(0))
    shape = (len(parts[f"{part}_x"]), *images.shape[1:3], 3)
    if images.shape != shape or images.dtype.kind != "u":
        raise InputError(
            f"data set {spec.name!r}: {part}_images must hold an image of shape (height, width, 3), as uint8, for each "
            f"of the {shape[0]} rows; got shape {images.shape} of {images.dtype}."
        )


def _joined(parts: list[Dataset]) -> Dataset:
    """Put data sets one after another; classes become numbers, and narrower rows are filled up with zeros."""
    sizes = tuple(len(part.classes) for part in parts)
    starts = np.cumsum((0, *sizes[:-1]))
    width = max(part.X.shape[1] for part in parts)

    def rows(name: str) -> Array:
        several = [getattr(part, name) for part in parts]
        return np.concatenate(
            [np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in several]
        )

    def labels(name: str) -> Array:
        several = zip(parts, starts, strict=True)
        return np.concatenate(
            [
                start + np.searchsorted(part.classes, getattr(part, name))
                for part, start in several
            ]
        )

    images: tuple[Array, ...] = ()
    if all(part.images for part in parts):
        shapes = {part.images[0].shape[1:] for part in parts}
        if len(shapes) > 1:
            raise InputError(
                "images of data sets that are joined must have one shape; got "
                f"{' and '.join(map(str, sorted(shapes)))}."
            )
        each = zip(*(part.images for part in parts), strict=True)
        images = tuple(map(np.concatenate, each))
    X = rows("X")
    y = labels("y")
    X_test = rows("X_test")
    y_test = labels("y_test")
    return Dataset(
        X,
        y,
        X_test,
        y_test,
        np.arange(sum(sizes)),
        {},
        n_classes_of_parts=sizes,
        images=images,
    )


def _array(path: Path) -> Array:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path} must be a readable .npy file; {error}.") from None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{path} must be UTF-8 text.") from None
