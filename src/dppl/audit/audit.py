"""Run an estimator or a mechanism many times on neighbours and compare the measured loss with the claimed one."""

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from dppl._utils import validate
from dppl._utils.types import Float
from dppl.audit import bounds
from dppl.audit.canaries import AuditData, Canary, Likelihood, Selected, neighbour
from dppl.errors import Argument, ParameterError
from dppl.kernel.privacy import (
    ZCDP,
    ApproxDP,
    Budget,
    GaussianDP,
    Guarantee,
    RenyiDP,
)
from dppl.kernel.privacy.budgets import USUAL_DELTA
from dppl.kernel.privacy.terms import Unit
from dppl.methods import EmbeddingClassifier
from dppl.statement import words
from dppl.testing import recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """A measured lower bound on the privacy loss, with the claim. It can refute the claim and never prove it.

    Parameters
    ----------
    method : str
        What was audited.
    notion : str
        Notion of the claim: ``"Gaussian DP"``, ``"pure DP"``, ``"zCDP"`` or
        ``"approximate DP"``.
    parameter : {"mu", "epsilon", "rho"}
        What `claimed`, `lower_bound` and `provable` are values of.
    claimed : float
    lower_bound : float
        At most the true value, with the stated confidence.
    provable : float
        The largest bound that so many runs can prove. Below the claim, an audit can
        refute nothing.
    delta : float
        Where epsilon is compared; 0 for Gaussian DP and zCDP.
    bound : {"gaussian", "event"}
        ``"gaussian"`` tests the claim of a mu by the error rates of one event; at a
        delta it is the epsilon that this mu implies. ``"event"`` tests a rho or an
        epsilon itself.
    confidence : float
    runs : int
        Fits with the canary, and as many without.
    seconds : float
    samples : tuple of ndarray of shape (runs,)
        The statistic with and without the canary.
    unit : str or None
        Whom the claim protects: one record, or one person with all of their records.
    """

    method: str
    notion: str
    parameter: str
    claimed: float
    lower_bound: float
    provable: float
    delta: float
    bound: str
    confidence: float
    runs: int
    seconds: float
    samples: tuple[Float, Float] = field(repr=False, compare=False)
    unit: Unit | None = None

    @property
    def violation(self) -> bool:
        """Whether the claim is refuted, with the stated confidence."""
        return self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """The conclusion in words; too few runs could refute nothing, whatever leaks."""
        if self.violation:
            return "VIOLATION: the claim is refuted"
        if self.provable <= self.claimed:
            return f"none: so few runs can show at most {self.parameter} = {self.provable:.4g}; raise runs"
        return "not refuted; a lower bound can only refute a claim, never prove it"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the samples, JSON-ready."""
        content = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name != "samples"
        }
        return {**content, "violation": self.violation}

    def __str__(self) -> str:
        at = ""
        if self.delta:
            at = f" at delta = {self.delta:.3g}"
        unit = ""
        if self.unit is not None:
            unit = f" for {words.text(self.unit)}"
        return (
            f"{self.method}: claims {self.parameter} = {self.claimed:.4g}{at}{unit} ({self.notion}); measured at least "
            f"{self.lower_bound:.4g} with confidence {self.confidence:.10g} ({self.bound} bound, runs: {self.runs}, "
            f"{self.seconds:.1f} s). Verdict: {self.verdict}."
        )


def audit(
    estimator: EmbeddingClassifier,
    data: AuditData,
    canary: Canary,
    *,
    runs: int,
    confidence: float = 0.95,
    delta: float | None = None,
    progress: Callable[[], None] | None = None,
) -> AuditResult:
    """Fit an estimator many times with and without a canary, and bound its privacy loss from below.

    Parameters
    ----------
    estimator : EmbeddingClassifier
        Its parameters; it is not fitted itself. Every fit draws fresh noise from the
        operating system, whatever its `random_state`.
    data : AuditData
        With `groups` to audit the promise to a person.
    canary : Canary
        With `other` if and only if the estimator's adjacency is replace-one.
    runs : int
        Fits with the canary, and as many without; at least 2.
    confidence : float, default=0.95
        Probability with which the bound holds. An audit of a true claim refutes it with
        at most 1 - confidence.
    delta : float, default=None
        Compare epsilon at this delta. None compares mu if all releases are Gaussian,
        and else what the budget names: rho, epsilon, or epsilon at its delta.
    progress : callable, default=None
        Called after every fit.

    Returns
    -------
    AuditResult
        The claim is the one in `guarantee_`.

    Raises
    ------
    ParameterError, InputError, BudgetError
        If a parameter breaks its rule, or the fit refuses its input or budget.

    Notes
    -----
    What is measured is a lower bound. It can refute the claim; below the claim it proves nothing, since another canary
    or statistic might see more.
    """
    if (canary.other is not None) != (estimator.adjacency == "replace-one"):
        raise ParameterError(
            "a canary names its replacement (other) under ",
            Argument("adjacency", "replace-one"),
            ", and only there; got ",
            Argument("adjacency", estimator.adjacency),
            ".",
        )
    template = clone(estimator).set_params(public=data.public, random_state=None)
    sides = {include: neighbour(data, canary, include) for include in (True, False)}
    guarantees: list[Guarantee] = []

    def release(include: bool) -> float:
        rows, labels, groups = sides[include]
        with recorded() as asked:
            # A copy of the unfitted template: no run sees what another left behind.
            model = copy(template).fit(rows.view(), labels, **groups)
        guarantees[:] = [model.guarantee_]
        return canary.statistic(
            asked if isinstance(canary.statistic, Likelihood | Selected) else model
        )

    samples, seconds = _sample(release, runs, progress)
    (guarantee,) = guarantees
    # The sharpest claim: the mu of Gaussian releases, and else the budget, or the
    # epsilon at `delta`.
    if delta is None:
        claim = guarantee.budget
    else:
        claim = ApproxDP(guarantee.epsilon(delta), delta)
    if guarantee.mu is not None and not any(
        "epsilon" in release.cost for release in guarantee.releases
    ):
        claim = GaussianDP(guarantee.mu)
    at = delta if isinstance(claim, GaussianDP) else None
    result = _compare(
        samples, claim, at, confidence, method=type(estimator).__name__, seconds=seconds
    )
    return replace(result, unit=guarantee.unit)


def audit_release(
    release: Callable[[bool], float],
    claim: Budget,
    *,
    runs: int,
    confidence: float = 0.95,
) -> AuditResult:
    """Audit any release: ``release(True)`` and ``release(False)`` run it on neighbours and return a statistic."""
    samples, seconds = _sample(release, runs, None)
    return _compare(samples, claim, None, confidence, method="release", seconds=seconds)


def _sample(
    release: Callable[[bool], float], runs: int, progress: Callable[[], None] | None
) -> tuple[tuple[Float, Float], float]:
    """Return the statistic of all runs with and without the canary, and the seconds that they took."""
    validate.positive_integer(runs=runs)
    if runs < 2:
        raise ParameterError(
            f"runs must be at least 2, half to choose the event and half to count it; got {runs!r}."
        )
    started = time.perf_counter()
    samples = np.empty((runs, 2))
    for run in samples:
        for column, include in enumerate((True, False)):
            run[column] = release(include)
            if progress is not None:
                progress()
    return (samples[:, 0], samples[:, 1]), time.perf_counter() - started


def _compare(
    samples: tuple[Float, Float],
    claim: Budget,
    delta: float | None,
    confidence: float,
    **rest: Any,
) -> AuditResult:
    gaussian = isinstance(claim, GaussianDP)
    # Tests bound epsilons and rho, so the divergence of one order counts as what it
    # implies.
    if isinstance(claim, RenyiDP):
        delta = delta or USUAL_DELTA
    runs = len(samples[0])
    if delta is not None:
        claim = claim.to_approx(delta)
    delta = 0.0
    if isinstance(claim, ApproxDP):
        delta = claim.delta
    parameter, claimed = next(iter(claim.to_dict().items()))
    tested: bounds.Parameter = (
        "mu" if gaussian else "rho" if isinstance(claim, ZCDP) else "epsilon"
    )
    event_delta = 0.0 if gaussian else delta
    lower = bounds.lower_bound(
        *samples, parameter=tested, delta=event_delta, confidence=confidence
    )
    provable = bounds.most_provable(runs, tested, event_delta, confidence)
    # The mu of a Gaussian mechanism determines all of its loss, its epsilon at a delta
    # included.
    if gaussian and parameter == "epsilon":
        lower, provable = (bounds.epsilon_of_gdp(mu, delta) for mu in (lower, provable))
    return AuditResult(
        notion=claim.notion,
        parameter=parameter,
        claimed=claimed,
        lower_bound=lower,
        provable=provable,
        delta=delta,
        bound="gaussian" if gaussian else "event",
        confidence=confidence,
        runs=runs,
        samples=samples,
        **rest,
    )
