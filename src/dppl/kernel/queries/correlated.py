"""What a stream with correlated noise keeps between tasks, in a separate file that must stay secret.

A row of such a stream needs the true sums of earlier tasks. They are private, and no
part of a model: they lie in a file that only its owner may read, with the model that
they go with. The file is written in one step, after the row is drawn and before
`partial_fit` returns. So a crash leaves either the state of before, and trying again is
a second release, charged as one; or the state of after with its model, which `recover`
writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl._utils import tensorfile
from dppl._utils.files import Output, locked, remove_left, reserved, write_atomically
from dppl.errors import InputError
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries import factors
from dppl.kernel.queries.base import OwnAnswer
from dppl.kernel.queries.factors import Row
from dppl.kernel.queries.sums import ClassSums
from dppl.kernel.records import Records

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]
_KEY = "dppl_stream"
_FORMAT = 2
_ROOM = 2**16  # bytes for the header of a state
_START_AGAIN = "Without its state a stream cannot go on: publish no more of it, or start a new one."


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BinSums:
    """Class sums of earlier tasks, added up over each bin."""

    exact: Int64 = field(repr=False)  # shape (n_bins, n_classes, dim); private
    noisy: Float = field(
        repr=False
    )  # shape (n_bins, n_classes, dim); what was released tells of them

    def after(
        self, row: Row, sums: Int64, mechanism: RoundedGaussian, source: Randomness
    ) -> tuple[Self, NDArray[np.float64]]:
        """Release the row of one more task; return the later state, and what the release says of the task's sums."""
        exact = row.own * sums + np.tensordot(row.weights, self.exact, axes=1)
        released = mechanism.release(exact, source)
        # C⁻¹, one row further. From here on nothing private is read but to be kept.
        estimate = (
            released - np.tensordot(row.weights.astype(np.float64), self.noisy, axes=1)
        ) / row.own
        return type(self)(
            _joined(self.exact, sums, row), _joined(self.noisy, estimate, row)
        ), estimate


def _joined(bins: NDArray[Any], new: NDArray[Any], row: Row) -> NDArray[Any]:
    later = np.zeros((int(row.homes[-1]) + 1, *new.shape), bins.dtype)
    for home, sums in zip(row.homes.tolist(), [*bins, new], strict=True):
        later[home] += sums
    return later


@dataclass(slots=True, eq=False, repr=False)
class StateFile:
    """The state of a stream before a task, and where the state after it goes."""

    path: Path
    n_tasks: int  # before the task
    sums: BinSums | None = field(repr=False)  # None before the first task
    later: BinSums | None = field(default=None, init=False, repr=False)
    held: ExitStack = field(default_factory=ExitStack)
    output: Output | None = field(default=None, init=False)

    def reserve(self, query: CorrelatedClassSums, model_bytes: int) -> None:
        """Take room for the state after the task, before the task is charged: a model without it cannot go on."""
        lattice = query.lattice
        row = factors.factor(query.max_tasks).rows[query.number - 1]
        n_bins = int(row.homes[-1]) + 1
        numbers = 2 * n_bins * query.n_classes * lattice.dim
        room = reserved(
            self.path,
            8 * numbers + model_bytes + _ROOM,
            overwrite=self.sums is not None,
            private=True,
        )
        self.output = self.held.enter_context(room)

    def write(self, model: Any) -> None:
        """Replace the state by that after the task, which goes with this model."""
        sums = self.later
        assert sums is not None  # the query has been answered
        tensors: dict[str, NDArray[Any]] = {
            "exact": sums.exact,
            "noisy": sums.noisy,
            "model": np.frombuffer(model.to_bytes(), np.uint8),
        }
        description = {
            "format": _FORMAT,
            "n_tasks": self.n_tasks + 1,
            "model": fingerprint(model),
        }
        assert self.output is not None  # which the fit has reserved
        self.output.write(tensorfile.to_bytes(_KEY, description, tensors))


@dataclass(frozen=True)
class CorrelatedClassSums(ClassSums, OwnAnswer):
    """A row of a public matrix times the class sums of all tasks so far, the true sums of earlier tasks being kept.

    A record is in one task, so over all rows it adds its q times a column of the
    matrix, whose squared norm is at most `Factor.squared_norm`.
    """

    max_tasks: int
    number: int  # of the task, from 1
    repeats = False

    @property
    def statistic(self) -> Term[Statistic]:
        """With its shape, and that of the matrix."""
        return Term(
            Statistic.CORRELATED_CLASS_SUMS,
            n_classes=self.n_classes,
            dim=self.lattice.dim,
            max_tasks=self.max_tasks,
        )

    @property
    def squared_norm(self) -> Fraction:
        """The square of a lattice row times a column of the matrix."""
        return self.lattice.squared_norm * Fraction(
            factors.factor(self.max_tasks).squared_norm
        )

    def answer(
        self,
        mechanism: RoundedGaussian,
        records: Records,
        source: Randomness,
        **released: Any,
    ) -> Float:
        """Return what the row says of the task's sums, shape (n_classes, dim), and keep the later state."""
        exact = records.total(self, **released)
        state = records.stream
        none = BinSums(
            np.zeros((0, *exact.shape), np.int64), np.zeros((0, *exact.shape))
        )  # before the first task
        if state is None or state.sums is None:
            before = none
        else:
            before = state.sums
        row = factors.factor(self.max_tasks).rows[self.number - 1]
        later, estimate = before.after(row, exact, mechanism, source)
        if state is not None:
            state.later = later
        return estimate


def fingerprint(model: Any) -> str:
    """Return a hash of all that a model released, which later versions of dppl do not change."""
    digest = sha256()
    for name, tensor in sorted(model._tensors().items()):
        digest.update(
            f"{name} {tensor.dtype} {tensor.shape} ".encode()
            + np.ascontiguousarray(tensor).tobytes()
        )
    return digest.hexdigest()


@contextmanager
def opened(
    path: str | os.PathLike[str], model: Any, n_tasks: int
) -> Iterator[StateFile]:
    """Read the state that goes with a model, None before the first task, and keep other processes from it."""
    path = Path(
        os.path.realpath(path)
    )  # what a link leads to is replaced, and not the link
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for the state {path.name}.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(
            f"the folder {path.parent} cannot be written to, and the state {path.name} has to be."
        )
    if model is None:
        if path.exists():
            raise InputError(
                f"{path} exists, and this is the first task: load its model, or name another file."
            )
        with ExitStack() as held:
            yield StateFile(path, n_tasks, None, held)
        return
    if not path.is_file():
        raise InputError(f"there is no state {path}. {_START_AGAIN}")
    with _locked(path):
        description, tensors = _read(path)
        _check(path, description, fingerprint(model), n_tasks)
        with ExitStack() as held:
            sums = BinSums(tensors["exact"], tensors["noisy"])
            yield StateFile(path, n_tasks, sums, held)


def recover(
    state: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write the model that a state goes with, where a crash came between the two.

    Parameters
    ----------
    state : path
        State of a stream with correlated noise.
    model : path
        Where the model goes.
    overwrite : bool, default=False
        Whether an existing file, such as the model before the crash, may be replaced.
    """
    state = Path(os.path.realpath(state))
    if not state.is_file():
        raise InputError(f"there is no state {state}.")
    with _locked(state):
        content = _read(state)[1]["model"].tobytes()
        write_atomically(model, content, overwrite=overwrite)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from a state, and remove what killed ones left, its second name among it."""
    refusal = (
        f"{path} is in use by another process, which learns a task of this stream."
    )
    remove_left([path])
    with locked(path, refusal):
        yield


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        description, tensors = tensorfile.read(path, _KEY)
        if description["format"] == _FORMAT and {"exact", "noisy", "model"} <= set(
            tensors
        ):
            return description, tensors
    except (ValueError, KeyError):  # of a damaged file, or another
        pass
    raise InputError(
        f"{path} is damaged, of a later version of dppl, or not the state of a stream. {_START_AGAIN}"
    )


def _check(
    path: Path, description: dict[str, Any], expected: str, n_tasks: int
) -> None:
    if description["model"] == expected:
        return
    task = description["n_tasks"]
    what = "it is the state of another stream"
    hint = _START_AGAIN
    if task < n_tasks:
        what = f"it is the state after task {task}, and the model is the one after task {n_tasks}: it was rolled back"
    elif task > n_tasks:
        what = f"it goes with the model after task {task}, and this is the one after task {n_tasks}"
        hint = "If that model was not saved, dppl.continual.recover(state, model, overwrite=True) writes it."
    raise InputError(f"{path} is not the state of this model: {what}. {hint}")
