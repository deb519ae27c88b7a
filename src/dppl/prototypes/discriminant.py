"""Discriminant prototypes: class sums, a Gram matrix and a few gradients become a linear discriminant."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from dppl import _validate
from dppl.errors import BudgetError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.model_file import check_tensor
from dppl.estimators.records import Codes
from dppl.lattice import Lattice, RowSource, sums_and_grams
from dppl.lattice.residuals import SoftmaxGradient, gradient_blocks
from dppl.lattice.rotation import rotate
from dppl.mechanisms import Randomness, RoundedGaussian, SymmetricRoundedGaussian
from dppl.privacy import Budget, GaussianDP, Guarantee, PureDP, Release
from dppl.privacy.accounting import cost_of_gaussian, mu_below
from dppl.prototypes._discriminant import Discriminant, PublicMap, Released, Rule, gram_share, signal, temperature
from dppl.prototypes._shared import unit_directions

Float = NDArray[np.float64]

# Shares of mu², and so of rho = mu²/2, for the number of records and for the class counts. What is left after these,
# the Gram matrix and the gradients goes to the class sums.
_SIZE_SHARE, _COUNTS_SHARE = 0.01, 0.02
_ROTATION = 0
# The least rho of a gradient: below, its noise would be a hundred thousand times as long as a record.
_LEAST = 1e-9
_BUDGETS = 2e-6, 4e7  # in mu


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is settled before any record is read; the noisy number of records shares out the rest of the budget."""

    public_map: PublicMap
    size: RoundedGaussian
    counts: RoundedGaussian
    squared_mu: Fraction

    @property
    def rho(self) -> float:
        """The whole budget in zCDP, in which the rule is stated."""
        return float(self.squared_mu) / 2

    @property
    def rest(self) -> Fraction:
        """What of mu² is left for the Gram matrix, the class sums and the gradients: the square of a float.

        So the plan, which is what a ledger charges, states it exactly.
        """
        return Fraction(mu_below(self.squared_mu - self.size.squared_mu - self.counts.squared_mu)) ** 2


class DiscriminantPrototypes(EmbeddingClassifier):
    r"""A linear discriminant from noisy statistics, without hyper-parameters.

    Released are, in this order, the number of records, the class counts, the Gram matrix of the features, the class
    sums and five gradients of the softmax loss. The class sums are shrunk by an empirical prior, whitened by the
    covariance that the Gram matrix shows within classes, and moved by the gradients; all of that is post-processing.
    Features are public: unit rows, centred and partly whitened by the covariance of public rows.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP
        What the whole fit may spend.
    classes : array-like of shape (n_classes,), default=None
        Public list of classes. None reads the list from `y`, which is not private, and warns.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), float64
        Weights for centred unit rows. Safe to publish.
    prototypes_ : ndarray of shape (n_classes, n_features), float32
        Representatives of the classes among unit rows, for reports; `predict` does not use them.
    temperature_ : float
        What `predict_proba` multiplies scores by.
    classes_, guarantee_, lattice_, n_features_in_, encoder_
        As in `MeanPrototypes`.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the five statistics above, through the
    rounded Gaussian. Sensitivity: 1 of the number of records and, with s the largest norm of a lattice row q, 1 of the
    counts, because a record is in one class; s² of the Gram matrix in the Frobenius norm, because ‖q qᵀ‖ = ‖q‖²; s of
    the class sums; r·s of each gradient, because it adds an outer product of the record's residual, whose norm is at
    most r grid steps, and q. Later releases depend on the data through the earlier ones only, and so do their shares of
    the budget, so the squares of mu add up to the budget's [2]_. Public inputs: `classes`, `X_public`, all parameters,
    `n_features`. Not covered: choice of parameters by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] The rule combines the class sums of DPPL (arXiv:2406.08039) with the Gram matrix of DP-LS (Mehta et al.,
       arXiv:2211.13403), empirical Bayes shrinkage and preconditioned gradients.
    .. [2] Smith, Thakurta (2022), arXiv:2210.17520 (fully adaptive composition of Gaussian DP).

    Examples
    --------
    >>> from dppl import ZCDP, DiscriminantPrototypes
    >>> from dppl.data import load_sample
    >>> sample = load_sample()
    >>> model = DiscriminantPrototypes(ZCDP(2.0), classes=sample.classes)
    >>> model = model.fit(sample.X, sample.y, X_public=sample.X_public)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    coef_: Float
    prototypes_: NDArray[np.float32]
    temperature_: float
    _RELEASED = "coef_"
    adjacency = "add-remove"
    pool, center, rotation = 1, None, None

    def __init__(
        self,
        budget: Budget,
        classes: ArrayLike | None = None,
        *,
        unknown_labels: str = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.one_of(("add-remove",), adjacency=self.adjacency)
        if isinstance(self.budget, PureDP):
            raise BudgetError(
                "DiscriminantPrototypes releases sums with Gaussian noise, which gives no pure-DP guarantee at any "
                "scale; use a GaussianDP, ZCDP or ApproxDP budget, or PublicPrototypes, which selects public rows "
                "under pure DP."
            )

    @property
    def _rule(self) -> Rule:
        return Rule()

    def _uses_public_rows(self) -> bool:
        return self.lattice_.center is not None

    def _plan(self, public: RowSource | None) -> _Plan:
        public_map = PublicMap.of(public, self.n_features_in_)
        self.lattice_ = Lattice(self.n_features_in_, center=public_map.mean)
        squared_mu = Fraction(self.budget.gaussian_allowance().mu) ** 2
        # Beyond, noise or sums would leave 64-bit integers, which would show only after the first releases.
        mu = self.budget.gaussian_allowance().mu
        if not _BUDGETS[0] <= mu <= _BUDGETS[1]:
            raise BudgetError(
                f"DiscriminantPrototypes needs a budget of mu from {_BUDGETS[0]:g} to {_BUDGETS[1]:g}; got "
                f"{self.budget}, which allows mu = {mu:.3g}."
            )
        return _Plan(
            public_map=public_map,
            size=RoundedGaussian.within(_share(squared_mu, _SIZE_SHARE), Fraction(1)),
            counts=RoundedGaussian.within(_share(squared_mu, _COUNTS_SHARE), Fraction(1)),
            squared_mu=squared_mu,
        )

    def predict_proba(self, X: Any) -> Float:
        """Return the probability of each class for each row, when all classes are equally frequent.

        The softmax of `temperature_` times the scores. The temperature is post-processing: a function of the released
        weights and of public moments.

        Parameters
        ----------
        X : array-like or table of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return np.asarray(softmax(self.temperature_ * self._scores(X), axis=1))

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"coef": self.coef_, "prototypes": self.prototypes_, "temperature": np.array([self.temperature_])}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        shape = len(self.classes_), self.n_features_in_
        self.coef_ = check_tensor(tensors, "coef", shape, np.float64)
        self.prototypes_ = check_tensor(tensors, "prototypes", shape, np.float32)
        self.temperature_ = float(check_tensor(tensors, "temperature", (1,), np.float64)[0])

    def _class_scores(self, features: NDArray[np.float32]) -> Float:
        return np.asarray(features @ self.coef_.T, np.float64)

    def _guarantee(self, mechanism: _Plan, source: Randomness) -> Guarantee:
        rest = Release(
            mechanism="rounded Gaussian, on symmetric matrices and on sums",
            statistic=f"Gram matrix, class sums and {self._rule.steps} gradients at most, sharing by noisy size",
            sensitivity=1.0,
            norm="L2, in units of each statistic,",
            parameters={},
            cost=cost_of_gaussian(mechanism.rest),
        )
        return Guarantee(
            budget=self.budget,
            adjacency=self.adjacency,
            releases=(*_first_releases(mechanism), rest),
            public_inputs=self._public_inputs(),
            not_covered=self._not_covered(),
            fit_for_release=source.fit_for_release,
        )

    def _release(
        self, mechanism: _Plan, rows: RowSource, codes: Codes, public: RowSource | None, source: Randomness
    ) -> None:
        n_classes, known = len(self.classes_), codes[codes >= 0]
        size = int(mechanism.size.release(np.array([len(known)]), source)[0])
        size = max(size, 2 * n_classes)
        counts = mechanism.counts.release(np.bincount(known, minlength=n_classes), source)
        h = signal(size, n_classes, self.n_features_in_, mechanism.rho)
        features = _Features.of(self._rule, mechanism.public_map, public, h)
        shares = _Shares.of(self._rule, mechanism, features, size, h)
        blocks = gradient_blocks(features.lattice, rows)
        exact_sums, exact_gram = sums_and_grams(blocks, codes, n_classes, features.lattice.dim)
        start = Discriminant(
            Released(
                size=size,
                counts=counts.astype(np.float64),
                sums=features.along_axes(shares.sums.release(exact_sums, source) / features.lattice.scale),
                gram=features.gram_along_axes(shares.gram.release(exact_gram[0], source)),
                counts_std=mechanism.counts.noise_std,
                sums_std=shares.sums.noise_std / features.lattice.scale,
                gram_std=shares.gram.noise_std / float(features.lattice.squared_norm),
            ),
            features.moments,
            self._rule,
        )
        weights = start.weights
        for _ in range(shares.steps):
            exact = features.gradient.sum(blocks, codes, weights @ features.basis.T, start.log_priors)
            noisy = shares.gradient.release(exact, source) / features.gradient.unit
            weights = weights + start.step(
                features.along_axes(noisy),
                steps=shares.steps,
                gradient_std=shares.gradient.noise_std / features.gradient.unit,
                signal=h,
            )
        self.temperature_ = temperature(weights, features.moments)
        self.coef_ = features.input_weights(weights)
        self.prototypes_ = features.input_rows(start.means)
        self.guarantee_ = replace(
            self.guarantee_, releases=(*_first_releases(mechanism), *shares.releases(n_classes, features.lattice.dim))
        )


@dataclass(frozen=True, slots=True)
class _Features:
    """The public map from embeddings to the lattice rows of one fit.

    Lattice rows are in the coordinates of the embeddings, turned back from the public axes: along these, a few
    coordinates would be so large that rounding cut them off.
    """

    public_map: PublicMap
    scales: Float
    lattice: Lattice
    basis: Float
    moments: Float

    @classmethod
    def of(cls, rule: Rule, public_map: PublicMap, public: RowSource | None, h: float) -> _Features:
        scales = public_map.scales(rule.whitening * (h if rule.whitening_follows_signal else 1))
        n_features = len(scales)
        if public is None:
            lattice, basis = Lattice(n_features), np.eye(n_features)
        else:
            lattice, basis = cls._lattice(public_map, scales, public_map.axes)
            if lattice.loses_much(public):
                lattice, basis = cls._lattice(public_map, scales, rotate(public_map.axes.T, _ROTATION).T)
        return cls(public_map, scales, lattice, basis, public_map.moments(public, lattice, basis))

    @staticmethod
    def _lattice(public_map: PublicMap, scales: Float, basis: Float) -> tuple[Lattice, Float]:
        projection = (basis * scales) @ public_map.axes.T
        return Lattice(len(scales), center=public_map.mean, projection=projection), basis

    @property
    def gradient(self) -> SoftmaxGradient:
        return SoftmaxGradient(self.lattice)

    def along_axes(self, rows: Float) -> Float:
        """Turn rows from lattice coordinates to the public axes."""
        return np.asarray(rows @ self.basis)

    def gram_along_axes(self, steps: NDArray[np.int64]) -> Float:
        """Turn a Gram matrix of lattice rows to the public axes, in units of unit-norm features."""
        return np.asarray(self.basis.T @ (steps / float(self.lattice.squared_norm)) @ self.basis)

    def input_weights(self, weights: Float) -> Float:
        """Return weights for centred unit rows whose scores are, on average over public rows, those of the features."""
        lengths = math.sqrt(self.public_map.variances.sum() / (self.public_map.variances * self.scales**2).sum())
        return np.asarray(lengths * (weights * self.scales) @ self.public_map.axes.T)

    def input_rows(self, means: Float) -> NDArray[np.float32]:
        """Return unit rows whose features point where `means` do."""
        raw = means / self.scales
        variances = self.public_map.variances
        centred = math.sqrt(variances.sum() / (self.moments / self.scales**2).sum()) * raw @ self.public_map.axes.T
        return unit_directions(centred if self.public_map.mean is None else centred + self.public_map.mean)


@dataclass(frozen=True, slots=True)
class _Shares:
    """How the rest of the budget is spent, by public values and the noisy number of records."""

    gram: SymmetricRoundedGaussian
    sums: RoundedGaussian
    gradient: RoundedGaussian
    steps: int

    @classmethod
    def of(cls, rule: Rule, plan: _Plan, features: _Features, size: int, h: float) -> _Shares:
        rho, norm = plan.rho, features.lattice.squared_norm
        for_gram = gram_share(rule.gram_share, features.moments, size, rho)
        gram = SymmetricRoundedGaussian.within(_share(plan.squared_mu, for_gram), norm**2)
        each = _share(plan.squared_mu, max(rule.gradients_share * h / max(rule.steps, 1), _LEAST / rho))
        gradient = RoundedGaussian.within(each, features.gradient.squared_sensitivity)
        # Below that, noise leaves nothing of a gradient.
        steps = rule.steps if each.mu**2 / 2 > _LEAST else 0
        left = plan.rest - gram.squared_mu - steps * gradient.squared_mu
        return cls(gram, RoundedGaussian.within(GaussianDP(mu_below(left)), norm), gradient, steps)

    def releases(self, n_classes: int, dim: int) -> list[Release]:
        """Return the entries of the guarantee."""
        gradient = self.gradient.describe(f"gradient of the softmax loss ({n_classes} x {dim})")
        return [
            self.gram.describe(f"Gram matrix of lattice rows ({dim} x {dim})"),
            self.sums.describe(f"class sums of lattice rows ({n_classes} x {dim})"),
            *[gradient] * self.steps,
        ]


def _first_releases(plan: _Plan) -> tuple[Release, Release]:
    return plan.size.describe("number of records"), plan.counts.describe("number of records in each class")


def _share(squared_mu: Fraction, share: float) -> GaussianDP:
    return GaussianDP(mu_below(squared_mu * Fraction(share)))
