"""Run an estimator or a mechanism many times on neighbours, and put what was seen beside what was claimed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
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
        What `claimed` and `lower_bound` are values of.
    claimed : float
    lower_bound : float
        At most the true value, with the stated confidence.
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the samples, JSON-ready."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "samples"}
        return {**content, "violation": self.violation}

    def __str__(self) -> str:
        at = f" at delta = {self.delta:.3g}" if self.delta else ""
        unit = f" for {self.unit}" if self.unit else ""
        verdict = "VIOLATION: the claim is refuted" if self.violation else "no violation"
        return (
            f"{self.method}: claims {self.parameter} = {self.claimed:.4g}{at}{unit} ({self.notion}); measured at least "
            f"{self.lower_bound:.4g} with confidence {self.confidence:.10g} ({self.bound} bound, runs: {self.runs}, "
            f"{self.seconds:.1f} s): {verdict}."
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

    Examples
    --------
    >>> from dppl import ApproxDP, MeanPrototypes
    >>> from dppl.audit import audit, worst_case
    >>> estimator = MeanPrototypes(ApproxDP(1, 1e-6), classes=["a", "b"])
    >>> result = audit(estimator, *worst_case(estimator), runs=100, confidence=1 - 1e-9)
    >>> result.violation
    False
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

    started = time.perf_counter()
    samples = _samples(release, runs, progress)
    ((claim, unit),) = claims
    return _compared(
        samples,
        claim,
        method=type(estimator).__name__,
        unit=unit,
        delta=delta if isinstance(claim, GaussianDP) else None,
        confidence=confidence,
        seconds=time.perf_counter() - started,
    )


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
    started = time.perf_counter()
    samples = _samples(release, runs, progress)
    seconds = time.perf_counter() - started
    return _compared(samples, claim, method=method, delta=delta, confidence=confidence, seconds=seconds)


def audit_in_one_run(
    estimator: EmbeddingClassifier,
    data: Records,
    canaries: Sequence[Canary],
    *,
    confidence: float = 0.95,
    delta: float | None = None,
    n_guesses: int | None = None,
) -> AuditResult:
    """Fit once on many canaries, each there by the toss of a coin, and guess which were.

    The canaries of the largest statistics are guessed to be in, those of the smallest to be out.

    Parameters
    ----------
    estimator : MeanPrototypes or PublicPrototypes
    data : Records
    canaries : sequence of Canary
        Under add-remove those out are left out; under replace-one their `other` stands in their place.
    confidence : float, default=0.95
    delta : float, default=None
        None takes that of the budget, 0 for pure DP, and 1e-5 for zCDP and Gaussian DP.
    n_guesses : int, default=None
        Even number of guesses, half of them in. None guesses an eighth of the canaries.

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
    each_side = max(1, int(len(canaries) * _GUESSED_SHARE)) if n_guesses is None else n_guesses // 2
    if not 0 < 2 * each_side <= len(canaries):
        raise ParameterError(
            f"n_guesses must be at least 2 and at most the number of canaries, {len(canaries)}; got {n_guesses!r}."
        )
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
    lower = bounds.one_run_lower_bound(
        right, 2 * each_side, len(canaries), delta=_delta_of(claim), confidence=confidence
    )
    return AuditResult(
        method=type(estimator).__name__,
        notion=claim.notion,
        parameter="epsilon",
        claimed=claim.to_dict()["epsilon"],
        lower_bound=lower,
        delta=_delta_of(claim),
        bound="one-run",
        confidence=confidence,
        runs=1,
        unit=model.guarantee_.unit,
        seconds=time.perf_counter() - started,
        samples=(scores[included], scores[~included]),
    )


def _samples(release: Callable[[bool], float], runs: int, progress: Advance | None) -> tuple[Float, Float]:
    _validate.positive_integer(runs=runs)
    if runs < 2:
        raise ParameterError(f"runs must be at least 2, half to choose the event and half to count it; got {runs!r}.")
    samples = np.empty((runs, 2))
    for run in samples:
        for column, include in enumerate((True, False)):
            run[column] = release(include)
            if progress is not None:
                progress()
    return samples[:, 0], samples[:, 1]


def _compared(
    samples: tuple[Float, Float],
    claim: Budget,
    *,
    method: str,
    delta: float | None,
    confidence: float,
    seconds: float,
    unit: str | None = None,
) -> AuditResult:
    gaussian = isinstance(claim, GaussianDP)
    if delta is not None:
        claim = claim.to_approx(delta)
    parameter, claimed = next(iter(claim.to_dict().items()))
    return AuditResult(
        method=method,
        notion=claim.notion,
        parameter=parameter,
        claimed=claimed,
        lower_bound=_proved(samples, claim, gaussian=gaussian, confidence=confidence),
        delta=_delta_of(claim),
        bound="gaussian" if gaussian else "event",
        confidence=confidence,
        runs=len(samples[0]),
        unit=unit,
        seconds=seconds,
        samples=samples,
    )


def _proved(samples: tuple[Float, Float], claim: Budget, *, gaussian: bool, confidence: float) -> float:
    if gaussian:
        mu = bounds.gdp_lower_bound(*samples, confidence=confidence)
        return mu if isinstance(claim, GaussianDP) else bounds.epsilon_of_gdp(mu, _delta_of(claim))
    if isinstance(claim, ZCDP):
        return bounds.zcdp_lower_bound(*samples, confidence=confidence)
    return bounds.epsilon_lower_bound(*samples, delta=_delta_of(claim), confidence=confidence)


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
