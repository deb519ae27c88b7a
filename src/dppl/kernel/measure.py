"""Access to private records within a budget: declared queries, answered with noise, as often as was paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NoReturn

from dppl._utils import validate
from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.mechanisms.randomness import Randomness, randomness
from dppl.kernel.privacy.budgets import Budget, budget_of_one, split
from dppl.kernel.privacy.release import Release
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import Query, answered


@dataclass(frozen=True, slots=True)
class Measurement:
    """A query, its share of the budget and how often it may be asked.

    Parameters
    ----------
    query : Query
    percent : float, default=100
        Of mu², relative to the other measurements of the method.
    times : int, default=1
        Each ask costs alike; all together cost the share.
    statistic : Term, default=None
        What the statement calls it, where the query's own term does not say enough.
    """

    query: Query
    percent: float = 100
    times: int = 1
    statistic: Term[Statistic] | None = None

    def __post_init__(self) -> None:
        validate.positive_integer(times=self.times)
        validate.positive(percent=self.percent)
        if self.times > 1 and not self.query.repeats:
            raise ParameterError(
                f"must be 1 for {type(self.query).__name__}; got {self.times}.",
                parameter="times",
            )


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A measurement, the mechanism that answers it, and its entry in the statement; what costs nothing has none."""

    measurement: Measurement
    mechanism: Any
    release: Release | None


def calibrated(
    budget: Budget, declared: Mapping[str, Measurement], relation: str, n_rows: int = 1
) -> dict[str, Calibrated]:
    """Give each measurement the least noise with which its share of the budget suffices.

    Squares of mu add up (Dong, Roth, Su 2022, arXiv:1905.02383v3, Corollary 3.3), also
    where a query depends on earlier answers. What neighbours agree in costs nothing,
    and is answered exactly. Where a person has `n_rows` rows, each of another class,
    noise and entries are for all of them (`budgets.budget_of_one`).
    """
    priced = {
        name: one for name, one in declared.items() if not one.query.is_public(relation)
    }
    if n_rows > 1:
        selects = all(one.query.selects for one in priced.values())
        if not selects and not all(one.query.per_class for one in priced.values()):
            raise ParameterError(
                f"must be 1, since not every sum is of one class; got {n_rows}.",
                parameter="max_classes_per_person",
            )
        budget = budget_of_one(budget, n_rows, selects=selects)
    shares: dict[str, Budget] = dict.fromkeys(priced, budget)
    if len(priced) > 1:
        shares = dict(
            zip(
                priced,
                split(budget, [one.percent for one in priced.values()]),
                strict=True,
            )
        )
    paid = {}
    for name, one in declared.items():
        if name not in shares:
            paid[name] = Calibrated(one, None, None)
            continue
        mechanism = one.query.mechanism(shares[name], one.times, relation)
        entry = mechanism.describe(one.statistic or one.query.statistic)
        paid[name] = Calibrated(
            one, mechanism, entry if n_rows == 1 else entry.for_rows(n_rows)
        )
    return paid


def check_declared(
    declared: Mapping[str, Measurement],
    n_classes: int,
    *,
    multilabel: bool,
    whole_persons: bool,
) -> None:
    """Refuse measurements that do not fit the class list, the labels or the persons of a fit."""
    for name, one in declared.items():
        # Queries that do not read label sets see records of one class there.
        of_one = multilabel and not one.query.reads_label_sets
        if getattr(one.query, "n_classes", None) not in (
            None,
            1 if of_one else n_classes,
        ):
            raise ParameterError(
                f"the measurement {name!r} must be of {n_classes} classes, as the fit is."
            )
        if one.query.reads_label_sets and not multilabel:
            raise ParameterError(
                f"the measurement {name!r} is for methods of several labels (multilabel)."
            )
        if whole_persons and not one.query.whole_persons:
            raise ParameterError(
                f"the measurement {name!r} is not one that whole persons move as one record does."
            )


def rows_of_a_person(max_classes: int | None, n_classes: int, *, whole: bool) -> int:
    """Return as how many records, each of another class, a person counts; a whole one moves all queries as one."""
    return 1 if whole else min(max_classes or 1, n_classes)


def secure_noise(random_state: int | None) -> bool:
    """Whether noise of this seed protects: noise from the operating system does, and any seed does not."""
    return randomness(random_state).secure_noise


@dataclass(slots=True, eq=False, repr=False)  # which tracebacks with locals would show
class _Counter:
    """What a `Measure` shares with those that `at` makes of it."""

    records: Any
    source: Randomness
    left: dict[str, int]  # how many asks
    lock: Lock = field(default_factory=Lock)


class Measure:
    """Access to private records within the budget: ``measure(name, **released)`` answers with noise, or refuses.

    Nothing else that a method gets can reach a record. It ends with the fit, and is
    neither copied nor pickled.

    Parameters
    ----------
    paid : dict of str to Calibrated
        What may be asked.
    records : Records, Outcomes, Rivals, SeveralOutcomes or None
        What has the `total` of a query. None where nothing may be asked.
    random_state : int, default=None
        Seed of the noise; None draws from the operating system.
    used : dict of str to int, default=None
        How many asks of each name an interrupted run has begun, which are spent.
    """

    def __init__(
        self,
        paid: Mapping[str, Calibrated],
        records: Any,
        random_state: int | None,
        used: Mapping[str, int] | None = None,
    ) -> None:
        # A negative count would give asks that nobody paid for.
        left = {
            name: one.measurement.times - max(0, (used or {}).get(name, 0))
            for name, one in paid.items()
        }
        self._paid = paid
        self._counter = _Counter(records, randomness(random_state), left)
        self._always: dict[str, Any] = {}

    def __call__(self, name: str, **released: Any) -> Any:
        """Answer a measurement with noise, if it was declared and is asked no oftener than was paid for.

        Parameters
        ----------
        name : str
            As it was declared.
        **released
            What the query asks at: public values and earlier answers, and what was
            computed from these.
        """
        counter = self._counter
        paid = self._declared(name)
        with counter.lock:
            if counter.records is None or counter.left[name] < 1:
                times = paid.measurement.times
                raise MeasurementError(
                    f"{name!r} was declared for {times} asks of one fit, and all are answered."
                )
            counter.left[name] -= 1  # first: an ask that fails is spent
            # Held to the end: what records keep between asks, such as mapped rows, is
            # of one ask.
            query = paid.measurement.query
            records = counter.records
            released = {**self._always, **released}
            if paid.mechanism is None:  # neighbours agree in it
                return records.total(query, **released)
            return answered(query, paid.mechanism, records, counter.source, **released)

    def at(self, **released: Any) -> Measure:
        """Return the same access with these arguments in every query; both count the same asks."""
        bound = Measure.__new__(Measure)
        bound._paid = self._paid
        bound._counter = self._counter
        bound._always = {**self._always, **released}
        return bound

    def __enter__(self) -> Measure:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the records: a method that keeps its `measure` keeps none, and every later ask is refused."""
        records = self._counter.records
        self._counter.records = None
        if hasattr(records, "close"):
            records.close()

    def noise_std(self, name: str) -> float:
        """Return the standard deviation of the noise in each coordinate of an answer; public."""
        return float(self._declared(name).mechanism.noise_std)

    def unit(self, name: str) -> float:
        """Return how many integer steps of an answer are 1; public."""
        return self._declared(name).measurement.query.unit

    def _declared(self, name: str) -> Calibrated:
        if name not in self._paid:
            raise MeasurementError(
                f"{name!r} was not declared; declared are {', '.join(self._paid) or 'none'}."
            )
        return self._paid[name]

    def __contains__(self, name: object) -> bool:
        """Whether a measurement was declared."""
        return name in self._paid

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse copies, which would count separately."""
        raise TypeError(
            "a Measure is neither copied nor pickled: a copy would count anew"
        )
