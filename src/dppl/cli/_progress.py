"""A progress bar on stderr, for a person who watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(
    what: str, total: int | Callable[[], int], *columns: ProgressColumn
) -> Iterator[Callable[..., None] | None]:
    """Show how far some work is, while the block runs.

    Parameters
    ----------
    what : str
        What is done, in a word.
    total : int or callable
        Units of work; a callable that takes its time is asked behind a note.
    *columns : ProgressColumn
        Shown before the time that is left.

    Yields
    ------
    callable or None
        Told of units that are done. None where nobody watches.
    """
    if not sys.stderr.isatty():
        yield None
        return
    screen = Console(stderr=True)
    if callable(total):
        with screen.status("counting"):
            total = total()
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *columns, TimeRemainingColumn())
    with Progress(*shown, console=screen, transient=True) as progress:
        task = progress.add_task(what, total=total)

        def advance(count: float = 1) -> None:
            progress.advance(task, count)

        yield advance
