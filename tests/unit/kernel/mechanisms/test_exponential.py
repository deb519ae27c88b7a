import itertools
import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dppl import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.errors import InputError
from dppl.kernel.mechanisms import ExponentialMechanism, exponential
from dppl.kernel.mechanisms.exponential import Places, Tally, strata
from dppl.kernel.mechanisms.randomness import (
    Randomness,
    SeededRandomness,
    SystemRandomness,
)
from dppl.kernel.privacy.tradeoff import gaussian_power, selection_power

# Each statistical test here raises a false alarm with at most this probability.
ALARM = 1e-6
SYSTEM = SystemRandomness()
UTILITIES = np.array([0, 3, 5, 5, 9, 20, 19, -40])
dp.enable_features("contrib")  # the oracle's proven but not yet audited constructors


def probabilities(utilities, epsilon, sensitivity):
    weight = np.exp(epsilon * (utilities - utilities.max()) / sensitivity)
    return weight / weight.sum()


def chi_square_holds(counts, expected_probabilities):
    expected = expected_probabilities * counts.sum()
    kept = expected >= 5
    observed = np.append(counts[kept], counts[~kept].sum())
    expected = np.append(expected[kept], expected[~kept].sum())
    statistic = (
        (observed - expected)[expected > 0] ** 2 / expected[expected > 0]
    ).sum()
    return statistic <= stats.chi2.isf(ALARM, max((expected > 0).sum() - 1, 1))


def draw_counts(mechanism, utilities, n):
    return np.bincount(
        [mechanism.select(utilities, SYSTEM)[0] for _ in range(n)],
        minlength=len(utilities),
    )


@pytest.mark.slow
def test_one_selection_has_the_exact_law():
    """At other budgets enumeration shows it below, of sets as well."""
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=7)
    counts = draw_counts(mechanism, UTILITIES, 4500)
    assert chi_square_holds(counts, probabilities(UTILITIES, 1.0, 7))
    # Controls: a fifth less or more epsilon is missed with probability 4e-9 (noncentral
    # chi-square).
    assert not chi_square_holds(counts, probabilities(UTILITIES, 0.8, 7))
    assert not chi_square_holds(counts, probabilities(UTILITIES, 1.2, 7))


@pytest.mark.slow
def test_the_law_agrees_with_opendp_under_zcdp():
    """OpenDP's noisy max is the exponential mechanism under zCDP; two samples, one law.

    The control is missed with probability 4e-9.
    """
    space = (
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.linf_distance(T="i64", monotonic=True),
    )
    theirs = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=7.0)
    drawn = np.bincount(
        [theirs(UTILITIES.tolist()) for _ in range(3000)], minlength=len(UTILITIES)
    )
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=7)
    mine = draw_counts(mechanism, UTILITIES, 3000)
    kept = drawn + mine >= 10
    assert stats.chi2_contingency([drawn[kept], mine[kept]]).pvalue >= ALARM
    sharper = draw_counts(
        ExponentialMechanism(epsilon=1.4, sensitivity=7), UTILITIES, 3000
    )
    assert stats.chi2_contingency([drawn[kept], sharper[kept]]).pvalue < ALARM
    assert mechanism.describe("").cost["rho"] == pytest.approx(theirs.map(7), rel=1e-9)


def set_probabilities(utilities, size, epsilon, sensitivity):
    """Probability of every set, by enumeration: weight exp(epsilon · worst utility / sensitivity)."""
    sets = list(itertools.combinations(range(len(utilities)), size))
    worst = np.array([min(utilities[list(chosen)]) for chosen in sets])
    return dict(zip(sets, probabilities(worst, epsilon, sensitivity), strict=True))


def published_set_probabilities(utilities, size, epsilon, sensitivity):
    """DPPL-v1 C.3.1 as released: rank y from 0 drawn with weight binom(y, K)·exp(epsilon·u_y/(2·sensitivity))."""
    order = np.argsort(-utilities, kind="stable")
    weight = np.array(
        [
            math.comb(y, size)
            * math.exp(epsilon * utilities[order[y]] / (2 * sensitivity))
            for y in range(len(order))
        ]
    )
    result = dict.fromkeys(itertools.combinations(range(len(utilities)), size), 0.0)
    for y, mass in enumerate(weight / weight.sum()):
        better = list(itertools.combinations(order[:y], size - 1))
        for others in better:
            result[tuple(sorted([*others, order[y]]))] += mass / len(better)
    return result


neighbours = st.integers(3, 6).flatmap(
    lambda m: st.tuples(
        st.lists(st.integers(0, 12), min_size=m, max_size=m),
        st.lists(st.integers(0, 4), min_size=m, max_size=m),
        st.integers(1, m - 1),
        st.sampled_from([0.3, 1.0, 3.0]),
    )
)


@given(neighbours)
def test_no_set_tells_neighbours_apart_by_more_than_epsilon(case):
    """A record adds between 0 and 4 to each utility; exact probabilities, every set."""
    utilities, added, size, epsilon = case
    before = set_probabilities(np.array(utilities), size, epsilon, 4)
    after = set_probabilities(np.array(utilities) + np.array(added), size, epsilon, 4)
    ratios = [math.log(after[chosen] / before[chosen]) for chosen in before]
    assert max(map(abs, ratios)) <= epsilon * (1 + 1e-9)
    assert max(ratios) - min(ratios) <= epsilon * (
        1 + 1e-9
    )  # bounded range, which the zCDP cost rests on


def enclosed_set_probabilities(utilities, size, epsilon, sensitivity):
    """`set_probabilities` as balls."""
    worst = [min(chosen) for chosen in itertools.combinations(utilities.tolist(), size)]
    weights = [(arb(epsilon) * utility / sensitivity).exp() for utility in worst]
    return [weight / sum(weights) for weight in weights]


def best_tests(before, after):
    """Yield levels, rounded up, and powers of the best tests of two laws: sets in the order of their ratios."""
    order = sorted(
        range(len(before)),
        key=lambda place: float(after[place] / before[place]),
        reverse=True,
    )
    for count in range(1, len(order)):
        level, power = (
            sum(law[place] for place in order[:count]) for law in (before, after)
        )
        if (rounded := float(np.nextafter(float(level.upper()), 1))) < 1:
            yield rounded, power


@given(neighbours)
def test_no_test_for_a_record_is_better_than_the_stated_curves(case):
    """Every set, in balls; between these tests both curves are concave, and randomised tests straight."""
    utilities, added, size, epsilon = case
    stated = ExponentialMechanism(epsilon=epsilon, sensitivity=4, size=size).describe(
        "rows"
    )
    with ctx.workprec(160):
        before, after = (
            enclosed_set_probabilities(np.array(u), size, epsilon, 4)
            for u in (utilities, np.array(utilities) + np.array(added))
        )
        for level, power in [*best_tests(before, after), *best_tests(after, before)]:
            assert power <= selection_power(stated.cost["epsilon"], level)
            assert power <= gaussian_power(stated.cost["mu"], level)


def test_the_stated_curves_are_met_and_smaller_ones_would_not_hold():
    """Of two candidates one grows, from half the sensitivity below the other to as much above it."""
    stated = ExponentialMechanism(epsilon=1.0, sensitivity=4).describe("rows")
    with ctx.workprec(160):
        laws = (
            enclosed_set_probabilities(np.array(u), 1, 1.0, 4) for u in ([0, 2], [4, 2])
        )
        ((level, power),) = best_tests(*laws)
        assert (
            selection_power(1.0, level) - 1e-15 < power <= selection_power(1.0, level)
        )
        assert (
            gaussian_power(stated.cost["mu"], level) - 1e-15
            < power
            <= gaussian_power(stated.cost["mu"], level)
        )
        assert power > gaussian_power(0.999 * stated.cost["mu"], level)
        assert power > selection_power(0.999, level)


def test_the_published_weighting_fails_the_same_test():
    utilities = np.array([5, 4, 3, 1])
    added = np.array([0, 0, 4, 0])
    before = published_set_probabilities(utilities, 2, 1.0, 4)
    after = published_set_probabilities(utilities + added, 2, 1.0, 4)
    assert sum(before.values()) == pytest.approx(1)
    assert before[0, 1] == 0.0
    assert (
        after[0, 1] > 0.0
    )  # possible for one neighbour, impossible for the other: no finite epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("utilities", "size", "n"),
    [([5, 1, 3, 3, 2], 2, 5000), ([9, 2, 7, 7, 7, 0], 3, 1000)],
)
def test_a_set_has_the_exact_law(utilities, size, n):
    """The control is missed with probability below 2e-7."""
    utilities = np.array(utilities)
    exact = set_probabilities(utilities, size, 1.0, 2)
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=2, size=size)
    drawn = [tuple(mechanism.select(utilities, SYSTEM).tolist()) for _ in range(n)]
    counts = np.array([drawn.count(chosen) for chosen in exact])
    assert counts.sum() == n
    assert chi_square_holds(counts, np.array(list(exact.values())))
    wrong = set_probabilities(utilities, size, 1.4, 2)
    assert not chi_square_holds(counts, np.array(list(wrong.values())))


def parts_of(mechanism, utilities, cuts):
    """Return tallies of the pieces between cuts, and a second look at them, two candidates at a time."""
    edges = [0, *cuts, utilities.shape[1]]
    parts = [
        mechanism.tally(utilities[:, start:stop])
        for start, stop in itertools.pairwise(edges)
    ]

    def look(wanted):
        for part, codes in wanted.items():
            for code, start in itertools.product(
                codes, range(edges[part], edges[part + 1], 2)
            ):
                stop = min(start + 2, edges[part + 1])
                yield code, part, utilities[code, start:stop], np.arange(start, stop)

    return parts, look


pools = st.integers(1, 4).flatmap(
    lambda size: st.integers(size, 14).flatmap(
        lambda m: st.tuples(
            st.just(size),
            st.sampled_from([3, 40, 10**6, 10**15]).flatmap(
                lambda most: st.lists(
                    st.lists(st.integers(-most, most), min_size=m, max_size=m),
                    min_size=2,
                    max_size=2,
                )
            ),
            st.lists(st.integers(0, m), max_size=5).map(sorted),
            st.sampled_from([0.01, 1.0, 30.0, 1e12]),
            st.integers(0, 2**32),
        )
    )
)


@pytest.mark.slow
@given(pools)
@settings(max_examples=100)
def test_parts_do_not_change_a_draw(case):
    size, utilities, cuts, epsilon, seed = case
    utilities = np.array(utilities)
    mechanism = ExponentialMechanism(epsilon=epsilon, sensitivity=5, size=size)
    once, twice = (
        mechanism.select_each(
            *parts_of(mechanism, utilities, at), SeededRandomness(seed)
        )
        for at in ([], cuts)
    )
    assert once.tolist() == twice.tolist()


class Branches(Randomness):
    """Takes every branch of the draws of `below` in turn; `weight` is the probability of the present one."""

    secure_noise = False

    def __init__(self):
        self.path = []
        self.place = 0
        self.weight = Fraction(1)

    def each(self):
        while True:
            self.place = 0
            self.weight = Fraction(1)
            yield self.weight
            while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
                self.path.pop()
            if not self.path:
                return
            self.path[-1][0] += 1

    def below(self, bound):
        if self.place == len(self.path):
            self.path.append([0, bound])
        self.place = self.place + 1
        self.weight = self.weight / bound
        return self.path[self.place - 1][0]

    def bits(self, count):
        return 2**count - 1  # sure of nothing

    def rounded_gaussian(self, noise_std, shape):
        raise NotImplementedError


class Asked:
    """Stands for a uniform number, and remembers what it is compared with."""

    def is_below(self, factor, exponent):
        self.factor = factor
        self.exponent = exponent


def enumerated_law(mechanism, utilities, cuts):
    """Return the probability of every set, from all proposals and the chance of each to be accepted."""
    parts, look = parts_of(mechanism, utilities[None], cuts)
    law = dict.fromkeys(
        itertools.combinations(range(len(utilities)), mechanism.size), mpmath.mpf(0)
    )
    source = Branches()
    envelope = exponential._Envelope.of(
        strata(Tally.merged(parts), 0), mechanism.size, mechanism._scale
    )
    places = Places(parts, 0)
    for _ in source.each():
        proposal = envelope.propose(places, source)
        for pick in proposal.picks:
            assert pick.part < len(parts)
            for _, _, few, positions in look({pick.part: [0]}):
                pick.look(few >> mechanism._scale.shift, few, positions)
        assert all(pick.position is not None for pick in proposal.picks)
        asked = Asked()
        replace(proposal, uniform=asked).is_accepted()
        chance = mpmath.mpf(asked.factor.numerator) / asked.factor.denominator
        chance *= mpmath.exp(
            -mpmath.mpf(asked.exponent.numerator) / asked.exponent.denominator
        )
        assert 0 <= chance <= 1
        weight = mpmath.mpf(source.weight.numerator) / source.weight.denominator
        law[tuple(sorted(pick.position for pick in proposal.picks))] += weight * chance
    return {chosen: mass / sum(law.values()) for chosen, mass in law.items()}


def assert_exact_law(mechanism, utilities, cuts):
    with mpmath.workdps(40):
        law = enumerated_law(mechanism, utilities, cuts)
        worst = {
            chosen: min(int(utilities[place]) for place in chosen) for chosen in law
        }
        rate = mpmath.mpf(mechanism.epsilon) / mechanism.sensitivity
        weights = {
            chosen: mpmath.exp(rate * utility) for chosen, utility in worst.items()
        }
        total = sum(weights.values())
        assert all(
            abs(law[chosen] * total / weights[chosen] - 1) < mpmath.mpf(10) ** -35
            for chosen in law
        )


@pytest.fixture
def tiny(monkeypatch):
    """Few bits, and a window of little more than one unit of log-weight, so that there are candidates below it."""

    def shrink(size):
        exponential._scale.cache_clear()
        monkeypatch.setattr(exponential, "_ENVELOPE_BITS", 3)
        monkeypatch.setattr(
            exponential,
            "_SPARE",
            1 - math.ceil(math.log(math.comb(exponential._MANY, size))),
        )

    yield shrink
    exponential._scale.cache_clear()


EXACT_CASES = [
    (1, [5, 1, 3, 3, 2, 5, 0]),
    (1, [0, 30, 31, 30, 4]),
    (2, [5, 1, 3, 3, 2]),
    (2, [4, 4, 4, 4]),
    (2, [40, 0, 1, 3, 3]),
    (3, [9, 2, 7, 7, 0]),
    (3, [1, 2, 3]),
]
CUTS = [[], [2], [1, 2, 3], [0, 0, 3]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sensitivity", "cuts"), [(2, CUTS[2]), *((9, cuts) for cuts in CUTS)]
)
@pytest.mark.parametrize(("size", "utilities"), EXACT_CASES)
def test_the_law_is_exact_by_enumeration_of_all_draws(
    tiny, size, utilities, cuts, sensitivity
):
    """No sample: every proposal with its probability, and its chance to be accepted, in 35 digits."""
    tiny(size)
    assert_exact_law(
        ExponentialMechanism(epsilon=1.0, sensitivity=sensitivity, size=size),
        np.array(utilities),
        cuts,
    )


def test_the_enumeration_meets_candidates_below_the_window_and_bins_of_several_utilities(
    tiny,
):
    tiny(1)
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=9)
    assert mechanism._scale.shift > 0
    assert mechanism.tally(np.array([[0, 30, 31, 30, 4]])).counts[0, -1] == 2


def forget_the_fall(tally, best, width):
    """Add counts of parts as if their best candidates were equally good."""
    return tally.counts.astype(np.int64)


def forget_the_best_of_parts(tally, best, width):
    """Leave out candidates that were above the window of a part and are not above that of the whole."""
    counts = np.zeros(tally.counts.shape, np.int64)
    fall = best[:, -1] - tally.best[:, -1]
    for code, row in enumerate(tally.counts):
        np.add.at(
            counts[code],
            np.minimum(np.arange(width + 1) + min(fall[code], width), width),
            row,
        )
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("merge", [forget_the_fall, forget_the_best_of_parts])
def test_wrong_merges_are_caught(tiny, monkeypatch, merge):
    def assert_all():
        for (size, utilities), cuts in itertools.product(EXACT_CASES[:4], CUTS):
            tiny(size)
            assert_exact_law(
                ExponentialMechanism(epsilon=1.0, sensitivity=2, size=size),
                np.array(utilities),
                cuts,
            )

    assert_all()
    monkeypatch.setattr(Tally, "_below", merge)
    with pytest.raises(AssertionError):
        assert_all()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "n"), [(1, 1200), (3, 2500)])
def test_parts_do_not_change_the_law(size, n):
    """The control is missed with probability below 1e-9."""
    utilities = np.array([5, 1, 3, 3, 2, 5, 0])
    exact = set_probabilities(utilities, size, 1.0, 2)
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=2, size=size)
    parts = parts_of(mechanism, utilities[None], [2, 3, 6])
    drawn = [tuple(mechanism.select_each(*parts, SYSTEM)[0].tolist()) for _ in range(n)]
    counts = np.array([drawn.count(chosen) for chosen in exact])
    assert chi_square_holds(counts, np.array(list(exact.values())))
    assert not chi_square_holds(
        counts, np.array(list(set_probabilities(utilities, size, 1.5, 2).values()))
    )


def test_another_pool_in_the_second_look_is_refused():
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=2)
    utilities = np.arange(6)
    with pytest.raises(InputError, match="changed while they were read"):
        mechanism.select_each(
            [mechanism.tally(utilities[None])],
            lambda _: [(0, 0, utilities - 100, utilities)],
            SeededRandomness(0),
        )


@pytest.mark.slow
def test_equal_utilities_give_a_uniform_draw_and_huge_gaps_the_best():
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=1)
    assert chi_square_holds(
        draw_counts(mechanism, np.zeros(5, np.int64), 3000), np.full(5, 0.2)
    )
    # exp(-1e12) · 100 draws: never.
    assert set(
        draw_counts(mechanism, np.array([0, 10**12, -(10**15)]), 100).nonzero()[0]
    ) == {1}


class Scripted(Randomness):
    """Proposes one candidate and then serves fixed bits, to look at a single acceptance."""

    secure_noise = False

    def __init__(self, proposal, bits):
        self.proposal = proposal
        self.served = iter(bits)

    def below(self, bound):
        return self.proposal if self.proposal is not None else 0

    def bits(self, count):
        return next(self.served)

    def rounded_gaussian(self, noise_std, shape):
        raise NotImplementedError


def uniform(*bits):
    return exponential._Uniform(Scripted(None, bits))


def test_acceptance_looks_at_more_bits_only_where_they_decide():
    third = Fraction(1, 3)
    zero = Fraction(0)
    first = (2**64) // 3  # the 64 bits of 1/3: undecided
    assert uniform(first, 0).is_below(third, zero)
    assert not uniform(first, 2**64 - 1).is_below(third, zero)
    assert uniform(first - 1).is_below(third, zero)
    assert not uniform(first + 1).is_below(third, zero)


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.fractions(0, 1, max_denominator=100), min_size=2, max_size=4),
)
def test_a_uniform_number_is_the_same_in_all_comparisons(bits, bounds):
    number = uniform(bits, *[2**63] * 20)
    for bound in bounds:
        if (exact := Fraction(bits, 2**64)) + Fraction(
            1, 2**64
        ) < bound or exact > bound:
            assert number.is_below(bound, Fraction(0)) == (exact < bound)


@given(
    st.integers(0, 10**15),
    st.fractions(0, 1, max_denominator=10**9),
    st.integers(25, 60),
)
@settings(max_examples=200)
def test_probability_bounds_enclose_the_truth(gap, factor, digits):
    exponent = Fraction(gap, 7 * 10**9)
    low, high = exponential._probability_bounds(factor, exponent, digits)
    with mpmath.workdps(120):
        exact = (
            mpmath.mpf(factor.numerator)
            / factor.denominator
            * mpmath.exp(-mpmath.mpf(gap) / (7 * 10**9))
        )
        assert mpmath.mpf(str(low)) <= exact <= mpmath.mpf(str(high))
        assert mpmath.mpf(str(high)) - mpmath.mpf(str(low)) <= exact * mpmath.mpf(
            10
        ) ** (1 - digits)


def test_an_envelope_below_a_weight_stops_the_run():
    with pytest.raises(AssertionError, match="envelope"):
        exponential._Uniform(SYSTEM).is_below(Fraction(3, 2), Fraction(0))


def test_budgets_buy_their_epsilon():
    assert ExponentialMechanism.within(PureDP(2.0), 5).epsilon == 2.0
    assert ExponentialMechanism.within(ApproxDP(2.0, 1e-6), 5).epsilon == 2.0
    mechanism = ExponentialMechanism.within(ZCDP(0.5), 5)
    assert mechanism.epsilon == pytest.approx(2.0)
    assert mechanism.describe("").cost["rho"] <= 0.5
    mechanism = ExponentialMechanism.within(GaussianDP(1.0), 5)
    assert mechanism.epsilon == pytest.approx(
        2 * np.log(stats.norm.cdf(0.5) / stats.norm.cdf(-0.5))
    )
    assert 1 - 1e-12 < mechanism.describe("rows").cost["mu"] <= 1.0


def test_the_entry_of_the_guarantee_knows_the_adjacency():
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=5, size=3)
    # mu = 2·Phi⁻¹(1/(1 + e^(-epsilon/2))), which scipy knows to many digits.
    mu = [2 * stats.norm.ppf(1 / (1 + np.exp(-epsilon / 2))) for epsilon in (1.0, 2.0)]
    once, twice = (
        replace(mechanism, adjacency=name).describe("rows").cost
        for name in ("add-remove", "replace-one")
    )
    assert once == {"epsilon": 1.0, "mu": pytest.approx(mu[0], rel=1e-14), "rho": 0.125}
    assert twice == {"epsilon": 2.0, "mu": pytest.approx(mu[1], rel=1e-14), "rho": 0.5}


def test_more_prototypes_than_candidates_are_refused():
    with pytest.raises(InputError, match="at least as many; got 2"):
        ExponentialMechanism(epsilon=1.0, sensitivity=1, size=3).select(
            np.array([1, 2]), SYSTEM
        )


def test_the_whole_pool_is_one_set():
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=1, size=4)
    assert mechanism.select(np.array([5, 0, 2, 2]), SYSTEM).tolist() == [0, 1, 2, 3]


class Proposing(Scripted):
    """Makes the given proposals in turn."""

    def below(self, bound):
        return next(self.proposal) % bound


def test_a_proposal_is_turned_down_by_its_true_weight():
    """The integer envelope lifts a weight of exp(-10¹²) to 2⁻⁴⁰, which no sample of draws would show."""
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=1)
    # The first proposal, the last ticket, meets the largest uniform number, the second,
    # of the best candidate, 0.
    source = Proposing(iter([-1, 0, 0, 0]), [2**64 - 1, 0, 2**64 - 1])
    assert mechanism.select(np.array([0, 10**12]), source).tolist() == [1]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_selections_at_absurd_budgets_do_not_crash(size):
    """Far gaps must not cost the envelope its precision: at epsilon 10¹² only the best set is ever drawn."""
    utilities = np.random.default_rng(0).integers(0, 10**6, 50)
    chosen = ExponentialMechanism(epsilon=1e12, sensitivity=7, size=size).select(
        utilities, SYSTEM
    )
    assert sorted(utilities[chosen]) == sorted(utilities)[-size:]
