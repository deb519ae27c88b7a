"""`SoftmaxPrototypes` as a method of streams, trained again in every task: what docs/quarters.md compares."""

import math
from copy import deepcopy
from typing import Any, Self

from dppl.methods import SoftmaxPrototypes
from dppl.methods.fit_plan import seed_of
from dppl.methods.parameters import parameters


@parameters
class Retrained(SoftmaxPrototypes):
    """Softmax prototypes of the records of each task."""

    from_last: bool = False  # whether each fit starts from the model of the task before

    def partial_fit(self, X: Any, y: Any, *, task_classes: Any = None) -> Self:
        """Fit the records of a task, with other noise than in the last."""
        if hasattr(self, "guarantee_"):
            assert self.random_state is not None  # each cell has one
            last = deepcopy(self) if self.from_last else None
            self.set_params(start=last, random_state=seed_of(self.random_state, 1))
        return self.fit(X, y)


@parameters
class RetrainedOnAll(Retrained):
    """Softmax prototypes of all records so far, which is given them in each task; costs add up."""

    tasks = "overlapping"
    takes_earlier_records = True

    def partial_fit(self, X: Any, y: Any, *, task_classes: Any = None) -> Self:
        """Fit all records so far, and add up what that costs."""
        before = getattr(self, "total_mu_", 0.0)
        super().partial_fit(X, y)
        mu = self.guarantee_.mu
        assert mu is not None  # all of its releases are Gaussian
        self.total_mu_ = math.hypot(before, mu)
        return self
