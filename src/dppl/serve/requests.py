"""What is asked and answered, as pydantic models; OpenAPI is made of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Self

import numpy as np
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

KINDS = ("embeddings", "texts", "images", "rows")
Cell = str | int | float | bool | None
FIELDS = (*KINDS, "model", "top", "probabilities", "min_confidence", "min_similarity")
_Image = Annotated[
    Base64Bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]


class RequestError(Exception):
    """A refused request: a status, a word for programs, and a message that holds no part of the request."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


class PredictionRequest(BaseModel):
    """Items of one kind, and what to answer for each. `request_model` adds the items."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]},
    )

    model: str | None = Field(
        None, max_length=1000, description="Which model, where several are served."
    )
    top: int = Field(5, ge=0, description="Number of likeliest classes to return.")
    probabilities: bool = Field(
        False, description="Whether to return the probabilities of all classes."
    )
    min_confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Least probability of a label; below it the item gets none.",
    )
    min_similarity: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Least cosine with a class; below it the item is of none of them.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set.intersection(KINDS)) != 1:
            raise PydanticCustomError("one_kind", "Send one kind of items.")
        return self


def request_model(most: int, widths: Collection[int]) -> type[PredictionRequest]:
    """Return the model of a body of at most so many items, for embeddings of these widths."""
    # fail_fast: a body of millions of wrong items yields one error, not millions.
    several: Any = Field(
        default_factory=list, min_length=1, max_length=most, fail_fast=True
    )
    # The schema shows the widths of all models; `rows` checks against the requested
    # one.
    if widths:
        bounds = {"minItems": min(widths), "maxItems": max(widths)}
    else:
        bounds = {}
    schema = WithJsonSchema({"type": "array", "items": {"type": "number"}, **bounds})
    row = Annotated[list[float], Field(min_length=1, fail_fast=True), schema]
    items: dict[str, Any] = {
        "embeddings": (list[row], several),
        "texts": (list[str], several),
        "images": (list[_Image], several),
        "rows": (list[dict[str, Cell]], several),
    }
    return create_model("Request", __base__=PredictionRequest, **items)


def read_json(
    model: type[PredictionRequest], body: bytes, n_items: int
) -> PredictionRequest:
    """Return the request that a JSON body holds."""
    # The object, the list of items and each item open a bracket. They are counted
    # before they are made, since millions of empty ones would hold the interpreter for
    # seconds.
    most = n_items + 2
    if body.count(b"[") + body.count(b"{") > most:
        plain = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
        inside_text = np.logical_xor.accumulate(plain == ord('"'))
        opening = (plain == ord("[")) | (plain == ord("{"))
        if np.count_nonzero(opening & ~inside_text) > most:
            raise too_many_items(n_items)
    return model.model_validate_json(body)


def too_many_items(most: int) -> RequestError:
    """Return the refusal of a request with more items."""
    return RequestError(
        422, "too_many_items", f"A request may have {most} items at most."
    )


Label = str | int | float | bool


class ClassProbability(BaseModel):
    """A class and its probability, for classes that are equally frequent."""

    label: Label
    probability: float


class Prediction(BaseModel):
    """The prediction for one item. Where there is no label, `reason` says why, and `top` has the nearest classes.

    The reason is a code, ``not_sure`` or ``none_of_these``; an item that cannot be used
    has another, and no classes. `message` says it for people.

    A model of several labels a record answers with `labels`, perhaps none of them;
    `label` is null then.
    """

    label: Label | None = None
    labels: list[Label] | None = None
    top: list[ClassProbability] = []
    probabilities: list[float] | None = None
    reason: str | None = None
    message: str | None = None
    similarity: float | None = None


class PredictionsAnswer(BaseModel):
    """The answer to a prediction: one entry per item, in their order."""

    model: str
    predictions: list[Prediction]


class FieldAnswer(BaseModel):
    """A field of a row: its name and kind, and the values that it may have, or its bounds."""

    name: str
    kind: str
    values: list[str] = []
    low: float | str | None = None
    high: float | str | None = None


class ModelAnswer(BaseModel):
    """A model: what it takes, its classes, its guarantee and its card; and the fields of a row, if it takes rows."""

    name: str
    estimator: str
    takes: list[str]
    features: int | None
    encoder: str | None
    fields: list[FieldAnswer] = []
    classes: list[Label]
    summary: str
    in_short: list[list[str]]
    min_confidence: float | None
    min_similarity: float | None
    statement: str
    card: str


class Health(BaseModel):
    """That the service runs, and the names of its models."""

    status: str
    models: list[str]


class Problem(BaseModel):
    """Why a request got no other answer: a word for programs, and a sentence for people."""

    error: str
    message: str
