"""Small instances of every estimator of the registry, in every relation that it offers. The laws hold for them all."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dppl import ZCDP, ApproxDP, GaussianDP, LatticeOptions, PublicData, PureDP
from dppl._utils.metadata import LATTICE
from dppl.io import EmbeddingTable
from dppl.kernel.lattice import Lattice, iter_blocks
from dppl.kernel.privacy.terms import PublicInput, Term, Unit
from dppl.methods.registry import ENTRIES, Entry
from dppl.methods.start import Start
from inside import takes

CLASSES = ["a", "b", "c"]
DIM = 6
WIDE = 16  # in few dimensions CoinPress' balls are so wide that even opposite rows lie closer than one radius
USUAL = ZCDP(1.0)
GAUSSIAN = (ZCDP(0.37), ApproxDP(1.3, 1e-6), GaussianDP(0.83))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a test makes a small one.

    Parameters
    ----------
    options : dict
        Parameters of the class. Without an adjacency there is a kind for each that the
        registry names.
    budget : Budget
        What it spends where a law is not about budgets.
    public : bool
        Whether it gets public rows.
    examples : bool
        Whether it gets public examples, of some of the classes.
    start : bool
        Whether it starts from a released model, of some of the classes.
    dim : int
        Width of the rows.
    sampled : bool
        Whether it is accounted in (epsilon, delta) alone, as on Poisson samples, which
        amplify its noise: no replay shows its cost, and no ledger charges it.
    """

    options: dict[str, Any] = field(default_factory=dict)
    budget: Any = USUAL
    public: bool = False
    examples: bool = False
    start: bool = False
    dim: int = DIM
    sampled: bool = False


REPLACED = {"adjacency": "replace-one"}
COINPRESS = {**REPLACED, "coinpress": "dppl"}
MAPPED = {"lattice": LatticeOptions(pool=2, rotation=3, center=np.full(DIM, 0.1))}
AS_PUBLISHED = {"steps": 3, "rule": "published", "episodes": 2}
BY_PUBLIC_ROWS = {"lattice": LatticeOptions(center="public", rotation="auto")}
RECIPES = {
    "SoftmaxPrototypes": {
        "": Recipe(),
        "with public rows": Recipe(public=True),
        "from examples": Recipe(examples=True),
        "from examples, with public rows": Recipe(examples=True, public=True),
        "from a model": Recipe(start=True, public=True),
    },
    "MeanPrototypes": {
        "": Recipe(),
        "mapped": Recipe(options=MAPPED),
        "by public rows": Recipe(options=BY_PUBLIC_ROWS, public=True),
        "coinpress": Recipe(options=COINPRESS, dim=WIDE),
    },
    "PublicPrototypes": {
        "": Recipe(budget=PureDP(1.0), public=True),
        "sets": Recipe(options={"n_prototypes": 3, "clip": (0.9, 1.4)}, public=True),
    },
    # So many that ranks leave something of the budgets.
    "PublishedTopK": {
        "": Recipe(options={"n_prototypes": 8, "clip": (0.9, 1.4)}, public=True)
    },
    "MultiLabelPrototypes": {
        "": Recipe(),
        "with public rows": Recipe(options={"max_labels": 1}, public=True),
        "from a model": Recipe(start=True),
    },
    "ProjectedPrototypes": {
        "": Recipe(options={"steps": 3}),
        "narrow": Recipe(options={"steps": 3, "n_components": 2}),
        "to public rows": Recipe(options={"steps": 2, "head": "public"}, public=True),
        "by public rows": Recipe(
            options={"steps": 2, "towards": "public"}, public=True
        ),
        "as published": Recipe(options=AS_PUBLISHED),
        "as published, on samples": Recipe(
            options=AS_PUBLISHED | {"sampling_rate": 0.5},
            budget=ApproxDP(1.0, 1e-5),
            sampled=True,
        ),
    },
    "AdaptivePrototypes": {
        "": Recipe(options={"class_size": 100.0}, public=True),
        "of small classes": Recipe(options={"class_size": 0.01}, public=True),
    },
    "FriendlyCoreMeans": {
        # A budget at which few records are enough for a core, and all are friends.
        "": Recipe(
            options={"radius": 2.0},
            budget=ApproxDP(1e4, 1e-5, allow_weak=True),
            sampled=True,
        ),
    },
    "ContinualPrototypes": {
        "": Recipe(),
        "mapped": Recipe(options=MAPPED),
        "by public rows": Recipe(options=BY_PUBLIC_ROWS, public=True),
        "as published": Recipe(options={"accumulate": "sum"}),
        "of overlapping tasks": Recipe(options={"tasks": "overlapping"}),
        "by toeplitz": Recipe(options={"noise": "toeplitz", "max_tasks": 5}),
    },
    "ContinualDiscriminant": {
        "": Recipe(),
        "with public rows": Recipe(public=True),
        "by toeplitz": Recipe(
            options={"noise": "toeplitz", "max_tasks": 5}, public=True
        ),
    },
    "ContinualEnsemble": {
        "": Recipe(options={"head_options": {"steps": 3}}),
        "mapped": Recipe(options={"head_options": {"steps": 3, "clip": 0.1}, **MAPPED}),
        "as published": Recipe(
            options={"head_options": {"steps": 3}, "scores": "largest"}
        ),
        "of softmax prototypes": Recipe(options={"head": "softmax"}, public=True),
    },
    "NaiveContinual": {"": Recipe(options={"steps": 3})},
    "FullDataContinual": {"": Recipe(options={"steps": 3})},
    "AdaMix": {
        "": Recipe(options={"steps": 3}, examples=True),
        "without a projection": Recipe(
            options={"steps": 3, "n_components": "all"}, examples=True
        ),
    },
    "FeatureCovariance": {"": Recipe(options={"steps": 2})},
    "GlobalAdapt": {
        "": Recipe(options={"steps": 3}),
        "in a small bound": Recipe(options={"steps": 3, "upper_bound": 0.001}),
        "of a public size": Recipe(options={"steps": 3, "batch_size": 12.0}),
        "sampled": Recipe(
            options={"steps": 3, "sampling_rate": 0.5, "batch_size": 6.0},
            budget=ApproxDP(5.0, 1e-5),
            sampled=True,
        ),
    },
    "LeastSquares": {
        "": Recipe(),
        "mapped": Recipe(options=MAPPED),
        "class Grams": Recipe(options={"class_grams": True}),
    },
    "LinearProbe": {
        "": Recipe(options={"steps": 3}),
        "clipped": Recipe(options={"steps": 3, "clip": 0.1}),
        "of a public size": Recipe(options={"steps": 1, "batch_size": 50.0}),
        # One setting, since calibrating takes a second or more.
        "sampled": Recipe(
            options={"steps": 5, "sampling_rate": 0.5, "batch_size": 60.0},
            budget=ApproxDP(5.0, 1e-5),
            sampled=True,
        ),
    },
    "Newton": {"": Recipe(options={"steps": 2})},
    "PrivateNeighbours": {
        "": Recipe(options={"n_queries": 4, "n_neighbours": 3}, public=True),
        "sampled": Recipe(
            options={"n_queries": 3, "n_neighbours": 3, "sampling_rate": 0.5},
            budget=ApproxDP(5.0, 1e-5),
            public=True,
            sampled=True,
        ),
    },
    "TeacherEnsemble": {
        "": Recipe(options={"n_queries": 6, "n_teachers": 3}, public=True),
    },
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Kind:
    """A recipe of a registry entry, in one relation."""

    entry: Entry
    variant: str
    recipe: Recipe
    adjacency: str

    def __repr__(self) -> str:
        return " ".join(
            word for word in (self.entry.name, self.variant, self.adjacency) if word
        )

    @property
    def cls(self):
        return self.entry.load()

    @property
    def dim(self):
        return self.recipe.dim

    @property
    def public(self):
        """Its public rows."""
        return (
            np.random.default_rng(0).normal(size=(9, self.dim))
            if self.recipe.public
            else None
        )

    def public_data(self, classes=CLASSES, rows=None):
        """Return its public data, with other public rows if there are any."""
        rows = self.public if rows is None else rows
        if not self.recipe.examples:
            return PublicData(rows)
        examples = (
            np.random.default_rng(3).normal(size=(3, self.dim))
            + np.eye(3, self.dim)[[0, 0, 1]]
        )
        return PublicData(
            rows, examples, [sorted(classes, key=str)[code] for code in (0, 0, 1)]
        )

    def start(self, classes=CLASSES):
        """Return what a released model of the first classes leaves to it."""
        rng = np.random.default_rng(4)
        n = len(classes)
        known = np.arange(n) < max(n - 1, 1)
        coef, path = 8 * known[:, None] * rng.normal(size=(2, n, self.dim))
        return Start(
            chain=(Term(PublicInput.START, sha256="0" * 64, mu=0.5),),
            unit=Unit.PERSON,
            known=known,
            coef=coef,
            offsets=np.where(known, 0.1, -1e6),
            center=np.full(self.dim, 0.1),
            path=path,
            variance=4.0 * known,
            sizes=9.0 * known,
        )

    @property
    def budgets(self):
        """One budget of every notion that it can spend."""
        if self.recipe.sampled:
            return (self.recipe.budget,)
        return (*GAUSSIAN, PureDP(1.0)) if self.entry.pure else GAUSSIAN

    @property
    def relabels(self):
        """Whether a record may be replaced by one of another class."""
        return (
            Term(PublicInput.CLASS_SIZES)
            not in self.make().plan(self.dim).guarantee.public_inputs
        )

    def make(self, budget=None, classes=CLASSES, **more):
        """Return an estimator; its seed is 0 unless `more` has another."""
        options = self.recipe.options | (
            {"adjacency": self.adjacency}
            if takes(self.entry.load(), "adjacency")
            else {}
        )
        if self.recipe.start:
            options["start"] = self.start(classes)
        budget = self.recipe.budget if budget is None else budget
        return self.cls(
            budget,
            classes,
            **(
                {"random_state": 0, "public": self.public_data(classes)}
                | options
                | more
            ),
        )

    def fit(self, X, y, *, budget=None, given=None, **more):
        """Fit one on (X, y), with what else is `given` to fit."""
        return self.make(budget, **more).fit(X, y, **(given or {}))

    def records(self, n=12, seed=1):
        """Return n records of all classes."""
        rng = np.random.default_rng(seed)
        y = np.arange(n) % len(CLASSES)
        return rng.normal(size=(n, self.dim)) + 2 * np.eye(len(CLASSES), self.dim)[
            y
        ], np.array(CLASSES)[y]


def kinds_of(entry):
    """Return the kinds of an entry: each recipe, in each relation that it is for."""
    for variant, recipe in RECIPES.get(entry.name, {}).items():
        only = recipe.options.get("adjacency")
        for adjacency in entry.adjacencies if only is None else (only,):
            yield Kind(entry=entry, variant=variant, recipe=recipe, adjacency=adjacency)


KINDS = [kind for entry in ENTRIES for kind in kinds_of(entry)]
CHARGED = [kind for kind in KINDS if not kind.recipe.sampled]
BY_NAME = {str(kind): kind for kind in KINDS}
# One of each estimator, for laws about what a class brings itself: its parameters, its
# file, its scores.
FIRST = [
    next(kind for kind in KINDS if kind.entry is entry)
    for entry in ENTRIES
    if entry.name in RECIPES
]
# Of these, the ones whose cost has a mu. FriendlyCore draws a number for each record, so
# `tests/unit/lab/test_friendly.py` replays it by itself.
FIRST_CHARGED = [kind for kind in FIRST if not kind.recipe.sampled]
# Of the first and of all, the ones whose records have one label; others predict matrices.
ONE_LABEL = [kind for kind in FIRST if not kind.cls.multilabel]
KINDS_OF_ONE_LABEL = [kind for kind in KINDS if not kind.cls.multilabel]
# For laws about what all fits share, from reading records to the ledger. All queries,
# relations and ways to learn are among these, so that no line of the shared fit is left
# out.
SHARED = [
    BY_NAME[name]
    for name in (
        "SoftmaxPrototypes from examples, with public rows add-remove",  # gradients, both kinds of public data
        "MeanPrototypes replace-one",  # class sums, and a record that is replaced
        "PublicPrototypes add-remove",  # selections, whose noise is no Gaussian; bounds that public rows choose
        "LinearProbe sampled add-remove",  # Poisson samples, which no ledger charges
        "ContinualPrototypes by toeplitz add-remove",  # a stream with correlated noise and a private state
        "ContinualDiscriminant with public rows add-remove",  # Gram matrices
        "ContinualEnsemble of softmax prototypes add-remove",  # a fit made of other fits
    )
]
SHARED_CHARGED = [kind for kind in SHARED if not kind.recipe.sampled]


def each(kinds=KINDS):
    """Hold every kind to a law, in a test of its own."""
    return pytest.mark.parametrize("kind", kinds, ids=str)


class Table:
    """Rows that stream in small blocks and are no array; `look` is called whenever they are read."""

    def __init__(self, rows, look=lambda: None):
        self._rows = rows
        self._look = look
        self.shape = rows.shape

    def blocks(self, size):
        for block in iter_blocks(self._rows, min(size, 5)):
            self._look()
            yield block


def lattice_table(rows):
    """Return int8 rows as a table that says they are those of the lattice, as `dppl table --lattice` does."""
    return EmbeddingTable.of(rows, metadata={LATTICE: Lattice(rows.shape[1]).name})


# Neighbours

VALUES = st.one_of(
    st.floats(-2, 2),
    st.sampled_from([0.0, 1e-320, 1e300, -1e300, np.nan, np.inf, -np.inf]),
)


def rows(dim):
    same = st.sampled_from([0.0, 1.0, 1e-320, 1e300, -1e300, np.nan, np.inf]).map(
        lambda value: np.full(dim, value)
    )
    return st.one_of(hnp.arrays(np.float64, dim, elements=VALUES), same)


@st.composite
def cases(draw, dim):
    """Up to 8 records, often repeated and of few classes, and one more, whose label may lie outside the classes."""
    different = draw(st.lists(rows(dim), min_size=1, max_size=3))
    present = draw(st.lists(st.sampled_from(CLASSES), min_size=1, unique=True))
    y = draw(st.lists(st.sampled_from(present), max_size=8))
    X = [draw(st.sampled_from(different)) for _ in y]
    row = draw(st.one_of(st.sampled_from(different), rows(dim)))
    return (
        np.array(X).reshape(len(y), dim),
        y,
        row,
        draw(st.sampled_from([*CLASSES, "elsewhere"])),
    )


def neighbours(case, kind):
    """Return the records with and without one more or, under replace-one, with the first replaced."""
    X, y, row, label = case
    if kind.adjacency == "add-remove":
        return (np.concatenate([X, row[None]]), [*y, label]), (X, y)
    # Without records to replace one in, replace the one that there would be.
    X, y = (X, y) if len(X) else (-row[None], CLASSES[:1])
    replaced = X.copy()
    replaced[0] = row
    return (replaced, [label if kind.relabels else y[0], *y[1:]]), (X, y)
