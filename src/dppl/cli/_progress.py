"""What shows on stderr that work goes on, and how far it is, to a person who watches; to nobody else."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from dppl._progress import shown_by

if TYPE_CHECKING:
    from dppl.io import Source

_EVERY = 10.0  # seconds between two lines on a pipe
PERCENT = TextColumn("{task.percentage:>3.0f} %")


@contextmanager
def progress_bar(
    what: str, total: int | Callable[[], int], *columns: ProgressColumn, public: bool = False
) -> Iterator[Callable[..., None] | None]:
    """Show how far some work is, while the block runs.

    Yields what is told of units that are done, or None where nobody watches. A total that is a callable is asked behind
    a note; a public total may go to a pipe or a log, a line every ten seconds.
    """
    if not sys.stderr.isatty():
        yield _Lines(what, total) if public and isinstance(total, int) else None
        return
    screen = Console(stderr=True)
    if callable(total):
        with screen.status("counting"):
            total = total()
    shown = (
        TextColumn("{task.description}"),
        BarColumn(),
        PERCENT,
        MofNCompleteColumn(),
        Rate(),
        *columns,
        TimeRemainingColumn(),
    )
    with Progress(*shown, console=screen, transient=True) as progress:
        task = progress.add_task(what, total=total)

        def advance(count: float = 1) -> None:
            progress.advance(task, count)

        yield advance


class _Lines:
    """Tells a pipe how far it is, now and then."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0.0
        self._start = self._told = monotonic()

    def __call__(self, count: float = 1) -> None:
        self._done += count
        now = monotonic()
        if now - self._told < _EVERY or self._done >= self._total:
            return
        self._told = now
        rate = self._done / (now - self._start)
        left = timedelta(seconds=round((self._total - self._done) / rate))
        share = math.floor(100 * self._done / self._total)
        typer.echo(f"{self._what}: {share} % of {self._total}, {rate:.3g}/s, about {left} left", err=True)


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show that work is going on, if a person is watching. The message must say nothing about private data.

    A fit that takes long says in its place how far it is.
    """
    if sys.stderr.isatty():
        with Console(stderr=True).status(message) as status, shown_by(lambda text: status.update(text or message)):
            yield
    else:
        yield


class Rate(ProgressColumn):
    """Units of work a second."""

    def render(self, task: Task) -> Text:
        """Return the rate once there is one."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s")


def embedding_bar(records: Source, what: str = "embedding") -> AbstractContextManager[Callable[..., None] | None]:
    """Show how far the embedding of a source is, if a person is watching."""
    return progress_bar(what, lambda: records.count())


class _Spent(ProgressColumn):
    """What the steps so far cost, rounded up to a twentieth of all steps: computing it may take a second."""

    def __init__(self, steps: int, epsilon: Callable[[int], float], delta: float) -> None:
        super().__init__()
        self._steps, self._epsilon, self._delta = steps, cache(epsilon), delta

    def render(self, task: Task) -> Text:
        """Return an upper bound on the epsilon so far."""
        if not task.completed:
            return Text("")
        from dppl.kernel.privacy.budgets import rounded_up

        twentieths = math.ceil(20 * task.completed / self._steps)
        bound = rounded_up(self._epsilon(math.ceil(twentieths * self._steps / 20)), 4)
        return Text(f"epsilon <= {bound} at delta = {rounded_up(self._delta)}")


@contextmanager
def training_bar(steps: int, epsilon: Callable[[int], float], delta: float) -> Iterator[Callable[[int], None] | None]:
    """Show the step, what the steps so far cost, and the time left, if a person is watching.

    Yields what is told how many steps are done, those of an earlier run among them, or None.
    """
    with progress_bar("training", steps, _Spent(steps, epsilon, delta)) as advance:
        done = 0

        def reach(step: int) -> None:
            nonlocal done
            if advance is not None:
                advance(step - done)
            done = step

        yield None if advance is None else reach
