"""Raw images and texts as the records of an evaluation: a window is embedded, predicted and forgotten."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError
from dppl.evaluation.predicting import (
    ONE_BY_ONE,
    Predictor,
    multilabel,
    predictor_of,
)
from dppl.finetune.tune import Finetuned
from dppl.io import Source
from dppl.io.kept import Kept
from dppl.io.records.record import BadRecord
from dppl.kernel.queries.outcomes import Guesses
from dppl.methods import EmbeddingClassifier
from dppl.predictions import Predictor as Loaded
from dppl.training.embedding import embed_windows

Column = NDArray[np.object_]


def predictor_of_source(
    model: EmbeddingClassifier | Finetuned,
    source: Source,
    n: int,
    loaded: Loaded,
    progress: Callable[[int], object] | None = None,
    kept: Kept | None = None,
) -> Predictor:
    """Return how the records of a source are predicted, of which `n`, their number, is all that is known.

    A record that cannot be embedded is a miss. No embedding outlives its window, but in
    `kept`.
    """
    encoder, classify = loaded
    n_classes = len(model.classes_)

    def singly(rows: Any) -> Iterator[Guesses]:
        # Networks may round a record differently in another batch.
        for place in range(len(rows)):
            table = np.asarray(
                classify(rows[place : place + 1]).probabilities, np.float64
            )
            yield Guesses(table.argmax(axis=1), table)

    def guesses() -> Iterator[Guesses]:
        left = n
        for window in embed_windows(source, encoder, progress=progress, kept=kept):
            usable = np.array(window.usable, bool)
            # A record that cannot be embedded keeps -1 and probabilities of 0: a miss,
            # like any other.
            predicted = np.full(len(usable), -1, np.intp)
            table = np.zeros((len(usable), n_classes))
            left -= len(usable)
            if left < 0:
                break
            if window.rows:
                rows = np.stack(window.rows)
                some = list(
                    singly(rows)
                    if isinstance(model, Finetuned)
                    else predictor_of(model, rows).guesses()
                )
                predicted[usable] = np.concatenate([one.predicted for one in some])
                table[usable] = np.concatenate([np.asarray(one.table) for one in some])
            yield Guesses(predicted, table)
        if left:
            raise InputError(
                "the records must not change while they are read; they did; evaluate again."
            )

    # What is assumed is known before a record is read: from a row of zeros, by the way
    # that all rows will go.
    if isinstance(model, Finetuned):
        assumption = ONE_BY_ONE
    else:
        assumption = predictor_of(
            model, np.zeros((1, encoder.dimension), np.float32)
        ).assumption
    several = multilabel(model)
    mixes = not encoder.fingerprint.row_independent
    return Predictor(
        model, model.classes_, n, several is None, assumption, guesses, mixes, several
    )


def labels_and_persons(source: Source) -> tuple[Column, Column]:
    """Return the label of every record of a source and whose it is, None where that is missing; nothing is embedded."""
    columns = [(record.label, record.person) for record in source]
    labels = np.empty(len(columns), object)
    persons = np.empty(len(columns), object)
    labels[:], persons[:] = ([row[place] for row in columns] for place in range(2))
    return labels, persons


def predicted_labels(source: Source) -> Column:
    """Return the texts of a source, which are labels that another model predicted; None where one cannot be read."""

    def text(load: Callable[[], Any]) -> str | None:
        try:
            value = load()
            return value.decode() if isinstance(value, bytes) else str(value)
        except (BadRecord, UnicodeError):
            return None

    texts = [text(record.load) for record in source]
    column = np.empty(len(texts), object)
    column[:] = [None if one is None else one.strip() for one in texts]
    return column
