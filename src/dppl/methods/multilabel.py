"""Multi-label prototypes: noisy gradients of the logistic losses of all labels together, and a threshold a label."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.progress import steps
from dppl._utils.types import Float
from dppl.errors import ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.queries import (
    LabelCounts,
    LabelGradients,
    LabelHits,
    LabelShortfalls,
    NumberOfRecords,
    WeightedSum,
)
from dppl.kernel.reading import Unusable
from dppl.methods.ascent import STEPS, Ascent
from dppl.methods.fit_plan import Setting
from dppl.methods.linear import CentredClassifier, shrunken_mean
from dppl.methods.parameters import Count, StartParameter, parameters
from dppl.methods.pooled import Answered, moves_alone, pooled
from dppl.methods.released import share
from dppl.methods.sizes import SIZE_PERCENT, ClassSizes, measured_size

# Constants were chosen on unions of messages with 5 to 77 labels, over budgets of mu
# from 0.25 to 4. Residuals of all labels of a record together are clipped to this norm.
# From 0.25 to 0.55 accuracy is about the same.
CLIP = 0.4
# The same where hard predictions are compared with labels: the mistakes about a record
# count as one.
_CLIP_OF_MISTAKES = 1.0
_ASKS = 4
# A factor of logits, beyond which a probability is as good as 0 or 1.
_STEEP = 2.0**10
# Scores of many labels have heavier tails than a Gaussian: the first thresholds are
# higher by this factor, and steps are longer, also as clipping takes the more from
# mistakes the more there are.
_TAIL = 1.15
_STEP = 1.6
# What turns scores into logits, whose weights noise and clipping kept short; and the
# probability at a threshold. F1 is largest if that is half of the F1 that is reached
# (Lipton, Elkan, Naryanaswamy 2014, arXiv:1402.1892).
_SHARPNESS = 1.5
_AT_THRESHOLD = 0.25


@parameters
class MultiLabelPrototypes(StartParameter, CentredClassifier):
    r"""Logistic regression of several labels a record, by noisy gradients on centred features.

    Released are, in this order, the number of records, the number of records with each
    label, the sum of rows, sixteen sums of clipped gradients of the logistic losses of
    all labels together on rows minus their mean, and, four times, how many more records
    have each label than are predicted to have it. A record may have any number of
    labels, also none. The offsets of the fit are the log-odds of the labels, so that
    residuals start short where labels are rare. A released model (`start`) is believed
    label by label as far as releases bear it out, as in `SoftmaxPrototypes`.

    Parameters
    ----------
    max_labels : int, default=5
        In how many labels a record counts at most where labels are counted: the first
        of them in the order of `classes`. The noise of these counts grows with its
        square root. Public.
    separator : str, default=None
        What separates the labels of a record in one text, such as ``";"``. None takes a
        text for one label.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class list in the order of `classes`, as `MultiLabelBinarizer` of
        scikit-learn keeps it.
    coef_ : ndarray of shape (n_classes, n_features), float64
        Weights for centred unit rows. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Added to the scores, so that 0 is the threshold of each label. Safe to publish.

    Notes
    -----
    **Thresholds.** A label is predicted for as many records as have it, as far as noise
    shows it. There precision is recall, and F1 near its largest: predicting a fifth
    more or fewer changed macro F1 by 0.01. Where as many with as without a label would
    be right, as `SoftmaxPrototypes` decides, most records that get a rare label would
    not have it. The probability at a threshold is 1/4, since F1 is largest at half of
    the F1 that is reached [2]_.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    twenty-three statistics above, through the rounded Gaussian; with a start, also the
    numbers of records one of whose labels it ranks first, and not. Sensitivity: 1 of
    all numbers of records, √max_labels of the label counts, because a record counts in so
    many at most, and, with s the largest norm of a lattice row q, s of the sum of rows;
    r·s of each gradient, because a record adds an outer product of its residual over
    all labels, whose norm is at most r grid steps, and its q; r grid steps of each of
    the last. So a record costs the same whatever its labels are, and a person with all
    of their records as much as one record. Weights, mean and thresholds are computed
    from earlier releases, and all shares of the budget are fixed, so the squares of mu
    add up to the budget's [3]_. Public inputs: `classes`, `public`, `start`, all
    parameters, `n_features`. Not covered: records that are in the data of the start,
    too, which pay for both, choice of parameters by private data, timing, a changed
    label (two steps).

    References
    ----------
    .. [1] Full-batch DP-SGD (Abadi et al. 2016, arXiv:1607.00133), as in
    `SoftmaxPrototypes`.
    .. [2] Lipton, Elkan, Naryanaswamy (2014), Optimal thresholding of classifiers to
    maximize F1 measure,
       arXiv:1402.1892.
    .. [3] Dong, Roth, Su (2022), Gaussian differential privacy, arXiv:1905.02383v3,
    Corollary 3.3.

    Examples
    --------
    >>> from dppl import ApproxDP, MultiLabelPrototypes
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = MultiLabelPrototypes(ApproxDP(1, 1e-6), sample.classes)
    >>> model = model.fit(sample.X, [[label] for label in sample.y])
    >>> model.predict(sample.X_test).shape == (len(sample.X_test), len(sample.classes))
    True
    """

    max_labels: Count = 5
    separator: str | None = None
    multilabel = True

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        if (separator := MultiLabel(self.separator).separator) is not None:
            texts = [
                one
                for one in np.ravel(np.asarray(self.classes, object)).tolist()
                if isinstance(one, str)
            ]
            if any(separator in one or one != one.strip() for one in texts):
                raise ParameterError(
                    "must name classes without the separator and without spaces around them.",
                    parameter="classes",
                )

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the twenty-three statistics, and with a start the numbers of records that it ranks rightly, and not."""
        lattice = setting.prepared.lattice()
        n_classes = setting.n_classes
        hits = {}
        if setting.start is not None:
            hits = {"hits": Measurement(LabelHits(lattice, n_classes), 2)}
        return {
            "size": Measurement(NumberOfRecords(), SIZE_PERCENT),
            "counts": Measurement(LabelCounts(n_classes, self.max_labels), 2),
            "mean": Measurement(WeightedSum(lattice, 1), 1),
            **hits,
            "gradients": Measurement(
                LabelGradients(lattice, n_classes), 91 if hits else 93, STEPS
            ),
            "shortfalls": Measurement(LabelShortfalls(lattice, n_classes), 3, _ASKS),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Ask for sizes and a mean, climb along sixteen gradients about it, and move the thresholds."""
        from scipy.special import logit, ndtri

        frame = setting.prepared
        size = measured_size(measure, 1)
        unit = measure.unit("counts")
        counts = measure("counts") / unit
        # As if each label of a record were a record: an ascent takes sizes for how much
        # gradients add up to.
        sizes = ClassSizes.of(
            float(counts.sum()), counts, measure.noise_std("counts") / unit
        )
        rates = np.clip(
            sizes.total * sizes.shares / size, 1 / (size + 1), 1 - 1 / (size + 1)
        )

        unit = measure.unit("mean")
        total = measure("mean", weights=np.ones(1)) / unit @ frame.basis
        usual = frame.center
        if (start := setting.start) is not None:
            usual = start.center @ frame.axes
        center = shrunken_mean(total, size, usual, measure.noise_std("mean") / unit)

        # Sixteen gradients of the logistic losses on rows minus that mean.
        lattice = frame.lattice(center)
        basis = frame.basis
        offsets = logit(rates)
        unit = measure.unit("gradients") / CLIP
        noise_std = measure.noise_std("gradients") / unit

        def gradient(weights: Float) -> Float:
            noisy = measure(
                "gradients",
                weights=weights @ basis.T,
                offsets=offsets,
                clip=CLIP,
                at=lattice,
            )
            return np.asarray(noisy / unit @ basis)

        follow = sizes, frame.spectrum, noise_std
        ascent = Ascent(*follow)
        if start is not None:
            for _ in range(moves_alone(ascent, CLIP)):
                ascent.move(gradient(ascent.point))
            hits = measure(
                "hits",
                weights=start.coef @ frame.axes @ basis.T,
                offsets=start.offsets,
                at=lattice,
            )
            answered = Answered(
                ascent,
                CLIP,
                size,
                hits,
                measure.noise_std("hits"),
            )
            pool = pooled(start, frame, answered)
            ascent = Ascent(*follow, pool=pool)
        for _ in steps(STEPS - ascent.moves):
            ascent.move(gradient(ascent.point))
        self._keep(ascent, frame)

        # Thresholds above which as many records lie as have the label, if scores are
        # Gaussian; then by what is missing.
        unit = measure.unit("shortfalls") / _CLIP_OF_MISTAKES
        noise_std = measure.noise_std("shortfalls") / unit
        spread = np.sqrt(np.square(ascent.weights) @ frame.spectrum)
        thresholds = _TAIL * spread * ndtri(1 - rates)
        for _ in range(_ASKS):
            asked = {
                "weights": _STEEP * ascent.weights @ basis.T,
                "offsets": -_STEEP * thresholds,
            }
            missing = (
                measure("shortfalls", **asked, clip=_CLIP_OF_MISTAKES, at=lattice)
                / unit
            )
            trust = max(
                0.0,
                1 - len(missing) * noise_std**2 / max(float(missing @ missing), 1e-300),
            )
            predicted = np.clip(
                rates - trust * missing / size, rates / 8, 1 - (1 - rates) / 8
            )
            thresholds = thresholds + _STEP * spread * (
                ndtri(1 - rates) - ndtri(1 - predicted)
            )
        self._set_model(ascent.weights @ frame.axes.T, frame.axes @ center, -thresholds)

    def predict(
        self,
        X: Any,
        *,
        min_confidence: float | None = None,
        min_similarity: float | None = None,
        unusable: Unusable = "error",
    ) -> NDArray[np.int64]:
        """Return 1 for each label that a row has, whose score is above 0, and else 0, of shape (n, n_classes).

        `min_confidence` and `min_similarity` are for one label a record; here each
        label has its own threshold.
        """
        for name, least in (
            ("min_confidence", min_confidence),
            ("min_similarity", min_similarity),
        ):
            if least is not None:
                raise ParameterError(
                    "is for models that give a record one label.", parameter=name
                )
        return (self._scores(X, unusable) > 0).astype(np.int64)

    def predict_labels(
        self, X: Any, *, unusable: Unusable = "error"
    ) -> list[list[Any] | None]:
        """Return a list of labels for each row, in the order of `classes_`; None for a row that cannot be used.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features), or table in parts
        unusable : {"error", "empty"}, default="error"
            As in `decision_function`.
        """
        names = self.classes_.tolist()
        scores = self._scores(X, unusable)
        labels: list[list[Any] | None] = []
        for row in scores:
            if np.isnan(row[0]):
                labels.append(None)
            else:
                labels.append([names[code] for code in np.flatnonzero(row > 0)])
        return labels

    def decision_function(self, X: Any, *, unusable: Unusable = "error") -> Float:
        """Return the score of each label for each row, of shape (n, n_classes), with 0 as the threshold."""
        return np.asarray(self._scores(X, unusable))

    def predict_proba(self, X: Any, *, unusable: Unusable = "error") -> Float:  # type: ignore[override]
        """Return the probability of each label for each row, of shape (n, n_classes), by itself: rows have any sum.

        It is the logistic function of a multiple of the score, 1/4 where that is 0; so
        `predict` predicts labels that are likelier than 1/4. The multiple was measured
        on public sets: check it before costs are based on it.
        """
        from scipy.special import (
            expit,
            logit,
        )  # here, as below, because it is slow to import

        return np.asarray(
            expit(_SHARPNESS * self._scores(X, unusable) + logit(_AT_THRESHOLD))
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows of which all labels in the class list are right (subset accuracy)."""
        predicted = self._scores(X) > 0
        several = MultiLabel(self.separator)
        truth, _ = several.read(several.checked(y, predicted), self.classes_)
        return share((predicted == truth).all(axis=1), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
