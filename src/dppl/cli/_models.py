"""Model files, and tables that fit them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dppl import io
from dppl.cli._output import note
from dppl.errors import InputError
from dppl.io.records.urls import shown_as

if TYPE_CHECKING:
    from dppl.finetune.tune import Finetuned
    from dppl.methods import EmbeddingClassifier


def load_model(path: Path) -> EmbeddingClassifier | Finetuned:
    """Read a model file of either form."""
    from dppl.finetune.network_file import is_finetuned
    from dppl.finetune.tune import Finetuned
    from dppl.methods import load

    if is_finetuned(path):
        return Finetuned(path)
    return load(path)


def read_rows_for(
    model: EmbeddingClassifier,
    path: Path,
    *,
    x: str,
    y: str | None = None,
    labels: Path | None = None,
) -> io.EmbeddingTable:
    """Read a table whose rows are as wide as those that `model` was fitted on."""
    from dppl._utils.metadata import ENCODER, check_encoder, stated

    table = io.read_table(path, x=x, y=y, labels=labels)
    shown = shown_as(path)
    # Rows of another encoder may have the same width, and a model answers them all,
    # wrongly.
    if table.shape[1] != model.n_features_in_:
        raise InputError(
            f"{shown} has {table.shape[1]} features, but the model expects {model.n_features_in_}; embed the records "
            "with the encoder that the model was fitted on."
        )
    check_encoder(table, model.encoder_, shown)
    if model.encoder_ is not None and stated(table, ENCODER) is None:
        note(
            f"{shown} does not name its encoder, so it was not compared with the model's."
        )
    return table
