"""The plan of a fit: all that is settled before a private record is read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from dppl._utils.metadata import columns_of, depends_on_company
from dppl._utils.types import Array
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.measure import Calibrated
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.terms import (
    ABOUT_SEVERAL_RECORDS,
    Assumption,
    Caveat,
    Neighbours,
    PublicInput,
    Term,
    Unit,
    own_words,
)
from dppl.kernel.reading import Codes
from dppl.methods.public_data import PublicValues, check_lattice
from dppl.methods.start import Start

# What a guarantee for records says and one for persons does not.
_OF_RECORDS = ABOUT_SEVERAL_RECORDS | {Caveat.CHANGED_RECORD, Caveat.OTHER_RELEASES}
_OF_PERSONS = (
    Term(Caveat.WRONG_IDS),
    Term(Caveat.CHANGED_RECORD_OF_A_PERSON),
    Term(Caveat.OTHER_RELEASES_OF_PERSONS),
    Term(Caveat.ID_STOP),
)
# What an assumption of records becomes where there are ids of persons; None where it
# is not needed.
_FOR_PERSONS = {
    Assumption.ONCE_IN_EACH_TASK: None,
    Assumption.DISJOINT_TASKS: Term(Assumption.DISJOINT_TASKS_OF_PERSONS),
}


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A task of a stream, all of it public or released; any other fit is its own only task."""

    earlier: Any  # the model of the earlier tasks; None for the first
    allowed: Codes  # positions of the classes that the task may hold, increasing
    of_persons: bool = False  # whether its records have ids of persons

    @property
    def number(self) -> int:
        """Number of the task, from 1."""
        if self.earlier is None:
            return 1
        return int(self.earlier.n_tasks_) + 1

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
    start: Start | None = None  # what an earlier model leaves to it
    prepared: Any = None  # what the method's `prepare` made of these


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a fit releases and guarantees, computed from parameters and public inputs alone.

    `EmbeddingClassifier.plan` makes one, and every fit its own.
    """

    parameters: Mapping[
        str, Any
    ]  # of the estimator, except for public data, which is large
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
            start = self.setting.start
            if start is not None and start.unit is not Unit.PERSON:
                # They pay more for it than its mu.
                raise ParameterError(
                    "must protect persons, as this fit with groups does. Fit it again with groups, or leave the start out.",
                    parameter="start",
                )
            most = self.parameters.get("max_classes_per_person")
            guarantee = of_persons(guarantee, most, whole=self.whole_persons)
        if columns_of(X):
            columns = Term(PublicInput.COLUMNS)
            guarantee = replace(
                guarantee, public_inputs=(*guarantee.public_inputs, columns)
            )
        if depends_on_company(X):
            guarantee = replace(
                guarantee, not_covered=(Term(Caveat.ROWS_MIX), *guarantee.not_covered)
            )
        if not guarantee.releases:  # no record is read
            return guarantee
        assumption = getattr(getattr(X, "engine", None), "assumption", None)
        if assumption is not None:
            # The term of dppl's own engine, whose file lies below the kernel.
            if assumption == Assumption.CLUSTER:
                assumed = Term(Assumption.CLUSTER)
            else:
                assumed = own_words(Assumption, assumption)
            guarantee = replace(
                guarantee, assumptions=(*guarantee.assumptions, assumed)
            )
        if self.parameters["unknown_labels"] == "strict":
            stop = Term(Caveat.STRICT_STOP)
            guarantee = replace(guarantee, not_covered=(*guarantee.not_covered, stop))
        return guarantee


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
    most = int(max_classes or 1)
    if whole:
        neighbours = Term(Neighbours.WHOLE_PERSON)
    elif most == 1:
        neighbours = Term(Neighbours.PERSON_IN_A_CLASS)
    else:
        neighbours = Term(Neighbours.PERSON_IN_CLASSES, max_classes=most)
    if (
        guarantee.unit is not Unit.RECORD
    ):  # of tasks that may overlap: what they cost a person adds up
        neighbours = Term(Neighbours.IN_EACH_TASK, of=neighbours)
    classes = Term(PublicInput.ALL_CLASSES_OF_A_PERSON)
    if not whole or max_classes is not None:
        classes = Term(PublicInput.CLASSES_OF_A_PERSON, max_classes=most)
    assumed = [_FOR_PERSONS.get(one.code, one) for one in guarantee.assumptions]
    others = [one for one in guarantee.not_covered if one.code not in _OF_RECORDS]
    return replace(
        guarantee,
        unit=Unit.PERSON,
        neighbours=neighbours,
        public_inputs=(*guarantee.public_inputs, classes),
        assumptions=(
            *(one for one in assumed if one is not None),
            Term(Assumption.ONE_ID),
        ),
        not_covered=(*others, *_OF_PERSONS),
    )
