"""SoftmaxPrototypes: what it releases, that neighbours differ by no more, and that it classifies."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

import dppl
from dppl import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    MeanPrototypes,
    PublicData,
    SoftmaxPrototypes,
)
from dppl.kernel.lattice import Lattice, residuals
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.privacy.composition import covers
from dppl.kernel.privacy.sensitivity import PARTS, STEPS
from dppl.kernel.privacy.terms import PublicInput, Term
from dppl.kernel.queries import sums as queries
from dppl.kernel.queries.base import on_grid
from dppl.lab.experiments.built_in import BUILT_IN
from dppl.methods import softmax as module
from dppl.methods.ascent import Ascent, Curvature, NoisyMoment, axis_filter
from dppl.methods.linear import Frame, intercepts
from dppl.methods.sizes import ClassSizes
from inside import behind
from laws.recipes import BY_NAME
from laws.replay import replay, watched

CLASSES = ["a", "b", "c"]
DIM = 6
RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(80, DIM)) @ np.diag([3, 2, 1, 1, 0.5, 0.2]) + 0.3


def make(budget=None, **options):
    return SoftmaxPrototypes(budget or ZCDP(2.0), CLASSES, **options)


def check_neighbours(case, budget=None, seed=0):
    """Replay all releases as for every estimator, with public rows that have a few large axes."""
    kind = BY_NAME["SoftmaxPrototypes with public rows add-remove"]
    replay(kind, case, budget or ZCDP(2.0), seed, public=PublicData(PUBLIC))


REAL = (
    RNG.normal(size=(40, DIM)) + 1,
    [CLASSES[i % 3] for i in range(40)],
    np.full(DIM, -2.0),
    "b",
)
# Classes of which a strong fit is sure, and a record that contradicts it.
SURE = (
    np.repeat(np.eye(DIM)[:3], 300, axis=0) + 0.05 * RNG.normal(size=(900, DIM)),
    np.repeat(CLASSES, 300).tolist(),
    np.eye(DIM)[0],
    "b",
)
STRONG = ZCDP(1e6)


@pytest.mark.parametrize(("case", "budget"), [(REAL, None), (SURE, STRONG)])
def test_the_neighbour_test_accepts_the_estimator_as_it_is(case, budget):
    check_neighbours(case, budget)


def told(patch, tell):
    """Let a fault know what nobody released: `tell` gets the rows and codes of each fit."""
    whole = SoftmaxPrototypes.learn

    def learn(self, measure, setting):
        records = behind(measure).records
        tell(np.asarray(records.rows), records.codes)
        return whole(self, measure, setting)

    patch.setattr(SoftmaxPrototypes, "learn", learn)


def clip_the_sum(patch):
    """Residuals go unclipped; the sum is cut to what as many clipped records could add up to."""
    whole = SoftmaxGradient.sum

    def clipped_late(self, blocks, codes, weights, offsets=None, *, clip, persons):
        exact = 3 * whole(self, blocks, codes, weights, offsets, clip=3 * clip)
        longest = len(codes) * float(self.squared_sensitivity) ** 0.5
        return (exact * min(1.0, longest / max(np.linalg.norm(exact), 1))).astype(
            np.int64
        )

    patch.setattr(SoftmaxGradient, "sum", clipped_late)


def clip_nothing(patch):
    """Residuals of norm √2 at most, on a grid meant for the clipping norm."""

    def on_grid(values, norms, clip, *_):
        return np.trunc(values.astype(np.float64) * residuals.RESOLUTION / clip)

    patch.setattr(residuals, "on_grid", on_grid)


def center_rows_by_their_batch(patch):
    whole = Lattice.transform
    patch.setattr(
        Lattice,
        "transform",
        lambda self, X: whole(self, np.asarray(X) - np.nanmean(X, axis=0)),
    )


def take_gradients_at_weights_that_noise_never_touched(patch):
    secret = []
    told(
        patch, lambda rows, codes: secret.append(np.nan_to_num(rows[codes >= 0]).sum())
    )
    whole = SoftmaxGradient.sum

    def sum_at_secret(self, blocks, codes, weights, offsets=None, **options):
        return whole(
            self, blocks, codes, weights * (1 + secret[-1] % 7), offsets, **options
        )

    patch.setattr(SoftmaxGradient, "sum", sum_at_secret)


def forget_how_often(patch):
    """All gradients together get the noise of one."""
    whole = RoundedGaussian.within.__func__

    def within(cls, budget, squared_sensitivity, times=1):
        return replace(whole(cls, budget, squared_sensitivity), times=times)

    patch.setattr(RoundedGaussian, "within", classmethod(within))


def take_one_step_more(patch):
    patch.setattr(module, "STEPS", 17)
    whole = RoundedGaussian.within.__func__
    few = classmethod(
        lambda cls, budget, squared, times=1: whole(
            cls, budget, squared, min(times, 16)
        )
    )
    patch.setattr(RoundedGaussian, "within", few)


def use_true_counts(patch):
    counts = []
    told(patch, lambda rows, codes: counts.append(np.bincount(codes, minlength=3)))
    whole = ClassSizes.of.__func__
    patch.setattr(
        ClassSizes,
        "of",
        classmethod(
            lambda cls, total, noisy, std: whole(
                cls, total, counts[-1].astype(float), std
            )
        ),
    )


def filter_true_sums(patch):
    """Axes are chosen by the gradients before their noise."""
    whole = SoftmaxGradient.sum
    exact = []

    def kept(self, *arguments, **options):
        exact.append(whole(self, *arguments, **options))
        return exact[-1]

    patch.setattr(SoftmaxGradient, "sum", kept)
    patch.setattr(
        "dppl.methods.ascent.axis_filter",
        lambda path, *others: axis_filter(exact[-1] / 1e6, *others),
    )


def weigh_above_one(patch):
    patch.setattr(
        queries,
        "on_grid",
        lambda weights, steps: np.rint(2 * weights * steps).astype(np.int64),
    )


def weigh_above_one_in_the_balance(patch):
    whole = SoftmaxGradient.shortfalls

    def heavy(self, *given):
        return whole(self, *given[:-1], lambda *block: 2 * given[-1](*block))

    patch.setattr(SoftmaxGradient, "shortfalls", heavy)


def take_probabilities_whole(patch):
    """Not their distance from equal ones, which is shorter."""
    whole = residuals.softmax_residuals

    def probabilities(logits, codes, *, shortfalls=False):
        p, norms = whole(logits, codes, shortfalls=shortfalls)
        if not shortfalls:
            return p, norms
        p -= np.float32(1 / len(p)) * (codes >= 0)
        return p, np.linalg.norm(p, axis=0)

    patch.setattr(residuals, "softmax_residuals", probabilities)
    patch.setattr(
        residuals,
        "on_grid",
        lambda p, norms, clip, _: np.trunc(
            p.astype(float) * residuals.RESOLUTION / clip
        ),
    )


def balance_by_true_counts(patch):
    """Weights of classes that nobody released, in the last sum alone."""
    counts = []
    told(patch, lambda rows, codes: counts.append(np.bincount(codes, minlength=3)))
    patch.setattr(
        ClassSizes, "balancing", property(lambda self: 1 / (1 + counts[-1] % 2))
    )


def balance_by_the_true_sum(patch):
    """Intercepts from the sum before its noise: nothing that is released moves, and the model does."""
    whole = SoftmaxGradient.shortfalls
    sums = []
    intercepts = module.intercepts

    def kept(self, *arguments):
        sums.append(whole(self, *arguments))
        return sums[-1]

    patch.setattr(SoftmaxGradient, "shortfalls", kept)
    patch.setattr(
        module,
        "intercepts",
        lambda noisy, *others: intercepts(sums[-1] / residuals.RESOLUTION, *others),
    )


def center_on_the_true_mean(patch):
    means = []
    told(patch, lambda rows, codes: means.append(rows.mean(axis=0)))
    whole = Frame.lattice
    patch.setattr(
        Frame,
        "lattice",
        lambda self, center=None: whole(self, means[-1] if means else center),
    )


def take_the_mean_of_true_sums(patch):
    """The length by which the mean is drawn to the public one is that of the records' own sum."""
    sums = []
    told(patch, lambda rows, codes: sums.append(rows.sum(axis=0)))
    whole = module.shrunken_mean
    patch.setattr(
        module, "shrunken_mean", lambda total, *others: whole(sums[-1], *others)
    )


def count_the_records(patch):
    numbers = []
    told(patch, lambda rows, codes: numbers.append(len(rows)))
    whole = ClassSizes.of.__func__
    patch.setattr(
        ClassSizes,
        "of",
        classmethod(
            lambda cls, total, *others: whole(cls, float(numbers[-1]), *others)
        ),
    )


def keep_the_first_noise(patch):
    """All gradients get the noise of the first, whose mechanism is used once."""
    whole = RoundedGaussian.release
    noise = {}

    def release(self, exact, source):
        if exact.ndim < 2:
            return whole(self, exact, source)
        if id(source) not in noise:
            noise[id(source)] = source, whole(self, exact, source) - exact
        return exact + noise[id(source)][1]

    patch.setattr(RoundedGaussian, "release", release)


UNEVEN = (
    RNG.normal(size=(200, DIM)),
    ["a"] * 150 + ["b"] * 40 + ["c"] * 10,
    np.eye(DIM)[0],
    "c",
)
LONE = np.zeros((0, DIM)), [], np.eye(DIM)[0], "a"
# Classes of equal size, of which a strong fit is sure, and one more record that is like
# the others of its class.
SURE_OF_ONE = SURE[0], SURE[1], np.eye(DIM)[1], "b"
FAULTS = [
    (clip_the_sum, SURE, STRONG),
    (clip_nothing, SURE, STRONG),
    (center_rows_by_their_batch, REAL, None),
    (take_gradients_at_weights_that_noise_never_touched, REAL, None),
    (forget_how_often, REAL, None),
    (take_one_step_more, REAL, None),
    (use_true_counts, UNEVEN, None),
    (filter_true_sums, REAL, None),
    (weigh_above_one, LONE, None),
    (weigh_above_one_in_the_balance, SURE_OF_ONE, STRONG),
    (take_probabilities_whole, SURE_OF_ONE, STRONG),
    (balance_by_true_counts, SURE, STRONG),
    (balance_by_the_true_sum, UNEVEN, STRONG),
    (center_on_the_true_mean, REAL, None),
    (take_the_mean_of_true_sums, REAL, None),
    (count_the_records, SURE, None),
]


@pytest.mark.parametrize(
    ("fault", "case", "budget"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
def test_planted_violations_are_caught(fault, case, budget, monkeypatch):
    """In one of ten replays of fixed seeds. The faintest fault, a true mean as centre, is missed by 51 of 600 seeds."""
    # Faults are planted in NumPy's code, which compiled code would replace.
    monkeypatch.setattr(residuals, "compiled_kernels", lambda numbers: None)
    fault(monkeypatch)

    def replays():
        for seed in range(10):
            check_neighbours(case, budget, seed)

    # A statement that contradicts itself is refused before the fit.
    with pytest.raises(AssertionError):
        replays()


def check_noise_is_fresh():
    """False alarm: 1e-9. Correlations of 120 pairs of 1,200 independent values, at 7.5 standard deviations."""
    X = np.random.default_rng(0).normal(size=(60, 400))
    with watched() as entries:
        make().fit(X, CLASSES * 20)
    noise = [
        ((result - exact) / mechanism.noise_std).ravel()
        for mechanism, exact, result in entries[4:-1]
    ]
    assert len(noise) == 16
    assert np.abs(np.corrcoef(noise) - np.eye(16)).max() < 7.5 / 1200**0.5
    assert 0.8 < np.std(noise) < 1.2


def test_every_gradient_has_noise_of_its_own(monkeypatch):
    check_noise_is_fresh()
    keep_the_first_noise(monkeypatch)
    with pytest.raises(AssertionError):
        check_noise_is_fresh()


@given(hnp.arrays(np.float64, 5, elements=st.floats()))
def test_integer_weights_are_at_most_one_whatever_they_come_from(weights):
    integers = on_grid(weights, 1000)
    assert integers.min() >= 0
    assert integers.max() <= 1000


BUDGETS = [
    ZCDP(1e-5),
    ZCDP(0.5),
    ZCDP(2048.0),
    ApproxDP(1.0, 1e-6),
    GaussianDP(1.0),
    GaussianDP(1 / 3),
]


def squared_mu(guarantee):
    return sum(Fraction(release.cost["mu"]) ** 2 for release in guarantee.releases)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("public", [None, PUBLIC])
def test_the_plan_costs_the_budget_and_is_what_is_released(budget, public):
    plan = make(budget).set_params(public=PublicData(public)).plan(DIM).guarantee
    promise = (
        make(budget)
        .set_params(public=PublicData(public))
        .fit(REAL[0], REAL[1])
        .guarantee_
    )
    assert plan == promise
    allowance = Fraction(budget.gaussian_allowance().mu) ** 2
    assert (1 - Fraction(1, 10**9)) * allowance < squared_mu(promise) <= allowance
    assert covers(budget, promise.costs())
    shares = [
        Fraction(release.cost["mu"]) ** 2 / allowance for release in promise.releases
    ]
    assert [round(float(share), 9) for share in shares] == [
        0.01,
        0.02,
        0.01,
        round(0.1 / 3, 9),
        round(0.93 - 0.1 / 3, 9),
        0.03,
    ]
    named = Term(PublicInput.PUBLIC_ROWS) in promise.public_inputs
    assert named == (public is not None)


def test_all_gradients_are_told_in_one_entry():
    """Its sensitivity is that of one of them, its cost that of all."""
    guarantee = make(ZCDP(2.0)).fit(np.eye(DIM), list("abcabc")).guarantee_
    release = guarantee.releases[4]
    one = SoftmaxGradient(Lattice(DIM)).squared_sensitivity
    assert release.sensitivity == math.sqrt(one)
    rho = 16 * one / (2 * Fraction(release.parameters["noise_std"]) ** 2)
    assert rho <= Fraction(release.cost["rho"]) <= rho * (1 + Fraction(1, 10**12))
    assert (
        "sum of clipped gradients (3 x 6) by the rounded Gaussian, 16 times (L2 sensitivity "
        in str(guarantee)
    )
    assert len(guarantee.releases) == 6


# What it is good for


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(3, 24))
    y = rng.integers(0, 3, 900)
    X = centers[y] + 0.8 * rng.normal(size=(900, 24)) + 2
    return X, np.array(CLASSES)[y], rng.normal(size=(500, 24)) + 2


@pytest.mark.parametrize("with_public", [True, False])
def test_it_classifies_with_and_without_public_rows(data, with_public):
    X, y, P = data
    model = (
        make(ZCDP(8.0), random_state=0)
        .set_params(public=PublicData(P if with_public else None))
        .fit(X[:600], y[:600])
    )
    assert model.score(X[600:], y[600:]) > 0.9
    probabilities = model.predict_proba(X[600:])
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert (
        np.array(CLASSES)[probabilities.argmax(axis=1)] == model.predict(X[600:])
    ).all()
    assert abs(probabilities.max(axis=1).mean() - model.score(X[600:], y[600:])) < 0.1
    # The released mean is that of unit rows, and each class's representative looks like
    # its rows.
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert np.linalg.norm(model.lattice_.center - unit.mean(axis=0)) < 0.1
    means = np.stack([unit[y == c].mean(axis=0) for c in CLASSES])
    assert np.allclose(np.linalg.norm(model.prototypes_, axis=1), 1, atol=1e-5)
    assert ((model.prototypes_ @ means.T).argmax(axis=1) == np.arange(3)).all()


def in_floats(X, y, noise, public, budget):
    """The rule in plain floats, written down a second time, with given noise."""
    unit = lambda rows: rows / np.linalg.norm(rows, axis=-1, keepdims=True)  # noqa: E731
    (n, k), C, rho = X.shape, y.max() + 1, budget.rho
    counts = np.bincount(y, minlength=C) + noise[1]
    part = min(0.05, 0.1 / C)
    sd_size, sd_counts, sd_mean, sd_moment, sd, sd_last = (
        2 * np.array((0.01, 0.02, 0.01, part, (0.93 - part) / 4, 0.03)) * rho
    ) ** -0.5
    n = max(n + noise[0][0], sd_size, 2 * C)
    kappa = max(0, 1 - sd_counts**2 / counts.var())
    nc = np.maximum(n / C + kappa * (counts - counts.mean()), 0)
    low = min(sd_counts, n / C)
    pi = (nc + low) / (nc + low).sum()
    for t in np.linspace(pi.min(), pi.max(), 100_001):
        w = np.minimum(1, t / pi)
        N = n * (pi * w).sum()
        if sd_mean * k**0.5 <= 0.1 * N:
            break
    m0 = np.zeros(k)
    V = np.eye(k)
    lam = np.full(k, 1 / k)
    if public is not None:
        m0 = unit(public).mean(axis=0)
        V = np.linalg.eigh(np.cov((unit(public)).T))[1]
        lam = ((unit(unit(public) - m0) @ V) ** 2).mean(axis=0)
        lam = (len(public) * lam + 1) / (len(public) + k)
    away = (unit(X) * w[y][:, None]).sum(axis=0) + noise[2] - N * m0
    m = m0 + away / N * max(0, 1 - k * sd_mean**2 / (away**2).sum())
    F = unit(unit(X) - m)
    harmonic = n / np.mean(1 / pi)
    longest = max(min(90, 8 * (n / C) ** (1 / 3)), min(400, 4.5 * harmonic**0.48))
    tol = min(2, max(0.58 * np.log(C), 1.2 * harmonic * C / n))
    tols = [tol * max(1, sorted(pi)[(C - 1) // 2] / share) ** 0.5 for share in pi]
    u = (2 * k) ** 0.5 * sd_moment / 2 / n
    longer = max(longest, min(harmonic**2 / k, 12 / u))
    q = sd * 4 * C / n / tol
    worth = 1 - ((1 / longer + q) / (1 / longest + q)) ** 2
    a = F.T @ F + noise[3]
    hidden = k * (k + 1) * sd_moment**2 / 2
    uneven = k * ((a**2).sum() - hidden) / n**2 - 1
    deviation = 2 * k * hidden / (k * (k + 1)) ** 0.5 / n**2
    r = min(1, max(0, 1 - 2 * (uneven + deviation + deviation**2)))
    r *= harmonic * C / n
    worth *= 1 - r
    if worth == 0:
        longer = longest
    longer = 1 / ((1 - r) / longer + r * 8 / k)
    values, U = np.linalg.eigh(a - n / k * np.eye(k))
    ell = np.maximum(
        1 / k
        + np.sign(values) * np.maximum(values**2 - (2 * n * u) ** 2, 0) ** 0.5 / n,
        0,
    )
    ell = ell / ell.sum()
    slow = np.sqrt(C * pi) / np.minimum(1, nc / low)
    W = np.zeros((C, k))
    velocity = np.zeros((C, k))
    Z = np.zeros((C, k))
    for t in range(16):
        residuals = np.eye(C)[y] - softmax((1 - r) * F @ W.T + np.log(pi), axis=1)
        residuals *= np.minimum(
            1, 0.5 / np.linalg.norm(residuals, axis=1, keepdims=True)
        )
        G = residuals.T @ F + noise[4 + t]
        if (G * velocity).sum() < -3 * sd * np.linalg.norm(velocity):
            slow = slow * 2
        velocity = (velocity + G) / 2
        Z = Z + velocity
        D = np.ones(k)
        if public is not None:
            v = sd**2 * sum((1 - 0.5**j) ** 2 for j in range(1, t + 2))
            E = ((Z @ V - (Z @ V).mean(axis=0)) ** 2).sum(axis=0)
            evidence = []
            factors = []
            for gamma in np.arange(7) / 2:
                for scale in 2.0 ** np.arange(-6, 11):
                    total = v * (1 + scale * k * lam**gamma / (lam**gamma).sum())
                    evidence.append(
                        -(((C - 1) * np.log(total) + E / total).sum()) / 2
                        - 2 * gamma * np.log(k)
                    )
                    factors.append(1 - v / total)
            weights = np.exp(np.array(evidence) - max(evidence))
            D = weights @ np.array(factors) / weights.sum()
            D = np.cbrt(D / D.max())
        q = sd * np.sqrt(16 * (D**2 * lam).sum()) * C / n / np.array(tols)
        if worth > 0:
            for c, least in enumerate(q):
                grid = least * np.geomspace(1e-3, 1, 20_001)
                shorter = (ell / (worth * ell / 6 + grid[:, None]) ** 2).sum(axis=1)
                logits = 4 * sd * C / n * shorter**0.5
                q[c] = grid[min(np.searchsorted(-logits, -tols[c]), 20_000)]
        steps = C / n / (slow[:, None] * (1 / longer + worth * ell / 6) + q[:, None])
        W = ((Z @ V * D) @ V.T @ U * steps) @ U.T / (C * pi[:, None]) ** r
    g = ((pi.min() / pi)[y][:, None] * (1 / C - softmax(F @ W.T, axis=1))).sum(
        axis=0
    ) + noise[20]
    g = g - g.mean()
    sd_last = sd_last * (1 - 1 / C) ** 0.5
    limit = C - 1 + 2 * (2 * (C - 1)) ** 0.5
    if C == 2 and abs(w[0] * pi[0] - w[1] * pi[1]) > 1e-9:
        limit = 1.5 if g[np.argmax(w * pi)] > 0 else 9
    b = 1.5 * g * max(0, 1 - limit * sd_last**2 / (g @ g)) / (n * pi.min())
    spread = ((W @ V) ** 2 @ lam) ** 0.5
    return W, m, np.minimum(np.maximum(b, -2 * spread), 2 * spread)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rho", "with_public", "sizes", "spread"),
    [
        (1e-5, True, (300, 15), 0),
        (0.05, False, (300, 100, 30), 0),
        (1.0, True, (300, 300, 300), 0),
        (1.0, False, (300, 300, 300), 0),
        (200.0, False, (300, 15), 0),
        (1e5, True, (300, 300, 30), 0),
        (1.0, False, (300, 300, 30), 3),  # rows nearly round
    ],
)
def test_it_is_the_rule_in_floats_up_to_the_lattice(
    data, rho, with_public, sizes, spread
):
    X, y, P = data
    kept = np.concatenate(
        [
            np.flatnonzero(y == name)[:size]
            for name, size in zip(CLASSES, sizes, strict=False)
        ]
    )
    X = X[kept] + spread * np.random.default_rng(0).normal(size=(len(kept), 24))
    y = y[kept]
    public = P @ np.diag(np.linspace(2, 0.1, 24)) if with_public else None
    with watched() as entries:
        model = SoftmaxPrototypes(
            ZCDP(rho), CLASSES[: len(sizes)], random_state=3, public=PublicData(public)
        ).fit(X, y)
    rotated = [Frame.of(public, 24).lattice().rotation is not None]
    back = Frame.of(None, 24).basis if rotated[0] else np.eye(24)
    last = residuals.RESOLUTION / residuals.longest_shortfall(len(sizes))
    units = [
        1,
        STEPS,
        STEPS * Lattice(24).scale,
        PARTS * float(Lattice(24).squared_norm),
        *[2 * SoftmaxGradient(Lattice(24)).unit] * 16,
        last,
    ]
    noise = [
        (result - exact) / unit
        for (_, exact, result), unit in zip(entries, units, strict=True)
    ]
    noise = noise[:2] + [values @ back for values in noise[2:-1]] + noise[-1:]
    noise[3] = back.T @ noise[3]
    coef, mean, intercept = in_floats(
        X, np.searchsorted(model.classes_, y), noise, public, ZCDP(rho)
    )
    assert np.abs(model.lattice_.center - mean).max() < 2e-3
    assert np.linalg.norm(model.coef_ - coef) < 0.05 * np.linalg.norm(coef)
    assert (
        np.abs(model.intercept_ - intercept).max()
        < 0.02 + 0.02 * np.abs(intercept).max()
    )


def test_round_clusters_are_classified_as_well_as_by_their_means(monkeypatch):
    """Over ten seeds .006 ahead to .009 behind; where rows never count as round, .016 to .032 behind.

    With seed 0, which made the clusters, the noise of sums would be the means.
    """
    X, y, X_test, y_test, _ = BUILT_IN["clusters"][1]()

    def accuracy(kind):
        model = kind(GaussianDP(1.0), list(range(10)), random_state=1).fit(X, y)
        return balanced_accuracy_score(y_test, model.predict(X_test))

    least = accuracy(MeanPrototypes) - 0.012
    assert accuracy(SoftmaxPrototypes) > least
    monkeypatch.setattr(NoisyMoment, "roundness", lambda self, size: 0.0)
    assert accuracy(SoftmaxPrototypes) < least


@pytest.mark.parametrize("noise_std", [1, 30, 300, 30_000])
def test_rows_with_large_axes_never_count_as_round(noise_std):
    """By the normal law one of 3,000 draws would at most; without the noise's deviation many do at the largest noise."""
    dim = 24
    spectrum = np.r_[np.full(2, 0.25), np.full(dim - 2, 0.5 / (dim - 2))]
    for _ in range(40):
        noise = RNG.normal(size=(dim, dim)) * noise_std
        total = 3000 * np.diag(spectrum) + (noise + noise.T) / 2
        assert NoisyMoment(total, noise_std, np.eye(dim)).roundness(3000) == 0


def test_rows_are_as_round_as_their_axes_are_alike():
    moments = [
        NoisyMoment(np.diag(125 * np.tile(pair, 12)), 0.0, np.eye(24))
        for pair in ((1, 1), (1.5, 0.5), (2, 0))
    ]
    assert [moment.roundness(3000) for moment in moments] == [1, 0.5, 0]


def test_few_large_axes_are_found_as_among_all():
    """Where coordinates are zero, too; noise hides all but seven of 400 axes."""
    dim = 400
    axes, _ = np.linalg.qr(RNG.normal(size=(dim // 2, 10)))
    total = np.zeros((dim, dim))
    total[-len(axes) :, -len(axes) :] = axes * np.linspace(900, 150, 10) @ axes.T
    moment = NoisyMoment(total, 11.0, np.eye(dim))
    curvature = Curvature.of(moment, 3000, 1.0)
    values, along = np.linalg.eigh(total)
    away = values - 3000 / dim
    true = np.sqrt(np.maximum(away**2 - moment.hidden**2, 0))
    spectrum = 3000 / dim + np.sign(away) * true
    spectrum /= spectrum.sum()
    assert curvature.axes.shape == (dim, 7)
    assert np.isclose(curvature.spectrum @ curvature.counts, 1, rtol=1e-12)
    path = RNG.normal(size=(3, dim))
    expected = path @ along / (1 + 100 * spectrum) @ along.T
    lengths = np.tile(1 / (1 + 100 * curvature.spectrum), (3, 1))
    assert np.allclose(curvature.stepped(path, lengths), expected, atol=1e-4)


def test_without_public_rows_the_filter_keeps_all_axes():
    path = RNG.normal(size=(4, 7))
    assert np.allclose(axis_filter(path, 0.1, np.full(7, 1 / 7)), 1, rtol=1e-12)
    factors = axis_filter(
        path * np.geomspace(10, 0.1, 7), 1.0, np.geomspace(1, 1e-4, 7)
    )
    assert factors[0] == 1
    assert factors[-1] < 0.5


def test_along_an_axis_weights_are_the_cube_root_of_its_signal():
    sizes = ClassSizes.of(300.0, np.array([100, 100, 100]), 1.0)
    spectrum = np.geomspace(1, 1e-4, 40)
    spectrum /= spectrum.sum()
    ascent = Ascent(sizes, spectrum, 1.0)
    ascent.move(RNG.normal(size=(3, 40)) * np.sqrt(1 + 400 * spectrum))
    signal = axis_filter(ascent.path, 0.25, spectrum)
    assert signal.min() < 0.5
    unfiltered = ascent.steps[:, None] * ascent.path
    assert np.allclose(ascent.weights / unfiltered, signal ** (1 / 3), rtol=1e-9)


def test_a_step_that_overshoots_halves_those_to_come():
    sizes = ClassSizes.of(300.0, np.array([100, 100, 100]), 1.0)
    ascents = [Ascent(sizes, np.full(4, 0.25), 1e-6) for _ in range(2)]
    gradient = RNG.normal(size=(3, 4))
    for ascent, sign in zip(ascents, (1, -1), strict=True):
        ascent.move(gradient)
        ascent.move(sign * gradient)
    assert (ascents[1]._caps == ascents[0]._caps / 2).all()


def test_a_class_that_noise_hides_is_not_given_up():
    """Its number is read as 0, and its records answer all the same: their step is half of the longest."""
    hidden, seen = (
        Ascent(
            ClassSizes.of(600.0 + rare, np.array([350.0, 250.0, rare]), 50.0),
            np.full(4, 0.25),
            1e-6,
        )
        for rare in (-100.0, 60.0)
    )
    gradient = RNG.normal(size=(3, 4))
    for ascent in hidden, seen:
        ascent.move(gradient)
    assert hidden.sizes.sizes[2] == 0 < seen.sizes.sizes[2]
    length = np.linalg.norm(hidden.weights[2])
    assert length > np.linalg.norm(seen.weights[2]) / 4


def test_noise_is_that_for_the_rows_which_are_summed():
    """A subclass that names another map does not change the rows of the fit, and so not their noise."""
    subclass = type(
        "Pooled", (SoftmaxPrototypes,), {"lattice": dppl.LatticeOptions(pool=4)}
    )
    plan = subclass(ZCDP(2.0), CLASSES).plan(16)
    whole = make().plan(16)
    for name in ("mean", "gradients"):
        assert plan.measurements[name].mechanism == whole.measurements[name].mechanism
    squared_norm = plan.setting.prepared.lattice().squared_norm
    assert (
        plan.measurements["mean"].mechanism.squared_sensitivity
        == STEPS**2 * squared_norm
    )


def test_classes_differ_in_size_only_where_counts_differ_by_more_than_noise():
    equal = ClassSizes.of(300.0, np.array([99, 103, 98]), 10.0)
    assert np.allclose(equal.shares, 1 / 3)
    assert np.allclose(equal.mean_weights(1.0), 1)
    tail = ClassSizes.of(1000.0, np.array([900, 90, 10]), 1.0)
    assert (np.diff(tail.shares) < 0).all()
    # Balanced as far as the noise stays below a tenth of the sum, and not at all where
    # it never does.
    least = tail.shares.min()
    assert np.allclose(tail.mean_weights(300 * least), least / tail.shares)
    for noise in (5.0, 20.0, 99.0):
        weights = tail.mean_weights(noise)
        assert 1000 * tail.shares @ weights == pytest.approx(10 * noise)
        assert (np.diff(weights) >= 0).all()
        assert weights[-1] == 1
    assert (tail.mean_weights(100.001) == 1).all()


def test_a_rare_class_of_two_does_not_split_the_other(monkeypatch):
    """A mean of the frequent class alone leaves its rows without a direction, and nothing else moves the boundary."""
    rng = np.random.default_rng(0)

    def rows(y):
        return np.c_[2 * y - 1, np.zeros((len(y), 15))] + rng.normal(size=(len(y), 16))

    y = np.repeat([1, 0], [100, 1900])
    y_test = np.repeat([0, 1], 2000)
    X = rows(y)
    X_test = rows(y_test)

    def accuracy():
        models = (
            SoftmaxPrototypes(GaussianDP(1.0), [0, 1], random_state=seed).fit(X, y)
            for seed in range(5)
        )
        return np.mean([model.score(X_test, y_test) for model in models])

    assert accuracy() > 0.83
    monkeypatch.setattr(ClassSizes, "mean_weights", lambda self, noise_std: np.ones(2))
    assert accuracy() > 0.83  # intercepts alone mend it
    monkeypatch.setattr(module, "intercepts", lambda shortfalls, *others: np.zeros(2))
    assert accuracy() < 0.78


def test_noise_moves_no_boundary_beyond_the_scores():
    sizes = ClassSizes.of(1000.0, np.array([900.0, 100.0]), 1.0)
    asked = np.array([300.0, -300.0]), 50.0, sizes, np.array([0.2, 1.0])
    usual = np.zeros(2)
    near = intercepts(*asked, np.full(2, 0.1), usual)
    assert near == pytest.approx([0.2, -0.2])
    far = intercepts(*asked, np.full(2, 10.0), usual)
    assert 1 < far[0] < 5
    # Of a start there are usual ones, which noise does not move.
    usual = np.array([1.0, -1.0])
    quiet = intercepts(np.zeros(2), 500.0, *asked[2:], np.full(2, 10.0), usual)
    assert quiet == pytest.approx(usual)


@pytest.fixture(scope="module")
def rare():
    """Two classes of 3,000 and 100 records, and a model of them."""
    rng = np.random.default_rng(4)
    y = np.repeat(["common", "rare"], [3000, 100])
    X = np.c_[2.0 * (y == "rare") - 1, np.zeros((len(y), 15))] + rng.normal(
        size=(len(y), 16)
    )
    order = rng.permutation(len(y))
    return (
        X[order],
        y[order],
        SoftmaxPrototypes(GaussianDP(2.0), np.unique(y), random_state=0).fit(X, y),
    )


def test_shares_of_the_data_make_probabilities_of_a_rare_class_right(rare):
    X, y, model = rare
    assert model.shares_[1] == pytest.approx(100 / 3100, rel=0.1)
    found = {
        shares: model.predict_proba(X, shares=shares)[:, 1].mean()
        for shares in ("equal", "data")
    }
    assert found["data"] == pytest.approx(100 / 3100, rel=0.5)
    assert found["equal"] > 0.1
    assert np.mean(
        model.predict_proba(X, shares="data").argmax(axis=1) == (y == "rare")
    ) > model.score(X, y)


def test_the_tools_of_scikit_learn_choose_thresholds(rare):
    X, y, model = rare
    assert model.decision_function(X).shape == (len(X),)
    area = roc_auc_score(y == "rare", model.decision_function(X))
    assert area > 0.85
    # Costs decide: a false alarm costs a tenth of a miss.
    costly = FixedThresholdClassifier(
        FrozenEstimator(model), threshold=-2.0, response_method="decision_function"
    )
    recall = [
        np.mean(one.predict(X)[y == "rare"] == "rare")
        for one in (model, costly.fit(X, y))
    ]
    assert recall[0] < recall[1]
    tuned = TunedThresholdClassifierCV(
        FrozenEstimator(model), scoring="balanced_accuracy", cv="prefit", refit=False
    )
    assert balanced_accuracy_score(
        y, tuned.fit(X, y).predict(X)
    ) >= balanced_accuracy_score(y, model.predict(X))


def test_int8_rows_are_directions(data):
    X, y, P = data
    q = Lattice(24).transform(X)
    models = [
        make(ZCDP(8.0), random_state=0).set_params(public=PublicData(P)).fit(rows, y)
        for rows in (q, q.astype(np.float64))
    ]
    assert models[0].score(X, y) > 0.9
    assert np.allclose(models[0].coef_, models[1].coef_, rtol=0.05, atol=0.05)


def test_huge_coordinates_are_spread_before_rounding(data):
    X, y, P = data
    X, P = (
        np.concatenate([np.full((len(rows), 1), 60.0), rows], axis=1) for rows in (X, P)
    )
    for public in (P, None):
        assert (
            make(ZCDP(50.0), random_state=0)
            .set_params(public=PublicData(public))
            .fit(X, y)
            .score(X, y)
            > 0.9
        )


@pytest.fixture(scope="module")
def overshadowed():
    """Ten classes that differ in small coordinates, beside three that are 400 times as large and tell nothing."""
    rng = np.random.default_rng(2)
    y = np.arange(2000) % 10
    X = rng.normal(size=(10, 128))[y] + 0.8 * rng.normal(size=(2000, 128))
    P = rng.normal(size=(500, 128))
    for rows in (X, P):
        rows[:, :3] = 400 * (1 + 0.2 * rng.normal(size=(len(rows), 3)))
    return X, y, P


def accuracy_beside_huge_coordinates(overshadowed, with_public):
    X, y, P = overshadowed
    model = SoftmaxPrototypes(ZCDP(4.0), range(10), random_state=0)
    return (
        model.set_params(public=PublicData(P if with_public else None))
        .fit(X[:1500], y[:1500])
        .score(X[1500:], y[1500:])
    )


@pytest.mark.parametrize("with_public", [True, False])
def test_small_coordinates_count_beside_huge_ones(
    overshadowed, with_public, monkeypatch
):
    """Without public rows nothing tells whether there are huge ones, so all rows are rotated. Six seeds gave 99.8 %."""
    X, _, P = overshadowed
    assert Frame.of(None, 128).rotation is not None
    assert Frame.of(P, 128).rotation is not None
    assert Frame.of(X[:, 3:], 125).rotation is None
    assert accuracy_beside_huge_coordinates(overshadowed, with_public) > 0.97
    # The control: in the encoder's own coordinates, rounding leaves little of the small
    # ones (34 to 42 %).
    whole = Frame.of.__func__
    monkeypatch.setattr(
        Frame,
        "of",
        classmethod(lambda cls, *given: replace(whole(cls, *given), rotation=None)),
    )
    assert accuracy_beside_huge_coordinates(overshadowed, with_public) < 0.7


# Extremes: no warning (they are errors here), and finite weights


def fits(X, y, classes, budget, public):
    model = SoftmaxPrototypes(
        budget, classes, random_state=0, public=PublicData(public)
    ).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.prototypes_).all()
    assert np.isfinite(model.predict_proba(np.eye(X.shape[1]))).all()
    return model


POOLS = {
    "none": None,
    "empty": np.empty((0, 8)),
    "one row": np.ones((1, 8)),
    "equal rows": np.ones((5000, 8)),
    "zero rows": np.zeros((5, 8)),
    "another kind": -np.abs(RNG.normal(size=(50, 8))) - 5,
    "int8": RNG.integers(-50, 50, (50, 8)).astype(np.int8),
}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("budget", [ZCDP(1e-9), ZCDP(0.5), ZCDP(1e6), ZCDP(1e13)])
def test_extremes_of_pools_and_budgets(pool, budget):
    centers = RNG.normal(size=(4, 8)) * 3
    y = RNG.integers(0, 4, 400)
    X = centers[y] + RNG.normal(size=(400, 8))
    model = fits(X, y, range(5), budget, POOLS[pool])
    if budget.rho >= 1e6:
        assert model.score(X, y) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "budget"),
    [
        *(
            (kind, ZCDP(0.5))
            for kind in (
                "no records",
                "one record",
                "equal rows",
                "zero rows",
                "one class",
            )
        ),
        *(("usual", ZCDP(rho)) for rho in (1e-9, 0.5, 1e6)),
    ],
)
@pytest.mark.parametrize("n_classes", [1, 2, 300])
def test_extremes_of_records_and_classes(budget, n_classes, kind):
    X = RNG.normal(size=(100, 8))
    y = np.arange(100) % n_classes
    X = {"equal rows": np.ones_like(X), "zero rows": np.zeros_like(X)}.get(kind, X)
    y = np.zeros_like(y) if kind == "one class" else y
    few = {"no records": 0, "one record": 1}.get(kind, 100)
    for public in (None, PUBLIC @ np.ones((DIM, 8))):
        fits(X[:few], y[:few], range(n_classes), budget, public)


def test_wide_rows_and_one_column():
    for width in (1, 2, 1500):
        fits(RNG.normal(size=(30, width)), np.arange(30) % 3, range(3), ZCDP(1.0), None)


@pytest.mark.parametrize(
    "form", [np.ndarray.tolist, np.ndarray.copy], ids=["list", "array"]
)
def test_private_rows_as_public_ones_are_refused_whatever_holds_them(form):
    rows = form(np.eye(DIM))
    with pytest.raises(
        dppl.errors.ParameterError, match=r"public.rows must be public data"
    ):
        make().set_params(public=PublicData(rows)).fit(rows, list("abcabc"))
    make().set_params(public=PublicData(form(np.eye(DIM)))).fit(rows, list("abcabc"))
