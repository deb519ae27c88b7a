"""What a released model guarantees, as data that is checked when it is read. `dppl.statement` puts it into words."""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from dppl._utils import validate
from dppl._version import __version__
from dppl.errors import Argument, BudgetError
from dppl.kernel.privacy import tradeoff
from dppl.kernel.privacy.budgets import USUAL_DELTA, ApproxDP, Budget
from dppl.kernel.privacy.composition import (
    Cost,
    compose,
    covers,
    total_epsilon,
    total_mu,
)
from dppl.kernel.privacy.release import CLOSE, Misfit, Release, read_fields
from dppl.kernel.privacy.sensitivity import replaced, squared_norm_of
from dppl.kernel.privacy.terms import (
    Assumption,
    Caveat,
    Mechanism,
    Neighbours,
    PublicInput,
    Term,
    Unit,
)

if TYPE_CHECKING:
    from dppl.statement.trust import TrustedCode

Adjacency: TypeAlias = Literal["add-remove", "replace-one"]
ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)
# What the adjacency alone says of neighbours; a method may have a narrower relation.
NEIGHBOURS: dict[str, Term[Neighbours]] = {
    "add-remove": Term(Neighbours.RECORD_ADDED),
    "replace-one": Term(Neighbours.RECORD_REPLACED),
}
# Whom neighbours differ by, and the adjacency, where it is one.
_OF_NEIGHBOURS: dict[Neighbours, tuple[Unit, Adjacency | None]] = {
    Neighbours.RECORD_ADDED: (Unit.RECORD, "add-remove"),
    Neighbours.RECORD_REPLACED: (Unit.RECORD, "replace-one"),
    Neighbours.RECORD_REPLACED_IN_CLASS: (Unit.RECORD, "replace-one"),
    Neighbours.RECORD_OF_A_TASK: (Unit.RECORD, None),
    Neighbours.RECORD_OF_EACH_TASK: (Unit.PERSON_IN_TASKS, None),
    Neighbours.RECORD_OF_LATER_TASKS: (Unit.RECORD, None),
    Neighbours.WHOLE_PERSON: (Unit.PERSON, "add-remove"),
    Neighbours.PERSON_IN_A_CLASS: (Unit.PERSON, "add-remove"),
    Neighbours.PERSON_IN_CLASSES: (Unit.PERSON, "add-remove"),
}
# The packages that noise, arithmetic and accounting rest on.
_SOFTWARE = ("numpy", "scipy", "python-flint", "dp-accounting")
# All deltas at which statements give an epsilon.
DELTAS = (1e-5, USUAL_DELTA, 1e-8)
# Further deltas at which epsilons bound tests for a record, where nothing says more.
_LARGE_DELTAS = (1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)
# Items of a list that a statement may hold, and letters and values of all of it. None
# has near as many; a forged one would keep whoever shows it busy for minutes.
_MOST_ITEMS = 1000
_MOST_LETTERS = 1_000_000
_MOST_VALUES = 50_000
# Shares of outsiders wrongly suspected at which statements say how many members a test
# identifies.
FALSE_POSITIVE_RATES = (0.01, 0.001)

ASSUMPTIONS = (
    Term(Assumption.EMBEDDED_ALONE),
    Term(Assumption.PUBLIC_MADE_APART),
)
ALWAYS_UNCOVERED = (
    Term(Caveat.TUNED_ELSEWHERE),
    Term(Caveat.LOOK),
    Term(Caveat.TIME_AND_MEMORY),
    Term(Caveat.SEVERAL_RECORDS),
    Term(Caveat.OTHER_RELEASES),
    Term(Caveat.PREPROCESSING),
)


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge that paid for releases: the data set and the number of the release in its ledger.

    Of several institutions, `party` is the one whose ledger it is.
    """

    dataset: str
    number: int
    party: str | None = None

    def __str__(self) -> str:
        charge = f"{self.dataset}, release {self.number}"
        if self.party is None:
            return charge
        return f"{self.party}: {charge}"

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        charge = {"dataset": self.dataset, "number": self.number}
        if self.party is None:
            return charge
        return {**charge, "party": self.party}

    @classmethod
    def from_dict(cls, values: Any) -> Charge:
        """Read what `to_dict` wrote."""
        return cls(**read_fields(cls, {"party": None} | values))


@functools.cache
def software_versions() -> dict[str, str]:
    """Return the versions of dppl, Python and the packages that a guarantee rests on."""
    packages = {name: metadata.version(name) for name in _SOFTWARE}
    return {"dppl": __version__, "Python": platform.python_version(), **packages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The guarantee of one fitted model.

    Parameters
    ----------
    budget : Budget
        What all releases stay within, added up.
    adjacency : {"add-remove", "replace-one"}
        Which data sets count as neighbours.
    releases : tuple of Release
        Every use of a mechanism.
    public_inputs, not_covered : tuple of Term
        What was treated as public, and what the guarantee does not cover.
    secure_noise : bool
        Whether all randomness came from the operating system. False for a seeded run,
        whose noise can be recomputed.
    neighbours : Term, default=None
        A narrower neighbouring relation, where the method has one; None is the one of
        `adjacency`.
    unit : Unit, default=Unit.RECORD
        What one neighbour step adds, removes or replaces.
    charges : tuple of Charge, default=()
        What paid for the releases in ledgers: of a stream one for each task.
    exact : bool, default=True
        Whether what was drawn is exactly what the accounting speaks of. Where it is
        not, the model is for research, and `not_covered` says why.
    assumptions : tuple of Term
        What the guarantee rests on and no program can check.
    software : dict of str to str
        Versions that made the release; by default those installed.
    n_models : int, default=1
        How many models it is of: of a stream one after each task, of numbers about
        models none.
    parties : tuple of str, default=()
        Institutions whose answers were added up. Each of them made these releases, from
        its own records.
    left : dict of str to int, default={}
        Institutions that stopped answering, with the first ask, from 1, that they did
        not answer.
    """

    budget: Budget
    adjacency: str
    releases: tuple[Release, ...]
    public_inputs: tuple[Term[PublicInput], ...]
    not_covered: tuple[Term[Caveat], ...]
    secure_noise: bool
    neighbours: Term[Neighbours] | None = None
    unit: Unit = Unit.RECORD
    charges: tuple[Charge, ...] = ()
    exact: bool = True
    assumptions: tuple[Term[Assumption], ...] = ASSUMPTIONS
    software: dict[str, str] = field(default_factory=software_versions)
    n_models: int = 1
    parties: tuple[str, ...] = ()
    left: dict[str, int] = field(default_factory=dict)

    @property
    def relation(self) -> Term[Neighbours]:
        """The neighbouring relation."""
        return self.neighbours or NEIGHBOURS[self.adjacency]

    def costs(self) -> list[Cost]:
        """Return what each release costs, to be added to the costs of others."""
        alone = [one.mechanism.code for one in self.releases if "delta" in one.cost]
        if alone:
            # Such costs have no exact sum.
            advice: tuple[str | Argument, ...] = ("choose another method.",)
            if Mechanism.SAMPLED_ROUNDED_GAUSSIAN in alone:
                advice = ("use ", Argument("sampling_rate", 1), ".")
            raise BudgetError(
                "accounted in (epsilon, delta) alone: a ledger cannot charge it; ",
                *advice,
            )
        unit = self.unit.of_account
        return [
            _cost(tuple(release.cost.items()), self.adjacency, unit)
            for release in self.releases
        ]

    @property
    def mu(self) -> float | None:
        """What all releases cost in Gaussian DP, rounded up; None if one was not accounted in it."""
        if all("mu" in release.cost for release in self.releases):
            return _mu_of(tuple(self.costs()))
        return None

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon that is proven for all releases, rounded up; exact for Gaussian noise."""
        stated, sampling = self._approximate()
        if sampling is not None:
            from dppl.kernel.privacy.sampling import sampled_gaussian_epsilon

            return sampled_gaussian_epsilon(delta=delta, **sampling)
        if stated is None:
            return compose(self.costs(), delta).epsilon
        return stated.to_approx(delta).epsilon

    def best_guess(self) -> float:
        """Return how often a guess of membership at even odds is right at most, rounded up."""
        if (selection := self._selection()) is not None:
            return tradeoff.selection_best_guess(selection)
        if (mu := self.mu) is not None:
            return tradeoff.gaussian_best_guess(mu)
        return min(
            tradeoff.approximate_best_guess(epsilon, delta)
            for epsilon, delta in self._pairs()
        )

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the share of members that tests find at most which wrongly suspect this share of others, rounded up.

        That is 1 minus the trade-off function of the releases: of N(0, 1) and N(mu, 1)
        for Gaussian noise (Dong, Roth, Su 2022, arXiv:1905.02383v3, Definition 2.6).
        """
        validate.open_unit(false_positive_rate=false_positive_rate)
        if (selection := self._selection()) is not None:
            return tradeoff.selection_power(selection, false_positive_rate)
        if (mu := self.mu) is not None:
            return tradeoff.gaussian_power(mu, false_positive_rate)
        # The largest difference of the two rates is what a guess at even odds gains,
        # twice.
        gained = math.nextafter(
            2 * self.best_guess() - 1 + false_positive_rate, math.inf
        )
        pairs = self._pairs()
        return min(
            gained,
            *(tradeoff.approximate_power(*pair, false_positive_rate) for pair in pairs),
        )

    def implied(self, delta: float | None = None) -> dict[str, Any]:
        """Return what follows from the releases, JSON-ready: mu, epsilons, and what tests can reach."""
        stated, sampling = self._approximate()
        # Of releases that were accounted in approximate DP nothing is proven at smaller
        # deltas.
        deltas = {
            at for at in DELTAS if sampling or stated is None or at >= stated.delta
        }
        deltas |= set() if delta is None else {delta}
        rates = {rate: self.true_positive_rate(rate) for rate in FALSE_POSITIVE_RATES}
        return {
            "mu": self.mu,
            "epsilon": [
                {"delta": at, "epsilon": self.epsilon(at)}
                for at in sorted(deltas, reverse=True)
            ],
            "best_guess": self.best_guess(),
            "tests": [
                {"false_positive_rate": low, "true_positive_rate": high}
                for low, high in rates.items()
            ],
        }

    def summary(self, delta: float | None = None) -> str:
        """Return one short paragraph, with epsilon at `delta` (or `usual_delta`); `str` says everything."""
        from dppl.statement import words  # here, because the kernel knows no words

        return words.summary(self, delta)

    def __str__(self) -> str:
        from dppl.statement import words

        return words.statement(self)

    def _repr_html_(self) -> str:
        from dppl.statement import words

        return words.as_html(self)

    def trusted_code(self) -> TrustedCode:
        """Return the files that these releases rest on, with lines and hashes, as they are installed."""
        from dppl.statement import trust  # here, because it only lists

        return trust.trusted_code(self)

    @property
    def pure_epsilon(self) -> float | None:
        """What all releases cost in pure DP, rounded up; None if one has no such cost (Gaussian noise)."""
        if not self.releases or any(
            "epsilon" not in release.cost or "delta" in release.cost
            for release in self.releases
        ):
            return None
        return total_epsilon(self.costs())

    @property
    def usual_delta(self) -> float:
        """The delta of the one epsilon in sentences: from an ApproxDP budget, or else 1e-6."""
        if isinstance(self.budget, ApproxDP):
            return self.budget.delta
        stated, sampling = self._approximate()
        if sampling or stated is None:
            return USUAL_DELTA
        return max(USUAL_DELTA, stated.delta)

    def stays_within_budget(self) -> bool:
        """Whether the stated costs of all releases stay within the budget."""
        stated, sampling = self._approximate()
        if stated is not None or sampling is not None:
            budget = self.budget
            if not isinstance(budget, ApproxDP):
                return False
            if stated is None:
                return self.epsilon(budget.delta) <= budget.epsilon
            return stated <= budget
        return bool(self.releases) != self.budget.is_zero and covers(
            self.budget, self.costs()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON-ready dictionary; `from_dict` reads it back."""
        return {
            "budget": self.budget.to_dict(),
            "notion": self.budget.notion,
            "unit": self.unit.value,
            "adjacency": self.adjacency,
            "neighbours": self.relation.to_dict(),
            "releases": [release.to_dict() for release in self.releases],
            "public_inputs": [one.to_dict() for one in self.public_inputs],
            "not_covered": [one.to_dict() for one in self.not_covered],
            "secure_noise": self.secure_noise,
            "charges": [one.to_dict() for one in self.charges],
            "exact": self.exact,
            "assumptions": [one.to_dict() for one in self.assumptions],
            "software": dict(self.software),
            **({} if self.n_models == 1 else {"n_models": self.n_models}),
            **({"parties": list(self.parties)} if self.parties else {}),
            **({"left": dict(self.left)} if self.left else {}),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Guarantee:
        """Read what `to_dict` wrote; `Misfit` if it is longer than any statement is, or contradicts itself."""
        check_length(values)
        codes = [one["mechanism"]["code"] for one in values["releases"]]
        if len(codes) > 1 and Mechanism.REPEAT_AND_SELECT in codes:
            raise Misfit("a search is a release alone")
        # Each takes seconds to account.
        if codes.count(Mechanism.SAMPLED_ROUNDED_GAUSSIAN) > 1:
            raise Misfit("several releases of samples have no cost together")
        guarantee = cls(
            **read_fields(cls, {"n_models": 1, "parties": [], "left": {}} | values)
        )
        if guarantee.adjacency not in ADJACENCIES:
            raise Misfit(f"unknown adjacency {guarantee.adjacency!r}")
        if guarantee.n_models < 0:
            raise Misfit("a guarantee is of a number of models")
        if not guarantee._has_one_relation():
            raise Misfit("unit, adjacency and neighbours are not of one relation")
        if any(map(guarantee._is_too_cheap, guarantee.releases)):
            raise Misfit("a release states less than its neighbours allow")
        return guarantee

    def _has_one_relation(self) -> bool:
        """Whether the neighbours are those of the unit, and of the adjacency where their code says one."""
        unit, adjacency = _OF_NEIGHBOURS[self.relation.innermost.code]
        return self.unit is unit and adjacency in (None, self.adjacency)

    def _is_too_cheap(self, release: Release) -> bool:
        """Whether a release states less than one neighbour step can change."""
        neighbours = self.relation.innermost
        replaces = self.adjacency == "replace-one"
        statistic = release.statistic
        rows = 1  # of one person, each of another class
        if neighbours.code is Neighbours.PERSON_IN_CLASSES:
            n_classes = dict(statistic.innermost.values).get("n_classes", math.inf)
            rows = min(neighbours["max_classes"], n_classes)
        if "n_selections" in release.parameters:
            selections = rows * (2 if replaces else 1)
            return release.parameters["n_selections"] < selections
        squared_norm = squared_norm_of(statistic)
        # Of an own statistic only its author knows; `show` says that it is as stated.
        if squared_norm is None:
            return False
        least = rows * squared_norm * (replaced(statistic) if replaces else 1)
        return Fraction(release.sensitivity) ** 2 < Fraction(CLOSE) * least

    def _approximate(self) -> tuple[ApproxDP | None, dict[str, Any] | None]:
        """Return what the one release costs that has no other cost than in approximate DP, or how a release samples.

        What follows from sampling is computed for all releases together, and never read.
        """
        alone = [one for one in self.releases if "delta" in one.cost]
        others = [one.cost for one in self.releases if "delta" not in one.cost]
        if len(alone) != 1 or not all("mu" in cost for cost in others):
            return None, None
        (release,) = alone
        if release.mechanism.code is not Mechanism.SAMPLED_ROUNDED_GAUSSIAN:
            stated = ApproxDP(release.cost["epsilon"], release.cost["delta"])
            return (None if others else stated), None
        mu = 0.0
        if others:
            mu = total_mu(Cost.from_dict(cost) for cost in others)
        return None, {
            "multiplier": CLOSE * release.parameters["noise_std"] / release.sensitivity,
            "sampling_rate": release.parameters["sampling_rate"],
            "steps": release.times,
            "mu": mu,
        }

    def _pairs(self) -> Sequence[tuple[float, float]]:
        """Return pairs (epsilon, delta) that hold for all releases together, from what was drawn."""
        stated, sampling = self._approximate()
        if sampling is not None:
            from dppl.kernel.privacy.sampling import sampled_gaussian_pairs

            return sampled_gaussian_pairs(**sampling)
        if stated is not None:
            return [(stated.epsilon, stated.delta)]
        if self.pure_epsilon is None:
            pure = []
        else:
            pure = [(self.pure_epsilon, 0.0)]
        return [*pure, *_composed(tuple(self.costs()))]

    def _selection(self) -> float | None:
        """Return the range of the one selection that was released, if that is all."""
        if len(self.releases) != 1 or not {"mu", "epsilon"} <= set(
            self.releases[0].cost
        ):
            return None
        return self.releases[0].cost["epsilon"]


@functools.lru_cache(maxsize=2 * _MOST_ITEMS)  # a curve asks at each of its points
def _cost(parts: tuple[tuple[str, float], ...], adjacency: str, unit: Unit) -> Cost:
    return replace(Cost.from_dict(dict(parts)), adjacency=adjacency, unit=unit)


@functools.lru_cache(maxsize=16)
def _mu_of(costs: tuple[Cost, ...]) -> float:
    return total_mu(costs)


@functools.lru_cache(maxsize=16)
def _composed(costs: tuple[Cost, ...]) -> tuple[tuple[float, float], ...]:
    """Return pairs (epsilon, delta) that hold for all of these costs together."""
    return tuple(
        (compose(costs, delta).epsilon, delta) for delta in (*DELTAS, *_LARGE_DELTAS)
    )


def check_length(values: Any) -> None:
    """Raise `Misfit` for what is longer than any statement is."""
    left = [values]
    n_values = n_letters = 0
    while left:
        value = left.pop()
        n_values += 1
        if isinstance(value, str):
            n_letters += len(value)
        if isinstance(value, list | dict):
            if len(value) > _MOST_ITEMS:
                raise Misfit("a list of a statement is too long")
            left += value
            left += value.values() if isinstance(value, dict) else ()
        if n_letters > _MOST_LETTERS or n_values > _MOST_VALUES:
            raise Misfit("a statement is too long")
