"""Files that a crash leaves old or new, never in part, and that one process at a time writes to."""

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from dppl.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Output:
    """A file that has its room on the disk before its content is there; `reserved` makes one.

    What was paid for must not be lost. So where the file cannot be written after all,
    its content goes to another folder, and the error names it.
    """

    def __init__(
        self, path: Path, part: Path, descriptor: int, *, overwrite: bool, private: bool
    ) -> None:
        self.path = path
        self._part = part
        self._descriptor = descriptor
        self._overwrite = overwrite
        self._private = private

    def write(self, content: bytes) -> None:
        """Write the whole content in place, bring it to the disk, and give it its name."""
        try:
            with named(self.path):
                _write_whole(self._descriptor, content)
                _take_name(self._part, self.path, overwrite=self._overwrite)
        except BaseException as error:
            error.add_note(_rescued(self.path, content, self._private))
            raise


@contextlib.contextmanager
def reserved(
    path: str | os.PathLike[str],
    size: int,
    *,
    overwrite: bool,
    private: bool = False,
) -> Iterator[Output]:
    """Take `size` bytes in the folder of a file before long or paid work, and keep others from writing that file.

    Whatever would keep the file from being written shows here: no room, no permission,
    a name that the system does not take, a file that exists. What a killed process has
    left of this is taken over.
    """
    with unpaid():
        path = target_of(path, overwrite=overwrite)
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(_exists(path))
    # One name for one file, so that two processes meet at its lock.
    part = path.with_name(f"{part_prefix(path)}reserved")
    refusal = f"{path} is being written by another process."
    with unpaid(), named(path):
        descriptor = _open_part(part, _mode(path, private), refusal)
    try:
        try:
            with unpaid(), named(path):
                if private and hasattr(os, "fchmod"):
                    os.fchmod(descriptor, 0o600)
                take_room(descriptor, size)
            yield Output(path, part, descriptor, overwrite=overwrite, private=private)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, overwrite: bool, private: bool = False
) -> Iterator[IO[bytes]]:
    """Open a file to fill, which takes the name `path` when the block ends; a private one is its owner's to read.

    If it must not overwrite, two processes that write at once cannot both succeed.
    Whatever ends the block early leaves `path` as it was; a killed process leaves a
    hidden file, too, which `remove_parts` removes.
    """
    path = target_of(path, overwrite=overwrite)
    part = path.with_name(f"{part_prefix(path)}{secrets.token_hex(8)}.part")
    try:
        descriptor = os.open(
            part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _mode(path, private)
        )
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            # The bytes reach the disk before they take the name.
            os.fsync(file.fileno())
        _take_name(part, path, overwrite=overwrite)
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
    path: str | os.PathLike[str] | Output,
    content: bytes,
    *,
    overwrite: bool,
    private: bool = False,
) -> None:
    """Write `content` to `path` in one step, as `atomic_file` does, or into what was reserved for it."""
    if isinstance(path, Output):
        path.write(content)
        return
    try:
        with atomic_file(path, overwrite=overwrite, private=private) as file:
            file.write(content)
    except FileExistsError:
        raise FileExistsError(_exists(path)) from None


def target_of(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the file that is written where a path is named: what a link leads to, and not the link.

    An error says why it cannot be, as far as its folder and its permissions tell.
    """
    if overwrite:
        path = Path(os.path.realpath(path))
    else:
        path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent} to write {path.name} into."
        )
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return path
    if overwrite and stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    # A replacement needs no permission of the file, and the superuser has every one. So
    # the bits decide: who took them away has protected the file.
    if overwrite and stat.S_ISREG(mode) and not mode & _WRITABLE:
        raise PermissionError(
            f"{path} is read-only, and is not replaced; choose another name, or give it write permission first."
        )
    return path


def _open_part(part: Path, mode: int, refusal: str) -> int:
    """Open and lock the file to fill, which may be one that a killed process has left."""
    flags = os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    while True:
        descriptor = os.open(part, flags, mode)
        try:
            _lock(descriptor, refusal)
            if not _is_own(part, descriptor):
                raise InputError(refusal)
            if os.fstat(descriptor).st_nlink == 1:
                return descriptor
            # Whoever linked the file to its final name was killed before this one went.
            part.unlink()
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_own(part: Path, descriptor: int) -> bool:
    """Return whether an open file still has its name, and nobody else has put it there for us to fill."""
    try:
        found = os.lstat(part)
    except FileNotFoundError:  # whoever had the lock has given it its final name
        return False
    mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return mine and os.path.samestat(found, os.fstat(descriptor))


def _mode(path: Path, private: bool) -> int:
    """Return the permissions of a file to make: its owner's alone, if it is private or replaces one that is."""
    with contextlib.suppress(OSError):
        private = private or not stat.S_IMODE(os.lstat(path).st_mode) & 0o077
    return 0o600 if private else 0o666


def _exists(path: str | os.PathLike[str]) -> str:
    return f"{os.fspath(path)} exists; choose another name, or overwrite it with overwrite=True."


def take_room(descriptor: int, size: int) -> None:
    """Take room on the disk, and quota, by which a later write of as many bytes cannot fail."""
    os.ftruncate(descriptor, 0)  # what a killed process has left
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, max(size, 1))
    else:
        _write_all(descriptor, bytes(size))
    os.fsync(descriptor)


def _write_whole(descriptor: int, content: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, content)
    os.ftruncate(descriptor, len(content))
    os.fsync(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _take_name(part: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(part, path)
    else:
        # A link fails where the name is taken, and a replacement does not.
        try:
            os.link(part, path)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems have no links. There an empty file takes the name first.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                os.replace(part, path)
            except BaseException:
                path.unlink()
                raise
    _sync(path.parent)


def _rescued(path: Path, content: bytes, private: bool) -> str:
    """Write what cannot be written where it belongs to another folder, and say where it is."""
    name = f"{path.stem[:100]}-{secrets.token_hex(4)}{path.suffix[:20]}"
    folders = [state_folder()]
    if not private:
        folders += [Path.cwd(), Path(tempfile.gettempdir())]
    for folder in folders:
        kept = folder / name
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(kept, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    with contextlib.suppress(OSError):
                        os.fsync(file.fileno())
            except BaseException:
                kept.unlink()
                raise
            return (
                f"What was to be written is in {kept}. Move it from there, and do not repeat the work: a charge "
                "would be charged again."
            )
    return "No other folder could be written to either, and what was to be written is lost."


def state_folder() -> Path:
    """Return the folder for what has no other place, by the convention of desktop systems."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        base = Path(os.path.expanduser("~")) / ".local" / "state"
    return base / "dppl"


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
def unpaid() -> Iterator[None]:
    """Let an error of a file that is not paid for say what to do, where it has the system's words, and that."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            error.add_note("Make room there, or choose a place on another disk.")
        elif error.strerror:
            error.add_note("Choose a place that can be written to.")
        error.add_note("Nothing was charged.")
        raise


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
    for part in path.parent.glob(f"{part_prefix(path)}*"):
        part.unlink(missing_ok=True)


def part_prefix(path: Path) -> str:
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
        _lock(descriptor, refusal)
        yield


def _lock(descriptor: int, refusal: str) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(refusal) from None


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
