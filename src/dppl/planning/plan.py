"""What a budget buys: accuracy by class size, before any private record is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from dppl import _validate
from dppl.errors import BudgetError, ParameterError
from dppl.estimators.public_data import PublicData
from dppl.estimators.registry import BY_METHOD, Method, method_for
from dppl.kernel.privacy import Budget, PureDP
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.composition import total_epsilon, total_mu, total_rho
from dppl.planning import model
from dppl.planning.model import LAWS, NAMED, Law
from dppl.planning.rehearsal import RUNS, Rehearsal, rehearse

__all__ = ["BudgetPlan", "ClassExpectation", "Gain", "plan_budget"]

Float = NDArray[np.float64]
Describe: TypeAlias = Literal["none", "names"]
DESCRIBE: tuple[Describe, ...] = get_args(Describe)

# Numbers of features of encoders that dppl knows by name.
FEATURES = {
    "minilm": 384,
    "all-MiniLM-L6-v2": 384,
    "vit-b-16": 768,
    "vit-h-14": 1280,
    "vit-l-16": 1024,
    "resnet-50": 2048,
}
YES, IN_PART, NO = "yes", "in part", "no"
# Shares of what could be learnt of a class without noise.
FOUND, FOUND_IN_PART = 0.5, 0.2
_ROWS = 6
# The curve goes so many times below the smallest class and above the largest.
_BEYOND, _CURVE_POINTS = 5.0, 12
_MOST_RECORDS = 10**12
# How easy and how hard a rehearsal may show the data to be.
_EASIEST, _HARDEST = 1e-2, 1e2
GUESSES = (
    "Numbers of records and the smallest class must be guesses from public knowledge: counts of the private records "
    "would be a use of them that no guarantee covers."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassExpectation:
    """What to expect of a class."""

    size: int  # its records
    recall: float  # share of its records that get its name
    low: float
    high: float
    # "yes", "in part" or "no": at least half, at least a fifth, or less of what could be learnt of it without noise
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a change would make of the expectations."""

    balanced_accuracy: float
    smallest_recall: float  # of the smallest class


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """What `plan_budget` expects; `print` says it in sentences, `to_dict` for machines."""

    budget: Budget
    method: str  # as in `--method`
    is_default: bool  # whether the budget gets that method by itself
    n_classes: int
    n_records: int
    smallest: int
    n_features: int
    n_public: int
    ceiling: float | None  # accuracy without privacy, where it was given
    balanced_accuracy: float
    low: float
    high: float
    classes: tuple[ClassExpectation, ...]  # at most six sizes, from the smallest class to the largest
    curve: tuple[ClassExpectation, ...]  # one class of other sizes by the model, where the others stay as they are
    needed: int | None  # records of a class that is found, about; None if no number is enough
    twice_the_budget: Gain
    twice_the_records: Gain
    describe: Describe  # what the fit starts from
    # Without names of classes, or with them, whichever the plan is not for; None where that makes no difference.
    otherwise: Gain | None
    cost: Mapping[str, float] = field(hash=False)  # of a ledger: mu and rho, and epsilon of a pure budget
    rehearsed: int = 0  # simulated fits behind the accuracies; 0 if they are those of the model

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        budget = {"notion": self.budget.notion, **self.budget.to_dict()}
        content = {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}
        return {**content, "budget": budget, "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """Return the plan in sentences."""
        if self.rehearsed:
            source = f"mean and two standard deviations of {self.rehearsed} simulated fits on the rehearsal table"
        elif self.ceiling is not None:
            source = f"where {self.ceiling:g} is reached without privacy"
        else:
            source = "as nothing is known of the accuracy without privacy; name it as ceiling, or rehearse, "
            source += "for a closer range"
        why = "the default for this budget" if self.is_default else "as named"
        cost = ", ".join(f"{name} = {rounded_up(value, 4)}" for name, value in self.cost.items())
        name, value = next(iter(self.cost.items()))
        # Squares of mu add up, and so do rho and epsilon themselves.
        four = rounded_up(value * (2 if name == "mu" else 4), 4)
        return [
            f"Balanced accuracy: about {self.balanced_accuracy:.2f} ({self.low:.2f} to {self.high:.2f}), {source}.",
            self._of_smallest(),
            _gain("Twice the budget", self.twice_the_budget),
            _gain("Twice the records", self.twice_the_records),
            "Ranges are for classes of a size on average; a single class, above all a rare one, varies more.",
            f"Method: {self.method}, {why}.",
            *self._of_names(),
            f"Ledger: one fit costs {cost}; four such fits need an account of {name} = {four}.",
            GUESSES,
        ]

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _of_smallest(self) -> str:
        one = self.classes[0]
        verb = {YES: "is", IN_PART: "is in part", NO: "is not"}[one.found]
        start = (
            f"A class of {one.size} record{'s' * (one.size != 1)} {verb} expected to be found at "
            f"{str(self.budget).rsplit(', ', 1)[0]} (recall about {one.recall:.2f}, {one.low:.2f} to {one.high:.2f})"
        )
        if self.needed is None:
            return f"{start}; no number of records is enough."
        if (one.found == YES) != (self.needed <= one.size):  # a rehearsal may differ from the model
            return f"{start}."
        if one.found == YES:
            return f"{start}; {'one is' if self.needed == 1 else f'about {self.needed} are'} enough."
        return f"{start}; it takes about {self.needed}."

    def _of_names(self) -> list[str]:
        if self.method != "softmax":
            return []
        if self.otherwise is None:
            return ["The rehearsal starts from no names of classes; `dppl train` starts from those of texts by itself."]
        named = "The fit starts from the names of the classes, as `dppl train` does with texts. Where they say little"
        without = "The plan is for a start from nothing. From names of classes of texts, as `dppl train` starts"
        return [_gain(named if self.describe == "names" else without, self.otherwise)]


def plan_budget(
    budget: Budget,
    *,
    n_classes: int,
    n_records: int,
    smallest: int | None = None,
    n_features: int | None = None,
    encoder: str | None = None,
    n_public: int = 0,
    method: Method | Literal["auto"] = "auto",
    ceiling: float | None = None,
    describe: Describe = "none",
    rehearsal: tuple[ArrayLike, ArrayLike] | None = None,
    public: PublicData | None = None,
    runs: int = RUNS,
) -> BudgetPlan:
    """Say what accuracy to expect by class size, before any private record is read.

    Sizes are taken to fall evenly, in ratio, from the largest class to the smallest. A model of signal over noise turns
    them into recalls; docs/planning.md says how it was fitted, and how far it was off on other data sets. With a public
    labelled table of a similar kind, simulated fits on parts of it take the place of the model.

    Parameters
    ----------
    budget : GaussianDP, ZCDP, ApproxDP or PureDP
        What the whole fit may spend.
    n_classes : int
        Number of classes, at least 2.
    n_records : int
        A guess of the number of records, at least one a class.
    smallest : int, default=None
        A guess of the number of records of the rarest class. None takes all classes to be equally frequent.
    n_features : int, default=None
        Width of the embeddings. Needed without `encoder` and `rehearsal`.
    encoder : str, default=None
        Name of an encoder whose width dppl knows.
    n_public : int, default=0
        Unlabelled public rows. Fewer than features count as none for ``"softmax"``.
    method : {"auto", "softmax", "mean", "public"}, default="auto"
        ``"auto"`` is the method that the budget gets by itself.
    ceiling : float, default=None
        Balanced accuracy that such data, with as many classes, reach without privacy, from public sources. It narrows
        the range most.
    describe : {"none", "names"}, default="none"
        Whether a fit of softmax starts from nothing or from the names of the classes, as `dppl train` does by itself
        where these are words. For texts: it was measured on intents of messages.
    rehearsal : tuple of (X, y), default=None
        Public labelled rows by the same encoder, of at least as many classes, for simulated fits.
    public : PublicData, default=None
        Public rows for the rehearsal; their number is `n_public` then.
    runs : int, default=5
        Simulated fits.

    Returns
    -------
    BudgetPlan

    Raises
    ------
    BudgetError
        If the method cannot spend the budget.
    InputError
        If the rehearsal table has too few classes or records.
    ParameterError
        If a number breaks its rule.

    Notes
    -----
    **Privacy.** Unit: none. Relation: none. Released: nothing. Sensitivity: none, as no private record is read. Public
    inputs: all. Not covered: a number that was counted in private records; guess it.

    Examples
    --------
    >>> from dppl import ApproxDP, plan_budget
    >>> plan = plan_budget(ApproxDP(1, 1e-6), n_classes=10, n_records=5000, smallest=20, encoder="minilm")
    >>> plan.classes[0].size, plan.classes[0].found
    (20, 'no')
    """
    rows = None if rehearsal is None else np.asarray(rehearsal[0])
    if public is not None:
        n_public = len(np.asarray(public._tables[0]))
    elif rehearsal is not None and n_public:
        raise ParameterError("needs the public rows themselves for a rehearsal.", parameter="n_public")
    n_features = _n_features(n_features, encoder, rows)
    _validate.positive_integer(n_classes=n_classes, n_records=n_records, smallest=1 if smallest is None else smallest)
    _validate.positive_integer(n_public=n_public or 1)
    least = n_classes * (smallest or 1)
    for name, value, bound in (("n_classes", n_classes, 2), ("n_records", n_records, least)):
        if value < bound:
            raise ParameterError(f"must be at least {bound}; got {value!r}.", parameter=name)
    if ceiling is not None:
        _validate.open_unit(ceiling=ceiling)
        if ceiling <= 1 / n_classes:
            raise ParameterError(f"must be above chance, {1 / n_classes:.3g}; got {ceiling!r}.", parameter="ceiling")
    chosen = _method(method, budget, n_public)
    _validate.one_of(DESCRIBE, describe=describe)
    if describe == "names" and (chosen != "softmax" or rehearsal is not None):
        raise ParameterError(
            "names goes with the method softmax, and with no rehearsal; leave it out.", parameter="describe"
        )
    n_records, smallest = int(n_records), int(smallest or n_records // n_classes)
    sizes = class_sizes(n_classes, n_records, smallest)
    of = partial(_Setting.of, budget, chosen, n_features, n_public, ceiling, n_classes)
    setting = of(describe)
    measured = None
    if rows is not None and rehearsal is not None:
        measured = rehearse(chosen, budget, rows, np.asarray(rehearsal[1]), sizes, public, runs)
        # What else the model says is of data as hard as the rehearsal showed.
        setting = setting.like(sizes, float(measured.balanced.mean()))
    if measured is None:
        expected, classes = setting.balanced(sizes), setting.rows(sizes)
        low, high = (setting.balanced(sizes, factor) for factor in (setting.factor, 1 / setting.factor))
    else:
        expected, classes = float(measured.balanced.mean()), setting.measured_rows(sizes, measured)
        low, high = _range(measured.balanced)
    depends_on_names = measured is None and chosen == "softmax"
    # What a ledger is charged follows from the measurements that a fit declares; a pure cost stands first where it is
    # paid.
    rows_of_pool = PublicData(np.eye(1, n_features)) if chosen == "public" else None
    estimator: Any = BY_METHOD[chosen].load()(budget, classes=range(n_classes), public=rows_of_pool)
    costs = estimator.plan(n_features).guarantee.costs()
    pure = {"epsilon": total_epsilon(costs)} if isinstance(budget, PureDP) else {}
    # Twice the budget is twice its first parameter; delta stays.
    (first, spent), *rest = budget.to_dict().items()
    twice = type(budget)(**{first: 2 * spent, **dict(rest)})
    return BudgetPlan(
        budget=budget,
        method=chosen,
        is_default=method == "auto",
        n_classes=n_classes,
        n_records=n_records,
        smallest=smallest,
        n_features=n_features,
        n_public=n_public,
        ceiling=ceiling,
        balanced_accuracy=expected,
        low=low,
        high=high,
        classes=classes,
        curve=setting.curve(sizes),
        needed=setting.needed(sizes),
        twice_the_budget=replace(setting, spend=model.spend(chosen, twice)).gain(sizes),
        twice_the_records=setting.gain(2 * sizes),
        describe=describe,
        otherwise=of("names" if describe == "none" else "none").gain(sizes) if depends_on_names else None,
        cost={**pure, "mu": total_mu(costs), "rho": total_rho(costs)},
        rehearsed=0 if measured is None else runs,
    )


def class_sizes(n_classes: int, n_records: int, smallest: int) -> Float:
    """Return sizes that rise in equal ratios from the smallest class, and add up to the number of records.

    >>> class_sizes(3, 700, 100).round().tolist()
    [100.0, 200.0, 400.0]
    """
    if smallest == n_records // n_classes:
        return np.full(n_classes, n_records / n_classes)
    places = np.linspace(0, 1, n_classes)
    ratio = brentq(lambda log: smallest * np.exp(log * places).sum() - n_records, 0, math.log(n_records / smallest))
    return np.asarray(smallest * np.exp(ratio * places))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """All that recall depends on except the sizes of classes."""

    law: Law
    s: float
    factor: float
    n_classes: int
    n_features: int
    spend: float

    @classmethod
    def of(
        cls,
        budget: Budget,
        method: str,
        n_features: int,
        n_public: int,
        ceiling: float | None,
        n_classes: int,
        describe: Describe = "none",
    ) -> _Setting:
        public = method == "public" or (method == "softmax" and n_public >= n_features)
        law = NAMED[public] if describe == "names" else LAWS[method, public]
        return cls(
            law=law,
            s=model.usual_hardness() if ceiling is None else model.hardness(ceiling, n_classes),
            factor=law.wide if ceiling is None else law.spread,
            n_classes=n_classes,
            n_features=n_features,
            spend=model.spend(method, budget),
        )

    def like(self, sizes: Float, balanced: float) -> _Setting:
        """Return the same with data as hard as a measured balanced accuracy shows."""

        def excess(log: float) -> float:
            return replace(self, s=math.exp(log)).balanced(sizes) - balanced

        low, high = math.log(_EASIEST), math.log(_HARDEST)
        s = _EASIEST if excess(low) <= 0 else _HARDEST if excess(high) >= 0 else math.exp(brentq(excess, low, high))
        return replace(self, s=s, factor=self.law.spread)

    def variance(self, sizes: ArrayLike, mean: float) -> Float:
        return model.variance(self.law, self.s, sizes, mean, self.n_features, self.spend)

    def recalls(self, sizes: ArrayLike, mean: float, factor: float = 1.0) -> Float:
        return model.recall(1 / np.sqrt(factor * self.variance(sizes, mean)), self.n_classes)

    def balanced(self, sizes: Float, factor: float = 1.0) -> float:
        return float(self.recalls(sizes, sizes.mean(), factor).mean())

    def share(self, recall: float) -> float:
        """Return how much of what could be learnt without noise a recall is."""
        return float(model.share_found(self.law, self.s, recall, self.n_classes))

    def expectation(self, size: int, mean: float) -> ClassExpectation:
        v = self.variance(size, mean)
        low, high = model.recall_range(v, self.n_classes, self.factor)
        return self.judged(size, float(model.recall(1 / np.sqrt(v), self.n_classes)), float(low), float(high))

    def judged(self, size: int, recall: float, low: float, high: float) -> ClassExpectation:
        share = self.share(recall)
        found = YES if share >= FOUND else IN_PART if share >= FOUND_IN_PART else NO
        return ClassExpectation(size=size, recall=recall, low=low, high=high, found=found)

    def rows(self, sizes: Float) -> tuple[ClassExpectation, ...]:
        shown = np.unique(np.rint(np.geomspace(sizes[0], sizes[-1], min(_ROWS, len(sizes)))).astype(int))
        return tuple(self.expectation(int(n), float(sizes.mean())) for n in shown)

    def measured_rows(self, sizes: Float, measured: Rehearsal) -> tuple[ClassExpectation, ...]:
        """Return measured recalls of the smallest class, and of groups of others of similar size."""
        places = np.arange(len(sizes))
        groups = [places]
        if sizes[0] < sizes[-1]:
            groups = [places[:1], *np.array_split(places[1:], min(_ROWS, len(sizes)) - 1)]
        rows = []
        for group in groups:
            recalls = measured.recalls[:, group].mean(axis=1)
            size = round(float(np.exp(np.log(sizes[group]).mean())))
            rows.append(self.judged(size, float(recalls.mean()), *_range(recalls)))
        return tuple(rows)

    def curve(self, sizes: Float) -> tuple[ClassExpectation, ...]:
        mean = float(sizes.mean())
        shown = np.geomspace(max(1.0, sizes[0] / _BEYOND), sizes[-1] * _BEYOND, _CURVE_POINTS)
        return tuple(self.expectation(int(n), max(mean, n)) for n in np.unique(np.rint(shown)))

    def gain(self, sizes: Float) -> Gain:
        smallest = float(self.recalls(sizes[:1], float(sizes.mean()))[0])
        return Gain(balanced_accuracy=self.balanced(sizes), smallest_recall=smallest)

    def needed(self, sizes: Float) -> int | None:
        """Return about how many records a class needs to be found, in two digits, where others keep their size."""

        def excess(log: float) -> float:
            n = math.exp(log)
            return self.share(float(self.recalls(n, max(n, float(sizes.mean()))))) - FOUND

        most = math.log(_MOST_RECORDS)
        if excess(0) >= 0:
            return 1
        if excess(most) < 0:
            return None
        number = math.exp(brentq(excess, 0, most))
        step = 10 ** max(0, math.floor(math.log10(number)) - 1)
        return int(math.ceil(number / step) * step)


def _n_features(n_features: int | None, encoder: str | None, rows: NDArray[Any] | None) -> int:
    if n_features is not None:
        _validate.positive_integer(n_features=n_features)
    if encoder is not None and encoder not in FEATURES:
        raise ParameterError(
            f"must be one of {', '.join(FEATURES)}; got {encoder!r}; of another give the number of features.",
            parameter="encoder",
        )
    given = n_features, FEATURES.get(encoder or ""), None if rows is None else rows.shape[-1]
    known = {int(width) for width in given if width is not None}
    if len(known) != 1:
        problem = "agree with the encoder and the rehearsal table" if known else "be given, or a known encoder"
        raise ParameterError(f"must {problem}.", parameter="n_features")
    return known.pop()


def _method(method: str, budget: Budget, n_public: int) -> str:
    _validate.one_of(("auto", *BY_METHOD), method=method)
    chosen = method_for(budget) if method == "auto" else method
    if isinstance(budget, PureDP) and not BY_METHOD[chosen].pure:
        raise BudgetError(
            f"pure DP cannot be spent by {chosen}, whose noise is Gaussian; add a delta, or take the method public."
        )
    if chosen == "public" and not n_public:
        raise ParameterError("must be above 0 for a method that selects public rows; got 0.", parameter="n_public")
    return chosen


def _gain(what: str, gain: Gain) -> str:
    return (
        f"{what}: balanced accuracy {gain.balanced_accuracy:.2f}, recall of the smallest class "
        f"{gain.smallest_recall:.2f}."
    )


def _range(values: Float) -> tuple[float, float]:
    """Return the mean less and plus two standard deviations, within 0 and 1."""
    around = 2 * float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return max(0.0, float(values.mean()) - around), min(1.0, float(values.mean()) + around)
