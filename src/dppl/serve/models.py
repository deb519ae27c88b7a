"""A served model: from a payload to what its encoder takes, and from a row to a prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dppl.continual import ContinualPrototypes
from dppl.encoders import Encoder
from dppl.encoders.load import Device
from dppl.errors import DpplError, ParameterError
from dppl.estimators import EmbeddingClassifier, load
from dppl.estimators.model_file import describe
from dppl.finetune.model_file import is_finetuned
from dppl.finetune.workflow import Finetuned
from dppl.io.decoding import TooManyPixels, decode
from dppl.io.records import BadRecord
from dppl.kernel.privacy import Guarantee
from dppl.prototypes import MeanPrototypes, PublicPrototypes, SoftmaxPrototypes
from dppl.serve.limits import RequestError
from dppl.serve.requests import ModelAnswer, Nearest, Prediction, Probability
from dppl.statement import model_card, words
from dppl.training.classifier import encoder_of_model

_Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Served:
    """A model, ready to predict."""

    about: ModelAnswer
    encoder: Encoder | None  # None: embeddings alone are taken
    # From a row of shape (1, n_features) to its label, None if it cannot be used, and its probabilities.
    classify: Callable[[_Rows], tuple[Any, NDArray[np.float64]]]
    # From a row and a number to that many prototypes; None if the model has none.
    nearest: Callable[[_Rows, int], list[Nearest]] | None = None

    def prepare(self, payload: bytes | str, most_pixels: int) -> tuple[Any, str | None]:
        """Decode and prepare an item; return what the encoder takes, or None and why there is nothing."""
        assert self.encoder is not None
        try:
            content = decode(payload, self.encoder.modality, most_pixels)
        except TooManyPixels:
            raise RequestError(413, "too_many_pixels", f"An image may have {most_pixels} pixels at most.") from None
        except BadRecord as reason:
            return None, str(reason)
        try:
            return self.encoder.prepare(content), None
        except (DpplError, MemoryError):
            raise
        except Exception:  # an encoder's message about an odd item may quote it
            return None, "the encoder cannot prepare it"

    def prediction(self, row: _Rows, top: int, nearest: int, probabilities: bool) -> Prediction:
        """Predict one row by itself, so that its bits do not depend on the rows that come with it."""
        with np.errstate(all="ignore"):
            label, values = self.classify(row[None])
        if label is None:
            return Prediction(reason="it has no direction (NaN, infinity, only zeros)")
        classes = self.about.classes
        # The label first, also where several classes share its probability.
        order = np.lexsort(([name != label for name in classes], -values))[:top].tolist()
        return Prediction(
            label=label,
            top=[Probability(label=classes[place], probability=float(values[place])) for place in order],
            nearest=self.nearest(row, nearest) if nearest and self.nearest else [],
            probabilities=values.tolist() if probabilities else None,
        )


def open_model(
    path: Path, encoder: str | None = None, *, device: Device = "auto", embeddings_only: bool = False
) -> Served:
    """Read a model file, which gives the model its name, and load its encoder or network, perhaps from `encoder`."""
    if is_finetuned(path):
        if embeddings_only:
            raise ParameterError(
                f"is not for a model of `dppl finetune`, which takes images; {path} is one.",
                parameter="embeddings_only",
            )
        return _network(path, encoder, device)
    model = load(path)
    if encoder is not None and model.encoder_ is None:
        raise ParameterError(
            f"is for a model that names its encoder; {path} names none and takes embeddings, so leave it out.",
            parameter="encoder",
        )
    loaded, takes = None, ["embeddings"]
    if not embeddings_only and (encoder is not None or model.encoder_ is not None):
        loaded = encoder_of_model(model, encoder, device=device)
        takes.append(f"{loaded.modality}s")

    def classify(row: _Rows) -> tuple[Any, NDArray[np.float64]]:
        (label,) = model.predict(row, unusable="empty").tolist()
        return label, model.predict_proba(row, unusable="empty")[0]

    about = _about(path, describe(path), model.guarantee_, takes)
    return Served(about, loaded, classify, nearest_of(model))


def _network(path: Path, network: str | None, device: Device) -> Served:
    model = Finetuned(path)
    encoder, probabilities = model.predictor(network, device=device)
    names = model.classes_.tolist()

    def classify(row: _Rows) -> tuple[Any, NDArray[np.float64]]:
        values = np.asarray(probabilities(row)[0], np.float64)
        return (names[int(values.argmax())] if np.isfinite(values).all() else None), values

    takes = [f"{encoder.modality}s"]
    return Served(_about(path, model.description, model.guarantee_, takes), encoder, classify)


def _about(path: Path, description: dict[str, Any], guarantee: Guarantee, takes: list[str]) -> ModelAnswer:
    return ModelAnswer(
        name=path.stem,
        estimator=description["estimator"],
        takes=takes,
        features=description["lattice"]["n_features"] if "lattice" in description else None,
        encoder=description["encoder"],
        classes=cast(list[Any], description["classes"]),
        descriptions=description.get("examples", {}).get("texts"),
        summary=guarantee.summary(),
        in_short=[list(line) for line in words.in_short(guarantee)],
        statement=str(guarantee),
        card=model_card(description, sha256=sha256(path.read_bytes()).hexdigest()),
    )


def nearest_of(model: EmbeddingClassifier) -> Callable[[_Rows, int], list[Nearest]] | None:
    """Return what finds the released prototypes of the largest cosines with a row, the closest first."""
    place: Callable[[_Rows], _Rows]
    if isinstance(model, SoftmaxPrototypes):
        place = _unit  # its prototypes lie among unit rows as they come
    elif isinstance(model, MeanPrototypes | PublicPrototypes | ContinualPrototypes):
        place = model.lattice_.features
    else:
        return None
    released = np.asarray(model.prototypes_, np.float64)
    wide = released.reshape(len(model.classes_), -1, released.shape[-1])  # of each class one or several
    rows, ids = getattr(model, "public_indices_", None), getattr(model, "public_ids_", None)
    # A class whose task has not come yet has only zeros.
    kept = [one for one in np.ndindex(wide.shape[:2]) if wide[one].any()]
    if not kept:
        return None
    directions = _unit(np.array([wide[one] for one in kept]))

    def nearest(row: _Rows, count: int) -> list[Nearest]:
        with np.errstate(all="ignore"):
            cosines = directions @ _unit(place(row[None]))[0]
        return [
            Nearest(
                label=model.classes_[kept[one][0]].item(),
                similarity=float(cosines[one]),
                public_row=None if rows is None else int(rows[kept[one]]),
                public_id=None if ids is None else str(ids[kept[one]]),
            )
            for one in np.argsort(-cosines, kind="stable")[:count]
        ]

    return nearest


def _unit(rows: _Rows) -> NDArray[np.float64]:
    wide = np.asarray(rows, np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)  # first, because squares may leave the range
    wide = wide / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(norms > 0, norms, 1.0))
