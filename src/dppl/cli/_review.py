"""`--review`: what a fit would leave out, on the terminal of whoever runs it and nowhere else, and a question."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from dppl.cli._output import console
from dppl.cli._owner import WARNING, print_report
from dppl.errors import ParameterError

_TERMINAL = "/dev/tty"


def review(report: Callable[[], dict[str, Any]]) -> None:
    """Show the owner's report, and ask whether to go on; what is piped or logged gets no word of it.

    Without a terminal nothing is read.
    """
    with ExitStack() as stack:
        try:
            # Two files, for a terminal has no place to go back to.
            answers = stack.enter_context(open(_TERMINAL, encoding="utf-8", errors="replace"))
            terminal = stack.enter_context(open(_TERMINAL, "w", encoding="utf-8", errors="backslashreplace"))
        except OSError:
            raise ParameterError(
                "--review shows private counts on a terminal and asks there, but this run has none; use dppl check "
                "before it, or --strict."
            ) from None
        screen = console(file=terminal)
        screen.print(WARNING, soft_wrap=True)
        print_report(report(), screen)
        screen.print("Go on with these records, and let the fit be charged? [y/N] ", end="")
        terminal.flush()
        if answers.readline().strip().lower() not in ("y", "yes"):
            stop = KeyboardInterrupt()
            stop.add_note("Nothing was charged.")
            raise stop
