"""A start from public examples: their classifier, and how far released gradients bear it out.

Units and axes are those of `ascent`.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dppl._utils.types import Flags, Float
from dppl.kernel.reading import Codes
from dppl.methods.ascent import CLIP, STEPS, Ascent, NoisyMoment
from dppl.methods.sizes import ClassSizes

# Of a start from examples: gradients that are taken from zero weights, to see which
# examples they agree with.
_LOOK = 3
# Ridge of the classifier of the examples, whose loss is a sum.
_RIDGE = 0.1
# Length of the start, in multiples of that classifier, if all examples are right and if
# only some are.
_LENGTH = 4.0
_LENGTH_OF_SOME = 3.0
# Before anything was released: that no example is right, that each is with probability
# 1/2, that all are.
_PRIOR = np.array((0.10, 0.18, 0.72))
# How much better a right example may agree with the gradient of its class than a wrong
# one, and the share of records that right ones rank first; all alike before anything
# was released.
_SHIFTS = np.arange(1, 9) / 10
_ACCURACIES = np.arange(2, 10) / 10
# Least standard deviations of agreement between classes and examples, and of what is
# taken off for a class's size.
LEAST_SPREAD = 0.05
_USUAL_SPREAD = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class ExampleClassifier:
    """Ridge softmax regression on the public examples alone."""

    features: Float  # shape (n_examples, dim); centred unit rows
    codes: Codes  # shape (n_examples,)
    coef: Float  # shape (n_classes, dim); zero for classes without an example
    known: Flags  # shape (n_classes,); classes with an example

    @classmethod
    def fit(cls, features: Float, codes: Codes, n_classes: int) -> Self:
        """Fit it; rows of `coef` of classes with an example add up to zero, as at every minimum."""
        from scipy.optimize import (
            minimize,
        )  # here, as below, because a fit without examples needs no SciPy
        from scipy.special import log_softmax, softmax

        known, labels = np.unique(codes, return_inverse=True)
        target = np.eye(len(known))[labels]

        def loss(flat: Float) -> tuple[float, Float]:
            weights = flat.reshape(len(known), -1)
            logits = features @ weights.T
            gradient = (
                softmax(logits, axis=1) - target
            ).T @ features + _RIDGE * weights
            value = (
                -(log_softmax(logits, axis=1) * target).sum()
                + _RIDGE / 2 * (weights**2).sum()
            )
            return float(value), gradient.ravel()

        minimum = minimize(
            loss, np.zeros(len(known) * features.shape[1]), jac=True, method="L-BFGS-B"
        )
        coef = np.zeros((n_classes, features.shape[1]))
        coef[known] = minimum.x.reshape(len(known), -1)
        return cls(features, codes, coef, np.isin(np.arange(n_classes), known))

    @property
    def offsets(self) -> Float:
        """Offsets of logits that keep classes without an example from being ranked first."""
        return np.where(self.known, 0.0, -1e6)

    def gradient(self, weights: Float, offsets: Float, trust: Float) -> Float:
        """Return the sum of clipped gradients of the examples, each as much as its class is trusted."""
        from scipy.special import softmax

        residuals = -softmax(self.features @ weights.T + offsets, axis=1)
        residuals[np.arange(len(self.codes)), self.codes] += 1
        norms = np.linalg.norm(residuals, axis=1)
        residuals *= (
            trust[self.codes] * np.minimum(1, CLIP / np.maximum(norms, 1e-12))
        )[:, None]
        return np.asarray(residuals.T @ self.features)


@dataclass(frozen=True, slots=True)
class Trust:
    """What released values say of the examples."""

    all_right: float  # probability that the examples of all classes are right, times the share of classes that have any
    right: Float  # shape (n_classes,); what is left of the probability that its examples are right

    @classmethod
    def of(
        cls,
        agreement: Float,
        noise_std: Float,
        spread: Float,
        known: Flags,
        hits: tuple[float, float],
    ) -> Self:
        """Weigh three hypotheses on the examples: none is right, each is with probability 1/2, all are.

        `agreement` has each class's noisy gradient in a row and each class's examples
        in a column; `spread` is the relative deviation of the class sizes that rows
        were divided by. `hits` is the noisy share of records that the examples rank
        first, and its deviation. Examples of *other* classes show how wrong ones agree,
        as in the two-groups model of large-scale testing with an empirical null (Efron
        2008, DOI 10.1214/07-STS236).
        """
        from scipy.special import expit, softmax

        middle, variance = of_wrong(agreement, noise_std, spread, known)

        # How likely each class's own agreement is, if its examples are wrong or right.
        own = agreement.diagonal()[known]
        noise = noise_std[known] ** 2
        sizes = spread[known] ** 2
        wrong = log_normal(own, middle, variance * (1 + sizes) + noise)
        means = middle + _SHIFTS[:, None]
        right = log_normal(
            own, means, variance + noise + (abs(middle) + _SHIFTS[:, None]) ** 2 * sizes
        )
        some = np.logaddexp(wrong, right) - math.log(2)
        none = np.broadcast_to(wrong, right.shape)
        evidence = np.stack([part.sum(axis=1) for part in (none, some, right)])

        # How likely the share of hits is; wrong examples hit by chance.
        share = np.array((0, 0.5, 1))[:, None]
        chance = 1 / len(own)
        accuracies = share * _ACCURACIES + (1 - share) * chance
        likelihoods = log_normal(hits[0], accuracies, hits[1] ** 2 + (chance / 2) ** 2)
        evidence += (np.log(_PRIOR) + np.logaddexp.reduce(likelihoods, axis=1))[:, None]

        posterior = softmax(evidence)
        all_right = float(posterior[2].sum())
        complete = float(known.mean())
        left = np.zeros(len(known))
        left[known] = posterior[1] @ expit(right - wrong) + all_right * (1 - complete)
        return cls(all_right * complete, left)


def of_wrong(
    agreement: Float, noise_std: Float, spread: Float, known: Flags
) -> tuple[float, float]:
    """Return mean and variance, without noise, of how gradients of classes agree with the rows of other classes."""
    others = known & ~np.eye(len(known), dtype=bool)
    uneven = 1 + spread**2
    weights = others / ((noise_std**2 + _USUAL_SPREAD**2 * uneven) * uneven)[:, None]
    total = max(float(weights.sum()), 1e-300)
    middle = float((weights * agreement).sum()) / total
    excess = (
        float((weights * ((agreement - middle) ** 2 - noise_std[:, None] ** 2)).sum())
        / total
    )
    return middle, max(excess, LEAST_SPREAD**2)


def log_normal(x: Float | float, mean: Float | float, variance: Float | float) -> Float:
    """Return the logarithm of a Gaussian density, up to a constant."""
    return np.asarray(-((x - mean) ** 2) / (2 * variance) - np.log(variance) / 2)


class GuidedAscent(Ascent):
    """An ascent that starts, after a few gradients from zero, from the examples' classifier, as far as that is right.

    From there on examples are records without noise.
    """

    def __init__(
        self,
        sizes: ClassSizes,
        spectrum: Float,
        noise_std: float,
        examples: ExampleClassifier,
        hits: Float,
        hits_std: float,
        moment: NoisyMoment | None = None,
    ) -> None:
        super().__init__(sizes, spectrum, noise_std, moment)
        self._examples = examples
        records = sizes.total * max(float(sizes.shares[examples.known].sum()), 1e-3)
        self._hits = hits[0] / records, hits_std / records
        self._early = np.zeros_like(self.weights)
        self._start = np.zeros_like(self.weights)
        self._weight = 1.0
        self._trust: Trust | None = None

    def move(self, gradient: Float) -> None:
        """Take a step along a noisy gradient, of shape (n_classes, dim)."""
        if self._trust is not None:
            trust = self._trust.all_right + self._trust.right
            gradient = gradient + self._examples.gradient(
                self.point, np.log(self.sizes.shares), trust
            )
        super().move(gradient)
        if self._trust is None:
            self._early += gradient
            if self.moves == _LOOK:
                self._trust = self._judged()
                self._set_start(self._trust)
        self.weights = self._start + self._weight * self.weights
        self.weights_noise = self._weight * self.weights_noise
        # As a path from zero that leads to these weights, for a fit that starts here.
        self.path = self._start / self.steps[:, None] + self._weight * self.path
        self.path_variance = self._weight**2 * self.path_variance

    def _judged(self) -> Trust:
        """Compare the first gradients with the examples, in units of the most that records can add along them."""
        sizes = self.sizes
        coef = self._examples.coef
        records = np.maximum(sizes.sizes, max(sizes.noise_std, 1.0))
        most = CLIP * _LOOK * records
        directions = coef / np.maximum(
            np.linalg.norm(coef, axis=1, keepdims=True), 1e-300
        )
        agreement = self._early @ directions.T / most[:, None]
        noise_std = self.noise_std * math.sqrt(_LOOK) / most
        return Trust.of(
            agreement,
            noise_std,
            sizes.noise_std / records,
            self._examples.known,
            self._hits,
        )

    def _set_start(self, trust: Trust) -> None:
        """Settle what the weights start from, and how much is added to it of what records say.

        The more of its gradients is signal, the shorter a class's start: records say
        more than examples then. The more is noise, the less records weigh if all
        examples are right, which they can only spoil.
        """
        # The share of signal in all gradients of classes of these sizes, and of the
        # mean size, if all are clipped.
        sizes = np.append(self.sizes.total * self.sizes.shares, self._class_size)
        ratio = (
            STEPS * (CLIP * sizes) ** 2 / (self.noise_std**2 * self.weights.shape[1])
        )
        *signals, usual = ratio / (1 + ratio)
        lengths = _LENGTH * trust.all_right + _LENGTH_OF_SOME * trust.right
        self._start = (lengths * (1 - np.array(signals)))[:, None] * self._examples.coef
        self._weight = 1 - trust.all_right * (1 - math.sqrt(usual))
