"""The service as an ASGI application: routes, their description, and how a prediction runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from dppl._optional import optional
from dppl._version import __version__
from dppl.embedding.decoding import quiet
from dppl.errors import ParameterError
from dppl.serve.answers import Health, ModelAnswer, Predictions, Problem
from dppl.serve.batches import Batches
from dppl.serve.guard import App, Guard, problem
from dppl.serve.limits import Limits, Refused
from dppl.serve.metrics import Metrics
from dppl.serve.models import Served, unusable
from dppl.serve.page import page
from dppl.serve.wanted import Wanted, request_schema, wanted_of_form, wanted_of_json

__all__ = ["application"]

_THREADS = 4
_GONE = 499  # the client went away; no answer was sent
# Bodies are read to so many times the limit, so that who sends too much can read why it is refused.
_DRAINED = 4
_PROBLEMS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "A page of another site asks.",
    404: "There is no such model.",
    408: "The body took too long.",
    413: "The body or an image is too large.",
    415: "The body is of another type.",
    421: "The name of the host is not one of this machine.",
    422: "The body asks for something else than predictions of a model that is served.",
    503: "Too many predictions run, or this one took too long; ask again later.",
}
_OTHERWISE = {
    400: ("not_read", "The request cannot be read."),
    404: ("not_found", "There is no such route."),
    405: ("other_method", "This route is asked by another method."),
    422: ("invalid", "The address holds what this route does not take."),
}


class _Service:
    """Models that are served, and what their predictions share."""

    def __init__(self, models: Sequence[Served], limits: Limits) -> None:
        self.models = {served.about.name: served for served in models}
        if len(self.models) < max(1, len(models)):
            raise ParameterError("models must have names of their own; rename a file.")
        self.limits, self.metrics = limits, Metrics()
        self._running = 0
        self._threads = ThreadPoolExecutor(_THREADS, "dppl-predict")
        self._batches = {
            name: Batches(served.encoder, limits.items, partial(self.metrics.embedded, name))
            for name, served in self.models.items()
            if served.encoder is not None
        }

    def named(self, name: str | None) -> Served:
        """Return a model; None is the only one."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise Refused(404, "no_such_model", f"Name one by `model`: {', '.join(self.models)}.")
        return self.models[name]

    async def predict(self, request: Any) -> bytes:
        """Answer a request for predictions, within the limits of time and number, as JSON."""
        with self._admitted():
            body = None
            try:
                async with asyncio.timeout(self.limits.seconds):
                    body = await self._body(request)
                    return await self._predictions(request, await self._wanted(request, body))
            except TimeoutError:
                if body is None:
                    raise Refused(408, "slow_body", "The body took too long.") from None
                raise _busy("The prediction took too long; send fewer items, or ask again later.") from None
            except MemoryError:
                raise _busy("There is not enough memory now; send fewer items, or ask again later.") from None

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._running >= self.limits.requests:
            raise _busy("Too many predictions run; ask again later.")
        self._running += 1
        self.metrics.running.set(self._running)
        try:
            yield
        finally:
            self._running -= 1
            self.metrics.running.set(self._running)

    async def _body(self, request: Any) -> bytes:
        limit, size, parts = self.limits.body_bytes, 0, []
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                parts.append(part)
            elif size > _DRAINED * limit:
                break
        if size > limit:
            raise Refused(413, "too_many_bytes", f"A body may have {limit} bytes at most.")
        return b"".join(parts)

    async def _wanted(self, request: Any, body: bytes) -> Wanted:
        header = request.headers.get("content-type", "")
        kind = header.partition(";")[0].strip().lower()
        if kind not in ("application/json", "multipart/form-data"):
            raise Refused(415, "other_type", "Send application/json, or multipart/form-data with images.")
        read = wanted_of_json if kind == "application/json" else partial(wanted_of_form, header)
        wanted: Wanted = await self._in_thread(read, body, self.limits)
        return wanted

    async def _predictions(self, request: Any, wanted: Wanted) -> bytes:
        served = self.named(wanted.model)
        name = served.about.name
        request.scope["dppl"].update(model=name, kind=wanted.kind, items=len(wanted.items))
        if wanted.kind not in served.about.takes:
            raise Refused(422, "other_kind", f"This model takes {' or '.join(served.about.takes)}.")
        reasons: dict[int, str] = {}
        if wanted.kind == "embeddings":
            rows = list(wanted.rows(served.about.features))
        else:
            rows, reasons = await self._embedded(served, wanted.items)
        answer: bytes = await self._in_thread(_answer, served, rows, reasons, wanted)
        self.metrics.predicted(name, wanted.kind, len(rows))
        return answer

    async def _embedded(self, served: Served, items: list[Any]) -> tuple[list[Any], dict[int, str]]:
        """Return the row of each item, None where it has none, and by place why."""
        prepare = partial(served.prepared, most_pixels=self.limits.pixels)
        tasks = [asyncio.create_task(self._in_thread(prepare, item)) for item in items]
        try:
            prepared = await asyncio.gather(*tasks)
        finally:  # of a request that is refused for one item, the others are not begun
            for task in tasks:
                task.cancel()
        reasons = {place: reason for place, (_, reason) in enumerate(prepared) if reason is not None}
        places = [place for place in range(len(items)) if place not in reasons]
        rows: list[Any] = [None] * len(items)
        found = await self._batches[served.about.name].embed([prepared[place][0] for place in places])
        for place, row in zip(places, found, strict=True):
            rows[place] = row
        return rows, reasons

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """Let all threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for batches in self._batches.values():
            batches.close()


def _answer(served: Served, rows: list[Any], reasons: dict[int, str], wanted: Wanted) -> bytes:
    """Return `Predictions` as JSON: many numbers of many classes, which the event loop must not wait for."""
    found = (
        unusable(reasons.get(place, "the encoder cannot embed it"))
        if row is None
        else served.prediction(row, wanted.top, wanted.nearest, wanted.probabilities)
        for place, row in enumerate(rows)
    )
    # One by one: while JSON is written, no other thread runs.
    return b'{"model": %b, "predictions": [%b]}' % (_json(served.about.name), b", ".join(map(_json_of, found)))


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def _json_of(answer: Any) -> bytes:
    # Not by way of the response model: what is answered is made of the same classes.
    return _json(asdict(answer))


def _busy(message: str) -> Refused:
    return Refused(503, "busy", message, [("Retry-After", "1")])


def application(models: Sequence[Served], limits: Limits | None = None, token: str | None = None) -> App:
    """Return the service as an ASGI application, for one event loop.

    Parameters
    ----------
    models : sequence of Served
        With different names.
    limits : Limits, default=None
    token : str, default=None
        What every request must bring. None answers requests to names of this machine itself.

    Returns
    -------
    ASGI application

    Raises
    ------
    MissingExtra
        If the packages of the extra ``serve`` are not installed.
    ParameterError
        If two models have one name.
    """
    fastapi = optional("fastapi", "fastapi", "serve")
    responses = optional("starlette.responses", "starlette", "serve")
    service = _Service(models, limits or Limits())

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        with quiet():  # Pillow, for one, quotes files in its warnings
            yield
        service.close()

    def answered(content: bytes) -> Any:
        return responses.Response(content, media_type="application/json")

    async def predict(request: Any) -> Any:
        return answered(await service.predict(request))

    async def model(model: str | None = None) -> Any:
        return answered(_json_of(service.named(model).about))

    async def health() -> Any:
        return answered(_json_of(Health("ok", list(service.models))))

    async def metrics() -> Any:
        content, kind = service.metrics.page()
        return responses.Response(content, headers={"Content-Type": kind})

    html, policy = page()

    async def index() -> Any:
        return responses.HTMLResponse(html, headers={"Content-Security-Policy": policy})

    # FastAPI tells a request from a parameter by this, which cannot be written where FastAPI need not be installed.
    predict.__annotations__["request"] = fastapi.Request
    # Swagger's pages load programs from elsewhere, so there are none.
    app = fastapi.FastAPI(title="dppl", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_api_route(
        "/predict",
        predict,
        methods=["POST"],
        response_model=Predictions,
        summary="Predict the classes of embeddings, texts or images",
        responses=_problems(400, 403, 404, 408, 413, 415, 422, 503),
        openapi_extra={"requestBody": request_schema(service.limits, _widths(models))},
    )
    app.add_api_route(
        "/model", model, response_model=ModelAnswer, summary="Show a model and its guarantee", responses=_problems(404)
    )
    app.add_api_route("/health", health, response_model=Health, summary="Tell that the service runs")
    text = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    app.add_api_route(
        "/metrics",
        metrics,
        response_class=responses.PlainTextResponse,
        summary="Numbers for Prometheus",
        responses=text,
    )
    app.add_api_route("/", index, response_class=responses.HTMLResponse, summary="A page to try the models")

    async def refused(_: Any, error: Any) -> Any:
        status, headers, body = problem(error)
        return responses.Response(body, status, dict(headers))

    async def otherwise(_: Any, error: Any) -> Any:
        status = getattr(error, "status_code", 422)
        return await refused(
            _, Refused(status, *_OTHERWISE[status], tuple((getattr(error, "headers", None) or {}).items()))
        )

    async def gone(_: Any, __: Any) -> Any:
        return responses.Response(status_code=_GONE)  # for the log; nobody reads it

    async def failed(_: Any, __: Any) -> Any:
        return await refused(_, Refused(500, "failed", "The service failed."))

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(optional("starlette.exceptions", "starlette", "serve").HTTPException, otherwise)
    app.add_exception_handler(fastapi.exceptions.RequestValidationError, otherwise)
    app.add_exception_handler(optional("starlette.requests", "starlette", "serve").ClientDisconnect, gone)
    app.add_exception_handler(Exception, failed)
    _describe(app.openapi(), with_token=token is not None)
    routes = [route.path for route in app.routes]
    return Guard(app, service.metrics, routes, token)


def _widths(models: Sequence[Served]) -> set[int]:
    widths = {served.about.features for served in models if "embeddings" in served.about.takes}
    return {width for width in widths if width is not None}


def _problems(*statuses: int) -> dict[int, Any]:
    return {status: {"model": Problem, "description": _PROBLEMS[status]} for status in statuses}


def _describe(schema: dict[str, Any], *, with_token: bool) -> None:
    """Add to the description what the guard answers on every route."""
    everywhere = (400, 401, 403) if with_token else (400, 403, 421)
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for route in schema["paths"].values():
        for operation in route.values():
            for status in everywhere:
                answer = {"description": _PROBLEMS[status], "content": content}
                operation["responses"].setdefault(str(status), answer)
    if with_token:
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
