"""What every request passes before it reaches a route, and every answer on its way out."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import logging
import re
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from hashlib import sha256
from time import perf_counter
from typing import Any

from dppl.serve.limits import Headers, Refused
from dppl.serve.logs import tell
from dppl.serve.metrics import Metrics

__all__ = ["Guard", "problem"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# A name without anybody's before it.
_HOST = re.compile(r"(?:(?P<name>[a-z0-9.-]+)|\[(?P<v6>[0-9a-f:.]+)\])(?::[0-9]*)?")
_ONCE = {b"host", b"origin", b"authorization"}
# A browser asks for a name, which may be anything, and for the token as the password.
_CHALLENGES = (("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", 'Basic realm="dppl", charset="UTF-8"'))


def problem(refused: Refused) -> tuple[int, Headers, bytes]:
    """Return the answer to a request that is refused: status, headers and body."""
    body = json.dumps({"error": refused.code, "message": refused.message}).encode()
    return refused.status, [("Content-Type", "application/json"), *refused.headers], body


class Guard:
    """Middleware of ASGI: who may ask, headers of answers, logs and numbers.

    Paths beside `routes` are logged as "other". Without a token, only requests to a name of this machine itself are
    answered: a page elsewhere whose name was made to lead here cannot read the answers.
    """

    def __init__(self, app: App, metrics: Metrics, routes: Collection[str], token: str | None) -> None:
        self._app, self._metrics, self._routes = app, metrics, frozenset(routes)
        self._token = None if token is None else _digest(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, noted = perf_counter(), 0, False
        scope["dppl"] = {}  # what a route adds to the log

        def note() -> None:
            nonlocal noted
            if not noted:
                self._note(scope, status, perf_counter() - start)
            noted = True

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _with_defaults(message["headers"])}
            elif not message.get("more_body"):
                note()  # before whoever asked can ask for the numbers
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, answer)
        except Refused as refused:
            await _send(answer, *problem(refused))
        except Exception as error:
            tell("failed", level=logging.ERROR, error=type(error).__name__, where=_where(error))
            if not status:
                await _send(answer, *problem(Refused(500, "failed", "The service failed.")))
        finally:
            note()

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = scope["path"] if scope["path"] in self._routes else "other"
        self._metrics.answered(method, route, status, seconds)
        tell("answered", method=method, route=route, status=status, ms=round(1000 * seconds, 2), **scope["dppl"])

    def _check(self, scope: Scope) -> None:
        for name, several in Counter(name.lower() for name, _ in scope["headers"]).items():
            if several > 1 and name in _ONCE:  # which one counts, others on the way may see differently
                raise Refused(400, "repeated_header", "Host, Origin and Authorization may be sent once.")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "").lower()
        if self._token is None:
            if not _is_loopback(host):
                raise Refused(421, "wrong_host", "Without a token only requests to localhost are answered.")
        elif not any(hmac.compare_digest(self._token, _digest(one)) for one in _given(headers.get("authorization"))):
            raise Refused(401, "no_token", "Send the token: Authorization: Bearer TOKEN.", _CHALLENGES)
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "other_origin", "Pages of other sites may not ask.")


def _given(authorization: str | None) -> list[bytes]:
    """Return the token that a header holds: that of Bearer, or the password of Basic."""
    scheme, _, rest = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        return [rest.strip().encode("latin-1")]
    if scheme.lower() == "basic":
        try:
            return [base64.b64decode(rest, validate=True).partition(b":")[2]]
        except (binascii.Error, ValueError):
            return []
    return []


def _digest(token: bytes) -> bytes:
    """Hash a token, so that comparing takes the same time for all lengths."""
    return sha256(token).digest()


def _is_loopback(host: str) -> bool:
    """Tell whether a Host header is a name of this machine, with or without a port, and nothing else."""
    found = _HOST.fullmatch(host)
    name = found and (found["name"] or found["v6"])
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name or "").is_loopback
    except ValueError:  # another name, which somebody may lead here
        return False


def _with_defaults(headers: Any) -> list[tuple[bytes, bytes]]:
    there = {name.lower() for name, _ in headers}
    added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
    return [*headers, *((name, value) for name, value in added if name not in there)]


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _where(error: Exception) -> str:
    """Return where an error was raised, and not what it says."""
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return "unknown" if last is None else f"{last.filename.rpartition('/')[2]}:{last.lineno}"
