"""Faults planted into mechanisms and estimators are found, at a confidence of 1 - 1e-6.

Each test misses its fault with probability below 1e-6 (by exact binomial tails, or
simulated audits and a normal approximation). That the same audits find nothing in the
code as it is stands in test_audit. Half of a sensitivity is found without runs, exactly
(tests/laws/test_replay.py: `plan_for_one_row`, `halve_the_growth`, `select_for_one`).
"""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from dppl import ZCDP, GaussianDP, MeanPrototypes, PublicPrototypes, PureDP
from dppl.audit import AuditData, Canary, audit, worst_case
from dppl.audit.audit import audit_release
from dppl.kernel import Measurement
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.kernels import class_sums
from dppl.kernel.mechanisms import ExponentialMechanism, RoundedGaussian
from dppl.kernel.mechanisms.randomness import SystemRandomness
from dppl.kernel.queries import NumberOfRecords
from dppl.kernel.queries.selection import Selection
from dppl.methods import LinearProbe
from inside import behind

pytestmark = pytest.mark.audit

CONFIDENCE = 1 - 1e-6
SYSTEM = SystemRandomness()
AXES = np.eye(16)


def audited(estimator, runs, case=None):
    data, canary = case or worst_case(estimator, runs=runs)
    return audit(estimator, data, canary, runs=runs, confidence=CONFIDENCE)


@pytest.fixture
def weaken_noise(monkeypatch):
    original = SystemRandomness.rounded_gaussian

    def weaken(factor):
        def weak(self, noise_std, shape):
            return original(self, noise_std * factor, shape)

        monkeypatch.setattr(SystemRandomness, "rounded_gaussian", weak)

    return weaken


def audited_noise(mechanism, runs, claim):
    """Audit bare noise on a value that one record moves from 64 to 191, by the whole sensitivity of 127."""
    noisy = {
        include: iter(mechanism.release(np.full(runs, 64 + 127 * include), SYSTEM))
        for include in (False, True)
    }
    return audit_release(
        lambda include: float(next(noisy[include])),
        claim,
        runs=runs,
        confidence=CONFIDENCE,
    )


def test_a_tenth_less_noise_than_planned(weaken_noise):
    """Missed with probability below 1e-6: the bound lies 6 of its standard deviations above the claim."""
    mechanism = RoundedGaussian.within(GaussianDP(2.0), Fraction(127**2))
    assert not audited_noise(mechanism, 40_000, GaussianDP(2.0)).violation
    weaken_noise(0.9)
    assert audited_noise(mechanism, 40_000, GaussianDP(2.0)).violation


class RoundsFirst(RoundedGaussian):
    """Rounds values to a coarse grid before the noise, which can double what one record changes."""

    def release(self, exact, source):
        return super().release(np.rint(exact / 254).astype(np.int64) * 254, source)


def test_a_rounding_before_the_noise():
    assert audited_noise(
        RoundsFirst.within(GaussianDP(1.0), Fraction(127**2)), 2000, GaussianDP(1.0)
    ).violation


class SameBits(SystemRandomness):
    """Draws the bits of every release again."""

    def __init__(self):
        self.seen = {}

    def _bytes(self, count):
        return self.seen.setdefault(count, super()._bytes(count))


def test_bits_that_are_used_again():
    """The difference of two releases with equal bits has no noise."""
    mechanism = RoundedGaussian.within(GaussianDP(1.0), Fraction(127**2))
    source = SameBits()

    def release(include):
        first, second = (
            mechanism.release(np.array([127 * value]), source)[0]
            for value in (include, 0)
        )
        return float(first - second)

    # What both cost together, if their noise were independent: only one of them sees
    # the record.
    assert audit_release(
        release, GaussianDP(1.0), runs=200, confidence=CONFIDENCE
    ).violation


class Unstated(RoundedGaussian):
    """Is not in the statement."""

    def describe(self, statistic):
        return None


class UnstatedNumber(NumberOfRecords):
    """Costs more than its share."""

    def mechanism(self, budget, times, relation):
        return Unstated.within(
            GaussianDP(5.0), self.squared_sensitivity(relation), times
        )


class ForgetsItsSize(LinearProbe):
    """States the gradients, and leaves the number of records out of the sum of costs."""

    def measurements(self, setting):
        declared = super().measurements(setting)
        return {
            **declared,
            "size": Measurement(UnstatedNumber(), declared["size"].percent),
        }


def test_a_release_that_is_left_out_of_the_sum():
    estimator = ForgetsItsSize(GaussianDP(1.0), ["a", "b"], steps=1, clip=0.5)
    result = audited(estimator, 200)
    assert result.claimed <= 1.0
    assert result.violation


def test_a_tenth_of_the_noise(weaken_noise):
    """The sides lie 5 deviations apart; of 75 runs a side 30 may lie beyond the threshold."""
    weaken_noise(0.1)
    result = audited(MeanPrototypes(GaussianDP(0.5), ["a"]), 150)
    assert result.violation
    assert "VIOLATION" in str(result)


def published_selection(utilities, size, epsilon, sensitivity):
    """Select a set as DPPL-v1 C.3.1 and its code do: rank y from 0 by binom(y, K), then others among the better."""
    order = np.argsort(-utilities, kind="stable")
    weights = [
        math.comb(y, size) * math.exp(epsilon * int(utilities[row]) / (2 * sensitivity))
        for y, row in enumerate(order)
    ]
    source = random.SystemRandom()
    (worst,) = source.choices(range(len(utilities)), weights)
    return order[[*source.sample(range(worst), size - 1), worst]]


def test_the_published_weights_of_sets():
    """With the canary the targets are the two best rows, which these weights can never select together."""
    targets = np.array([False, False, True, True])

    def release(include):
        return float(
            targets[published_selection(10 * include * targets, 2, 1.0, 10)].all()
        )

    assert audit_release(
        release, PureDP(1.0), runs=2000, confidence=CONFIDENCE
    ).violation


class CountScaledNoise(MeanPrototypes):
    """Divides sums by private class counts: the noise then tells the count."""

    def learn(self, measure, setting):
        super().learn(measure, setting)
        self.prototypes_ /= np.maximum(
            np.bincount(behind(measure).records.codes, minlength=len(self.classes_)), 1
        )[:, None]


def test_class_counts_as_scale_of_the_noise():
    # One record of the class, and the canary equal to it; the statistic sees nothing
    # but noise.
    case = (
        AuditData(AXES[:1], ["a"]),
        Canary(
            AXES[0], "a", lambda model: float(np.linalg.norm(model.prototypes_[0, 1:]))
        ),
    )
    assert audited(CountScaledNoise(ZCDP(0.5), ["a"]), 300, case).violation
    assert not audited(MeanPrototypes(ZCDP(0.5), ["a"]), 300, case).violation


def test_a_lattice_that_looks_at_the_batch(monkeypatch):
    """One long record shortens all others."""

    def transform(self, X):
        rows = np.asarray(X, np.float64)
        return np.rint(
            rows / max(np.linalg.norm(rows, axis=1).max(), 1e-9) * self.scale
        ).astype(np.int8)

    case = (
        AuditData(np.tile(AXES[1], (20, 1)), ["a"] * 20),
        Canary(1000 * AXES[0], "a", lambda model: float(model.prototypes_[0, 1])),
    )
    estimator = MeanPrototypes(ZCDP(0.5), ["a"])
    assert not audited(estimator, 200, case).violation
    monkeypatch.setattr(Lattice, "transform", transform)
    assert audited(estimator, 200, case).violation


class SharedGenerator(MeanPrototypes):
    """Every class's worker starts from a copy of one generator, so all classes get the same noise."""

    def learn(self, measure, setting):
        records = behind(measure).records
        exact = class_sums(
            self.lattice_.blocks(records.rows),
            records.codes,
            len(self.classes_),
            self.lattice_.dim,
        )
        noise = behind(measure).source.rounded_gaussian(
            measure.noise_std("sums"), (1, self.lattice_.dim)
        )
        self.prototypes_ = (exact + noise) / self.lattice_.scale


def test_one_generator_shared_by_all_classes():
    def difference(model):
        return float(model.prototypes_[0, 0] - model.prototypes_[1, 0])

    case = AuditData(AXES[1:2], ["b"]), Canary(AXES[0], "a", difference)
    assert audited(SharedGenerator(ZCDP(0.5), ["a", "b"]), 200, case).violation
    assert not audited(MeanPrototypes(ZCDP(0.5), ["a", "b"]), 200, case).violation


class SelectionOfCosines(Selection):
    """Takes utilities for cosines, of sensitivity 2, where they count squared lattice steps."""

    def mechanism(self, budget, times, relation):
        return ExponentialMechanism(
            epsilon=budget.epsilon, sensitivity=2, size=self.n_selected
        )


class NoSensitivity(PublicPrototypes):
    """Asks for such a selection."""

    def measurements(self, setting):
        query = super().measurements(setting)["rows"].query
        return {"rows": Measurement(SelectionOfCosines(**vars(query)))}


def test_a_selection_in_the_wrong_units():
    assert audited(NoSensitivity(PureDP(1.0), ["a"], clip=(0.0, 2.0)), 600).violation
