"""Every estimator and mechanism keeps its claim under audit, and the audit comes near the claim where it can.

False alarms. A claim that holds is refuted with probability at most ALARM in each audit
(the confidence of the bound). That a bound reaches SHARE of the claim fails, with right
code, with the probability written beside it: exact binomial tails for two-valued
statistics, a normal approximation over simulated audits for Gaussians.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri

from dppl import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    LatticeOptions,
    MeanPrototypes,
    PublicPrototypes,
    PureDP,
)
from dppl.audit import audit, bounds, worst_case
from dppl.audit.audit import audit_release
from dppl.audit.canaries import _target_probabilities
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import CoinPress, ExponentialMechanism, RoundedGaussian
from dppl.kernel.mechanisms.randomness import SystemRandomness

pytestmark = pytest.mark.audit

ALARM = 1e-6
TIGHT_CONFIDENCE = 0.8
# Shares of a claim that a bound reaches: of a fit, and of a bare mechanism, which
# allows more runs.
SHARE = 0.3
SHARE_OF_MU = 0.5
SHARE_OF_BARE = 0.4
SHARE_OF_BARE_MU = 0.85
SYSTEM = SystemRandomness()


def check(result, *, share=None):
    assert result.lower_bound <= result.claimed
    assert not result.violation
    assert result.confidence == 1 - ALARM
    if share:  # a bound of less confidence on the same runs: how near it comes needs no tiny error
        if result.bound == "gaussian":
            found = bounds.lower_bound(
                *result.samples, parameter="mu", confidence=TIGHT_CONFIDENCE
            )
        elif result.parameter == "rho":
            found = bounds.lower_bound(
                *result.samples, parameter="rho", confidence=TIGHT_CONFIDENCE
            )
        else:
            found = bounds.lower_bound(
                *result.samples, parameter="epsilon", confidence=TIGHT_CONFIDENCE
            )
        assert found >= share * result.claimed


def run(estimator, runs, **options):
    data, canary = worst_case(estimator, runs=runs, confidence=TIGHT_CONFIDENCE)
    return audit(estimator, data, canary, runs=runs, confidence=1 - ALARM, **options)


def test_mean_prototypes_keep_their_mu():
    """Of a replaced record; test_persons.py audits added ones."""
    result = run(MeanPrototypes(GaussianDP(2.0), ["a"], adjacency="replace-one"), 400)
    assert (result.parameter, result.notion, result.bound) == (
        "mu",
        "Gaussian DP",
        "gaussian",
    )
    # Below the share with probability 7e-7.
    check(result, share=SHARE_OF_MU)


@pytest.mark.parametrize("budget", [ZCDP(2.0), ApproxDP(4.0, 1e-5)])
def test_gaussian_noise_is_audited_in_mu_whatever_the_budget(budget):
    estimator = MeanPrototypes(budget, ["a"])
    result = run(estimator, 50)
    check(result)
    assert result.parameter == "mu"
    assert (
        0.999 * budget.gaussian_allowance().mu
        <= result.claimed
        <= budget.gaussian_allowance().mu
    )


def test_public_prototypes_keep_their_epsilon():
    # Below the share with probability 2e-6.
    check(run(PublicPrototypes(PureDP(3.0), ["a"], clip=(0.0, 2.0)), 400), share=SHARE)


def test_mean_prototypes_keep_their_epsilon_at_delta():
    result = run(MeanPrototypes(ApproxDP(4.0, 1e-5), ["a", "b"]), 100, delta=1e-5)
    check(result)
    assert (result.parameter, result.delta, result.bound) == (
        "epsilon",
        1e-5,
        "gaussian",
    )
    assert 3.999 < result.claimed <= 4.0


@pytest.mark.parametrize("sensitivity", [1, 127])
def test_the_rounded_gaussian_keeps_its_mu(sensitivity):
    """Also where noise of half a step is rounded: rounding can only hide."""
    mechanism = RoundedGaussian.within(GaussianDP(2.0), Fraction(sensitivity**2))
    noisy = {
        include: iter(mechanism.release(np.full(8000, sensitivity * include), SYSTEM))
        for include in (False, True)
    }
    # Of wide noise below the share with probability 1e-10.
    result = audit_release(
        lambda include: float(next(noisy[include])),
        GaussianDP(2.0),
        runs=8000,
        confidence=1 - ALARM,
    )
    check(result, share=SHARE_OF_BARE_MU if sensitivity > 1 else None)


@pytest.mark.parametrize(("size", "n_others"), [(1, 36), (3, 4)])
def test_the_exponential_mechanism_keeps_its_epsilon(size, n_others):
    mechanism = ExponentialMechanism.within(PureDP(3.0), 7, size)
    targets = np.arange(n_others + size) >= n_others

    def release(include):
        return float(targets[mechanism.select(7 * include * targets, SYSTEM)].all())

    # Below the share with probability 8e-8 each.
    check(
        audit_release(release, PureDP(3.0), runs=1000, confidence=1 - ALARM),
        share=SHARE_OF_BARE,
    )


def test_one_selection_keeps_its_bounded_range_rho():
    """Selection by ZCDP(rho) uses epsilon = sqrt(8 rho), more than Gaussian noise of that rho would show."""
    mechanism = ExponentialMechanism.within(ZCDP(2.0), 7)
    targets = np.arange(14) == 13

    def release(include):
        return float(mechanism.select(7 * include * targets, SYSTEM)[0] == 13)

    # Below the share with probability 4e-11.
    result = audit_release(release, ZCDP(2.0), runs=1200, confidence=1 - ALARM)
    check(result, share=SHARE_OF_BARE)
    # In mu it shows more than Gaussian noise of that rho has, and no more than its own.
    chosen, spontaneous = _target_probabilities(mechanism.epsilon, 1, 13, False)
    own = mechanism.describe("rows").cost["mu"]
    assert 2.0 < ndtri(chosen) - ndtri(spontaneous) <= own
    seen = bounds.lower_bound(*result.samples, parameter="mu", confidence=1 - ALARM)
    assert seen <= own


def test_a_selection_is_audited_against_its_mu():
    budget = GaussianDP(1.0)
    result = run(PublicPrototypes(budget, ["a"]), 30)
    check(result)
    assert (result.parameter, result.claimed) == ("mu", 1.0)


def test_at_a_delta_a_selection_is_audited_against_its_own_epsilon():
    """Through the curve of Gaussian noise its mu would show an epsilon above the true one."""
    result = run(
        PublicPrototypes(GaussianDP(2.0), ["a"], clip=(0.0, 2.0)), 60, delta=1e-5
    )
    check(result)
    assert (result.parameter, result.bound) == ("epsilon", "event")
    pure = GaussianDP(2.0).selection_epsilon()
    assert (
        result.lower_bound
        <= result.claimed
        < pure
        < GaussianDP(2.0).to_approx(1e-5).epsilon
    )


def test_coinpress_keeps_its_mu():
    lattice = Lattice(16)
    mechanism = CoinPress(mu=2.0)
    rows = {side: np.zeros((200, 16), np.int8) for side in (True, False)}
    rows[True][0, 0], rows[False][0, 0] = 127, -127

    def release(include):
        return float(mechanism.release(rows[include], lattice, SYSTEM)[0])

    check(audit_release(release, GaussianDP(2.0), runs=300, confidence=1 - ALARM))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("size", [1, 2])
def test_the_planned_probabilities_are_those_of_the_mechanism(adjacency, size):
    """The targets' probabilities, by enumeration of sets with the utilities that the estimator would see."""
    import itertools

    n_others = 5
    replaces = adjacency == "replace-one"
    epsilon = 3.0 / 2 if replaces else 3.0
    targets = np.arange(n_others + size) >= n_others

    def probability(utilities):
        sets = list(itertools.combinations(range(n_others + size), size))
        weights = [math.exp(epsilon * min(utilities[list(chosen)])) for chosen in sets]
        return weights[-1] / sum(weights)

    planned = _target_probabilities(3.0, size, n_others, replaces)
    without = (~targets if replaces else np.zeros_like(targets)).astype(float)
    assert planned == pytest.approx(
        (probability(targets.astype(float)), probability(without))
    )


def test_a_seeded_estimator_is_audited_with_fresh_noise():
    estimator = MeanPrototypes(ZCDP(2.0), ["a"], random_state=0)
    seen = []
    data, canary = worst_case(estimator)
    result = audit(estimator, data, canary, runs=20, progress=lambda: seen.append(1))
    assert len(seen) == 40
    assert min(len(np.unique(sample)) for sample in result.samples) > 10
    assert estimator.random_state == 0
    assert not hasattr(estimator, "prototypes_")


def test_a_delta_turns_the_claim_into_one_about_epsilon():
    result = run(MeanPrototypes(ZCDP(2.0), ["a"]), 100, delta=1e-5)
    check(result)
    assert (result.parameter, result.notion, result.delta) == (
        "epsilon",
        "approximate DP",
        1e-5,
    )
    assert (
        result.claimed
        == GaussianDP(2.0).to_approx(1e-5).epsilon
        < ZCDP(2.0).to_approx(1e-5).epsilon
    )


def test_results_speak_for_themselves():
    result = run(PublicPrototypes(PureDP(0.2), ["a"]), 50)
    content = result.to_dict()
    assert json.loads(json.dumps(content)) == content
    assert set(content) == {
        *(
            "method",
            "notion",
            "parameter",
            "claimed",
            "lower_bound",
            "provable",
            "delta",
            "bound",
        ),
        *("confidence", "runs", "seconds", "unit", "violation"),
    }
    assert str(result).startswith(
        "PublicPrototypes: claims epsilon = 0.2 for one record (pure DP); measured at least "
    )
    assert (
        result.verdict
        == "not refuted; a lower bound can only refute a claim, never prove it"
    )
    few = run(PublicPrototypes(PureDP(3.0), ["a"]), 5)
    assert (few.lower_bound, few.provable, few.violation) == (0, 0, False)
    assert str(few).endswith(
        "Verdict: none: so few runs can show at most epsilon = 0; raise runs."
    )


def test_nobody_is_warned_of_a_budget_that_nobody_chose(recwarn):
    """What a canary adds is learned with hardly any noise."""
    worst_case(MeanPrototypes(ZCDP(0.02), ["a", "b"]))
    assert not recwarn.list


def test_audits_that_cannot_mean_anything_are_refused():
    mean = MeanPrototypes(ZCDP(1.0), ["a"])
    data, canary = worst_case(mean)
    with pytest.raises(ParameterError, match="runs must be at least 2"):
        audit(mean, data, canary, runs=1)
    with pytest.raises(ParameterError, match="names its replacement"):
        audit(
            MeanPrototypes(ZCDP(1.0), ["a"], adjacency="replace-one"),
            data,
            canary,
            runs=2,
        )
    with pytest.raises(ParameterError, match="needs a list of classes"):
        worst_case(MeanPrototypes(ZCDP(1.0)))
    with pytest.raises(ParameterError, match="no lattice"):
        worst_case(
            PublicPrototypes(ZCDP(1.0), ["a"], lattice=LatticeOptions(rotation="auto"))
        )
