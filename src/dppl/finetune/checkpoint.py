"""Where an interrupted run goes on. What was begun counts as done, so a resumed run never counts too little.

Before a step the file says that it has begun, with the state from before it. A run that died in a step goes on behind
it: the step is lost and paid for, and no run draws more often than its guarantee says. Then a ledger, if there is one,
counts the step too, and takes no step twice. The file comes first, so that it is never behind the ledger unless another
run has gone on from a copy of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dppl._files import locked, write_atomically
from dppl.errors import InputError, ParameterError
from dppl.finetune import tensor_file

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import LedgerEntry

__all__ = ["Checkpoint", "State"]

Vector = NDArray[np.float32]
_KEY = "dppl_checkpoint"


@dataclass(slots=True)
class State:
    """Where a run is."""

    begun: int  # steps that have begun, and count
    # values, velocity: shape (size,); trained weights and the optimiser's memory: functions of what was released
    values: Vector
    velocity: Vector
    entry: LedgerEntry | None = None  # the charge that paid for all steps


class Checkpoint:
    """The file of one run; without a path it keeps nothing.

    `identity` holds the public things that decide the run, JSON-ready, by the names that they have for people.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: dict[str, Any]) -> None:
        self._path, self._identity = None if path is None else Path(path), identity

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs away from the file: two that go on from one state would draw twice for one charge."""
        if self._path is None:
            yield
            return
        lock = self._path.with_name(f"{self._path.name}.lock")
        lock.touch(mode=0o600)
        with locked(lock, f"another run holds {self._path}; wait for it, or choose another file."):
            yield

    def read(self, size: int, steps: int) -> State | None:
        """Return the state of an earlier run of the same parameters and module, if there was one."""
        if self._path is None or not self._path.exists():
            return None
        found = tensor_file.read(self._path, _KEY)
        if found is None or not isinstance(found[0].get("identity"), dict):
            raise InputError(f"{self._path} is damaged, or not a checkpoint of dppl; remove it, or name another.")
        kept = found[0]["identity"]
        # The names are ours: nothing that only the file says is shown.
        other = [name for name, value in self._identity.items() if name not in kept or kept[name] != value]
        if other:
            raise ParameterError(
                f"{self._path} is of a run with another {', another '.join(other)}; repeat that call, or choose "
                "another file."
            )
        state = _state(*found)
        if state is None or not (state.values.shape == state.velocity.shape == (size,) and state.begun <= steps):
            raise InputError(f"{self._path} contradicts itself; remove it, or choose another file.")
        return state

    def write(self, state: State, begun: int) -> None:
        """Say that `begun` steps have begun, of which those not in `state` are lost if the run dies."""
        if self._path is None:
            return
        fields = {
            "identity": self._identity,
            "begun": begun,
            "entry": None if state.entry is None else asdict(state.entry),
        }
        content = tensor_file.to_bytes(_KEY, fields, {"values": state.values, "velocity": state.velocity})
        write_atomically(self._path, content, overwrite=True, private=True)


def _state(fields: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> State | None:
    """Return the state that a file holds, if it holds one."""
    begun, entry = fields.get("begun"), fields.get("entry")
    if type(begun) is not int or begun < 0 or set(tensors) != {"values", "velocity"}:
        return None
    if any(tensor.dtype != np.float32 for tensor in tensors.values()):
        return None
    if entry is not None:
        kinds = {"dataset": str, "number": int, "run": str}
        if not isinstance(entry, dict) or {name: type(value) for name, value in entry.items()} != kinds:
            return None
        from dppl.kernel.privacy.ledger import LedgerEntry  # here, because a ledger needs SQLAlchemy

        entry = LedgerEntry(**entry)
    return State(begun, tensors["values"], tensors["velocity"], entry)
