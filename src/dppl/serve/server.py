"""Where the service listens, who may ask, and how it stops."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from dppl._optional import optional
from dppl.errors import InputError, ParameterError
from dppl.serve.app import application
from dppl.serve.limits import Limits
from dppl.serve.logs import json_lines, tell
from dppl.serve.models import Served

__all__ = ["check_extra", "listen", "read_token", "serve"]

_SHORTEST = 16
_ENVIRONMENT = "env:"
_BACKLOG = 2048
_IDLE_SECONDS = 5  # that a connection without a request is kept
_PACKAGES = (
    ("fastapi", "fastapi"),
    ("uvicorn", "uvicorn"),
    ("python_multipart", "python-multipart"),
    ("prometheus_client", "prometheus-client"),
)


def check_extra() -> None:
    """See that the packages of the extra are there, before a model is loaded.

    Raises
    ------
    MissingExtra
        If one is not.
    """
    for module, package in _PACKAGES:
        optional(module, package, "serve")


def read_token(source: str) -> str:
    """Read the token from a file or an environment variable: a command line is shown to all users of a machine.

    Parameters
    ----------
    source : str
        Path of a file that holds the token alone, or ``env:NAME``.

    Raises
    ------
    ParameterError
        If the variable is not set, others may read the file, or the token is short or has odd characters.
    FileNotFoundError
        If there is no such file.
    """
    if source.startswith(_ENVIRONMENT):
        found = os.environ.get(source.removeprefix(_ENVIRONMENT))
        if found is None:
            raise _bad("names an environment variable that is not set")
    else:
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; write the token into it, or name env:VARIABLE.")
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise _bad("names a file that others may use; take that away with chmod 600")
        found = path.read_text(encoding="utf-8", errors="replace").strip()
    if len(found) < _SHORTEST or not all("!" <= char <= "~" for char in found):
        raise _bad(f"must lead to {_SHORTEST} characters or more, printable ASCII without blanks")
    return found


def _bad(what: str) -> ParameterError:
    return ParameterError(f"{what}.", parameter="token")


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Open the socket to listen on.

    Parameters
    ----------
    host : str
        Name or address.
    port : int
        0 takes a free one.
    has_token : bool
        Whether requests must bring a token; without one only addresses of this machine itself are allowed.

    Raises
    ------
    ParameterError
        If the host is not known, or can be reached from elsewhere while there is no token.
    InputError
        If the port cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ParameterError(f"must be a name or an address of this machine; got {host!r}.", parameter="host") from None
    family, kind, protocol, _, address = found[0]
    if not has_token and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ParameterError(
            "must be an address of this machine alone, such as 127.0.0.1, unless requests have to bring a token: "
            f"give token='FILE'. Got {host!r}.",
            parameter="host",
        )
    opened = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise InputError(f"port {port} of {host} cannot be had: {error.strerror}; choose another.") from None
    return opened


def serve(
    models: Sequence[Served],
    listening: socket.socket,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], object] = lambda url: None,
    logs: TextIO | None = None,
) -> None:
    """Answer requests until SIGTERM or SIGINT; those that run then are finished.

    Parameters
    ----------
    models : sequence of Served
    listening : socket
        What `listen` returned; it is closed at the end.
    token : str, default=None
    limits : Limits, default=None
    ready : callable, default=nothing
        Called with the URL before the first request is answered.
    logs : text file, default=None
        Where JSON lines go. None is standard error.

    Raises
    ------
    MissingExtra, ParameterError
        As `application`.
    KeyboardInterrupt
        If a second signal cut requests off.
    """
    server = server_of(models, token, limits or Limits())
    url = _url(listening)
    with listening, json_lines(sys.stderr if logs is None else logs):
        tell("listening", url=url, models=[served.about.name for served in models], token=token is not None)
        ready(url)
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn raises the signal again when all is done
            if server.force_exit:
                raise
        tell("stopped")


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
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
    )
    return uvicorn.Server(config)


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
