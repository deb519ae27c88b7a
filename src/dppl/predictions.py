"""What a model says about records: of a table of embeddings, or of raw images and texts; and files of that."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dppl._utils.types import Array, Flags, Float32
from dppl.encoders import Encoder
from dppl.finetune.tune import Finetuned
from dppl.io import EmbeddingTable, PartedTable, Source
from dppl.io.kept import Kept
from dppl.io.tables.shards import Window
from dppl.methods import EmbeddingClassifier
from dppl.methods.released import Least, Shares, labels_of
from dppl.reasons import NoLabel
from dppl.training.embedding import embed_windows

SUFFIXES = (".csv", ".parquet")
SEPARATOR = ";"  # of labels, where a model names none
_ROWS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Labels in the order of the records, and what files hold of them besides."""

    labels: list[
        Any
    ]  # None for a record that cannot be used; lists where a record may have several
    classes: Array  # shape (n_classes,)
    ids: Sequence[str | None] | None = None  # None where the records have no ids
    probabilities: Float32 | None = (
        None  # shape (n, n_classes); NaN for records that cannot be used
    )
    similarities: Float32 | None = (
        None  # shape (n,); to the nearest class, NaN likewise
    )
    reasons: Sequence[NoLabel | None] | None = None  # why a record has no label
    separator: str | None = (
        None  # joins the labels of a record, where it may have several
    )

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


def _numbers(values: Float32) -> list[float | None]:
    """Return probabilities with the digits that float32 has, and nothing in the place of NaN."""
    return [
        None if np.isnan(value) else float(f"{value:.7g}") for value in values.tolist()
    ]


# A model behind its encoder: what embeds records, and what classifies their rows.
Predictor: TypeAlias = tuple[Encoder, Callable[[Any], Predictions]]


def load_predictor(
    model: EmbeddingClassifier | Finetuned,
    encoder: str | None,
    shares: Shares | None = None,
    *,
    similarity: bool = False,
    trial: bool = True,
) -> Predictor:
    """Load what embeds records for a model, and return it with the classifier of its rows.

    Labels that no guarantee is about need no trial of the encoder.
    """
    if isinstance(model, Finetuned):
        network, probabilities_of = model.predictor(encoder)

        def classify(rows: Any) -> Predictions:
            values = np.empty((0, len(model.classes_)), np.float32)
            if len(rows):  # of what shape they are, only rows say
                values = probabilities_of(np.stack(rows)).astype(np.float32)
            labels = model.classes_[values.argmax(axis=1)].tolist()
            return Predictions(
                labels=labels, classes=model.classes_, probabilities=values
            )

        return network, classify
    from dppl.training.classifier import (
        encoder_of_model,
    )  # here, so that help texts come at once

    loaded = encoder_of_model(model, encoder, trial=trial)

    def classified(rows: Any) -> Predictions:
        table = np.reshape(rows, (len(rows), model.n_features_in_))
        return _classified(model, table, shares, similarity=similarity)

    return loaded, classified


def _classified(
    model: EmbeddingClassifier,
    rows: Any,
    shares: Shares | None,
    *,
    similarity: bool = False,
) -> Predictions:
    """Predict rows, with probabilities if `shares` of the classes are named.

    For shares of the data, labels are the likeliest classes, and not the labels of the
    balanced decision.
    """
    if model.multilabel:
        sets = model.predict_labels(rows, unusable="empty")
        values = (
            None
            if shares is None
            else model.predict_proba(rows, unusable="empty").astype(np.float32)
        )
        separator = model.separator or SEPARATOR
        return Predictions(
            labels=sets,
            classes=model.classes_,
            probabilities=values,
            separator=separator,
        )
    if shares is None:
        labels = model.predict(rows, unusable="empty")
        return Predictions(labels=labels.tolist(), classes=model.classes_)
    probabilities = model.predict_proba(rows, shares=shares, unusable="empty")
    if isinstance(shares, str) and shares == "data":
        best = np.nan_to_num(probabilities).argmax(axis=1)
        labels = labels_of(best, model.classes_, np.isnan(probabilities[:, 0]), "empty")
    else:
        labels = model.predict(rows, unusable="empty")
    return Predictions(
        labels=labels.tolist(),
        classes=model.classes_,
        probabilities=probabilities.astype(np.float32),
        similarities=model.similarity(rows, unusable="empty").astype(np.float32)
        if similarity
        else None,
    )


def predict_table(
    model: EmbeddingClassifier,
    table: EmbeddingTable | PartedTable,
    shares: Shares | None = None,
    *,
    similarity: bool = False,
) -> Predictions:
    """Predict the rows of a table; an engine reads one that is in parts."""
    classified = partial(_classified, model, shares=shares, similarity=similarity)
    if isinstance(table, PartedTable):
        return classified(table)
    blocks = [classified(block) for block in table.blocks(_ROWS)]
    if not blocks:
        blocks = [classified(np.empty((0, model.n_features_in_)))]
    return replace(_joined(model.classes_, blocks), ids=table.ids)


def windows(
    source: Source,
    predictor: Predictor,
    progress: Callable[[int], object] | None = None,
    kept: Kept | None = None,
) -> Iterator[tuple[Window, Predictions]]:
    """Embed a source and predict, a window at a time: no embedding outlives its window, but in `kept`."""
    encoder, classify = predictor
    for window in embed_windows(source, encoder, progress=progress, kept=kept):
        yield window, classify(window.rows)


def predict_source(
    classes: Array,
    source: Source,
    predictor: Predictor,
    progress: Callable[[int], object] | None = None,
    kept: Kept | None = None,
) -> tuple[Predictions, list[str]]:
    """Predict the records of a source in their order; return references of those that cannot be used, too."""
    parts: list[Predictions] = []
    ids: list[str | None] = []
    unusable: list[str] = []
    for window, known in windows(source, predictor, progress, kept):
        # A record that cannot be used has its place among the others, with an id and no
        # label.
        used = iter(zip(window.ids, known.labels, strict=True))
        skipped = ((one.id, None) for one in window.skipped)
        rows = [next(used if fits else skipped) for fits in window.usable]
        ids += [record_id for record_id, _ in rows]
        unusable += [one.reference for one in window.skipped]
        usable = np.array(window.usable, bool)
        near = known.similarities
        part = Predictions(
            labels=[label for _, label in rows],
            classes=classes,
            probabilities=_placed(known.probabilities, usable, len(classes)),
            similarities=None if near is None else _placed(near, usable),
            separator=known.separator,
        )
        parts.append(part)
    # An answer about no records has columns, too.
    known = _joined(classes, parts or [predictor[1]([])])
    return replace(known, ids=ids), unusable


def _placed(values: Float32 | None, usable: Flags, *width: int) -> Float32:
    """Return values of all records, NaN for those that cannot be used."""
    whole = np.full((len(usable), *width), np.nan, np.float32)
    if values is not None:
        whole[usable] = values
    return whole


def _joined(classes: Array, parts: list[Predictions]) -> Predictions:
    values = [part.probabilities for part in parts if part.probabilities is not None]
    near = None
    if any(
        part.similarities is not None for part in parts
    ):  # a window in which nothing can be used has none
        near = [
            _placed(
                part.similarities,
                np.full(len(part.labels), part.similarities is not None),
            )
            for part in parts
        ]
    return Predictions(
        labels=[label for part in parts for label in part.labels],
        classes=classes,
        probabilities=np.concatenate(
            [np.empty((0, len(classes)), np.float32), *values]
        ),
        similarities=None if near is None else np.concatenate(near),
        separator=next(
            (part.separator for part in parts if part.separator is not None), None
        ),
    )
