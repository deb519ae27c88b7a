"""`dppl encoders`: which encoders there are, and how to get those that are not on this machine."""

from __future__ import annotations

from rich.table import Table

from dppl.cli._output import console
from dppl.cli._request import request


@request()
class Encoders:
    """What `dppl encoders` is asked."""


def encoders(request: Encoders) -> None:
    """List the encoders: what they embed, their licence, and how to install them.

    A name goes behind --encoder of `dppl embed` and `dppl train`. NAME is one
    on the Hugging Face hub, or a local folder. Nothing is downloaded.
    """
    from dppl.encoders import list_encoders

    table = Table(box=None, pad_edge=False)
    for name in ("name", "embeds", "features", "licence of weights", "installed"):
        table.add_column(name, justify="right" if name == "features" else "left", no_wrap=True)
    entries, screen = list_encoders(), console()
    for entry in entries:
        features = "as the model" if entry.dimension is None else str(entry.dimension)
        table.add_row(entry.name, entry.kind, features, entry.licence, "yes" if entry.installed else "no")
    screen.print(table)
    for entry in entries:
        if entry.install:
            screen.print(f"{entry.name}: {entry.install}", soft_wrap=True)
