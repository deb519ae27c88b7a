"""The service as an ASGI application: its routes, their description, and how a prediction runs."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer

from dppl._version import __version__
from dppl.errors import ParameterError
from dppl.io.records.decoding import quiet
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason
from dppl.serve.batches import Batches
from dppl.serve.guard import EXPECTED, Guard, problem
from dppl.serve.models import Served, not_predicted
from dppl.serve.requests import (
    KINDS,
    Health,
    ModelAnswer,
    PredictionsAnswer,
    Problem,
    RequestError,
    read_json,
    request_model,
)

if TYPE_CHECKING:
    from dppl.serve.server import Limits


class _Service:
    """The models, and what their predictions share."""

    def __init__(self, models: Sequence[Served], limits: Limits) -> None:
        self.models = {served.about.name: served for served in models}
        if len(self.models) < max(1, len(models)):
            raise ParameterError("models must have different names; rename a file.")
        self.request = request_model(
            limits.items,
            [s.about.features for s in models if s.about.features is not None],
        )
        self.limits = limits
        self._slots = asyncio.Semaphore(limits.requests)
        # One thread for each prediction that may run: most of its time it waits for the
        # encoder.
        self._threads = ThreadPoolExecutor(limits.requests, "dppl-predict")
        encoders = {
            name: served.encoder
            for name, served in self.models.items()
            if served.encoder is not None
        }
        self._batches = {
            name: Batches(encoder, limits.items) for name, encoder in encoders.items()
        }

    def model(self, name: str | None) -> Served:
        """Return a model by name; None is the only one."""
        if name is None and len(self.models) == 1:
            (name,) = self.models
        if name not in self.models:
            raise RequestError(
                404, "no_such_model", f"Name one by `model`: {', '.join(self.models)}."
            )
        return self.models[name]

    async def answer(self, request: Request) -> bytes:
        """Answer a request for predictions as JSON, within the limits of time and number."""
        if self._slots.locked():
            raise _busy("Too many predictions are running; ask again later.")
        body = None
        deadline = monotonic() + self.limits.seconds
        try:
            async with self._slots, asyncio.timeout(self.limits.seconds):
                body = await self._body(request)
                run = asyncio.get_running_loop().run_in_executor
                return await run(self._threads, self._predict, request, body, deadline)
        except TimeoutError:
            if body is None:
                raise RequestError(
                    408, "slow_body", "The body took too long."
                ) from None
            raise _busy(
                "The prediction took too long; send fewer items, or ask again later."
            ) from None
        except MemoryError:
            raise _busy(
                "There is not enough memory now; send fewer items, or ask again later."
            ) from None

    async def _body(self, request: Request) -> bytes:
        if (
            request.headers.get("content-type", "").partition(";")[0].strip().lower()
            != "application/json"
        ):
            raise RequestError(
                415, "other_type", "Send application/json; images go in as base64."
            )
        # A small packed body may be a large one, so none is unpacked.
        if any(
            one.strip().lower() != "identity"
            for one in request.headers.getlist("content-encoding")
        ):
            raise RequestError(
                415,
                "packed",
                "Send the body without Content-Encoding: packed ones are not read.",
                {"Accept-Encoding": "identity"},
            )
        limit = self.limits.body_bytes
        size = 0
        parts = []
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise RequestError(
                    413, "too_many_bytes", f"A body may have {limit} bytes at most."
                )
            parts.append(part)
        return b"".join(parts)

    def _predict(self, request: Request, body: bytes, deadline: float) -> bytes:
        """Read a body and return `PredictionsAnswer` as JSON; in a thread, because all of it keeps a processor busy."""
        asked = read_json(self.request, body, self.limits.items)
        served = self.model(asked.model)
        name = served.about.name
        width = served.about.features
        (kind,) = asked.model_fields_set.intersection(KINDS)
        items: list[Any] = getattr(asked, kind)
        request.scope["dppl"].update(model=name, kind=kind, items=len(items))
        if kind not in served.about.takes:
            raise RequestError(
                422,
                "other_kind",
                f"This model takes {' or '.join(served.about.takes)}.",
            )
        least = served.least_of(asked)
        reasons = dict[int, Term[SkipReason]]()
        if kind == "embeddings":
            if any(len(row) != width for row in items):
                raise RequestError(
                    422,
                    "wrong_width",
                    f"An embedding of this model has {width} numbers.",
                )
            rows = list(np.array(items, np.float64))
        else:
            if kind == "rows":
                items = served.texts_of_rows(items)
            rows, reasons = self._embed(served, items, deadline)
        predictions = []
        for place, row in enumerate(rows):
            if row is None:
                reason = reasons.get(place, Term(SkipReason.NOT_EMBEDDED))
                one = not_predicted(reason)
            else:
                one = served.prediction(row, asked.top, asked.probabilities, least)
            predictions.append(one)
        return (
            PredictionsAnswer(model=name, predictions=predictions)
            .model_dump_json()
            .encode()
        )

    def _embed(
        self, served: Served, items: list[Any], deadline: float
    ) -> tuple[list[Any], dict[int, Term[SkipReason]]]:
        """Return the row of each item, None where it has none, and the reasons by position."""
        usable = []
        reasons: dict[int, Term[SkipReason]] = {}
        for place, item in enumerate(items):
            if monotonic() > deadline:
                raise TimeoutError
            content, reason = served.prepare(item, most_pixels=self.limits.pixels)
            if reason is None:
                usable.append(content)
            else:
                reasons[place] = reason
        embedded = iter(self._batches[served.about.name].embed(usable, deadline))
        return [
            None if place in reasons else next(embedded) for place in range(len(items))
        ], reasons


def _busy(message: str) -> RequestError:
    return RequestError(503, "busy", message, {"Retry-After": "1"})


def build(models: Sequence[Served], limits: Limits, token: str | None) -> FastAPI:
    """Return the service as an ASGI application; see `dppl.serve.application`."""
    service = _Service(models, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with quiet():  # Pillow, for one, quotes files in its warnings
            yield

    async def explain(_: Request, error: Exception) -> Response:
        return problem(error)

    # The guard asks for the token; here it is described.
    dependencies = []
    if token is not None:
        dependencies = [Depends(HTTPBearer(scheme_name="token", auto_error=False))]
    app = FastAPI(
        title="dppl",
        version=__version__,
        docs_url=None,  # Swagger's pages load programs from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(EXPECTED, explain),
        responses={
            "default": {
                "model": Problem,
                "description": "Why there is no other answer.",
            }
        },
        dependencies=dependencies,
    )
    content = {"application/json": {"schema": service.request.model_json_schema()}}

    @app.post(
        "/predict",
        response_model=PredictionsAnswer,
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def predict(request: Request) -> Response:
        """Predict the classes of embeddings, texts, images or rows."""
        return Response(await service.answer(request), media_type="application/json")

    @app.get("/model")
    async def model(model: str | None = None) -> ModelAnswer:
        """Show a model and its guarantee."""
        return service.model(model).about

    @app.get("/health")
    async def health() -> Health:
        """Say that the service runs."""
        return Health(status="ok", models=list(service.models))

    @app.head("/health", include_in_schema=False)
    async def alive() -> Response:
        """Say the same to those who ask for the status alone."""
        return Response()

    html, policy = page()

    # A refusal of the page is JSON, too, which FastAPI would describe as HTML.
    refusal = {
        "description": "Why there is no page.",
        "content": {"application/json": {}},
    }

    @app.get("/", response_class=HTMLResponse, responses={"default": refusal})
    async def index() -> Response:
        """Show a page to try the models."""
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    paths = [route.path for route in app.routes]  # type: ignore[attr-defined]
    app.add_middleware(Guard, routes=paths, token=token)
    return app


@cache
def page() -> tuple[str, str]:
    """Return the page, and the policy that lets nothing else run in it: the hashes of its own style and program."""
    html = files("dppl.serve").joinpath("page.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        hashes[tag] = (
            f"'sha256-{base64.b64encode(sha256(content.encode()).digest()).decode()}'"
        )
    return html, (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; connect-src 'self'; "
        "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
