"""`dppl serve`: models behind HTTP. Predictions cost no further budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from dppl.cli import _options as options
from dppl.cli._options import ENCODER, option
from dppl.cli._paths import check_inputs
from dppl.cli._progress import working
from dppl.encoders.load import Device
from dppl.errors import ParameterError
from dppl.serve import Limits

_LIMITS = "Limits"
_DEFAULT = Limits()


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="Model files; each is called as its file is, without the suffix."),
    ],
    host: Annotated[
        str, option("HOST", "Address to listen on; one that others reach needs --token. Default 127.0.0.1.")
    ] = "127.0.0.1",
    port: Annotated[int, option("N", "Port; 0 takes a free one. Default 8000.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        option("FILE|env:NAME", "Where the token is that every request must bring: a file, or a variable."),
    ] = None,
    encoder: Annotated[
        str | None, option("URI", "Where the encoder of a single model is. Default: as it names it.", ENCODER)
    ] = None,
    device: options.Device = "auto",
    embeddings_only: Annotated[
        bool,
        typer.Option("--embeddings-only", help="Load no encoder; answer for embeddings.", rich_help_panel=ENCODER),
    ] = False,
    max_bytes: Annotated[int, option("N", "Bytes of a request. Default 16 MiB.", _LIMITS, min=1)] = _DEFAULT.body_bytes,
    max_items: Annotated[int, option("N", "Items of a request. Default 256.", _LIMITS, min=1)] = _DEFAULT.items,
    max_pixels: Annotated[
        int, option("N", "Pixels of an image. Default 40 million.", _LIMITS, min=1)
    ] = _DEFAULT.pixels,
    max_seconds: Annotated[
        float, option("S", "Seconds until a prediction is given up. Default 30.", _LIMITS, min=0.1)
    ] = _DEFAULT.seconds,
    max_requests: Annotated[int, option("N", "Predictions at a time. Default 64.", _LIMITS, min=1)] = _DEFAULT.requests,
) -> None:
    """Answer predictions over HTTP, and show a page to try them on.

    Predictions cost no further budget. Logs on stderr are JSON lines that hold
    nothing of requests or answers; Ctrl-C or SIGTERM finishes what runs and
    stops. See docs/serve.md for the routes, and before others may connect.

    For example:

      dppl serve my.safetensors
      dppl serve intents.safetensors digits.safetensors --port 9000
      dppl serve my.safetensors --host 0.0.0.0 --token token.txt
    """
    from dppl.serve import (  # here, because the help of a command needs no scikit-learn
        listen,
        open_model,
        read_token,
    )
    from dppl.serve import serve as run

    check_inputs(*models)
    if len({path.stem for path in models}) < len(models):
        raise ParameterError("models are called as their files are, and two have one name; rename a file.")
    if encoder is not None and (len(models) > 1 or embeddings_only):
        raise ParameterError("is for a single model, and not for one of embeddings only.", parameter="encoder")
    secret = None if token is None else read_token(token)
    limits = Limits(
        body_bytes=max_bytes, items=max_items, pixels=max_pixels, seconds=max_seconds, requests=max_requests
    )
    # Before an encoder is loaded, which takes seconds.
    with listen(host, port, has_token=secret is not None) as listening:
        with working("loading the models"):
            served = [
                open_model(path, encoder, device=cast(Device, device), embeddings_only=embeddings_only)
                for path in models
            ]
        run(served, listening, token=secret, limits=limits, ready=typer.echo)
