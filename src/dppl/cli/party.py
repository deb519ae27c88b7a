"""`dppl party`: an institution of a federation, which answers with its own noise and from its own ledger."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from dppl.cli._output import echo, printable
from dppl.cli._request import argument, request


@request()
class Serve:
    r"""Answer the questions of plans that were checked here and charged to the own ledger.

    The file says what the institution is called, where its records, class
    list and ledger are, and how to reach the SuperLink (docs/federation.md).
    What is printed depends on no record. Ctrl-C or SIGTERM stops; the same
    command goes on where it was.

    For example:

      dppl party serve north.toml
    """

    file: Path = argument("FILE", "Settings of the institution, in TOML.")

    def run(self) -> None:
        """Serve until the end."""
        from dppl.federation.settings import PartyFile, read

        settings = read(self.file, PartyFile)
        stopped: list[int] = []

        def stop(number: int, _: Any) -> None:
            stopped.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        with settings.open() as party:
            ready = f"{printable(settings.name)} answers plans that {printable(settings.superlink)} brings."
            settings.serve(
                party, ready=lambda: echo(ready), stopped=lambda: bool(stopped)
            )


COMMANDS = (Serve,)
