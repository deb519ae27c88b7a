"""Where the service listens, who may ask, and how it stops."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dppl._optional import optional
from dppl.errors import InputError, ParameterError
from dppl.serve.limits import Limits
from dppl.serve.logs import json_lines, log_event
from dppl.serve.models import Served

_SHORTEST = 16  # characters of a token
_ENVIRONMENT = "env:"


def application(models: Sequence[Served], limits: Limits | None = None, token: str | None = None) -> Any:
    """Return the service as an ASGI application, for one event loop; without a token this machine alone may ask."""
    _check_extra()
    from dppl.serve.app import build  # which imports FastAPI, and the core does without

    return build(models, limits or Limits(), token)


def read_token(source: str) -> str:
    """Read the token from a file that holds nothing else, or from the environment variable of ``env:NAME``.

    A command line is no place for it, which is shown to all users of a machine.
    """
    if source.startswith(_ENVIRONMENT):
        token = os.environ.get(source.removeprefix(_ENVIRONMENT))
        if token is None:
            raise ParameterError("names an environment variable that is not set.", parameter="token")
    else:
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; write the token into it, or name env:VARIABLE.")
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ParameterError("names a file that others may use; protect it with chmod 600.", parameter="token")
        token = path.read_text(encoding="utf-8", errors="replace").strip()
    if len(token) < _SHORTEST or not all("!" <= char <= "~" for char in token):
        raise ParameterError(
            f"must lead to {_SHORTEST} characters or more, printable ASCII without blanks.", parameter="token"
        )
    return token


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Open the socket to listen on; port 0 takes a free one. Without a token it is one of this machine alone."""
    _check_extra()  # before models are loaded
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ParameterError(f"must be a name or an address of this machine; got {host!r}.", parameter="host") from None
    family, *_, address = addresses[0]
    if not has_token and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ParameterError(
            "must be an address of this machine alone, such as 127.0.0.1, unless requests have to bring a token: "
            f"give token='FILE'. Got {host!r}.",
            parameter="host",
        )
    try:
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(f"cannot bind to port {port} of {host}: {reason}; choose another.") from None


def serve(
    models: Sequence[Served],
    listening: socket.socket,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Answer requests until SIGTERM or SIGINT; those that run then are finished. Logs go to standard error.

    `ready` is called with the URL before the first request is answered. A second signal that cuts requests off raises
    KeyboardInterrupt.
    """
    server = server_of(models, token, limits or Limits())
    host, port = listening.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    with listening, json_lines(sys.stderr):
        log_event("listening", url=url, models=[served.about.name for served in models], token=token is not None)
        ready(url)
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn raises the signal again when all is done
            if server.force_exit:
                raise
        log_event("stopped")


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
        http=_idle_timeout_protocol(limits.seconds),
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(limits.seconds) + 1,
    )
    return uvicorn.Server(config)


def _idle_timeout_protocol(seconds: float) -> Any:
    """Return HTTP/1.1 of uvicorn with a limit on the wait for a request.

    By itself uvicorn waits forever for the head of a request, so that a client that sends nothing but beginnings, with
    a token or without, could hold all connections that a process may have.
    """
    base = optional("uvicorn.protocols.http.h11_impl", "uvicorn", "serve").H11Protocol

    class IdleTimeoutProtocol(base):  # type: ignore[misc, valid-type]
        """Closes a connection that has had no request to answer for so long, whatever trickles in."""

        _deadline: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_request()

        def connection_lost(self, exc: Exception | None) -> None:
            self._deadline.cancel()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            super().handle_events()
            # A whole head has come: from here the limits of a prediction hold.
            if self.cycle is not None and not self.cycle.response_complete:
                self._deadline.cancel()

        def on_response_complete(self) -> None:
            self._await_request()  # before a request that waits already is begun
            super().on_response_complete()

        def _await_request(self) -> None:
            self._deadline = self.loop.call_later(seconds, self.transport.close)

    return IdleTimeoutProtocol


def _check_extra() -> None:
    for package in ("fastapi", "uvicorn"):
        optional(package, package, "serve")
