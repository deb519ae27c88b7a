"""A served model: from a payload to what its encoder takes, and from a row to a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.encoders import Encoder
from dppl.encoders.columns import (
    CategoryColumn,
    Column,
    ColumnsEncoder,
    DateColumn,
    NumberColumn,
    YesNoColumn,
)
from dppl.errors import DpplError, ParameterError
from dppl.finetune.network_file import is_finetuned
from dppl.finetune.tune import Finetuned
from dppl.io.records.decoding import TooManyPixels, decode
from dppl.io.records.record import BadRecord, Payload, as_row
from dppl.kernel.privacy.terms import Term
from dppl.methods import load
from dppl.methods.released import ALWAYS, Least
from dppl.prediction.predictor import Classify, classify, predictor_of_network
from dppl.reasons import SkipReason
from dppl.serve.requests import (
    Cell,
    ClassProbability,
    FieldAnswer,
    ModelAnswer,
    Prediction,
    PredictionRequest,
    RequestError,
)
from dppl.statement import model_card, words
from dppl.statement.data import describe
from dppl.training.classifier import encoder_of_model

_Rows = NDArray[Any]
NEAREST = 3  # classes that are named at least, where an item gets no label


def not_predicted(reason: Term[SkipReason]) -> Prediction:
    """Return the answer for an item that cannot be used."""
    return Prediction(reason=reason.code, message=words.text(reason))


@dataclass(frozen=True, slots=True)
class Served:
    """A model, ready to predict."""

    about: ModelAnswer
    encoder: Encoder | None  # None: embeddings alone are taken
    classify: Classify
    least: Least = ALWAYS  # where a request names none
    has_similarity: bool = False
    multilabel: bool = False

    def least_of(self, asked: PredictionRequest) -> Least:
        """Return what a request requires of a label, or else what the service does."""
        default = self.least
        if asked.min_confidence is None:
            confidence = default.min_confidence
        else:
            confidence = asked.min_confidence
        if asked.min_similarity is None:
            similarity = default.min_similarity
        else:
            similarity = asked.min_similarity
        if self.multilabel and (confidence, similarity) != (None, None):
            what = "min_confidence and min_similarity are for models of one label a record."
            raise RequestError(422, "multilabel", what)
        if similarity is not None and not self.has_similarity:
            raise RequestError(
                422,
                "no_similarity",
                "This model has no similarities; leave min_similarity out.",
            )
        return Least(confidence, similarity)

    def prepare(
        self, payload: Payload, most_pixels: int
    ) -> tuple[Any, Term[SkipReason] | None]:
        """Decode and prepare an item; return what the encoder takes, or None and why there is nothing."""
        assert self.encoder is not None
        try:
            return self.encoder.prepare(
                decode(payload, self.encoder.modality, most_pixels)
            ), None
        except TooManyPixels:
            raise RequestError(
                413,
                "too_many_pixels",
                f"An image may have {most_pixels} pixels at most.",
            ) from None
        except BadRecord as skipped:
            return None, skipped.reason
        except (DpplError, MemoryError):
            raise
        except Exception:  # an encoder's message about an odd item may quote it
            return None, Term(SkipReason.NOT_PREPARED)

    def texts_of_rows(self, rows: list[dict[str, Cell]]) -> list[dict[str, str]]:
        """Return rows as a record of a table holds them; fields that a row does not name are missing."""
        names = [field.name for field in self.about.fields]
        if any(name not in names for row in rows for name in row):
            raise RequestError(
                422,
                "other_field",
                "A row of this model has other fields; see `fields` of /model.",
            )
        return [as_row({name: row.get(name) for name in names}) for row in rows]

    def prediction(
        self, row: _Rows, top: int, probabilities: bool, least: Least = ALWAYS
    ) -> Prediction:
        """Predict one row by itself, so that its bits do not depend on the rows that come with it."""
        required = least.min_similarity is not None
        with np.errstate(all="ignore"):
            found = self.classify(row[None], similarity=required)
        assert found.probabilities is not None
        (label,) = found.labels
        if label is None:
            return not_predicted(Term(SkipReason.NO_DIRECTION))
        (values,) = found.probabilities.astype(np.float64)
        near = found.similarities
        (reason,) = least.reasons(values.max(keepdims=True), near)
        classes = self.about.classes
        # The label first, also where several classes share its probability.
        first = [name != label for name in classes]
        order = np.lexsort((first, -values))
        order = order[: top if reason is None else max(top, NEAREST)].tolist()
        return Prediction(
            label=None if reason is not None or self.multilabel else label,
            labels=label if self.multilabel else None,
            reason=reason,
            message=None if reason is None else words.text(reason),
            similarity=None if near is None else float(near[0]),
            top=[
                ClassProbability(label=classes[place], probability=float(values[place]))
                for place in order
            ],
            probabilities=values.tolist() if probabilities else None,
        )


def field_of(column: Column) -> FieldAnswer:
    """Return what a form needs of a column."""
    field = FieldAnswer(name=column.name, kind=column.kind)
    match column:
        case CategoryColumn():
            field.values = list(column.values)
        case YesNoColumn():
            field.values = column.labels
        case NumberColumn() | DateColumn():
            field.low = column.low
            field.high = column.high
    return field


def open_model(
    path: Path,
    encoder: str | None = None,
    *,
    least: Least = ALWAYS,
) -> Served:
    """Read a model file, which gives the model its name, and load its encoder or network, perhaps from `encoder`.

    The encoder "none" loads none. Labels that are below `least` are not given, unless a
    request names other numbers.
    """
    description = describe(path)
    takes = ["embeddings"]
    multilabel = False
    has_similarity = False
    loaded: Encoder | None = None
    fields: list[FieldAnswer] = []
    if is_finetuned(path):
        if encoder == "none":
            raise ParameterError(
                f"must not be none for a model of `dppl finetune`, which takes images; {path} is one.",
                parameter="encoder",
            )
        network = Finetuned(path)
        guarantee = network.guarantee_
        predictor = predictor_of_network(network, encoder)
        loaded = predictor.encoder
        classified = predictor.classify
        takes = ["images"]
    else:
        model = load(path)
        guarantee = model.guarantee_
        multilabel = model.multilabel
        if encoder not in (None, "none") and model.encoder_ is None:
            raise ParameterError(
                f"is for a model that names its encoder; {path} names none and takes embeddings, so leave it out.",
                parameter="encoder",
            )
        if encoder != "none" and (encoder is not None or model.encoder_ is not None):
            loaded = encoder_of_model(model, encoder)
            takes.append(f"{loaded.modality}s")
        has_similarity = model.has_similarity
        classified = partial(classify, model, shares="equal")
        if isinstance(loaded, ColumnsEncoder):
            fields = [field_of(column) for column in loaded.columns]
        # Imports what the first request would wait for.
        classified(np.zeros((1, model.n_features_in_)))

    for name in ("min_confidence", "min_similarity"):
        if multilabel and getattr(least, name) is not None:
            raise ParameterError(
                "is for a model of one label a record.", parameter=name
            )
    if least.min_similarity is not None and not has_similarity:
        raise ParameterError(
            "is for a model whose method has a vector for each class.",
            parameter="min_similarity",
        )
    about = ModelAnswer(
        name=path.stem,
        estimator=description["estimator"],
        takes=takes,
        features=description.get("lattice", {}).get("n_features"),
        encoder=description["encoder"],
        fields=fields,
        classes=description["classes"],
        summary=guarantee.summary(),
        in_short=[list(line) for line in words.in_short(guarantee)],
        statement=str(guarantee),
        min_confidence=least.min_confidence,
        min_similarity=least.min_similarity,
        card=model_card(description, sha256=sha256(path.read_bytes()).hexdigest()),
    )
    return Served(about, loaded, classified, least, has_similarity, multilabel)
