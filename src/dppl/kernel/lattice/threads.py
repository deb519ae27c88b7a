"""Work on blocks of rows, a block a core. How many cores never shows in a result.

There are as many workers as BLAS may have threads: `threadpoolctl.threadpool_limits` and the environment (such as
`OMP_NUM_THREADS`) set both, as they do for scikit-learn.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar

from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries of this process, once: the search takes longer than a small fit."""
    return ThreadpoolController().select(user_api="blas")


class _OneThreadEach:
    """Keeps BLAS to one thread while anybody works on blocks: overlapping fits must not undo each other's limit.

    Whole fits are inside: products of floats by several threads add in another order, and after one BLAS keeps its
    threads busy for a while, which then compete with those that work on blocks.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0

    def n_threads(self) -> int:
        """Return how many threads BLAS may have outside."""
        with self._lock:
            return self._outside if self._inside else _threads_of_blas()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._outside = _threads_of_blas()
                self._limit = _blas().limit(limits=1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


one_thread_each = _OneThreadEach()
# For work in many short operations. Each gives up Python's lock and asks for it back, and threads that pass it around
# take longer than one alone; two of them, while others are at longer work, do not.
small_steps = BoundedSemaphore(2)


def _threads_of_blas() -> int:
    limits = [int(library.num_threads) for library in _blas().lib_controllers if library.num_threads]
    if limits:
        return max(limits)
    # A BLAS that threadpoolctl does not know, such as Apple's.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(compute: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield what `compute` makes of each item, in their order, with a few computed ahead on other cores."""
    n_threads = one_thread_each.n_threads()
    if n_threads == 1:
        yield from map(compute, items)
        return
    torch = sys.modules.get("torch")
    # BLAS and torch have one thread on each. What a new thread sets holds for later ones, so it is put back.
    threads = {} if torch is None else {"initializer": torch.set_num_threads, "initargs": (1,)}
    before = None if torch is None else torch.get_num_threads()
    running: deque[Future[Result]] = deque()
    try:
        with one_thread_each, ThreadPoolExecutor(n_threads, **threads) as pool:
            for item in items:
                if len(running) > n_threads:
                    yield running.popleft().result()
                # In a copy of the context of this thread, in which NumPy keeps what it may warn of.
                running.append(pool.submit(copy_context().run, compute, item))
            while running:
                yield running.popleft().result()
    finally:
        if torch is not None:
            torch.set_num_threads(before)


def cut(blocks: Iterable[NDArray[Any]], rows: int | None = None) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield each block, cut to so many rows, after the position of its first row."""
    start = 0
    for block in blocks:
        step = rows or max(1, len(block))
        for first in range(0, len(block), step):
            yield start + first, block[first : first + step]
        start += len(block)
