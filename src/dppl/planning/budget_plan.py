"""What a budget buys: accuracy by class size, before any private record is read."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from dppl._utils import validate
from dppl._utils.types import Float
from dppl.encoders.catalogue import PRESETS, READS
from dppl.encoders.columns import SCHEME, TextColumn, place_of, read_schema
from dppl.errors import Argument, BudgetError, ParameterError
from dppl.finetune.worth import WORTH_TRAINING, is_worth_training
from dppl.kernel.privacy import Budget, PureDP
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.composition import total_epsilon, total_mu, total_rho
from dppl.methods.public_data import PublicData
from dppl.methods.registry import BY_METHOD, Method, method_for
from dppl.planning import recall_model
from dppl.planning.guessed_sizes import checked_guesses, rising_sizes
from dppl.planning.recall_model import LAWS, NAMED, TABLE, Law

Found: TypeAlias = Literal["yes", "in part", "no"]
Describe: TypeAlias = Literal["none", "names"]

# Numbers of features of encoders that dppl knows by name.
FEATURES = {"minilm": 384, "all-MiniLM-L6-v2": 384} | {
    name: preset.dimension for name, preset in PRESETS.items()
}
# Shares of what could be learnt of a class without noise.
FOUND = 0.5
FOUND_IN_PART = 0.2
_ROWS = 6
_MOST_RECORDS = 10**12
# Mu times the records of a quarter from which on it can judge a start: hits then differ
# between a right and a wrong one by five deviations of their noise.
_EVIDENCE = 40
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
    # "yes", "in part" or "no": at least half, at least a fifth, or less of what could
    # be learnt of it without noise
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What to expect after a change."""

    balanced_accuracy: float
    smallest_recall: float  # of the smallest class

    def sentence(self, change: str) -> str:
        """Return the expectation in a sentence that starts with the change."""
        return (
            f"{change}: balanced accuracy {self.balanced_accuracy:.2f}, recall of the smallest class "
            f"{self.smallest_recall:.2f}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """What `plan_budget` expects; `print` says it in sentences, `to_dict` for machines."""

    budget: Budget
    method: str  # as in `--method`
    is_default: bool  # whether it is the default method for the budget
    n_classes: int
    n_records: int
    n_persons: int | None  # each counts as one record
    smallest: int
    n_features: int
    n_public: int
    ceiling: float | None  # accuracy without privacy, where it was given
    balanced_accuracy: float
    low: float
    high: float
    classes: tuple[
        ClassExpectation, ...
    ]  # at most six sizes, from the smallest class to the largest
    needed: (
        int | None
    )  # about how many records a class needs to be found; None if no number is enough
    twice_the_budget: Gain
    twice_the_records: Gain
    describe: Describe  # what the fit starts from
    # Without names of classes, or with them, whichever the plan is not for; None where
    # that makes no difference.
    otherwise: Gain | None
    n_parties: int  # institutions that hold the records
    # Of several institutions: with all records in one place, and at one of them, of
    # even size, alone.
    one_place: Gain | None
    alone: Gain | None
    quarters: int  # of so many records each
    # Of several quarters: the last, if records are new and it starts from the one before
    # (as without a start where records can hardly judge one), and each, if all are of
    # the same persons, at its part of the budget.
    last_quarter: Gain | None
    same_persons: Gain | None
    # Whether weights of a network of images are worth training; None for texts, and for
    # a pure budget, which the noise of a training cannot spend.
    train: bool | None
    cost: Mapping[str, float] = field(
        hash=False
    )  # of a ledger: mu and rho, and epsilon of a pure budget

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        budget = {"notion": self.budget.notion, **self.budget.to_dict()}
        content = {
            name: list(one) if isinstance(one, tuple) else one
            for name, one in asdict(self).items()
        }
        return {**content, "budget": budget, "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """Return the plan in sentences."""
        source = "since the accuracy without privacy is unknown; a ceiling would narrow the range"
        if self.ceiling is not None:
            source = f"where {self.ceiling:g} is reached without privacy"
        if self.is_default:
            why = "the default for this budget"
        else:
            why = "as named"
        cost = ", ".join(
            f"{name} = {rounded_up(value, 4)}" for name, value in self.cost.items()
        )
        name, value = next(iter(self.cost.items()))
        # Squares of mu add up, and so do rho and epsilon themselves.
        four = rounded_up(value * (2 if name == "mu" else 4), 4)
        named = "The fit starts from the names of the classes, as `dppl train` does with texts. If the names say little"
        without = "The plan is for a start from nothing. From names of classes of texts, as `dppl train` starts"
        start = named if self.describe == "names" else without
        return [
            f"Balanced accuracy: about {self.balanced_accuracy:.2f} ({self.low:.2f} to {self.high:.2f}), {source}.",
            self._smallest_class(),
            self.twice_the_budget.sentence("Twice the budget"),
            self.twice_the_records.sentence("Twice the records"),
            "Ranges are for classes of a size on average; a single class, above all a rare one, varies more.",
            f"Method: {self.method}, {why}.",
            *([] if self.otherwise is None else [self.otherwise.sentence(start)]),
            *self._of_parties(),
            *self._of_quarters(),
            *([] if self.train is None else [self._of_weights()]),
            f"Ledger: one fit costs {cost}; four such fits need an account of {name} = {four}.",
            *([] if self.n_persons is None else [self._of_persons(self.n_persons)]),
            GUESSES,
        ]

    @property
    def n_units(self) -> int:
        """How many records there are, or persons."""
        return self.n_persons or self.n_records

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _of_parties(self) -> list[str]:
        if self.one_place is None or self.alone is None:
            return []
        k = self.n_parties
        return [
            f"Each of {k} institutions adds its own noise: the noise of a sum is {math.sqrt(k):.3g} times as wide.",
            self.one_place.sentence("All records in one place"),
            self.alone.sentence("One institution alone, of even size"),
            "Merged models mostly lie between alone and together; by the method mean they are as good as together.",
        ]

    def _of_persons(self, n_persons: int) -> str:
        return (
            f"Of {n_persons} persons with {self.n_records / n_persons:.2g} records each, a person counts as one record "
            "here, which is cautious; sizes of classes are persons, too."
        )

    def _of_quarters(self) -> list[str]:
        if self.last_quarter is None or self.same_persons is None:
            return []
        root = f"{math.sqrt(self.quarters):.3g}"
        share = self.budget.gaussian_allowance().mu / math.sqrt(self.quarters)
        # Down, so that an account of the whole budget pays for all of them.
        here = rounded_up(-share, 4)[1:]
        all_records = f"one fit of all {self.quarters} quarters at mu/{root}"
        return [
            "New records in each quarter: each spends the whole budget as a part of the account, and a record pays for one. "
            "Without a start each reaches what is said above.",
            self.last_quarter.sentence(
                f"Quarter {self.quarters}, if each starts from the last (docs/quarters.md), is about like {all_records}, or "
                f"as without a start where mu times its records is below {_EVIDENCE}, too few to judge one"
            ),
            f"The same persons in each quarter: each spends mu/{root}, here {here}, and a person pays the whole budget in "
            "all.",
            self.same_persons.sentence("Such a quarter without a start"),
            f"If old records may be kept, {all_records} reaches at least as much as new records do with a start, and with "
            "a start more; how much is not known.",
        ]

    def _of_weights(self) -> str:
        strength = self.n_units / self.n_classes * self.budget.gaussian_allowance().mu
        other = "compare `dppl finetune` with `dppl train` on public images"
        advice = other if self.train else "stay with `dppl train`"
        return (
            f"Images: training weights of the network (docs/finetune.md) gained from {WORTH_TRAINING} records of a "
            f"class times mu, on one data set. Here it is {int(strength)}: {advice}."
        )

    def _smallest_class(self) -> str:
        one = self.classes[0]
        unit = "record" if self.n_persons is None else "person"
        verb = {"yes": "is", "in part": "is in part", "no": "is not"}[one.found]
        if self.needed is None:
            rest = "no number of records is enough"
        elif one.found == "yes":
            if self.needed == 1:
                rest = "even a single one would be enough"
            else:
                rest = f"about {self.needed} are enough"
        else:
            rest = f"it takes about {self.needed}"
        return (
            f"A class of {one.size} {unit}{'s' * (one.size != 1)} {verb} expected to be found at "
            f"{str(self.budget).rsplit(', ', 1)[0]} (recall about {one.recall:.2f}, {one.low:.2f} to {one.high:.2f}); "
            f"{rest}."
        )


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
    n_parties: int = 1,
    n_persons: int | None = None,
    quarters: int = 1,
) -> BudgetPlan:
    """Say what accuracy to expect by class size, before any private record is read.

    Sizes are assumed to fall in equal ratios from the largest class to the smallest. A
    model of signal over noise turns them into recalls; docs/planning.md says how it was
    fitted, and how far it was off on other data sets.

    Parameters
    ----------
    budget : GaussianDP, ZCDP, ApproxDP or PureDP
        What the whole fit may spend.
    n_classes : int
        Number of classes, at least 2.
    n_records : int
        A guess of the number of records, at least one per class.
    smallest : int, default=None
        A guess of the number of records of the rarest class. None assumes that all
        classes are equally frequent.
    n_features : int, default=None
        Width of the embeddings. Needed without `encoder`.
    encoder : str, default=None
        Name of an encoder whose width dppl knows, or ``columns:SCHEMA``.
    n_public : int, default=0
        Unlabelled public rows that the fit may use; fewer than features count as none
        for "softmax".
    method : {"auto", "softmax", "mean", "public"}, default="auto"
        As in `dppl fit`; "auto" is the default method for the budget.
    ceiling : float, default=None
        Balanced accuracy that such data reach without privacy, from public sources.
        Narrows the range.
    describe : {"none", "names"}, default="none"
        Whether the fit starts from the names of the classes, as `dppl train` does with
        texts.
    n_parties : int, default=1
        Institutions that hold the records and answer with their own noise
        (`dppl.federation`); `n_records` is for all.
    n_persons : int, default=None
        A guess of the number of persons, whom the fit is to protect with all of their
        records. Each counts as one record, which is cautious; `smallest` is of persons.
    quarters : int, default=1
        How often a model is trained on so many records, for the method softmax.

    Raises
    ------
    ParameterError, BudgetError
        If a parameter breaks its rule, or the method cannot spend the budget.

    Notes
    -----
    **Privacy.** Unit: none. Relation: none. Released: nothing. Sensitivity: none, as no
    private record is read. Public inputs: all. Not covered: a number that was counted
    in private records; guess it.

    Examples
    --------
    >>> from dppl import ApproxDP, plan_budget
    >>> plan = plan_budget(ApproxDP(1, 1e-6), n_classes=10, n_records=5000, smallest=20, encoder="minilm")
    >>> plan.classes[0].size, plan.classes[0].found
    (20, 'no')
    """
    n_units, smallest = checked_guesses(
        n_classes,
        smallest,
        **({"n_records": n_records} if n_persons is None else {"n_persons": n_persons}),
    )
    if n_records < n_units:
        raise ParameterError(
            f"must be at least the number of persons, {n_units}; got {n_records!r}.",
            parameter="n_records",
        )
    n_features = _checked_width(n_features, encoder)
    validate.positive_integer(
        n_public=n_public or 1, n_parties=n_parties, quarters=quarters
    )
    if ceiling is not None:
        validate.open_unit(ceiling=ceiling)
        if ceiling <= 1 / n_classes:
            raise ParameterError(
                f"must be above chance, {1 / n_classes:.3g}; got {ceiling!r}.",
                parameter="ceiling",
            )
    validate.one_of(get_args(Describe), describe=describe)
    chosen = _checked_method(method, budget, n_public, n_parties)
    table = encoder is not None and encoder.startswith(SCHEME)
    if quarters > 1 and (chosen != "softmax" or n_parties > 1):
        raise ParameterError(
            "above 1 is for the method softmax on the records of one institution.",
            parameter="quarters",
        )
    if describe == "names" and (table or chosen != "softmax"):
        raise ParameterError(
            "names goes with texts and the method softmax; leave it out.",
            parameter="describe",
        )
    sizes = rising_sizes(n_classes, n_units, smallest)
    public = chosen == "public" or (chosen == "softmax" and n_public >= n_features)
    laws = {"none": LAWS[chosen, public], "names": NAMED[public]}
    if table and chosen == "softmax":
        laws["none"] = TABLE
    hardness = recall_model.usual_hardness(table=table)
    if ceiling is not None:
        hardness = recall_model.hardness(ceiling, n_classes)
    setting = _Setting(
        law=laws[describe],
        s=hardness,
        n_classes=n_classes,
        n_features=n_features,
        # The noise of so many institutions adds up.
        spend=recall_model.spend(chosen, budget) / math.sqrt(n_parties),
    )
    whole = replace(setting, spend=recall_model.spend(chosen, budget))
    if ceiling is None:
        factor = setting.law.wide
    else:
        factor = setting.law.spread
    other = replace(setting, law=laws["names" if describe == "none" else "none"])
    # Twice the budget is twice its first parameter; delta stays.
    (first, spent), *rest = budget.to_dict().items()
    twice = type(budget)(**{first: 2 * spent, **dict(rest)})
    # Tables have neither names of classes to start from nor a network to train.
    texts = describe == "names" or encoder in READS
    train = None
    if not texts and not table and not isinstance(budget, PureDP):
        train = is_worth_training(budget, n_classes, n_units)
    one_place = alone = None
    if n_parties > 1:
        one_place = whole.gain(sizes)
        alone = whole.gain(sizes / n_parties)
    last_quarter = same_persons = None
    if quarters > 1:
        # Paths add up: signal by the number of quarters, and noise by its root.
        part = replace(setting, spend=setting.spend / math.sqrt(quarters))
        same_persons = part.gain(sizes)
        last_quarter = setting.gain(sizes)
        mu = budget.gaussian_allowance().mu
        if n_units * mu >= _EVIDENCE:
            last_quarter = part.gain(sizes * quarters)
    shown = np.unique(
        np.rint(np.geomspace(sizes[0], sizes[-1], min(_ROWS, n_classes))).astype(int)
    )
    return BudgetPlan(
        budget=budget,
        method=chosen,
        is_default=method == "auto",
        n_classes=n_classes,
        n_records=n_records,
        n_persons=n_persons,
        smallest=smallest,
        n_features=n_features,
        n_public=n_public,
        ceiling=ceiling,
        balanced_accuracy=setting.balanced(sizes),
        low=setting.balanced(sizes, factor),
        high=setting.balanced(sizes, 1 / factor),
        classes=tuple(
            setting.expectation(int(n), float(sizes.mean()), factor) for n in shown
        ),
        needed=setting.needed(sizes),
        twice_the_budget=replace(
            setting, spend=recall_model.spend(chosen, twice) / math.sqrt(n_parties)
        ).gain(sizes),
        twice_the_records=setting.gain(2 * sizes),
        describe=describe,
        otherwise=other.gain(sizes) if chosen == "softmax" and not table else None,
        n_parties=int(n_parties),
        one_place=one_place,
        alone=alone,
        quarters=int(quarters),
        last_quarter=last_quarter,
        same_persons=same_persons,
        train=train,
        cost=_cost(chosen, budget, n_classes, n_features),
    )


def _checked_width(n_features: int | None, encoder: str | None) -> int:
    """Return the number of features, of a known encoder or as given."""
    if n_features is not None:
        validate.positive_integer(n_features=n_features)
    if encoder is not None and encoder.startswith(SCHEME):
        columns = read_schema(place_of(encoder))
        if any(isinstance(one, TextColumn) for one in columns):
            raise ParameterError(
                "must be a schema without texts, for nothing was measured of them beside columns; or name the encoder "
                "of the texts.",
                parameter="encoder",
            )
        return sum(one.width for one in columns)
    if encoder is not None:
        validate.one_of(
            FEATURES,
            "for another, give its width, as in ",
            Argument("n_features", 768),
            encoder=encoder,
        )
        width = FEATURES[encoder]
        if n_features not in (None, width):
            raise ParameterError(
                f"must be {width}, as of {encoder}, or left out; got {n_features}.",
                parameter="n_features",
            )
        return width
    if n_features is None:
        raise ParameterError(
            "must be given, or a known encoder such as ",
            Argument("encoder", "minilm"),
            ".",
            parameter="n_features",
        )
    return int(n_features)


def _checked_method(
    method: str, budget: Budget, n_public: int | None, n_parties: int
) -> str:
    """Return the method of a plan, if it can spend the budget on what there is."""
    validate.one_of(("auto", *BY_METHOD), method=method)
    if method == "multilabel":
        raise ParameterError(
            "must be of one label a record: nothing was measured for several; `plan_evaluation` takes them.",
            parameter="method",
        )
    chosen = method_for(budget) if method == "auto" else method
    if isinstance(budget, PureDP) and not BY_METHOD[chosen].pure:
        raise BudgetError(
            f"pure DP cannot be spent by {chosen}, whose noise is Gaussian; add a delta, or choose the method public."
        )
    if chosen == "public" and not n_public:
        raise ParameterError(
            "must be above 0 for a method that selects public rows; got 0.",
            parameter="n_public",
        )
    if n_parties > 1 and chosen == "public":
        raise ParameterError(
            "above 1 is for methods that ask for sums, not selections.",
            parameter="n_parties",
        )
    return chosen


def _cost(
    method: str, budget: Budget, n_classes: int, n_features: int
) -> dict[str, float]:
    """Return what a ledger is charged, which follows from the measurements that a fit declares."""
    pool = None
    if method == "public":
        pool = PublicData(np.eye(1, n_features))
    estimator: Any = BY_METHOD[method].load()(
        budget, classes=range(n_classes), public=pool
    )
    costs = estimator.plan(n_features).guarantee.costs()
    pure = {}
    if isinstance(budget, PureDP):
        pure = {"epsilon": total_epsilon(costs)}
    return {**pure, "mu": total_mu(costs), "rho": total_rho(costs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """All that recall depends on except the sizes of classes."""

    law: Law
    s: float
    n_classes: int
    n_features: int
    spend: float

    def variance(self, sizes: ArrayLike, mean: float) -> Float:
        return recall_model.variance(
            self.law, self.s, sizes, mean, self.n_features, self.spend
        )

    def recalls(self, sizes: ArrayLike, mean: float, factor: float = 1.0) -> Float:
        return recall_model.recall(
            1 / np.sqrt(factor * self.variance(sizes, mean)), self.n_classes
        )

    def balanced(self, sizes: Float, factor: float = 1.0) -> float:
        return float(self.recalls(sizes, sizes.mean(), factor).mean())

    def share(self, recall: float) -> float:
        return float(recall_model.share_found(self.law, self.s, recall, self.n_classes))

    def expectation(self, size: int, mean: float, factor: float) -> ClassExpectation:
        recall = float(self.recalls(size, mean))
        low, high = recall_model.recall_range(
            self.variance(size, mean), self.n_classes, factor
        )
        share = self.share(recall)
        found: Found = "no"
        if share >= FOUND:
            found = "yes"
        elif share >= FOUND_IN_PART:
            found = "in part"
        return ClassExpectation(
            size=size, recall=recall, low=float(low), high=float(high), found=found
        )

    def gain(self, sizes: Float) -> Gain:
        smallest = float(self.recalls(sizes[:1], float(sizes.mean()))[0])
        return Gain(balanced_accuracy=self.balanced(sizes), smallest_recall=smallest)

    def needed(self, sizes: Float) -> int | None:
        """Return about how many records a class needs to be found, in two digits, where others keep their size."""

        def excess(log: float) -> float:
            n = math.exp(log)
            return (
                self.share(float(self.recalls(n, max(n, float(sizes.mean()))))) - FOUND
            )

        most = math.log(_MOST_RECORDS)
        if excess(0) >= 0:
            return 1
        if excess(most) < 0:
            return None
        number = math.exp(brentq(excess, 0, most))
        step = 10 ** max(0, math.floor(math.log10(number)) - 1)
        return int(math.ceil(number / step) * step)
