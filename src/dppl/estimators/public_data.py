"""What is public in a fit, beside parameters: unlabelled rows, and examples of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError, ParameterError
from dppl.estimators.reading import Codes, as_labels, as_rows, check_encoder, class_codes, encoder_of
from dppl.estimators.splitters import whole_public_rows
from dppl.lattice import RowSource, TensorRows, iter_blocks

_EXAMPLE_ROWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Public labelled rows.

    Attributes
    ----------
    rows : ndarray of shape (n_examples, n_features)
    codes : ndarray of shape (n_examples,), intp
        Positions in the class list; some classes may have none.
    """

    rows: NDArray[Any]
    codes: Codes


@dataclass(frozen=True, slots=True, eq=False)
class PublicData:
    """Public rows and examples that were checked.

    Attributes
    ----------
    rows : ndarray or table of shape (n_public, n_features), or None
    examples : Examples or None
    """

    rows: RowSource | None = None
    examples: Examples | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PublicArguments:
    """Public data as a caller handed it in."""

    X_public: Any = None
    X_examples: Any = None
    y_examples: Any = None

    @classmethod
    def of(cls, X_public: Any, X_examples: Any, y_examples: Any) -> Self:
        """Take them out of their wrappers.

        Raises
        ------
        ParameterError
            If a tool of scikit-learn may have cut them, or examples lack labels, or labels examples.
        """
        if (X_examples is None) != (y_examples is None):
            raise ParameterError("X_examples and y_examples go together: public rows, and the class of each.")
        given = {"X_public": X_public, "X_examples": X_examples, "y_examples": y_examples}
        return cls(**{name: whole_public_rows(value, name) for name, value in given.items()})

    @property
    def empty(self) -> bool:
        """Whether there is nothing."""
        return self.X_public is None and self.X_examples is None

    def refuse_private(self, X: Any) -> None:
        """Refuse the private rows in a public role, and rows of another encoder. Says nothing about values.

        Raises
        ------
        ParameterError, InputError
        """
        for name in ("X_public", "X_examples"):
            value = getattr(self, name)
            refuse_private_as_public(X, value, name)
            check_encoder(value, encoder_of(X), name)

    def checked(self, n_features: int, classes: NDArray[Any]) -> PublicData:
        """Return the public data of a fit on rows of that width, of these classes.

        Raises
        ------
        TypeError, InputError
            If they are not rows of that width, or an example has no direction or no class of the list.
        """
        rows = None if self.X_public is None else _rows(self.X_public, n_features, "X_public")
        if self.X_examples is None:
            return PublicData(rows)
        source = _rows(self.X_examples, n_features, "X_examples")
        labels = as_labels(self.y_examples, source, ("X_examples", "y_examples"))
        examples = np.concatenate([np.empty((0, n_features)), *iter_blocks(source, _EXAMPLE_ROWS)])
        if not len(examples):
            raise InputError("X_examples must hold at least one row; leave it out if there are no examples.")
        if not (np.isfinite(examples).all() and examples.any(axis=1).all()):
            raise InputError("X_examples must be finite rows that are not zero; at least one is not.")
        codes = class_codes(labels, classes, "ignore")
        if (codes < 0).any():
            # Examples are public, so the message may show their labels.
            wrong = labels[int(np.flatnonzero(codes < 0)[0])]
            raise InputError(f"y_examples must be labels of the class list; {wrong!r} is not one.")
        return PublicData(rows, Examples(examples, codes))


def refuse_private_as_public(X: Any, X_public: Any, name: str = "X_public") -> None:
    """Refuse the commonest slip: one object, or views of one array, in both roles. Says nothing about the values.

    Raises
    ------
    ParameterError
        If they are.
    """
    same = X_public is not None and X is X_public
    if isinstance(X, np.ndarray) and isinstance(X_public, np.ndarray):
        same = np.may_share_memory(X, X_public)
    elif isinstance(X, TensorRows) and isinstance(X_public, TensorRows):
        same = X.shares_memory(X_public)
    if same:
        raise ParameterError("must be public data; got the private rows themselves.", parameter=name)


def _rows(given: Any, n_features: int, name: str) -> RowSource:
    rows = as_rows(given, name)
    if rows.shape[1] != n_features:
        raise InputError(f"must have the {n_features} features of X; got {rows.shape[1]} features.", parameter=name)
    return rows
