"""Files that a crash leaves old or new, never in part, and that one process at a time writes to."""

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Sequence
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
        self, path: Path, descriptor: int, *, overwrite: bool, private: bool
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._overwrite = overwrite
        self._private = private

    def write(self, content: bytes) -> None:
        """Write the whole content in place, bring it to the disk, and give it its name."""
        try:
            with named(self.path):
                _write_whole(self._descriptor, content)
                _take_name(self.path, overwrite=self._overwrite)
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
    left of this is removed.
    """
    with contextlib.ExitStack() as held:
        with unpaid():
            path = target_of(path, overwrite=overwrite)
        remove_left([path])
        if not overwrite and os.path.lexists(path):
            raise FileExistsError(_exists(path))
        with unpaid(), named(path):
            file = held.enter_context(_part(path, private))
            take_room(file.fileno(), size)
        yield Output(path, file.fileno(), overwrite=overwrite, private=private)


@contextlib.contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, overwrite: bool, private: bool = False
) -> Iterator[IO[bytes]]:
    """Open a file to fill, which takes the name `path` when the block ends; a private one is its owner's to read.

    Whatever ends the block early leaves `path` as it was; a killed process leaves a
    hidden file, too, which the next one to write `path` removes.
    """
    with new_files([path], overwrite=overwrite, private=private) as (file,):
        yield file


@contextlib.contextmanager
def new_files(
    paths: Sequence[str | os.PathLike[str]],
    *,
    overwrite: bool = False,
    private: bool = False,
) -> Iterator[list[IO[bytes]]]:
    """Open files to fill, which take their names when the block ends; new ones all or none.

    The first takes its name last. So where it is not there, what a killed process has
    named of the others is a half, which `remove_left` removes.
    """
    targets = [target_of(path, overwrite=overwrite) for path in paths]
    remove_left(targets)
    with contextlib.ExitStack() as held:
        files = []
        for path in targets:
            held.enter_context(named(path))
            files.append(held.enter_context(_part(path, private)))
        yield files
        for file in files:
            file.flush()
            # The bytes reach the disk before they take the name.
            os.fsync(file.fileno())
        try:
            for path in reversed(targets):
                _take_name(path, overwrite=overwrite)
        except BaseException:
            for path, file in zip(targets, files, strict=True):
                if not overwrite and _is_named(path, file.fileno()):
                    path.unlink()
            raise


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


@contextlib.contextmanager
def _part(path: Path, private: bool) -> Iterator[IO[bytes]]:
    """Make the hidden file to fill, of which one process has the lock; the end removes it, if it is still hidden."""
    part = part_of(path)
    refusal = f"{path} is being written by another process."
    try:
        # One name for one file, so that two processes meet.
        descriptor = os.open(
            part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _mode(path, private)
        )
    except FileExistsError:
        raise InputError(refusal) from None
    with os.fdopen(descriptor, "wb") as file:
        _lock(descriptor, refusal)
        # Whoever came before the lock has taken this for one that was left.
        if not _is_named(part, descriptor):
            raise InputError(refusal)
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):
                if _is_named(part, descriptor):
                    part.unlink()


def remove_left(paths: Sequence[Path]) -> None:
    """Remove what killed processes left when they wrote these files together: hidden files, and halves."""
    is_half = not os.path.lexists(paths[0])
    for path in paths:
        part = part_of(path)
        # One that is locked is being written, and a link is not ours.
        with (
            contextlib.suppress(OSError, InputError),
            _opened(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)) as descriptor,
        ):
            _lock(descriptor, "")
            if _is_named(part, descriptor):
                if is_half and _is_named(path, descriptor):
                    path.unlink()
                part.unlink()


def part_of(path: Path) -> Path:
    """Return the hidden file that becomes this one."""
    # Of one length, for a name may be as long as the system takes it.
    digest = sha256(os.fsencode(path.name)).hexdigest()
    return path.with_name(f".{digest[:16]}.part")


def _is_named(path: Path, descriptor: int) -> bool:
    """Return whether an open file has this name."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _mode(path: Path, private: bool) -> int:
    """Return the permissions of a file to make: its owner's alone, if it is private or replaces one that is."""
    with contextlib.suppress(OSError):
        private = private or not stat.S_IMODE(os.lstat(path).st_mode) & 0o077
    return 0o600 if private else 0o666


def _exists(path: str | os.PathLike[str]) -> str:
    return f"{os.fspath(path)} exists; choose another name, or overwrite it with overwrite=True."


def take_room(descriptor: int, size: int) -> None:
    """Take room on the disk, and quota, by which a later write of as many bytes cannot fail."""
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


def _take_name(path: Path, *, overwrite: bool) -> None:
    part = part_of(path)
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
        # A part is gone by now, and a full disk names nothing.
        if error.filename is None or str(error.filename) == str(part_of(path)):
            error.filename = os.fspath(path)
            error.filename2 = None
        raise


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
