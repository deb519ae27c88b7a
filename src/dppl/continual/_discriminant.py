"""From noisy class sums and public axes to weights. No private record enters.

A sum is drawn to what is signal in it, divided by a covariance that follows the public one, and by an estimate of its
length without noise. So neither how many records a class has decides, nor how noisy its sum is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dppl.continual import _sums
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.prototypes._softmax import axis_filter

Float = NDArray[np.float64]

_PUBLIC_ROWS = 2048
# Share of the covariance within classes that follows the public one; the rest is alike along all axes.
_PUBLIC_SHARE = 0.25
# How many standard deviations of its noise a squared length is raised by.
_RAISED = 2.0
# Taken off the evidence of each class where the share of classes with records is fitted: that follows the long tail of
# what a fitted variance gains on noise, and Akaike's unit pays for the mean. From 0.3 to 0.5 all streams were alike.
_DOUBT = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """Principal axes of public rows."""

    directions: NDArray[np.float32]  # shape (dim, dim); in columns, in the coordinates of lattice rows
    spectrum: Float  # shape (dim,); share of each axis in the second moment of public rows, of sum 1

    @classmethod
    def of(cls, lattice: Lattice, public: RowSource) -> Self:
        """Fit the axes on public rows, as the lattice maps them."""
        dim, count = lattice.dim, public.shape[0]
        moment = np.zeros((dim, dim))
        for block in iter_blocks(public, _PUBLIC_ROWS):
            features = lattice.features(block)
            moment += features.T @ features
        values, directions = np.linalg.eigh(moment)
        shares = np.maximum(values, 0) / max(float(np.trace(moment)), 1e-300)
        # One more row, spread over all axes: a small pool says nothing of those on which it has no rows.
        return cls(directions.astype(np.float32), (count * shares + 1 / dim) / (count * shares.sum() + 1))


def weights(sums: Float, variances: Float, evidence: Float, axes: Axes | None) -> Float:
    """Return the weights of a linear discriminant.

    `sums` are noisy class sums, `variances` of the noise in each of their coordinates; `evidence` is the log-likelihood
    ratio of a class with records against one without. No `axes` takes all directions for alike.
    """
    dim = sums.shape[1]
    if axes is None:
        return sums / _lengths(sums, variances, np.ones(dim), _share_of_noise(sums, variances, evidence))[:, None]
    along = sums @ axes.directions
    believed = axis_filter(along / np.sqrt(variances)[:, None], 1.0, axes.spectrum)
    inverse = 1 / (_PUBLIC_SHARE * dim * axes.spectrum + 1 - _PUBLIC_SHARE)
    directions = along * (believed * inverse)
    # Each by itself, at even odds; one is the price of the fitted variance, which counts where evidence adds up.
    exists = expit(_sums.evidence_of(sums, variances) + 1)
    result = directions / _lengths(along, variances, believed**2 * inverse, exists)[:, None]
    return np.asarray(result @ axes.directions.T)


def _share_of_noise(sums: Float, variances: Float, evidence: Float) -> Float:
    """Return the share of its noise that may be taken off each sum's length, where nothing public tells of directions.

    All of it for a class that holds records. One that seems not to is left longer, but by no more than classes with
    records are long on average: else, where noise hides most classes, those that happen to stand out would win.
    """
    noise = sums.shape[1] * variances
    exists = _sums.posterior(evidence, np.full(len(evidence), _DOUBT))
    lengths = np.sqrt(np.maximum(np.square(sums).sum(axis=1) - noise, 0))
    typical = float(exists @ lengths / exists.sum())
    return np.asarray(1 - (1 - exists) * np.minimum(1, typical**2 / noise))


def _lengths(sums: Float, variances: Float, gains: Float, shares: Float) -> Float:
    """Return lengths of class sums without what noise adds to them.

    `gains` is what the square of each coordinate counts.

    Noise is taken off only as far as lengths differ between classes by more than it makes them differ, and by a share
    for each class: else one without any record would be divided by next to nothing.
    """
    energy = np.square(sums) @ gains
    noise = variances * gains.sum()
    spread = variances * math.sqrt(2 * float(gains @ gains))
    excess = energy - noise
    # Signal and noise multiply, too.
    crossed = np.square(sums) @ gains**2 / np.maximum(energy, 1e-300)
    sampling = spread**2 + 4 * variances * np.maximum(excess, 0) * crossed
    trust = max(0.0, 1 - float(sampling.mean()) / max(float(excess.var()), 1e-300))
    return np.asarray(np.sqrt(np.maximum(energy - trust * shares * noise, 0) + _RAISED * spread))
