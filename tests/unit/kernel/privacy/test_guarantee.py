import json
import math
import re
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, GaussianDP, Guarantee, MeanPrototypes, PureDP
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.mechanisms import (
    CoinPress,
    ExponentialMechanism,
    RoundedGaussian,
    SampledGaussian,
    SymmetricRoundedGaussian,
)
from dppl.kernel.privacy import Cost, Release, compose
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.kernel.privacy.guarantee import DELTAS, FALSE_POSITIVE_RATES
from dppl.kernel.privacy.rounding import cost_of_gaussian
from dppl.kernel.privacy.terms import (
    Caveat,
    Mechanism,
    Neighbours,
    Norm,
    PublicInput,
    Statistic,
    Term,
    Unit,
)
from dppl.lab.friendly import FriendlyCore
from dppl.statement.words import table as table_of

RELEASE = Release(
    mechanism=Term(Mechanism.ROUNDED_GAUSSIAN),
    statistic=Term(Statistic.CLASS_SUMS, n_classes=3, dim=4),
    sensitivity=63.5,
    norm=Norm.L2,
    parameters={"noise_std": 63.5},
    cost={"mu": 1.0, "rho": 0.5},
)
OWN = Term(Statistic.STATED, text="what an author asked")
ROWS = Term(Statistic.PUBLIC_POSITIONS, n_selected=1, n_classes=3)
# A mechanism whose cost is known in zCDP only.
CONCENTRATED = replace(
    RELEASE,
    mechanism=Term(Mechanism.STATED, text="discrete Gaussian"),
    cost={"rho": 0.5},
)
# One that may fail, with a probability below delta.
SAMPLED = replace(CONCENTRATED, cost={"epsilon": 1.0, "delta": 1e-6})
SEARCH = replace(
    RELEASE,
    mechanism=Term(Mechanism.REPEAT_AND_SELECT),
    statistic=OWN,
    sensitivity=2.5,
    parameters={"noise_std_of_score": 25.0, "validation_share": 0.2},
    cost={"rho_per_run": 0.01, "mean_runs": 5.0},
)


def nested(depth):
    """Return a term in JSON that wraps others this deep."""
    term = {"code": "number_of_records"}
    for _ in range(depth):
        term = {"code": "of_one_task", "of": term}
    return term


def noise(mu):
    return replace(
        RELEASE,
        parameters={"noise_std": RELEASE.sensitivity / mu},
        cost=cost_of_gaussian(Fraction(mu) ** 2),
    )


def selection(epsilon):
    return ExponentialMechanism(epsilon=epsilon, sensitivity=4).describe(ROWS)


def guarantee(budget=None, **changes):
    fields = {
        "budget": budget or ZCDP(0.5),
        "adjacency": "add-remove",
        "releases": (RELEASE,),
        "public_inputs": (Term(PublicInput.ENCODER),),
        "not_covered": (Term(Caveat.STATED, text="timing"),),
        "secure_noise": True,
    }
    return Guarantee(**(fields | changes))


@pytest.mark.parametrize(
    "releases",
    [(RELEASE,), (CONCENTRATED,), (RELEASE, CONCENTRATED), (SAMPLED,), (SEARCH,)],
)
@pytest.mark.parametrize(
    "budget", [GaussianDP(1.0), ZCDP(0.5), PureDP(1.0), ApproxDP(1.0, 1e-5)]
)
def test_a_guarantee_survives_json(budget, releases):
    original = guarantee(budget, releases=releases)
    again = Guarantee.from_dict(json.loads(json.dumps(original.to_dict())))
    assert str(again) == str(original)
    assert again.to_dict() == original.to_dict()
    assert again.budget == budget


def test_what_is_done_to_its_dictionary_does_not_change_a_guarantee():
    original = guarantee()
    fields = original.to_dict()
    fields["releases"][0]["cost"]["rho"] = 1e-9
    fields["releases"][0]["parameters"].clear()
    fields["software"].clear()
    assert original == guarantee()
    assert RELEASE.cost == {"mu": 1.0, "rho": 0.5}


def test_the_paragraph_names_everything_a_reader_must_know():
    words = str(guarantee())
    for part in (
        "epsilon = 4.887",
        "rho = 0.5",
        "mu = 1",
        "one record",
        "add-remove",
        "class sums",
        "63.5",
        "the encoder",
        "timing",
    ):
        assert part in words
    assert "\n" not in words


def test_a_seeded_run_says_first_that_it_must_not_be_released():
    assert str(guarantee(secure_noise=False)).startswith("NOT FOR RELEASE")
    assert "NOT FOR RELEASE" not in str(guarantee())


def percent_in(*releases, budget=None):
    """The share of right guesses that the paragraph names."""
    words = str(guarantee(budget, releases=releases))
    (share,) = re.findall(r"right in at most ([0-9.]+) % of cases", words)
    return float(share) / 100


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 4.6, 20.0])
def test_no_guess_after_randomized_response_is_right_more_often(epsilon):
    exact = 1 / (1 + math.exp(-epsilon))
    cost = {
        "rho": epsilon**2 / 2,
        "epsilon": epsilon,
    }  # no selection: nothing is known but epsilon
    found = percent_in(replace(CONCENTRATED, cost=cost), budget=PureDP(epsilon))
    assert exact <= found <= exact + 0.0101


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-3), (0.5, 0.01), (1.0, 1e-5), (3.0, 0.2)]
)
def test_no_guess_after_an_approximate_mechanism_is_right_more_often(epsilon, delta):
    """The worst (epsilon, delta) mechanism reveals all with probability delta and else is randomized response."""
    exact = delta + (1 - delta) / (1 + math.exp(-epsilon))
    sampled = replace(SAMPLED, cost={"epsilon": epsilon, "delta": delta})
    assert (
        exact <= percent_in(sampled, budget=ApproxDP(epsilon, delta)) <= exact + 0.0101
    )


def normal(x):
    return (1 + mpmath.erf(mpmath.mpf(x) / mpmath.sqrt(2))) / 2


def quantile(p):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


BUDGETS = [GaussianDP(8.0), ZCDP(32.0), ApproxDP(60.0, 1e-6)]


@pytest.mark.parametrize("mu", [0.04, 0.3, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("budget", BUDGETS)
def test_no_guess_after_gaussian_noise_is_right_more_often(mu, budget):
    """The best test between N(0, 1) and N(mu, 1) is right with probability Phi(mu/2), whatever the budget allowed."""
    promise = guarantee(budget, releases=(noise(mu),))
    with mpmath.workdps(30):
        exact = normal(mpmath.mpf(mu) / 2)
        assert exact <= promise.best_guess() < exact + mpmath.mpf("1e-15")
        assert exact <= percent_in(noise(mu), budget=budget) <= exact + 0.0101
    assert guarantee(
        budget, releases=(noise(0.6 * mu), noise(0.8 * mu))
    ).best_guess() == pytest.approx(float(exact))


@pytest.mark.parametrize("rho", [1e-3, 0.03, 0.5, 2.0, 32.0])
def test_no_guess_after_noise_in_zcdp_alone_is_right_more_often(rho):
    """A cost in zCDP only bounds guesses less closely."""
    exact = float(normal(math.sqrt(2 * rho) / 2))
    found = percent_in(replace(CONCENTRATED, cost={"rho": rho}), budget=ZCDP(rho))
    assert exact <= found <= exact + 0.13


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
def test_no_guess_after_a_selection_is_right_more_often(epsilon):
    """The worst one is binary: a record moves its odds by e^epsilon, best from e^(-epsilon/2) to e^(epsilon/2)."""
    exact = 1 / (1 + math.exp(-epsilon / 2))
    assert (
        exact
        <= percent_in(selection(epsilon), budget=PureDP(epsilon))
        <= exact + 0.0101
    )
    promise = guarantee(PureDP(epsilon), releases=(selection(epsilon),))
    assert promise.best_guess() == pytest.approx(exact, rel=1e-14)
    # Two of them have no such curve, and are guessed no better than the noise that they
    # are as loud as.
    both = guarantee(PureDP(2 * epsilon), releases=(selection(epsilon),) * 2)
    with mpmath.workdps(30):
        assert normal(both.mu / mpmath.mpf(2)) <= both.best_guess()
    assert exact < both.best_guess() < 1 / (1 + math.exp(-2 * epsilon))


def test_mu_adds_up_over_the_releases_and_is_none_where_one_has_none():
    assert guarantee(releases=(noise(3.0), noise(4.0))).mu == 5.0
    assert guarantee(releases=(noise(1.0), selection(1.0))).mu == pytest.approx(
        math.hypot(1.0, selection(1.0).cost["mu"])
    )
    for other in (CONCENTRATED, SAMPLED, SEARCH):
        assert guarantee(releases=(other,)).mu is None
    assert guarantee(releases=(RELEASE, CONCENTRATED)).mu is None


@pytest.mark.parametrize(
    "releases",
    [(RELEASE,), (RELEASE, CONCENTRATED), (selection(0.5), noise(0.3)), (SEARCH,)],
)
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_an_epsilon_is_that_of_all_releases_together(releases, delta):
    promise = guarantee(releases=releases)
    assert (
        promise.epsilon(delta)
        == compose([Cost.from_dict(r.cost) for r in releases], delta).epsilon
    )
    assert (
        promise.epsilon(delta) > guarantee(releases=releases[:-1]).epsilon(delta)
        or len(releases) == 1
    )
    with pytest.raises(ParameterError):
        promise.epsilon(1.0)


def test_an_epsilon_of_samples_is_known_at_their_delta_and_above():
    promise = guarantee(ApproxDP(1.0, 1e-6), releases=(SAMPLED,))
    assert promise.epsilon(1e-6) == promise.epsilon(1e-3) == 1.0
    with pytest.raises(BudgetError, match="smaller delta"):
        promise.epsilon(9.9e-7)
    assert promise.implied()["epsilon"] == [
        {"delta": delta, "epsilon": 1.0} for delta in (1e-5, 1e-6)
    ]


POISSON = replace(
    RELEASE,
    mechanism=Term(Mechanism.SAMPLED_ROUNDED_GAUSSIAN),
    statistic=OWN,
    sensitivity=1.0,
    parameters={"noise_std": 3.0, "sampling_rate": 0.1},
    cost={"epsilon": 1.009, "delta": 1e-6},
    times=40,
)


HONEST = {
    "gaussian": RoundedGaussian.within(GaussianDP(0.5), Fraction(9), 3),
    "symmetric": SymmetricRoundedGaussian.within(GaussianDP(0.5), Fraction(9)),
    # Not `within` a budget, whose search takes seconds.
    "sampled": SampledGaussian(
        each=RoundedGaussian(squared_sensitivity=Fraction(2), noise_std=2.4),
        times=5,
        threshold=2**32 // 10,
        delta=1e-6,
    ),
    "coinpress": CoinPress(0.5, (0.25, 0.75)),
    "selection": ExponentialMechanism(epsilon=0.3, sensitivity=4),
    "friendly": FriendlyCore.within(ApproxDP(1.0, 1e-6), 23_225),
}
HONEST = {name: one.describe(ROWS) for name, one in HONEST.items()}
HONEST["persons"] = HONEST["selection"].for_rows(3)
HONEST["repeated"] = HONEST["gaussian"].repeated(4)
HONEST["search"] = SEARCH
# Parameters of which more or less makes a release dearer.
NOISE = {"noise_std", "off_diagonal_noise_std", "noise_std_of_score"}
NEUTRAL = {"validation_share", "squared_radius", "share_1", "share_2"}


def read_again(release):
    budget = ApproxDP(9.0, 1e-6)
    fields = guarantee(budget, releases=(release,)).to_dict()
    return Guarantee.from_dict(fields)


@pytest.mark.parametrize("name", HONEST)
def test_a_cost_below_what_follows_from_the_noise_is_refused(name):
    release = HONEST[name]
    assert read_again(release).releases == (release,)
    forged = []
    if name != "search":  # in which the score is not all that costs
        forged += [
            replace(release, cost=release.cost | {part: 0.99 * value})
            for part, value in release.cost.items()
            if part != "delta"
        ]
    for parameter, value in release.parameters.items():
        if parameter in NEUTRAL:
            continue
        dearer = 0.3 * value if parameter in NOISE else 1.5 * value
        if parameter in NOISE and name == "search":
            dearer = 0.01 * value
        forged.append(
            replace(release, parameters=release.parameters | {parameter: dearer})
        )
    assert forged
    for one in forged:
        with pytest.raises(ValueError, match="contradict"):
            read_again(one)


@pytest.mark.parametrize(
    "cost",
    [
        {"rho": 1e-6},
        {"epsilon": 0.01},
        {"epsilon": 0.01, "rho": 1e-6},
        {"epsilon": 0.01, "delta": 1e-9},
        {"rho_per_run": 1e-9, "mean_runs": 2.0},
        {},
    ],
)
@pytest.mark.parametrize("name", ["gaussian", "selection"])
def test_a_mechanism_has_the_notions_of_its_kind_alone(name, cost):
    assert read_again(HONEST[name])
    with pytest.raises(ValueError, match="contradict"):
        read_again(replace(HONEST[name], cost=cost))
    # What an own mechanism costs is the word of its author.
    if {"rho", "delta"} & set(cost):
        assert read_again(replace(CONCENTRATED, cost=cost))


@pytest.mark.parametrize("name", ["friendly", "search"])
def test_several_draws_without_a_known_cost_are_refused(name):
    assert read_again(HONEST[name])
    with pytest.raises(ValueError, match="contradict"):
        read_again(replace(HONEST[name], times=2))


def test_a_selection_counts_what_one_step_between_neighbours_changes():
    one = selection(0.3)
    both = ExponentialMechanism(
        epsilon=0.3, sensitivity=4, adjacency="replace-one"
    ).describe(ROWS)
    persons = Term(Neighbours.PERSON_IN_CLASSES, max_classes=3)
    for release, whose in (
        (both, {"adjacency": "replace-one"}),
        (one.for_rows(3), {"neighbours": persons, "unit": Unit.PERSON}),
    ):
        fields = guarantee(releases=(release,), **whose).to_dict()
        assert Guarantee.from_dict(fields).to_dict() == fields
        fields["releases"] = [one.to_dict()]
        with pytest.raises(ValueError, match="states less than its neighbours"):
            Guarantee.from_dict(fields)


COUNTS = replace(
    noise(1.0),
    statistic=Term(Statistic.NUMBER_OF_RECORDS),
    sensitivity=1.0,
    parameters={"noise_std": 1.0},
)
WITH_CONSTANT = Term(
    Statistic.WITH_CONSTANT,
    of=Term(Statistic.CLIPPED_GRADIENTS, n_classes=3, dim=4),
    constant=100,
)
OF_A_TASK = Term(Statistic.OF_ONE_TASK, of=RELEASE.statistic)
LABELS = Term(Statistic.LABEL_COUNTS, steps=2**16, max_labels=5, n_classes=3)
SEARCHED = {"n_candidates": 2, "estimator": "MeanPrototypes", "scoring": "balanced"}
SEARCHED = Term(Statistic.BEST_CANDIDATE, **SEARCHED)
STREAM = {"n_classes": 3, "dim": 4, "max_tasks": 5}
STREAM = Term(Statistic.CORRELATED_CLASS_SUMS, **STREAM)
COLUMN = 4096 * math.sqrt(1 + math.log(5) / math.pi)


@pytest.mark.parametrize(
    ("statistic", "added", "replaced"),
    [
        (RELEASE.statistic, 63.5, 127.0),
        (OF_A_TASK, 63.5, 127.0),
        (COUNTS.statistic, 1.0, 1.0),
        (Term(Statistic.GRAM_MATRIX, dim=4), 63.5**2, 63.5**2 * 2**0.5),
        (WITH_CONSTANT, 2**20 * math.hypot(63.5, 100), 2**21 * math.hypot(63.5, 100)),
        (LABELS, 2**16 * 3**0.5, 2**17 * 3**0.5),
        (SEARCHED, 2**0.5, 2.0),
        (STREAM, 63.5 * COLUMN, 127.0 * COLUMN),
    ],
)
def test_a_statement_says_at_least_how_far_its_neighbours_move_it(
    statistic, added, replaced
):
    for adjacency, most in (("add-remove", added), ("replace-one", replaced)):

        def read(sensitivity, adjacency=adjacency):
            one = replace(
                noise(1.0),
                statistic=statistic,
                sensitivity=sensitivity,
                parameters={"noise_std": sensitivity},
            )
            fields = guarantee(releases=(one,), adjacency=adjacency).to_dict()
            return Guarantee.from_dict(fields)

        assert read(most).mu == 1.0
        assert read(1.5 * most).mu == 1.0  # which is less than it could say
        with pytest.raises(ValueError, match="states less than its neighbours"):
            read(0.9999 * most)


def test_rows_of_a_person_move_it_together():
    persons = Term(Neighbours.PERSON_IN_CLASSES, max_classes=7)
    whose = {"neighbours": persons, "unit": Unit.PERSON}
    fields = guarantee(releases=(RELEASE.for_rows(3),), **whose).to_dict()
    assert Guarantee.from_dict(fields)  # of three classes
    fields = guarantee(releases=(RELEASE.for_rows(2),), **whose).to_dict()
    with pytest.raises(ValueError, match="states less than its neighbours"):
        Guarantee.from_dict(fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "person"},
        {"unit": "person_in_tasks"},
        {"adjacency": "replace-one"},
        {"neighbours": {"code": "record_replaced_in_class"}},
        {"neighbours": {"code": "whole_person"}},
        {"neighbours": {"code": "in_each_task", "of": {"code": "whole_person"}}},
    ],
)
def test_unit_adjacency_and_neighbours_are_of_one_relation(changes):
    fields = guarantee(releases=(COUNTS,)).to_dict()
    assert Guarantee.from_dict(fields)
    assert Guarantee.from_dict(
        fields | {"unit": "person", "neighbours": {"code": "whole_person"}}
    )
    with pytest.raises(ValueError, match="one relation"):
        Guarantee.from_dict(fields | changes)


def test_what_is_public_is_no_release_and_no_norm_is_of_another_mechanism():
    for one in (
        replace(COUNTS, statistic=Term(Statistic.RECORDS_OF_CLASSES)),
        replace(COUNTS, norm=Norm.FROBENIUS),
        replace(COUNTS, statistic=Term(Statistic.CLASS_SUMS, n_classes=3, dim=-4)),
        replace(COUNTS, statistic=Term(Statistic.TOTALS, steps=0)),
    ):
        assert read_again(COUNTS)
        with pytest.raises(ValueError, match="contradict"):
            read_again(one)


def test_a_ledger_says_what_it_cannot_charge_and_what_to_choose():
    for name, advice in (("sampled", "sampling_rate"), ("friendly", "another method")):
        with pytest.raises(BudgetError, match=advice):
            guarantee(releases=(HONEST[name],)).costs()


@pytest.mark.parametrize("name", ["search", "sampled"])
def test_what_takes_seconds_to_account_is_stated_once(name):
    fields = guarantee(releases=(HONEST[name],)).to_dict()
    assert Guarantee.from_dict(fields)
    fields["releases"] *= 2
    with pytest.raises(ValueError, match=r"alone|together"):
        Guarantee.from_dict(fields)


def sampled_delta(epsilon, sigma, rate):
    """Delta of one Gaussian sum over a Poisson sample: that of N(0, s²) and its mixture with N(1, s²), both ways.

    Their ratio rises along the line, so the worst set is what lies on one side of a
    point.
    """
    with mpmath.workdps(30):
        factor = mpmath.exp(epsilon)
        sigma = mpmath.mpf(sigma)
        rate = mpmath.mpf(rate)

        def mixed(x):
            return (1 - rate) * normal(x / sigma) + rate * normal((x - 1) / sigma)

        def point(ratio):
            return sigma**2 * mpmath.log((ratio - 1 + rate) / rate) + mpmath.mpf(0.5)

        x = point(factor)
        found = [(1 - mixed(x)) - factor * (1 - normal(x / sigma))]
        if 1 / factor > 1 - rate:
            x = point(1 / factor)
            found.append(normal(x / sigma) - factor * mixed(x))
    return float(max(found))


def test_sums_over_samples_promise_what_their_noise_does():
    promise = guarantee(ApproxDP(1.009, 1e-6), releases=(POISSON,))
    assert promise.epsilon(1e-6) <= 1.009
    assert promise.epsilon(1e-6) > 1.008
    assert [at["delta"] for at in promise.implied()["epsilon"]] == [
        1e-5,
        1e-6,
        1e-8,
    ]  # smaller ones as well
    # One statement that names the cost at another delta is of the same noise, and says
    # the same.
    for cost in ({"epsilon": 1.27, "delta": 1e-8}, {"epsilon": 0.9, "delta": 1e-5}):
        other = guarantee(ApproxDP(**cost), releases=(replace(POISSON, cost=cost),))
        assert other.implied() == promise.implied()
        assert table_of(other) == table_of(promise)
        assert other.summary(delta=1e-6) == promise.summary(delta=1e-6)
        assert other.true_positive_rate(0.2) == promise.true_positive_rate(0.2)
    # Less noise is not the same, whatever cost it states.
    loud = guarantee(
        ApproxDP(1.009, 1e-6),
        releases=(
            replace(POISSON, parameters={"noise_std": 2.9, "sampling_rate": 0.1}),
        ),
    )
    assert loud.best_guess() > promise.best_guess()
    # A forged file may name any number of steps, which must not occupy its reader.
    with pytest.raises(BudgetError, match="take 100000 at most"):
        guarantee(
            ApproxDP(1.009, 1e-6), releases=(replace(POISSON, times=10**9),)
        ).implied()


def test_the_guess_after_a_sum_over_a_sample_is_that_of_its_density():
    """Within 1e-4 of the closed form and above it: half the total variation between the noise and its mixture."""
    one = replace(
        POISSON,
        times=1,
        parameters={"noise_std": 0.7, "sampling_rate": 0.3},
        cost={"epsilon": 9.0, "delta": 1e-6},
    )
    promise = guarantee(ApproxDP(9.0, 1e-6), releases=(one,))
    exact = (1 + sampled_delta(0.0, 0.7, 0.3)) / 2
    assert exact - 1e-9 <= promise.best_guess() <= exact + 1e-4
    for delta in (0.01, 0.05):
        assert (
            delta - 1e-3
            <= sampled_delta(promise.epsilon(delta), 0.7, 0.3)
            <= delta + 1e-9
        )


LEVELS = [1e-9, 0.001, 0.01, 0.3, 0.999]


@pytest.mark.parametrize("level", LEVELS)
def test_no_test_finds_more_members_than_stated(level):
    """Against the trade-off functions, in many digits; each bound is as close as its last digits."""
    with mpmath.workdps(40):
        a = mpmath.mpf(level)
        close = mpmath.mpf("1e-14")
        for mu in (0.1, 1.0, 5.0):
            exact = normal(mpmath.mpf(mu) + quantile(a))
            found = guarantee(releases=(noise(mu),)).true_positive_rate(level)
            assert exact <= found <= exact * (1 + close)
        for epsilon in (0.1, 1.0, 8.0):
            exact = 1 - (1 - a) / (1 + (mpmath.exp(epsilon) - 1) * a)
            found = guarantee(releases=(selection(epsilon),)).true_positive_rate(level)
            assert exact <= found <= exact * (1 + close)
        few = mpmath.e * a + mpmath.mpf(1e-6)
        many = 1 - (1 - mpmath.mpf(1e-6) - a) / mpmath.e
        found = guarantee(ApproxDP(1.0, 1e-6), releases=(SAMPLED,)).true_positive_rate(
            level
        )
        assert min(few, many) <= found <= min(few, many) * (1 + close)
    for other in (CONCENTRATED, SEARCH):
        promise = guarantee(releases=(other,))
        # Each proven epsilon bounds it, and so does the best guess, which gains half
        # the difference of the two rates.
        bounds = [1.0, 2 * promise.best_guess() - 1 + level]
        for delta in (*DELTAS, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5):
            epsilon = promise.epsilon(delta)
            bounds += [
                math.exp(epsilon) * level + delta,
                1 - math.exp(-epsilon) * (1 - delta - level),
            ]
        assert promise.true_positive_rate(level) == pytest.approx(
            min(bounds), rel=1e-13
        )
    for wrong in (0.0, 1.0, math.nan):
        with pytest.raises(ParameterError, match="false_positive_rate"):
            guarantee().true_positive_rate(wrong)


@pytest.mark.parametrize(
    "releases",
    [
        (RELEASE,),
        (selection(1.0),),
        (CONCENTRATED,),
        (SAMPLED,),
        (SEARCH,),
        (noise(0.1),) * 3,
    ],
)
def test_what_is_implied_is_said_once_for_machines_and_once_for_people(releases):
    promise = guarantee(ApproxDP(9.0, 1e-6), releases=releases)
    implied = promise.implied()
    assert json.loads(json.dumps(implied)) == implied
    assert (implied["mu"], implied["best_guess"]) == (promise.mu, promise.best_guess())
    assert [at["false_positive_rate"] for at in implied["tests"]] == list(
        FALSE_POSITIVE_RATES
    )
    for at in implied["tests"]:
        assert at["true_positive_rate"] == promise.true_positive_rate(
            at["false_positive_rate"]
        )
    for at in implied["epsilon"]:
        assert at["epsilon"] == promise.epsilon(at["delta"])
    table = dict(table_of(promise))
    assert ("mu, Gaussian DP" in table) == (promise.mu is not None)
    assert (
        ("epsilon, pure DP" in table)
        == (promise.pure_epsilon is not None)
        == (releases == (selection(1.0),))
    )
    assert float(table.pop("epsilon, pure DP", 1.0)) == 1.0
    # Numbers for people are rounded up, and by little.
    stated = [
        (f"epsilon at delta = {at['delta']:.0e}".replace("e-0", "e-"), at["epsilon"])
        for at in implied["epsilon"]
    ]
    stated += [("mu, Gaussian DP", implied["mu"])] * (promise.mu is not None)
    for name, value in stated:
        assert value <= float(table.pop(name)) < value * 1.001
    for rate, at in zip((10, 1), implied["tests"], strict=True):
        words = table.pop(f"true positive rate at {rate / 10:g} % false positive rate")
        members = 10 * float(re.fullmatch(r"at most ([0-9.]+) %", words)[1])
        assert (
            1000 * at["true_positive_rate"]
            <= members + 1e-9
            < 1000 * at["true_positive_rate"] + 1 + 1e-9
        )
    # One more delta is put in its place.
    assert promise.implied(1e-4)["epsilon"] == [
        {"delta": 1e-4, "epsilon": promise.epsilon(1e-4)},
        *implied["epsilon"],
    ]
    assert promise.implied(1e-5) == implied
    for more in (1e-4, 1.2345e-5):
        deltas = [
            float(name.partition("delta = ")[2])
            for name, _ in table_of(promise, more)
            if "delta" in name
        ]
        assert deltas == sorted(
            {more, *(at["delta"] for at in implied["epsilon"])}, reverse=True
        )
    named = [
        float(name.partition("delta = ")[2])
        for name, _ in table_of(promise, 1.2345641e-5)
        if "delta" in name
    ]
    assert (
        1.2345641e-5 <= max(named) < 1.23458e-5
    )  # a delta is rounded up as well, or its epsilon would be too small
    percent = re.fullmatch(
        r"at most ([0-9.]+) %", table.pop("membership guess is right")
    )[1]
    assert (
        100 * implied["best_guess"] <= float(percent) <= 100 * implied["best_guess"] + 1
    )
    assert table == {}


def test_what_is_implied_is_computed_and_not_read():
    fields = guarantee().to_dict()
    assert "implied" not in fields
    again = Guarantee.from_dict({**fields, "implied": {"mu": 1e-9}, "mu": 1e-9})
    assert again.implied() == guarantee().implied()
    # Nor is it taken from the budget: the releases are what someone sees.
    assert guarantee(ZCDP(100.0)).implied() == guarantee().implied()
    assert not guarantee(ZCDP(0.49)).stays_within_budget()


def test_the_summary_begins_the_paragraph_with_warnings_before_the_promise():
    for changes in (
        {},
        {"secure_noise": False},
        {"exact": False},
        {"secure_noise": False, "exact": False},
    ):
        promise = guarantee(**changes)
        assert str(promise).startswith(promise.summary())
        assert str(promise) != promise.summary()
        assert promise.summary().endswith("of cases, whatever else the guesser knows.")
        assert ("NOT FOR RELEASE" in promise.summary()) == ("secure_noise" in changes)
        assert ("RESEARCH USE" in promise.summary()) == ("exact" in changes)


def test_costs_in_the_paragraph_are_rounded_up():
    rho = 1.55062
    mu = math.sqrt(2 * rho)
    (epsilon, implied) = re.findall(
        r"epsilon = ([0-9.]+) at delta = 1e-6 \(mu = ([0-9.]+)\)",
        guarantee(ZCDP(rho), releases=(noise(mu),)).summary(),
    )[0]
    assert mu <= float(implied) <= mu * 1.001
    exact = GaussianDP(mu).to_approx(1e-6).epsilon
    assert exact <= float(epsilon) <= exact * 1.001
    # A release without mu converts by zCDP, to more.
    words = guarantee(
        ZCDP(rho), releases=(replace(CONCENTRATED, cost={"rho": rho}),)
    ).summary()
    (epsilon,) = re.findall(r": epsilon = ([0-9.]+) at delta = 1e-6\.", words)
    assert (
        ZCDP(rho).to_approx(1e-6).epsilon
        <= float(epsilon)
        <= ZCDP(rho).to_approx(1e-6).epsilon * 1.001
    )
    assert "rho = 0.123457," in str(ZCDP(0.12345678))
    assert "epsilon = 0.123457," in str(PureDP(0.12345601))
    assert "mu = 0.123457," in str(GaussianDP(0.12345601))


def test_both_views_are_said_whatever_the_budget_was_given_in():
    for budget in (GaussianDP(1.0), ZCDP(0.5), PureDP(1.0), ApproxDP(4.8866, 1e-6)):
        assert (
            ": epsilon = 4.887 at delta = 1e-6 (mu = 1). "
            in guarantee(budget).summary()
        )
        assert str(guarantee(budget)) == str(guarantee())
    # The delta that was asked for is the one at which epsilon is said.
    assert (
        ": epsilon = 4.378 at delta = 1e-5 (mu = 1). "
        in guarantee(ApproxDP(4.4, 1e-5)).summary()
    )
    assert guarantee(ApproxDP(4.4, 1e-5)).summary(delta=1e-6) == guarantee().summary()
    pure = guarantee(ZCDP(0.125), releases=(selection(1.0),)).summary()
    assert (
        ": epsilon = 1, pure DP (epsilon = 0.9985 at delta = 1e-6, mu = 0.6239). "
        in pure
    )
    assert (
        ": epsilon = 1 at delta = 1e-6. "
        in guarantee(ApproxDP(1.0, 1e-6), releases=(SAMPLED,)).summary()
    )


def test_a_statement_may_be_as_long_as_any_is():
    fields = guarantee().to_dict()
    stated = {"code": "stated", "text": "a" * 900}
    fields.update(assumptions=[stated] * 1000)
    assert Guarantee.from_dict(fields).to_dict() == fields
    fields.update(assumptions=[stated | {"text": "a" * 1000}] * 1000)
    with pytest.raises(ValueError, match="too long"):
        Guarantee.from_dict(fields)
    # Many short values take as long as long texts do.
    fields.update(assumptions=[])
    parameters = {f"p{place}": 1.0 for place in range(100)}
    fields["releases"][0]["parameters"] |= parameters
    assert Guarantee.from_dict(fields)
    fields["releases"] *= 500
    with pytest.raises(ValueError, match="too long"):
        Guarantee.from_dict(fields)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(secure_noise="no"),
        lambda d: d.update(public_inputs="abc"),
        lambda d: d.update(unit=3),
        lambda d: d.update(unit="one record"),
        lambda d: d.update(not_covered=["timing"]),
        lambda d: d.update(not_covered=[{"code": "unheard_of"}]),
        lambda d: d.update(not_covered=[{"code": "look", "mu": 1.0}]),
        lambda d: d.update(public_inputs=[{"code": "look"}]),
        lambda d: d["releases"][0].update(norm="L2"),
        lambda d: d["releases"][0]["statistic"].update(n_classes=True),
        lambda d: d["releases"][0]["statistic"].update(n_classes=3.0),
        lambda d: d["releases"][0]["statistic"].pop("dim"),
        lambda d: d["releases"][0].update(statistic=nested(1000)),
        lambda d: d.update(adjacency="nonsense"),
        lambda d: d["releases"][0].update(sensitivity="lots"),
        lambda d: d["releases"][0]["cost"].update(rho=True),
        lambda d: d["releases"][0]["parameters"].update(noise_std=math.inf),
        lambda d: d.pop("not_covered"),
        lambda d: d.update(assumptions=d["assumptions"][:1] * 1001),
        lambda d: d.update(releases=d["releases"] * 1001),
        lambda d: d["assumptions"][0].update(code="stated", text="a" * 1_000_001),
        lambda d: d["releases"][0]["parameters"].update(sampling_rate=1.5),
        lambda d: d["releases"][0]["parameters"].update(sampling_rate=0.0),
        lambda d: d["releases"][0]["parameters"].update(
            sampling_rate=0.5, noise_std=0.0
        ),
    ],
)
def test_fields_of_another_type_are_refused(damage):
    fields = guarantee().to_dict()
    assert Guarantee.from_dict(fields).to_dict() == guarantee().to_dict()
    damage(fields)
    with pytest.raises((KeyError, TypeError, ValueError)):
        Guarantee.from_dict(fields)


@pytest.mark.parametrize(
    "fields",
    [{}, {"epsilon": 1.0, "rho": 1.0}, {"mu": 1.0, "rho": 0.5}, {"delta": 1e-5}],
)
def test_a_budget_needs_the_parameters_of_one_notion(fields):
    with pytest.raises(ValueError, match="no notion"):
        budget_from_dict(fields)


def test_an_inexact_accounting_is_named_first():
    assert str(guarantee(exact=False)).startswith("RESEARCH USE")
    assert "RESEARCH USE" not in str(guarantee())


def test_the_versions_behind_a_release_are_stated():
    versions = guarantee().software
    assert {"dppl", "Python", "numpy", "scipy", "python-flint", "dp-accounting"} == set(
        versions
    )
    for name, version in versions.items():
        assert f"{name} {version}" in str(guarantee())


def test_under_replace_one_the_secret_is_which_record_it_was():
    assert "whether one record was in" in str(guarantee())
    assert "which of two choices for one record was in" in str(
        guarantee(adjacency="replace-one")
    )


def test_a_notebook_shows_the_summary_and_the_numbers():
    guarantee = (
        MeanPrototypes(GaussianDP(1.0), classes=[0]).fit([[1.0, 0.0]], [0]).guarantee_
    )
    shown = guarantee._repr_html_()
    assert guarantee.summary() in shown
    assert all(
        f">{name}</th>" in shown and f">{value}</td>" in shown
        for name, value in table_of(guarantee)
    )


def test_numbers_of_numpy_are_stated_as_numbers_of_python():
    term = Term(Statistic.CLASS_SUMS, n_classes=np.int64(3), dim=4)
    assert term == Term(Statistic.CLASS_SUMS, n_classes=3, dim=4)
    assert json.dumps(term.to_dict())
    with pytest.raises(ValueError, match="does not have the values"):
        Term(Statistic.CLASS_SUMS, n_classes=np.bool_(True), dim=4)
    with pytest.raises(ValueError, match="is not of"):
        Term(Statistic.OF_ONE_TASK, of=Term(Caveat.LOOK))
