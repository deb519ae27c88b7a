"""What is public in a fit besides parameters: unlabelled rows, and examples of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dppl._utils.metadata import ENCODER, LATTICE, check_encoder, stated
from dppl._utils.types import Array
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice import Lattice, RowSource, TensorRows, iter_blocks
from dppl.kernel.lattice.stream import is_tensor
from dppl.kernel.reading import Codes, as_labels, as_rows, check_kind, class_codes

_EXAMPLE_ROWS = 4096
_LONGEST_SHOWN = 4000
# More than this a model does not keep of what was embedded.
_MOST_CHARACTERS = 100_000
_MOST_EXAMPLES = 10**12  # of a class, in a file that is believed


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Public labelled rows."""

    rows: Array  # shape (n_examples, n_features)
    codes: Codes  # shape (n_examples,); positions in the class list; some classes may have none
    texts: Sequence[str] | None = (
        None  # what was embedded, where the table of the rows says it
    )

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
        """Return the fields for JSON."""
        return {
            "counts": list(self.counts),
            "texts": self.texts and [list(texts) for texts in self.texts],
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any], n_classes: int) -> Self:
        """Read what `to_dict` wrote; any error if these are not examples of so many classes."""
        counts = fields["counts"]
        texts = fields["texts"]
        numbers = all(
            type(count) is int and 0 <= count <= _MOST_EXAMPLES for count in counts
        )
        if (
            fields.keys() != {"counts", "texts"}
            or not numbers
            or len(counts) != n_classes
            or not any(counts)
        ):
            raise ValueError("the numbers of examples do not fit the classes")
        if texts is None:
            return cls(tuple(counts))
        if (
            not all(type(some) is list for some in texts)
            or [len(some) for some in texts] != counts
        ):
            raise ValueError("the texts of the examples do not fit their numbers")
        for some in texts:
            _check_texts(some)
        return cls(tuple(counts), tuple(map(tuple, texts)))

    def __str__(self) -> str:
        described = sum(count > 0 for count in self.counts)
        return f"{sum(self.counts)}, for {described} of {len(self.counts)} classes"


@dataclass(frozen=True, slots=True, eq=False)
class PublicValues:
    """Public rows and examples that were checked."""

    rows: RowSource | None = None  # shape (n_public, n_features)
    examples: Examples | None = None


@dataclass(frozen=True, eq=False, repr=False)
class PublicData:
    """Public rows, and public examples of the classes, by the encoder of the private records.

    Copies of an estimator share them, and nothing that scikit-learn does to the
    arguments of a fit touches them. Files are read by `dppl.io.read_table`.

    Parameters
    ----------
    rows : array-like, torch tensor or table of shape (n_public, n_features), default=None
        Public embeddings.
    examples : array-like, torch tensor or table of shape (n_examples, n_features), default=None
        Embeddings of what the classes are called, of descriptions, or of published
        records, for methods that start from some. Those that were written or chosen by
        looking at private records are not public.
    example_classes : array-like of shape (n_examples,), default=None
        Their classes; a class may have several, or none. None is for a table that holds
        its labels.

    Notes
    -----
    **Privacy.** Unit: none. Relation: none. Released: these rows, as far as a method
    uses them. Sensitivity: none; they are public. Public inputs: all of it. Not
    covered: rows or examples that depend on private records.
    """

    rows: Any = None
    examples: Any = None
    example_classes: Any = None

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __repr__(self) -> str:
        given = [
            name for name in ("rows", "examples") if getattr(self, name) is not None
        ]
        return f"PublicData({', '.join(f'{name}=...' for name in given)})"

    def _checked(
        self, n_features: int, classes: Array, private: tuple[Any, Any] = (None, None)
    ) -> PublicValues:
        """Return the public data of a fit, in which the `private` rows and labels have no place."""
        X, y = private
        sources: dict[str, RowSource] = {}
        for name in ("rows", "examples"):
            table = getattr(self, name)
            of_public = f"public.{name}"
            if table is None:
                continue
            refuse_private_as_public(X, table, of_public)
            check_encoder(table, stated(X, ENCODER), of_public)
            sources[name] = as_rows(table, of_public)
            width = sources[name].shape[1]
            if width != n_features:
                what = (
                    f"must have the {n_features} features of X; got {width} features."
                )
                raise InputError(what, parameter=of_public)
            check_lattice(table, n_features, of_public)
        labels = self.example_classes
        if labels is None:
            labels = getattr(self.examples, "y", None)
        if (labels is None) != (self.examples is None):
            raise ParameterError(
                "must be given with examples, and only then.",
                parameter="example_classes",
            )
        examples = None
        if labels is not None:
            refuse_private_as_public(y, labels, "public.example_classes")
            examples = _examples(self.examples, sources["examples"], labels, classes)
        return PublicValues(sources.get("rows"), examples)


def _examples(table: Any, source: RowSource, labels: Any, classes: Array) -> Examples:
    """Return examples, all of which have a direction and a class; they are public, so messages may show them."""
    if stated(table, LATTICE) is not None:
        raise InputError(
            "public.examples must be embeddings; their table holds lattice rows."
        )
    labels = as_labels(labels, source, ("public.examples", "public.example_classes"))
    rows = np.concatenate(
        [np.empty((0, source.shape[1])), *iter_blocks(source, _EXAMPLE_ROWS)]
    )
    if not len(rows):
        raise InputError(
            "public.examples must hold at least one row; leave it out if there are no examples."
        )
    if not (np.isfinite(rows).all() and rows.any(axis=1).all()):
        raise InputError(
            "public.examples must be finite rows that are not zero; at least one is not."
        )
    check_kind(labels, classes, "public.example_classes")
    codes = class_codes(labels, classes, "ignore")
    if (codes < 0).any():
        wrong = labels.tolist()[int(np.flatnonzero(codes < 0)[0])]
        raise InputError(
            f"public.example_classes must be labels of the class list; {wrong!r} is not one."
        )
    texts = getattr(table, "texts", None)
    if not isinstance(texts, tuple):  # texts of a table are
        return Examples(rows, codes)
    if len(texts) != len(codes):
        raise InputError(
            "public.examples must have one text for each row, or no texts."
        )
    _check_texts(texts)
    return Examples(rows, codes, texts)


def _check_texts(texts: Sequence[Any]) -> None:
    """Raise unless all are texts that a file can hold."""
    if not all(isinstance(text, str) for text in texts):
        raise InputError("the texts of public.examples must be str.")
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(
                "the texts of public.examples must be without lone surrogates, which no file can hold."
            )


def check_lattice(X: Any, n_features: int, name: str) -> None:
    """Refuse a table of lattice rows that a centre, pooling or rotation keeps from being directions of embeddings."""
    given = stated(X, LATTICE)
    if given is not None and given != (plain := Lattice(n_features).name):
        raise InputError(
            f"{name} must hold embeddings, or lattice rows of the map {plain}; its table holds lattice rows of the map "
            f"{given[:_LONGEST_SHOWN]}. Use the table that they were made from."
        )


def refuse_private_as_public(X: Any, X_public: Any, name: str = "public.rows") -> None:
    """Refuse the commonest slip: one object, or views of one array, in both roles. Says nothing about the values."""
    same = X_public is not None and X is X_public
    X, X_public = (
        as_rows(one) if is_tensor(one) and one.ndim == 2 else one
        for one in (X, X_public)
    )
    if isinstance(X, np.ndarray) and isinstance(X_public, np.ndarray):
        same = np.may_share_memory(X, X_public)
    elif isinstance(X, TensorRows) and isinstance(X_public, TensorRows):
        same = X.shares_memory(X_public)
    if same:
        what = "labels" if name.endswith("classes") else "rows"
        raise ParameterError(
            f"must be public data; got the private {what} themselves.", parameter=name
        )
