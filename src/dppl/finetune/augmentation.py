"""Random augmentations, of which each record has its own bits: no other record has a part in what it becomes."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from dppl._optional import optional

__all__ = ["augment_each", "generator_states"]

# The global generators belong to the process: another thread that put them back in between would undo fresh bits.
_LOCK = Lock()


def augment_each(augment: Callable[[Any], Any], bits: Callable[[int], int], records: Any) -> None:
    """Augment records in place, shape (n, ...); the global generators are reseeded for each, with fresh bits.

    `bits` returns a random integer of so many bits.

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
                torch.default_generator.manual_seed(bits(64))
                if devices:
                    torch.cuda.manual_seed_all(bits(63))
                random.seed(bits(64))
                np.random.seed(bits(32))  # noqa: NPY002
                records[place] = augment(records[place])
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002


def generator_states() -> tuple[Any, ...]:
    """Return the states of the global generators of Python and NumPy, which a draw changes."""
    of_numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), of_numpy[1].tobytes(), of_numpy[2:]
