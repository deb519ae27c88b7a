"""Softmax prototypes: sixteen noisy gradients of the softmax loss on centred features, and intercepts for balance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._progress import steps
from dppl.errors import BudgetError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.descent import SIZE_PERCENT, RepeatedGaussian, release_size
from dppl.estimators.model_file import Misfit, check_tensor
from dppl.estimators.plan import Plan
from dppl.estimators.public_data import PublicData
from dppl.estimators.reading import Codes, UnknownLabels
from dppl.estimators.sums import HeldRecords, Records, class_masses, first_ranks, gradients, shortfalls, weighted_total
from dppl.estimators.whole_persons import WholePersons
from dppl.lattice import RESOLUTION, WEIGHT_STEPS, Lattice, RowSource, SoftmaxGradient, longest_shortfall
from dppl.mechanisms import Randomness, RoundedGaussian
from dppl.privacy import Budget, PureDP, Release
from dppl.privacy.composition import split
from dppl.prototypes._examples import ExampleClassifier, GuidedAscent
from dppl.prototypes._shared import unit_directions
from dppl.prototypes._softmax import CLIP, STEPS, Ascent, ClassSizes, Frame, intercepts, shrunken_mean

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Percentages of mu² for the number of records, the class counts, the weighted sum, all gradients together, and the
# shortfalls of predictions. More for the first three bought nothing.
_PERCENTAGES = (SIZE_PERCENT, 2, 1, 93, 3)
# The same with examples of the classes, and for the number of records that they classify rightly.
_PERCENTAGES_WITH_EXAMPLES = (SIZE_PERCENT, 2, 1, 91, 3, 2)
# Steps of the grid of the weights in the sum, per unit. At 127 a coordinate, sums of 10¹¹ records fit into 64 bits.
_MEAN_STEPS = 2**16
# Steps that a record counts, so that the classes of a person can share them.
_COUNT_STEPS = 2**16


@dataclass(frozen=True, slots=True)
class _Mechanisms:
    """All mechanisms, settled before any record is read."""

    frame: Frame
    size: RoundedGaussian
    counts: RoundedGaussian
    mean: RoundedGaussian
    gradients: RepeatedGaussian
    shortfalls: RoundedGaussian
    hits: RoundedGaussian | None

    @property
    def mean_noise_std(self) -> float:
        """Standard deviation in each coordinate of the weighted sum of unit rows."""
        return self.mean.noise_std / (_MEAN_STEPS * self.frame.lattice().scale)


class SoftmaxPrototypes(EmbeddingClassifier):
    r"""Softmax regression by noisy gradients on centred features, without hyper-parameters.

    Released are, in this order, the number of records, the class counts, a weighted sum of rows, in which classes are
    weighted equally as far as noise allows, sixteen sums of clipped gradients of the softmax loss, whose features are
    rows minus the mean that follows from the weighted sum, at length 1, and how much less often than others each class
    is predicted. The softmax of the fit has the logarithms of class shares as offsets, and predictions have none, so
    the weights aim at balanced classes; intercepts from the last release move the boundary where they miss. Steps are
    as long as the noise allows; public rows tell along which axes it may be taken out.

    Public examples of the classes (`X_examples` of `fit`; a description is the case of one example) are worth most
    where budgets are small and classes rare. The fit starts from a classifier of them as far as the first three
    gradients, and a noisy count of the records that they classify rightly, bear them out, so that wrong ones cost
    little. With ``GaussianDP(0)`` nothing private is read: the model is that of the examples alone.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What the whole fit may spend.
    classes : array-like of shape (n_classes,), default=None
        Public list of classes.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), float64
        Weights for centred unit rows. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Added to the scores, so that classes which weigh alike are predicted equally often. Safe to publish.
    shares_ : ndarray of shape (n_classes,), float64, or None
        Shares of the classes among the records, from the noisy counts; None for ``GaussianDP(0)``. Safe to publish.
    prototypes_ : ndarray of shape (n_classes, n_features), float32
        Representatives of the classes among unit rows, for reports: the mean, moved along the weights of the class as
        far as unit rows lie from it. `predict` does not use them.
    lattice_ : Lattice
        The map from embeddings to centred unit rows; its `center` is the released mean.
    examples_ : ExamplesKept or None
        How many public examples of each class the fit started from, and their texts where they are kept.
    classes_, guarantee_, n_features_in_, encoder_
        As in `MeanPrototypes`.

    Notes
    -----
    `predict` is the balanced decision, in which all classes weigh alike. `predict_proba` is the softmax of the scores,
    and with ``shares="data"`` that of classes as frequent as in the data of the fit: where one class is rare, threshold
    this one by costs. With equal shares the expected calibration error was about 0.06 at most for mu of 2 and more
    where classes were not rare, and up to 0.2 at smaller budgets or with rare classes (docs/results.md). Check it on
    held-out records before relying on it; that is another use of them.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the twenty statistics above, through
    the rounded Gaussian; with examples, also the number of records whose own class they rank first. Sensitivity: 1 of
    both numbers of records and, with s the largest norm of a lattice row q, 1 of the class sizes, because a record is
    in one class, and a person in several by parts that add up to 1; w·s of the weighted sum of rows, because a record
    adds an integer of at most w times its q; r·s of each gradient, because it adds an outer product of the record's
    residual, whose norm is at most r grid steps, and its q; √(1 - 1/C), or r grid steps, of the last, because
    probabilities lie no further from 1/C. Weights, mean, trust in examples, softmax and intercepts are computed from
    earlier releases, and all shares of the budget are fixed, so the squares of mu add up to the budget's [2]_.
    Public inputs: `classes`, `X_public`, `X_examples`, all parameters, `n_features`. Not covered: choice of parameters,
    or of examples, by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Full-batch DP-SGD (Abadi et al. 2016, arXiv:1607.00133) with momentum (Polyak 1964), logit adjustment (Menon
       et al., arXiv:2007.07314), and shrinkage by empirical Bayes (James, Stein 1961).
    .. [2] Dong, Roth, Su (2022), Gaussian differential privacy, arXiv:1905.02383v3, Corollary 3.3.
    .. [3] AdaMix (Golatkar et al. 2022, arXiv:2203.11481) starts from few public labelled images, without such trust.

    Examples
    --------
    >>> from dppl import ApproxDP, SoftmaxPrototypes
    >>> from dppl.data import load_sample
    >>> sample = load_sample()
    >>> model = SoftmaxPrototypes(ApproxDP(1, 1e-6), classes=sample.classes).fit(sample.X, sample.y)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    coef_: Float
    intercept_: Float
    prototypes_: NDArray[np.float32]
    _RELEASED = "coef_"
    _STARTS_FROM_EXAMPLES = True
    _WHOLE_PERSONS = True
    adjacency = "add-remove"
    pool, center, rotation = 1, None, None

    def __init__(
        self,
        budget: Budget | None = None,
        classes: ArrayLike | None = None,
        *,
        unknown_labels: UnknownLabels = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.resolved_budget, PureDP):
            raise BudgetError(
                "SoftmaxPrototypes releases sums with Gaussian noise, which gives no pure-DP guarantee at any scale; "
                "use a GaussianDP, ZCDP or ApproxDP budget, or PublicPrototypes, which selects public rows under pure "
                "DP."
            )

    def _uses_public_rows(self, public: PublicData) -> bool:
        return public.rows is not None

    def _mechanism(self, lattice: Lattice, public: PublicData) -> _Mechanisms | Frame:
        frame = Frame.of(public.rows, lattice.n_features)
        if self.resolved_budget.is_zero:
            if public.examples is None:
                raise BudgetError(
                    "a budget of mu = 0 releases nothing from private records; give public examples of the classes "
                    "for a model of them alone."
                )
            return frame
        percentages = _PERCENTAGES if public.examples is None else _PERCENTAGES_WITH_EXAMPLES
        size, counts, mean, gradients, shortfalls, *hits = split(self.resolved_budget, percentages)
        lattice = frame.lattice()  # that of the rows which are summed, whose norm no centre changes
        return _Mechanisms(
            frame=frame,
            size=RoundedGaussian.within(size, Fraction(1)),
            counts=RoundedGaussian.within(counts, Fraction(_COUNT_STEPS**2)),
            mean=RoundedGaussian.within(mean, _MEAN_STEPS**2 * lattice.squared_norm),
            gradients=RepeatedGaussian.within(gradients, SoftmaxGradient(lattice).squared_sensitivity, STEPS),
            shortfalls=RoundedGaussian.within(shortfalls, Fraction(RESOLUTION**2)),
            hits=RoundedGaussian.within(hits[0], Fraction(1)) if hits else None,
        )

    def _releases(self, mechanism: _Mechanisms | Frame, n_classes: int, dim: int) -> tuple[Release, ...]:
        if isinstance(mechanism, Frame):
            return ()
        releases = [
            mechanism.size.describe("number of records"),
            mechanism.counts.describe(f"size of each class, in steps of 1/{_COUNT_STEPS}"),
            mechanism.mean.describe(f"sum of lattice rows, weighted by class ({dim})"),
        ]
        if mechanism.hits is not None:
            releases.append(mechanism.hits.describe("number of records whose own class the examples rank first"))
        return (
            *releases,
            mechanism.gradients.describe(f"sum of clipped gradients ({n_classes} x {dim})"),
            mechanism.shortfalls.describe(f"how much less often than others each class is predicted ({n_classes})"),
        )

    @property
    def _sums_alone(self) -> bool:
        return True

    def _release_persons(self, plan: Plan, rows: RowSource, codes: Codes, numbers: Codes, source: Randomness) -> None:
        persons = WholePersons.of(codes, numbers, len(plan.classes), plan.max_classes_per_person)
        self._release_sums(plan, HeldRecords(rows, persons.codes, persons), source)

    def _release_sums(self, plan: Plan, records: Records, source: Randomness) -> None:
        mechanism = plan.mechanism
        if isinstance(mechanism, Frame):
            alone = self._classifier_of_examples(plan, mechanism.lattice(mechanism.center), mechanism)
            self._set_model(
                alone.coef @ mechanism.axes.T, mechanism.axes @ mechanism.center, np.zeros(len(plan.classes))
            )
            return
        frame, n_classes = mechanism.frame, len(plan.classes)
        exact_counts, number = records.total(class_masses, n_classes, _COUNT_STEPS)
        size = release_size(mechanism.size, int(number[0]), n_classes, source)
        counts = mechanism.counts.release(exact_counts, source) / _COUNT_STEPS
        sizes = ClassSizes.of(size, counts, mechanism.counts.noise_std / _COUNT_STEPS)
        mean_weights = sizes.mean_weights(mechanism.mean_noise_std * math.sqrt(frame.lattice().dim))
        center = self._released_mean(mechanism, sizes, mean_weights, records, source)
        gradient = SoftmaxGradient(frame.lattice(center))
        unit, basis, offsets = gradient.unit / CLIP, frame.basis, np.log(sizes.shares)
        noise_std = mechanism.gradients.noise_std / unit
        ascent = Ascent(sizes, frame.spectrum, noise_std)
        if mechanism.hits is not None:
            examples = self._classifier_of_examples(plan, gradient.lattice, frame)
            (exact_hits,) = records.total(first_ranks, gradient, examples.coef @ basis.T, examples.offsets)
            hits = mechanism.hits.release(exact_hits, source)
            ascent = GuidedAscent(sizes, frame.spectrum, noise_std, examples, float(hits[0]), mechanism.hits.noise_std)
        for _ in steps(STEPS):
            (exact,) = records.total(gradients, gradient, ascent.weights @ basis.T, offsets, CLIP)
            ascent.move(mechanism.gradients.release(exact, source) / unit @ basis)
        balancing = integer_weights(sizes.balancing, WEIGHT_STEPS)
        (exact,) = records.total(shortfalls, gradient, ascent.weights @ basis.T, balancing)
        unit = RESOLUTION / longest_shortfall(n_classes)
        noisy, noise_std = mechanism.shortfalls.release(exact, source) / unit, mechanism.shortfalls.noise_std / unit
        intercept = intercepts(noisy, noise_std, sizes, mean_weights)
        self._set_model(ascent.weights @ frame.axes.T, frame.axes @ center, intercept, sizes.shares)

    def _classifier_of_examples(self, plan: Plan, lattice: Lattice, frame: Frame) -> ExampleClassifier:
        """Fit the public examples alone, as rows of the lattice along the public axes."""
        examples = plan.public.examples
        assert examples is not None
        features = lattice.features(examples.rows) @ frame.basis
        return ExampleClassifier.fit(features, examples.codes, len(plan.classes))

    def _released_mean(
        self, mechanism: _Mechanisms, sizes: ClassSizes, weights: Float, records: Records, source: Randomness
    ) -> Float:
        """Release the weighted sum of rows and return their mean, along the public axes."""
        frame, lattice = mechanism.frame, mechanism.frame.lattice()
        on_grid = integer_weights(weights, _MEAN_STEPS)
        (exact,) = records.total(weighted_total, lattice, on_grid)
        noisy = mechanism.mean.release(exact, source) / (_MEAN_STEPS * lattice.scale) @ frame.basis
        weight = sizes.total * float(sizes.shares @ on_grid) / _MEAN_STEPS
        return shrunken_mean(noisy, weight, frame.center, mechanism.mean_noise_std)

    def _set_model(self, coef: Float, center: Float, intercept: Float, shares: Float | None = None) -> None:
        self.coef_, self.intercept_, self.shares_ = coef, intercept, shares
        self.lattice_ = Lattice(len(center), center=center)
        away = math.sqrt(max(0.0, 1 - float(center @ center)))
        self.prototypes_ = unit_directions(center + away * unit_directions(coef))

    def _tensors(self) -> dict[str, NDArray[Any]]:
        shares = {} if self.shares_ is None else {"shares": self.shares_}
        return {"coef": self.coef_, "intercept": self.intercept_, **shares}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        n_classes, dim = len(self.classes_), self.n_features_in_
        center = check_tensor(tensors, "center", (dim,), np.float64)
        coef = check_tensor(tensors, "coef", (n_classes, dim), np.float64)
        intercept = check_tensor(tensors, "intercept", (n_classes,), np.float64)
        shares = check_tensor(tensors, "shares", (n_classes,), np.float64) if self.guarantee_.releases else None
        if shares is not None and not ((shares > 0).all() and math.isclose(shares.sum(), 1)):
            raise Misfit("its shares of the classes are none")
        self._set_model(coef, center, intercept, shares)

    def _class_scores(self, features: NDArray[np.float32]) -> Float:
        return np.asarray(features @ self.coef_.T + self.intercept_, np.float64)


def integer_weights(weights: Float, steps: int) -> Int64:
    """Round weights down to a grid of integers, from 0 to `steps` whatever they are."""
    return np.floor(np.clip(np.nan_to_num(weights), 0, 1) * steps).astype(np.int64)
