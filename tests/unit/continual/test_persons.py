"""Streams of persons, each with all of their records in one task."""

import numpy as np
import pytest

from dppl import GaussianDP
from dppl.continual import ContinualDiscriminant, ContinualEnsemble, ContinualPrototypes
from dppl.errors import ParameterError
from dppl.kernel import persons
from dppl.kernel.privacy.guarantee import PERSON
from dppl.statement.verification import verify

RNG = np.random.default_rng(0)
X, Y, IDS = RNG.normal(size=(90, 8)), RNG.integers(0, 3, 90), np.repeat(np.arange(22), RNG.integers(1, 9, 22))[:90]
FIRST = IDS < 11


def fitted(cls, parts, **options):
    model = cls(GaussianDP(0.5), [0, 1, 2], random_state=0, **options)
    for rows, labels, given in parts:
        model = model.partial_fit(rows, labels, **given)
    return model


@pytest.mark.parametrize("cls", [ContinualPrototypes, ContinualDiscriminant, ContinualEnsemble])
def test_every_task_takes_a_person_for_one_record_at_no_more_noise(cls):
    tasks = [(X[own], Y[own], IDS[own]) for own in (FIRST, ~FIRST)]
    model = fitted(cls, [(rows, labels, {"groups": ids}) for rows, labels, ids in tasks])
    reduced = [persons.rows_of_persons(rows, labels, ids, 3) for rows, labels, ids in tasks]
    alone = fitted(cls, [(rows, labels, {}) for rows, labels in reduced])
    tensors = alone._tensors()
    assert all((values == tensors[name]).all() for name, values in model._tensors().items())
    assert model.guarantee_.unit == PERSON
    assert model.guarantee_.mu == alone.guarantee_.mu
    assert any("a person is in one task" in one for one in model.guarantee_.assumptions)
    assert not any("a record is in one task" in one for one in model.guarantee_.assumptions)
    assert verify(model).holds


@pytest.mark.parametrize("first", [{}, {"groups": IDS[FIRST]}])
def test_ids_are_given_in_all_tasks_or_in_none(first):
    model = fitted(ContinualPrototypes, [(X[FIRST], Y[FIRST], first)])
    with pytest.raises(ParameterError, match="earlier tasks has other"):
        model.partial_fit(X[~FIRST], Y[~FIRST], **({} if first else {"groups": IDS[~FIRST]}))


def test_tasks_that_may_overlap_take_no_ids():
    with pytest.raises(ParameterError, match="this one protects a person with at most one record"):
        fitted(ContinualPrototypes, [(X, Y, {"groups": IDS})], tasks="overlapping")
