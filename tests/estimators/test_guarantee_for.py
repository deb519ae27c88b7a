"""What a fit would promise, told before there is a private record."""

import numpy as np
import pytest

import dppl
from dppl import ZCDP, PureDP, baselines
from dppl.errors import BudgetError, BudgetExceeded, InputError, ParameterError
from dppl.privacy import Ledger

RNG = np.random.default_rng(0)
X, P = RNG.standard_normal((30, 8)).astype(np.float32), RNG.standard_normal((20, 8)).astype(np.float32)
Y = np.repeat([0, 1], 15)
ESTIMATORS = {
    "mean": dppl.MeanPrototypes(ZCDP(1.0), [0, 1]),
    "mapped": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], center="public", pool=2, rotation="auto", random_state=1),
    "published": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], adjacency="replace-one"),
    "coinpress": dppl.MeanPrototypes(ZCDP(1.0), [0, 1], adjacency="replace-one", mechanism="coinpress"),
    "public": dppl.PublicPrototypes(PureDP(1.0), [0, 1], 2, clip="auto"),
    "softmax": dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1], unknown_labels="ignore"),
} | {
    name: getattr(baselines, name)(ZCDP(1.0), [0, 1])
    for name in ("LinearProbe", "GlobalAdapt", "LeastSquares", "FeatureCovariance", "Newton")
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_it_is_what_the_fit_promises(name):
    estimator = ESTIMATORS[name]
    told = estimator.guarantee_for(8, P)
    assert not hasattr(estimator, "guarantee_")
    for rows, labels in ((X, Y), (X[:0], Y[:0])):  # and for no record at all
        promise = estimator.fit(rows, labels, P).guarantee_
        assert told == promise
    assert told != estimator.set_params(budget=type(estimator.budget)(0.5)).guarantee_for(8, P)


@pytest.mark.parametrize(
    ("estimator", "arguments", "error", "words"),
    [
        (dppl.MeanPrototypes(ZCDP(1.0)), (8,), ParameterError, "classes must be the public list"),
        (dppl.MeanPrototypes(ZCDP(1.0), [0, 1]), (0,), ParameterError, "n_features must be"),
        (dppl.MeanPrototypes(PureDP(1.0), [0, 1]), (8,), BudgetError, "pure"),
        (dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1]), (7, P), InputError, "X_public must have the 7 features"),
        (dppl.PublicPrototypes(ZCDP(1.0), [0, 1]), (8,), InputError, "X_public"),
    ],
)
def test_what_would_stop_the_fit_stops_here(estimator, arguments, error, words):
    with pytest.raises(error, match=words):
        estimator.guarantee_for(*arguments)


def test_an_account_can_be_asked_before(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    cheap, dear = (dppl.MeanPrototypes(ZCDP(rho), [0, 1]) for rho in (0.75, 1.5))
    ledger.check(cheap.guarantee_for(8))
    with pytest.raises(BudgetExceeded, match=r"needs rho = 1\.\d+ .* has 1 left"):
        ledger.check(dear.guarantee_for(8))
    assert (ledger.releases(), ledger.spent()) == ([], {"rho": 0.0})
    cheap.fit(X, Y, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        ledger.check(cheap.guarantee_for(8))
    part = dppl.MeanPrototypes(ZCDP(0.2), [0, 1]).guarantee_for(8)
    ledger.check(part, partition="north")
    with pytest.raises(ParameterError, match="partition"):
        ledger.check(part, partition="")
    with pytest.raises(ParameterError, match="accounted under add-remove"):
        ledger.check(ESTIMATORS["published"].guarantee_for(8))
    assert len(ledger.releases()) == 1
