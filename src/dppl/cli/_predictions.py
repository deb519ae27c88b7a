"""What `dppl predict` writes: a label for each record, and on request its probabilities."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUFFIXES = (".csv", ".npy", ".npz", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Labels in the order of the records; None is the empty one."""

    labels: list[Any]
    ids: Sequence[str | None] | None  # None where the records have no ids
    classes: NDArray[Any]  # shape (n_classes,)
    probabilities: NDArray[np.float32] | None = None  # shape (n, n_classes); NaN for records that cannot be used
    proba: bool = False  # whether the probabilities of all classes are written
    top: int = 0  # number of classes that are written with their probabilities; 0 for none
    private: bool = False  # whether nobody but the owner may read the file

    @property
    def plain(self) -> bool:
        """Whether there is nothing but labels."""
        return not self.proba and not self.top

    def at_least(self, confidence: float) -> list[Any]:
        """Return the labels, with the empty one where the largest probability is below `confidence`."""
        assert self.probabilities is not None
        sure = self.probabilities.max(axis=1, initial=0.0) >= confidence  # NaN is not
        return [label if is_sure else None for label, is_sure in zip(self.labels, sure, strict=True)]

    def content(self, suffix: str) -> bytes:
        """Return the file that ends in `suffix`."""
        if suffix == ".npy":
            return _saved(np.save, _as_array(self.labels, self.classes))
        if suffix == ".npz":
            return _saved(np.savez, **self._arrays())
        return self._parquet() if suffix == ".parquet" else self.csv().encode("utf-8")

    def csv(self) -> str:
        """Return the columns below a header."""
        columns = self._columns()
        if self.proba and self.probabilities is not None:
            for name, column in zip(self.classes.tolist(), self.probabilities.T, strict=True):
                columns[f"probability of {name}"] = _numbers(column)
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return buffer.getvalue()

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {} if self.ids is None else {"id": list(self.ids)}
        columns["label"] = self.labels
        for place, (names, values) in enumerate(self._best(), start=1):
            columns |= {f"top {place}": names, f"probability {place}": values}
        return columns

    def _best(self) -> list[tuple[list[Any], list[Any]]]:
        """Return the likeliest classes and their probabilities, first those in the first place."""
        if not self.top or self.probabilities is None:
            return []
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, : self.top]
        values = np.take_along_axis(self.probabilities, order, axis=1)
        names = self.classes[order].astype(object)
        names[np.isnan(values)] = None
        return [(names[:, place].tolist(), _numbers(values[:, place])) for place in range(order.shape[1])]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"label": _as_array(self.labels, self.classes)}
        if self.ids is not None:
            arrays["id"] = np.array(["" if name is None else name for name in self.ids], str)
        if self.probabilities is not None and not self.plain:
            arrays |= {"probability": self.probabilities, "classes": self.classes}
        return arrays

    def _parquet(self) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {name: pa.array(values) for name, values in self._columns().items()}
        if self.proba and self.probabilities is not None:
            columns["probability"] = pa.FixedSizeListArray.from_arrays(
                pa.array(self.probabilities.reshape(-1)), len(self.classes)
            )
        table = pa.table(columns).replace_schema_metadata({"classes": json.dumps(self.classes.tolist())})
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        return buffer.getvalue()


def _numbers(values: NDArray[np.float32]) -> list[float | None]:
    """Return probabilities with the digits that float32 has, and nothing in the place of NaN."""
    return [None if np.isnan(value) else float(f"{value:.7g}") for value in values.tolist()]


def _as_array(labels: list[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Return labels in the type of the classes, and as texts where some are empty."""
    if None in labels:
        return np.array(["" if label is None else str(label) for label in labels], str)
    return np.array(labels, classes.dtype)


def _saved(save: Callable[..., None], *arrays: NDArray[Any], **named: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *arrays, **named)  # none is of objects, so that nothing is pickled
    return buffer.getvalue()
