"""Writing files so that a crash leaves the old file or the new one, never a part."""

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` in one step.

    The bytes go to a hidden file in the same folder, reach the disk, and then take the name `path`. Whatever stops the
    process before that leaves `path` as it was. On Linux the hidden file has no name at all until it is complete, so
    even a killed process leaves nothing behind.

    Parameters
    ----------
    path : path
    content : bytes

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written to.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        if not _write_nameless(part, content):
            with open(part, "xb") as file:
                _fill(file.fileno(), content)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
    _sync_folder(path.parent)


def _write_nameless(part: Path, content: bytes) -> bool:
    """Fill a file without a name and link it as `part`; False where the system cannot."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        descriptor = os.open(part.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except (IsADirectoryError, NotImplementedError, OSError):
        return False  # this file system has no nameless files; a real failure shows again in the named way
    folder = os.open(part.parent, os.O_RDONLY)
    try:
        _fill(descriptor, content)
        # Only with a folder descriptor does Python pass the flag that follows this link to the nameless file.
        os.link(f"/proc/self/fd/{descriptor}", part.name, dst_dir_fd=folder, follow_symlinks=True)
    except FileNotFoundError:
        return False  # no /proc
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
