"""How labels are read where a record may have several, or none (multi-label): each record by itself."""

from __future__ import annotations

from collections.abc import Hashable, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice.lattice import usable_rows
from dppl.kernel.lattice.stream import RowSource, as_numpy, is_tensor
from dppl.kernel.reading import (
    UNKNOWN_LABELS,
    UNMATCHED,
    Codes,
    as_labels,
    check_kind,
    key_of,
    key_of_number,
    positions_of,
    refuse_unknown_labels,
)

_CELLS: dict[Hashable, float] = {"0": 0.0, False: 0.0, "1": 1.0, True: 1.0}


@dataclass(frozen=True, slots=True)
class MultiLabel:
    """How labels are given where a record may have several, or none.

    As a matrix of 0 and 1 with a column a class, in the order of the class list, as
    `MultiLabelBinarizer` of scikit-learn makes it; or as one collection of labels a
    record. A text is split by the separator, and one label without one. Spaces around
    labels and empty parts are dropped. None and NaN are no labels.
    """

    separator: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and not (
            isinstance(self.separator, str) and self.separator
        ):
            raise ParameterError(
                f"must be a text, or None; got {self.separator!r}.",
                parameter="separator",
            )

    def checked(
        self, y: Any, rows: RowSource, names: tuple[str, str] = ("X", "y")
    ) -> NDArray[Any]:
        """Return `y` as a matrix of numbers or as a vector of collections: arrays and frames are matrices if 2D."""
        if hasattr(y, "toarray"):
            y = y.toarray()
        elif is_tensor(y):
            y = as_numpy(y)
        if hasattr(y, "dtype") or hasattr(y, "__array__"):
            array = np.asarray(y)
        else:
            array = np.empty(0)
        if array.ndim != 2:
            return as_labels(y, rows, names)
        # A single odd cell can make objects of a whole frame.
        if array.dtype.kind not in ("biufO" if hasattr(y, "columns") else "biuf"):
            raise InputError(
                f"{names[1]} must be a matrix of 0 and 1, or a list with a list of labels for each record."
            )
        if len(array) != rows.shape[0]:
            raise InputError(
                f"{names[0]} and {names[1]} must have the same number of rows; their numbers differ."
            )
        return array

    def read(
        self, y: NDArray[Any], classes: NDArray[Any]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which classes each record has, shape (n, n_classes), and whether its labels name no others."""
        if y.ndim == 2:
            if y.shape[1] != len(classes):
                raise InputError(
                    f"y must have a column for each of the {len(classes)} classes; got {y.shape[1]}."
                )
            if y.dtype == object:
                y = np.reshape(
                    [
                        _CELLS.get(key_of_number(cell), np.nan)
                        for cell in y.ravel().tolist()
                    ],
                    y.shape,
                )
            sets = y == 1
            return sets, np.asarray((sets | (y == 0)).all(axis=1))
        # Texts that are split are a form of collections, whatever the classes are.
        if self.separator is None or y.dtype.kind != "U":
            check_kind(y, classes)
        position = positions_of(classes)
        key = key_of(classes)
        sets = np.zeros((len(y), len(classes)), bool)
        known = np.ones(len(y), bool)
        for place, one in enumerate(y.tolist()):
            codes = [position.get(key(label), -1) for label in self.labels_of(one)]
            sets[place, [code for code in codes if code >= 0]] = True
            known[place] = -1 not in codes
        return sets, known

    def labels_of(self, one: Any) -> list[Any]:
        """Return the labels of one record."""
        with suppress(
            Exception
        ):  # of odd collections, which hold an unknown label then
            if one is None or (isinstance(one, float) and one != one):
                return []
            if isinstance(one, list | tuple | Set | np.ndarray):
                if isinstance(one, np.ndarray):
                    return np.ravel(one).tolist()
                return list(one)
            if isinstance(one, str) and self.separator is not None:
                return [
                    part.strip() for part in one.split(self.separator) if part.strip()
                ]
            return [one]
        return [UNMATCHED]

    def of_records(
        self,
        rows: RowSource,
        y: NDArray[Any],
        classes: NDArray[Any],
        unknown_labels: str,
    ) -> tuple[Codes, NDArray[np.bool_]]:
        """Return codes of 0, or -1 for a record whose row cannot be used, and the label sets.

        A record without any label counts. With ``"ignore"`` a label outside the list is
        dropped, and its record stays.
        """
        validate.one_of(UNKNOWN_LABELS, unknown_labels=unknown_labels)
        usable = usable_rows(rows)
        sets = np.zeros((len(y), len(classes)), bool)
        sets[usable], known = self.read(y[usable], classes)
        if unknown_labels == "error":
            refuse_unknown_labels(known, classes, self)
        return np.where(usable, 0, -1), sets
