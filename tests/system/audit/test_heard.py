"""Audits of what mechanisms release inside a fit: claims hold, and faults planted into each kind of release are found.

False alarms: at most ALARM each, the confidence of the bound. A planted fault is missed
with probability below 1e-8 (a normal approximation over simulated audits of Gaussians
at the distance that the fault makes).
"""

from fractions import Fraction

import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, MeanPrototypes, SoftmaxPrototypes
from dppl.audit import audit, worst_case
from dppl.audit.canaries import Likelihood
from dppl.errors import ParameterError
from dppl.kernel.mechanisms import RoundedGaussian, SymmetricRoundedGaussian
from dppl.lab import FeatureCovariance, GlobalAdapt, LeastSquares, Newton
from dppl.methods import LinearProbe
from dppl.testing import Asked, recorded
from overhearing import overheard

pytestmark = pytest.mark.audit

ALARM = 1e-6
RHO = ZCDP(2.0)
CLASSES = ["a", "b"]
SMALL = ZCDP(0.5)
# Steps so small that the canary's gradient stays as long as it was.
SLOW = {"steps": 2, "clip": 0.5, "learning_rate": 1e-6}


def audited(estimator, runs):
    data, canary = worst_case(estimator)
    return audit(estimator, data, canary, runs=runs, confidence=1 - ALARM)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearProbe(RHO, CLASSES, **SLOW),
        LeastSquares(RHO, CLASSES, class_grams=True),
        FeatureCovariance(RHO, CLASSES, steps=2, learning_rate=1e-6),
        Newton(RHO, CLASSES, steps=2, learning_rate=1e-6),
        SoftmaxPrototypes(RHO, CLASSES),
    ],
    ids=repr,
)
def test_claims_hold(estimator):
    result = audited(estimator, 120)
    assert not result.violation
    assert result.bound == "gaussian"
    inside, outside = result.samples
    # The two sides lie apart, as the budget lets them: by mu = 2 standard deviations,
    # or 1.3 for SoftmaxPrototypes. At 120 runs each, 1.3 comes out below 0.65, and
    # nothing at all above it, with probability 1e-6.
    assert np.mean(inside) - np.mean(outside) > 0.65 * np.std(outside)


QUARTER = 16
WITHOUT_THE_SQUARE = 63.5**2


@pytest.mark.parametrize(
    ("estimator", "kind", "squared_share"),
    [
        (
            GlobalAdapt(SMALL, CLASSES, steps=1, upper_bound=0.5),
            RoundedGaussian,
            QUARTER,
        ),
        (LeastSquares(SMALL, CLASSES), SymmetricRoundedGaussian, WITHOUT_THE_SQUARE),
    ],
    ids=repr,
)
def test_noise_for_too_small_a_sensitivity(estimator, kind, squared_share, monkeypatch):
    """A quarter of one, for a Gram matrix s in place of s²; in one kind of release alone.

    Laws of replay (tests/laws/test_replay.py) hold the sensitivities of all methods
    exactly.
    """
    original = kind.within.__func__

    def within(cls, budget, squared, times=1):
        return original(cls, budget, squared / Fraction(squared_share), times)

    monkeypatch.setattr(kind, "within", classmethod(within))
    assert audited(estimator, 240).violation


def test_samples_are_refused():
    with pytest.raises(ParameterError, match="knows no samples"):
        worst_case(
            LinearProbe(ApproxDP(1.0, 1e-5), CLASSES, sampling_rate=0.5, batch_size=9)
        )


def test_the_statistic_is_the_log_likelihood_ratio_of_all_releases():
    statistic = Likelihood(
        (np.array([0]), np.array([32])), (np.array([1]), np.array([64]))
    )
    narrow = Asked("a", np.array([6]), 2.0)
    public = Asked("b", np.array([7]))
    wide = Asked("c", np.array([64]), 32.0)
    assert statistic([narrow, public, wide]) == 6 * 1 / 2**2 + 32 * 64 / 32**2


def test_everything_that_a_guarantee_names_is_heard():
    X = np.eye(4)
    y = ["a", "b", "a", "b"]
    for estimator, count in (
        (LinearProbe(RHO, CLASSES, steps=3), 1 + 3),
        (GlobalAdapt(RHO, CLASSES, steps=3), 1 + 3 + 3),
        (LeastSquares(RHO, CLASSES, class_grams=True), 3),
        (FeatureCovariance(RHO, CLASSES, steps=3), 1 + 3),
        (Newton(RHO, CLASSES, steps=3), 3 + 3),
        (SoftmaxPrototypes(RHO, CLASSES), 4 + 16 + 1),
        (MeanPrototypes(RHO, CLASSES), 1),
    ):
        with recorded() as asked, overheard() as released:
            model = estimator.fit(X, y)
        assert len(asked) == count
        stds = {entry.parameters["noise_std"] for entry in model.guarantee_.releases}
        assert {one.noise_std for one in asked} == stds
        # Nothing is drawn but for what was asked, and it is answered as it was drawn.
        assert [one.noise_std for one in asked] == [
            mechanism.noise_std for mechanism, _ in released
        ]
        assert all(
            np.array_equal(one.answer, noisy)
            for one, (_, noisy) in zip(asked, released, strict=True)
        )
        model.fit(X, y)
        assert len(asked) == count
