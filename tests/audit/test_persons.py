"""A person of 50 records shows no more than was promised for a person, and without ids far more.

False alarms as in test_audit: a claim that holds is refuted with probability at most 1e-6.
"""

import numpy as np
import pytest

from dppl import GaussianDP, MeanPrototypes
from dppl.audit import audit_release, bounds, worst_case

pytestmark = pytest.mark.audit

CONFIDENCE = 1 - 1e-6
CLAIM = GaussianDP(2.0)


def release_of(own, ids):
    """Return a release with or without a person of so many records, to whom ids may say that they belong."""
    estimator = MeanPrototypes(CLAIM, ["a"])
    data, canary = worst_case(estimator, runs=100)
    others = [f"other {i}" for i in range(len(data.y))]

    def release(include):
        n = own * include
        rows = np.concatenate([data.X, np.tile(canary.row, (n, 1))])
        groups = [*others, *["patient"] * n] if ids else None
        model = MeanPrototypes(CLAIM, ["a"]).fit(rows, [*data.y, *[canary.label] * n], groups=groups)
        return float(canary.statistic(model))

    return release


def test_a_person_of_fifty_records_is_worth_one():
    result = audit_release(release_of(50, True), CLAIM, runs=2500, confidence=CONFIDENCE)
    assert result.lower_bound <= result.claimed
    assert not result.violation
    # Of the bound at a confidence of 80 %, below the share with probability 4e-7, as that of a record in test_audit.
    assert bounds.gdp_lower_bound(*result.samples, confidence=0.8) >= 0.77 * CLAIM.mu


def test_without_ids_the_same_records_break_the_promise():
    """Missed with probability below 1e-6: five records move the sum by 10 standard deviations of the noise."""
    assert audit_release(release_of(5, False), CLAIM, runs=300, confidence=CONFIDENCE).violation
