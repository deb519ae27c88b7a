"""Rows in blocks: how arrays, memory maps, tables and torch tensors are read, and work on them, a block a core.

Rows may not fit into memory, so they are read, and read again, in blocks. How many
cores work on blocks never shows in a result. There are as many workers as BLAS may have
threads: `threadpoolctl.threadpool_limits` and the environment (such as
`OMP_NUM_THREADS`) set both, as they do for scikit-learn.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import BoundedSemaphore, Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dppl.errors import InputError

if TYPE_CHECKING:
    from dppl.kernel.lattice.lattice import Int8, Lattice

Int64 = NDArray[np.int64]
Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class RowTable(Protocol):
    """What a table larger than memory must offer (`dppl.io.EmbeddingTable` does)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield consecutive blocks of at most `size` rows."""


# Rows a block; no result depends on it.
BLOCK_ROWS = 4096
_TAKE_ROWS = 8192
# Numbers to map before numba is imported, which takes more than a second, as NumPy
# would for half of them. Rows of a pass count twice: when it starts, and when each is
# mapped.
_WORTH_NUMBA = 1 << 28
_numbers = 0
_importing = Lock()
_NUMPY_FLOATS = ("torch.float16", "torch.float32", "torch.float64")

# The memory that a container may use.
_LIMIT = Path("/sys/fs/cgroup/memory.max")

RowSource: TypeAlias = NDArray[Any] | RowTable


def _room() -> int:
    """Return half of the memory that a machine or container has for each core, but a gibibyte at least."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # of Windows
        return 1 << 30
    with suppress(OSError, ValueError):  # no container of Linux, or one without a limit
        memory = min(memory, int(_LIMIT.read_text()))
    return max(1 << 30, memory // (2 * (os.cpu_count() or 1)))


# Lattice rows of tables that a process keeps, a byte a number: as many as leave room
# where each core has a process.
CACHE_BYTES = _room()


def iter_blocks(source: RowSource, size: int) -> Iterator[NDArray[Any]]:
    """Yield the rows of `source` in order, in blocks of at most `size` rows, if they are of its shape and one dtype."""
    if isinstance(source, np.ndarray):
        for start in range(0, len(source), size):
            yield source[start : start + size]
        return
    rows = 0
    dtypes = set()
    for block in source.blocks(size):
        rows += len(block)
        dtypes.add(block.dtype)
        if (
            block.shape[1:] != source.shape[1:]
            or rows > source.shape[0]
            or len(dtypes) > 1
        ):
            break
        # Larger blocks than asked for would leave the range in which sums are exact.
        for start in range(0, len(block), size):
            yield block[start : start + size]
    if (
        rows != source.shape[0]
        or len(dtypes) > 1
        or (rows and block.shape[1:] != source.shape[1:])
    ):
        raise InputError(
            "a table must yield as many rows as its shape says, of one width and one dtype; it does not."
        )


def take_rows(source: RowSource, indices: NDArray[np.int64]) -> NDArray[Any]:
    """Return the rows at `indices` (any order, repeats allowed) of an array or a streamed table."""
    if isinstance(source, np.ndarray):
        return np.asarray(source[indices])
    parts = []
    places = []
    end = 0
    for fragment in source.fragments() if hasattr(source, "fragments") else (source,):
        start = end
        end = end + fragment.shape[0]
        if not ((indices >= start) & (indices < end)).any():
            continue  # the file stays closed
        for block in iter_blocks(fragment, _TAKE_ROWS):
            inside = np.flatnonzero((indices >= start) & (indices < start + len(block)))
            parts.append(block[indices[inside] - start])
            places.append(inside)
            start += len(block)
    if not parts:
        return np.empty((0, source.shape[1]))
    return np.concatenate(parts)[np.argsort(np.concatenate(places))]


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor, without importing torch: whoever hands one in has imported it."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def as_numpy(array: Any) -> NDArray[Any]:
    """Return an array or tensor as an ndarray: the same memory where possible; bfloat16 becomes float32."""
    if isinstance(array, np.ndarray):
        return array
    if str(array.layout) != "torch.strided" or array.device.type == "meta":
        raise InputError(
            f"tensors must be dense and hold values; got {array.layout} on {array.device}."
        )
    return np.asarray(
        (array.float() if _is_foreign(array) else array).numpy(force=True)
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorRows:
    """A torch tensor as a table that streams: its rows reach the processor a block at a time."""

    tensor: Any  # of shape (n, d), on any device

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        rows, columns = self.tensor.shape
        return rows, columns

    @property
    def streams(self) -> bool:
        """Whether NumPy cannot read the tensor where it is."""
        return self.tensor.device.type != "cpu" or _is_foreign(self.tensor)

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield consecutive blocks of at most `size` rows."""
        for part in self.tensor.split(size):
            yield as_numpy(part)

    def shares_memory(self, other: TensorRows) -> bool:
        """Whether two tensors are views of one storage."""
        return bool(
            self.tensor.untyped_storage().data_ptr()
            == other.tensor.untyped_storage().data_ptr()
        )


def _is_foreign(tensor: Any) -> bool:
    return tensor.is_floating_point() and str(tensor.dtype) not in _NUMPY_FLOATS


class LatticeRows:
    """The lattice rows of a source in blocks, for any number of passes.

    Of an array in memory all are `kept`, a byte a number. A table or memory map may be
    larger than memory: `CACHE_BYTES` of its lattice rows are kept, and what follows is
    read and mapped on every pass.
    """

    def __init__(
        self, lattice: Lattice, source: RowSource, kept: Sequence[Int8] = ()
    ) -> None:
        self.lattice = lattice
        self._source = source
        self._cache = list(kept)
        self._n_cached = sum(map(len, kept))

    def __iter__(self) -> Iterator[Int8]:
        yield from self._cache
        done = self._n_cached
        end = 0
        if done == self._source.shape[0]:
            return
        self.lattice.announce(self._source.shape[0] - done)
        for block in iter_blocks(self._source, BLOCK_ROWS):
            end += len(block)
            if end <= done:
                continue
            mapped = self.lattice.transform(block[done - end :])
            if self._n_cached == done and end * self.lattice.dim <= CACHE_BYTES:
                self._cache.append(mapped)
                self._n_cached = end
            done = end
            yield mapped


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries of this process, once: the search takes longer than a small fit."""
    return ThreadpoolController().select(user_api="blas")


class _OneThreadEach:
    """Keeps BLAS to one thread while anybody works on blocks: overlapping fits must not undo each other's limit.

    Whole fits are inside: products of floats by several threads add in another order,
    and after one BLAS keeps its threads busy for a while, which then compete with those
    that work on blocks.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0

    def n_threads(self) -> int:
        """Return how many threads BLAS may have outside."""
        with self._lock:
            if self._inside:
                return self._outside
            return _threads_of_blas()

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
# For work in many short operations. Each gives up Python's lock and asks for it back,
# and threads that pass it around take longer than one alone; two of them, while others
# are at longer work, do not.
small_steps = BoundedSemaphore(2)


def _threads_of_blas() -> int:
    limits = [
        int(library.num_threads)
        for library in _blas().lib_controllers
        if library.num_threads
    ]
    if limits:
        return max(limits)
    # A BLAS that threadpoolctl does not know, such as Apple's.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(
    compute: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield what `compute` makes of each item, in their order, with a few computed ahead on other cores."""
    n_threads = one_thread_each.n_threads()
    if n_threads == 1:
        yield from map(compute, items)
        return
    running: deque[Future[Result]] = deque()
    with one_thread_each, ThreadPoolExecutor(n_threads) as pool:
        for item in items:
            if len(running) > n_threads:
                yield running.popleft().result()
            # In a copy of the context of this thread, in which NumPy keeps what it may
            # warn of.
            running.append(pool.submit(copy_context().run, compute, item))
        while running:
            yield running.popleft().result()


def compiled_kernels(numbers: int) -> ModuleType | None:
    """Return `dppl.kernel.lattice.compiled`, or None where numba is missing or has not yet paid off for a process.

    `numbers` is how many numbers come next, times how often NumPy would go over them
    compared with a plain map.
    """
    global _numbers
    _numbers += numbers
    if _numbers >= _WORTH_NUMBA:
        return _import_compiled()
    return None


@cache
def _import_compiled() -> ModuleType | None:
    try:
        with (
            _importing,
            warnings.catch_warnings(),
        ):  # two at once would leave their filters to the process
            warnings.simplefilter("ignore")
            module = import_module("dppl.kernel.lattice.compiled")
    except Exception:  # a missing, damaged or too old numba: there is another way
        return None
    return None if module.config.DISABLE_JIT else module


def cut(
    blocks: Iterable[NDArray[Any]], rows: int | None = None
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield each block, cut to so many rows, after the position of its first row."""
    start = 0
    for block in blocks:
        step = rows or max(1, len(block))
        for first in range(0, len(block), step):
            yield start + first, block[first : first + step]
        start += len(block)
