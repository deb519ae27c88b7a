"""Checks of paths, before any work: what may be written, and what counts as public."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dppl._utils.files import remove_left, target_of, unpaid
from dppl.errors import ParameterError
from dppl.io.records.urls import shown_as

# How the name of a model file ends.
MODEL = (".safetensors",)


def check_output(
    out: Path,
    inputs: Iterable[Path | None],
    *,
    force: bool | None = None,
    parameter: str = "out",
    suffixes: tuple[str, ...] = (),
) -> None:
    """Refuse, before any work, an output file that cannot be written, is an input, or exists (unless `force`).

    Without `force`, the command never replaces a file. The name must end in one of
    `suffixes`, or it would name another format than the file has.
    """
    remove_left([out])
    # A link to an input, or a hard link, is the input.
    is_read = out.exists() and any(
        path and path.exists() and out.samefile(path) for path in inputs
    )
    for holds, rule in (
        (
            out.parent.is_dir(),
            f"lie in an existing folder; {out.parent} is not one; create it first",
        ),
        (not out.is_dir(), f"name a file; {out} is a folder"),
        (not is_read, f"not be a file that is read; {out} is; choose another name"),
        (
            out.is_file() or not out.exists(),
            f"name a file; {out} is a device or a pipe",
        ),
        (
            not suffixes or out.suffix.lower() in suffixes,
            f"end in {' or '.join(suffixes)}, for so the file is; got {out}",
        ),
        (
            force or not os.path.lexists(out),
            f"name a new file; {out} exists; choose another name{'' if force is None else ', or add --force'}",
        ),
    ):
        if not holds:
            raise ParameterError(f"must {rule}.", parameter=parameter)
    with unpaid():
        folder = target_of(out, overwrite=True).parent
        if not os.access(folder, os.W_OK):
            raise PermissionError(
                f"{folder} cannot be written to; choose another folder, or give yourself permission first."
            )


def overlaps(path: Path, others: Iterable[Path | None]) -> bool:
    """Return whether a path or URL is, holds or lies in another."""
    one = Path(shown_as(path)).resolve()
    for other in (
        Path(shown_as(other)).resolve() for other in others if other is not None
    ):
        if one == other or one in other.parents or other in one.parents:
            return True
        if (
            one.exists() and other.exists() and one.samefile(other)
        ):  # two names of one file
            return True
    return False


def refuse_private(
    public: Path | None, private: Iterable[Path | None], parameter: str
) -> None:
    """Refuse as public a path that is one of private data, holds it or lies in it."""
    if public is not None and overlaps(public, private):
        raise ParameterError(
            "must be public data; got private data, labels or embeddings, or a part of them.",
            parameter=parameter,
        )
