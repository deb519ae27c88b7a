"""What the prototype classifiers share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.privacy import Guarantee


def unit_directions(prototypes: NDArray[Any]) -> NDArray[np.float32]:
    """Scale vectors along the last axis to norm 1; a zero vector stays zero."""
    wide = np.asarray(prototypes, np.float64)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    return (wide / np.where(norms > 0, norms, 1.0)).astype(np.float32)


# Cosines times this are logits, where prototypes of unit length stand at right angles and noise is small.
SHARPNESS = 20.0
# Share of signal in sums at which noise takes about a third off the logits.
_HALF_HIDDEN = 0.1
# Prototypes closer than this, and sums of less signal, count as if they had that much.
_LEAST = 1e-3


def cosine_sharpness(prototypes: NDArray[Any], variances: NDArray[Any] | float = 0.0) -> float:
    """Return what turns cosines with prototypes into logits, from released values alone.

    `variances` are of the noise of each coordinate, 0 where it is not known. The factor is greater than 0.

    Prototypes that point in similar directions differ little in their cosines with any row, so the factor grows as they
    come closer; it shrinks with the share of noise in them.
    """
    wide = np.asarray(prototypes, np.float64)
    squared = np.square(wide).sum(axis=1)
    noise = np.minimum(np.asarray(variances) * wide.shape[1] / np.where(squared > 0, squared, np.inf), 1.0)
    signal = max(float((1 - noise).mean()), _LEAST)
    return SHARPNESS * math.sqrt(signal / (signal + _HALF_HIDDEN) / _spread(wide))


def _spread(prototypes: NDArray[np.float64]) -> float:
    """Return 1 minus the mean cosine of two different prototypes."""
    n_classes = len(prototypes)
    if n_classes == 1:
        return 1.0
    directions = unit_directions(prototypes).astype(np.float64)
    cosines = np.square(directions.sum(axis=0)).sum() - np.square(directions).sum()
    return max(1 - float(cosines) / (n_classes * (n_classes - 1)), _LEAST)


def noise_variance(guarantee: Guarantee, scale: float) -> float:
    """Return the variance of the noise of the last release, in units of rows; 0 if the guarantee does not say."""
    noise_std = guarantee.releases[-1].parameters.get("noise_std", 0.0)
    return (float(noise_std) / scale) ** 2
