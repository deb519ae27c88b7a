"""Embeddings of unfinished work, so that nothing that was computed is lost when it is interrupted.

A file holds them by what they were computed from: the contents of the records that were
computed together, for one encoder. So whoever goes on finds the bits that it would
compute, and a changed record finds nothing. The file is as private as the records.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from shutil import rmtree
from threading import Lock

import numpy as np

from dppl._utils.files import locked
from dppl._utils.types import Float32
from dppl.errors import DpplError, InputError

_KEY = 32  # bytes of a SHA-256
_MONTH = 30 * 24 * 3600.0  # seconds
_HEAD = struct.Struct(f"<{_KEY}sI")  # a key, and bytes of embeddings that follow it


class Kept:
    """Embeddings in an open file; `maker` says what else than records decides them."""

    def __init__(self, path: Path, file: FileIO, maker: str) -> None:
        self.path = path
        self._file = file
        self._maker = sha256(maker.encode()).digest()
        self._lock = Lock()
        self._places: dict[bytes, tuple[int, int]] = {}
        self._is_full = False  # the disk
        file.seek(0)
        if file.read(_KEY) != self._maker:
            self.clear()
            return
        # What a killed process left half-way ends the file, and so does a damage.
        end = _KEY
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            key, size = _HEAD.unpack(head)
            check = _check(head, content := file.read(size))
            if len(content) < size or file.read(_KEY) != check:
                break
            self._places[key] = end + _HEAD.size, size
            end = file.tell()
        file.truncate(end)

    def rows(
        self, key: bytes, dimension: int, compute: Callable[[], Float32]
    ) -> Float32:
        """Return the embeddings that are kept by this key, or compute and keep them; threads may do this."""
        with self._lock:
            if key in self._places:
                place, size = self._places[key]
                self._file.seek(place)
                content = self._file.read(size)
                return np.frombuffer(content, np.float32).reshape(-1, dimension)
        rows = compute()
        if rows.dtype == np.float32:  # as encoders promise
            with self._lock:
                self._keep(key, rows.tobytes())
        return rows

    def _keep(self, key: bytes, content: bytes) -> None:
        head = _HEAD.pack(key, len(content))
        end = self._file.seek(0, os.SEEK_END)
        if self._add(head + content + _check(head, content)):
            self._places[key] = end + _HEAD.size, len(content)

    def _add(self, content: bytes) -> bool:
        """Return whether a content could be added; a killed process loses nothing of it, and a power cut may."""
        # A full disk must not end work that does not need it.
        with suppress(OSError):
            self._is_full = self._is_full or self._file.write(content) < len(content)
            return not self._is_full
        self._is_full = True
        return False

    @property
    def holds(self) -> bool:
        """Whether there is anything to go on with, and whether that is all that was computed."""
        return bool(self._places) and not self._is_full

    def clear(self) -> None:
        """Forget all, for it is kept elsewhere now."""
        self._places.clear()
        self._file.seek(0)
        self._file.truncate()
        self._add(self._maker)


def _check(head: bytes, content: bytes) -> bytes:
    return sha256(head + content).digest()


def state_place(what: str) -> Path:
    """Return where embeddings are kept for work that names no folder; `what` tells one such work from another."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state, "dppl", f"{sha256(what.encode()).hexdigest()[:16]}.embeddings")


def remove_older(path: Path, now: float) -> None:
    """Remove what nobody went on with for a month, next to this file."""
    with suppress(OSError, RuntimeError):
        for old in path.expanduser().parent.glob("*.embeddings"):
            if old.stat().st_mtime < now - _MONTH:
                old.unlink()
        for old in path.expanduser().parent.glob("*.work"):
            if old.stat().st_mtime < now - _MONTH:
                rmtree(old)


@contextmanager
def kept_in(path: Path, maker: str) -> Iterator[Kept | None]:
    """Keep embeddings in a file of this path until the block ends well; None where that cannot be.

    After an interruption or a failure the file stays. After a refusal it does not: how
    far the work came might tell which record was refused.
    """
    with ExitStack() as stack:
        kept = None
        # No place to write, no home at all, or it is in use.
        with suppress(OSError, RuntimeError, InputError):
            path = path.expanduser()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = stack.enter_context(open(path, "r+b", 0, opener=_for_its_owner))
            stack.enter_context(locked(path, "another process uses it."))
            kept = Kept(path, file, maker)
        if kept is None:
            yield None
            return
        try:
            yield kept
        except BaseException as error:
            if isinstance(error, DpplError) or not kept.holds:
                path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)


def _for_its_owner(path: str, flags: int) -> int:
    no_link = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
    descriptor = os.open(path, flags | os.O_CREAT | no_link, 0o600)
    os.chmod(path, 0o600)
    return descriptor
