"""Progress bars, for somebody who watches and never for a log.

The units of work are public, such as steps of a descent, but the time that remains
grows with the number of private records. So a bar is shown on a terminal or in a
notebook and removed at the end; a pipe, a log or a file gets none.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from typing import Any

PATIENCE = 5.0  # seconds that a fit takes before anything is shown
_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


@contextmanager
def hidden() -> Iterator[None]:
    """Show no bars in the block: how many tasks it has, or when one of them ends, is secret."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


@contextmanager
def progress(
    what: str, total: int | Callable[[], int] | None = None, *, delay: float = 0.0
) -> Iterator[Callable[..., None]]:
    """Show a bar after `delay` seconds; yields the function that advances it.

    `what` must say nothing about private data. If `total` is a function, it is called
    only where somebody watches.
    """
    kind = _bar()
    bar: Any = None
    if kind is not None:
        if callable(total):
            with progress("counting"):
                total = total()
        form = "{desc} ..." if total is None else None
        with suppress(
            Exception
        ):  # a terminal that is gone must not end work that is paid for
            bar = kind(
                desc=what,
                total=total,
                delay=delay,
                bar_format=form,
                leave=False,
                mininterval=0.5,
            )

    def advance(count: int = 1) -> None:
        with suppress(Exception):
            bar.update(count)

    try:
        yield advance
    finally:
        with suppress(Exception):
            bar.close()


def steps(count: int) -> Iterator[int]:
    """Yield the step numbers of a fit, and show a bar if it takes long."""
    with progress("fitting", count, delay=PATIENCE) as advance:
        for step in range(count):
            yield step
            advance()


def _bar() -> Any:
    """Return the class of bars for a notebook or a terminal; None where nobody watches."""
    with suppress(
        Exception
    ):  # stderr may be None, closed, or something that only writes
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if _hidden.get():
            return None
        if hasattr(shell, "kernel"):
            return import_module("tqdm.notebook").tqdm
        if sys.stderr.isatty():
            return import_module("tqdm").tqdm
    return None
