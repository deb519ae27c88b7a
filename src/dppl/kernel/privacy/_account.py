"""The rules of an account: what releases cost together, by the route that was fixed for it, and what still fits.

All arithmetic on costs is exact or rounded up.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from dppl.errors import BudgetExceeded, ParameterError
from dppl.kernel.privacy.accounting import epsilon_of_zcdp, float_below, mu_below, order_of_zcdp_within
from dppl.kernel.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from dppl.kernel.privacy.composition import Cost, epsilon_at, total_epsilon, total_mu, total_rho
from dppl.kernel.privacy.guarantee import Guarantee
from dppl.kernel.privacy.search import best_order
from dppl.kernel.privacy.tradeoff import SMALLEST_EPSILON, gaussian_epsilon, gaussian_mu_within
from dppl.kernel.privacy.words import PERSON

_ROUTES = {"mu": ("gdp",), "rho": ("zcdp",), "epsilon": ("pure",), "epsilon, delta": ("gdp", "renyi")}
# Whom an account is for: a record, or a person with all of their records.
UNITS = ("record", "person")
_NAME = re.compile("[A-Za-z0-9._-]+( [A-Za-z0-9._-]+)*")
_LOOKS = str.maketrans("01i", "oll")  # what small letters and digits look like, some of them as large ones
# A smaller share of a budget is left by rounding, and is nothing that anyone would spend.
_REMAINDER = 1e-5
# The part of the data set that a release came from, None for all of it, and what it cost.
Paid: TypeAlias = tuple[str | None, dict[str, Any]]


def check_name(parameter: str, name: object, others: Iterable[str] = ()) -> None:
    """Refuse a name that could be taken for another one, and one that looks like one of those in use.

    Two names that look the same would split one account in two, each with the whole budget, or make two parts, of which
    only the larger cost counts, of records that are the same.
    """
    if not isinstance(name, str) or len(name) > 255 or not _NAME.fullmatch(name):
        raise ParameterError(
            "must be a name of 1 to 255 ASCII letters, digits, '.', '_' and '-', with single spaces between them; got "
            f"{name!a}.",
            parameter=parameter,
        )
    for other in others:
        if name != other and name.lower().translate(_LOOKS) == other.lower().translate(_LOOKS):
            raise ParameterError(
                f"must not look like a name that is in use; got {name!r}, which looks like {other!r}. For the same "
                f"records give {other!r}.",
                parameter=parameter,
            )


def routes(budget: Budget) -> tuple[str, ...]:
    """Return the routes by which an account with this budget can add up, that of a new one first."""
    return _ROUTES[", ".join(budget.to_dict())]


@dataclass(frozen=True, slots=True)
class Account:
    """What is fixed when an account is made. Its errors are those of `Ledger.charge`."""

    dataset: str
    budget: Budget
    adjacency: str
    accounting: str
    unit: str

    def cost(self, guarantee: Guarantee, partition: str | None) -> dict[str, Any]:
        """Return what a release costs, if it is of a kind that this account adds up."""
        if partition is not None:
            check_name("partition", partition)
            if self.adjacency == "replace-one":
                raise ParameterError(
                    "needs an account under add-remove: under replace-one a record may leave one part and enter "
                    "another, and so touch both.",
                    parameter="partition",
                )
        if guarantee.adjacency != self.adjacency:
            raise ParameterError(
                f"data set {self.dataset!r} is accounted under {self.adjacency}, but this release is private under "
                f"{guarantee.adjacency}; costs under different relations do not add."
            )
        unit = unit_of(guarantee)
        if unit != self.unit:
            raise ParameterError(
                f"data set {self.dataset!r} is accounted by the {self.unit}, but this release protects a {unit}; what "
                f"either costs the other is not known. Fit {'without' if unit == 'person' else 'with'} ids of persons "
                f"(groups), or keep all releases of this data set in an account for {unit}s."
            )
        return _cost_of(guarantee)

    def check(self, paid: Sequence[Paid], new: Paid) -> None:
        """Refuse a release that may not join those that are paid, in the order in which they were."""
        partition, cost = new
        parts = {name for name, _ in paid if name is not None}
        if partition is not None:
            check_name("partition", partition, parts)
        if self.accounting != "renyi" and "mean_runs" in cost:
            raise BudgetExceeded(
                f"data set {self.dataset!r} has the accounting {self.accounting!r}, but a search for hyper-parameters "
                "is accounted in Rényi divergences only; its account must be made in approximate DP, with the "
                "accounting 'renyi'."
            )
        if self.accounting == "gdp" and "mu" not in cost:
            raise BudgetExceeded(
                f"data set {self.dataset!r} is accounted in Gaussian DP, in which this release states no cost; charge "
                "it to an account in zCDP."
            )
        if self.accounting == "pure" and "epsilon" not in cost:
            raise BudgetExceeded(
                f"data set {self.dataset!r} has a pure-DP budget, but this release (Gaussian noise) has no such cost; "
                "PublicPrototypes (method public) has one."
            )
        total = self.total([*paid, new])
        name = _main_parameter(self.budget)
        budget = self.budget.to_dict()[name]
        if total[name] > budget:
            spent = self.total(paid)[name]
            rest = worth_showing(self._rest(budget, spent), budget)
            needed, left = _told_apart(self._rest(total[name], spent), rest)
            raise BudgetExceeded(
                f"this release needs {name} = {needed} of data set {self.dataset!r}, which has {left} left of "
                f"{budget:.6g}. Nothing was drawn and nothing charged."
            )

    def left(self, spent: dict[str, float]) -> dict[str, float]:
        """Return the largest single release that still fits, rounded down."""
        name = _main_parameter(self.budget)
        return {name: self._rest(self.budget.to_dict()[name], spent[name])}

    def total(self, paid: Sequence[Paid]) -> dict[str, float]:
        """Return what releases cost together: parts of different names by maximum, everything else by sum."""
        order = self._order([Cost.from_dict(cost) for _, cost in paid])
        shared = [cost for partition, cost in paid if partition is None]
        parts = {partition for partition, _ in paid if partition is not None}
        groups = [shared + [cost for name, cost in paid if name == partition] for partition in parts] or [shared]
        return max(
            (self._compose(group, order) for group in groups), key=lambda total: total[_main_parameter(self.budget)]
        )

    def _rest(self, whole: float, part: float) -> float:
        """Return what `whole` has beyond `part`, rounded down; of mu it is squares that add up."""
        if not whole > part:
            return 0.0
        if isinstance(self.budget, GaussianDP):
            return mu_below(Fraction(whole) ** 2 - Fraction(part) ** 2)
        if isinstance(self.budget, ApproxDP) and self.accounting == "gdp" and part > 0:
            of_whole, of_part = (gaussian_mu_within(epsilon, self.budget.delta) for epsilon in (whole, part))
            squared = Fraction(of_whole) ** 2 - Fraction(of_part) ** 2
            epsilon = gaussian_epsilon(mu_below(squared), self.budget.delta) if squared > 0 else 0.0
            return math.nextafter(epsilon, 0.0) if epsilon > SMALLEST_EPSILON else 0.0
        return float_below(Fraction(whole) - Fraction(part))

    def _order(self, costs: list[Cost]) -> float | None:
        """Return the Rényi order of an account with searches, which was settled before anything was released.

        It is that of the first release if this was a search, else the one at which the budget itself converts. An order
        chosen later could be chosen by what earlier releases showed.
        """
        if self.accounting != "renyi" or all(cost.mean_runs is None for cost in costs):
            return None
        assert isinstance(self.budget, ApproxDP)
        first = costs[0]
        if first.mean_runs is None:
            return order_of_zcdp_within(self.budget.epsilon, self.budget.delta)
        return best_order(first.rho, first.mean_runs, self.budget.delta)

    def _compose(self, paid: list[dict[str, Any]], order: float | None) -> dict[str, float]:
        costs = _grouped(paid)
        if isinstance(self.budget, ZCDP):
            return {"rho": total_rho(costs)}
        if isinstance(self.budget, PureDP):
            return {"epsilon": total_epsilon(costs)}
        if isinstance(self.budget, GaussianDP):
            return {"mu": total_mu(costs)}
        assert isinstance(self.budget, ApproxDP)
        # One route for good: costs are chosen by what came before, and only sums of fixed kinds of cost are proven to
        # hold then (Feldman, Zrnic 2021, arXiv:2008.11193; Smith, Thakurta 2022, arXiv:2210.17520), not the best of
        # several routes.
        if not costs:
            epsilon = 0.0
        elif self.accounting == "gdp":
            epsilon = gaussian_epsilon(total_mu(costs), self.budget.delta)
        elif order is None:
            epsilon = epsilon_of_zcdp(total_rho(costs), self.budget.delta)
        else:
            epsilon = epsilon_at(costs, self.budget.delta, order)
        return {"epsilon": epsilon, "delta": self.budget.delta}


def unit_of(guarantee: Guarantee) -> str:
    """Return the unit of the accounts that take such a release."""
    return "person" if guarantee.unit == PERSON else "record"


def _cost_of(guarantee: Guarantee) -> dict[str, Any]:
    """Add up the releases of one fit; a pure cost only if all of them have one. A search is one release."""
    costs = guarantee.costs()
    if any(cost.mean_runs is not None for cost in costs):
        if len(costs) > 1:
            raise ParameterError("a search is charged alone; charge each guarantee that holds one by itself.")
        return dict(guarantee.releases[0].cost)
    total: dict[str, Any] = {"rho": total_rho(costs)}
    if all(cost.mu is not None for cost in costs):
        total["mu"] = total_mu(costs)
    if all(cost.epsilon is not None for cost in costs):
        total["epsilon"] = total_epsilon(costs)
    return total


def _grouped(paid: list[dict[str, Any]]) -> list[Cost]:
    counts = Counter(Cost.from_dict(cost) for cost in paid)
    return [replace(cost, count=count) for cost, count in counts.items()]


def worth_showing(left: float, budget: float) -> float:
    """Return what is left of a budget as people are shown it: 0 where it is what rounding left over.

    >>> worth_showing(7.45e-9, 0.5), worth_showing(1e-5, 0.5)
    (0.0, 1e-05)
    """
    return left if left > _REMAINDER * budget else 0.0


def _told_apart(first: float, second: float) -> tuple[str, str]:
    """Write two numbers with few digits, or with all of them where they would look the same."""
    short = f"{first:.6g}", f"{second:.6g}"
    return short if short[0] != short[1] else (repr(first), repr(second))


def _main_parameter(budget: Budget) -> str:
    return next(iter(budget.to_dict()))
