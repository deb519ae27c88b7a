"""How far long work is, shown to a person who watches and to nothing that keeps it.

Units of work are public, such as steps of a descent; but the time that is left grows
with the number of private records. So a terminal or a notebook shows it, and forgets it
when the work ends; a pipe, a log or a file never does.
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
    """Show nothing of the work in the block: the number of its tasks is a secret, or when one of them ends."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


@contextmanager
def progress(
    what: str, total: int | Callable[[], int] | None = None, *, delay: float = 0.0
) -> Iterator[Callable[..., None]]:
    """Show that work is going on and, with a total, how far it is, after `delay` seconds; yields what counts units.

    `what` must say nothing about private data. `total` is called, if it is a function,
    only where somebody watches.
    """
    kind, bar = _bar(), None  # type: tuple[Any, Any]
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
    """Yield the numbers of the steps of a fit, and show how far it is if it takes long."""
    with progress("fitting", count, delay=PATIENCE) as advance:
        for step in range(count):
            yield step
            advance()


def _bar() -> Any:
    """Return the kind of bar that a notebook or a terminal shows; None where nobody watches."""
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
