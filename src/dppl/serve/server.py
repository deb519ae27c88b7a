"""Where the service listens, who may ask and how much, what it logs, and how it stops."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl.errors import Argument, InputError, ParameterError
from dppl.io.records.decoding import MOST_PIXELS

if TYPE_CHECKING:
    from dppl.serve.models import Served

_SHORTEST = 16  # characters of a token
_LOG = logging.getLogger("dppl.serve")
# Of the server the text that its programmers wrote is shown, and of other libraries
# only that they said something: arguments and tracebacks may quote a request, and so
# may formatted texts.
_SERVER = "uvicorn.error"
_SILENT = ("asyncio", "uvicorn.access", "uvicorn.asgi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may ask for, and how many may run at a time."""

    body_bytes: int = 1 << 24
    items: int = 256  # embeddings, texts or images in a request, and items in a batch of the encoder
    pixels: int = 40_000_000  # of an image, read from its header before it is decoded
    seconds: float = 30.0  # from the first byte of the body to the answer
    requests: int = 64  # predictions that may run or wait

    def __post_init__(self) -> None:
        for name in ("body_bytes", "items", "pixels", "requests"):
            validate.positive_integer(**{name: getattr(self, name)})
        validate.positive(seconds=self.seconds)
        if self.pixels > MOST_PIXELS:
            raise ParameterError(
                f"must be at most {MOST_PIXELS}; got {self.pixels}.", parameter="pixels"
            )


def application(
    models: Sequence[Served], limits: Limits | None = None, token: str | None = None
) -> Any:
    """Return the service as an ASGI application, for one event loop; without a token this machine alone may ask."""
    _check_extra()
    from dppl.serve.app import build  # which imports FastAPI, and the core does without

    return build(models, limits or Limits(), token)


def read_token(source: str) -> str:
    """Read the token from a file that holds nothing else, or from the environment variable of ``env:NAME``.

    A command line is no place for it, which is shown to all users of a machine.
    """
    if source.startswith("env:"):
        token = os.environ.get(source.removeprefix("env:"))
        if token is None:
            raise ParameterError(
                "names an environment variable that is not set.", parameter="token"
            )
    else:
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no file {path}; write the token into it, or name env:VARIABLE."
            )
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ParameterError(
                "names a file that others may use; protect it with chmod 600.",
                parameter="token",
            )
        token = path.read_text(encoding="utf-8", errors="replace").strip()
    if len(token) < _SHORTEST or not all("!" <= char <= "~" for char in token):
        raise ParameterError(
            f"must lead to {_SHORTEST} characters or more, printable ASCII without blanks.",
            parameter="token",
        )
    return token


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Open the socket to listen on; port 0 takes a free one. Without a token it is one of this machine alone."""
    _check_extra()  # before models are loaded
    try:
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise ParameterError(
            f"must be a name or an address of this machine; got {host!r}.",
            parameter="host",
        ) from None
    family, *_, address = addresses[0]
    if (
        not has_token
        and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    ):
        raise ParameterError(
            "must be an address of this machine alone, such as 127.0.0.1, unless requests have to bring a token: give ",
            Argument("token", "FILE"),
            f". Got {host!r}.",
            parameter="host",
        )
    try:
        listening = socket.create_server(address, family=family, backlog=2048)
        # Connections inherit it. Else the body of an answer waits for the client to
        # confirm the headers: 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(
            f"cannot bind to port {port} of {host}: {reason}; choose another."
        ) from None


def serve(
    models: Sequence[Served],
    listening: socket.socket,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Answer requests until SIGTERM or SIGINT; those that run then are finished. Logs go to standard error.

    `ready` is called with the URL before the first request is answered. A second signal
    that cuts requests off raises KeyboardInterrupt.
    """
    server = server_of(models, token, limits or Limits())
    host, port = listening.getsockname()[:2]
    if ":" in host:
        url = f"http://[{host}]:{port}"
    else:
        url = f"http://{host}:{port}"
    with listening, json_lines(sys.stderr):
        names = [served.about.name for served in models]
        _LOG.info(
            "listening",
            extra={"fields": {"url": url, "models": names, "token": token is not None}},
        )
        ready(url)
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn raises the signal again when all is done
            if server.force_exit:
                raise
        _LOG.info("stopped")


def server_of(models: Sequence[Served], token: str | None, limits: Limits) -> Any:
    """Return a server of uvicorn that has not begun."""
    uvicorn = optional("uvicorn", "uvicorn", "serve")
    config = uvicorn.Config(
        application(models, limits, token),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        http="h11",
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
    )
    return uvicorn.Server(config)


class _JsonLines(logging.Formatter):
    # A JSON object per line, of fields that hold no part of a request or of an answer.
    def format(self, record: logging.LogRecord) -> str:
        event = "library"
        if record.name in (_LOG.name, _SERVER):
            event = str(record.msg).split("\n", 1)[0]
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "event": event,
            **({} if record.name == _LOG.name else {"logger": record.name}),
            **getattr(record, "fields", {}),
        }
        return json.dumps(said)


@contextmanager
def json_lines(stream: TextIO) -> Iterator[None]:
    """Write the logs of the service, and what its server says, to a stream while the block runs."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLines())
    loggers = [logging.getLogger(name) for name in (None, _LOG.name, _SERVER, *_SILENT)]
    before = [(log, log.handlers, log.propagate, log.level) for log in loggers]
    try:
        for log in loggers:
            log.handlers = [handler]
            log.propagate = False
            log.setLevel(
                logging.CRITICAL + 1 if log.name in _SILENT else logging.WARNING
            )
        _LOG.setLevel(logging.INFO)
        yield
    finally:
        for log, handlers, propagate, level in before:
            log.handlers = handlers
            log.propagate = propagate
            log.setLevel(level)


def _check_extra() -> None:
    for package in ("fastapi", "uvicorn"):
        optional(package, package, "serve")
