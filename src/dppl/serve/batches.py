"""Items of many requests, embedded together: what arrived while one batch was computed is the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.encoders import Encoder

__all__ = ["Batches"]

_Row = NDArray[np.float32] | None


class Batches:
    """The queue before an encoder, for one event loop.

    `most` items are embedded together; `seen` is told how many each batch has.

    Nobody waits for company: an item that finds the encoder idle is embedded at once. Company moves no bit, because an
    encoder computes in fixed shapes; one whose rows are not independent gets one item at a time.
    """

    def __init__(self, encoder: Encoder, most: int, seen: Callable[[int], object]) -> None:
        self._encoder, self._seen = encoder, seen
        self._most = min(most, encoder.window) if encoder.fingerprint.row_independent else 1
        self._waiting: deque[tuple[Any, asyncio.Future[_Row]]] = deque()
        self._thread = ThreadPoolExecutor(1, "dppl-encoder")
        self._work: asyncio.Task[None] | None = None

    async def embed(self, prepared: Sequence[Any]) -> list[_Row]:
        """Return the embedding of each item that the encoder has prepared; None where it cannot embed it.

        An item whose caller gave up is not begun.
        """
        loop = asyncio.get_running_loop()
        found: list[asyncio.Future[_Row]] = [loop.create_future() for _ in prepared]
        self._waiting.extend(zip(prepared, found, strict=True))
        if self._work is None:
            self._work = loop.create_task(self._until_empty())
        return await asyncio.gather(*found)

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _until_empty(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._next():
                self._seen(len(batch))
                try:
                    rows = await loop.run_in_executor(self._thread, self._encode, [item for item, _ in batch])
                except BaseException as error:
                    self._fail(batch, error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    for (_, found), row in zip(batch, rows, strict=True):
                        if not found.done():
                            found.set_result(row)
        finally:
            self._work = None

    def _next(self) -> list[tuple[Any, asyncio.Future[_Row]]]:
        batch: list[tuple[Any, asyncio.Future[_Row]]] = []
        while self._waiting and len(batch) < self._most:
            item, found = self._waiting.popleft()
            if not found.done():
                batch.append((item, found))
        return batch

    def _encode(self, items: list[Any]) -> list[_Row]:
        try:
            return list(self._encoder.encode_prepared(items))
        except MemoryError:
            raise
        except Exception:  # an encoder may raise whatever an odd item leads it to, and the others must not notice
            return [None] if len(items) == 1 else [self._encode([item])[0] for item in items]

    @staticmethod
    def _fail(batch: list[tuple[Any, asyncio.Future[_Row]]], error: BaseException) -> None:
        for _, found in batch:
            if not found.done():
                found.set_exception(error) if isinstance(error, Exception) else found.cancel()
