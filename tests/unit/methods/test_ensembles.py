"""Ensembles of scikit-learn: those that encode labels stop at classes that are texts, and work where codes are classes."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier

from dppl import GaussianDP, SoftmaxPrototypes
from dppl.errors import InputError
from dppl.io import load_sample

N_CLASSES = 12
ENSEMBLES = {
    "soft votes": lambda model: VotingClassifier([("a", model)], voting="soft"),
    "hard votes": lambda model: VotingClassifier([("a", model)]),
    "bagging": lambda model: BaggingClassifier(model, 3, random_state=0),
    "stacking": lambda model: StackingClassifier([("a", model)]),
    "calibrated": lambda model: CalibratedClassifierCV(model, cv=3),
}
ENCODING = [name for name in ENSEMBLES if name != "calibrated"]


def records():
    """Return records of 12 classes: among texts, "10" comes before "2", so that codes are no names."""
    sample = load_sample()
    odd = np.arange(len(sample.y)) % 7 == 0
    return sample.X, np.where(odd, 10 + sample.y % 2, sample.y)


def model_of(kind):
    classes = [kind(code) for code in range(N_CLASSES)]
    return SoftmaxPrototypes(GaussianDP(20), classes, random_state=0)


@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
@pytest.mark.parametrize("name", ENCODING)
def test_codes_are_no_names_of_classes(name):
    X, y = records()
    with pytest.raises(InputError, match=r"y must hold texts.* need integer classes"):
        ENSEMBLES[name](model_of(str)).fit(X, y.astype(str))


@pytest.mark.filterwarnings("ignore::dppl.errors.WeakBudgetWarning")
@pytest.mark.parametrize(
    ("name", "kind"), [*((name, int) for name in ENSEMBLES), ("calibrated", str)]
)
def test_an_ensemble_is_as_good_as_its_model(name, kind):
    X, y = records()
    y = y.astype(kind)
    alone = model_of(kind).fit(X, y).score(X, y)
    assert alone > 0.8
    assert abs(ENSEMBLES[name](model_of(kind)).fit(X, y).score(X, y) - alone) < 0.05
    # The control: code 4 is class "4" no longer where classes are sorted as texts.
    codes = np.unique(y.astype(str), return_inverse=True)[1]
    assert model_of(int).fit(X, codes).score(X, y.astype(int)) < 0.5
