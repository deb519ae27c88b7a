"""Queries of a projection layer: gradients of episodes, and other queries on rows that a released map projects."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl.errors import MeasurementError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import LARGEST
from dppl.kernel.lattice.projection import EPISODE_STEPS, Episodes, IntegerProjection, ProjectedRows
from dppl.kernel.mechanisms import Randomness
from dppl.kernel.privacy import Budget, Release
from dppl.kernel.queries import Query
from dppl.kernel.records import HeldRecords, Records


@dataclass(frozen=True)
class EpisodeGradients(Query):
    """The sum of the clipped gradients of all episodes of a step.

    A record is in one episode, whatever others there are, and changes what that adds from one vector of at most
    `EPISODE_STEPS` to another (`Episodes`).
    """

    lattice: Lattice
    n_classes: int
    n_episodes: int
    width: int
    needs_rows = True
    squared_norm = Fraction((2 * EPISODE_STEPS) ** 2)

    @property
    def statistic(self) -> str:
        """With its shape."""
        return f"sum of clipped gradients of {self.n_episodes} episodes ({self.width} x {self.lattice.dim})"

    def exact(self, records: Records, *, step: int, projection: IntegerProjection, clip: float) -> NDArray[np.int64]:
        """Return it, shape (width, dim)."""
        assert isinstance(records, HeldRecords)  # needs_rows says so
        checked_steps(projection, self.lattice, self.width)
        _validate.positive(clip=clip)
        episodes = records.once(
            "episodes",
            lambda: Episodes(self.lattice, records.rows, records.codes, self.n_classes, self.n_episodes),
        )
        return episodes.sum(step, projection, clip)


@dataclass(frozen=True)
class Projected(Query):
    """Another query, on rows that a released map projects; it says how far one projected row moves it."""

    query: Query
    lattice: Lattice
    needs_rows = True

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """As the query does."""
        return self.query.repeats

    @property
    def n_classes(self) -> int | None:
        """That of the query."""
        return getattr(self.query, "n_classes", None)

    def is_public(self, relation: str) -> bool:
        """As the query is."""
        return self.query.is_public(relation)

    @property
    def statistic(self) -> str:
        """That of the query."""
        return f"{self.query.statistic}, projected"

    @property
    def squared_norm(self) -> Fraction:
        """That of the query, whose lattice maps projected rows, of any length, to rows of its norm."""
        return self.query.squared_norm

    @property
    def unit(self) -> float:
        """That of the query."""
        return self.query.unit

    def mechanism(self, budget: Budget, times: int, relation: str) -> Any:
        """Return that of the query."""
        return self.query.mechanism(budget, times, relation)

    def describe(self, mechanism: Any, statistic: str, relation: str) -> Release:
        """As the query does."""
        return self.query.describe(mechanism, statistic, relation)

    def exact(self, records: Records, *, projection: IntegerProjection, **released: Any) -> NDArray[np.int64]:
        """Return the query's value of projected rows."""
        return self.query.exact(self._through(records, projection), **released)

    def answer(
        self, mechanism: Any, records: Records, source: Randomness, *, projection: IntegerProjection, **released: Any
    ) -> Any:
        """Return the query's answer on projected rows."""
        return self.query.answer(mechanism, self._through(records, projection), source, **released)

    def _through(self, records: Records, projection: IntegerProjection) -> HeldRecords:
        assert isinstance(records, HeldRecords)  # needs_rows says so
        checked_steps(projection, self.lattice)
        return HeldRecords(ProjectedRows(records.rows, self.lattice, projection.steps), records.codes)


def checked_steps(projection: IntegerProjection, lattice: Lattice, width: int | None = None) -> None:
    """Compare a released projection with what was declared, before a record is looked at."""
    steps = projection.steps
    if steps.shape != (width or len(steps), lattice.dim):
        raise MeasurementError(f"a projection must have {lattice.dim} columns; got shape {steps.shape}")
    # Products of integers below 2⁵³ are exact; others could be rounded by the other rows of a block.
    if (np.rint(steps) != steps).any() or not (LARGEST * np.abs(steps).sum(axis=1) < 2**53).all():
        raise MeasurementError("a projection must hold integers whose products with rows are below 2**53")
