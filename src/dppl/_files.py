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
def atomic_file(
    path: str | os.PathLike[str], *, overwrite: bool, private: bool = False
) -> Iterator[IO[bytes]]:
    """Open a file to fill, which takes the name `path` when the block ends; a private one is its owner's to read.

    If it must not overwrite, two processes that write at once cannot both succeed.
    Whatever ends the block early leaves `path` as it was; a killed process leaves a
    hidden file, too, which `remove_parts` removes.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent} to write {path.name} into."
        )
    part = path.with_name(f"{_beginning(path)}{secrets.token_hex(8)}.part")
    try:
        descriptor = os.open(
            part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666
        )
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            # The bytes reach the disk before they take the name.
            os.fsync(file.fileno())
        # A link fails where the name is taken, and a replacement does not.
        os.replace(part, path) if overwrite else os.link(part, path)
        _sync(path.parent)
    except OSError as error:
        # A part is gone by now, and a full disk names nothing.
        if error.filename is None or str(error.filename) == str(part):
            error.filename = os.fspath(path)
            error.filename2 = None
        raise
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def write_atomically(
    path: str | os.PathLike[str],
    content: bytes,
    *,
    overwrite: bool,
    private: bool = False,
) -> None:
    """Write `content` to `path` in one step, as `atomic_file` does."""
    try:
        with atomic_file(path, overwrite=overwrite, private=private) as file:
            file.write(content)
    except FileExistsError:
        what = f"{os.fspath(path)} exists; choose another name, or overwrite it with overwrite=True."
        raise FileExistsError(what) from None


def lasting_folder(path: Path) -> Path:
    """Make a folder for its owner alone, which a power cut does not take with the files in it; return its path."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
        _sync(missing.parent)
    return path


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    # Who may write into a folder but not read it, and who has no POSIX, cannot do more.
    if os.name == "posix":
        with (
            contextlib.suppress(PermissionError),
            _opened(folder, os.O_RDONLY) as opened,
        ):
            os.fsync(opened)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Let an error name the file that was asked for, and not a part that is gone by now."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        error.filename2 = None
        raise


def remove_parts(path: Path) -> None:
    """Remove what killed processes left when they wrote this file; nobody else may be writing it."""
    for part in path.parent.glob(f"{_beginning(path)}*.part"):
        part.unlink(missing_ok=True)


def _beginning(path: Path) -> str:
    # Of one length, for a name may be as long as the system takes it.
    return f".{sha256(os.fsencode(path.name)).hexdigest()[:16]}."


@contextlib.contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Keep others who ask for the lock of a file or folder away; `refusal` is what they read. Without POSIX, nobody."""
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
