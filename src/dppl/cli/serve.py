"""`dppl serve`: models behind HTTP. Predictions cost no further budget."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from dppl._utils.progress import progress
from dppl.cli._output import echo
from dppl.cli._pairs import parse_pairs
from dppl.cli._request import argument, option, request
from dppl.errors import ParameterError


@request("host", "port", "token", "encoder", "limits")
class Serve:
    """Answer predictions over HTTP, and show a page to try them on.

    Predictions cost no further budget. Logs on stderr are JSON lines that hold
    nothing of requests or answers; Ctrl-C or SIGTERM finishes what runs and
    stops. See docs/serve.md for the routes, and before others may connect.

    For example:

      dppl serve intents.safetensors digits.safetensors --port 9000
      dppl serve my.safetensors --host 0.0.0.0 --token token.txt
    """

    models: list[Path] = argument(
        "MODEL", "Model files; each is called as its file is, without the suffix."
    )
    host: str = option(
        "HOST",
        "Address to listen on; one that others reach needs --token. Default 127.0.0.1.",
        "127.0.0.1",
    )
    port: int = option(
        "N", "Port; 0 takes a free one. Default 8000.", 8000, min=0, max=65535
    )
    token: str | None = option(
        "FILE|env:NAME",
        "Where the token is that every request must bring: a file, or a variable.",
        None,
    )
    encoder: str | None = option(
        "URI",
        "Where the encoder of a single model is; none: answer for embeddings alone. Default: as it names it.",
        None,
    )
    min_confidence: float | None = option(
        "P", "Give no label whose probability is below P, of a single model.", None
    )
    min_similarity: float | None = option(
        "S",
        "Give no label if the cosine with every class is below S, of a single model.",
        None,
    )
    limits: list[str] = option(
        "NAME=N",
        "What a request may ask; may be repeated. body_bytes: its size, 16 MiB by default. items: 256. pixels of an "
        "image: 40 million. seconds until a prediction is given up: 30. requests: predictions at a time, 64.",
        (),
    )

    def run(self) -> None:
        """Serve until the end."""
        from dppl.methods.released import Least
        from dppl.serve import Limits, listen
        from dppl.serve.server import read_token

        models = self.models
        encoder = self.encoder
        # The stem is the model's place in the URL.
        if len({path.stem for path in models}) < len(models):
            raise ParameterError(
                "models are called as their files are, and two have one name; rename a file."
            )
        if encoder not in (None, "none") and len(models) > 1:
            raise ParameterError("is for a single model.", parameter="encoder")
        for name in ("min_confidence", "min_similarity"):
            if getattr(self, name) is not None and len(models) > 1:
                raise ParameterError(
                    "is for a single model; a request may name its own.", parameter=name
                )
        least = Least(self.min_confidence, self.min_similarity)
        secret = None
        if self.token is not None:
            secret = read_token(self.token)
        limits = Limits(
            **parse_pairs(self.limits, "limits", [one.name for one in fields(Limits)])
        )
        # Before an encoder is loaded, which takes seconds.
        with listen(self.host, self.port, has_token=secret is not None) as listening:
            from dppl.serve import (
                open_model,
                serve,
            )  # here, where the extra is known to be installed

            with progress("loading the models"):
                served = [open_model(path, encoder, least=least) for path in models]
            serve(served, listening, token=secret, limits=limits, ready=echo)
