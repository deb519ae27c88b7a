"""What the prototype classifiers share."""

import math

import numpy as np

from dppl._utils.types import Array, Float32
from dppl.kernel.privacy import Guarantee

# Cosines times this are logits, where prototypes of unit length are orthogonal and
# noise is small.
SHARPNESS = 20.0
# Share of signal in sums at which noise takes about a third off the logits.
_HALF_HIDDEN = 0.1
# Prototypes closer than this, and sums of less signal, count as if they had that much.
_LEAST = 1e-3


def unit_directions(prototypes: Array) -> Float32:
    """Scale vectors along the last axis to norm 1; a zero vector stays zero."""
    wide = np.asarray(prototypes, np.float64)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    return (wide / np.where(norms > 0, norms, 1.0)).astype(np.float32)


def cosine_sharpness(prototypes: Array, variances: Array | float = 0.0) -> float:
    """Return what turns cosines with prototypes into logits, from released values alone; greater than 0.

    It grows as prototypes come closer, whose cosines with a row differ little then, and
    shrinks with their noise.
    """
    wide = np.asarray(prototypes, np.float64)
    squared = np.square(wide).sum(axis=1)
    noise = (
        np.asarray(variances) * wide.shape[1] / np.where(squared > 0, squared, np.inf)
    )
    signal = max(float((1 - np.minimum(noise, 1.0)).mean()), _LEAST)
    # 1 minus the mean cosine of two different prototypes.
    n_classes = len(wide)
    spread = 1.0
    if n_classes > 1:
        directions = unit_directions(wide).astype(np.float64)
        cosines = np.square(directions.sum(axis=0)).sum() - np.square(directions).sum()
        spread = max(1 - float(cosines) / (n_classes * (n_classes - 1)), _LEAST)
    return SHARPNESS * math.sqrt(signal / (signal + _HALF_HIDDEN) / spread)


def noise_variance(guarantee: Guarantee, scale: float) -> float:
    """Return the variance of the noise of the last release, in units of rows; 0 if the guarantee does not say."""
    noise_std = guarantee.releases[-1].parameters.get("noise_std", 0.0)
    return max(1, len(guarantee.parties)) * (float(noise_std) / scale) ** 2
