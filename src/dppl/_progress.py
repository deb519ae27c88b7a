"""How far long work is, told to a person who watches and to nothing that keeps it.

What is told is the share of units that are done and the time that is left. Units are public: rows of a public pool,
steps of a descent. The time is no secret to a person who sees the work end, but it grows with the number of private
records. So a terminal or a notebook is told, and forgets it when the work ends; a pipe, a log or a file is not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from importlib import import_module
from time import monotonic
from typing import Any

# Shows a text in place of the last one, or, for None, nothing any more.
Show = Callable[[str | None], object]

_PATIENCE = 5.0  # seconds that work takes before anything is told of it
_EVERY = 0.5  # seconds between two texts


def _find_watcher() -> Show | None:
    with suppress(Exception):  # stderr may be None, closed, or something that only writes
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if hasattr(shell, "kernel"):
            return _Notebook(import_module("IPython.display"))
        return _on_terminal if sys.stderr.isatty() else None
    return None


_find: ContextVar[Callable[[], Show | None]] = ContextVar("find", default=_find_watcher)


@contextmanager
def shown_by(show: Show | None) -> Iterator[None]:
    """Tell `show` of all work in the block, or, for None, nobody.

    Nobody is to be told where the number of tasks, or when one of them ends, is a secret, and where something else
    has the screen.
    """
    token = _find.set(lambda: show)
    try:
        yield
    finally:
        _find.reset(token)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Tell who watches how far some work is, if it takes long.

    The total must be public. Yields what is told how many more units are done, one call at a time.
    """
    show = _find.get()()
    if show is None:
        yield lambda count: None
        return
    told = _Told(what, total, show)
    try:
        yield told
    finally:
        told.end()


def steps(count: int) -> Iterator[int]:
    """Yield the numbers of the steps of a fit, and tell who watches."""
    with progress("fitting", count) as advance:
        for step in range(count):
            yield step
            advance(1)


class _Told:
    """Says how far work is, once it has taken long."""

    def __init__(self, what: str, total: int, show: Show) -> None:
        self._what, self._total, self._show, self._done = what, total, show, 0
        self._start, self._last = monotonic(), -math.inf

    def __call__(self, count: int) -> None:
        self._done += count
        now = monotonic()
        if now - self._start < _PATIENCE or now - self._last < _EVERY:
            return
        self._last = now
        left = timedelta(seconds=round((now - self._start) * (self._total - self._done) / max(self._done, 1)))
        self._say(f"{self._what}: {100 * self._done // self._total} %, about {left} left")

    def end(self) -> None:
        """Take the text away."""
        if self._last > -math.inf:
            self._say(None)

    def _say(self, text: str | None) -> None:
        with suppress(Exception):  # a terminal that is gone must not end work that is paid for
            self._show(text)


def _on_terminal(text: str | None) -> None:
    sys.stderr.write(f"\r\x1b[K{text or ''}")
    sys.stderr.flush()


class _Notebook:
    """Shows a text below the cell and takes it away again, so that a saved notebook does not hold it."""

    def __init__(self, display: Any) -> None:
        self._display, self._handle = display, None

    def __call__(self, text: str | None) -> None:
        shown = self._display.HTML(text or "")
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)
