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
    read. Whatever ends the block early, or the process, leaves `path` as it was; a process that is killed may leave a
    hidden file beside it, of a private one that of `part_of`.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into.")
    part = part_of(path) if private else path.with_name(f".{secrets.token_hex(8)}.part")  # no longer than most names
    mode = 0o600 if private else 0o666
    try:
        with named(path):
            file = open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        with named(path, full=True), file:
            yield file
            # The bytes reach the disk before they take the name, or a crash of the machine could leave an empty file.
            with named(path):
                file.flush()
                os.fsync(file.fileno())
        with named(path):
            # A link fails where the name is taken; renaming would replace it.
            os.replace(part, path) if overwrite else os.link(part, path)
            # Who may write into a folder but not read it cannot do more.
            with contextlib.suppress(PermissionError):
                descriptor = os.open(path.parent, os.O_RDONLY) if os.name == "posix" else None
                if descriptor is not None:
                    try:
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
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
    """Return the hidden name under which a killed process may leave a private file."""
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
