import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import dppl
from dppl import ZCDP, ApproxDP
from dppl.errors import BudgetError, ParameterError
from dppl.io import load_sample
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.mechanisms import RoundedGaussian, SampledGaussian
from dppl.kernel.mechanisms.randomness import SeededRandomness, SystemRandomness
from dppl.kernel.privacy import Ledger
from dppl.kernel.privacy.sampling import sampled_gaussian_multiplier
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.privacy.terms import Mechanism, Term
from dppl.methods import LinearProbe
from dppl.methods.probe import SIZE_PERCENT

CLASSES = ["a", "b", "c"]
DIM = 6
NO_NOISE = ZCDP(1e13)
ROUGH = ApproxDP(5.0, 1e-5)
# One setting for all tests, since calibrating takes a second or more.
SAMPLED = {"sampling_rate": 0.5, "batch_size": 60.0, "steps": 5}


def make(budget=NO_NOISE, **options):
    return LinearProbe(
        budget, CLASSES, **{"random_state": 0, "unknown_labels": "ignore", **options}
    )


def problem(seed=0, n=120, dim=DIM):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, dim)) + 1.2 * rng.normal(size=(3, dim))[y]
    return X, np.array(CLASSES)[y]


def test_without_noise_and_clipping_it_is_logistic_regression():
    """To 1e-3 of a weight: rounding to the lattice is taken out, so what is left is the rounding of logits."""
    X, y = problem()
    model = make(steps=600, clip=math.sqrt(2), learning_rate=2.0).fit(X, y)
    rows = model.lattice_.transform(X) / model.lattice_.scale
    reference = LogisticRegression(
        C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000
    ).fit(rows, y)
    # Softmax weights are the same up to a shift of all classes.
    ours, theirs = (one.coef_ - one.coef_.mean(axis=0) for one in (model, reference))
    assert np.abs(ours - theirs).max() < 1e-3
    assert (
        np.abs(
            model.predict_proba(X) - reference.predict_proba(model.lattice_.features(X))
        ).max()
        < 1e-3
    )
    # The agreement is with the right clipping norm.
    assert (
        np.abs(
            make(steps=50, clip=0.3).fit(X, y).coef_ - make(steps=50).fit(X, y).coef_
        ).max()
        > 1e-2
    )


def test_the_first_step_is_the_class_sums():
    X, y = problem()
    model = make(steps=1, batch_size=10.0, learning_rate=0.5).fit(X, y)
    rows = model.lattice_.transform(X) / model.lattice_.scale
    r = (y[:, None] == CLASSES) - 1 / 3
    assert np.allclose(model.coef_, 0.5 * 3 / 10 * r.T @ rows, atol=1e-4)


def test_it_learns_the_sample():
    sample = load_sample()
    model = LinearProbe(ZCDP(2.0), sample.classes, steps=20, random_state=1).fit(
        sample.X, sample.y
    )
    assert model.score(sample.X_test, sample.y_test) > 0.75
    proba = model.predict_proba(sample.X_test)
    assert np.allclose(proba, softmax(model.decision_function(sample.X_test), axis=1))
    assert proba.shape == (len(sample.X_test), 10)


# The promise: what is released, how far a record can move it, and what that costs.


@pytest.mark.parametrize("options", [{}, {"batch_size": 50.0}])
def test_the_sensitivity_is_the_length_of_the_longest_gradient(options):
    model = make(ZCDP(0.37), steps=3, **options).fit(*problem(n=9))
    gradients, *size = model.guarantee_.releases
    squared = RESOLUTION**2 * model.lattice_.squared_norm
    assert gradients.sensitivity == pytest.approx(math.sqrt(squared), rel=1e-12)
    assert [one.sensitivity for one in size] == ([] if "batch_size" in options else [1])
    # Exactly, in squares of mu: the steps and the number of records.
    cost = 3 * squared / Fraction(gradients.parameters["noise_std"]) ** 2
    cost += sum(1 / Fraction(one.parameters["noise_std"]) ** 2 for one in size)
    assert (
        0.999999 * 0.74
        < cost
        <= Fraction(model.guarantee_.mu) ** 2
        <= Fraction(ZCDP(0.37).gaussian_allowance().mu) ** 2
    )


# Poisson samples.


def test_samples_are_of_the_stated_rate():
    """False alarms: 1e-6 a source, by the exact binomial distribution; a rate off by a tenth is always found."""
    noise = SampledGaussian(
        each=RoundedGaussian(squared_sensitivity=Fraction(1), noise_std=1.0),
        times=1,
        threshold=round(0.3 * 2**32),
        delta=ROUGH.delta,
    )
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 100_000, 0.3)
    for source in (SystemRandomness(), SeededRandomness(0)):
        assert low <= noise.sample(100_000, source).sum() <= high
        assert not noise.sample(0, source).size
    assert not low <= stats.binom.ppf(1e-9, 100_000, 0.33) <= high


def test_a_step_sums_the_sample_and_nothing_else(monkeypatch):
    X, y = problem()
    masks = []
    calls = []
    original = SampledGaussian.sample
    original_sum = SoftmaxGradient.sum

    def sample(self, n, source):
        masks.append(original(self, n, source))
        return masks[-1]

    def total(self, blocks, codes, *others, **options):
        blocks = list(blocks)
        calls.append((np.concatenate(blocks), codes))
        return original_sum(self, blocks, codes, *others, **options)

    monkeypatch.setattr(SampledGaussian, "sample", sample)
    monkeypatch.setattr(SoftmaxGradient, "sum", total)
    model = make(ROUGH, **SAMPLED).fit(X, y)
    assert len({mask.tobytes() for mask in masks}) == len(masks) == len(calls) == 5
    rows = model.lattice_.transform(X)
    codes = np.searchsorted(CLASSES, y)
    for mask, (some_rows, some_codes) in zip(masks, calls, strict=True):
        assert (some_rows == rows[mask]).all()
        assert (some_codes == codes[mask]).all()


def test_sampling_needs_less_noise_and_keeps_its_promise(tmp_path):
    X, y = problem()
    model = make(ROUGH, **SAMPLED).fit(X, y)
    (release,) = model.guarantee_.releases
    assert release.cost["delta"] == 1e-5
    assert 4.99 < release.cost["epsilon"] <= 5.0
    assert release.parameters["sampling_rate"] == 0.5
    full = make(ROUGH, steps=5, batch_size=60.0).fit(X, y).guarantee_.releases[0]
    assert release.parameters["noise_std"] < 0.7 * full.parameters["noise_std"]
    # The accounting is for continuous noise; what was drawn is that noise, rounded.
    assert model.guarantee_.exact
    assert "RESEARCH USE" not in str(model.guarantee_)
    assert (release.mechanism, release.times) == (
        Term(Mechanism.SAMPLED_ROUNDED_GAUSSIAN),
        5,
    )
    # It has no cost in Gaussian DP; at other deltas its noise says what holds.
    assert model.guarantee_.mu is None
    at = [model.guarantee_.epsilon(delta) for delta in (1e-7, 1e-5, 1e-3)]
    assert at[0] > 5.0 >= at[1] > at[2]
    assert at[1] > 4.9
    model.save(tmp_path / "model.safetensors")
    again = dppl.load(tmp_path / "model.safetensors")
    assert (again.predict(X) == model.predict(X)).all()
    assert again.guarantee_.to_dict() == model.guarantee_.to_dict()


def test_a_ledger_does_not_charge_samples(tmp_path):
    X, y = problem()
    ledger = Ledger(tmp_path / "ledger.db", "records", ApproxDP(20.0, 1e-5))
    with pytest.raises(BudgetError, match="a ledger cannot charge it"):
        make(ROUGH, **SAMPLED).fit(X, y, ledger=ledger)
    assert not ledger.releases()
    make(ROUGH, steps=5).fit(X, y, ledger=ledger)
    assert len(ledger.releases()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(5.0, 0.5, 5), (0.3, 0.01, 200)]
)
def test_the_noise_of_samples_is_as_accounted(epsilon, rate, steps):
    """Above what amplification at best could give, below that without sampling, and on the safe side."""
    import dp_accounting
    from dp_accounting import rdp

    multiplier = sampled_gaussian_multiplier(epsilon, 1e-5, rate, steps)
    step = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(multiplier)
    )
    by_renyi = (
        rdp.RdpAccountant()
        .compose(dp_accounting.SelfComposedDpEvent(step, steps))
        .get_epsilon(1e-5)
    )
    # Rényi accounting, computed another way, is looser; much looser or tighter would be
    # a mistake here.
    assert epsilon < by_renyi < 1.5 * epsilon
    unsampled = math.sqrt(steps) / ApproxDP(epsilon, 1e-5).gaussian_allowance().mu
    assert rate * unsampled / 2 < multiplier < unsampled


@pytest.mark.parametrize("sensitivity", [1, 127, 10**6])
def test_the_noise_of_samples_is_never_less_than_accounted(sensitivity):
    squared = Fraction(sensitivity**2 + 1)  # its root is no float
    noise = SampledGaussian.within(ROUGH, squared, 5, 0.5)
    least = Fraction(sampled_gaussian_multiplier(5.0, 1e-5, 0.5, 5)) ** 2 * squared
    assert least <= Fraction(noise.noise_std) ** 2 < least * (1 + Fraction(1, 10**15))


# Parameters, models and files.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be an integer"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"clip": 0.0}, "clip"),
        ({"batch_size": 0}, "batch_size"),
        ({"sampling_rate": 1.5, "batch_size": 9}, "sampling_rate"),
        ({"sampling_rate": 0.5}, "batch_size is the expected size"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ParameterError, match=message):
        make(ROUGH, **options).fit(*problem())


def test_samples_are_accounted_in_approximate_dp_only():
    with pytest.raises(BudgetError, match="approximate DP"):
        make(ZCDP(1.0), sampling_rate=0.5, batch_size=9).fit(*problem())


def test_few_records_and_none_do_not_blow_up_the_steps():
    for n in (0, 1):
        X, y = problem(0, n)
        model = make(ZCDP(1e-4)).fit(X, y)
        assert np.isfinite(model.coef_).all()
        # The default step bounds the noise of a logit near 1.5 a direction; momentum
        # and feedback change little.
        assert np.abs(model.coef_).max() < 50


def test_the_documented_share_pays_for_the_number_of_records():
    model = make(ZCDP(1.0), steps=2).fit(*problem())
    assert model.guarantee_.releases[1].cost["rho"] == pytest.approx(SIZE_PERCENT / 100)


@pytest.mark.parametrize("clip", [1e-7, 1e7])
def test_a_clip_out_of_range_shows_before_anything_is_paid(clip, tmp_path):
    ledger = dppl.Ledger(tmp_path / "ledger.db", "wards", dppl.ZCDP(1.0))
    with pytest.raises(ParameterError, match="clip"):
        LinearProbe(dppl.ZCDP(1.0), [0, 1], clip=clip).fit(
            np.eye(2), [0, 1], ledger=ledger
        )
    assert ledger.releases() == []
