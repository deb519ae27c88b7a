import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dppl import ZCDP, MeanPrototypes, PublicPrototypes, PureDP, SoftmaxPrototypes


class WithPublicRows(PublicPrototypes):
    """PublicPrototypes with public rows made up for the width of X, as scikit-learn's checks pass none."""

    def fit(self, X, y, X_public=None):
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        if len(shape) == 2 and shape[1]:
            X_public = np.random.default_rng(0).normal(size=(200, shape[1]))
        return super().fit(X, y, X_public=X_public)


# Generous budgets: the checks compare predictions with labels.
ESTIMATORS = [
    MeanPrototypes(ZCDP(1e4)),
    MeanPrototypes(ZCDP(1e4), random_state=0),
    MeanPrototypes(ZCDP(1e4), adjacency="replace-one", mechanism="coinpress", random_state=0),
    MeanPrototypes(ZCDP(1e4), adjacency="replace-one", metric="euclidean", random_state=0),
    WithPublicRows(PureDP(100.0), random_state=0),
    WithPublicRows(PureDP(100.0), n_prototypes=3),
    SoftmaxPrototypes(ZCDP(1e4)),
    SoftmaxPrototypes(ZCDP(1e4), random_state=0),
]


@pytest.mark.filterwarnings("ignore::dppl.errors.LabelSetWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_finds_a_well_behaved_classifier(estimator, check):
    check(estimator)
