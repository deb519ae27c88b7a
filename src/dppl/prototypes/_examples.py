"""A start from public examples of the classes: a classifier of them alone, and how far released values bear it out.

All of it is a function of public examples, of the budget and of released values; no private record enters. Rows and
weights are along the public axes, as in `_softmax`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from dppl.kernel.reading import Codes
from dppl.prototypes._softmax import CLIP, STEPS, Ascent, ClassSizes

Float = NDArray[np.float64]

# Gradients that are taken from zero weights, to see which examples they agree with.
_LOOK = 3
# Ridge of the classifier of the examples, whose loss is a sum.
_RIDGE = 0.1
# Length of the start, in multiples of that classifier, if all examples are right and if only some are.
_LENGTH, _LENGTH_OF_SOME = 4.0, 3.0
# Before anything was released: that no example is right, that each is with probability 1/2, that all are.
_PRIOR = np.array((0.10, 0.18, 0.72))
# How much better a right example may agree with the gradient of its class than a wrong one, and the share of records
# that right ones rank first; all alike before anything was released.
_SHIFTS = np.arange(1, 9) / 10
_ACCURACIES = np.arange(2, 10) / 10
# Least standard deviations of agreement between classes and examples, and of what is taken off for a class's size.
_LEAST_SPREAD, _USUAL_SPREAD = 0.05, 0.1


@dataclass(frozen=True, slots=True, eq=False)
class ExampleClassifier:
    """Ridge softmax regression on the public examples alone."""

    features: Float  # shape (n_examples, dim); centred unit rows
    codes: Codes  # shape (n_examples,)
    coef: Float  # shape (n_classes, dim); zero for classes without an example
    known: NDArray[np.bool_]  # shape (n_classes,); classes with an example

    @classmethod
    def fit(cls, features: Float, codes: Codes, n_classes: int) -> Self:
        """Fit it; rows of `coef` of classes with an example add up to zero, as at every minimum."""
        known, labels = np.unique(codes, return_inverse=True)
        target = np.eye(len(known))[labels]

        def loss(flat: Float) -> tuple[float, Float]:
            weights = flat.reshape(len(known), -1)
            logits = features @ weights.T
            gradient = (softmax(logits, axis=1) - target).T @ features + _RIDGE * weights
            value = -(log_softmax(logits, axis=1) * target).sum() + _RIDGE / 2 * (weights**2).sum()
            return float(value), gradient.ravel()

        minimum = minimize(loss, np.zeros(len(known) * features.shape[1]), jac=True, method="L-BFGS-B")
        coef = np.zeros((n_classes, features.shape[1]))
        coef[known] = minimum.x.reshape(len(known), -1)
        return cls(features, codes, coef, np.isin(np.arange(n_classes), known))

    @property
    def offsets(self) -> Float:
        """Offsets of logits that keep classes without an example from being ranked first."""
        return np.where(self.known, 0.0, -1e6)

    def gradient(self, weights: Float, offsets: Float, trust: Float) -> Float:
        """Return the sum of clipped gradients of the examples, each as much as its class is trusted."""
        residuals = -softmax(self.features @ weights.T + offsets, axis=1)
        residuals[np.arange(len(self.codes)), self.codes] += 1
        norms = np.linalg.norm(residuals, axis=1)
        residuals *= (trust[self.codes] * np.minimum(1, CLIP / np.maximum(norms, 1e-12)))[:, None]
        return np.asarray(residuals.T @ self.features)


@dataclass(frozen=True, slots=True)
class Trust:
    """What released values say of the examples."""

    all_right: float  # probability that those of all classes are right, times the share of classes that have any
    # shape (n_classes,); what is left of the probability that those of the class are right; 0 for classes without any
    right: Float

    @property
    def of_classes(self) -> Float:
        """Probability that a class's examples are right."""
        return self.all_right + self.right

    @classmethod
    def of(
        cls, agreement: Float, noise_std: Float, spread: Float, known: NDArray[np.bool_], hits: tuple[float, float]
    ) -> Self:
        r"""Weigh three hypotheses on the examples: none is right, each is with probability 1/2, all are.

        `agreement` has each class's noisy gradient in a row, and each class's examples, a record, in a column;
        `noise_std` is of each row, `spread` the relative standard deviation of the class sizes that rows were
        divided by. `hits` is the noisy share of records, of classes with examples, whose own class the examples rank
        first, and the standard deviation of its noise.

        Examples of *other* classes show how wrong ones agree with a gradient, so there is no threshold; this is the
        two-groups model of large-scale testing (Efron 2008, DOI 10.1214/07-STS236) with an empirical null. Right ones
        agree better by an unknown shift.
        """
        middle, variance = _null(agreement, noise_std, spread, known)
        own, noise, sizes = agreement.diagonal()[known], noise_std[known] ** 2, spread[known] ** 2
        wrong = _log_normal(own, middle, variance * (1 + sizes) + noise)
        means = middle + _SHIFTS[:, None]
        right = _log_normal(own, means, variance + noise + (abs(middle) + _SHIFTS[:, None]) ** 2 * sizes)
        some = np.logaddexp(wrong, right) - math.log(2)
        none = np.broadcast_to(wrong, right.shape)
        evidence = np.stack([part.sum(axis=1) for part in (none, some, right)])
        evidence += (np.log(_PRIOR) + _evidence_of_hits(*hits, len(own)))[:, None]
        posterior = softmax(evidence)
        all_right, complete = float(posterior[2].sum()), float(known.mean())
        left = np.zeros(len(known))
        left[known] = posterior[1] @ expit(right - wrong) + all_right * (1 - complete)
        return cls(all_right * complete, left)


def _null(agreement: Float, noise_std: Float, spread: Float, known: NDArray[np.bool_]) -> tuple[float, float]:
    """Return mean and variance, without the noise, of a class's agreement with examples of others."""
    others = known & ~np.eye(len(known), dtype=bool)
    sizes = 1 + spread**2
    weights = others / ((noise_std**2 + _USUAL_SPREAD**2 * sizes) * sizes)[:, None]
    total = max(float(weights.sum()), 1e-300)
    mean = float((weights * agreement).sum()) / total
    excess = float((weights * ((agreement - mean) ** 2 - noise_std[:, None] ** 2)).sum()) / total
    return mean, max(excess, _LEAST_SPREAD**2)


def _evidence_of_hits(hits: float, noise_std: float, n_known: int) -> Float:
    """Return the log-likelihood of the share of hits under each hypothesis; wrong examples hit by chance."""
    right = np.array((0, 0.5, 1))[:, None]
    chance = 1 / n_known
    each = _log_normal(hits, right * _ACCURACIES + (1 - right) * chance, noise_std**2 + (chance / 2) ** 2)
    return np.asarray(np.logaddexp.reduce(each, axis=1))


def _log_normal(x: Float | float, mean: Float | float, variance: Float | float) -> Float:
    return np.asarray(-((x - mean) ** 2) / (2 * variance) - np.log(variance) / 2)


class GuidedAscent(Ascent):
    """An ascent that starts, after a few gradients from zero, from the examples' classifier, as far as that is right.

    `hits` is the noisy number of records whose own class the examples rank first, with noise of `hits_std`.

    The start of a class is the shorter, the more of its gradients is signal, for records say more than examples then.
    What is learned from records is kept the shorter, the more of it is noise, if all examples are right, for it can
    only spoil them then. From there on examples are records without noise.
    """

    def __init__(
        self,
        sizes: ClassSizes,
        spectrum: Float,
        noise_std: float,
        examples: ExampleClassifier,
        hits: float,
        hits_std: float,
    ) -> None:
        super().__init__(sizes, spectrum, noise_std)
        self._sizes, self._examples, self._offsets = sizes, examples, np.log(sizes.shares)
        records = sizes.total * max(float(sizes.shares[examples.known].sum()), 1e-3)
        self._hits = hits / records, hits_std / records
        self._early = np.zeros_like(self.weights)
        self._start, self._kept = np.zeros_like(self.weights), 1.0
        self._trust: Trust | None = None

    def move(self, gradient: Float) -> None:
        """Take a step along a noisy gradient, of shape (n_classes, dim)."""
        if self._trust is not None:
            gradient = gradient + self._examples.gradient(self.weights, self._offsets, self._trust.of_classes)
        super().move(gradient)
        if self._trust is None:
            self._early += gradient
            if self._moves == _LOOK:
                self._trust = self._judged()
                self._set_start(self._trust)
        self.weights = self._start + self._kept * self.weights

    def _judged(self) -> Trust:
        sizes, coef = self._sizes, self._examples.coef
        records = np.maximum(sizes.sizes, max(sizes.noise_std, 1.0))
        # A record adds at most this much along a direction.
        most = CLIP * _LOOK * records
        directions = coef / np.maximum(np.linalg.norm(coef, axis=1, keepdims=True), 1e-300)
        return Trust.of(
            self._early @ directions.T / most[:, None],
            self._noise_std * math.sqrt(_LOOK) / most,
            sizes.noise_std / records,
            self._examples.known,
            self._hits,
        )

    def _set_start(self, trust: Trust) -> None:
        sizes, dim = self._sizes, self.weights.shape[1]

        def signal(records: Float | float) -> Float:
            """Return the share of signal in all gradients of a class of that size, if every residual is clipped."""
            ratio = STEPS * (CLIP * np.asarray(records)) ** 2 / (self._noise_std**2 * dim)
            return np.asarray(ratio / (1 + ratio))

        lengths = (_LENGTH * trust.all_right + _LENGTH_OF_SOME * trust.right) * (1 - signal(sizes.total * sizes.shares))
        self._start = lengths[:, None] * self._examples.coef
        self._kept = 1 - trust.all_right * (1 - math.sqrt(float(signal(self._class_size))))
