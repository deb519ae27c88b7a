"""What several releases on the same records cost together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dppl._utils import validate
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.privacy.accounting import (
    ORDERS,
    check_mean_runs,
    epsilon_at_order,
    epsilon_of_zcdp,
    renyi_of_best,
)
from dppl.kernel.privacy.budgets import (
    ZCDP,
    ApproxDP,
    Budget,
    GaussianDP,
    PureDP,
    RenyiDP,
)
from dppl.kernel.privacy.rounding import above, cost_of_gaussian
from dppl.kernel.privacy.tradeoff import check_mu, gaussian_epsilon, selection_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one release costs, in every notion that it has; or `count` equal ones.

    Parameters
    ----------
    rho : float
        ZCDP cost, greater than 0.
    mu : float, default=None
        Cost in Gaussian DP; None if none was stated.
    epsilon : float, default=None
        Pure-DP cost; None if it has none (Gaussian noise). With a `mu` as well the
        release is one selection by the exponential mechanism, of range epsilon.
    count : int, default=1
        Number of such releases.
    mean_runs : int, default=None
        If given, `rho` is the cost of one run, and what is released is the best of a
        geometric number of runs of this mean (`dppl.kernel.privacy.accounting`). Such a
        search has a bound at each Rényi order, but no zCDP cost of use.
    adjacency : str, default=None
        Relation under which this is the cost, as `Guarantee.costs` states it. None is
        the relation of the other costs.
    unit : str, default=None
        Whom it is the cost to, a record or a person, likewise.
    """

    rho: float
    mu: float | None = None
    epsilon: float | None = None
    count: int = 1
    mean_runs: int | None = None
    adjacency: str | None = field(default=None, compare=False)
    unit: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        validate.positive(rho=self.rho)
        validate.positive_integer(count=self.count)
        for name in ("mu", "epsilon"):
            if getattr(self, name) is not None:
                validate.positive(**{name: getattr(self, name)})
        if self.mu is not None:
            check_mu(self.mu)
        if self.mean_runs is not None:
            check_mean_runs(self.mean_runs)

    @classmethod
    def from_dict(cls, fields: Mapping[str, float]) -> Cost:
        """Read the cost of a release: ``rho``, perhaps ``mu`` and ``epsilon``, or ``rho_per_run`` and ``mean_runs``."""
        names = set(fields)
        if names == {"rho_per_run", "mean_runs"}:
            runs = fields["mean_runs"]
            return cls(
                rho=fields["rho_per_run"],
                mean_runs=int(runs) if runs == int(runs) else 0,
            )
        if not {"rho"} <= names <= {"rho", "mu", "epsilon"}:
            raise KeyError(f"no cost has the parts {sorted(names)}")
        return cls(
            rho=fields["rho"], mu=fields.get("mu"), epsilon=fields.get("epsilon")
        )

    @property
    def exact_rho(self) -> Fraction:
        """ZCDP cost, or mu²/2 where that is smaller: both were rounded up, but a budget is shared in squares of mu."""
        rho = Fraction(self.rho)
        if self.mu is None:
            return rho
        return min(rho, Fraction(self.mu) ** 2 / 2)

    def renyi(self, order: float) -> float:
        """Bound the Rényi divergence of this order between neighbours, up to float rounding."""
        # The rho of a search is that of one of its runs.
        if self.mean_runs is None:
            one = self.rho * order
        else:
            one = renyi_of_best(self.rho, self.mean_runs, order)
        return self.count * one


@dataclass(frozen=True, slots=True)
class Composed:
    """An (epsilon, delta) guarantee and the route that proves it, in words for the reader of a statement."""

    epsilon: float
    delta: float
    route: str


def total_mu(costs: Iterable[Cost]) -> float:
    """Add squares of Gaussian-DP costs exactly and round their root up once.

    The total holds also where costs are chosen by what earlier releases showed (Smith,
    Thakurta 2022, arXiv:2210.17520; Koskela, Tobaben, Honkela 2023, arXiv:2209.15596).
    """
    squared_mu = Fraction(0)
    for cost in costs:
        if cost.mu is None:
            raise BudgetError(
                "a release without a cost in Gaussian DP is among these, so they have no total in it."
            )
        squared_mu += cost.count * Fraction(cost.mu) ** 2
    if squared_mu:
        return cost_of_gaussian(squared_mu)["mu"]
    return 0.0


def total_rho(costs: Iterable[Cost], order: float = 1.0) -> float:
    """Add zCDP costs exactly, take them times a Rényi order, and round up once.

    Bun, Steinke (2016), arXiv:1605.02065v1, Lemma 1.7.
    """
    costs = list(costs)
    if any(cost.mean_runs is not None for cost in costs):
        raise BudgetError(
            "a search for hyper-parameters has no zCDP cost of use; account it in approximate DP."
        )
    rho = sum((cost.count * cost.exact_rho for cost in costs), Fraction(0))
    return above(Fraction(order) * rho)


def total_epsilon(costs: Iterable[Cost]) -> float:
    """Add pure costs exactly and round up once."""
    total = Fraction(0)
    for cost in costs:
        if cost.epsilon is None:
            raise BudgetError(
                "Gaussian noise has no pure-DP cost, so these releases have no pure-DP total."
            )
        total += cost.count * Fraction(cost.epsilon)
    return above(total)


def epsilon_at(costs: Iterable[Cost], delta: float, order: float) -> float:
    """Return the epsilon that the Rényi divergences of one order prove for all releases together, rounded up.

    An order that was fixed in advance adds up even where later releases are chosen by
    what earlier ones showed (Feldman, Zrnic 2021, arXiv:2008.11193).
    """
    return epsilon_at_order(
        math.fsum(cost.renyi(order) for cost in costs), delta, order
    )


def compose(costs: Sequence[Cost], delta: float) -> Composed:
    """Return the smallest epsilon, rounded up, that some route proves for all releases together at `delta`.

    Routes: squares of mu added and converted exactly (Dong, Roth, Su 2022,
    arXiv:1905.02383v3, Corollaries 2.13 and
    3.3); the trade-off function of a single selection; zCDP costs added and converted
    (Canonne, Kamath, Steinke 2020, arXiv:2004.00010v5, Proposition 12); pure epsilons
    added, perhaps to converted zCDP of the others; with a search among them, Rényi
    divergences added at the best of many orders. All hold for releases that are chosen
    adaptively, as long as their costs were fixed in advance.

    Parameters
    ----------
    costs : sequence of Cost
        Costs of guarantees come from `Guarantee.costs`, for example ``[*first.costs(),
        *second.costs()]``.
    delta : float
    """
    _check_costs(costs)
    validate.open_unit(delta=delta)
    delta = float(delta)  # the arithmetic of NumPy's narrow floats would be as narrow
    if not costs:
        return Composed(0.0, delta, "nothing was released")
    return min(_routes(costs, delta), key=lambda composed: composed.epsilon)


def _check_costs(costs: Sequence[Cost]) -> None:
    if isinstance(costs, Sequence):
        wrong = [one for one in costs if not isinstance(one, Cost)]
    else:
        wrong = [costs]
    if wrong:
        kind = type(wrong[0]).__name__
        raise ParameterError(
            f"costs must be a list of Cost, which guarantee.costs() returns; got {kind}."
        )
    for name, kinds in (
        ("relation", {one.adjacency for one in costs}),
        ("unit", {one.unit for one in costs}),
    ):
        stated = sorted(kind for kind in kinds if kind is not None)
        if len(stated) > 1:
            both = " and ".join(stated)
            raise ParameterError(
                f"costs must be of one {name}, but these are of {both}, and do not add."
            )


def total_budget(budget: Budget, costs: Sequence[Cost]) -> Budget:
    """Return what releases cost together, rounded up, in the notion of `budget`; in approximate DP, at its delta.

    >>> total_budget(GaussianDP(9.0), [Cost(rho=4.5, mu=3.0), Cost(rho=8.0, mu=4.0)])
    GaussianDP(mu=5.0)
    """
    _check_costs(costs)
    if isinstance(budget, ApproxDP):
        return ApproxDP(compose(costs, budget.delta).epsilon, budget.delta)
    if isinstance(budget, PureDP):
        return PureDP(total_epsilon(costs))
    if isinstance(budget, GaussianDP):
        return GaussianDP(total_mu(costs))
    if isinstance(budget, RenyiDP):
        # Divergences of one order add up, and of rho-zCDP it is at most alpha·rho.
        return RenyiDP(budget.alpha, total_rho(costs, budget.alpha))
    return ZCDP(total_rho(costs))


def covers(budget: Budget, costs: Sequence[Cost]) -> bool:
    """Whether all releases, one at least, stay within `budget` together."""
    try:
        return total_budget(budget, costs) <= budget
    except BudgetError:  # one of them has no cost in this notion
        return False


def _routes(costs: Sequence[Cost], delta: float) -> Iterator[Composed]:
    # A search has no cost but its Rényi divergences, so all others are added to these.
    if any(cost.mean_runs is not None for cost in costs):
        epsilon = min(epsilon_at(costs, delta, order) for order in ORDERS.tolist())
        yield Composed(epsilon, delta, "Rényi divergences added")
        return
    pure = [cost for cost in costs if cost.epsilon is not None]
    rest = [cost for cost in costs if cost.epsilon is None]
    # Exact for Gaussian noise: the composition of mu-GDP releases is mu-GDP again.
    if all(cost.mu is not None for cost in costs):
        yield Composed(
            gaussian_epsilon(total_mu(costs), delta),
            delta,
            "squares of mu added and converted exactly",
        )
        if not pure:
            return  # for Gaussian noise nothing is smaller
    if (
        len(costs) == 1
        and costs[0].count == 1
        and costs[0].mu is not None
        and costs[0].epsilon is not None
    ):
        yield Composed(
            selection_epsilon(costs[0].epsilon, delta),
            delta,
            "the trade-off function of one selection",
        )
        yield Composed(total_epsilon(costs), delta, "pure epsilons added")
        return  # the others know less of it
    yield Composed(
        epsilon_of_zcdp(total_rho(costs), delta),
        delta,
        "zCDP costs added and converted",
    )
    if pure and not rest:
        yield Composed(total_epsilon(pure), delta, "pure epsilons added")
    elif pure:
        # Basic composition: epsilons add, and the pure part adds nothing to delta.
        epsilon = above(
            Fraction(total_epsilon(pure))
            + Fraction(epsilon_of_zcdp(total_rho(rest), delta))
        )
        yield Composed(epsilon, delta, "pure epsilons added to converted zCDP")
