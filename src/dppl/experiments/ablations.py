"""Discriminant prototypes with one part left out or changed, to show what each part is worth."""

from __future__ import annotations

from typing import Any

from dppl import _validate
from dppl.estimators.records import Codes
from dppl.lattice import RowSource
from dppl.mechanisms import Randomness
from dppl.privacy import Budget
from dppl.prototypes import DiscriminantPrototypes
from dppl.prototypes._discriminant import Rule

NO_PUBLIC_ROWS = "no public rows"
VARIANTS = {
    NO_PUBLIC_ROWS: Rule(),
    "no gradient steps": Rule(steps=0),
    "half of the budget for gradients": Rule(gradients_share=0.5),
    "ten gradient steps": Rule(steps=10),
    "undamped steps": Rule(damped_steps=False),
    "no class sizes in the softmax": Rule(balanced=False),
    "noise always taken out of lengths": Rule(debiased=False),
    "flat prior": Rule(charged_exponents=False),
    "whitening at any signal": Rule(whitening_follows_signal=False),
    "up to 0.4 for the Gram matrix": Rule(gram_share=0.4),
}


class DiscriminantAblation(DiscriminantPrototypes):
    """`DiscriminantPrototypes` by another rule, at the same budget and with the same guarantee.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP
    classes : array-like of shape (n_classes,), default=None
    variant : str, default="no gradient steps"
        A key of `VARIANTS`.
    unknown_labels : {"error", "ignore"}, default="error"
    random_state : int, default=None

    Notes
    -----
    **Privacy.** As `DiscriminantPrototypes`: variants share out the budget in other ways or compute other things from
    what was released.
    """

    def __init__(
        self,
        budget: Budget,
        classes: Any = None,
        *,
        variant: str = "no gradient steps",
        unknown_labels: str = "error",
        random_state: int | None = None,
    ) -> None:
        super().__init__(budget, classes, unknown_labels=unknown_labels, random_state=random_state)
        self.variant = variant

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.one_of(tuple(VARIANTS), variant=self.variant)

    def _plan(self, public: RowSource | None) -> Any:
        return super()._plan(self._read(public))

    def _release(
        self, mechanism: Any, rows: RowSource, codes: Codes, public: RowSource | None, source: Randomness
    ) -> None:
        super()._release(mechanism, rows, codes, self._read(public), source)

    def _read(self, public: RowSource | None) -> RowSource | None:
        return None if self.variant == NO_PUBLIC_ROWS else public

    @property
    def _rule(self) -> Rule:
        return VARIANTS[self.variant]
