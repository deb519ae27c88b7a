"""DPPL-Public's Top-K by the law that DPPL-v1 states, with the loss that this law has."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError, MeasurementError
from dppl.kernel.lattice import RowSource, iter_blocks
from dppl.kernel.lattice.similarities import PUBLIC_ROWS, utilities
from dppl.kernel.mechanisms import ExponentialMechanism, Randomness
from dppl.kernel.privacy import Budget, Release
from dppl.kernel.privacy.release import cost_of, range_of_ranks
from dppl.kernel.privacy.rounding import below
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term
from dppl.kernel.queries.base import ADD_REMOVE
from dppl.kernel.queries.selection import RowsByClass, Selection
from dppl.kernel.records import HeldRecords

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLaw:
    """Sets of K of n candidates by equations (5) and (6) of DPPL-v1, with ranks from 1.

    The y-th best candidate is drawn with a probability proportional to
    binom(y, K)·exp(ε·u_y/2Δ), and K - 1 of the y - 1 better ones with it. There are
    binom(y - 1, K - 1) sets with this worst member, so each of them weighs y/K times
    exp(ε·u_y/2Δ): the rank counts, which ε was not meant to pay for.

    **Privacy.** Unit: one record. Relation: add or remove one. Utilities grow by 0 to Δ
    when a record is added, and so do the smallest of a set and the y-th largest of all.
    So the exponential of a set grows by a factor from 1 to exp(ε/2), and the sum of all
    weights, binom(y, K)·exp(ε·u_y/2Δ) over y, by another. The rank of a worst member
    lies from K to n. Hence log P(S)/P'(S) is at most ε/2 + log(n/K) in size. For two
    sets it differs by ε/2 + 2·log(n/K) at most, since the sums cancel. That is the
    bounded range which the statement gives and the budget pays for, as of each
    selection; under replace-one it is twice that. If those that weigh the most, K of
    them, gain Δ while another passes the rest, both terms add up, up to log(n/(K + 1)).

    To draw: let one more candidate stand before all others, at rank 0. Among the n + 1
    the sets of K + 1 whose worst member has the rank y are binom(y, K). So the joint
    exponential mechanism draws one of those, exactly. The candidate at rank 0 leaves
    it, or a uniform one of the better members.
    """

    sharpness: float  # ε/2
    sensitivity: int
    size: int
    n_public: int
    adjacency: str = ADD_REMOVE

    @classmethod
    def within(
        cls,
        budget: Budget,
        sensitivity: int,
        size: int,
        n_public: int,
        *,
        relation: str,
    ) -> PublishedLaw:
        """Return the sharpest one whose range is within the budget."""
        steps = 1 if relation == ADD_REMOVE else 2
        ranks = range_of_ranks(n_public, size)
        left = Fraction(budget.selection_epsilon()) / steps - ranks
        if left <= 0:
            raise BudgetError(
                f"the ranks of {size} among {n_public} public rows alone have a range of {float(steps * ranks):.4g}, "
                "which the budget must exceed; take fewer public rows, or PublicPrototypes, whose selections have none."
            )
        return cls(
            sharpness=below(left),
            sensitivity=sensitivity,
            size=size,
            n_public=n_public,
            adjacency=relation,
        )

    def select(self, scores: Int64, source: Randomness) -> Int64:
        """Return the positions of a set, in ascending order, from the utilities of all candidates."""
        # The best utility stands for the candidate at rank 0: as the smallest of a set
        # it is never below another.
        joint = ExponentialMechanism(
            epsilon=self.sharpness, sensitivity=self.sensitivity, size=self.size + 1
        )
        ranked = np.append(scores.max(initial=0), scores)
        drawn = joint.select(ranked, source)
        # Of equal ones the first is the better one.
        *better, worst = drawn[np.lexsort((drawn, -ranked[drawn]))].tolist()
        better.pop(0 if 0 in drawn else source.below(self.size))
        return np.sort(np.array([*better, worst])) - 1

    def describe(self, statistic: Term[Statistic]) -> Release:
        """Return the entry of the guarantee."""
        code = Mechanism.PUBLISHED_TOP_K
        parameters = {
            "published_epsilon": 2 * self.sharpness,
            "n_public": float(self.n_public),
            "n_selected": float(self.size),
            "n_selections": 1.0 if self.adjacency == ADD_REMOVE else 2.0,
        }
        squared = Fraction(self.sensitivity) ** 2
        return Release(
            mechanism=Term(code),
            statistic=statistic,
            sensitivity=float(self.sensitivity),
            norm=Norm.MONOTONE_UTILITY,
            parameters=parameters,
            cost=cost_of(code, squared, parameters),
        )


@dataclass(frozen=True)
class PublishedSelection(Selection):
    """Positions of public rows for each class, as `Selection`, by the published law of sets."""

    n_public: int
    needs_rows = True

    def mechanism(self, budget: Budget, times: int, relation: str) -> Any:
        """Return the published law within the budget."""
        return PublishedLaw.within(
            budget,
            self.clip.sensitivity,
            self.n_selected,
            self.n_public,
            relation=relation,
        )

    def answer(
        self, mechanism: Any, records: Any, source: Randomness, *, public: RowSource
    ) -> Int64:
        """Return positions among the public rows, shape (n_classes, n_selected)."""
        assert isinstance(records, HeldRecords)  # needs_rows says so
        # What was declared decides the cost.
        if public.shape[0] != self.n_public:
            raise MeasurementError(
                f"public must have {self.n_public} rows; got {public.shape[0]}"
            )
        # All utilities are held, unlike in `Selection`: pools of comparisons are small.
        private = RowsByClass(self.lattice, records.rows, records.codes, self.n_classes)
        by_class = np.split(private.rows, np.cumsum(private.sizes)[:-1])
        blocks = [
            self.lattice.transform(block) for block in iter_blocks(public, PUBLIC_ROWS)
        ]
        scores = utilities(by_class, blocks, self.n_public, self.lattice, self.clip)
        # A damaged public row maps to zero, and is no candidate.
        usable = np.flatnonzero(np.concatenate([one.any(axis=1) for one in blocks]))
        return np.stack(
            [usable[mechanism.select(own, source)] for own in scores[:, usable]]
        )
