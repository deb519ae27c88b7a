"""The vocabulary of guarantees: codes for programs, each with named public values. `dppl.statement` turns them into English.

Programs compare codes and never text, so a better sentence changes no behaviour. In
files a term is an object, such as ``{"code": "class_sums", "n_classes": 3,
"dim": 16}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Self, TypeAlias, TypeVar


class Code(StrEnum):
    """A code, with the names and types of the values that its terms hold."""

    fields: Mapping[str, type]

    def __new__(cls, code: str, fields: Mapping[str, type] | None = None) -> Self:
        """Make a member of a code and, where its terms hold any, the values by name."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.fields = {} if fields is None else fields
        return member


AnyCode = TypeVar("AnyCode", bound=Code)
Value: TypeAlias = "int | float | str | Term[Any]"
_DEEPEST = 5  # terms within terms; a file could nest any number


@dataclass(frozen=True, slots=True, init=False)
class Term(Generic[AnyCode]):
    """A code and its public values, with the names and exact types of `code.fields`.

    A nested term, `of`, has a code of the same kind. Anything else is a ValueError.
    """

    code: AnyCode
    values: tuple[tuple[str, Value], ...]

    def __init__(self, code: AnyCode, /, **values: Value) -> None:
        fields = code.fields
        # NumPy's numbers are Python's, for JSON.
        values = {
            name: value.item() if hasattr(value, "item") else value
            for name, value in values.items()
        }
        # Exact types: True would pass for the integer 1.
        if {name: type(value) for name, value in values.items()} != fields:
            raise ValueError(f"{code} does not have the values {sorted(values)}")
        of = values.get("of")
        if isinstance(of, Term) and type(of.code) is not type(code):
            raise ValueError(f"{code} is not of {of.code}")
        object.__setattr__(self, "code", code)
        object.__setattr__(
            self, "values", tuple((name, values[name]) for name in fields)
        )

    def __getitem__(self, name: str) -> Any:
        """Return a value by its name."""
        return dict(self.values)[name]

    @property
    def innermost(self) -> Term[AnyCode]:
        """The innermost nested term: for the class sums of one task, the class sums."""
        return self["of"].innermost if "of" in self.code.fields else self

    def to_dict(self) -> dict[str, Any]:
        """Return the code and the values, JSON-ready; `from_dict` reads them back."""
        values = {
            name: value.to_dict() if isinstance(value, Term) else value
            for name, value in self.values
        }
        return {"code": self.code.value, **values}

    @classmethod
    def from_dict(
        cls, kind: type[AnyCode], values: Any, depth: int = _DEEPEST
    ) -> Term[AnyCode]:
        """Read what `to_dict` wrote; a ValueError if it is no term of this kind."""
        if (
            not depth
            or not isinstance(values, dict)
            or type(values.get("code")) is not str
        ):
            raise ValueError(f"a term of {kind.__name__} is an object with a code")
        code = kind(values["code"])
        read = {name: value for name, value in values.items() if name != "code"}
        if code.fields.get("of") is Term:
            read["of"] = cls.from_dict(kind, read.get("of"), depth - 1)
        return Term(code, **read)


def own_words(kind: Any, given: Any) -> Any:
    """Return a term; text, by which the author of a method states something, becomes one."""
    if isinstance(given, Term):
        return given
    return Term(kind.STATED, text=str(given))


class Statistic(Code):
    """What a mechanism was applied to."""

    STATED = "stated", {"text": str}
    OF_ONE_TASK = "of_one_task", {"of": Term}
    BEFORE_TRAINING = "before_training", {"of": Term}
    AFTER_TRAINING = "after_training", {"of": Term}
    PROJECTED = "projected", {"of": Term}
    EPISODE_GRADIENTS = (
        "episode_gradients",
        {"episodes": int, "n_components": int, "dim": int},
    )
    WITH_CONSTANT = "with_constant", {"of": Term, "constant": int}
    NUMBER_OF_RECORDS = "number_of_records"
    RECORDS_OF_CLASSES = "records_of_classes"
    CLASS_COUNTS = "class_counts", {"steps": int}
    LABEL_COUNTS = (
        "label_counts",
        {"steps": int, "max_labels": int, "n_classes": int},
    )
    CLASS_SUMS = "class_sums", {"n_classes": int, "dim": int}
    CORRELATED_CLASS_SUMS = (
        "correlated_class_sums",
        {"n_classes": int, "dim": int, "max_tasks": int},
    )
    CLASS_MEANS = "class_means", {"n_classes": int, "dim": int}
    WEIGHTED_SUM = "weighted_sum", {"dim": int}
    GRAM_MATRIX = "gram_matrix", {"dim": int}
    CLASS_GRAM_MATRICES = "class_gram_matrices", {"n_classes": int, "dim": int}
    SECOND_MOMENT = "second_moment", {"dim": int}
    CLIPPED_GRADIENTS = "clipped_gradients", {"n_classes": int, "dim": int}
    CLIPPED_LABEL_GRADIENTS = "clipped_label_gradients", {"n_classes": int, "dim": int}
    SCALED_GRADIENTS = "scaled_gradients", {"n_classes": int, "dim": int}
    COUNTED_GRADIENTS = (
        "counted_gradients",
        {"n_classes": int, "dim": int, "weight": int},
    )
    NETWORK_GRADIENTS = "network_gradients", {"n_weights": int}
    LONG_GRADIENTS = "long_gradients"
    HESSIANS = "hessians", {"n_classes": int, "dim": int}
    HITS_OF_EXAMPLES = "hits_of_examples"
    HITS_OF_LABELS = "hits_of_labels"
    SHORTFALLS = "shortfalls", {"n_classes": int}
    LABEL_SHORTFALLS = "label_shortfalls", {"n_classes": int}
    PUBLIC_POSITIONS = "public_positions", {"n_selected": int, "n_classes": int}
    RIGHT_ANSWERS = "right_answers"
    RIGHT_ANSWERS_OF_CLASSES = "right_answers_of_classes"
    BEST_CANDIDATE = (
        "best_candidate",
        {"n_candidates": int, "estimator": str, "scoring": str},
    )
    TOTALS = "totals", {"steps": int}
    CLASS_OUTCOMES = "class_outcomes", {"steps": int}
    BAND_OUTCOMES = "band_outcomes", {"steps": int}
    FALSE_ALARMS = "false_alarms", {"steps": int}
    CONFUSIONS = "confusions", {"steps": int}
    CALIBRATION_SUMS = "calibration_sums", {"n_temperatures": int, "steps": int}
    RELIABILITY_BINS = "reliability_bins", {"steps": int}
    SCORE_HISTOGRAM = "score_histogram", {"steps": int}
    WHOLE_LABEL_SETS = "whole_label_sets", {"steps": int}
    LABEL_OUTCOMES = (
        "label_outcomes",
        {"max_labels": int, "n_classes": int, "steps": int},
    )
    SIGNED_HITS = "signed_hits"
    DISAGREEMENTS = "disagreements"
    MOST_HITS = "most_hits", {"n_models": int, "steps": int}
    CORE_MEANS = "core_means", {"n_classes": int, "dim": int}
    TEACHER_VOTES = (
        "teacher_votes",
        {"n_teachers": int, "n_rows": int, "n_classes": int},
    )
    NEIGHBOUR_VOTES = "neighbour_votes", {"n_neighbours": int, "n_classes": int}


class Mechanism(Code):
    """How noise was drawn."""

    STATED = "stated", {"text": str}
    ROUNDED_GAUSSIAN = "rounded_gaussian"
    SYMMETRIC_ROUNDED_GAUSSIAN = "symmetric_rounded_gaussian"
    SAMPLED_ROUNDED_GAUSSIAN = "sampled_rounded_gaussian"
    COINPRESS = "coinpress", {"n_steps": int}
    EXPONENTIAL = "exponential"
    JOINT_EXPONENTIAL = "joint_exponential", {"n_selected": int}
    REPEAT_AND_SELECT = "repeat_and_select"
    FRIENDLY_CORE = "friendly_core"
    PUBLISHED_TOP_K = "published_top_k"

    @property
    def adds_integers(self) -> bool:
        """Whether it adds noise to integers, so that sensitivity and noise are in units of what is counted."""
        return self in (
            Mechanism.ROUNDED_GAUSSIAN,
            Mechanism.SYMMETRIC_ROUNDED_GAUSSIAN,
            Mechanism.SAMPLED_ROUNDED_GAUSSIAN,
        )

    @property
    def states_its_cost(self) -> bool:
        """Whether a statement holds its cost alone, and not all numbers from which that follows."""
        return self in (Mechanism.STATED, Mechanism.REPEAT_AND_SELECT)


class Norm(Code):
    """The norm in which a sensitivity is measured."""

    L2 = "l2"
    FROBENIUS = "frobenius"
    L2_IN_RADII = "l2_in_radii"
    L2_IN_RADII_OF_A_CORE = "l2_in_radii_of_a_core"
    MONOTONE_UTILITY = "monotone_utility"


class Unit(Code):
    """Whom a guarantee protects: what one neighbour step adds, removes or replaces."""

    RECORD = "record"
    PERSON = "person"
    PERSON_IN_TASKS = "person_in_tasks"

    @property
    def of_account(self) -> Unit:
        """The unit of the account that pays: a ledger knows records and persons."""
        return Unit.PERSON if self is Unit.PERSON else Unit.RECORD


class Neighbours(Code):
    """Which data sets are neighbours."""

    RECORD_ADDED = "record_added"
    RECORD_REPLACED = "record_replaced"
    RECORD_REPLACED_IN_CLASS = "record_replaced_in_class"
    RECORD_OF_A_TASK = "record_of_a_task"
    RECORD_OF_EACH_TASK = "record_of_each_task"
    RECORD_OF_LATER_TASKS = "record_of_later_tasks"
    WHOLE_PERSON = "whole_person"
    PERSON_IN_A_CLASS = "person_in_a_class"
    PERSON_IN_CLASSES = "person_in_classes", {"max_classes": int}
    IN_EACH_TASK = "in_each_task", {"of": Term}


class PublicInput(Code):
    """What a guarantee treats as public."""

    CLASSES = "classes"
    ENCODER = "encoder"
    N_FEATURES = "n_features"
    FORM_OF_FILES = "form_of_files"
    PARAMETERS = "parameters"
    PUBLIC_ROWS = "public_rows"
    EXAMPLES = "examples"
    START = "start", {"sha256": str, "mu": float}
    N_RECORDS = "n_records"
    CLASS_SIZES = "class_sizes"
    COLUMNS = "columns"
    CLASSES_OF_A_PERSON = "classes_of_a_person", {"max_classes": int}
    ALL_CLASSES_OF_A_PERSON = "all_classes_of_a_person"
    PARTIES = "parties"
    PLAN = "plan"
    TASKS = "tasks"
    CANDIDATES = "candidates"
    MODEL = "model"
    MODULE = "module"
    TRAINED_WEIGHTS = "trained_weights"
    SHAPE = "shape"


class Assumption(Code):
    """What a guarantee assumes and no program can check."""

    STATED = "stated", {"text": str}
    EMBEDDED_ALONE = "embedded_alone"
    PUBLIC_MADE_APART = "public_made_apart"
    MODULE_MADE_APART = "module_made_apart"
    MODULE_KEEPS_NOTHING = "module_keeps_nothing"
    DISJOINT_TASKS = "disjoint_tasks"
    DISJOINT_TASKS_OF_PERSONS = "disjoint_tasks_of_persons"
    ONCE_IN_EACH_TASK = "once_in_each_task"
    ONCE_IN_WHAT_IS_GIVEN = "once_in_what_is_given"
    ONE_ID = "one_id"
    OWN_NOISE = "own_noise"
    CLUSTER = "cluster"
    PREDICTED_EXACTLY = "predicted_exactly"
    PREDICTED_ONE_BY_ONE = "predicted_one_by_one"
    PREDICTED_BY_COPIES = "predicted_by_copies"
    PREDICTED_BY_TRIED_COPIES = "predicted_by_tried_copies"
    PREDICTED_ELSEWHERE = "predicted_elsewhere"


class Caveat(Code):
    """What a guarantee does not cover."""

    STATED = "stated", {"text": str}
    TUNED_ELSEWHERE = "tuned_elsewhere"
    LOOK = "look"
    TIME_AND_MEMORY = "time_and_memory"
    SEVERAL_RECORDS = "several_records"
    OTHER_RELEASES = "other_releases"
    PREPROCESSING = "preprocessing"
    CHANGED_RECORD = "changed_record"
    CHANGED_LABEL = "changed_label"
    UNKNOWN_LABEL_STOP = "unknown_label_stop"
    STRICT_STOP = "strict_stop"
    ROWS_MIX = "rows_mix"
    WRONG_IDS = "wrong_ids"
    CHANGED_RECORD_OF_A_PERSON = "changed_record_of_a_person"
    OTHER_RELEASES_OF_PERSONS = "other_releases_of_persons"
    ID_STOP = "id_stop"
    PERSON_AT_SEVERAL_PARTIES = "person_at_several_parties"
    PERSON_AT_ALL_PARTIES = "person_at_all_parties", {"mu": float}
    ALSO_IN_STARTS = "also_in_starts", {"mu": float}
    PARTICIPATION = "participation"
    PARTLY_CHARGED = "partly_charged"
    PRIVATE_BOUNDARIES = "private_boundaries"
    RECORD_IN_SEVERAL_TASKS = "record_in_several_tasks"
    SEVERAL_RECORDS_IN_A_TASK = "several_records_in_a_task"
    SEVERAL_RECORDS_IN_TASKS = "several_records_in_tasks"
    STREAM_STATE = "stream_state"
    CHOICES_BEYOND_SEARCH = "choices_beyond_search"
    NUMBER_OF_RUNS = "number_of_runs"
    STOPPED_TRAINING = "stopped_training"
    COPIED_CHECKPOINTS = "copied_checkpoints"
    COMPUTED_TOGETHER = "computed_together"
    CHOSEN_BY_NUMBERS = "chosen_by_numbers"
    RECORDS_OF_TRAINING = "records_of_training"
    CHOSEN_BY_THESE_RECORDS = (
        "chosen_by_these_records",
        {"dataset": str, "number": int},
    )
    CHOSEN_MODEL = "chosen_model"


# Caveats about persons with several records, which only a guarantee for records needs.
ABOUT_SEVERAL_RECORDS = frozenset(
    {
        Caveat.SEVERAL_RECORDS,
        Caveat.SEVERAL_RECORDS_IN_A_TASK,
        Caveat.SEVERAL_RECORDS_IN_TASKS,
    }
)
