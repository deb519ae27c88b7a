"""Where an interrupted run goes on. What was begun counts as done, so a resumed run never counts too little.

Before a step the file says that it has begun, with the state from before it. A run that died in a step goes on behind
it: the step is lost and paid for, and no run draws more often than its guarantee says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from dppl._files import locked, write_atomically
from dppl.errors import InputError, ParameterError
from dppl.privacy.ledger import LedgerEntry

__all__ = ["Checkpoint", "State"]

Vector = NDArray[np.float32]


@dataclass(slots=True)
class State:
    """Where a run is.

    Attributes
    ----------
    begun : int
        Steps that have begun, and count.
    values, velocity : ndarray of shape (size,)
        Trained weights and the optimiser's memory: functions of what was released.
    entry : LedgerEntry or None
        The charge that paid for all steps.
    """

    begun: int
    values: Vector
    velocity: Vector
    entry: LedgerEntry | None = None


class Checkpoint:
    """The file of one run; without a path it keeps nothing.

    Parameters
    ----------
    path : path or None
    identity : str
        Digest of the public things that decide the run.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: str) -> None:
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

    def read(self) -> State | None:
        """Return the state of an earlier run, if there was one.

        Raises
        ------
        InputError
            If the file is damaged or something else.
        ParameterError
            If it is of a run with other parameters, or another module.
        """
        if self._path is None or not self._path.exists():
            return None
        fields: dict[str, Any] = {}
        values = velocity = np.empty(0, np.float32)
        try:
            with safe_open(self._path, framework="numpy") as file:
                fields = json.loads(file.metadata()["dppl_checkpoint"])
                values, velocity = file.get_tensor("values"), file.get_tensor("velocity")
        except Exception:  # a damaged file may raise anything
            fields = {}
        if not fields:
            raise InputError(f"{self._path} is not a checkpoint of dppl; remove it, or choose another file.")
        if fields["identity"] != self._identity:
            raise ParameterError(
                f"{self._path} is of a run with other parameters, another module or another account; repeat that call, "
                "or choose another file."
            )
        entry = None if fields["entry"] is None else LedgerEntry(*fields["entry"])
        return State(fields["begun"], values, velocity, entry)

    def write(self, state: State, begun: int) -> None:
        """Say that `begun` steps have begun, of which those not in `state` are lost if the run dies."""
        if self._path is None:
            return
        entry = None if state.entry is None else [state.entry.dataset, state.entry.number]
        text = json.dumps({"identity": self._identity, "begun": begun, "entry": entry})
        content = save({"values": state.values, "velocity": state.velocity}, {"dppl_checkpoint": text})
        write_atomically(self._path, content, overwrite=True, private=True)
