"""The published law of sets: as its equations say, with the loss that is stated and with no less."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dppl import GaussianDP, PublicData, PureDP
from dppl.errors import BudgetError
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy.release import Release
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.lab import PublishedTopK
from dppl.lab.published_topk import PublishedLaw

ALARM = 1e-6  # of each statistical test
STATISTIC = Term(Statistic.PUBLIC_POSITIONS, n_selected=2, n_classes=1)


def law(utilities, size, epsilon, sensitivity):
    """Equations (5) and (6) of DPPL-v1 and the three steps after them: draw a worst member, and better ones evenly."""
    order = np.argsort(-utilities, kind="stable")
    weight = [
        math.comb(y, size) * math.exp(epsilon * utilities[one] / (2 * sensitivity))
        for y, one in enumerate(order, 1)
    ]
    result = {}
    for y, mass in enumerate(weight, 1):
        if not mass:
            continue
        better = list(itertools.combinations(order[: y - 1], size - 1))
        for others in better:
            chosen = tuple(sorted([*map(int, others), int(order[y - 1])]))
            result[chosen] = mass / len(better) / sum(weight)
    return result


@pytest.mark.parametrize(
    ("size", "utilities"),
    [
        *((size, [0, 3, 5, 5, 9, 7]) for size in (1, 2, 3)),
        (2, [2, 2, 2, 2, 2]),
    ],
)
def test_sets_are_drawn_by_the_published_equations(size, utilities):
    utilities = np.array(utilities)
    published = PublishedLaw(sharpness=0.8, sensitivity=4, size=size, n_public=6)
    source = randomness(7)
    n = 2000
    drawn = [tuple(published.select(utilities, source).tolist()) for _ in range(n)]
    expected = law(utilities, size, 1.6, 4)
    assert set(drawn) <= set(expected)

    def fits(probabilities):
        counts = np.array([drawn.count(one) for one in probabilities])
        means = n * np.array(list(probabilities.values()))
        statistic = (np.square(counts - means) / means).sum()
        return statistic <= stats.chi2.isf(ALARM, len(counts) - 1)

    assert min(expected.values()) * n >= 5
    assert fits(expected)
    # The law without ranks is another one.
    weights = {one: math.exp(0.8 * min(utilities[list(one)]) / 4) for one in expected}
    total = sum(weights.values())
    assert not fits({one: weight / total for one, weight in weights.items()})


def losses(before, after, size, epsilon, sensitivity):
    one = law(np.array(before), size, epsilon, sensitivity)
    other = law(np.array(after), size, epsilon, sensitivity)
    return np.array([math.log(one[chosen] / other[chosen]) for chosen in one])


@given(
    st.integers(3, 7).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 9), min_size=n, max_size=n),
            st.lists(st.integers(0, 4), min_size=n, max_size=n),
            st.integers(1, n - 1),
            st.sampled_from([0.1, 1.0, 5.0]),
        )
    )
)
@settings(max_examples=150)
def test_no_set_tells_neighbours_apart_by_more_than_is_stated(case):
    """All utilities may grow by up to the sensitivity when a record is added."""
    utilities, growth, size, epsilon = case
    n = len(utilities)
    added = [a + b for a, b in zip(utilities, growth, strict=True)]
    found = losses(utilities, added, size, epsilon, 4)
    assert np.abs(found).max() <= epsilon / 2 + math.log(n / size) + 1e-9
    stated = PublishedLaw(
        sharpness=epsilon / 2, sensitivity=4, size=size, n_public=n
    ).describe(STATISTIC)
    assert np.ptp(found) <= stated.cost["epsilon"] + 1e-9


def test_the_published_epsilon_is_exceeded_and_what_is_stated_nearly_met():
    """The best weighs nearly all and grows; of the others, which are level, the last passes all."""
    n = 60
    before = [400, *[0] * (n - 1)]
    after = [404, *[0] * (n - 2), 1]
    found = losses(before, after, 1, 1.0, 4)
    assert found.max() > 0.5 + math.log(n / 2) - 0.15 > 3 * 1.0
    # While the last passes all, the second falls behind all: twice the ranks.
    after = [400, 0, *[1] * (n - 3), 2]
    apart = np.ptp(losses(before, after, 1, 1.0, 4))
    stated = PublishedLaw(sharpness=0.5, sensitivity=4, size=1, n_public=n)
    assert 1.9 * math.log(n / 2) < apart <= stated.describe(STATISTIC).cost["epsilon"]


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_budget_pays_for_ranks_first(relation):
    steps = 1 if relation == "add-remove" else 2
    ranks = 2 * math.log(20 / 2)
    budget = PureDP(steps * (ranks + 0.75))
    one = PublishedLaw.within(budget, 9, 2, 20, relation=relation)
    assert one.sharpness == pytest.approx(0.75)
    release = one.describe(STATISTIC)
    assert release.parameters["published_epsilon"] == pytest.approx(1.5)
    assert (
        release.cost["epsilon"]
        <= budget.epsilon
        == pytest.approx(release.cost["epsilon"])
    )
    # A file that says less than its numbers cost is refused.
    assert Release.from_dict(release.to_dict()) == release
    cheap = release.to_dict()
    cheap["parameters"] |= {"n_public": 40.0}
    with pytest.raises(ValueError, match="contradict"):
        Release.from_dict(cheap)
    with pytest.raises(BudgetError, match="ranks of 2 among 20 public rows"):
        PublishedLaw.within(PureDP(steps * ranks), 9, 2, 20, relation=relation)


def test_without_much_noise_it_selects_the_best_rows():
    rng = np.random.default_rng(0)
    public = rng.normal(size=(12, 8))
    public[3] = np.nan  # maps to zero, and is no candidate
    X = np.repeat(public[[7]], 400, axis=0) + 0.1 * rng.normal(size=(400, 8))
    model = PublishedTopK(
        GaussianDP(200.0), ["a"], public=PublicData(public), n_prototypes=2, clip=(0, 2)
    ).fit(X, ["a"] * 400)
    rows = public / np.linalg.norm(public, axis=1, keepdims=True)
    best = np.argsort(-(rows @ rows[7]))[:2]
    assert set(model.public_indices_[0]) == set(best.tolist())
    assert model.guarantee_.stays_within_budget()
