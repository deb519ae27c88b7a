"""What classifiers without privacy reach on the same rows: ceilings for comparisons, never for release."""

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dppl._utils.types import Array, Float
from dppl.errors import InputError


class NonPrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier on unit rows, without any privacy; subclasses say which."""

    guarantee_: ClassVar[str] = (
        "NOT PRIVATE: nothing is promised, and the model may hold training records."
    )

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit without privacy.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
        y : array-like of shape (n_records,)
        """
        rows, labels = validate_data(
            self, X, y, dtype=np.float64
        )  # sums of float16 would lose most records
        check_classification_targets(labels)
        if len(np.unique(labels)) < 2:
            raise InputError(
                "a classifier needs records of at least two classes; got one class."
            )
        self.model_ = self._classifier().fit(normalize(rows), labels)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Return the label of each row of `X`, of shape (n, n_features)."""
        check_is_fitted(self, "model_")
        return np.asarray(
            self.model_.predict(
                normalize(validate_data(self, X, reset=False, dtype=np.float64))
            )
        )


class _NearestDirection:
    """The class whose sum of unit rows has the largest cosine similarity."""

    def fit(self, rows: Float, labels: Array) -> Self:
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self.directions_ = normalize(
            np.stack(
                [rows[codes == code].sum(axis=0) for code in range(len(self.classes_))]
            )
        )
        return self

    def predict(self, rows: Float) -> Array:
        return np.asarray(self.classes_[(rows @ self.directions_.T).argmax(axis=1)])


class NonPrivateNearestMean(NonPrivateClassifier):
    """NOT PRIVATE. The class whose mean unit row has the largest cosine similarity."""

    _classifier = staticmethod(_NearestDirection)


class NonPrivateLDA(NonPrivateClassifier):
    """NOT PRIVATE. Linear discriminant analysis with a covariance shrunk by Ledoit and Wolf's rule."""

    _classifier = staticmethod(
        partial(LinearDiscriminantAnalysis, solver="lsqr", shrinkage="auto")
    )


class NonPrivateLogisticRegression(NonPrivateClassifier):
    """NOT PRIVATE. Multinomial logistic regression on unit rows.

    Parameters
    ----------
    C : float, default=30.0
        Inverse of the ridge on the weights.
    """

    def __init__(self, C: float = 30.0) -> None:
        self.C = C

    def _classifier(self) -> Any:
        return LogisticRegression(C=self.C, max_iter=1000)
