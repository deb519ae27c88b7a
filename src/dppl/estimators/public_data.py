"""What is public in a fit, beside parameters: unlabelled rows, and examples of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl.engines import Engine, InProcess
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice import RowSource, TensorRows, iter_blocks
from dppl.kernel.lattice.tensors import is_tensor
from dppl.kernel.reading import Codes, as_labels, as_rows, check_encoder, class_codes, encoder_of, lattice_of

_EXAMPLE_ROWS = 4096
# More than this a model does not keep of what was embedded.
_MOST_CHARACTERS = 100_000
_MOST_EXAMPLES = 10**12  # of a class, in a file that is believed


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Public labelled rows."""

    rows: NDArray[Any]  # shape (n_examples, n_features)
    codes: Codes  # shape (n_examples,); positions in the class list; some classes may have none
    texts: Sequence[str] | None = None  # what was embedded, where the table of the rows says it

    def kept(self, n_classes: int) -> ExamplesKept:
        """Return what a model keeps of them; texts only if they are short."""
        counts = np.bincount(self.codes, minlength=n_classes).tolist()
        if self.texts is None or sum(map(len, self.texts)) > _MOST_CHARACTERS:
            return ExamplesKept(tuple(counts))
        texts: list[list[str]] = [[] for _ in counts]
        for text, code in zip(self.texts, self.codes.tolist(), strict=True):
            texts[code].append(text)
        return ExamplesKept(tuple(counts), tuple(map(tuple, texts)))


@dataclass(frozen=True, slots=True)
class ExamplesKept:
    """What a model keeps of the public examples that its fit started from."""

    counts: tuple[int, ...]  # number of examples of each class
    # for each class the texts that were embedded; None if they are not known, or long
    texts: tuple[tuple[str, ...], ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dictionary; `from_dict` reads it back."""
        return {"counts": list(self.counts), "texts": self.texts and [list(texts) for texts in self.texts]}

    @classmethod
    def from_dict(cls, fields: dict[str, Any], n_classes: int) -> Self:
        """Read what `to_dict` wrote; KeyError, TypeError or ValueError if these are not examples of so many classes."""
        if fields.keys() != {"counts", "texts"}:
            raise KeyError("examples have counts and texts")
        counts, texts = fields["counts"], fields["texts"]
        if type(counts) is not list or len(counts) != n_classes or not any(counts):
            raise ValueError("the numbers of examples do not fit the classes")
        if not all(type(count) is int and 0 <= count <= _MOST_EXAMPLES for count in counts):
            raise ValueError("the numbers of examples are none")
        if texts is None:
            return cls(tuple(counts))
        if type(texts) is not list or not all(type(some) is list for some in texts):
            raise TypeError("the texts of examples are lists of texts")
        if [len(some) for some in texts] != counts:
            raise ValueError("the texts of the examples do not fit their numbers")
        _check_texts([text for some in texts for text in some])
        return cls(tuple(counts), tuple(map(tuple, texts)))

    def __str__(self) -> str:
        described = sum(count > 0 for count in self.counts)
        return f"{sum(self.counts)}, for {described} of {len(self.counts)} classes"


@dataclass(frozen=True, slots=True, eq=False)
class PublicData:
    """Public rows and examples that were checked."""

    rows: RowSource | None = None  # shape (n_public, n_features)
    examples: Examples | None = None
    given: PublicArguments = field(default_factory=lambda: PublicArguments())  # what they were made of
    engine: Engine = field(default_factory=InProcess)  # where some of the rows are read, if they lie in files


@dataclass(frozen=True, slots=True, eq=False)
class PublicArguments:
    """Public data as a caller handed it in."""

    X_public: Any = None
    X_examples: Any = None
    y_examples: Any = None

    def __post_init__(self) -> None:
        if (self.X_examples is None) != (self.y_examples is None):
            raise ParameterError("X_examples and y_examples go together: public rows, and the class of each.")

    def refuse_private(self, X: Any, y: Any) -> None:
        """Refuse private rows or labels in a public role, and rows of another encoder. Says nothing about values."""
        for name in ("X_public", "X_examples"):
            value = getattr(self, name)
            refuse_private_as_public(X, value, name)
            check_encoder(value, encoder_of(X), name)
        refuse_private_as_public(y, self.y_examples, "y_examples")

    def checked(self, n_features: int, classes: NDArray[Any]) -> PublicData:
        """Return the public data of a fit; refuse rows of another width, and examples without direction or class."""
        rows = None if self.X_public is None else _rows(self.X_public, n_features, "X_public")
        if self.X_examples is None:
            return PublicData(rows, None, self)
        source = _rows(self.X_examples, n_features, "X_examples")
        if lattice_of(self.X_examples) is not None:
            raise InputError("X_examples must be embeddings; its table holds lattice rows.")
        labels = as_labels(self.y_examples, source, ("X_examples", "y_examples"))
        examples = np.concatenate([np.empty((0, n_features)), *iter_blocks(source, _EXAMPLE_ROWS)])
        if not len(examples):
            raise InputError("X_examples must hold at least one row; leave it out if there are no examples.")
        if not (np.isfinite(examples).all() and examples.any(axis=1).all()):
            raise InputError("X_examples must be finite rows that are not zero; at least one is not.")
        codes = class_codes(labels, classes, "ignore")
        if (codes < 0).any():
            # Examples are public, so the message may show their labels.
            wrong = labels.tolist()[int(np.flatnonzero(codes < 0)[0])]
            raise InputError(f"y_examples must be labels of the class list; {wrong!r} is not one.")
        texts = getattr(self.X_examples, "texts", None)
        if not isinstance(texts, tuple):  # those of a table are
            return PublicData(rows, Examples(examples, codes), self)
        if len(texts) != len(codes):
            raise InputError("X_examples must have one text for each row, or no texts.")
        _check_texts(texts)
        return PublicData(rows, Examples(examples, codes, texts), self)


def refuse_private_as_public(X: Any, X_public: Any, name: str = "X_public") -> None:
    """Refuse the commonest slip: one object, or views of one array, in both roles. Says nothing about the values."""
    same = X_public is not None and X is X_public
    X, X_public = _in_memory(X), _in_memory(X_public)
    if isinstance(X, np.ndarray) and isinstance(X_public, np.ndarray):
        same = np.may_share_memory(X, X_public)
    elif isinstance(X, TensorRows) and isinstance(X_public, TensorRows):
        same = X.shares_memory(X_public)
    if same:
        what = "labels" if name.startswith("y") else "rows"
        raise ParameterError(f"must be public data; got the private {what} themselves.", parameter=name)


def _in_memory(value: Any) -> Any:
    """Return what tells whether two values share memory: of a tensor its rows."""
    return as_rows(value) if is_tensor(value) and value.ndim == 2 else value


def _check_texts(texts: Sequence[Any]) -> None:
    """Refuse what is not a text that a file can hold."""
    if not all(isinstance(text, str) for text in texts):
        raise InputError("the texts of X_examples must be str.")
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise InputError("the texts of X_examples must be without lone surrogates, which no file can hold.")


def _rows(given: Any, n_features: int, name: str) -> RowSource:
    rows = as_rows(given, name)
    if rows.shape[1] != n_features:
        raise InputError(f"must have the {n_features} features of X; got {rows.shape[1]} features.", parameter=name)
    return rows
