"""The arithmetic of discriminant prototypes that no private record enters: public maps and post-processing of releases.

Axes are the eigenvectors of the public covariance. Everything here is a function of public rows, of the budget and of
released values; the constants are universal and were not chosen for a data set at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dppl.lattice import Lattice, RowSource, iter_blocks

Float = NDArray[np.float64]

_PUBLIC_ROWS = 2048
# Exponents of the public spectrum that may describe how class sums spread over the axes.
_EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_SMALLEST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The universal constants of the rule and its parts, which ablations change one at a time.

    Parameters
    ----------
    steps : int
        Number of gradients.
    gradients_share : float
        Share of rho for all of them together, at full signal.
    gram_share : float
        Largest share of rho for the Gram matrix.
    whitening : float
        Exponent of the public spectrum that features are divided by, at full signal.
    whitening_follows_signal, damped_steps, balanced, debiased, charged_exponents : bool
        Whether whitening shrinks with the signal, steps with few records per axis, the softmax knows the class sizes,
        the noise in the length of class sums is taken out only as far as they differ by more than it, and exponents of
        the prior cost evidence.
    """

    steps: int = 5
    gradients_share: float = 0.3
    gram_share: float = 0.2
    whitening: float = 1 / 4
    whitening_follows_signal: bool = True
    damped_steps: bool = True
    balanced: bool = True
    debiased: bool = True
    charged_exponents: bool = True


@dataclass(frozen=True, slots=True)
class PublicMap:
    """Mean and principal axes of public unit rows.

    Parameters
    ----------
    mean : ndarray of shape (n_features,) or None
    axes : ndarray of shape (n_features, n_features)
        Eigenvectors of the covariance in columns, largest variance first.
    variances : ndarray of shape (n_features,)
    """

    mean: Float | None
    axes: Float
    variances: Float

    @classmethod
    def of(cls, public: RowSource | None, n_features: int) -> Self:
        """Fit the map on public rows; without any it is the identity."""
        if public is None:
            return cls(None, np.eye(n_features), np.full(n_features, 1 / n_features))
        unit = Lattice(n_features)
        total, products, count = np.zeros(n_features), np.zeros((n_features, n_features)), 0
        for block in iter_blocks(public, _PUBLIC_ROWS):
            u = unit.features(block)
            u = u[u.any(axis=1)]
            total += u.sum(axis=0, dtype=np.float64)
            products += u.T @ u
            count += len(u)
        mean = total / max(count, 1)
        variances, axes = np.linalg.eigh(products / max(count, 1) - np.outer(mean, mean))
        return cls(mean, axes[:, ::-1], np.maximum(variances[::-1], _SMALLEST_VARIANCE))

    def scales(self, whitening: float) -> Float:
        """Return the factors of the axes: none at whitening 0, unit variances at 1."""
        return np.asarray(self.variances ** (-whitening / 2))

    def moments(self, public: RowSource | None, lattice: Lattice, basis: Float) -> Float:
        """Return the public second moment of the features per axis, of sum 1.

        Parameters
        ----------
        public : array or table of shape (n_public, n_features), or None
        lattice : Lattice
            The map from embeddings to features.
        basis : ndarray of shape (dim, dim)
            The axes in the coordinates of the features, in columns.
        """
        moments = np.zeros(lattice.dim)
        if public is not None:
            for block in iter_blocks(public, _PUBLIC_ROWS):
                moments += np.square(lattice.features(block) @ basis.astype(np.float32)).sum(axis=0, dtype=np.float64)
        total = moments.sum()
        return moments / total if total > 0 else np.full(lattice.dim, 1 / lattice.dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What was released before the first gradient, in units of unit-norm features and along the public axes.

    Parameters
    ----------
    size : float
        Noisy number of records, raised to 2 per class at least.
    counts : ndarray of shape (n_classes,)
    sums : ndarray of shape (n_classes, dim)
    gram : ndarray of shape (dim, dim)
    counts_std, sums_std, gram_std : float
        Standard deviations of their noise; that of the Gram matrix on its diagonal.
    """

    size: float
    counts: Float
    sums: Float
    gram: Float
    counts_std: float
    sums_std: float
    gram_std: float


def signal(size: float, n_classes: int, dim: int, rho: float) -> float:
    """Return h = s/(1 + s), where s is the squared class size over the noise energy of a class sum."""
    s = 2 * rho * size**2 / (n_classes**2 * dim)
    return s / (1 + s)


def gram_share(most: float, moments: Float, size: float, rho: float) -> float:
    """Return the share of rho for the Gram matrix: less than `most` where its noise would drown the axes."""
    return float(most * (moments**2 / (moments + math.sqrt(len(moments) / rho) / size)).sum())


def temperature(weights: Float, moments: Float) -> float:
    """Return the factor by which scores go into a softmax: from 1 to 8.

    The gradient steps bring strong weights to the scale of a softmax. Weights of a weak signal stay short, and a
    softmax of their scores would know hardly anything; they are drawn out until scores differ between classes, over
    rows like the public ones, by about 0.45·log(n_classes). That constant was found on banking77 and CIFAR-10
    embeddings over budgets from 0.1 to 8.

    Parameters
    ----------
    weights : ndarray of shape (n_classes, dim)
    moments : ndarray of shape (dim,)
    """
    spread = math.sqrt(float((moments * weights.var(axis=0)).sum()))
    return min(max(0.45 * math.log(max(len(weights), 2)) / max(spread, 1e-30), 1.0), 8.0)


class Discriminant:
    """A linear discriminant from released statistics, and the size of its gradient steps.

    Parameters
    ----------
    released : Released
    moments : ndarray of shape (dim,)
        Public second moments of the features.
    rule : Rule

    Attributes
    ----------
    weights : ndarray of shape (n_classes, dim)
        Where the gradient steps start.
    means : ndarray of shape (n_classes, dim)
        Shrunken class sums over class sizes.
    sizes : ndarray of shape (n_classes,)
        Class sizes that are safe to divide by.
    """

    def __init__(self, released: Released, moments: Float, rule: Rule) -> None:
        self._released, self._rule = released, rule
        cost = math.log(len(moments)) if rule.charged_exponents else 0.0
        shrinkage: Float = posterior_shrinkage(released.sums, released.sums_std**2, moments, cost)
        sums = shrinkage * released.sums
        self.sizes = np.maximum(np.maximum(released.counts, 0) + released.counts_std, np.linalg.norm(sums, axis=1))
        self.means = sums / self.sizes[:, None]
        between = self.means.T @ sums
        self._within = self._covariance(between, moments)
        inverse = np.asarray(np.linalg.inv(self._within), np.float64)
        self.weights = self._start(sums, shrinkage, inverse)
        self._metric = np.linalg.inv(self._within + between / released.size)

    def step(self, gradient: Float, *, steps: int, gradient_std: float, signal: float) -> Float:
        """Return the change of the weights that a noisy gradient asks for.

        The metric is the inverse total covariance. The second term of the step's reciprocal keeps the noise of all
        steps together below sqrt(signal) of the size of the weights.

        Parameters
        ----------
        gradient : ndarray of shape (n_classes, dim)
        steps : int
            How many there are.
        gradient_std : float
            Noise of each.
        signal : float
            As `signal` returns it.
        """
        size, dim = self._released.size, gradient.shape[1]
        rate = 0.3 * size / (size + 4 * dim) if self._rule.damped_steps else 0.3
        energy = float((self._metric * (self._within @ self._metric)).sum())
        reciprocal = self.sizes / rate + math.sqrt(steps * gradient_std**2 * energy / (4 * signal))
        return np.asarray(gradient @ self._metric / reciprocal[:, None])

    @property
    def log_priors(self) -> Float:
        """Logarithms of the class sizes, as shares; with them in the softmax the weights aim at balanced classes."""
        if not self._rule.balanced:
            return np.zeros(len(self.sizes))
        return np.asarray(np.log(self.sizes / self.sizes.sum()))

    def _covariance(self, between: Float, moments: Float) -> Float:
        """Return the covariance within classes, with a ridge towards the public one as strong as the Gram noise."""
        dim, std = len(moments), self._released.gram_std
        values, vectors = np.linalg.eigh(self._released.gram - between)
        within = (vectors * np.maximum(values, 0)) @ vectors.T
        ridge = math.sqrt(std**2 * dim + 1)
        return np.asarray(within + ridge * np.diag(dim * moments / 4 + 0.75)) / self._released.size

    def _start(self, sums: Float, shrinkage: Float, inverse: Float) -> Float:
        """Return the discriminant directions, each scaled by its length as far as that is not noise."""
        variance = self._released.sums_std**2
        directions = sums @ inverse
        energy = (sums * directions).sum(axis=1)
        squares = shrinkage**2
        noise = variance * (squares @ np.diag(inverse))
        spread = variance * np.sqrt(2 * np.maximum(((squares @ inverse**2) * squares).sum(axis=1), 0))
        excess = energy - noise
        cross = ((directions * shrinkage) ** 2).sum(axis=1) / np.maximum(energy, 1e-30)
        sampling = float((spread**2).mean() + 4 * variance * max(excess.mean(), 0) * cross.mean())
        # The part of the differences between classes that is no noise.
        kappa = max(0.0, 1 - sampling / max(float(excess.var()), 1e-30)) if self._rule.debiased else 1.0
        lengths = np.sqrt(np.maximum(energy - kappa * noise, 0) + 2 * spread + 1e-30)
        return np.asarray(2 * directions / lengths[:, None])


def posterior_shrinkage(sums: Float, variance: float, moments: Float, cost: float) -> Float:
    """Return the factors, per class and axis, by which noisy class sums are best believed.

    Class sums are taken for Gaussian with variances t_c·moments^gamma plus the noise. t_c comes from moments of the
    sums, drawn towards its mean over the classes; gamma is averaged over by the marginal likelihood and a prior that
    charges `cost` a unit.

    Parameters
    ----------
    sums : ndarray of shape (n_classes, dim)
    variance : float
        Of the noise in each entry.
    moments : ndarray of shape (dim,)
    cost : float

    Returns
    -------
    ndarray of shape (n_classes, dim)
        Between 0 and 1.
    """
    n_classes = len(sums)
    # A single class has no others to differ from; its own square stands in.
    spread = (sums - sums.mean(axis=0)) ** 2 / (1 - 1 / n_classes) if n_classes > 1 else sums**2
    evidence, factors = [], []
    for exponent in _EXPONENTS:
        profile = moments**exponent
        profile = profile / profile.sum()
        scale = _class_scales(spread, variance, profile)[:, None]
        total = scale * profile + variance
        evidence.append(-0.5 * float((np.log(total) + spread / total).sum()) - exponent * cost)
        factors.append(scale * profile / total)
    weights = np.exp(np.array(evidence) - max(evidence))
    return np.asarray(np.tensordot(weights / weights.sum(), np.array(factors), axes=1))


def _class_scales(spread: Float, variance: float, profile: Float) -> Float:
    """Estimate the scale of each class's sums by moments, drawn to the mean as far as their variance is noise."""
    second, third, fourth = ((profile**power).sum() for power in (2, 3, 4))
    scales = ((spread - variance) * profile).sum(axis=1) / second
    mean = max(float(scales.mean()), 1e-9)
    noise = (2 * variance**2 * second + 4 * variance * mean * third + 2 * mean**2 * fourth) / second**2
    trust = max(0.0, 1 - noise / max(float(scales.var()), 1e-12))
    return np.asarray(np.maximum(mean + trust * (scales - mean), 0.01 * mean))
