"""The service as an ASGI application: its routes, their description, and how a prediction runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter

from dppl._version import __version__
from dppl.errors import ParameterError
from dppl.io.decoding import quiet
from dppl.serve.answers import Health, ModelAnswer, Prediction, Predictions, Problem
from dppl.serve.batches import Batches
from dppl.serve.guard import EXPECTED, Guard, problem
from dppl.serve.limits import Limits, RequestError
from dppl.serve.metrics import Metrics
from dppl.serve.models import Served
from dppl.serve.page import page
from dppl.serve.requests import PredictionRequest, read_form, read_json, request_models

__all__ = ["build"]

_THREADS = 4
# A body is read to this many times its limit, so that a client that sends too much reads why it is refused.
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
_PREDICTION = TypeAdapter(Prediction)
_T = TypeVar("_T")


class _Service:
    """Models that are served, and what their predictions share."""

    def __init__(self, models: Sequence[Served], limits: Limits) -> None:
        self.models = {served.about.name: served for served in models}
        if len(self.models) < max(1, len(models)):
            raise ParameterError("models must have names of their own; rename a file.")
        widths = [served.about.features for served in models if served.about.features is not None]
        self.json_request, self.form_request = request_models(limits, widths)
        self.limits, self.metrics = limits, Metrics()
        self._slots = asyncio.Semaphore(limits.requests)
        self._threads = ThreadPoolExecutor(_THREADS, "dppl-predict")
        self._batches = {
            name: Batches(served.encoder, limits.items, partial(self.metrics.embedded, name))
            for name, served in self.models.items()
            if served.encoder is not None
        }

    def model(self, name: str | None) -> Served:
        """Return a model; None is the only one."""
        if name is None and len(self.models) == 1:
            (name,) = self.models
        if name not in self.models:
            raise RequestError(404, "no_such_model", f"Name one by `model`: {', '.join(self.models)}.")
        return self.models[name]

    async def answer(self, request: Request) -> bytes:
        """Answer a request for predictions as JSON, within the limits of time and number."""
        if self._slots.locked():
            raise _busy("Too many predictions run; ask again later.")
        wanted = None
        try:
            async with self._slots, asyncio.timeout(self.limits.seconds):
                with self.metrics.running.track_inprogress():
                    wanted = await self._read(request)
                    return await self._predict(request, wanted)
        except TimeoutError:
            if wanted is None:
                raise RequestError(408, "slow_body", "The body took too long.") from None
            raise _busy("The prediction took too long; send fewer items, or ask again later.") from None
        except MemoryError:
            raise _busy("There is not enough memory now; send fewer items, or ask again later.") from None

    async def _read(self, request: Request) -> PredictionRequest:
        body = await self._body(request)
        header = request.headers.get("content-type", "")
        kind = header.partition(";")[0].strip().lower()
        if kind == "application/json":
            return await self._in_thread(read_json, self.json_request, body, self.limits)
        if kind == "multipart/form-data":
            fields = await self._in_thread(read_form, header, body, self.limits)
            return self.form_request.model_validate(fields)
        raise RequestError(415, "other_type", "Send application/json, or multipart/form-data with images.")

    async def _body(self, request: Request) -> bytes:
        limit, size, parts = self.limits.body_bytes, 0, []
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                parts.append(part)
            elif size > _DRAINED * limit:
                break
        if size > limit:
            raise RequestError(413, "too_many_bytes", f"A body may have {limit} bytes at most.")
        return b"".join(parts)

    async def _predict(self, request: Request, wanted: PredictionRequest) -> bytes:
        served, items = self.model(wanted.model), wanted.items
        name, kind = served.about.name, wanted.kind
        request.scope["dppl"].update(model=name, kind=kind, items=len(items))
        if kind not in served.about.takes:
            raise RequestError(422, "other_kind", f"This model takes {' or '.join(served.about.takes)}.")
        reasons: dict[int, str] = {}
        if kind == "embeddings":
            rows = list(wanted.rows(served.about.features))
        else:
            rows, reasons = await self._embed(served, items)
        answer = await self._in_thread(_as_json, served, rows, reasons, wanted)
        self.metrics.predicted(name, kind, len(rows))
        return answer

    async def _embed(self, served: Served, items: list[Any]) -> tuple[list[Any], dict[int, str]]:
        """Return the row of each item, None where it has none, and by position why."""
        prepare = partial(served.prepare, most_pixels=self.limits.pixels)
        tasks = [asyncio.create_task(self._in_thread(prepare, item)) for item in items]
        try:
            prepared = await asyncio.gather(*tasks)
        finally:  # once one item has refused the request, the others are not begun
            for task in tasks:
                task.cancel()
        reasons = {place: reason for place, (_, reason) in enumerate(prepared) if reason is not None}
        usable = [content for content, reason in prepared if reason is None]
        embedded = iter(await self._batches[served.about.name].embed(usable))
        return [None if place in reasons else next(embedded) for place in range(len(items))], reasons

    async def _in_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """Let all threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for batches in self._batches.values():
            batches.close()


def _as_json(served: Served, rows: list[Any], reasons: dict[int, str], wanted: PredictionRequest) -> bytes:
    """Return `Predictions` as JSON: many numbers of many classes, which the event loop must not wait for."""
    predictions = (
        Prediction(reason=reasons.get(place, "the encoder cannot embed it"))
        if row is None
        else served.prediction(row, wanted.top, wanted.nearest, wanted.probabilities)
        for place, row in enumerate(rows)
    )
    # One by one: while JSON is written, no other thread runs.
    name = json.dumps(served.about.name).encode()
    return b'{"model":%b,"predictions":[%b]}' % (name, b",".join(map(_PREDICTION.dump_json, predictions)))


def _busy(message: str) -> RequestError:
    return RequestError(503, "busy", message, [("Retry-After", "1")])


def build(models: Sequence[Served], limits: Limits, token: str | None) -> FastAPI:
    """Return the service as an ASGI application; see `dppl.serve.application`."""
    service = _Service(models, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with quiet():  # Pillow, for one, quotes files in its warnings
            yield
        service.close()

    async def explain(_: Request, error: Exception) -> Response:
        return problem(error)

    # Every route answers these. The guard asks for the token; here it is described.
    everywhere = (400, 403, 421) if token is None else (400, 401, 403)
    described = [] if token is None else [Depends(HTTPBearer(scheme_name="token", auto_error=False))]
    app = FastAPI(
        title="dppl",
        version=__version__,
        docs_url=None,  # Swagger's pages load programs from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(EXPECTED, explain),
        responses=_problems(*everywhere),
        dependencies=described,
    )

    bodies = {"application/json": service.json_request, "multipart/form-data": service.form_request}
    content = {kind: {"schema": body.model_json_schema()} for kind, body in bodies.items()}
    content["multipart/form-data"]["encoding"] = {"images": {"contentType": "image/*"}}

    @app.post(
        "/predict",
        response_model=Predictions,
        responses=_problems(404, 408, 413, 415, 422, 503),
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def predict(request: Request) -> Response:
        """Predict the classes of embeddings, texts or images."""
        return Response(await service.answer(request), media_type="application/json")

    @app.get("/model", responses=_problems(404, 422))
    async def model(model: str | None = None) -> ModelAnswer:
        """Show a model and its guarantee."""
        return service.model(model).about

    @app.get("/health")
    async def health() -> Health:
        """Say that the service runs."""
        return Health("ok", list(service.models))

    @app.get("/metrics", response_class=Response, responses=_text("text/plain"))
    async def metrics() -> Response:
        """Return numbers for Prometheus."""
        numbers, kind = service.metrics.page()
        return Response(numbers, headers={"Content-Type": kind})

    html, policy = page()

    @app.get("/", response_class=Response, responses=_text("text/html"))
    async def index() -> Response:
        """Show a page to try the models."""
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    paths = [route.path for route in app.routes]  # type: ignore[attr-defined]
    app.add_middleware(Guard, metrics=service.metrics, routes=paths, token=token)
    return app


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem, "description": _PROBLEMS[status]} for status in statuses}


def _text(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}
