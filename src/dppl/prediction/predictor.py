"""From a model to what predicts: rows of embeddings, or raw images and texts behind their encoder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from dppl.encoders import Encoder
from dppl.finetune.tune import Finetuned
from dppl.io import EmbeddingTable, PartedTable
from dppl.io.records.labels import SEPARATOR
from dppl.io.tables.shards import Window
from dppl.methods import EmbeddingClassifier
from dppl.methods.released import Shares, labels_of
from dppl.prediction.predictions import Predictions, joined

_ROWS = 8192


class Classify(Protocol):
    """Predicts rows, with their similarities if asked; those without a direction get no label."""

    def __call__(self, rows: Any, *, similarity: bool = False) -> Predictions:
        """Predict `rows`."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model behind its encoder: what embeds records, and what classifies their rows."""

    encoder: Encoder
    classify: Classify


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
        return predictor_of_network(model, encoder)
    # Imported here, so that help texts come at once.
    from dppl.training.classifier import encoder_of_model

    loaded = encoder_of_model(model, encoder, trial=trial)
    return Predictor(
        loaded, partial(classify, model, shares=shares, similarity=similarity)
    )


def predictor_of_network(model: Finetuned, network: str | None) -> Predictor:
    """Load a fine-tuned network, perhaps from `network`, as the encoder and the classifier of its images."""
    loaded, probabilities_of = model.predictor(network)

    def classify(rows: Any, *, similarity: bool = False) -> Predictions:
        values = np.empty((0, len(model.classes_)), np.float32)
        if len(rows):  # of what shape they are, only rows say
            values = probabilities_of(np.stack(rows)).astype(np.float32)
        unusable = np.isnan(values.sum(axis=1))
        best = values.argmax(axis=1)
        return Predictions(
            labels=labels_of(best, model.classes_, unusable, "empty").tolist(),
            classes=model.classes_,
            probabilities=values,
        )

    return Predictor(loaded, classify)


def classify(
    model: EmbeddingClassifier,
    rows: Any,
    shares: Shares | None = None,
    *,
    similarity: bool = False,
) -> Predictions:
    """Predict rows, with probabilities if `shares` of the classes are named.

    For shares of the data, labels are the likeliest classes, and not the labels of the
    balanced decision.
    """
    if not isinstance(rows, PartedTable):
        rows = np.reshape(rows, (len(rows), model.n_features_in_))
    probabilities = None
    if model.multilabel:
        if shares is not None:
            probabilities = model.predict_proba(rows, unusable="empty")
        return Predictions(
            labels=model.predict_labels(rows, unusable="empty"),
            classes=model.classes_,
            probabilities=probabilities,
            separator=model.separator or SEPARATOR,
        )
    if shares is not None:
        probabilities = model.predict_proba(rows, shares=shares, unusable="empty")
    if probabilities is not None and isinstance(shares, str) and shares == "data":
        best = np.nan_to_num(probabilities).argmax(axis=1)
        labels = labels_of(best, model.classes_, np.isnan(probabilities[:, 0]), "empty")
    else:
        labels = model.predict(rows, unusable="empty")
    return Predictions(
        labels=labels.tolist(),
        classes=model.classes_,
        probabilities=probabilities,
        similarities=model.similarity(rows, unusable="empty") if similarity else None,
    )


def predict_table(
    model: EmbeddingClassifier,
    table: EmbeddingTable | PartedTable,
    shares: Shares | None = None,
    *,
    similarity: bool = False,
) -> Predictions:
    """Predict the rows of a table; an engine reads one that is in parts."""
    classified = partial(classify, model, shares=shares, similarity=similarity)
    if isinstance(table, PartedTable):
        return joined([classified(table)])
    # A table without rows has columns, too.
    parts = [classified(block) for block in table.blocks(_ROWS)] or [classified([])]
    return replace(joined(parts), ids=table.ids)


def predict_windows(
    windows: Iterable[Window], predictor: Predictor
) -> tuple[Predictions, list[str]]:
    """Predict embedded records in their order; return references of those that cannot be used, too."""
    parts: list[Predictions] = []
    ids: list[str | None] = []
    unusable: list[str] = []
    for window in windows:
        known = predictor.classify(window.rows)
        parts.append(known.among_unusable(np.array(window.usable, bool)))
        used = iter(window.ids)
        skipped = (one.id for one in window.skipped)
        ids += [next(used if fits else skipped) for fits in window.usable]
        unusable += [one.reference for one in window.skipped]
    # An answer about no records has columns, too.
    found = joined(parts or [predictor.classify([])])
    return replace(found, ids=ids), unusable
