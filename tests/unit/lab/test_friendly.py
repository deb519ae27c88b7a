"""FriendlyCore: the filter in integers, its failures, and neighbours step by step."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dppl import ApproxDP, GaussianDP
from dppl.audit import audit
from dppl.audit.canaries import AuditData, Canary
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.mechanisms.randomness import randomness
from dppl.kernel.privacy.tradeoff import gaussian_mu_within
from dppl.lab import FriendlyCoreMeans, friendly
from dppl.lab.friendly import FriendlyCore, friends, tail

DIM = 8
LATTICE = Lattice(DIM)
RADIUS = 0.5
SQUARED = math.floor(RADIUS**2 * LATTICE.squared_norm)
EAST = np.eye(DIM)[0]


def cluster(n, seed=0, spread=0.05):
    """Return lattice rows about one direction."""
    rng = np.random.default_rng(seed)
    return LATTICE.transform(EAST + spread * rng.normal(size=(n, DIM)))


OUTLIER = LATTICE.transform(-EAST[None])


@pytest.mark.parametrize("dim", [3, 2000])
def test_friends_are_counted_exactly_up_to_the_radius_itself(dim):
    rng = np.random.default_rng(1)
    rows = Lattice(dim).transform(rng.normal(size=(30, dim)))
    exact = [
        [sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True)) for x in rows]
        for y in rows
    ]
    radius = sorted(exact[0])[9]
    assert friends(rows, radius)[0] == 10
    for squared in (radius, radius - 1):
        expected = [sum(one <= squared for one in line) for line in exact]
        assert friends(rows, squared).tolist() == expected


@pytest.mark.parametrize("noise_std", [0.3, 7.0, 400.0])
@pytest.mark.parametrize("p", [0.6, 0.1, 1e-6, 1e-15])
def test_noise_exceeds_a_tail_as_rarely_as_it_says_and_not_much_less(noise_std, p):
    above = tail(noise_std, p)
    assert norm.sf((above + 0.5) / noise_std) <= p
    # The bound is exp(-t²/2)/2; less than two thirds of it would be too few.
    assert norm.sf(0.6 * above / noise_std) > p or above <= 1


def test_the_budget_is_split_as_the_proof_says():
    core = FriendlyCore.within(ApproxDP(1.3, 1e-5), SQUARED)
    allowed = gaussian_mu_within(1.3, 1e-5 / 4)
    total = math.sqrt(sum(mu**2 for mu in core.mus))
    assert total <= allowed == pytest.approx(total)
    assert core.describe("any").cost == {"epsilon": 1.3, "delta": 1e-5}


def steps(patch, script=()):
    """List what each step of FriendlyCore read, its mechanism and its answer; a script answers for it."""
    uses = []
    release = RoundedGaussian.release
    replies = iter(script)

    def use(self, exact, source):
        scripted = next(replies, None)
        answer = release(self, exact, source) if scripted is None else scripted
        uses.append((self, exact, answer[: len(exact)]))
        return answer[: len(exact)]

    patch.setattr(RoundedGaussian, "release", use)
    return uses


def compare(rows, budget, seed):
    """Hold what a record, the last, moves to each step's sensitivity, at the same earlier outcomes.

    Returns whether the outcome is one of the failures that delta is for.
    """
    core = FriendlyCore.within(budget, SQUARED)
    with pytest.MonkeyPatch.context() as patch:
        more = steps(patch)
        core.release(rows, LATTICE, randomness(seed))
    with pytest.MonkeyPatch.context() as patch:
        fewer = steps(patch, [answer for _, _, answer in more])
        core.release(rows[:-1], LATTICE, randomness(seed))
    n = len(rows)
    assert [len(uses) for uses in (more, fewer)] in ([3, 3], [4, 4])
    most = more[1][0].squared_sensitivity
    threshold = 1 + tail(more[1][0].noise_std, budget.delta / 4 / (int(most) + 1))
    kept = more[1][2] > threshold
    unfriendly = 2 * friends(rows, SQUARED) <= n
    without = np.count_nonzero(kept[:-1])
    fewest = int(more[2][2][0]) - tail(more[2][0].noise_std, budget.delta / 4) - 1
    if n - 1 > most or (kept & unfriendly).any() or fewest > without:
        return True
    for (mechanism, exact, _), (other, others, _) in zip(more, fewer, strict=True):
        assert mechanism == other
        size = min(len(exact), len(others))
        moved = (exact[:size] - others[:size]).astype(object)
        assert sum(moved**2) <= mechanism.squared_sensitivity
    return False


CASES = [
    np.concatenate([cluster(160), OUTLIER]),
    cluster(160, spread=0.25),
    np.concatenate([cluster(90), -cluster(70, 1), cluster(1, 2)]),
    np.concatenate([OUTLIER, cluster(150, spread=0.15), cluster(1, 3, 0.3)]),
    cluster(2),
]


@pytest.mark.parametrize("rows", CASES)
def test_a_record_moves_each_step_by_its_sensitivity_and_failures_are_rare(rows):
    failed = sum(compare(rows, ApproxDP(4.0, 0.04), seed) for seed in range(100))
    # 3/4 of delta; more than the 1 - 1e-9 quantile would be noticed.
    assert failed <= binom.isf(1e-9, 100, 0.03)


def test_a_record_that_moves_a_mean_by_more_than_a_radius_is_within_the_bound():
    """Most are in the middle, nearly half at one end, and the record at the other: 3/2 of a radius from their mean."""
    angle = 2 * math.asin(0.99 * RADIUS / 2)
    middle, one, other = (
        LATTICE.transform(math.cos(a) * EAST[None] + math.sin(a) * np.eye(DIM)[1:2])
        for a in (0.0, angle, -angle)
    )
    rows = np.repeat(np.concatenate([middle, one, other]), [88, 72, 1], axis=0)
    assert not compare(rows, ApproxDP(1e6, 0.04), 0)


def keep_all(patch):
    """Believe everybody to be a friend."""
    patch.setattr(
        friendly, "friends", lambda rows, _: np.full(len(rows), 10**6, np.int64)
    )


def forget_the_margin(patch):
    whole = friendly.tail
    patch.setattr(friendly, "tail", lambda std, p: whole(std, p) if p > 1e-3 else -1000)


@pytest.mark.parametrize("fault", [keep_all, forget_the_margin])
def test_a_filter_that_keeps_outliers_is_noticed(fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        compare_believing(CASES[0])


def compare_believing(rows, seed=0):
    """Compare the last step as if no outcome were a failure."""
    core = FriendlyCore.within(ApproxDP(4.0, 0.002), SQUARED)
    sides = []
    for some in (rows, rows[:-1]):
        with pytest.MonkeyPatch.context() as patch:
            sides.append(steps(patch, [a for _, _, a in sides[0]] if sides else ()))
            core.release(some, LATTICE, randomness(seed))
    (mechanism, exact, _), (_, others, _) = sides[0][3], sides[1][3]
    moved = (exact - others).astype(object)
    assert sum(moved**2) <= mechanism.squared_sensitivity


def test_the_means_that_the_planted_faults_break_hold_without_them():
    for seed in range(20):
        compare_believing(CASES[0], seed)


def test_outliers_leave_the_mean_alone():
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [EAST + 0.02 * rng.normal(size=(300, DIM)), np.tile(-EAST, (60, 1))]
    )
    model = FriendlyCoreMeans(
        ApproxDP(1e3, 1e-3, allow_weak=True),
        ["a", "empty"],
        radius=RADIUS,
        random_state=0,
    ).fit(X, ["a"] * len(X))
    core = X[:300] / np.linalg.norm(X[:300], axis=1, keepdims=True)
    np.testing.assert_allclose(model.prototypes_[0], core.mean(axis=0), atol=0.02)
    assert model.prototypes_[0] @ EAST > 0.98  # of all it is 0.67
    assert not model.prototypes_[1].any()  # of no records there is no mean


@pytest.mark.parametrize("budget", [GaussianDP(1.0), GaussianDP(0.3)])
def test_budgets_without_a_delta_are_refused(budget):
    with pytest.raises(BudgetError, match="use ApproxDP"):
        FriendlyCoreMeans(budget, ["a"]).plan(DIM)


def test_a_radius_beyond_all_distances_is_refused():
    with pytest.raises(ParameterError, match="at most 2"):
        FriendlyCoreMeans(ApproxDP(1.0, 1e-5), ["a"], radius=2.1).plan(DIM)


def audited():
    """Audit a mean that is moved by a record of the south 7 or more deviations of its noise if that is kept.

    Which runs of the second half tell the sides apart wrongly is then decided by the
    threshold alone: 29 of 100 may, which happens with probability 2^-29.
    """
    model = FriendlyCoreMeans(ApproxDP(2.0, 1e-2, allow_weak=True), ["a"], radius=0.02)
    X = np.tile(EAST, (250, 1))
    # Beside the cluster: at the south, which the others leave alone.
    canary = Canary(np.eye(DIM)[1], "a", lambda fitted: float(fitted.prototypes_[0, 1]))
    data = AuditData(X, np.repeat("a", len(X)))
    return audit(model, data, canary, runs=200, confidence=0.999, delta=1e-2)


@pytest.mark.audit
def test_an_audit_refutes_nothing():
    assert not audited().violation


@pytest.mark.audit
def test_an_audit_refutes_a_filter_that_keeps_all(monkeypatch):
    keep_all(monkeypatch)
    assert audited().violation
