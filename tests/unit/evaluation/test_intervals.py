"""Estimates and intervals: against the formulas on known tables, and how often they cover."""

import numpy as np
import pytest
from scipy import stats

from dppl.evaluation import intervals
from dppl.kernel.queries.outcomes import SCORE_EDGES, TEMPERATURES

Z = 1.6448536269514722


def wilson(h, n, z):
    """Return Wilson's interval of a proportion, by its usual formula."""
    p = h / n
    middle = (h + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(n * p * (1 - p) + z * z / 4)
    return p, middle - half, middle + half


@pytest.mark.parametrize(("h", "n"), [(80, 100), (3, 50), (0, 20), (19, 20), (1, 2)])
def test_without_noise_a_ratio_has_the_interval_of_wilson(h, n):
    assert intervals.ratio(h, n - h, 0, 0, Z) == pytest.approx(
        wilson(h, n, Z), abs=1e-12
    )


@pytest.mark.parametrize(
    ("h", "m", "vh", "vm"),
    [(80, 40, 100.0, 100.0), (500, 20, 50.0, 200.0), (30, 300, 121.0, 121.0)],
)
def test_the_ends_of_a_ratio_solve_the_equation(h, m, vh, vm):
    value, low, high = intervals.ratio(h, m, vh, vm, Z)
    n = h + m
    assert low < value < high
    for a in (low, high):
        if 0 < a < 1:
            square = Z**2 * (n * a * (1 - a) + (1 - a) ** 2 * vh + a**2 * vm)
            assert ((1 - a) * h - a * m) ** 2 == pytest.approx(square, rel=1e-9)


@pytest.mark.parametrize(
    ("h", "m"), [(12, 30), (30, 12), (10, 10), (-5, 3), (0, 0), (-7, -9), (16, 1000)]
)
def test_an_end_is_0_or_1_exactly_where_noise_could_make_it_all(h, m):
    v = 100.0
    _, low, high = intervals.ratio(h, m, v, v, Z)
    assert (low == 0) == (max(h, 0) <= Z * np.sqrt(v))
    assert (high == 1) == (max(m, 0) <= Z * np.sqrt(v))


# Known tables with the numbers of an independent float version of the same formulas.
SIZES = np.array([400.0, 390.0, 150.0, 130.0, 60.0, 20.0, -4.0, 9.0])


def test_bands_by_factors_of_3_and_a_tail_of_what_is_lost_in_noise():
    bands = intervals.bands_of(SIZES, 12.0)
    assert bands.of_class.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert bands.tail.tolist() == [False, False, True]
    assert bands.weights[:5] == pytest.approx([150 / 400, 150 / 390, 1, 60 / 130, 1])
    assert (bands.weights[5:] == 1).all()


def test_balanced_accuracy_without_noise_is_the_mean_recall():
    recall = np.array([0.9, 0.5, 0.7, 0.1])
    sizes = np.array([1000.0, 500.0, 100.0, 50.0])
    bands = intervals.bands_of(sizes, 1e-9)
    hits, n = (
        np.bincount(bands.of_class, bands.weights * sizes * share)
        for share in (recall, np.ones(4))
    )
    value, low, high = intervals.balanced_accuracy(
        np.stack([hits, n - hits]), 1e-12, bands, sizes, 1e-9, Z
    )
    assert value == pytest.approx(recall.mean())
    assert low < value < high


def test_a_band_that_is_lost_is_anything_and_a_tail_gives_bounds():
    bands = intervals.bands_of(np.array([3.0, 2.0, -1.0]), 10.0)
    assert bands.tail.all()
    lost = intervals.balanced_accuracy(
        np.array([[2.0], [1.0]]), 50.0, bands, np.array([3.0, 2.0, -1.0]), 10.0, Z
    )
    assert np.isnan(lost[0])
    assert lost[1:] == (0, 1)
    # 300 of 600 records in 30 classes of which none has more than 50: Σ recall is at
    # least 300/50.
    sizes = np.full(30, 40.0)
    bands = intervals.Bands(np.zeros(30, int), np.ones(30), np.array([True]))
    value, low, high = intervals.balanced_accuracy(
        np.array([[300.0], [300.0]]), 1e-9, bands, sizes, 10.0, 1e-9
    )
    assert np.isnan(value)
    assert (low, high) == pytest.approx((300 / 50 / 30, 1 - 300 / 50 / 30))


def test_auroc_without_noise_counts_pairs():
    positive = np.array([0.0, 1, 2, 7])
    negative = np.array([6.0, 3, 1, 0])
    pairs = (
        sum(p * (negative[:k].sum() + negative[k] / 2) for k, p in enumerate(positive))
        / 100
    )
    value, low, high = intervals.auroc(np.stack([negative, positive]), 1e-12, Z)
    assert value == pytest.approx(pairs)
    assert low < value < high
    assert intervals.auroc(np.zeros((2, 4)), 1.0, Z) == (0.5, 0, 1)


def test_a_temperature_is_where_confidence_meets_accuracy():
    logs = np.log(TEMPERATURES)
    assert intervals.temperature(np.log(1.2) - logs) == pytest.approx(1.2)
    assert intervals.temperature(np.ones(5)) == pytest.approx(TEMPERATURES[-1])
    assert intervals.temperature(-np.ones(5)) == pytest.approx(TEMPERATURES[0])


def coverage(rates, sizes, sigma, of_noise):
    """Return how often accuracy, balanced accuracy and recall cover, over many draws of records and noise."""
    rng = np.random.default_rng(7)
    n_draws = 1500
    inside = np.zeros((n_draws, 3))
    share = sizes / sizes.sum()
    for draw in inside:
        n = rng.multinomial(int(sizes.sum()), share)
        hits = rng.binomial(n, rates)
        noise = lambda shape: np.rint(rng.normal(0, sigma, shape))  # noqa: E731
        v = (sigma**2 + 1 / 12) * of_noise
        table = np.stack([hits, n - hits]) + noise((2, len(n)))
        h, m = np.array([hits.sum(), n.sum() - hits.sum()]) + noise(2)
        _, low, high = intervals.ratio(h, m, v, v, Z)
        draw[0] = low <= share @ rates <= high
        bands = intervals.bands_of(table.sum(axis=0), np.sqrt(2 * v))
        exact = np.stack(
            [
                np.bincount(bands.of_class, bands.weights * one)
                for one in (hits, n - hits)
            ]
        )
        noisy = exact + noise(exact.shape)
        _, low, high = intervals.balanced_accuracy(
            noisy, v, bands, table.sum(axis=0), np.sqrt(2 * v), Z
        )
        draw[1] = low <= rates.mean() <= high
        _, low, high = intervals.ratio(*table, v, v, Z)
        draw[2] = np.mean((low <= rates) & (rates <= high))
    return inside.mean(axis=0)


RATES = np.array([0.95, 0.9, 0.8, 0.6, 0.3, 0.05])
RECORDS = np.array([300.0, 200, 100, 60, 30, 10])


@pytest.mark.slow
def test_intervals_cover_sampling_and_noise():
    """Of true coverage 0.9 so many draws give less than 0.872 with probability 1e-4 (3.7 standard errors of 0.0077)."""
    assert (coverage(RATES, RECORDS, 8.0, 1.0) > 0.872).all()


@pytest.mark.slow
def test_intervals_that_ignore_the_noise_do_not():
    """The negative control: widths for sampling alone."""
    assert (coverage(RATES, RECORDS, 8.0, 1e-9) < 0.85).all()


# Of true coverage 0.9 so many draws cover less than this with probability 1e-6.
DRAWS = 500
LEAST = stats.binom.ppf(1e-6, DRAWS, 0.9)
# Records, mu, and the scores of both classes: spread out, next to 0, next to 1, and all
# in the two middle bins.
SPREAD = (2000, 1.0, (2, 5), (5, 2))
SCORES = [
    SPREAD,
    (4000, 1.0, (1, 400), (2, 200)),
    (2000, 0.3, (200, 1), (400, 1)),
    (2000, 1.0, (500, 500), (520, 480)),
]


def covered_aurocs(n, mu, first, second, part=1.0):
    """Return how many intervals, of which a part of the width is taken, hold the true AUROC; and their mean width."""
    rng = np.random.default_rng(0)
    v = 1 / (0.35 * mu**2)
    laws = [stats.beta(*one) for one in (first, second)]
    shares = [np.diff(law.cdf([0, *SCORE_EDGES, 1])) for law in laws]
    truth = laws[0].cdf(laws[1].ppf((np.arange(10_000) + 0.5) / 10_000)).mean()
    tables = np.stack(
        [rng.multinomial(n // 2, share, DRAWS) for share in shares], axis=1
    )
    ends = np.array(
        [
            intervals.auroc(one + rng.normal(0, np.sqrt(v), one.shape), v, Z)
            for one in tables
        ]
    )
    value, low, high = ends.T
    held = (value - part * (value - low) <= truth) & (
        truth <= value + part * (high - value)
    )
    return held.sum(), (high - low).mean()


@pytest.mark.slow
@pytest.mark.parametrize("setting", SCORES)
def test_an_auroc_holds_wherever_the_scores_are(setting):
    assert covered_aurocs(*setting)[0] >= LEAST


def test_an_auroc_is_narrow_where_scores_are_spread_and_too_narrow_a_one_is_noticed():
    assert covered_aurocs(*SPREAD)[1] < 0.035
    # Half of this width would be more than sampling and noise need, without pairs
    # within a bin.
    assert covered_aurocs(*SCORES[1], part=0.5)[0] < LEAST


def covered_gaps(n, mu, right, confidence, of_gap=intervals.gap):
    """Return how many intervals hold the true gap, where confidence is uniform in a range."""
    rng = np.random.default_rng(0)
    held = 0
    v = 1 / (0.1 * mu**2)
    v_n = 3 / (0.15 * mu**2)
    for _ in range(DRAWS):
        sure = rng.uniform(*confidence, n)
        hits = rng.random(n) < (sure if right is None else right)
        sums = np.full(
            len(TEMPERATURES), (sure - hits).sum() + rng.normal(0, np.sqrt(v))
        )
        accuracy = np.clip(hits.mean() + rng.normal(0, np.sqrt(v_n)) / n, 0, 1)
        noisy_n = n + rng.normal(0, np.sqrt(v_n))
        _, low, high = of_gap(sums, v, accuracy, noisy_n, v_n, Z)
        held += low <= (0 if right is None else np.mean(confidence) - right) <= high
    return held


# Records, mu, the share of right answers (None: as often as confidence says), and the
# range of confidence.
ALL_RIGHT = (5000, 1.0, 1.0, (0.5, 1.0))
ALL_WRONG = (400, 0.05, 0.0, (0.9, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        ALL_RIGHT,
        ALL_WRONG,
        (2000, 5.0, 0.98, (0.5, 0.95)),
        (2000, 1.0, None, (0.5, 1.0)),
    ],
)
def test_a_gap_holds_whatever_confidence_has_to_do_with_right_answers(setting):
    assert covered_gaps(*setting) >= LEAST


def test_gaps_that_ignore_how_confidence_varies_or_the_noise_of_the_number_would_be_noticed():
    def by_accuracy(sums, v, accuracy, n, v_n, z):
        return intervals._signed_share(
            sums[0], n * accuracy * (1 - accuracy) + v, n, v_n, z
        )

    assert covered_gaps(*ALL_RIGHT, by_accuracy) < LEAST
    assert (
        covered_gaps(
            *ALL_WRONG, lambda *given: intervals.gap(*given[:4], 0.0, given[5])
        )
        < LEAST
    )


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_a_mean_holds_also_where_noise_decides_which_classes_are_known(right):
    sizes = 500 / np.arange(1, 78)
    v = 10.0**2
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(400):
        noise = np.sqrt(v) * rng.standard_normal((2, 77))
        _, low, high = intervals.mean_ratio(
            right * sizes + noise[0], (1 - right) * sizes + noise[1], v, v, 1.645, 1.0
        )
        missed += not low <= right <= high
    assert missed <= stats.binom.ppf(1 - 1e-6, 400, 0.1)


def test_classes_that_are_lost_in_noise_are_bounded_together_by_the_largest():
    """At 90 % more than 39 of 200 intervals miss with a probability below 1e-5; a bound by the mean size misses most."""
    rng = np.random.default_rng(4)
    large = np.arange(200) < 20
    hits = np.where(large, 100.0, 0.0)
    misses = np.where(large, 0.0, 5.0)
    v = 30.0**2
    missed = 0
    lowest = []
    for _ in range(200):
        noise = np.sqrt(v) * rng.standard_normal((2, 200))
        found = intervals.mean_ratio(
            hits + noise[0], misses + noise[1], v, v, 1.645, 1.0
        )
        assert np.isnan(found[0])
        missed += not found[1] <= 0.1 <= found[2]
        lowest.append(found[1])
    assert missed <= 39
    assert np.mean(lowest) > 0.01
