"""A release, as checked data: one use of a mechanism, and what it costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, get_args, get_origin, get_type_hints

from dppl.errors import BudgetError, DpplError
from dppl.kernel.privacy.budgets import Budget, budget_from_dict
from dppl.kernel.privacy.rounding import above, cost_of_gaussian, cost_of_selection
from dppl.kernel.privacy.terms import Code, Mechanism, Norm, Statistic, Term
from dppl.kernel.privacy.tradeoff import gaussian_epsilon

# The last digits of numbers in a file went through floats.
CLOSE = 1 - 1e-9
# The same of sums over samples, which are accounted on a grid.
_CLOSE_ON_A_GRID = 1 - 2**-20
# Mechanisms of which several draws have no known cost.
_ONCE = (Mechanism.FRIENDLY_CORE, Mechanism.REPEAT_AND_SELECT)
# In which each states its sensitivity.
NORMS = {
    Mechanism.ROUNDED_GAUSSIAN: Norm.L2,
    Mechanism.SYMMETRIC_ROUNDED_GAUSSIAN: Norm.FROBENIUS,
    Mechanism.SAMPLED_ROUNDED_GAUSSIAN: Norm.L2,
    Mechanism.COINPRESS: Norm.L2_IN_RADII,
    Mechanism.EXPONENTIAL: Norm.MONOTONE_UTILITY,
    Mechanism.JOINT_EXPONENTIAL: Norm.MONOTONE_UTILITY,
    Mechanism.REPEAT_AND_SELECT: Norm.L2,
    Mechanism.FRIENDLY_CORE: Norm.L2_IN_RADII_OF_A_CORE,
    Mechanism.PUBLISHED_TOP_K: Norm.MONOTONE_UTILITY,
}
# A quarter of FriendlyCore's delta is for its noise, and one for each of three failures.
QUARTERS = 4


def range_of_ranks(n_public: float, n_selected: float) -> Fraction:
    """Return 2·log(n/K), rounded up: how far ranks of public rows part the odds of two sets (`lab.published_topk`)."""
    return Fraction(2 * math.log(n_public / n_selected) * (1 + 1e-12))


class Misfit(ValueError):
    """Two parts of a file contradict each other; the message is for the reader."""


def cost_of(
    mechanism: Mechanism,
    squared_sensitivity: Fraction,
    parameters: Mapping[str, float],
    times: int = 1,
    delta: float = 0.0,
) -> dict[str, float]:
    """Return what a mechanism with these parameters costs, rounded up; `delta` is of those in approximate DP alone.

    Whoever draws states this cost, and whoever reads a file compares. A search has more
    to its cost than the noise of its score, which gives a lower bound here.
    """
    if mechanism in (Mechanism.EXPONENTIAL, Mechanism.JOINT_EXPONENTIAL):
        count = times * Fraction(parameters["n_selections"])
        return cost_of_selection(
            above(count * Fraction(parameters["epsilon_per_selection"]))
        )
    if mechanism is Mechanism.PUBLISHED_TOP_K:
        # The ranks first, and then the utilities.
        ranks = range_of_ranks(parameters["n_public"], parameters["n_selected"])
        whole = ranks + Fraction(parameters["published_epsilon"]) / 2
        return cost_of_selection(above(Fraction(parameters["n_selections"]) * whole))
    if mechanism is Mechanism.COINPRESS:
        shares = [
            Fraction(value)
            for name, value in parameters.items()
            if name.startswith("share_")
        ]
        whole = max(Fraction(1), sum(shares, Fraction(0)))
        return cost_of_gaussian(times * whole * Fraction(parameters["mu"]) ** 2)
    if mechanism is Mechanism.FRIENDLY_CORE:
        squares = [Fraction(parameters[f"mu_{step}"]) ** 2 for step in range(1, 5)]
        mu = cost_of_gaussian(sum(squares, Fraction(0)))["mu"]
        epsilon = gaussian_epsilon(mu, delta / QUARTERS)
        return {"epsilon": epsilon, "delta": delta}
    if mechanism is Mechanism.REPEAT_AND_SELECT:
        of_score = Fraction(parameters["noise_std_of_score"]) ** 2
        score = cost_of_gaussian(squared_sensitivity / of_score)
        return {"rho_per_run": score["rho"], "mean_runs": 2.0}
    noise_std = parameters["noise_std"]
    if mechanism is Mechanism.SAMPLED_ROUNDED_GAUSSIAN:
        from dppl.kernel.privacy.sampling import sampled_gaussian_epsilon

        epsilon = sampled_gaussian_epsilon(
            CLOSE * noise_std / math.sqrt(squared_sensitivity),
            delta,
            parameters["sampling_rate"],
            times,
        )
        return {"epsilon": epsilon, "delta": delta}
    variance = Fraction(noise_std) ** 2
    if mechanism is Mechanism.SYMMETRIC_ROUNDED_GAUSSIAN:
        off_diagonal = Fraction(parameters["off_diagonal_noise_std"])
        variance = min(variance, 2 * off_diagonal**2)
    return cost_of_gaussian(times * squared_sensitivity / variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A use of a mechanism, or several alike: what was released, how far one record can move it, and what that costs.

    Parameters
    ----------
    mechanism, statistic : Term
        For example ``Term(Mechanism.ROUNDED_GAUSSIAN)``, and what it was applied to.
    sensitivity : float
        Bound on what one record changes, in units of the statistic.
    norm : Norm
        Of `sensitivity`.
    parameters : dict of str to float
        Of the noise, for example ``{"noise_std": 12.5}``.
    cost : dict of str to float
        What `cost_of` computes from the rest; of an own mechanism what its author
        states. Under the adjacency of the guarantee: ``rho`` (zCDP), ``mu`` (Gaussian
        DP) and, where it has one, pure ``epsilon``. With both ``mu`` and ``epsilon`` it is one
        selection by the exponential mechanism, of range epsilon. A release that was
        accounted in approximate DP only has ``epsilon`` and ``delta``.
    times : int, default=1
        Number of draws. Sensitivity and noise are for one, the cost is for all.
    """

    mechanism: Term[Mechanism]
    statistic: Term[Statistic]
    sensitivity: float
    norm: Norm
    parameters: dict[str, float]
    cost: dict[str, float]
    times: int = 1

    def repeated(self, times: int) -> Release:
        """Return the entry of this release of Gaussian noise, made so many times."""
        if set(self.cost) != {"mu", "rho"}:
            raise BudgetError(
                f"only releases of Gaussian noise are accounted as one entry; this is {self.mechanism.code}."
            )
        cost = cost_of_gaussian(times * Fraction(self.cost["mu"]) ** 2)
        return replace(self, times=times * self.times, cost=cost)

    def for_rows(self, n_rows: int) -> Release:
        """Return the entry for a person of so many rows, each of another class, from the one for single rows."""
        names = set(self.cost)
        if names == {"mu", "rho"}:
            # Sums of different classes have their own noise, so squares add up.
            cost = cost_of_gaussian(n_rows * Fraction(self.cost["mu"]) ** 2)
            return replace(
                self, sensitivity=math.sqrt(n_rows) * self.sensitivity, cost=cost
            )
        if names != {"epsilon", "mu", "rho"}:
            raise BudgetError(
                f"costs of {self.mechanism.code} to several rows together are not known."
            )
        # Selections for several classes, or several steps of one selection: the ranges
        # add up.
        selections = n_rows * self.parameters["n_selections"]
        return replace(
            self,
            parameters=self.parameters | {"n_selections": selections},
            cost=cost_of_selection(above(n_rows * Fraction(self.cost["epsilon"]))),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dictionary; `from_dict` reads it back."""
        values = {
            "mechanism": self.mechanism.to_dict(),
            "statistic": self.statistic.to_dict(),
            "sensitivity": self.sensitivity,
            "norm": self.norm.value,
            "parameters": dict(self.parameters),
            "cost": dict(self.cost),
        }
        if self.times == 1:
            return values
        return {**values, "times": self.times}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Release:
        """Read what `to_dict` wrote; `Misfit` if it states less than its mechanism costs."""
        release = cls(**read_fields(cls, {"times": 1} | values))
        if not release._is_consistent():
            raise Misfit(
                "sensitivity, noise and cost of a release contradict each other"
            )
        return release

    def _is_consistent(self) -> bool:
        """Whether it states at least the cost that follows from its mechanism, sensitivity and parameters."""
        cost = self.cost
        numbers = [self.sensitivity, *self.parameters.values(), *cost.values()]
        if min(numbers) < 0 or self.sensitivity == 0 or self.times < 1:
            return False
        if not 0 < self.parameters.get("sampling_rate", 1.0) <= 1:
            return False
        mechanism = self.mechanism.code
        statistic = self.statistic.innermost
        # Sizes are positive, and sensitivities grow with them.
        if any(type(size) is int and size < 1 for _, size in statistic.values):
            return False
        # What neighbours agree in is no release.
        if statistic.code is Statistic.RECORDS_OF_CLASSES:
            return False
        if self.norm is not NORMS.get(mechanism, self.norm):
            return False
        if mechanism is Mechanism.STATED:
            return self._is_one_cost()
        if mechanism in _ONCE and self.times > 1:
            return False
        try:
            follows = cost_of(
                mechanism,
                Fraction(self.sensitivity) ** 2,
                self.parameters,
                self.times,
                cost.get("delta", 0.0),
            )
        except (ArithmeticError, DpplError):  # such numbers belong to no mechanism
            return False
        sampled = mechanism is Mechanism.SAMPLED_ROUNDED_GAUSSIAN
        close = _CLOSE_ON_A_GRID if sampled else CLOSE
        return set(cost) == set(follows) and all(
            cost[name] >= close * least for name, least in follows.items()
        )

    def _is_one_cost(self) -> bool:
        """Whether what an own mechanism states is one cost, with what follows from it."""
        cost = self.cost
        if set(cost) == {"epsilon", "delta"}:
            return 0 < cost["delta"] < 1
        if "mu" not in cost:
            return "rho" in cost and set(cost) <= {"rho", "epsilon"}
        follows = cost_of_gaussian(Fraction(cost["mu"]) ** 2)
        if "epsilon" in cost:
            follows = cost_of_selection(cost["epsilon"])
        return set(cost) == set(follows) and all(
            math.isclose(cost[name], follows[name], rel_tol=1e-9) for name in follows
        )


_hints = functools.cache(get_type_hints)


def read_fields(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass from JSON; a KeyError if one is missing."""
    hints = _hints(kind)
    return {one.name: _read(hints[one.name], values[one.name]) for one in fields(kind)}


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as a field of the type `kind`; a TypeError if it is of another."""
    items = get_args(kind)
    if kind is Budget:
        return budget_from_dict(value)
    if get_origin(kind) is Term:
        return Term.from_dict(items[0], value)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if isinstance(kind, type) and issubclass(kind, Code) and type(value) is str:
        return kind(value)
    if type(None) in items:
        return None if value is None else _read(items[0], value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_read(items[0], item) for item in value)
    if get_origin(kind) is dict and isinstance(value, dict):
        return {_read(str, name): _read(items[1], item) for name, item in value.items()}
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if type(value) is kind and kind is not float:
        return value
    raise TypeError(f"a field of type {kind} was expected")
