"""Streams of persons, each with all of their records in one task."""

import numpy as np
import pytest

from dppl import GaussianDP
from dppl.audit.verification import verify
from dppl.continual import ContinualDiscriminant, ContinualEnsemble, ContinualPrototypes
from dppl.errors import ParameterError
from dppl.kernel import persons
from dppl.kernel.privacy.terms import Assumption, Neighbours, Term, Unit
from inside import tensors_of
from laws.replay import spent, watched

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 8))
Y = RNG.integers(0, 3, 90)
IDS = np.repeat(np.arange(22), RNG.integers(1, 9, 22))[:90]
FIRST = IDS < 11


def fitted(cls, parts, **options):
    model = cls(GaussianDP(0.5), [0, 1, 2], random_state=0, **options)
    for rows, labels, given in parts:
        model = model.partial_fit(rows, labels, **given)
    return model


@pytest.mark.parametrize(
    "cls", [ContinualPrototypes, ContinualDiscriminant, ContinualEnsemble]
)
def test_every_task_takes_a_person_for_one_record_at_no_more_noise(cls):
    tasks = [(X[own], Y[own], IDS[own]) for own in (FIRST, ~FIRST)]
    model = fitted(
        cls, [(rows, labels, {"groups": ids}) for rows, labels, ids in tasks]
    )
    reduced = [
        persons.rows_of_persons(rows, labels, ids, 3) for rows, labels, ids in tasks
    ]
    alone = fitted(cls, [(rows, labels, {}) for rows, labels in reduced])
    assert tensors_of(model) == tensors_of(alone)
    assert model.guarantee_.unit == Unit.PERSON
    assert model.guarantee_.mu == alone.guarantee_.mu
    assumed = {one.code for one in model.guarantee_.assumptions}
    assert Assumption.DISJOINT_TASKS_OF_PERSONS in assumed
    assert Assumption.DISJOINT_TASKS not in assumed
    assert verify(model).holds


@pytest.mark.parametrize("first", [{}, {"groups": IDS[FIRST]}])
def test_ids_are_given_in_all_tasks_or_in_none(first):
    model = fitted(ContinualPrototypes, [(X[FIRST], Y[FIRST], first)])
    with pytest.raises(ParameterError, match="earlier tasks has other"):
        model.partial_fit(
            X[~FIRST], Y[~FIRST], **({} if first else {"groups": IDS[~FIRST]})
        )


def replay(**options):
    """Return what a person with several records in each of three tasks shows, and the statement, as squares of mu."""
    others = [
        (X[own][:9], Y[own][:9], IDS[own][:9].tolist())
        for own in (FIRST, ~FIRST, FIRST)
    ]
    own = [
        (np.tile(np.eye(8)[:1], (n, 1)), [0] * n, ["patient"] * n) for n in (1, 7, 40)
    ]
    more = [
        (np.concatenate([few, rows]), [*labels, *theirs], {"groups": [*ids, *whose]})
        for (few, labels, ids), (rows, theirs, whose) in zip(others, own, strict=True)
    ]
    with watched() as uses:
        first = fitted(ContinualPrototypes, more, **options)
    with watched([answer for *_, answer in uses]) as again:
        second = fitted(
            ContinualPrototypes,
            [(few, labels, {"groups": ids}) for few, labels, ids in others],
            **options,
        )
    assert first.to_bytes() == second.to_bytes()
    shown = sum(spent(one, other, 1) for one, other in zip(uses, again, strict=True))
    return float(shown), first.guarantee_.mu**2, first


def test_what_overlapping_tasks_cost_a_person_adds_up():
    shown, stated, model = replay(tasks="overlapping")
    assert 0.9 * 3 * 0.5**2 <= shown <= stated <= 3 * 0.5**2 * (1 + 1e-9)
    assert model.guarantee_.unit == Unit.PERSON
    assert model.guarantee_.neighbours == Term(
        Neighbours.IN_EACH_TASK, of=Term(Neighbours.PERSON_IN_A_CLASS)
    )
    assert Term(Assumption.ONCE_IN_EACH_TASK) not in model.guarantee_.assumptions
    assert verify(model).holds
    # The statement of disjoint tasks does not cover a person in three.
    shown, stated, _ = replay(tasks="disjoint")
    assert shown > 2 * stated
