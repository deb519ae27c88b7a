"""The best of a random number of runs, each of which learns from some records and is scored on the others.

Papernot, Steinke (2022), arXiv:2110.03620v2, Theorem 2, bounds the cost of the best of
a geometric number of runs (`dppl.kernel.privacy.accounting`). Its three conditions are
met here: the number of runs is drawn afresh and only the best result leaves; runs are
independent, given the records; and results have a total order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.measure import Calibrated, Measure
from dppl.kernel.mechanisms.randomness import Randomness, randomness
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import Blocks, Codes, Query
from dppl.kernel.records import HeldRecords, Records

Int64 = NDArray[np.int64]
# Sides of the coin that is tossed for each record.
_SIDES = 256


@dataclass(frozen=True)
class RightAnswers(Query):
    """How many records a released model classifies rightly, in all or of each class with the number of its records.

    In all, a record adds 0 or 1, and one that replaces another changes the number by at
    most 1. By class a record adds 1 to the size of its class and perhaps 1 to its right
    answers, √2 in L2; one that replaces another does so in two classes, √4. The model
    sees one row at a time: in a matrix product a record could move its neighbours by a
    rounding step, across a decision boundary.
    """

    n_classes: int
    by_class: bool = False

    @property
    def statistic(self) -> Term[Statistic]:
        """What is counted."""
        if self.by_class:
            return Term(Statistic.RIGHT_ANSWERS_OF_CLASSES)
        return Term(Statistic.RIGHT_ANSWERS)

    def checked(self, *, model: Any) -> dict[str, Any]:
        """Take any classifier: whatever it answers, a record adds 0 or 1."""
        return {"model": model}

    def exact(self, blocks: Blocks, codes: Codes, *, model: Any) -> Int64:
        """Return the number, shape (1,), or both of each class, shape (2, n_classes), for a fitted classifier."""
        guesses = []
        for block in blocks:
            # One by one: in a batch, other rows could change the scores of a row.
            for row in model.lattice_.features(block):
                guesses.append(int(model._class_scores(row[None])[0].argmax()))
        known = codes >= 0
        right = known & (np.array(guesses, np.intp) == codes)
        if not self.by_class:
            return np.array([np.count_nonzero(right)], np.int64)
        return np.stack(
            [
                np.bincount(codes[chosen], minlength=self.n_classes)
                for chosen in (right, known)
            ]
        )

    def score(self, answer: Int64, noise_std: float) -> float:
        """Return the number of right answers, or the mean over classes of the share of such, from noisy answers."""
        if not self.by_class:
            return float(answer[0])
        right, size = answer
        # Where hardly any records are, noise would decide; a class of less than its
        # noise counts as that large.
        return float(
            np.clip(right / np.maximum(size, max(1.0, noise_std)), 0.0, 1.0).mean()
        )


def probability(validation_share: float) -> float:
    """Return the probability with which a record is held out: the nearest that a coin of 256 sides has."""
    return max(1, min(_SIDES - 1, round(_SIDES * validation_share))) / _SIDES


def coins(count: int, share: float, source: Randomness) -> NDArray[np.bool_]:
    """Toss one coin a record, whatever the record is."""
    tosses = np.frombuffer(source.bits(8 * count).to_bytes(count, "little"), np.uint8)
    return tosses < _SIDES * probability(share)


def best_of(
    records: Records,
    plans: Sequence[Mapping[str, Calibrated]],
    learn: Callable[[int, Measure], Any],
    scoring: Calibrated,
    *,
    mean_runs: int,
    validation_share: float,
    random_state: int | None,
) -> tuple[float, Any, int]:
    """Return the best noisy score, the model that has it and the number of its plan.

    `learn` fits the candidate of a number by a `Measure` over the training records. What
    each may ask is in `plans`; each costs at most the budget of a run. `scoring` is a
    `RightAnswers`, asked of the held-out records once in each run.
    """
    query = scoring.measurement.query
    assert isinstance(query, RightAnswers)
    assert isinstance(records, HeldRecords)  # whoever searches refuses parts
    source = randomness(random_state)
    # Each record is in one part by its own coin, so a run costs it what the dearer of
    # fit and score does.
    is_held_out = coins(len(records.codes), validation_share, source)
    training = records.taken(~is_held_out)
    held_out = records.taken(is_held_out)

    def run() -> tuple[float, bytes, Any, int]:
        number = source.below(len(plans))
        seed = None if source.secure_noise else source.bits(31)
        # What records keep between asks is of one run.
        with Measure(plans[number], replace(training), seed) as measure:
            model = learn(number, measure)
        answer = scoring.mechanism.release(held_out.total(query, model=model), source)
        # The theorem needs a total order on results, so equal scores are ordered by the
        # models' bytes.
        return (
            query.score(answer, scoring.mechanism.noise_std),
            model.to_bytes(),
            model,
            number,
        )

    best = run()
    while source.below(
        mean_runs
    ):  # stops with probability 1/mean_runs: a geometric number of runs
        best = max(best, run(), key=lambda result: result[:2])
    score, _, model, number = best
    return score, model, number
