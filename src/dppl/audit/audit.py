"""Run an estimator or a mechanism many times on neighbours, and put what was seen beside what was claimed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dppl import _validate
from dppl.audit import bounds
from dppl.audit.canaries import Canary, Likelihood, Records, Selected, neighbour
from dppl.errors import ParameterError
from dppl.estimators import EmbeddingClassifier
from dppl.kernel.privacy import ZCDP, ApproxDP, Budget, GaussianDP, Guarantee, PureDP
from dppl.testing import Asked, recorded

Float: TypeAlias = NDArray[np.float64]
Advance: TypeAlias = Callable[[], None]

_ONE_RUN_DELTA = 1e-5
# Of the canaries of one run, this share is guessed to be in, and as many to be out. Fixed before any run.
_GUESSED_SHARE = 1 / 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit found, beside the claim.

    Parameters
    ----------
    method : str
        What was audited.
    notion : str
        Notion of the claim that is tested: ``"Gaussian DP"``, ``"pure DP"``, ``"zCDP"`` or ``"approximate DP"``.
    parameter : {"mu", "epsilon", "rho"}
        What `claimed`, `lower_bound` and `provable` are values of.
    claimed : float
    lower_bound : float
        At most the true value, with the stated confidence.
    provable : float
        The largest bound that so many runs, or guesses, can prove. Below the claim, an audit can refute nothing.
    delta : float
        Where epsilon is compared; 0 for Gaussian DP and zCDP.
    bound : {"gaussian", "event", "one-run"}
        How the bound was found. ``"gaussian"`` tests the claim of a mu, by the error rates of one event; at a delta it
        is the epsilon that this mu implies. ``"event"`` and ``"one-run"`` test a rho or an epsilon for itself.
    confidence : float
    runs : int
        Fits with the canary, and as many without; 1 for an audit in one run.
    seconds : float
    samples : tuple of ndarray of shape (runs,)
        The statistic with and without the canary (in one run: of the canaries in and out).
    unit : str or None
        Whom the claim protects: one record, or one person with all of their records. None where a release was audited
        that does not say so.
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
    unit: str | None = None

    @property
    def violation(self) -> bool:
        """Whether the claim is refuted, with the stated confidence."""
        return self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """What follows, in words: too few runs could refute nothing, whatever leaks."""
        if self.violation:
            return "VIOLATION: the claim is refuted"
        if self.provable <= self.claimed:
            return f"none: at most {self.parameter} = {self.provable:.4g} can be shown by so few runs; raise runs"
        return "no violation found; no proof"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the samples, JSON-ready."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "samples"}
        return {**content, "violation": self.violation}

    def __str__(self) -> str:
        at = f" at delta = {self.delta:.3g}" if self.delta else ""
        unit = f" for {self.unit}" if self.unit else ""
        return (
            f"{self.method}: claims {self.parameter} = {self.claimed:.4g}{at}{unit} ({self.notion}); measured at least "
            f"{self.lower_bound:.4g} with confidence {self.confidence:.10g} ({self.bound} bound, runs: {self.runs}, "
            f"{self.seconds:.1f} s). Verdict: {self.verdict}."
        )


def audit(
    estimator: EmbeddingClassifier,
    data: Records,
    canary: Canary,
    *,
    runs: int,
    confidence: float = 0.95,
    delta: float | None = None,
    progress: Advance | None = None,
) -> AuditResult:
    """Fit an estimator many times with and without a canary, and bound its privacy loss from below.

    Parameters
    ----------
    estimator : MeanPrototypes, PublicPrototypes, SoftmaxPrototypes or a baseline
        Its parameters; it is not fitted itself. Every fit draws fresh noise of the operating system, whatever its
        `random_state`.
    data : Records
        With `groups` to audit the promise to a person.
    canary : Canary
        With `other` if and only if the estimator's adjacency is replace-one.
    runs : int
        Fits with the canary, and as many without; at least 2.
    confidence : float, default=0.95
        Probability with which the bound holds. An audit of a true claim finds a violation with at most 1 - confidence.
    delta : float, default=None
        Compare epsilon at this delta. None compares mu if all releases are Gaussian, and else what the budget names:
        rho, epsilon, or epsilon at its delta.
    progress : callable, default=None
        Called after every fit.

    Returns
    -------
    AuditResult
        The claim is that of `guarantee_`.

    Raises
    ------
    ParameterError, InputError, BudgetError
        If a parameter breaks its rule, or the fit refuses its input or budget.

    Notes
    -----
    A bound far below the claim proves nothing: another canary or statistic might see more.
    """
    template = _fresh(estimator).set_params(public=data.public)
    _check_canary(estimator, canary)
    sides = {include: neighbour(data, [canary], [include]) for include in (True, False)}
    claims: list[tuple[Budget, str]] = []

    def release(include: bool) -> float:
        # A copy of the unfitted template: no run sees what another left behind.
        with recorded() as asked:
            rows, labels, groups = sides[include]
            # A view, since many fits on one array would be taken for many releases.
            model = copy(template).fit(rows.view(), labels, **groups)
        claims[:] = [(_claim(model.guarantee_, delta), model.guarantee_.unit)]
        return _statistic(canary, model, asked)

    found = _samples(release, runs, progress)
    ((claim, unit),) = claims
    delta = delta if isinstance(claim, GaussianDP) else None
    result = _compared(*found, claim, method=type(estimator).__name__, delta=delta, confidence=confidence)
    return replace(result, unit=unit)


def audit_release(
    release: Callable[[bool], float],
    claim: Budget,
    *,
    runs: int,
    confidence: float = 0.95,
    delta: float | None = None,
    method: str = "release",
    progress: Advance | None = None,
) -> AuditResult:
    """Audit any release: ``release(True)`` and ``release(False)`` run it once on neighbours and return a statistic.

    Parameters
    ----------
    release : callable
    claim : Budget
        What it is claimed to guarantee. A claim in Gaussian DP lets an audit see most; at a `delta` it is taken for
        one of Gaussian noise.
    runs : int
    confidence, delta, progress
        As in `audit`.
    method : str, default="release"
        Name for the result.
    """
    found = _samples(release, runs, progress)
    return _compared(*found, claim, method=method, delta=delta, confidence=confidence)


def audit_in_one_run(
    estimator: EmbeddingClassifier,
    data: Records,
    canaries: Sequence[Canary],
    *,
    confidence: float = 0.95,
    delta: float | None = None,
) -> AuditResult:
    """Fit once on many canaries, each there by the toss of a coin, and guess which were.

    The sixteenth of the canaries of the largest statistics is guessed to be in, that of the smallest to be out.

    Parameters
    ----------
    estimator : MeanPrototypes or PublicPrototypes
    data : Records
    canaries : sequence of Canary
        Under add-remove those out are left out; under replace-one their `other` stands in their place.
    confidence : float, default=0.95
    delta : float, default=None
        None takes that of the budget, 0 for pure DP, and 1e-5 for zCDP and Gaussian DP.

    Returns
    -------
    AuditResult
        Cheap and far looser than `audit`: one run of m canaries cannot prove an epsilon much above log(m).

    References
    ----------
    .. [1] Steinke, Nasr, Jagielski (2023), arXiv:2305.08846v1, Algorithm 1.
    """
    template = _fresh(estimator).set_params(public=data.public)
    for canary in canaries:
        _check_canary(estimator, canary)
    each_side = max(1, int(len(canaries) * _GUESSED_SHARE))
    started = time.perf_counter()
    toss = secrets.randbits(len(canaries))
    included = np.array([toss >> place & 1 for place in range(len(canaries))], bool)
    X, y, groups = neighbour(data, canaries, included)
    with recorded() as asked:
        model = template.fit(X, y, **groups)
    scores = np.array([_statistic(canary, model, asked) for canary in canaries])
    order = np.argsort(scores, kind="stable")
    right = int(included[order[-each_side:]].sum() + (~included[order[:each_side]]).sum())
    claim = _approximate(model.guarantee_, delta)
    lower, most = (
        bounds.one_run_lower_bound(n, 2 * each_side, len(canaries), delta=_delta_of(claim), confidence=confidence)
        for n in (right, 2 * each_side)
    )
    return AuditResult(
        method=type(estimator).__name__,
        notion=claim.notion,
        parameter="epsilon",
        claimed=claim.to_dict()["epsilon"],
        lower_bound=lower,
        provable=most,
        delta=_delta_of(claim),
        bound="one-run",
        confidence=confidence,
        runs=1,
        unit=model.guarantee_.unit,
        seconds=time.perf_counter() - started,
        samples=(scores[included], scores[~included]),
    )


def _samples(
    release: Callable[[bool], float], runs: int, progress: Advance | None
) -> tuple[tuple[Float, Float], float]:
    """Return the statistic of all runs with and without the canary, and the seconds that they took."""
    _validate.positive_integer(runs=runs)
    if runs < 2:
        raise ParameterError(f"runs must be at least 2, half to choose the event and half to count it; got {runs!r}.")
    started, samples = time.perf_counter(), np.empty((runs, 2))
    for run in samples:
        for column, include in enumerate((True, False)):
            run[column] = release(include)
            if progress is not None:
                progress()
    return (samples[:, 0], samples[:, 1]), time.perf_counter() - started


def _compared(
    samples: tuple[Float, Float], seconds: float, claim: Budget, *, method: str, delta: float | None, confidence: float
) -> AuditResult:
    gaussian, runs = isinstance(claim, GaussianDP), len(samples[0])
    claim = claim if delta is None else claim.to_approx(delta)
    parameter, claimed = next(iter(claim.to_dict().items()))
    tested: bounds.Parameter = "mu" if gaussian else "rho" if isinstance(claim, ZCDP) else "epsilon"
    of_event = 0.0 if gaussian else _delta_of(claim)
    found = bounds.lower_bound(*samples, parameter=tested, delta=of_event, confidence=confidence)
    most = bounds.most_provable(runs, tested, of_event, confidence)
    # Of a Gaussian mechanism mu says all, and so what epsilon it has at a delta.
    if gaussian and parameter == "epsilon":
        found, most = (bounds.epsilon_of_gdp(mu, _delta_of(claim)) for mu in (found, most))
    return AuditResult(
        method=method,
        notion=claim.notion,
        parameter=parameter,
        claimed=claimed,
        lower_bound=found,
        provable=most,
        delta=_delta_of(claim),
        bound="gaussian" if gaussian else "event",
        confidence=confidence,
        runs=runs,
        seconds=seconds,
        samples=samples,
    )


def _delta_of(claim: Budget) -> float:
    return claim.delta if isinstance(claim, ApproxDP) else 0.0


def _claim(guarantee: Guarantee, delta: float | None) -> Budget:
    """Return the sharpest claim: the mu of Gaussian releases, and else the budget, or the epsilon at `delta`."""
    mu = guarantee.mu
    if mu is not None and not any("epsilon" in release.cost for release in guarantee.releases):
        return GaussianDP(mu)
    return guarantee.budget if delta is None else _approximate(guarantee, delta)


def _approximate(guarantee: Guarantee, delta: float | None) -> Budget:
    """Return the claim as one about epsilon."""
    if delta is None and isinstance(guarantee.budget, PureDP):
        return guarantee.budget
    if delta is None:
        delta = _delta_of(guarantee.budget) or _ONE_RUN_DELTA
    return ApproxDP(guarantee.epsilon(delta), delta)


def _statistic(canary: Canary, model: EmbeddingClassifier, asked: Sequence[Asked]) -> float:
    if isinstance(canary.statistic, Likelihood | Selected):
        return canary.statistic(asked)
    return canary.statistic(model)


def _fresh(estimator: EmbeddingClassifier) -> EmbeddingClassifier:
    unfitted: EmbeddingClassifier = clone(estimator)
    unfitted.set_params(random_state=None)
    return unfitted


def _check_canary(estimator: EmbeddingClassifier, canary: Canary) -> None:
    if (canary.other is not None) != (estimator.adjacency == "replace-one"):
        raise ParameterError(
            "a canary names its replacement (other) under adjacency='replace-one', and only there; got "
            f"adjacency={estimator.adjacency!r}."
        )
