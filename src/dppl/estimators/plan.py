"""The plan of a fit: all that is settled before a private record is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from dppl._metadata import columns_of, depends_on_company
from dppl._types import Array
from dppl.errors import ParameterError
from dppl.estimators.public_data import PublicValues, check_lattice
from dppl.kernel.lattice import Lattice
from dppl.kernel.measure import Calibrated, Measurement
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.guarantee import (
    A_CHANGED_RECORD,
    A_STRICT_STOP,
    OTHER_RELEASES,
    PERSON,
    RECORD,
    SEVERAL_RECORDS,
)
from dppl.kernel.reading import Codes

_COLUMNS = "the names of columns that the model keeps, as they were typed"
ROWS_MIX = "rounding by which an embedding may depend on the records embedded beside it"
_NEIGHBOURS = "two data sets are neighbours when one person, with all of their records, is added or removed; a person counts "
_PUBLIC = "the number of classes that a person counts in"
_ONE_ID = "each person has one id"
_NOT_COVERED = (
    "wrong person ids, a person with several ids, and missing ids, each of which counts as a person of its own",
    "a changed record of a person, which counts as one person removed and one added",
    "other releases from records of the same persons, here or in other data sets, whose costs add up",
    "whether the fit stopped at an id that cannot be compared by value",
)
_WHO_TOOK_PART = "the names of the institutions, and what they state of their tables"
_OWN_NOISE = (
    "the computer of an institution, which alone protects its records, ran dppl unchanged; neither the coordinator nor "
    "other institutions need to be trusted"
)
_AT_SEVERAL = (
    "a person with records at several institutions, for whom squares of mu add up"
)
_WHO_AND_WHEN = "which institutions took part, and when each of them answered"
_RECORDS = "number of records"
_PERSONS = "number of persons"
# What disjoint tasks of a stream rest on, and tasks that may overlap, unless there are
# ids of persons.
A_RECORD_IN_ONE_TASK = "a record is in one task"
_A_PERSON_IN_ONE_TASK = "a person is in one task, with all records"
A_RECORD_IN_EACH_TASK = "a person, or a record, is in a task at most once"


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A task of a stream, all of it public or released; any other fit is its own only task."""

    earlier: Any  # the model of the earlier tasks; None for the first
    allowed: Codes  # positions of the classes that the task may hold, increasing
    of_persons: bool = False  # whether its records have ids of persons

    @property
    def number(self) -> int:
        """Number of the task, from 1."""
        return 1 if self.earlier is None else int(self.earlier.n_tasks_) + 1

    def seed(self, random_state: int | None) -> int | None:
        """Return the seed of its noise: no two tasks have the same."""
        if random_state is None or self.earlier is None:
            return random_state
        return seed_of(random_state, self.number - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The public values that a fit knows before a record is read."""

    n_features: int  # width of the embeddings
    classes: Array  # shape (n_classes,); the sorted public list of classes
    lattice: Lattice  # the map from embeddings to integer rows
    public: PublicValues  # public rows, and public examples of the classes
    task: Task  # what it starts from, and the classes that it may hold
    n_classes: int  # length of the list of classes
    prepared: Any = None  # what the method's `prepare` made of these


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a fit releases and guarantees, computed from parameters and public inputs alone.

    `EmbeddingClassifier.plan` makes one, and every fit its own.
    """

    parameters: Mapping[
        str, Any
    ]  # of the estimator, except for `public`, which is large
    setting: Setting  # the public values that the fit knows
    measurements: Mapping[
        str, Calibrated
    ]  # what may be asked of the private records, with its noise
    # Without what a table says of itself. With more than one class a person it holds
    # only with ids of persons.
    guarantee: Guarantee
    whole_persons: bool  # whether persons enter with all of their records

    def guarantee_on(self, X: Any, groups: Any = None) -> Guarantee:
        """Return the guarantee on such private rows, with what their table says of how they were made.

        With ids of persons (`groups`), which are not looked into, it is for a person
        and not for a record.
        """
        check_lattice(X, self.setting.n_features, "X")
        guarantee = self.guarantee
        if groups is not None:
            most = self.parameters.get("max_classes_per_person")
            guarantee = of_persons(guarantee, most, whole=self.whole_persons)
        if columns_of(X):
            guarantee = replace(
                guarantee, public_inputs=(*guarantee.public_inputs, _COLUMNS)
            )
        if depends_on_company(X):
            guarantee = replace(
                guarantee, not_covered=(ROWS_MIX, *guarantee.not_covered)
            )
        if not guarantee.releases:  # no record is read
            return guarantee
        assumption = getattr(getattr(X, "engine", None), "assumption", None)
        if assumption is not None:
            guarantee = replace(
                guarantee, assumptions=(*guarantee.assumptions, assumption)
            )
        if self.parameters["unknown_labels"] == "strict":
            guarantee = replace(
                guarantee, not_covered=(*guarantee.not_covered, A_STRICT_STOP)
            )
        return guarantee


def check_declared(
    declared: Mapping[str, Measurement],
    n_classes: int,
    *,
    several_labels: bool,
    whole_persons: bool,
) -> None:
    """Refuse measurements that do not fit the class list, the labels or the persons of a fit."""
    for name, one in declared.items():
        # Queries that do not read label sets see records of one class there.
        of_one = several_labels and not one.query.reads_label_sets
        if getattr(one.query, "n_classes", None) not in (
            None,
            1 if of_one else n_classes,
        ):
            raise ParameterError(
                f"the measurement {name!r} must be of {n_classes} classes, as the fit is."
            )
        if one.query.reads_label_sets and not several_labels:
            raise ParameterError(
                f"the measurement {name!r} is for methods of several labels (several_labels)."
            )
        if whole_persons and not one.query.whole_persons:
            raise ParameterError(
                f"the measurement {name!r} is not one that whole persons move as one record does."
            )


def rows_of_a_person(max_classes: int | None, n_classes: int, *, whole: bool) -> int:
    """Return as how many records, each of another class, a person counts; a whole one moves all queries as one."""
    return 1 if whole else min(max_classes or 1, n_classes)


def seed_of(seed: int, task: int) -> int:
    """Return a seed for a later task, so that the noise of no two tasks is the same."""
    return int.from_bytes(sha256(f"{int(seed)} {task}".encode()).digest()[:8], "big")


def of_persons(
    guarantee: Guarantee, max_classes: int | None = None, *, whole: bool = False
) -> Guarantee:
    """Return what a guarantee for single records says where rows are persons.

    A person counts in `max_classes` at most; None is 1, or all if persons are `whole`.
    """
    if guarantee.adjacency != "add-remove":
        raise ParameterError(
            f"needs the adjacency add-remove; this fit is under {guarantee.adjacency}, in which the number of persons "
            "would be public.",
            parameter="groups",
        )
    if whole:
        classes = "all" if max_classes is None else str(max_classes)
        rows = "as much as one record, whatever their number"
    else:
        classes = str(max_classes or 1)
        rows = "as one record, of one class"
        if classes != "1":
            rows = f"as at most {classes} records, each of another class"
    if (
        guarantee.unit != RECORD
    ):  # of tasks that may overlap: what they cost a person adds up
        rows += ", in each task"
    # Each person is one row wherever rows are counted: only sums of single classes take
    # several of a person.
    releases = [
        replace(one, statistic=one.statistic.replace(_RECORDS, _PERSONS, 1))
        for one in guarantee.releases
    ]
    of_records = (SEVERAL_RECORDS, A_CHANGED_RECORD, OTHER_RELEASES)
    others = [text for text in guarantee.not_covered if not text.startswith(of_records)]
    assumed = [one for one in guarantee.assumptions if one != A_RECORD_IN_EACH_TASK]
    assumed = [
        one.replace(A_RECORD_IN_ONE_TASK, _A_PERSON_IN_ONE_TASK) for one in assumed
    ]
    return replace(
        guarantee,
        unit=PERSON,
        releases=tuple(releases),
        neighbours=_NEIGHBOURS + rows,
        public_inputs=(*guarantee.public_inputs, f"{_PUBLIC} ({classes})"),
        assumptions=(*assumed, _ONE_ID),
        not_covered=(*others, *_NOT_COVERED),
    )


def of_holders(
    guarantee: Guarantee, names: tuple[str, ...], entries: tuple[str, ...] = ()
) -> Guarantee:
    """Return what a guarantee says at each institution of several, for its own records and towards everybody."""
    mu = guarantee.mu
    # Each costs mu at most, so k of them cost the square root of k times mu.
    at_all = (
        ""
        if mu is None
        else f", to at most mu = {rounded_up(math.sqrt(len(names)) * mu, 3)}"
    )
    return replace(
        guarantee,
        holders=names,
        ledger_entry="; ".join(entries) or None,
        public_inputs=(*guarantee.public_inputs, _WHO_TOOK_PART),
        assumptions=(*guarantee.assumptions, _OWN_NOISE),
        not_covered=(*guarantee.not_covered, f"{_AT_SEVERAL}{at_all}", _WHO_AND_WHEN),
    )
