"""Files that a crash leaves old or new, never in part, and that one process at a time writes to."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from hashlib import sha256
from pathlib import Path
from typing import IO

from dppl.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_FULL = (ENOSPC, EDQUOT, EFBIG, EIO)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to fill, which takes the name `path` when the block ends.

    If it must not overwrite, two processes that write at once cannot both succeed. A private file is its owner's to
    read.

    The bytes reach the disk before they take the name. Whatever ends the block early, or the process, leaves `path` as
    it was. On Linux the bytes have no name at all until they are complete, so even a killed process leaves no part
    behind (when overwriting, at worst a complete copy under a hidden name, for a private file that of `part_of`).
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into.")
    part = part_of(path) if private else path.with_name(f".{secrets.token_hex(8)}.part")  # no longer than most names
    mode = 0o600 if private else 0o666
    try:
        with named(path):
            nameless = _nameless(path.parent, mode)
            file = nameless or _hidden(part, mode)
        with named(path, full=True), file:
            yield file
            with named(path):
                file.flush()
                os.fsync(file.fileno())
                if nameless:
                    _link(nameless, part if overwrite else path)
        with named(path):
            if overwrite:
                os.replace(part, path)
            elif not nameless:
                os.link(part, path)
            _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def write_atomically(path: str | os.PathLike[str], content: bytes, *, overwrite: bool, private: bool = False) -> None:
    """Write `content` to `path` in one step, as `atomic_file` does."""
    with atomic_file(path, overwrite=overwrite, private=private) as file:
        file.write(content)


@contextlib.contextmanager
def named(path: Path, *, full: bool = False) -> Iterator[None]:
    """Let an error name the file that was asked for: that of a part that is gone by now would tell nobody anything.

    With `full`, only an error of a full disk does that has no name; others are of whoever fills the file.
    """
    try:
        yield
    except OSError as error:
        if not full or (error.filename is None and error.errno in _FULL):
            error.filename, error.filename2 = os.fspath(path), None
        raise


def part_of(path: Path) -> Path:
    """Return the hidden name under which a killed process may leave a copy of a private file that it replaced."""
    return path.with_name(f".{sha256(os.fsencode(path.name)).hexdigest()[:16]}.part")


@contextlib.contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Keep other processes away from a file or folder until the block, or this process, ends.

    `path` must exist; `refusal` is what to say if another has the lock.

    Only who asks for the lock is kept away. Without POSIX there is none, and whoever starts two has to know.
    """
    if fcntl is None:
        yield
        return
    # Some network file systems lock only what is open for writing, as no folder can be.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(refusal) from None
        yield
    finally:
        os.close(descriptor)


def _nameless(folder: Path, mode: int) -> IO[bytes] | None:
    """Open a file without a name; None where the system cannot."""
    if not hasattr(os, "O_TMPFILE") or not os.path.exists("/proc/self/fd"):
        return None
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode), "wb")
    except OSError:
        return None  # this file system has no nameless files; a real failure shows again in the named way


def _hidden(part: Path, mode: int) -> IO[bytes]:
    return open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def _link(file: IO[bytes], path: Path) -> None:
    """Give a file without a name this one."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        # Only with a folder descriptor does Python pass the flag that follows this link to the nameless file.
        os.link(f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except PermissionError:
            return  # who may write into a folder but not read it cannot do more
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
