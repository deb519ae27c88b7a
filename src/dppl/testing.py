"""Check a new method: that it learns from noisy answers alone, and that these cost what is stated."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
from sklearn.base import clone

from dppl.kernel.measure import Measure
from dppl.methods import EmbeddingClassifier

__all__ = ["Asked", "check_private", "recorded", "replayed"]

Estimator = TypeVar("Estimator", bound=EmbeddingClassifier)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One ask of a fit, and its answer."""

    name: str
    answer: Any
    noise_std: float | None = (
        None  # in each coordinate of the answer; None of answers that have no noise
    )


@contextmanager
def recorded() -> Iterator[list[Asked]]:
    """Write down what fits inside the block ask, and what they are answered: all that they learn of the records."""
    asked: list[Asked] = []
    ask = Measure.__call__

    def note(self: Measure, name: str, **released: Any) -> Any:
        answer = ask(self, name, **released)
        mechanism = self._declared(name).mechanism
        # Of selections and of means by CoinPress, which have no single one, it is 1:
        # they are the only ask of a fit.
        asked.append(
            Asked(
                name,
                answer,
                None if mechanism is None else getattr(mechanism, "noise_std", 1.0),
            )
        )
        return answer

    with patch.object(Measure, "__call__", note):
        yield asked


@contextmanager
def replayed(asked: list[Asked]) -> Iterator[None]:
    """Answer what fits inside the block ask by a transcript; their records are not looked at."""
    left = iter(asked)

    def answer(self: Measure, name: str, **released: Any) -> Any:
        one = next(left, None)
        if one is None or one.name != name:
            raise AssertionError(
                f"asks for {name!r} where the recorded fit asked for {one and one.name!r}"
            )
        return one.answer

    with patch.object(Measure, "__call__", answer):
        yield


def check_private(estimator: Estimator, X: Any, y: Any) -> Estimator:
    """Check that an estimator learns from noisy answers alone, and states what they cost.

    Parameters
    ----------
    estimator : EmbeddingClassifier
        Not fitted.
    X : ndarray of shape (n_records, n_features)
        Made-up rows.
    y : array-like of shape (n_records,)
        Their labels.

    Returns
    -------
    EmbeddingClassifier
        A fitted copy.

    Raises
    ------
    AssertionError
        If a fit on no records at all, which gets the answers of a fit on these, fails
        or releases anything else; if the statement is not the statement of the declared
        measurements; or if it promises more than the budget.
    MeasurementError
        If it asks for what it has not declared, or more often.
    """
    with recorded() as asked:
        model: Estimator = clone(estimator).fit(X, y)
    try:
        declared = estimator.plan(X.shape[1])
        with replayed(asked):
            again = clone(estimator).fit(X[:0], y[:0])
    except (
        Exception
    ) as error:  # of a method that keeps something of the records for later
        raise AssertionError(
            f"fails without records, so it uses more than the noisy answers: {error!r}"
        ) from error
    for name, tensor in model._tensors().items():
        if not np.array_equal(
            tensor, again._tensors()[name], equal_nan=tensor.dtype.kind == "f"
        ):
            raise AssertionError(
                f"{name} is not a function of the noisy answers: a fit without records, which gets the same answers, "
                "learns another. It uses records, or random numbers: derive these from a public seed"
            )
    stated = tuple(
        one.release for one in declared.measurements.values() if one.release is not None
    )
    if model.guarantee_.releases != stated:
        raise AssertionError("the statement does not list the declared measurements")
    if not model.guarantee_.stays_within_budget():
        raise AssertionError("the measurements cost more than the budget")
    return model
