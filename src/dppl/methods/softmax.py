"""Softmax prototypes: sixteen noisy gradients of the softmax loss on centred features, and intercepts for balance."""

import math
from typing import Any

import numpy as np

from dppl._utils.progress import steps
from dppl._utils.types import Array, Float, Float32
from dppl.errors import BudgetError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.privacy.sensitivity import STEPS as GRID
from dppl.kernel.queries import (
    ClassCounts,
    Hits,
    NumberOfRecords,
    SecondMoment,
    Shortfalls,
    SoftmaxGradients,
    WeightedSum,
)
from dppl.kernel.queries.base import on_grid
from dppl.methods.ascent import CLIP, STEPS, Ascent, NoisyMoment, moment_percent
from dppl.methods.examples import ExampleClassifier, GuidedAscent
from dppl.methods.fit_plan import Setting
from dppl.methods.linear import CentredClassifier, intercepts, shrunken_mean
from dppl.methods.parameters import PersonsParameter, StartParameter, parameters
from dppl.methods.pooled import Answered, moves_alone, pooled
from dppl.methods.sizes import SIZE_PERCENT, ClassSizes, measured_size


@parameters
class SoftmaxPrototypes(StartParameter, PersonsParameter, CentredClassifier):
    r"""Softmax regression by noisy gradients on centred features, without hyper-parameters.

    Released are, in this order, the number of records, the class counts, a weighted sum
    of rows, for up to 20 classes and 2,048 features the second moment of rows minus
    their mean, sixteen sums of clipped gradients of the softmax loss on these, and how
    much less often than others each class is predicted. The softmax of the fit has the
    logarithms of class shares as offsets, and predictions have none, so the weights aim
    at balanced classes; intercepts from the last release move the boundary where they
    miss. Where classes have more records than features, steps are longer along axes of
    small variance, by the second moment. Where that is alike along all axes, as that of
    round clusters, gradients are taken nearer to weights of zero, and add up to sums of
    the classes. Public rows tell along which axes noise may be taken out.

    Public examples of the classes (of `public`; a description is one) are worth most
    where budgets are small and classes rare. The fit starts from a classifier of them
    as far as the first gradients, and noisy counts of the records that they classify
    rightly, and not, bear them out, so that wrong ones cost little. A released model (`start`)
    takes their place, class by class as far as it is borne out likewise. With ``GaussianDP(0)``
    nothing private is read: the model is the model of the examples alone.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), float64
        Weights for centred unit rows. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Added to the scores, so that classes which weigh alike are predicted equally
        often. Safe to publish.
    shares_ : ndarray of shape (n_classes,), float64, or None
        Shares of the classes among the records, from the noisy counts; None for
        ``GaussianDP(0)``. Safe to publish.
    coef_noise_ : ndarray of shape (n_classes,), float64, or None
        Standard deviation of the noise of the gradients in each coordinate of `coef_`,
        along axes by which nothing was taken out. Safe to publish.
    examples_ : ExamplesKept or None
        How many public examples of each class the fit started from, and their texts
        where they are kept.

    Notes
    -----
    `predict` is the balanced decision, in which all classes weigh alike. `predict_proba` is the softmax of the scores,
    and with ``shares="data"`` for classes as frequent as in the data of the fit: where one class is rare, threshold
    this one by costs, after a check on held-out records (docs/probabilities.md).

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    statistics above, through the rounded Gaussian; with examples or a start, also the
    numbers of records whose own class these rank first, and do not. Sensitivity: 1 of all numbers of records,
    as a record is in one of the last two, and, with s the largest norm of a lattice row q, 1 of the class sizes,
    because a record is in one class, and a person in several by parts that add up to 1;
    w·s of the weighted sum of rows, because a record adds an integer of at most w times
    its q; p·s² of the second moment in the Frobenius norm, because a record adds p =
    2⁸ times q·qᵀ; r·s of each gradient, because it adds an outer product of the record's
    residual, whose norm is at most r grid steps, and its q; √(1 - 1/C), or r grid
    steps, of the last, because probabilities lie no further from 1/C. Weights, mean,
    lengths of steps, trust in examples or a start, softmax and intercepts are computed from
    earlier releases, and all shares of the budget are fixed, so the squares of mu add
    up to the budget's [2]_. Public inputs: `classes`, `public`, `start`, all parameters, `n_features`. Not covered:
    records that are in the data of the start, too, which pay for both,
    choice of parameters, or of examples, by private data, timing, a changed label (two
    steps).

    References
    ----------
    .. [1] Full-batch DP-SGD (Abadi et al. 2016, arXiv:1607.00133) with momentum (Polyak
    1964), logit adjustment (Menon
       et al., arXiv:2007.07314), a noisy second moment as in DP-FC (Mehta
       et al., arXiv:2211.13403), and shrinkage by empirical Bayes (James, Stein 1961).
    .. [2] Dong, Roth, Su (2022), Gaussian differential privacy, arXiv:1905.02383v3,
    Corollary 3.3.
    .. [3] AdaMix (Golatkar et al. 2022, arXiv:2203.11481) starts from few public
    labelled images, without such trust.

    Examples
    --------
    >>> from dppl import ApproxDP, SoftmaxPrototypes
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = SoftmaxPrototypes(ApproxDP(1, 1e-6), classes=sample.classes).fit(sample.X, sample.y)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    starts_from_examples = True

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the statistics, and with examples the numbers of records that these classify rightly, and not."""
        examples = setting.public.examples
        n_classes = setting.n_classes
        if self.budget.is_zero:
            if examples is None:
                raise BudgetError(
                    "a budget of mu = 0 releases nothing; give public examples of the classes instead."
                )
            return {}
        lattice = (
            setting.prepared.lattice()
        )  # of the rows which are summed, whose norm no centre changes
        # More for the first three bought nothing.
        hits = {}
        if examples is not None or setting.start is not None:
            hits = {"hits": Measurement(Hits(lattice, n_classes), 2)}
        moment = {}
        percent = moment_percent(n_classes, setting.n_features)
        if percent:
            moment = {"moment": Measurement(SecondMoment(lattice, n_classes), percent)}
        return {
            "size": Measurement(NumberOfRecords(), SIZE_PERCENT),
            "counts": Measurement(ClassCounts(n_classes), 2),
            "mean": Measurement(WeightedSum(lattice, n_classes), 1),
            **moment,
            **hits,
            "gradients": Measurement(
                SoftmaxGradients(lattice, n_classes),
                (91 if hits else 93) - percent,
                STEPS,
            ),
            "shortfalls": Measurement(Shortfalls(lattice, n_classes), 3),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Ask for sizes and a mean, climb along sixteen gradients about it, and balance the predictions."""
        frame = setting.prepared
        n_classes = setting.n_classes
        if "size" not in measure:  # a budget of 0
            examples = self._classifier_of_examples(
                setting, frame.lattice(frame.center)
            )
            self._set_model(
                examples.coef @ frame.axes.T,
                frame.axes @ frame.center,
                np.zeros(n_classes),
            )
            return
        size = measured_size(measure, n_classes)
        unit = measure.unit("counts")
        sizes = ClassSizes.of(
            size, measure("counts") / unit, measure.noise_std("counts") / unit
        )
        noise_std = measure.noise_std("mean") / measure.unit("mean")
        mean_weights = sizes.mean_weights(noise_std * math.sqrt(setting.n_features))
        center = self._center(measure, setting, sizes, mean_weights)
        lattice = frame.lattice(center)
        ascent = self._ascended(measure, setting, sizes, lattice)
        coef = ascent.weights
        self.coef_noise_ = ascent.weights_noise
        self._keep(ascent, frame)

        # Intercepts with which classes that weigh alike are predicted equally often.
        unit = measure.unit("shortfalls")
        noisy = measure(
            "shortfalls",
            weights=coef @ frame.basis.T,
            class_weights=sizes.balancing,
            at=lattice,
        )
        intercept = intercepts(
            noisy / unit,
            measure.noise_std("shortfalls") / unit,
            sizes,
            mean_weights,
            np.sqrt(np.square(coef) @ frame.spectrum),
            ascent.intercepts,
        )
        self._set_model(
            coef @ frame.axes.T, frame.axes @ center, intercept, sizes.shares
        )

    def _center(
        self, measure: Measure, setting: Setting, sizes: ClassSizes, weights: Float
    ) -> Float:
        """Return the mean of rows, in which classes weigh alike as far as noise allows."""
        frame = setting.prepared
        usual = frame.center
        if setting.start is not None:
            usual = setting.start.center @ frame.axes
        unit = measure.unit("mean")
        noisy = measure("mean", weights=weights) / unit @ frame.basis
        total = sizes.total * float(sizes.shares @ on_grid(weights, GRID)) / GRID
        return shrunken_mean(noisy, total, usual, measure.noise_std("mean") / unit)

    def _ascended(
        self, measure: Measure, setting: Setting, sizes: ClassSizes, lattice: Lattice
    ) -> Ascent:
        """Climb along sixteen gradients of the softmax likelihood of rows about the mean."""
        frame = setting.prepared
        basis = frame.basis
        offsets = np.log(sizes.shares)
        unit = measure.unit("gradients") / CLIP
        noise_std = measure.noise_std("gradients") / unit
        moment = None
        if "moment" in measure:
            of_rows = measure.unit("moment")
            noisy = measure("moment", at=lattice) / of_rows
            moment = NoisyMoment(noisy, measure.noise_std("moment") / of_rows, basis)

        def gradient(weights: Float) -> Float:
            noisy = measure(
                "gradients",
                weights=weights @ basis.T,
                offsets=offsets,
                clip=CLIP,
                at=lattice,
            )
            return np.asarray(noisy / unit @ basis)

        def hits_of(coef: Float, offsets: Float) -> tuple[Float, float]:
            noisy = measure(
                "hits",
                weights=coef @ basis.T,
                offsets=offsets,
                at=lattice,
            )
            return noisy, measure.noise_std("hits")

        follow = sizes, frame.spectrum, noise_std
        if (start := setting.start) is not None:
            alone = Ascent(*follow, moment)
            for _ in range(moves_alone(alone, CLIP)):
                alone.move(gradient(alone.point))
            answered = Answered(
                alone,
                CLIP,
                sizes.total,
                *hits_of(start.coef @ frame.axes, start.offsets),
            )
            pool = pooled(start, frame, answered)
            ascent = Ascent(*follow, moment, pool)
        elif "hits" in measure:
            examples = self._classifier_of_examples(setting, lattice)
            hits = hits_of(examples.coef, examples.offsets)
            ascent = GuidedAscent(*follow, examples, *hits, moment)
        else:
            ascent = Ascent(*follow, moment)
        for _ in steps(STEPS - ascent.moves):
            ascent.move(gradient(ascent.point))
        return ascent

    def _classifier_of_examples(
        self, setting: Setting, lattice: Lattice
    ) -> ExampleClassifier:
        """Fit the public examples alone, as rows of the lattice along the public axes."""
        examples = setting.public.examples
        assert examples is not None
        features = lattice.features(examples.rows) @ setting.prepared.basis
        return ExampleClassifier.fit(features, examples.codes, setting.n_classes)

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        if self.guarantee_.releases:
            of_classes = (np.float64, (len(self.classes_),))
            known = {"shares": of_classes, "coef_noise": of_classes}
        else:
            known = {}
        return {**super()._shapes(), **known}

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        if self.shares_ is not None and not (
            (self.shares_ > 0).all() and math.isclose(self.shares_.sum(), 1)
        ):
            raise Misfit("its shares of the classes are none")
        if self.coef_noise_ is not None and (self.coef_noise_ < 0).any():
            raise Misfit("its noise is below 0")

    def _class_scores(self, features: Float32) -> Float:
        return np.asarray(features @ self.coef_.T + self.intercept_, np.float64)
