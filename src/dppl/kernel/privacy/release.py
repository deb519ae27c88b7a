"""A release, as checked data: one use of a mechanism, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, get_args, get_origin, get_type_hints

from dppl.errors import BudgetError
from dppl.kernel.privacy.budgets import Budget, budget_from_dict
from dppl.kernel.privacy.rounding import above, cost_of_gaussian, cost_of_selection
from dppl.kernel.privacy.terms import Code, Mechanism, Norm, Statistic, Term


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
        Under the adjacency of the guarantee: ``rho`` (zCDP), ``mu`` (Gaussian DP) and,
        where it has one, pure ``epsilon``. With both ``mu`` and ``epsilon`` it is one
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
        return replace(
            self, cost=cost_of_selection(above(n_rows * Fraction(self.cost["epsilon"])))
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
        return values if self.times == 1 else {**values, "times": self.times}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Release:
        """Read what `to_dict` wrote."""
        release = cls(**read_fields(cls, {"times": 1} | values))
        cost = release.cost
        noise_std = release.parameters.get("noise_std", 0.0)
        consistent = release.sensitivity > 0 and noise_std >= 0 and release.times >= 1
        if (rate := release.parameters.get("sampling_rate")) is not None:
            consistent &= 0 < rate <= 1 and noise_std > 0
        if {"mu", "rho"} <= set(cost):
            # Whatever states a mu states what follows from it, of Gaussian noise or of
            # one selection.
            follows = cost_of_gaussian(Fraction(cost["mu"]) ** 2)
            if "epsilon" in cost:
                follows = cost_of_selection(cost["epsilon"])
            consistent &= all(
                math.isclose(cost[name], follows[name], rel_tol=1e-9)
                for name in ("mu", "rho")
            )
        if release.mechanism.code is Mechanism.ROUNDED_GAUSSIAN and "mu" in cost:
            # The last digits went through floats.
            consistent &= cost["mu"] * noise_std >= math.sqrt(
                release.times
            ) * release.sensitivity * (1 - 1e-9)
        if not consistent:
            raise ValueError(
                "sensitivity, noise and cost of a release contradict each other"
            )
        return release


def read_fields(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass from JSON; a KeyError if one is missing."""
    hints = get_type_hints(kind)
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
