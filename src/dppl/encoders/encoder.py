"""What every encoder offers, and the fingerprint that goes into tables and model files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError

__all__ = ["Encoder", "Fingerprint"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that can change a bit of an embedding.

    Parameters
    ----------
    uri : str
        What the encoder was loaded by, without the folders of a local path.
    library : str
        What computes it, for example ``"timm"``.
    weights : str
        SHA-256 of the description of the model and of all its parameters.
    preprocessing : str
        What happens to an image or a text before.
    pooling : str
        How the outputs of the model become one row.
    dtype : str
        Of the arithmetic: ``"float32"`` or ``"float16"``.
    device : str
        ``"cpu"`` or ``"cuda"``. Machines of one kind may still differ by a rounding step.
    batch : str
        The fixed shapes of the batches.
    versions : str
        Of the libraries.
    row_independent : bool
        Whether the check on synthetic rows found each row to have the same bits in any place and company.
    """

    uri: str
    library: str
    weights: str
    preprocessing: str
    pooling: str
    dtype: str
    device: str
    batch: str
    versions: str
    row_independent: bool

    def text(self) -> str:
        """Return it as one line of JSON, the same for equal fingerprints."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Read what `text` wrote.

        Raises
        ------
        InputError
            If it is something else.
        """
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        expected = {field.name: bool if field.type == "bool" else str for field in fields(cls)}
        if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != expected:
            raise InputError("this is no fingerprint of an encoder.")
        return cls(**values)

    def same_function(self, other: Fingerprint) -> bool:
        """Return whether both encoders compute the same function, up to rounding.

        They do if library, weights, preprocessing, pooling and dtype agree. Where the weights lay, the device, the
        shapes of batches and the versions of libraries may differ.
        """

        def function(one: Fingerprint) -> Fingerprint:
            return replace(one, uri="", device="", batch="", versions="", row_independent=True)

        return function(self) == function(other)


@runtime_checkable
class Encoder(Protocol):
    """A frozen public encoder.

    Attributes
    ----------
    modality : str
        ``"image"`` or ``"text"``.
    dimension : int
        Length of an embedding.
    batch_rows : int
        Images that are computed together; of texts, that many of 16 tokens, and of longer ones in proportion fewer.
    fingerprint : Fingerprint
    """

    modality: str
    dimension: int
    batch_rows: int
    fingerprint: Fingerprint

    @property
    def window(self) -> int:
        """Number of items that keep all processors busy in one call; no embedding depends on it."""

    def prepare(self, item: Any) -> Any:
        """Turn one decoded RGB image of Pillow, or one str, into the model's input for it; threads may do this."""

    def encode_prepared(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the embeddings, shape (len(batch), dimension), of what `prepare` returned."""

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the embeddings, shape (len(batch), dimension), of images or texts."""
