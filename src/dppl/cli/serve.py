"""`dppl serve`: models behind HTTP. Predictions cost no further budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import typer

from dppl.cli._paths import check_inputs
from dppl.cli._progress import working
from dppl.cli._request import argument, flag, option, request
from dppl.encoders.load import Device
from dppl.errors import ParameterError
from dppl.serve import Limits

_DEFAULT = Limits()


@request("host", "port", "token", "encoder", "device", "embeddings_only")
class Serve:
    """What `dppl serve` is asked."""

    models: list[Path] = argument("MODEL...", "Model files; each is called as its file is, without the suffix.")
    host: str = option(
        "HOST", "Address to listen on; one that others reach needs --token. Default 127.0.0.1.", "127.0.0.1"
    )
    port: int = option("N", "Port; 0 takes a free one. Default 8000.", 8000, min=0, max=65535)
    token: str | None = option(
        "FILE|env:NAME", "Where the token is that every request must bring: a file, or a variable.", None
    )
    encoder: str | None = option("URI", "Where the encoder of a single model is. Default: as it names it.", None)
    device: str = option("auto|cpu|cuda", "Where the encoder runs. Default auto.", "auto")
    embeddings_only: bool = flag("Load no encoder; answer for embeddings.")
    max_bytes: int = option("N", "Bytes of a request. Default 16 MiB.", _DEFAULT.body_bytes, min=1)
    max_items: int = option("N", "Items of a request. Default 256.", _DEFAULT.items, min=1)
    max_pixels: int = option("N", "Pixels of an image. Default 40 million.", _DEFAULT.pixels, min=1)
    max_seconds: float = option("S", "Seconds until a prediction is given up. Default 30.", _DEFAULT.seconds, min=0.1)
    max_requests: int = option("N", "Predictions at a time. Default 64.", _DEFAULT.requests, min=1)


def serve(request: Serve) -> None:
    """Answer predictions over HTTP, and show a page to try them on.

    Predictions cost no further budget. Logs on stderr are JSON lines that hold
    nothing of requests or answers; Ctrl-C or SIGTERM finishes what runs and
    stops. See docs/serve.md for the routes, and before others may connect.

    For example:

      dppl serve my.safetensors
      dppl serve intents.safetensors digits.safetensors --port 9000
      dppl serve my.safetensors --host 0.0.0.0 --token token.txt
    """
    from dppl.serve import listen, open_model  # here, because the help of a command needs no scikit-learn
    from dppl.serve import serve as run
    from dppl.serve.server import read_token

    models, encoder = request.models, request.encoder
    check_inputs(*models)
    if len({path.stem for path in models}) < len(models):
        raise ParameterError("models are called as their files are, and two have one name; rename a file.")
    if encoder is not None and (len(models) > 1 or request.embeddings_only):
        raise ParameterError("is for a single model, and not for one of embeddings only.", parameter="encoder")
    secret = None if request.token is None else read_token(request.token)
    limits = Limits(
        body_bytes=request.max_bytes,
        items=request.max_items,
        pixels=request.max_pixels,
        seconds=request.max_seconds,
        requests=request.max_requests,
    )
    # Before an encoder is loaded, which takes seconds.
    with listen(request.host, request.port, has_token=secret is not None) as listening:
        with working("loading the models"):
            how: Any = {"device": cast(Device, request.device), "embeddings_only": request.embeddings_only}
            served = [open_model(path, encoder, **how) for path in models]
        run(served, listening, token=secret, limits=limits, ready=typer.echo)
