"""The checkpoint from which an interrupted run resumes.

Its checksum detects damage but not forgery, so a reader validates every field.

A step that has begun counts as done. The checkpoint records the start of a step, with
the state before it, and only then is noise drawn. A run that dies within a step resumes
after it: that step is paid for and lost, and no run draws more often than its guarantee
says. The ledger, if there is one, counts the step next and accepts no step twice. Since
the file is written first, it is behind the ledger only if another run has resumed from
a copy of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils import tensorfile
from dppl._utils.files import locked, write_atomically
from dppl.errors import InputError, ParameterError

_KEY = "dppl_checkpoint"
_RUN = re.compile("[0-9a-f]{32}")


@dataclass(slots=True)
class State:
    """Where a run is."""

    begun: int  # steps that have begun, and so count
    # Shape (size,): trained weights and the optimiser's memory, functions of what was
    # released.
    values: NDArray[np.float32]
    velocity: NDArray[np.float32]
    run: str  # random name of the charge that pays for all steps


class Checkpoint:
    """The file of one run; without a path it keeps nothing.

    `identity` holds the public things that decide the run, JSON-ready, by the names
    that they have for people.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, identity: dict[str, Any]
    ) -> None:
        self._path = None if path is None else Path(path)
        self._identity = identity

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the file: two runs that resume from one state would draw twice for one charge."""
        if self._path is None:
            yield
            return
        lock = self._path.with_name(f"{self._path.name}.lock")
        lock.touch(mode=0o600)
        with locked(
            lock,
            f"another run holds {self._path}; wait for it, or choose another file.",
        ):
            yield

    def read(self, size: int, steps: int) -> State | None:
        """Return the state of an earlier run of the same parameters and module, if there was one."""
        if self._path is None or not self._path.exists():
            return None
        fields = dict[str, Any]()
        tensors = dict[str, NDArray[Any]]()
        with suppress(ValueError):
            fields, tensors = tensorfile.read(self._path, _KEY)
        identity, begun, run = (
            fields.get(name) for name in ("identity", "begun", "run")
        )
        if not isinstance(identity, dict):
            raise InputError(
                f"{self._path} is damaged, or not a checkpoint of dppl; remove it, or name another."
            )
        # The names are ours: nothing that only the file says is shown.
        changed = [
            name
            for name, value in self._identity.items()
            if name not in identity or identity[name] != value
        ]
        if changed:
            raise ParameterError(
                f"{self._path} is of a run with another {', another '.join(changed)}; repeat that call, or choose "
                "another file."
            )
        vectors = {
            name: (tensor.dtype.name, tensor.shape) for name, tensor in tensors.items()
        }
        if (
            type(begun) is not int
            or not 0 <= begun <= steps
            or vectors != dict.fromkeys(("values", "velocity"), ("float32", (size,)))
            or not (isinstance(run, str) and _RUN.fullmatch(run))
        ):
            raise InputError(
                f"{self._path} contradicts itself; remove it, or choose another file."
            )
        return State(begun, tensors["values"], tensors["velocity"], run)

    def write(self, state: State, begun: int) -> None:
        """Record that `begun` steps have begun; those that `state` lacks are lost if the run dies."""
        if self._path is None:
            return
        fields = {"identity": self._identity, "begun": begun, "run": state.run}
        content = tensorfile.to_bytes(
            _KEY, fields, {"values": state.values, "velocity": state.velocity}
        )
        write_atomically(self._path, content, overwrite=True, private=True)
