"""One model that is served: from a payload to what its encoder takes, and from a row to a prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dppl.encoders import Encoder
from dppl.encoders.load import Device
from dppl.errors import DpplError, ParameterError
from dppl.estimators import load
from dppl.estimators.model_file import describe
from dppl.finetune.model_file import is_finetuned
from dppl.finetune.workflow import Finetuned
from dppl.io.decoding import TooManyPixels, decode
from dppl.io.records import BadRecord
from dppl.kernel.privacy import Guarantee
from dppl.serve.answers import ModelAnswer, Nearest, Prediction, Probability
from dppl.serve.limits import RequestError
from dppl.serve.nearest import prototypes_of
from dppl.statement import model_card, words
from dppl.training import encoder_of_model

__all__ = ["Served", "open_model"]

_Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Served:
    """A model, ready to predict."""

    about: ModelAnswer
    encoder: Encoder | None  # None: embeddings alone are taken
    # From a row of shape (1, n_features) to its label, None if it cannot be used, and its probabilities.
    classify: Callable[[_Rows], tuple[Any, NDArray[np.float64]]]
    # From a row and a number to so many prototypes; None where a model has none.
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
            label,
            [Probability(classes[place], float(values[place])) for place in order],
            self.nearest(row, nearest) if nearest and self.nearest else [],
            values.tolist() if probabilities else None,
        )


def open_model(
    path: Path, encoder: str | None = None, *, device: Device = "auto", embeddings_only: bool = False
) -> Served:
    """Read a model file, which gives the model its name, and load the encoder or network that it names.

    `encoder` says where that is, in place of the file. With `embeddings_only` no encoder is loaded.
    """
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

    prototypes = prototypes_of(model)
    about = _about(path, describe(path), model.guarantee_, takes)
    return Served(about, loaded, classify, None if prototypes is None else prototypes.nearest)


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
