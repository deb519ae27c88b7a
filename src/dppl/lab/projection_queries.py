"""A projection layer: the gradient of its loss, and other queries on rows that it projects.

The only file of this package that reads private records; the kernel answers its queries
as it does its own.

With rows φ, a projection W and class prototypes p the logits are -‖W(φ - p_c)‖² (Snell,
Swersky, Zemel 2017), that is 2·φᵀMp_c - p_cᵀMp_c for M = WᵀW, up to a term that all
classes share. So the layer is a softmax regression whose weights and offsets follow
from W and p, and the gradient with respect to W follows from that with respect to
these.

All that one record's rows enter is a product of integers below 2⁵³, which float64 holds
exactly in any order.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Self

import numpy as np

from dppl._utils.types import Float
from dppl.errors import MeasurementError, ParameterError
from dppl.kernel.lattice import Lattice, RowSource
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.lattice.residuals import Int64, SoftmaxGradient
from dppl.kernel.mechanisms import Randomness
from dppl.kernel.privacy.sensitivity import LARGEST
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import OwnAnswer, Query, answered
from dppl.kernel.records import HeldRecords, Records

# Steps of the grid of weights for the longest row of a projection.
_ROW_STEPS = 2**10
# Steps of the grid of a gradient with respect to logit weights, for its largest entry,
# before it is chained.
_CHAIN_STEPS = 2.0**14
# The constant coordinate of rows, which carries the offsets' part of the gradient, in
# units of a row.
_CONSTANT = 0.5
# Offset of a class without a prototype. Its probability is next to nothing.
_ABSENT = -1e6


def check_size(dim: int, n_components: int, n_classes: int) -> None:
    """Refuse projections whose products could leave 2⁵³: over 2²² entries, or over 2¹⁶/√dim classes."""
    if n_components * dim > 2**22 or n_classes**2 * dim > 2**32:
        raise ParameterError(
            f"a projection of {n_classes} classes from {dim} to {n_components} dimensions is too large for exact "
            "products; lower n_components."
        )


def softmax_gradient(lattice: Lattice) -> SoftmaxGradient:
    """Return the kernel that sums gradients with respect to the logits' weights and offsets."""
    return SoftmaxGradient(lattice, bias=max(1, round(_CONSTANT * lattice.scale)))


@dataclass(frozen=True)
class IntegerProjection:
    """A linear map of lattice rows on a grid of integers, so that products are exact."""

    steps: Float  # shape (n_components, dim); integers, whose rows are at most 2¹⁰ long, except for rounding
    unit: float  # the weight of one step

    @classmethod
    def of(cls, weights: Float) -> Self:
        """Round weights to the grid."""
        longest = math.sqrt(float(np.square(weights).sum(axis=1).max()))
        return cls(np.rint(weights * (_ROW_STEPS / longest)), longest / _ROW_STEPS)


class ProjectedRows:
    """Rows of a table, mapped to the lattice and projected by integer `steps`, as a table that streams."""

    def __init__(self, source: RowSource, lattice: Lattice, steps: Float) -> None:
        self._source = source
        self._lattice = lattice
        self._steps = steps
        self.shape = (source.shape[0], len(steps))
        self.ids = getattr(source, "ids", None)

    def blocks(self, size: int) -> Iterator[Float]:
        """Yield projected rows, in blocks of at most `size`. Each depends on its own row alone."""
        for block in self._lattice.blocks(self._source, size):
            yield block.astype(np.float64) @ self._steps.T


class PrototypicalLoss:
    """Logits and gradients of a projection with given prototypes: lattice rows, or zero for a class that cannot be."""

    def __init__(
        self, lattice: Lattice, projection: IntegerProjection, prototypes: Int8
    ) -> None:
        self.gradient = softmax_gradient(lattice)
        self._scale = lattice.scale
        self._projection = projection
        self._prototypes = prototypes.astype(np.float64)
        self._projected = projection.steps @ self._prototypes.T

    @property
    def weights(self) -> Float:
        """Weights of the logits, of shape (n_classes, dim), in units of φ."""
        return (self._projected.T @ self._projection.steps) * (
            2 * self._projection.unit**2 / self._scale
        )

    @property
    def offsets(self) -> Float:
        """Offsets of the logits, of shape (n_classes,)."""
        squares = (
            np.square(self._projected).sum(axis=0)
            * (self._projection.unit / self._scale) ** 2
        )
        return np.where(self._prototypes.any(axis=1), -squares, _ABSENT)

    def chained(self, total: Int64) -> tuple[Float, float]:
        """Turn a gradient with respect to weights and offsets into one with respect to the projection.

        `total`, of shape (n_classes, dim + 1), is what `gradient.sum` returned, perhaps
        with noise. The result, of shape (n_components, dim), is in units of the second
        value, for residuals of the clipping norm 1.
        """
        largest = float(np.abs(total).max())
        if largest == 0:
            return np.zeros_like(self._projection.steps), 1.0
        short = np.rint(total * (_CHAIN_STEPS / largest))
        along = short[:, :-1]
        constant = short[:, -1]
        steps = self._projection.steps
        prototypes = self._prototypes
        direction = (steps @ along.T) @ prototypes + self._projected @ along
        direction -= (self._projected * constant) @ prototypes / self.gradient.bias
        unit = (
            2
            * self._projection.unit
            * largest
            / _CHAIN_STEPS
            / self.gradient.unit
            / self._scale
        )
        return direction, unit


@dataclass(frozen=True)
class Projected(OwnAnswer):
    """Another query, on rows that a released map projects; it says how far one projected row moves it."""

    query: Query
    lattice: Lattice
    needs_rows = True

    # A lattice maps projected rows, of any length, to rows of its norm, so the query's
    # own sensitivity holds.
    repeats = property(attrgetter("query.repeats"))
    squared_norm = property(attrgetter("query.squared_norm"))
    unit = property(attrgetter("query.unit"))
    is_public = property(attrgetter("query.is_public"))
    mechanism = property(attrgetter("query.mechanism"))

    @property
    def statistic(self) -> Term[Statistic]:
        """What the query asks, of projected rows."""
        return Term(Statistic.PROJECTED, of=self.query.statistic)

    @property
    def n_classes(self) -> int | None:
        """The query's number of classes."""
        return getattr(self.query, "n_classes", None)

    def answer(
        self, mechanism: Any, records: Records, source: Randomness, **released: Any
    ) -> Any:
        """Return the query's answer on projected rows, sampled where the query samples."""
        return answered(
            self.query,
            mechanism,
            self._through(records, released.pop("projection")),
            source,
            **released,
        )

    def _through(self, records: Records, projection: IntegerProjection) -> HeldRecords:
        assert isinstance(records, HeldRecords)  # needs_rows says so
        # What was released is compared with what was declared, before a record is
        # looked at.
        steps = projection.steps
        if steps.shape != (len(steps), self.lattice.dim):
            raise MeasurementError(
                f"a projection must have {self.lattice.dim} columns; got shape {steps.shape}"
            )
        # Products of integers below 2⁵³ are exact; others could be rounded by the other
        # rows of a block.
        if (np.rint(steps) != steps).any() or not (
            LARGEST * np.abs(steps).sum(axis=1) < 2**53
        ).all():
            raise MeasurementError(
                "a projection must hold integers whose products with rows are below 2**53"
            )
        return HeldRecords(
            ProjectedRows(records.rows, self.lattice, steps), records.codes
        )
