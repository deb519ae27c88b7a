"""Middleware around all routes: access, headers of answers, failures and logs."""

from __future__ import annotations

import hmac
import logging
import re
import traceback
from collections.abc import Collection
from hashlib import sha256
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from time import perf_counter

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dppl.serve.requests import FIELDS, RequestError, too_many_items

_LOG = logging.getLogger("dppl.serve")
# Errors that are answers; whatever else is raised is a bug.
EXPECTED = (
    RequestError,
    ValidationError,
    RequestValidationError,
    HTTPException,
    ClientDisconnect,
)

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# The whole header: "evil.com@localhost" and "127.0.0.1.example.org" are names that
# somebody else may lead here. Starlette's TrustedHostMiddleware knows no IPv6 addresses
# and answers in plain text.
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d*)?")


class Guard:
    """ASGI middleware that every request and every answer passes.

    Paths other than `routes` are logged as "other". Without a token, only requests to a
    name of this machine are answered: a page elsewhere whose name was made to lead here
    cannot read the answers.
    """

    def __init__(
        self, app: ASGIApp, routes: Collection[str], token: str | None
    ) -> None:
        self._app = app
        self._routes = frozenset(routes)
        # Hashed, so that comparing takes the same time for all lengths.
        self._digest = None
        if token is not None:
            self._digest = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        answered = False
        scope["dppl"] = {}  # fields that a route adds to the log

        async def answer(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # Before the answer is out, so that its reader finds it logged.
                self._log(scope, message["status"], perf_counter() - start)
            await send(message)

        try:
            self._check(Headers(scope=scope))
            await self._app(scope, receive, answer)
        except Exception as error:
            if not isinstance(error, EXPECTED):
                # Its type and place, but not its message, which may quote the request.
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                _LOG.error(
                    "failed",
                    extra={"fields": {"error": type(error).__name__, "where": where}},
                )
            if not answered:
                await problem(error)(scope, receive, answer)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        # Methods and paths are the client's words, so only known ones are logged.
        if scope["method"] in HTTPMethod.__members__:
            method = scope["method"]
        else:
            method = "other"
        if scope["path"] in self._routes:
            route = scope["path"]
        else:
            route = "other"
        fields = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 2),
            **scope["dppl"],
        }
        _LOG.info("answered", extra={"fields": fields})

    def _check(self, headers: Headers) -> None:
        """Raise unless the client may ask."""
        for name in ("host", "origin", "authorization"):
            if (
                len(headers.getlist(name)) > 1
            ):  # a proxy on the way may have read the other one
                raise RequestError(
                    400,
                    "repeated_header",
                    "Host, Origin and Authorization may be sent once.",
                )
        host = headers.get("host", "").lower()
        scheme, _, token = headers.get("authorization", "").partition(" ")
        digest = sha256(token.strip().encode("latin-1")).digest()
        if self._digest is None:
            if _LOOPBACK.fullmatch(host) is None:
                raise RequestError(
                    421,
                    "wrong_host",
                    "Without a token only requests to localhost are answered.",
                )
        elif (
            not hmac.compare_digest(self._digest, digest) or scheme.lower() != "bearer"
        ):
            challenge = {"WWW-Authenticate": "Bearer"}
            raise RequestError(
                401,
                "no_token",
                "Send the token: Authorization: Bearer TOKEN.",
                challenge,
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (
            f"http://{host}",
            f"https://{host}",
        ):
            raise RequestError(403, "other_origin", "Pages of other sites may not ask.")


def problem(error: Exception) -> Response:
    """Return the answer to a request that failed. All messages are written by us: none quotes the request."""
    match error:
        case ClientDisconnect():
            return Response(status_code=499)  # for the log; nobody reads it
        case RequestError():
            refusal = error
        case ValidationError() | RequestValidationError():
            refusal = _invalid(error)
        case HTTPException(status_code=status):
            kind = HTTPStatus(status)
            refusal = RequestError(
                status, kind.name.lower(), f"{kind.phrase}.", error.headers
            )
        case _:
            refusal = RequestError(500, "failed", "The service failed.")
    return JSONResponse(
        {"error": refusal.code, "message": refusal.message},
        refusal.status,
        refusal.headers,
    )


def _invalid(error: ValidationError | RequestValidationError) -> RequestError:
    """Name the field that is wrong and pydantic's rule for it, neither of which quotes a value."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return RequestError(400, "not_json", "The body is not JSON in UTF-8.")
    if first["type"] == "too_long":
        return too_many_items(first["ctx"]["max_length"])
    # A place may be a key of the body, so only our own names are shown.
    name = next((part for part in first["loc"][:1] if part in FIELDS), None)
    rules = {
        "extra_forbidden": f"It may have {', '.join(FIELDS)} only.",
        "base64_decode": "It is not base64.",
    }
    rule = rules.get(first["type"], f"{first['msg'].rstrip('.')}.")
    return RequestError(
        422,
        "invalid",
        f"{name or 'The request'} is not as /openapi.json describes it. {rule}",
    )
