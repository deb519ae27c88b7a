"""Items of many requests in shared batches: what arrives while one batch is computed makes up the next."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.encoders import Encoder

_Row = NDArray[np.float32] | None


class Batches:
    """The queue in front of an encoder, whose threads embed `most` items at a time, one thread a core.

    A free thread takes the item that has waited longest and with it those that share
    its computation, because they are of the same shape (`FixedShapeEncoder.shape_of`).
    The other items of a batch change no bit, because encoders compute in fixed shapes;
    an encoder whose rows are not independent has one thread, which embeds one item at a
    time.
    """

    def __init__(self, encoder: Encoder, most: int) -> None:
        self._encoder = encoder
        independent = encoder.fingerprint.row_independent
        self._most = min(most, encoder.window) if independent else 1
        self._n_threads = 1
        if independent:
            self._n_threads = getattr(encoder, "workers", 1)
        self._shape_of = getattr(encoder, "shape_of", lambda item: None)
        self._waiting: list[tuple[Hashable, Any, Future[_Row]]] = []
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(self._n_threads, "dppl-encoder")

    def embed(self, prepared: Sequence[Any], deadline: float) -> list[_Row]:
        """Return the row of each prepared item, None where there is none; raise TimeoutError at the deadline."""
        rows: list[Future[_Row]] = [Future() for _ in prepared]
        with self._lock:
            self._waiting += zip(
                map(self._shape_of, prepared), prepared, rows, strict=True
            )
        for _ in prepared[: self._n_threads]:
            self._threads.submit(self._work)
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
        first: Hashable = None
        with self._lock:
            waiting = self._waiting
            self._waiting = []
            for one in waiting:
                shape, item, row = one
                if len(batch) == self._most or (batch and shape != first):
                    self._waiting.append(one)
                elif row.set_running_or_notify_cancel():
                    first = shape
                    batch.append((item, row))
        return batch

    def _encode(self, items: list[Any]) -> list[_Row]:
        try:
            return list(self._encoder.encode_prepared(items))
        except MemoryError:
            raise
        except (
            Exception
        ):  # an odd item may raise anything in an encoder, and must not fail the others
            if len(items) == 1:
                return [None]
            return [self._encode([item])[0] for item in items]
