"""`dppl encoders`: which encoders there are, and how to get those that are not on this machine."""

from __future__ import annotations

from rich.table import Table

from dppl.cli._output import console, print_json
from dppl.cli._request import flag, request
from dppl.encoders import list_encoders


@request()
class Encoders:
    """What `dppl encoders` is asked."""

    json: bool = flag("Print JSON.")


def encoders(request: Encoders) -> None:
    """List the encoders: what they embed, their licence, and how to install them.

    A name goes behind --encoder of `dppl embed` and `dppl train`. NAME is one
    on the Hugging Face hub, or a local folder. Nothing is downloaded.

    For example:

      dppl encoders
      dppl encoders --json
    """
    entries = list_encoders()
    if request.json:
        print_json([entry._asdict() for entry in entries])
        return
    table = Table(box=None, pad_edge=False)
    for name in ("name", "embeds", "features", "licence of weights", "installed"):
        table.add_column(name, justify="right" if name == "features" else "left", no_wrap=True)
    for entry in entries:
        features = "as the model" if entry.dimension is None else str(entry.dimension)
        table.add_row(entry.name, entry.kind, features, entry.licence, "yes" if entry.installed else "no")
    screen = console()
    screen.print(table)
    for entry in entries:
        if entry.install:
            screen.print(f"{entry.name}: {entry.install}", soft_wrap=True)
