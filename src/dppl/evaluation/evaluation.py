"""What an evaluation says: estimates with intervals, each as data that is checked when it is read, and as text."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from statistics import NormalDist
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from dppl._utils import validate
from dppl.errors import ParameterError
from dppl.evaluation import intervals
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.composition import total_mu
from dppl.kernel.privacy.terms import Unit
from dppl.kernel.queries.outcomes import CONFIDENCES
from dppl.reasons import NoSum
from dppl.statement import words

FORMAT = 2
CANNOT_TELL = "cannot tell"
_CLASSES_SHOWN = 20
_REMEMBER = "what you choose by these numbers looks better on these records than it is; measure it on others."


class Written:
    """Mixin of dataclasses that are written as JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]

    def to_json(self) -> str:
        """Return `to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True)
class Estimate(Written):
    """A number and its interval; `value` is None where noise hides it at this budget, or leaves bounds alone.

    Parameters
    ----------
    value : float or None
    low, high : float
        The interval covers sampling and noise.

    Examples
    --------
    >>> [str(Estimate(*one)) for one in ((0.8213, 0.798, 0.8431), (None, 0.42, 1.0), (None, 0.0, 1.0))]
    ['0.82 (0.80 to 0.84)', 'from 0.42 to 1.00', 'cannot tell']
    """

    value: float | None
    low: float
    high: float

    @property
    def width(self) -> float:
        """Length of the interval."""
        return self.high - self.low

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """Read what `to_dict` wrote."""
        value = content["value"]
        low = float(content["low"])
        high = float(content["high"])
        if not low <= (low if value is None else value) <= high:
            raise ValueError("an estimate lies outside of its interval")
        return cls(None if value is None else float(value), low, high)

    def __str__(self) -> str:
        if self.value is None and self.width >= 1:
            return CANNOT_TELL
        # Shares have two digits, or three where the interval is that narrow; numbers of
        # records have none.
        digits = 0
        if max(abs(self.low), abs(self.high)) <= 1:
            digits = 2
        if digits and self.width < 0.02:
            digits = 3
        ends = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        if self.value is None:
            return f"from {ends}"
        return f"{self.value:.{digits}f} ({ends})"


@dataclass(frozen=True, slots=True)
class OfClass:
    """What is said of one class.

    Parameters
    ----------
    label : str, int, float or bool
    n : Estimate
        Number of its test records, or persons.
    recall : Estimate
    precision, f1 : Estimate, default=None
        None where false alarms were not asked for.
    """

    label: Any
    n: Estimate
    recall: Estimate
    precision: Estimate | None = None
    f1: Estimate | None = None


@dataclass(frozen=True, slots=True)
class OfBand:
    """What is said of classes of similar size, by noisy sizes.

    Parameters
    ----------
    labels : tuple
        The classes, in the order of the class list.
    recall : Estimate
        Mean recall of the classes; of a tail, the share of its records that are right.
    tail : bool
        Whether the sizes of these classes are lost in noise.
    """

    labels: tuple[Any, ...]
    recall: Estimate
    tail: bool


def most_bytes(classes: Iterable[Any]) -> int:
    """Return what an evaluation takes at most as JSON, without pairs of classes: a function of the public class list."""
    # A name is in several tables, and JSON may escape every character of it.
    return 2**18 + sum(4096 + 6 * 8 * len(str(name).encode()) for name in classes)


@dataclass(frozen=True, slots=True)
class Confusion:
    """A pair of classes of which one is taken for the other: `n` records of `label` are predicted as `predicted`."""

    label: Any
    predicted: Any
    n: Estimate


@dataclass(frozen=True, slots=True)
class OfConfidence:
    """The records whose confidence lies between two ends: accuracy, and noisy numbers of right and wrong answers."""

    low: float
    high: float
    accuracy: Estimate
    right: float
    wrong: float
    noise_std: float  # of each of both numbers


@dataclass(frozen=True, slots=True)
class Abstention(Written):
    """From which confidence on a model should answer, so that few of its answers are wrong.

    Parameters
    ----------
    min_confidence : float or None
        For `predict`: 0 if all records may be answered, None if no confidence is known to be enough.
    max_error : float
        At most this share of the answers is wrong, ...
    confidence : float
        ... with this probability, over the choice of test records and the noise.
    answered : Estimate
        Share of records that are answered.
    """

    min_confidence: float | None
    max_error: float
    confidence: float
    answered: Estimate

    def __str__(self) -> str:
        error, sure = (
            f"{100 * share:.4g} %" for share in (self.max_error, self.confidence)
        )
        if self.min_confidence is None:
            return (
                f"no confidence is known to keep the error at {error}: the model is too often wrong, or the test has "
                "too few records for its budget"
            )
        some = f"of the answers with a confidence of {self.min_confidence:g} or more"
        return (
            f"at most {error} {some if self.min_confidence else 'of all answers'} are wrong, with {sure} confidence; "
            f"the model answers a share of {self.answered}"
        )


def abstention(
    right: ArrayLike,
    wrong: ArrayLike,
    noise_std: float,
    max_error: float,
    confidence: float,
) -> Abstention:
    """Choose by noisy numbers of right and wrong answers in each range of `CONFIDENCES`."""
    validate.open_unit(max_error=max_error, confidence=confidence)
    h = np.asarray(right, np.float64)
    m = np.asarray(wrong, np.float64)
    v = noise_std**2
    # The threshold is chosen by a test that holds for all of them at once; then its
    # share of answers is estimated.
    first = intervals.answered_from(h, m, v, max_error, confidence)
    if first is None:
        return Abstention(None, max_error, confidence, Estimate(0.0, 0.0, 0.0))
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    n = h + m
    # Each range adds two noisy numbers, of right and of wrong answers.
    noise = 2 * v * (len(n) - first), 2 * v * first
    if first:
        share = intervals.ratio(n[first:].sum(), n[:first].sum(), *noise, z)
    else:
        share = (1.0, 1.0, 1.0)
    return Abstention(
        CONFIDENCES[first], max_error, confidence, Estimate(*map(float, share))
    )


@dataclass(frozen=True, slots=True)
class Threshold:
    """What follows if the second class is predicted from this probability on."""

    threshold: float
    sensitivity: Estimate
    specificity: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class OfLabels:
    """What is said of all labels together, where a record has several.

    Parameters
    ----------
    max_labels : int
        So many labels of a record count, true and predicted ones each.
    precision, recall, f1 : Estimate
        Of all labels of all records, in which frequent labels weigh more (*micro*).
    macro_f1 : Estimate
        Mean of the F1 of all labels, in which they weigh alike.
    """

    max_labels: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    macro_f1: Estimate


@dataclass(frozen=True, slots=True)
class Together:
    """What a record pays for model and evaluation together.

    Parameters
    ----------
    mu : float or None
        In Gaussian DP, rounded up; None if the two costs do not add.
    disjoint : bool
        Whether a ledger showed that both come from different parts of the data set.
    reason : NoSum, default=None
        Why there is no mu.
    """

    mu: float | None
    disjoint: bool
    reason: NoSum | None = None

    @classmethod
    def of(cls, model: Guarantee, here: Guarantee, *, disjoint: bool) -> Self:
        """Return what a model and its evaluation cost together.

        Parameters
        ----------
        model, here : Guarantee
            Of the model, and of the evaluation.
        disjoint : bool
            Whether a ledger shows that both come from different parts of the data set.
        """
        for_persons = model.unit is Unit.PERSON
        if for_persons != (here.unit is Unit.PERSON):
            if for_persons:
                reason = NoSum.MODEL_OF_PERSONS
            else:
                reason = NoSum.MODEL_OF_RECORDS
            return cls(None, disjoint, reason)
        first = model.mu
        second = here.mu
        if model.adjacency != here.adjacency or first is None or second is None:
            return cls(None, disjoint, NoSum.OTHER_NOTIONS)
        # Of disjoint parts a record pays for one (parallel composition); else squares
        # of mu add up.
        if disjoint:
            return cls(max(first, second), disjoint)
        return cls(total_mu([*model.costs(), *here.costs()]), disjoint)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote; ValueError, KeyError or TypeError for anything else."""
        together = cls(**_fields(cls, content))
        if together.mu is not None and not together.mu > 0:
            raise ValueError("what model and evaluation cost together is above 0")
        if (together.mu is None) == (together.reason is None):
            raise ValueError("an evaluation says what both cost, or why nobody knows")
        return together

    def __str__(self) -> str:
        if self.mu is None:
            return self.cost
        return f"together with the model {self.cost}"

    @property
    def cost(self) -> str:
        """What both cost together, in words."""
        if self.reason is not None:
            return f"what model and evaluation cost together is not known, since {words.text(self.reason)}"
        assert self.mu is not None
        if self.disjoint:
            why = "the evaluation says that the parts are disjoint, so the larger cost counts"
        else:
            why = "as if on the same records"
        return f"mu = {rounded_up(self.mu, 4)} ({why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Written):
    """How good a classifier is on private test records, with intervals that cover sampling and noise.

    Numbers are shares of records, or of persons where the evaluation had their ids: a
    person's records then count one over their number each.

    Parameters
    ----------
    classes : tuple
        The public class list, in its order.
    unit : str
        What the numbers count, as the guarantee says it.
    confidence : float
        Probability with which each interval covers, by itself.
    n : Estimate
        Number of test records, or persons, with a label in the class list.
    accuracy, balanced_accuracy : Estimate
        Where a record has several labels: the share of records whose labels are all
        right, and no other is predicted; and the mean recall of all labels.
    per_class : tuple of OfClass
        In the order of `classes`: always all of them.
    bands : tuple of OfBand
        Classes by noisy size, the largest first; empty for few classes.
    guarantee : Guarantee
        What the evaluation itself promises to its test records.
    top_k : int, default=None
    top_k_accuracy : Estimate, default=None
        Share of records whose label is among the `top_k` likeliest classes.
    confusions : tuple of Confusion, default=None
        Pairs that are more than noise, the most frequent first; None where they were
        not asked for.
    calibration_gap : Estimate, default=None
        Mean confidence minus accuracy.
    temperature : float, default=None
        What to divide logits by, where the interval of the gap excludes 0. Chosen from
        these records.
    reliability : tuple of OfConfidence, default=None
    auroc : Estimate, default=None
        For two classes.
    thresholds : tuple of Threshold, default=None
        For two classes.
    together : Together, default=None
        None if the model has no guarantee.
    model_sha256 : str, default=None
        Hash of the file of the evaluated model, if it has one.
    labels : OfLabels, default=None
        Where a record has several labels.
    """

    classes: tuple[Any, ...]
    unit: str
    confidence: float
    n: Estimate
    accuracy: Estimate
    balanced_accuracy: Estimate
    per_class: tuple[OfClass, ...]
    bands: tuple[OfBand, ...]
    guarantee: Guarantee
    top_k: int | None = None
    top_k_accuracy: Estimate | None = None
    confusions: tuple[Confusion, ...] | None = None
    calibration_gap: Estimate | None = None
    temperature: float | None = None
    reliability: tuple[OfConfidence, ...] | None = None
    auroc: Estimate | None = None
    thresholds: tuple[Threshold, ...] | None = None
    together: Together | None = None
    model_sha256: str | None = None
    labels: OfLabels | None = None

    @property
    def counted(self) -> str:
        """What the numbers count: records or persons."""
        if self.unit == Unit.PERSON:
            return "persons"
        return "records"

    def threshold(self, max_error: float = 0.05) -> Abstention:
        """Return the least confidence at which at most `max_error` of the answers are wrong; it costs nothing more.

        The bound holds with the confidence of this evaluation, for new records like
        those that were tested. Call it for one error that was fixed before: the
        smallest of several is a choice by these records.

        Parameters
        ----------
        max_error : float, default=0.05
            Of the records, or persons, that are answered.

        Raises
        ------
        ParameterError
            If the evaluation did not ask for ``"reliability"``.
        """
        if self.reliability is None:
            raise ParameterError(
                "needs an evaluation whose parts hold 'reliability'.",
                parameter="max_error",
            )
        right, wrong = (
            [getattr(one, name) for one in self.reliability]
            for name in ("right", "wrong")
        )
        return abstention(
            right, wrong, self.reliability[0].noise_std, max_error, self.confidence
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready; `from_dict` reads it back."""
        return {"format": FORMAT} | Written.to_dict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote; ValueError, KeyError or TypeError for anything else."""
        if content["format"] != FORMAT:
            raise ValueError(
                f"an evaluation of format {content['format']!r}; this version reads {FORMAT}"
            )
        values = _fields(cls, content)
        if not 0 < values["confidence"] < 1:
            raise ValueError("an interval holds with a probability")
        if [one.label for one in values["per_class"]] != list(values["classes"]):
            raise ValueError(
                "an evaluation says something of every class, in their order"
            )
        return cls(**values)

    @property
    def for_print(self) -> str:
        """The number to publish, in a sentence: accuracy, or micro F1 where a record has several labels."""
        name, number = ("accuracy", self.accuracy)
        if self.labels is not None:
            name, number = ("micro F1", self.labels.f1)
        if number.value is None or self.n.value is None:
            return "the budget is too small for one number"
        value, low, high = (
            f"{100 * share:.0f} %" for share in (number.value, number.low, number.high)
        )
        said = (
            f"{name} {value} ({100 * self.confidence:g} % interval {low} to {high}) on about {self.n.value:.0f} "
            f"{self.counted}, {', '.join(words.figures(self.guarantee.budget.to_dict()))}"
        )
        # Noise of a seed can be drawn again and subtracted.
        if self.guarantee.secure_noise:
            return f"{said}. All numbers here may be published."
        return said

    def facts(self) -> list[tuple[str, str]]:
        """Return what is said of all records, as names and texts."""
        labels = self.labels
        gap = self.calibration_gap
        rows: list[tuple[str, Any]] = [("for print", self.for_print)]
        rows += [(f"{self.counted} tested", f"about {self.n}")]
        if labels is None:
            rows += [
                ("accuracy", self.accuracy),
                (f"label in the best {self.top_k}", self.top_k_accuracy),
            ]
            rows += [
                ("balanced accuracy", self.balanced_accuracy),
                ("AUROC", self.auroc),
            ]
        else:
            most = f"the first {labels.max_labels} true and the likeliest {labels.max_labels} predicted count"
            rows += [
                ("micro F1", labels.f1),
                ("micro precision", labels.precision),
                ("micro recall", labels.recall),
                ("macro F1", labels.macro_f1),
            ]
            rows += [
                ("mean recall of labels", self.balanced_accuracy),
                ("all labels right", self.accuracy),
            ]
            rows += [("labels of a record", most)]
        rows += [("confidence above accuracy", gap)]
        if self.temperature is not None:
            mends = (
                f"{self.temperature:.2g} would mend that; measure it on other records"
            )
            rows += [("  temperature", mends)]
        rows += [
            (f"{one.label} taken for {one.predicted}", one.n)
            for one in self.confusions or ()
        ]
        return [(name, str(value)) for name, value in rows if value is not None]

    def table(self) -> list[list[str]]:
        """Return headings, and a row for each class in the order of the class list, which no result decides."""
        shown = {"recall": "recall", "precision": "precision", "n": self.counted}
        if self.labels is not None:
            shown = {"f1": "F1", **shown}
        names = [
            name
            for name in shown
            if any(getattr(one, name) is not None for one in self.per_class)
        ]
        rows = [
            [str(one.label), *(str(getattr(one, name)) for name in names)]
            for one in self.per_class
        ]
        return [["class", *(shown[name] for name in names)], *rows]

    def told(self) -> tuple[list[list[str]], str]:
        """Return the rows of `table` that tell something, and the names of the other classes in a sentence."""
        headings, *rows = self.table()
        counts = headings.index(self.counted)
        telling = []
        silent = []
        for row in rows:
            if {*row[1:counts], *row[counts + 1 :]} == {CANNOT_TELL}:
                silent.append(row[0])
            else:
                telling.append(row)
        if not telling:
            return [headings], "Of single classes the budget cannot tell anything."
        sentence = ""
        if silent:
            sentence = f"The budget cannot tell anything of {', '.join(silent)}."
        return [headings, *telling], sentence

    def promise(self) -> list[tuple[str, str]]:
        """Return what it promises to the records that were tested, and what it costs with the model."""
        promise = words.in_short(self.guarantee)[:-1]
        if self.together is not None:
            promise.append(("With the model", f"{self.together.cost}."))
        return [*promise, ("Remember", _REMEMBER)]

    def __str__(self) -> str:
        lines = [f"{name:<28}{text}" for name, text in self.facts()]
        table, silent = self.told()
        lines += [
            "".join(f"{cell:<28}" for cell in row).rstrip()
            for row in table[: _CLASSES_SHOWN + 1]
            if len(table) > 1
        ]
        if len(table) > _CLASSES_SHOWN + 1:
            lines.append(f"and {len(table) - _CLASSES_SHOWN - 1} more classes")
        lines += [silent] if silent else []
        lines.append(
            f"Each interval covers chance and noise, and holds with {100 * self.confidence:g} %."
        )
        return "\n".join(
            [*lines, *(f"{heading}: {text}" for heading, text in self.promise())]
        )


def _plain(value: Any) -> Any:
    """Return nested data as dictionaries and lists."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Guarantee):
        return value.to_dict()
    if hasattr(value, "__dataclass_fields__"):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return value


def _fields(kind: Any, content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass from JSON."""
    hints = get_type_hints(kind)
    return {one.name: _read(hints[one.name], content[one.name]) for one in fields(kind)}


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as a field of the type `kind`; a TypeError if it is of another."""
    items = get_args(kind)
    if type(None) in items:
        return None if value is None else _read(items[0], value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_read(items[0], one) for one in value)
    if kind in (Estimate, Guarantee, Together):
        return kind.from_dict(value)
    if kind is NoSum:
        return NoSum(value)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**_fields(kind, value))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) in ((str, int, float, bool) if kind is Any else (kind,)):
        return value
    raise TypeError(f"a field of type {kind} was expected")
