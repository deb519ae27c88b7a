"""Two models compared, and one of many chosen, by private test records: exact neighbours, laws and coverage."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import dppl
from dppl import GaussianDP, Ledger, MeanPrototypes, PureDP, SoftmaxPrototypes
from dppl.errors import BudgetError, InputError, ParameterError
from dppl.evaluation import AlreadyPredicted, choose, compare, intervals
from dppl.evaluation.measuring import variance
from dppl.kernel.measure import Measure, Measurement, calibrated
from dppl.kernel.mechanisms.randomness import SeededRandomness, SystemRandomness
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.privacy.terms import Caveat, Mechanism, Term, Unit
from dppl.kernel.queries.base import ADD_REMOVE
from dppl.kernel.queries.outcomes import (
    Disagreements,
    MostHits,
    OutcomeQuery,
    Outcomes,
    Rivals,
    SignedHits,
)

# Each statistical test here raises a false alarm with at most this probability.
ALARM = 1e-6
CLASSES = ["a", "b", "c"]
TABLE = AlreadyPredicted(CLASSES)


def made_up(n, rates=(0.8, 0.7), seed=0):
    """Return labels, and what models of these accuracies predict of them."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(CLASSES), size=n)
    guesses = [
        np.where(rng.random(n) < rate, codes, (codes + 1) % len(CLASSES))
        for rate in rates
    ]
    return np.array(CLASSES)[codes], tuple(np.array(CLASSES)[one] for one in guesses)


def rivals(labels, tables, ids=None):
    """Return the outcomes as `compare` and `choose` hand them to the kernel."""
    names = np.array(CLASSES)
    predicted = [np.searchsorted(names, one) for one in tables]
    blocks = ([dppl.kernel.queries.outcomes.Guesses(one)] for one in predicted)
    return Rivals.of(
        [Outcomes.of(np.asarray(labels), ids, names, block) for block in blocks]
    )


class HitsOfBoth(OutcomeQuery):
    """A planted fault: both models' right answers, each of which a record moves, at the price of one."""

    squared_norm = Fraction(STEPS**2)

    def exact(self, held):
        return held.right @ held.weights


def moved(query, fewer, more):
    """Return the square of the distance between two values, exactly."""
    return sum(
        int(step) ** 2 for step in (more.total(query) - fewer.total(query)).ravel()
    )


def neighbours():
    """Yield records and the same with one more: of each label and each pair of answers; also a label of no class."""
    labels, tables = made_up(7)
    for label in (*CLASSES, "other"):
        for first in CLASSES:
            for second in CLASSES:
                more = [
                    np.append(one, new)
                    for one, new in zip(
                        (labels, *tables), (label, first, second), strict=True
                    )
                ]
                yield rivals(labels, tables), rivals(more[0], more[1:])


def persons():
    """Yield records and the same with a person more, who has records of several classes."""
    labels, tables = made_up(7)
    ids = np.arange(7)
    rng = np.random.default_rng(1)
    for m in (1, 2, 3, 50):
        for right in (1.0, 0.5, 0.0):
            new = rng.choice([*CLASSES, "other"], m)
            answers = [
                np.where(rng.random(m) < share, new, "c") for share in (1.0, right)
            ]
            answers = [np.where(one == "other", "a", one) for one in answers]
            more = [
                np.append(one, two)
                for one, two in zip((labels, *tables), (new, *answers), strict=True)
            ]
            yield (
                rivals(labels, tables, ids),
                rivals(more[0], more[1:], np.append(ids, np.full(m, 99))),
            )


@pytest.mark.parametrize(
    "query", [SignedHits(), Disagreements()], ids=lambda query: type(query).__name__
)
def test_no_record_and_no_person_moves_a_query_further_than_its_reach(query):
    pairs = [*neighbours(), *persons()]
    furthest = max(moved(query, *pair) for pair in pairs)
    assert furthest == query.squared_sensitivity(ADD_REMOVE) == STEPS**2
    # A planted fault with the same claim is caught by the same records.
    assert max(
        moved(HitsOfBoth(), *pair) for pair in pairs
    ) == 2 * HitsOfBoth().squared_sensitivity(ADD_REMOVE)


def test_the_whole_way_moves_by_one_record_whatever_it_is(monkeypatch):
    """With the same seed, released answers of neighbours differ by what the record moves: from rows to answers."""
    rng = np.random.default_rng(0)
    released = []
    X = rng.normal(size=(40, 6))
    y = rng.choice(CLASSES, 40)
    models = [
        kind(GaussianDP(1), CLASSES, random_state=0).fit(X, y)
        for kind in (MeanPrototypes, SoftmaxPrototypes)
    ]
    whole = Measure.__call__

    def spied(self, name, **asked):
        released.append(whole(self, name, **asked))
        return released[-1]

    monkeypatch.setattr(Measure, "__call__", spied)

    def answers(rows, labels):
        released.clear()
        compare(*models, rows, labels, GaussianDP(0.3), random_state=1)
        return list(released)

    before = answers(X, y)
    unusual = [
        np.full(6, np.nan),
        np.zeros(6),
        np.full(6, 1e300),
        *rng.normal(size=(5, 6)),
    ]
    moves = [
        [
            sum(int(step) ** 2 for step in (after - one).ravel())
            for after, one in zip(found, before, strict=True)
        ]
        for row in unusual
        for label in (*CLASSES, "other")
        for found in [answers(np.vstack([X, row]), np.append(y, label))]
    ]
    assert np.max(moves, axis=0).tolist() == [STEPS**2, STEPS**2]


def test_a_label_of_no_class_counts_nowhere():
    labels, tables = made_up(50)
    unknown = np.append(labels, "other"), tuple(np.append(one, "a") for one in tables)
    for query in (SignedHits(), Disagreements()):
        assert moved(query, rivals(labels, tables), rivals(*unknown)) == 0


def test_the_numbers_are_those_of_the_records():
    labels, (first, second) = made_up(1000)
    held = rivals(labels, (first, second))
    a = first == labels
    b = second == labels
    assert held.total(SignedHits()).tolist() == [STEPS * (int(a.sum()) - int(b.sum()))]
    assert held.total(Disagreements()).tolist() == [
        STEPS * int((a != b).sum()),
        STEPS * int((a == b).sum()),
    ]


@pytest.mark.slow
def test_what_is_chosen_follows_a_law_that_no_neighbour_changes_by_more_than_epsilon():
    """Utilities only grow, by one record at most; exact probabilities of every choice."""
    query = MostHits(2)
    epsilon = 0.7
    mechanism = query.mechanism(PureDP(epsilon), 1, ADD_REMOVE)
    assert (mechanism.epsilon, mechanism.sensitivity) == (epsilon, STEPS)

    def logs(held):
        steps = (
            mechanism.epsilon
            * (held.right.astype(np.int64) @ held.weights)
            / mechanism.sensitivity
        )
        return steps - np.logaddexp.reduce(steps)

    ratios = []
    for fewer, more in (*neighbours(), *persons()):
        grown = (
            more.right.astype(np.int64) @ more.weights
            - fewer.right.astype(np.int64) @ fewer.weights
        )
        assert (grown >= 0).all()
        assert (grown <= STEPS).all()
        ratios.append(logs(more) - logs(fewer))
    assert max(np.abs(ratio).max() for ratio in ratios) <= epsilon
    # The range of one choice, on which the cost in Gaussian DP rests, is used in full
    # and not exceeded.
    assert max(np.ptp(ratio) for ratio in ratios) == pytest.approx(epsilon)
    held = rivals(*made_up(7, (0.8, 0.7, 0.2), seed=3))
    n = 3000
    system = SystemRandomness()
    three = MostHits(3)
    drawn = np.bincount(
        [three.answer(mechanism, held, system)[0] for _ in range(n)], minlength=3
    )
    utilities = held.right.sum(axis=1)

    def fits(epsilon):
        weights = np.exp(epsilon * (utilities - utilities.max()))
        return stats.chisquare(drawn, n * weights / weights.sum()).pvalue >= ALARM

    assert fits(epsilon)
    assert not fits(
        epsilon / 2
    )  # a factor 1/2 in the exponent, which monotone utilities do not need


def covered(difference_of, mu, n, differ, draws):
    """Return how many of many comparisons hold the true difference, with seeded noise of the kernel."""
    rng = np.random.default_rng(0)
    source = SeededRandomness(1)
    declared = {
        "signed": Measurement(SignedHits(), 80),
        "cells": Measurement(Disagreements(), 20),
    }
    paid = calibrated(GaussianDP(mu), declared, ADD_REMOVE)
    v_signed, v = (
        variance(paid[name].mechanism.noise_std, float(STEPS))
        for name in ("signed", "cells")
    )
    only_first, only_second = differ
    held = 0
    for _ in range(draws):
        kind = rng.choice(
            3, n, p=[only_first, only_second, 1 - only_first - only_second]
        )
        one = Rivals(np.stack([kind != 1, kind != 0]), np.full(n, STEPS))
        answers = [
            paid[name].mechanism.release(one.total(declared[name].query), source)
            for name in declared
        ]
        (signed,), (differing, same) = (answer / STEPS for answer in answers)
        _, low, high = difference_of(signed, v_signed, differing, same, v)
        held += low <= only_first - only_second <= high
    return held


Z = stats.norm.ppf(0.95)


# Coverage is tried against 0.88, as ends are only nearly normal, in so many draws.
DRAWS = 2000
LEAST = stats.binom.ppf(ALARM, DRAWS, 0.88)
NOISY = (0.1, 500, (0.1, 0.1))
HARDLY_KNOWN = (
    0.05,
    200,
    (1.0, 0.0),
)  # whose number is hidden by noise in about half of the draws


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [NOISY, HARDLY_KNOWN, (0.3, 2000, (0.05, 0.03)), (1.0, 5000, (0.02, 0.0))],
)
def test_intervals_of_a_difference_hold_as_often_as_they_say(setting):
    assert (
        covered(lambda *given: intervals.difference(*given, Z), *setting, DRAWS)
        >= LEAST
    )


def test_intervals_that_ignore_the_noise_would_be_noticed():
    def of_hits(signed, _, differing, same, v):
        return intervals.difference(signed, 0.0, differing, same, v, Z)

    def of_the_number(signed, v_signed, differing, same, _):
        return intervals.difference(signed, v_signed, differing, same, 0.0, Z)

    assert covered(of_hits, *NOISY, DRAWS) < LEAST
    assert covered(of_the_number, *HARDLY_KNOWN, DRAWS) < LEAST


def test_noise_that_hides_all_records_hides_the_difference():
    assert intervals.difference(3.0, 100.0, 5.0, 20.0, 100.0, Z) == (0.0, -1.0, 1.0)
    labels, tables = made_up(20)
    hidden = compare(TABLE, TABLE, tables, labels, GaussianDP(0.1), random_state=0)
    assert hidden.difference.value is None
    assert hidden.better is None
    assert "cannot tell which is better" in str(hidden)


def test_a_comparison_says_which_is_better_and_what_it_costs():
    labels, tables = made_up(5000)
    found = compare(TABLE, TABLE, tables, labels, GaussianDP(0.5))
    assert found.better == "first"
    assert "the first is better" in str(found)
    turned = compare(TABLE, TABLE, tables[::-1], labels, GaussianDP(0.5))
    assert turned.better == "second"
    assert (
        compare(
            TABLE, TABLE, (tables[0],) * 2, labels, GaussianDP(0.5), random_state=0
        ).better
        is None
    )
    # Shares of mu² add up to the budget.
    assert math.sqrt(
        sum(one.cost["mu"] ** 2 for one in found.guarantee.releases)
    ) == pytest.approx(0.5)
    assert [one.sensitivity for one in found.guarantee.releases] == [STEPS, STEPS]
    content = json.loads(found.to_json())
    assert content["better"] == "first"
    assert content["difference"]["low"] == found.difference.low
    assert found.guarantee.secure_noise


def test_a_comparison_is_narrower_than_two_evaluations_of_models_that_often_agree():
    labels, (first, _) = made_up(5000)
    nearly = np.where(np.arange(5000) % 25, first, labels)
    found = compare(
        TABLE, TABLE, (nearly, first), labels, GaussianDP(0.3), random_state=0
    ).difference
    one, two = (
        dppl.evaluate(
            TABLE, table, labels, GaussianDP(0.3 / math.sqrt(2)), random_state=0
        ).accuracy
        for table in (nearly, first)
    )
    assert found.width < 0.6 * math.hypot(one.width, two.width)


def test_persons_count_once_in_a_comparison():
    labels, tables = made_up(600)
    many = [
        np.append(one, np.repeat(new, 5000))
        for one, new in zip((labels, *tables), ("a", "b", "a"), strict=True)
    ]
    ids = np.append(np.arange(600), np.full(5000, 600))
    found = compare(TABLE, TABLE, tuple(many[1:]), many[0], GaussianDP(2.0), groups=ids)
    assert found.better == "first"
    assert found.n.value == pytest.approx(
        601, abs=30
    )  # about 19 standard deviations of the noise
    assert found.guarantee.unit is found.unit is Unit.PERSON
    assert (
        compare(TABLE, TABLE, tuple(many[1:]), many[0], GaussianDP(2.0)).better
        == "second"
    )


def test_a_choice_takes_the_best_and_says_what_it_does_not_say():
    labels, tables = made_up(3000, (0.5, 0.6, 0.9, 0.7))
    chosen = choose([TABLE] * 4, tables, labels, GaussianDP(0.3))
    assert (chosen.position, chosen.n_models) == (2, 4)
    assert "evaluate it on other records" in str(chosen)
    assert "training data" not in str(chosen) + str(
        compare(TABLE, TABLE, tables[:2], labels, GaussianDP(0.3))
    )
    (release,) = chosen.guarantee.releases
    assert release.mechanism == Term(Mechanism.EXPONENTIAL)
    assert release.cost["mu"] <= 0.3
    assert Term(Caveat.CHOSEN_MODEL) in chosen.guarantee.not_covered
    content = json.loads(chosen.to_json())
    assert (content["position"], content["evaluate_on_other_records"]) == (2, True)
    assert (
        choose([TABLE] * 4, tables, labels, PureDP(0.3)).guarantee.costs()[0].epsilon
        == 0.3
    )


def test_whatever_fails_costs_nothing_and_a_release_is_charged_once(tmp_path):
    labels, tables = made_up(200)
    ledger = Ledger(tmp_path / "l.db", "d", GaussianDP(2))
    other = AlreadyPredicted(["a", "b"])
    wrong = [
        (ParameterError, "at least two", lambda: choose([TABLE], tables[:1], labels, GaussianDP(1), ledger=ledger)),
        (ParameterError, "same classes", lambda: compare(TABLE, other, tables, labels, GaussianDP(1), ledger=ledger)),
        (InputError, "tuple of one", lambda: choose([TABLE] * 3, tables, labels, GaussianDP(1), ledger=ledger)),
        (InputError, "same records", lambda: compare(
            TABLE, TABLE, (tables[0], tables[1][:-1]), labels, GaussianDP(1), ledger=ledger)),
        (BudgetError, "pure", lambda: compare(TABLE, TABLE, tables, labels, PureDP(1), ledger=ledger)),
        (ParameterError, "confidence", lambda: compare(
            TABLE, TABLE, tables, labels, GaussianDP(1), confidence=1.0, ledger=ledger)),
    ]  # fmt: skip
    for error, words, call in wrong:
        with pytest.raises(error, match=words):
            call()
        assert ledger.releases() == []
    found = compare(TABLE, TABLE, tables, labels, GaussianDP(1), ledger=ledger)
    (release,) = ledger.releases()
    assert found.guarantee.charges == (Charge("d", 1),)
    assert release["estimator"] == "comparison"


def test_a_model_is_not_compared_on_its_own_training_records(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    y = rng.choice(CLASSES, 300)
    ledger = Ledger(tmp_path / "l.db", "d", GaussianDP(3))
    model = MeanPrototypes(GaussianDP(1), CLASSES).fit(
        X[:200], y[:200], ledger=ledger, partition="train"
    )
    other = MeanPrototypes(GaussianDP(1), CLASSES).fit(X[:50], y[:50])
    for call in (
        compare,
        lambda *given, **named: choose(given[:2], *given[2:], **named),
    ):
        with pytest.raises(ParameterError, match="not trained on"):
            call(
                other,
                model,
                X[:200],
                y[:200],
                GaussianDP(1),
                ledger=ledger,
                partition="train",
            )
        call(
            other,
            model,
            X[200:],
            y[200:],
            GaussianDP(1),
            ledger=ledger,
            partition="test",
        )
    charged = [(one["estimator"], one["partition"]) for one in ledger.releases()]
    assert charged == [
        ("MeanPrototypes", "train"),
        ("comparison", "test"),
        ("choice", "test"),
    ]


def test_after_a_choice_an_evaluation_says_by_which_records(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    y = rng.choice(CLASSES, 60)
    ledger = Ledger(tmp_path / "l.db", "d", GaussianDP(3))
    models = [
        MeanPrototypes(GaussianDP(1), CLASSES).fit(
            X, y, ledger=ledger, partition="train"
        )
        for _ in range(2)
    ]
    choose(models, X, y, GaussianDP(1), ledger=ledger, partition="choice")
    compare(*models, X, y, GaussianDP(1), ledger=ledger, partition="choice")
    for part, releases in (("choice", "34"), ("test", "")):
        one = dppl.evaluate(
            models[0], X, y, GaussianDP(1), ledger=ledger, partition=part
        )
        said = [
            (item["dataset"], item["number"])
            for item in one.guarantee.not_covered
            if item.code is Caveat.CHOSEN_BY_THESE_RECORDS
        ]
        assert said == [("d", int(number)) for number in releases]
