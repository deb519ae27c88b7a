"""Items of many requests in shared batches: what arrives while one batch is computed makes up the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.encoders import Encoder

_Row = NDArray[np.float32] | None


class Batches:
    """The queue in front of an encoder, whose only thread embeds `most` items at a time.

    An item that finds the encoder idle is embedded at once. The other items of a batch change no bit, because encoders
    compute in fixed shapes; one whose rows are not independent gets one item at a time.
    """

    def __init__(self, encoder: Encoder, most: int) -> None:
        self._encoder = encoder
        self._most = min(most, encoder.window) if encoder.fingerprint.row_independent else 1
        self._waiting: deque[tuple[Any, Future[_Row]]] = deque()
        self._thread = ThreadPoolExecutor(1, "dppl-encoder")

    def embed(self, prepared: Sequence[Any], deadline: float) -> list[_Row]:
        """Return the row of each prepared item, None where there is none; raise TimeoutError at the deadline."""
        rows: list[Future[_Row]] = [Future() for _ in prepared]
        self._waiting.extend(zip(prepared, rows, strict=True))
        self._thread.submit(self._work)
        try:
            return [row.result(deadline - monotonic()) for row in rows]
        finally:
            for row in rows:  # nobody waits for these any more
                row.cancel()

    def _work(self) -> None:
        """Embed what waits. Every caller of `embed` submits this, so an earlier run may have done it all."""
        while batch := self._next():
            try:
                rows = self._encode([item for item, _ in batch])
            except Exception as error:
                for _, row in batch:
                    row.set_exception(error)
            else:
                for (_, row), value in zip(batch, rows, strict=True):
                    row.set_result(value)

    def _next(self) -> list[tuple[Any, Future[_Row]]]:
        batch: list[tuple[Any, Future[_Row]]] = []
        while self._waiting and len(batch) < self._most:
            item, row = self._waiting.popleft()
            if row.set_running_or_notify_cancel():
                batch.append((item, row))
        return batch

    def _encode(self, items: list[Any]) -> list[_Row]:
        try:
            return list(self._encoder.encode_prepared(items))
        except MemoryError:
            raise
        except Exception:  # an odd item may raise anything in an encoder, and must not fail the others
            return [None] if len(items) == 1 else [self._encode([item])[0] for item in items]
