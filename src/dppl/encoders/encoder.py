"""What every encoder offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dppl._fingerprint import Fingerprint as Fingerprint


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
        Images that are computed at once; of texts, that many of 16 tokens, and of longer ones in proportion fewer.
    window : int
        Number of items that keep all processors busy in one call; no embedding depends on it.
    fingerprint : Fingerprint
    """

    modality: str
    dimension: int
    batch_rows: int
    window: int
    fingerprint: Fingerprint

    def prepare(self, item: Any) -> Any:
        """Turn one decoded RGB image of Pillow, or one str, into the model's input for it; threads may do this."""

    def encode_prepared(
        self, batch: Sequence[Any], progress: Callable[[int], object] | None = None
    ) -> NDArray[np.float32]:
        """Return the embeddings, shape (len(batch), dimension), of what `prepare` returned.

        Parameters
        ----------
        batch : sequence
            What `prepare` returned, an item a record.
        progress : callable, default=None
            Called with the number of rows that were finished since the last call.
        """

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the embeddings, shape (len(batch), dimension), of images or texts."""
