"""The error among answered records is at most the stated one, as often as is stated; other rules are caught."""

import json

import numpy as np
import pytest
from scipy.stats import binom, norm

import dppl
from dppl import ApproxDP, GaussianDP
from dppl.errors import ParameterError
from dppl.evaluation import AlreadyPredicted, Evaluation, intervals, public_threshold
from dppl.kernel.queries.outcomes import CONFIDENCES

N_RANGES = len(CONFIDENCES) - 1
DRAWS = 100
FALSE_ALARM = 1e-6
SHARES = np.arange(1, N_RANGES + 1) / np.arange(1, N_RANGES + 1).sum()


def errors(kind, stated):
    """Return the error in each range: everywhere a little above the stated one, or falling through it."""
    if kind == "everywhere":
        return np.full(N_RANGES, 1.0001 * stated)
    return np.minimum(np.linspace(4, 0.25, N_RANGES) * stated, 1)


def wrongly_chosen(choose, kind, stated, noise_std, n=3000):
    """Return in how many draws the error from the chosen range on, of all records, is above the stated one."""
    rng = np.random.default_rng(5)
    error = errors(kind, stated)
    wrongly = 0
    beyond = np.cumsum((SHARES * error)[::-1])[::-1] / np.cumsum(SHARES[::-1])[::-1]
    for _ in range(DRAWS):
        number = rng.multinomial(n, SHARES)
        wrong = rng.binomial(number, error)
        noisy = [
            np.rint(counts + rng.normal(0, noise_std, N_RANGES))
            for counts in (number - wrong, wrong)
        ]
        chosen = choose(*noisy, noise_std**2, stated)
        wrongly += chosen is not None and beyond[chosen] > stated
    return wrongly


def calibrated(right, wrong, v, stated):
    return intervals.answered_from(right, wrong, v, stated, 0.9)


def by_point_estimates(right, wrong, v, stated):
    h = np.cumsum(right[::-1])
    m = np.cumsum(wrong[::-1])
    fine = np.flatnonzero(m <= stated * (h + m))
    return N_RANGES - 1 - int(fine[-1]) if len(fine) else None


def without_noise(right, wrong, v, stated):
    return intervals.answered_from(
        np.maximum(np.rint(right), 0), np.maximum(np.rint(wrong), 0), 0.0, stated, 0.9
    )


# Errors above the stated one in more draws than this are as improbable as a false
# alarm.
MOST = int(binom.isf(FALSE_ALARM, DRAWS, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("stated", [0.05, 0.3])
@pytest.mark.parametrize("noise_std", [0.0, 8.0])
@pytest.mark.parametrize("kind", ["everywhere", "falling"])
def test_a_chosen_threshold_keeps_its_error_as_often_as_is_stated(
    stated, noise_std, kind
):
    assert wrongly_chosen(calibrated, kind, stated, noise_std) <= MOST


def test_thresholds_by_point_estimates_and_without_noise_are_caught():
    assert wrongly_chosen(by_point_estimates, "everywhere", 0.05, 0.0) > MOST
    assert wrongly_chosen(by_point_estimates, "falling", 0.05, 8.0) > MOST
    assert wrongly_chosen(without_noise, "everywhere", 0.05, 25.0) > MOST


def test_without_noise_the_level_is_exact():
    for n, wrong, stated in ((50, 0, 0.05), (300, 7, 0.05), (300, 25, 0.1)):
        exact = binom.cdf(wrong, n, stated)
        assert intervals.keeps_error(wrong, n, 0.0, stated, exact * (1 + 1e-9))
        assert not intervals.keeps_error(wrong, n, 0.0, stated, exact * (1 - 1e-9))


def test_with_noise_the_level_is_a_sum_over_all_that_is_possible():
    n = 400
    v = 100.0
    spread = np.sqrt(100 * (0.9**2 + 0.1**2))
    found = set()
    for level in np.linspace(0.01, 0.3, 30):
        raised = int(
            np.ceil(n + norm.isf(0.1 * level) * np.sqrt(2 * v))
        )  # a tenth of the level is for the number
        possible = np.arange(raised + 1)
        below = 22 - 0.1 * n - (possible - 0.1 * raised)
        exact = binom.pmf(possible, raised, 0.1) @ norm.cdf(below / spread)
        assert intervals.keeps_error(22, n, v, 0.1, level) == (exact <= 0.9 * level)
        found.add(bool(exact <= 0.9 * level))
    assert found == {True, False}


def test_a_threshold_passes_on_what_it_was_tested_at():
    """Answers in the highest range and in the lowest: 15 thresholds, the last of which has one wrong answer in 33."""
    right, wrong = np.zeros((2, N_RANGES))
    right[[0, -1]], wrong[[0, -1]] = (191, 100), (9, 0)
    share = 0.1 / N_RANGES
    last = binom.cdf(9, 300, 0.05)
    assert binom.cdf(0, 100, 0.05) < share < binom.cdf(1, 100, 0.05)
    assert share < last < 0.1
    assert (
        intervals.answered_from(right, wrong, 0.0, 0.05, 0.9) == 0
    )  # at the levels of all that passed
    right[[0, -1]], wrong[[0, -1]] = (192, 99), (8, 1)
    assert intervals.answered_from(right, wrong, 0.0, 0.05, 0.9) is None


def records(n=4000, seed=0):
    """Return probabilities of two classes that are as often right as they say, and labels."""
    rng = np.random.default_rng(seed)
    sure = rng.uniform(0.5, 1, n)
    y = np.where(rng.random(n) < 0.5, "a", "b")
    right = rng.random(n) < sure
    of_a = np.where((y == "a") == right, sure, 1 - sure)
    return np.stack([of_a, 1 - of_a], axis=1), y


def test_an_evaluation_chooses_as_public_records_do_where_noise_is_small():
    X, y = records()
    model = AlreadyPredicted(["a", "b"])
    exact = public_threshold(model, X, y, max_error=0.1)
    private = dppl.evaluate(
        model, X, y, GaussianDP(50), parts=["reliability"], random_state=0
    ).threshold(0.1)
    assert exact.min_confidence == private.min_confidence == 0.9
    assert public_threshold(model, X, y, max_error=0.4).min_confidence == 0
    answered = np.mean(X.max(axis=1) >= 0.9)
    assert exact.answered.value == pytest.approx(answered)
    assert private.answered.low <= answered <= private.answered.high
    assert str(exact).startswith(
        "at most 10 % of the answers with a confidence of 0.9 or more are wrong, with 90 %"
    )


def test_a_threshold_costs_nothing_and_is_read_off_the_file():
    X, y = records()
    options = {"parts": ["reliability"], "random_state": 0}
    one = dppl.evaluate(
        AlreadyPredicted(["a", "b"]), X, y, ApproxDP(1, 1e-6), **options
    )
    again = Evaluation.from_dict(json.loads(one.to_json()))
    assert again.threshold(0.2) == one.threshold(0.2)
    assert one.threshold(0.2).min_confidence is not None
    strict = one.threshold(0.0001)
    assert (strict.min_confidence, strict.answered.value) == (None, 0)
    assert str(strict).startswith("no confidence is known to keep the error at 0.01 %")


def test_what_cannot_be_chosen():
    X, y = records(50)
    model = AlreadyPredicted(["a", "b"])
    with pytest.raises(ParameterError, match="'reliability'"):
        dppl.evaluate(model, X, y, GaussianDP(1), random_state=0).threshold()
    with pytest.raises(ParameterError, match="predict_proba"):
        public_threshold(model, y, y)
    with pytest.raises(ParameterError, match="strictly between 0 and 1"):
        public_threshold(model, X, y, max_error=0)
