"""Audits of the promise to a person: fifty records show as much as one does, and without ids far more.

False alarms as in test_audit: a claim that holds is refuted with probability at most
1e-6.
"""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone

from dppl import GaussianDP, MeanPrototypes, PublicPrototypes, PureDP, SoftmaxPrototypes
from dppl.audit import AuditData, Canary, audit, bounds, worst_case
from dppl.audit.audit import audit_release
from dppl.errors import ParameterError
from dppl.kernel import persons
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy.terms import Unit

pytestmark = pytest.mark.audit

CONFIDENCE = 1 - 1e-6
CLAIM = GaussianDP(2.0)
CLASSES = list(range(8))
CASES = {
    "one class": {"person_records": 50},
    "several classes": {"person_records": 50, "spread": True},
    "all classes count": {
        "person_records": 50,
        "spread": True,
        "max_classes_per_person": 8,
    },
}


def run(estimator, runs, max_classes_per_person=None, **case):
    estimator = clone(estimator)
    if max_classes_per_person is not None:
        estimator.set_params(max_classes_per_person=max_classes_per_person)
    data, canary = worst_case(estimator, runs=runs, confidence=CONFIDENCE, **case)
    return audit(estimator, data, canary, runs=runs, confidence=CONFIDENCE)


def test_a_person_of_fifty_records_is_worth_what_was_promised():
    """In all classes; tests/laws/test_persons.py holds a person of one class to the same noise exactly."""
    result = run(MeanPrototypes(CLAIM, CLASSES), 400, **CASES["all classes count"])
    assert (result.claimed, result.unit) == (
        pytest.approx(CLAIM.mu, rel=1e-9),
        Unit.PERSON,
    )
    assert result.lower_bound <= result.claimed
    assert not result.violation
    # Of the bound at a confidence of 80 %, below the share with probability 2e-8, as in
    # test_audit.
    assert (
        bounds.lower_bound(*result.samples, parameter="mu", confidence=0.8)
        >= 0.4 * CLAIM.mu
    )


@pytest.mark.parametrize(
    "estimator",
    [SoftmaxPrototypes(CLAIM, [0, 1, 2]), PublicPrototypes(PureDP(3.0), [0, 1])],
)
def test_other_estimators_have_a_worst_case_of_several_classes(estimator):
    for case in list(CASES)[1:]:
        assert run(estimator, 2, **CASES[case]).unit == Unit.PERSON


def test_a_person_has_as_many_records_as_told_and_most_in_the_class_of_the_canary():
    data, canary = worst_case(
        MeanPrototypes(CLAIM, CLASSES), person_records=50, spread=True
    )
    assert np.bincount(canary.records.y)[0] == 26
    assert set(canary.records.y) == set(CLASSES)
    assert len(data.groups) == len(data.y)
    assert canary.label == 0
    assert (np.abs(canary.records.X) == canary.row).all()
    assert worst_case(MeanPrototypes(CLAIM, CLASSES))[0].groups is None
    assert run(MeanPrototypes(CLAIM, ["a"]), 2).unit == Unit.RECORD
    for given in (
        {"person_records": 0},
        {"person_records": 2, "spread": True},
        {"spread": True},
    ):
        with pytest.raises(
            ParameterError,
            match=r"must be an integer|at least 3 records|goes with person_records",
        ):
            worst_case(MeanPrototypes(CLAIM, CLASSES), **given)
    with pytest.raises(ParameterError, match="two classes"):
        worst_case(MeanPrototypes(CLAIM, ["a"]), person_records=5, spread=True)
    with pytest.raises(ParameterError, match="adjacency add-remove"):
        worst_case(
            MeanPrototypes(CLAIM, ["a"], adjacency="replace-one"), person_records=5
        )


def every_class_counts(patch):
    patch.setattr(
        persons,
        "_most_frequent",
        lambda numbers, codes, counts, most: np.ones(len(codes), bool),
    )


def classes_cost_nothing(patch):
    patch.setattr(
        "dppl.kernel.measure.budget_of_one", lambda budget, *others, **more: budget
    )
    patch.setattr(
        "dppl.kernel.privacy.guarantee.Release.for_rows",
        lambda release, *others, **more: release,
    )


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        (every_class_counts, "several classes"),
        (classes_cost_nothing, "all classes count"),
    ],
)
def test_planted_faults_break_the_promise(fault, case, monkeypatch):
    """Missed with probability below 1e-6: the sides lie mu = 5.6 apart or more, and 400 runs can show 2.9."""
    fault(monkeypatch)
    assert run(MeanPrototypes(CLAIM, CLASSES), 400, **CASES[case]).violation


@pytest.mark.parametrize("after", [True, False])
def test_a_cap_after_the_sum_of_all_persons_breaks_the_promise(after):
    """The norm of all records' sum is cut to what the persons may have together, and not the sum of each person."""
    steps = 127
    n_others = 20
    mechanism = RoundedGaussian.within(CLAIM, Fraction(steps**2))
    source = randomness(None)
    persons_rows = [np.array([[0, steps]])] * n_others

    def capped(total, norm):
        length = np.linalg.norm(total)
        return np.floor(total * min(1.0, norm / length)) if length else total

    def release(include):
        everyone = persons_rows + [np.tile([steps, 0], (50, 1))] * include
        sums = [rows.sum(axis=0) for rows in everyone]
        total = (
            capped(sum(sums), steps * len(sums))
            if after
            else sum(capped(one, steps) for one in sums)
        )
        return float(mechanism.release(total.astype(np.int64), source)[0])

    result = audit_release(release, CLAIM, runs=400, confidence=CONFIDENCE)
    assert result.violation == after
    assert result.unit is None


def test_without_ids_the_same_records_break_the_promise():
    """Missed with probability below 1e-6: five records move the sum by 10 standard deviations of the noise."""
    row = np.eye(16)[0]
    others = AuditData(np.eye(16)[1:2], ["a"])
    canary = Canary(
        row,
        "a",
        lambda model: float(model.prototypes_[0] @ row),
        records=AuditData(np.tile(row, (5, 1)), ["a"] * 5),
    )
    estimator = MeanPrototypes(CLAIM, ["a"])
    assert audit(estimator, others, canary, runs=300, confidence=CONFIDENCE).violation
