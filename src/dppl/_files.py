"""Files that a crash leaves old or new, never in part, and that one process at a time writes to."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from dppl.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to fill, which takes the name `path` when the block ends.

    If it must not overwrite, two processes that write at once cannot both succeed. A private file is its owner's to
    read.

    The bytes reach the disk before they take the name. Whatever ends the block early, or the process, leaves `path` as
    it was. On Linux the bytes have no name at all until they are complete, so even a killed process leaves no part
    behind (when overwriting, at worst a complete copy under a hidden name, for a private file the name of `part_of`).
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into.")
    part = part_of(path) if private else path.with_name(f".{secrets.token_hex(8)}.part")  # no longer than most names
    mode = 0o600 if private else 0o666
    try:
        with named(path):
            nameless = _nameless(path.parent, mode)
            file = nameless or os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb")
        with file:
            yield file
            with named(path):
                file.flush()
                os.fsync(file.fileno())
                if nameless:
                    # Only with a folder descriptor does Python pass the flag that follows this link to the file.
                    target = part if overwrite else path
                    with _opened(path.parent, os.O_PATH) as folder:
                        link = f"/proc/self/fd/{file.fileno()}"
                        os.link(link, target.name, dst_dir_fd=folder, follow_symlinks=True)
        with named(path):
            if overwrite:
                os.replace(part, path)
            elif not nameless:
                os.link(part, path)
            # Who may write into a folder but not read it, and who has no POSIX, cannot do more.
            if os.name == "posix":
                with contextlib.suppress(PermissionError), _opened(path.parent, os.O_RDONLY) as folder:
                    os.fsync(folder)
    except OSError as error:
        if error.filename is None:  # a full disk
            error.filename = os.fspath(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def write_atomically(path: str | os.PathLike[str], content: bytes, *, overwrite: bool, private: bool = False) -> None:
    """Write `content` to `path` in one step, as `atomic_file` does."""
    with atomic_file(path, overwrite=overwrite, private=private) as file:
        file.write(content)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Let an error name the file that was asked for: the name of a part that is gone by now would help nobody."""
    try:
        yield
    except OSError as error:
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
    with _opened(path, os.O_RDONLY if path.is_dir() else os.O_RDWR) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(refusal) from None
        yield


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
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
