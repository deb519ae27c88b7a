"""Writing files so that a crash leaves the old file or the new one, never a part."""

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes, *, overwrite: bool, private: bool = False) -> None:
    """Write `content` to `path` in one step.

    The bytes reach the disk before they take the name `path`. Whatever stops the process before that leaves `path` as
    it was. On Linux the bytes have no name at all until they are complete, so even a killed process leaves no part
    behind (when overwriting, at worst a complete copy under a hidden name).

    Parameters
    ----------
    path : path
    content : bytes
    overwrite : bool
        Whether an existing file may be replaced. If not, two processes that write at once cannot both succeed.
    private : bool, default=False
        Whether only the owner of the file may read it.

    Raises
    ------
    FileExistsError
        If the file exists and `overwrite` is False.
    OSError
        If the folder does not exist or cannot be written to.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into.")
    try:
        _write(path, content, overwrite, 0o600 if private else 0o666)
    except OSError as error:
        if error.filename is not None:  # the name of a part that is gone by now would tell nobody anything
            error.filename, error.filename2 = os.fspath(path), None
        raise


def _write(path: Path, content: bytes, overwrite: bool, mode: int) -> None:
    if overwrite:
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            _create(part, content, mode)
            os.replace(part, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
    else:
        _create(path, content, mode)
    _sync_folder(path.parent)


def _create(path: Path, content: bytes, mode: int) -> None:
    """Make a new file with this content, whole or not at all."""
    if _link_nameless(path, content, mode):
        return
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            _fill(file.fileno(), content)
        os.link(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def _link_nameless(path: Path, content: bytes, mode: int) -> bool:
    """Fill a file without a name and link it as `path`; False where the system cannot."""
    if not hasattr(os, "O_TMPFILE") or not os.path.exists("/proc/self/fd"):
        return False
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError:
        return False  # this file system has no nameless files; a real failure shows again in the named way
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        _fill(descriptor, content)
        # Only with a folder descriptor does Python pass the flag that follows this link to the nameless file.
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(descriptor)
        os.close(folder)
    return True


def _fill(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
