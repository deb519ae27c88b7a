"""What is asked of records that may have several labels, or none (multi-label)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.label_residuals import (
    label_hits,
    label_residuals,
    label_shortfalls,
)
from dppl.kernel.lattice.residuals import (
    WEIGHT_STEPS,
    SoftmaxGradient,
    check_clip,
)
from dppl.kernel.privacy.sensitivity import RESOLUTION, STEPS
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import (
    Blocks,
    Codes,
    Float,
    Int64,
    Query,
    first_labels,
    shares,
)
from dppl.kernel.queries.softmax_gradients import (
    Hits,
    SoftmaxGradients,
    SoftmaxQuery,
)

if TYPE_CHECKING:
    from dppl.kernel.persons import WholePersons


@dataclass(frozen=True)
class LabelCounts(Query):
    """How many records have each label, in steps of 1/2¹⁶, where a record may have several.

    A record counts in the first `max_labels` = k of its labels in the order of the
    class list, whatever others it has: it adds 2¹⁶ to at most k entries, a vector of
    norm √k·2¹⁶. Each record of a whole person adds its vector times the person's share,
    and shares add up to 1 at most, so the sum is no longer, by the triangle inequality.
    """

    n_classes: int
    max_labels: int
    unit = float(STEPS)  # a record
    whole_persons = True
    reads_label_sets = True

    @property
    def statistic(self) -> Term[Statistic]:
        """With the number of labels that count."""
        return Term(
            Statistic.LABEL_COUNTS,
            steps=STEPS,
            max_labels=self.max_labels,
            n_classes=self.n_classes,
        )

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        label_sets: NDArray[np.bool_],
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return them, shape (n_classes,)."""
        kept = first_labels(label_sets, self.max_labels)
        return np.asarray(shares(codes, np.array([STEPS]), persons) @ kept, np.int64)


class LabelGradients(SoftmaxGradients):
    """The sum of clipped gradients of the logistic losses of all labels together, at released weights.

    A record adds the outer product of its residual, over all labels, and its q.
    Residuals are clipped, put on the grid and checked as in `SoftmaxGradients`: a
    residual is at most `RESOLUTION` steps long, whatever the labels of its record are,
    and however many. The rest of that proof does not ask where a residual comes from.
    """

    _code = Statistic.CLIPPED_LABEL_GRADIENTS
    reads_label_sets = True

    def exact(  # type: ignore[override]
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float | None,
        clip: float,
        label_sets: NDArray[np.bool_],
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return it, shape (n_classes, dim)."""
        return SoftmaxGradient(self.lattice).sum(
            blocks,
            codes,
            weights,
            offsets,
            clip=clip,
            persons=None if persons is None else persons.in_turn,
            residuals_of=partial(label_residuals, label_sets),
        )


class LabelHits(Hits):
    """How many records, or persons by most of theirs, have the largest logit at one of their labels, and how many not."""

    _code = Statistic.HITS_OF_LABELS
    reads_label_sets = True

    def exact(  # type: ignore[override]
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float,
        label_sets: NDArray[np.bool_],
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return them, shape (2,)."""
        right = label_hits(self.lattice, blocks, label_sets, weights, offsets)
        return self._numbers(right & (codes >= 0), codes, persons)


class LabelShortfalls(SoftmaxQuery):
    """How many more records have each label than it is predicted for: the sum of label sets minus probabilities.

    A record adds its residual, clipped and on the grid as in `LabelGradients`: at most
    `RESOLUTION` steps, which is checked in integers, whatever its labels are. The
    records of a whole person share a weight of 1.
    """

    _code = Statistic.LABEL_SHORTFALLS
    unit = float(RESOLUTION)  # of the clipping norm
    whole_persons = True
    reads_label_sets = True

    def checked(self, *, clip: float, **released: Any) -> dict[str, Any]:  # type: ignore[override]
        """Compare shapes."""
        check_clip(clip)
        return super().checked(**released) | {"clip": float(clip)}

    def exact(
        self,
        blocks: Blocks,
        codes: Codes,
        *,
        weights: Float,
        offsets: Float | None,
        clip: float,
        label_sets: NDArray[np.bool_],
        persons: WholePersons | None = None,
    ) -> Int64:
        """Return them, shape (n_classes,)."""
        of_records = partial(shares, codes, np.array([WEIGHT_STEPS]), persons)
        return label_shortfalls(
            self.lattice, blocks, label_sets, weights, offsets, clip, of_records
        )
