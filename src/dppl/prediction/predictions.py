"""What a model says of records, and files of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dppl._utils.types import Array, Flags, Float32
from dppl.methods.released import Least
from dppl.reasons import NoLabel

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Labels in the order of the records, and what else is said of them."""

    # None for a record that cannot be used; of a multi-label model, lists.
    labels: list[Any]
    classes: Array  # shape (n_classes,)
    ids: Sequence[str | None] | None = None  # None where the records have no ids
    # Shape (n, n_classes); NaN for records that cannot be used.
    probabilities: Array | None = None
    # Shape (n,); to the nearest class, NaN likewise.
    similarities: Array | None = None
    reasons: Sequence[NoLabel | None] | None = None  # why a record has no label
    # Joins the labels of a record, for a multi-label model.
    separator: str | None = None

    @property
    def texts(self) -> list[Any]:
        """The labels as files hold them."""
        joined = self.separator
        if joined is None:
            return self.labels
        return [
            None if several is None else joined.join(map(str, several))
            for several in self.labels
        ]

    def at_least(self, least: Least) -> Predictions:
        """Return them without the labels that are below what is required, and with the reasons."""
        assert self.probabilities is not None
        confidence = self.probabilities.max(axis=1, initial=0.0)
        found = zip(
            self.labels,
            least.reasons(confidence, self.similarities).tolist(),
            strict=True,
        )
        reasons = [
            NoLabel.UNUSABLE if label is None else reason for label, reason in found
        ]
        labels = [
            None if reason else label
            for label, reason in zip(self.labels, reasons, strict=True)
        ]
        return replace(self, labels=labels, reasons=reasons)

    def among_unusable(self, usable: Flags) -> Predictions:
        """Return them in the order of all records, of which those that are not `usable` have no label."""
        known = iter(self.labels)
        return replace(
            self,
            labels=[next(known) if fits else None for fits in usable],
            probabilities=_placed(self.probabilities, usable),
            similarities=_placed(self.similarities, usable),
        )

    def content(self, suffix: str, *, proba: bool = False, top: int = 0) -> bytes:
        """Return the file that ends in `suffix`, with the probabilities of all or of the `top` likeliest classes."""
        columns: dict[str, list[Any]] = (
            {} if self.ids is None else {"id": list(self.ids)}
        )
        columns["label" if self.separator is None else "labels"] = self.texts
        if self.reasons is not None:
            columns["reason"] = list(self.reasons)
        if self.similarities is not None:
            columns["similarity"] = _numbers(self.similarities)
        if top and self.probabilities is not None:
            order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :top]
            values = np.take_along_axis(self.probabilities, order, axis=1)
            names = self.classes[order].astype(object)
            names[np.isnan(values)] = None
            for place in range(order.shape[1]):
                columns[f"top {place + 1}"] = names[:, place].tolist()
                columns[f"probability {place + 1}"] = _numbers(values[:, place])
        if proba and self.probabilities is not None:
            for name, column in zip(
                self.classes.tolist(), self.probabilities.T, strict=True
            ):
                columns[f"probability of {name}"] = _numbers(column)
        if suffix == ".csv":
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
            return lines.getvalue().encode("utf-8")
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = io.BytesIO()
        pq.write_table(pa.table(columns), table)
        return table.getvalue()


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Return predictions of one model after each other, with numbers in float32, which are half as large."""
    return replace(
        parts[0],
        labels=[label for part in parts for label in part.labels],
        probabilities=_stacked([part.probabilities for part in parts]),
        similarities=_stacked([part.similarities for part in parts]),
    )


def _stacked(parts: Sequence[Array | None]) -> Float32 | None:
    known = [np.asarray(part, np.float32) for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _placed(values: Array | None, usable: Flags) -> Float32 | None:
    """Return values of all records, NaN for those that cannot be used."""
    if values is None:
        return None
    whole = np.full((len(usable), *values.shape[1:]), np.nan, np.float32)
    whole[usable] = values
    return whole


def _numbers(values: Array) -> list[float | None]:
    """Return probabilities with the digits that float32 has, and nothing in the place of NaN."""
    return [
        None if np.isnan(value) else float(f"{value:.7g}")
        for value in values.astype(np.float32).tolist()
    ]
