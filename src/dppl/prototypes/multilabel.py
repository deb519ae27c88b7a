"""Multi-label prototypes: noisy gradients of the logistic losses of all labels together, and a threshold a label."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.utils import Tags

from dppl import _validate
from dppl._progress import steps
from dppl.errors import ParameterError
from dppl.estimators import Classifier
from dppl.estimators.model_file import check_tensor
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import Setting
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice
from dppl.kernel.queries import LabelCounts, LabelGradients, LabelShortfalls, NumberOfRecords, WeightedSum
from dppl.kernel.reading import SeveralLabels, Unusable
from dppl.prototypes._shared import unit_directions
from dppl.prototypes._softmax import SIZE_PERCENT, STEPS, Ascent, ClassSizes, Frame, measured_size, shrunken_mean

Float = NDArray[np.float64]

# Residuals of all labels of a record together are clipped to this norm.
CLIP = 0.7


@parameters
class MultiLabelPrototypes(Classifier):
    r"""Logistic regression of several labels a record by noisy gradients on centred features.

    Parameters
    ----------
    max_labels : int, default=5
        In how many labels a record counts at most when labels are counted: the first of the class list. Public.
    separator : str, default=None
        What separates labels in the text of a record's labels, such as ``";"``; None takes a text for one label.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), float64
        Weights for centred unit rows. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Added to the scores, so that 0 is the threshold of each label. Safe to publish.
    prototypes_ : ndarray of shape (n_classes, n_features), float32
        Representatives of the labels among unit rows, for reports: the mean, moved along the weights of the label.
    lattice_ : Lattice
        The map from embeddings to centred unit rows; its `center` is the released mean.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the number of records, the number of
    records with each label, the sum of rows, sixteen gradients, and how much less often than it is there each label is
    predicted, through the rounded Gaussian. Sensitivity: 1 of the number of records, √max_labels of the label counts
    and, with s the largest norm of a lattice row, s of the sum of rows; r·s of each gradient and r of the last, with r
    the longest residual of a record over all labels, which is clipped jointly. Public inputs: `classes`, `public`, all
    parameters, `n_features`. Not covered: choice of parameters by private data, timing, a changed label (two steps).
    """

    max_labels: int = 5
    separator: str | None = None
    prototypes_: NDArray[np.float32] = field(init=False)
    public_rows = "optional"
    whole_persons = True
    several_labels = True

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        _validate.positive_integer(max_labels=self.max_labels)
        if self.separator is not None:
            if not isinstance(self.separator, str) or not self.separator.strip():
                raise ParameterError(
                    f"must be a text that is not only spaces; got {self.separator!r}.", parameter="separator"
                )
            texts = [one for one in np.ravel(np.asarray(self.classes, object)).tolist() if isinstance(one, str)]
            if any(self.separator in one or one != one.strip() for one in texts):
                raise ParameterError(
                    "must name classes without the separator and without spaces around them.", parameter="classes"
                )

    def prepare(self, setting: Setting) -> Frame:
        """Fit the axes on public rows."""
        return Frame.of(setting.public.rows, setting.n_features)

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the twenty statistics."""
        lattice, n_classes = setting.prepared.lattice(), setting.n_classes
        return {
            "size": Measurement(NumberOfRecords(), SIZE_PERCENT),
            "counts": Measurement(LabelCounts(n_classes, self.max_labels), 2),
            "mean": Measurement(WeightedSum(lattice, 1), 1),
            "gradients": Measurement(LabelGradients(lattice, n_classes), 93, STEPS),
            "shortfalls": Measurement(LabelShortfalls(lattice, n_classes), 3),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Ask for sizes and a mean, climb along sixteen gradients about it, and settle the thresholds."""
        frame = setting.prepared
        size = measured_size(measure, 1)
        unit = measure.unit("counts")
        counts, noise_std = measure("counts") / unit, measure.noise_std("counts") / unit
        sizes = ClassSizes.of(max(float(counts.sum()), 1.0), counts, noise_std)

        unit = measure.unit("mean")
        noise_std = measure.noise_std("mean") / unit
        center = shrunken_mean(measure("mean", weights=np.ones(1)) / unit @ frame.basis, size, frame.center, noise_std)

        # Sixteen gradients of the logistic losses on rows minus that mean; the offsets are the log-odds of the labels.
        lattice, basis = frame.lattice(center), frame.basis
        rates = np.clip(sizes.total * sizes.shares / size, 2.0**-20, 0.5)
        offsets = logit(rates)
        unit = measure.unit("gradients") / CLIP
        ascent = Ascent(sizes, frame.spectrum, measure.noise_std("gradients") / unit)
        for _ in steps(STEPS):
            noisy = measure("gradients", weights=ascent.weights @ basis.T, offsets=offsets, clip=CLIP, at=lattice)
            ascent.move(noisy / unit @ basis)
        measure("shortfalls", weights=ascent.weights @ basis.T, offsets=offsets, clip=1.0, at=lattice)
        self._set_model(ascent.weights @ frame.axes.T, frame.axes @ center, offsets)

    def predict(
        self,
        X: Any,
        *,
        min_confidence: float | None = None,
        min_similarity: float | None = None,
        unusable: Unusable = "error",
    ) -> NDArray[np.int64]:
        """Predict the labels of each row, whose scores are above 0.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        min_confidence, min_similarity : None
            They are for one label a record; here each label has its own threshold.
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`; such a row has no labels then.

        Returns
        -------
        ndarray of shape (n, n_classes)
            1 for each label that a row has and else 0, with columns in the order of `classes_`.
        """
        for name, least in (("min_confidence", min_confidence), ("min_similarity", min_similarity)):
            if least is not None:
                raise ParameterError("is for models that give a record one label.", parameter=name)
        return (self._scores(X, unusable) > 0).astype(np.int64)

    def predict_labels(self, X: Any, *, unusable: Unusable = "error") -> list[list[Any] | None]:
        """Return a list of labels for each row, in the order of `classes_`; None for a row that cannot be used.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`.
        """
        names = self.classes_.tolist()
        scores = self._scores(X, unusable)
        return [None if np.isnan(row[0]) else [names[code] for code in np.flatnonzero(row > 0)] for row in scores]

    def decision_function(self, X: Any, *, unusable: Unusable = "error") -> Float:
        """Return the score of each label for each row, of shape (n, n_classes), with 0 as the threshold.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        unusable : {"error", "empty"}, default="error"
            What to do about rows without a direction (NaN, infinity, only zeros): refuse them, or give them NaN.
        """
        return np.asarray(self._scores(X, unusable))

    def predict_proba(self, X: Any, *, unusable: Unusable = "error") -> Float:  # type: ignore[override]
        """Return the probability of each label for each row, of shape (n, n_classes).

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`.
        """
        return np.asarray(expit(self._scores(X, unusable)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows of which all labels are right, as scikit-learn has it (subset accuracy).

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
        y : array-like
            True labels, as `fit` takes them; those outside `classes_` count for nothing.
        sample_weight : array-like of shape (n,), default=None
        """
        predicted, several = self._scores(X) > 0, SeveralLabels(self.separator)
        truth, _ = several.read(several.checked(y, predicted), self.classes_)
        return float(np.average((predicted == truth).all(axis=1), weights=sample_weight))

    def _set_model(self, coef: Float, center: Float, intercept: Float) -> None:
        self.coef_, self.intercept_ = coef, intercept
        self.lattice_ = Lattice(len(center), center=center)
        away = math.sqrt(max(0.0, 1 - float(center @ center)))
        self.prototypes_ = unit_directions(center + away * unit_directions(coef))

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        center = check_tensor(tensors, "center", (self.n_features_in_,), np.float64)
        self._set_model(self.coef_, center, self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
