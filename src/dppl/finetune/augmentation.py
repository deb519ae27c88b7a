"""Random augmentations, of which each record has its own bits: no other record has a part in what it becomes."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from dppl._optional import optional
from dppl.kernel.mechanisms import Randomness

__all__ = ["augment_each", "drawn_so_far"]

# The global generators belong to the process: another thread that put them back in between would undo fresh bits.
_LOCK = Lock()


def augment_each(augment: Callable[[Any], Any], source: Randomness, records: Any) -> None:
    """Augment records in place; the global generators begin anew at each, with bits of the source.

    `records` has shape (n, ...).

    From one stream for all of them a record more would shift the draws of those behind it, and where the caller has
    seeded that stream, these are known. Afterwards the generators are as the caller left them.
    """
    torch = optional("torch", "torch", "torch")
    devices = range(torch.cuda.device_count())
    with _LOCK, torch.random.fork_rng(devices):
        of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            for place in range(len(records)):
                # Not torch.manual_seed, which takes several hundred times as long where CUDA is not in use.
                torch.default_generator.manual_seed(source.bits(64))
                if devices:
                    torch.cuda.manual_seed_all(source.bits(63))
                random.seed(source.bits(64))
                np.random.seed(source.bits(32))  # noqa: NPY002
                records[place] = augment(records[place])
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002


def drawn_so_far() -> tuple[Any, ...]:
    """Return what tells whether Python's or NumPy's global generator was drawn from since; torch's is not looked at."""
    of_numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), of_numpy[1].tobytes(), of_numpy[2:]
