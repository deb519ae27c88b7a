"""The gradient of a projection by the rule of prototypical networks, clipped for a whole batch.

DPPL-v1 (appendix C.5.1) splits a batch evenly into support and query records, and takes
the means of support records as prototypes. A record therefore changes the gradients of
others, and clipping each record's gradient bounds nothing. Clipping the gradient of the
whole batch does.
"""

from dataclasses import dataclass
from fractions import Fraction
from hashlib import shake_256
from typing import Any

import numpy as np
from scipy.special import softmax

from dppl._utils.types import Float
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.mechanisms import RoundedGaussian, SampledGaussian
from dppl.kernel.privacy import Budget
from dppl.kernel.privacy.rounding import root_above
from dppl.kernel.privacy.sensitivity import RESOLUTION
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import ADD_REMOVE, Blocks, Codes, Int64, Query
from dppl.lab.projection_queries import IntegerProjection

# Length of a gradient of the clipping norm, in steps of rounding.
RADIUS = RESOLUTION


@dataclass(frozen=True)
class EpisodeGradients(Query):
    """The mean gradient of some episodes of a batch, clipped to a norm.

    **Sensitivity.** Whatever the batch is, the value is an integer vector of norm R =
    2²⁰ at most: it is rounded towards zero, and its square is compared with R² in
    integers. So the values of any two batches, with or without a record or with another
    one, are at most 2R apart, by the triangle inequality. ∎ Nothing is asked of the
    gradient itself.

    Each ask is of a Poisson sample, in which every record is by its own coin, if
    `sampling_rate` is below 1. A step on a sample costs what a Gaussian sum over a
    sample does, since only the distance of values with and without a record enters
    (Zhu, Dong, Wang 2022, arXiv:2106.08567v4, Theorem 11).
    """

    lattice: Lattice
    n_classes: int
    n_components: int
    episodes: int  # how many times a batch is split
    budget: Budget  # of the fit, which samples are accounted in as a whole
    sampling_rate: float = 1.0
    needs_rows = True
    keeps_rows = True
    unit = float(RADIUS)  # of a gradient of the clipping norm

    @property
    def statistic(self) -> Term[Statistic]:
        """With its shape."""
        return Term(
            Statistic.EPISODE_GRADIENTS,
            episodes=self.episodes,
            n_components=self.n_components,
            dim=self.lattice.dim,
        )

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> RoundedGaussian | SampledGaussian:
        """Return the noise; for samples, what the other releases of the fit leave of its budget."""
        if self.sampling_rate == 1:
            squared = self.squared_sensitivity(relation)
            return RoundedGaussian.within(budget, squared, times)
        if relation != ADD_REMOVE:
            raise ParameterError(
                "sampling_rate below 1 is accounted under add-remove only"
            )
        whole, own = (
            Fraction(one.gaussian_allowance().mu) ** 2 for one in (self.budget, budget)
        )
        others = root_above(whole - own)
        return SampledGaussian.within(
            self.budget, self.squared_norm, times, self.sampling_rate, others
        )

    def checked(
        self, *, projection: IntegerProjection, clip: float, seed: int
    ) -> dict[str, Any]:
        """Return what it is asked at; `seed` names the splits, which are public."""
        return {"projection": projection, "clip": float(clip), "seed": int(seed)}

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        projection: IntegerProjection,
        clip: float,
        seed: int,
    ) -> Int64:
        """Return it, shape (n_components, dim), in units of the clipping norm over R."""
        # Records of no class of the list, and those that no sample took, have code -1.
        counted = codes >= 0
        rows = np.concatenate([np.zeros((0, self.lattice.dim), np.int8), *blocks])
        total = np.zeros((self.n_components, self.lattice.dim))
        # A warning about overflow would reveal something about the batch.
        with np.errstate(all="ignore"):
            for episode in range(self.episodes):
                support, query = split(codes[counted], f"{seed} {episode}")
                total += gradient(
                    rows[counted],
                    codes[counted],
                    support,
                    query,
                    projection,
                    self.lattice,
                )
            return clipped(total / self.episodes, clip)


def split(codes: Codes, name: str) -> tuple[Int64, Int64]:
    """Split each class evenly into support and query records; an odd record is in neither.

    >>> support, query = split(np.array([0, 0, 0, 0, 1, 2, 2]), "first")
    >>> len(support), len(query), 4 in {*support.tolist(), *query.tolist()}
    (3, 3, False)
    """
    n = len(codes)
    # Derived from the name, hence public and repeatable.
    keys = np.frombuffer(shake_256(name.encode()).digest(8 * n), "<u8")
    order = np.lexsort((keys, codes))
    sizes = np.bincount(codes)
    starts = np.cumsum(sizes) - sizes
    ranks = np.arange(n) - starts[codes[order]]
    half = sizes[codes[order]] // 2
    return order[ranks < half], order[(half <= ranks) & (ranks < 2 * half)]


def gradient(
    rows: Int8,
    codes: Codes,
    support: Int64,
    query: Int64,
    projection: IntegerProjection,
    lattice: Lattice,
) -> Float:
    """Return the gradient of the mean loss of the query records: of -log softmax of -‖W(φ - p_c)‖² at their classes.

    With residuals R = one-hot - softmax, whose rows add up to 0, it is 2·W·M over the
    number of queries, M the sum of R_qc (φ_q - p_c)(φ_q - p_c)ᵀ, in which φφᵀ cancels.
    """
    W = projection.unit * projection.steps
    if not len(query):  # no class has two records
        return np.zeros_like(W)
    # Softmax over the classes that the batch has, as published.
    present, places = np.unique(codes[query], return_inverse=True)
    of_support = codes[support]
    means = np.stack(
        [rows[support[of_support == code]].mean(axis=0) for code in present]
    )
    points, means = rows[query] / lattice.scale, means / lattice.scale
    along, towards = W @ points.T, W @ means.T
    # -‖W(φ - p)‖² without ‖Wφ‖², which all classes share.
    logits = 2 * along.T @ towards - np.square(towards).sum(axis=0)
    residuals = np.eye(len(present))[places] - softmax(logits, axis=1)
    of_means = towards * residuals.sum(axis=0) - along @ residuals
    total = of_means @ means - towards @ residuals.T @ points
    return np.asarray(total * (2 / len(query)))


def clipped(gradient: Float, clip: float) -> Int64:
    """Clip a gradient, in steps of the clipping norm over R; the result is never longer than R."""
    finite = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
    length = max(float(np.linalg.norm(finite)), clip)
    # Slightly shorter, to absorb rounding of the length; truncation only shortens.
    steps = np.trunc(finite * (RADIUS * (1 - 2.0**-20) / length))
    whole: Int64 = np.clip(np.nan_to_num(steps), -RADIUS, RADIUS).astype(np.int64)
    if sum(int(row @ row) for row in whole) > RADIUS**2:
        return np.zeros_like(whole)
    return whole
