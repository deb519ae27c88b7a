"""What is asked and answered, as pydantic models; OpenAPI is made of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dppl.serve.limits import Limits, RequestError

Kind = Literal["embeddings", "texts", "images"]
FIELDS = (*get_args(Kind), "model", "top", "nearest", "probabilities")


def _whole(value: Any) -> Any:
    """JSON has one kind of number, so 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Count = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
_Image = Annotated[Base64Bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]


class PredictionRequest(BaseModel):
    """Items of one kind, and what to answer for each. `request_model` adds the items."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in get_args(Kind)]},
    )

    model: str | None = Field(None, max_length=1000, description="Which model, where several are served.")
    top: _Count = Field(5, description="Number of likeliest classes to return.")
    nearest: _Count = Field(3, description="Number of nearest prototypes to return.")
    probabilities: bool = Field(False, description="Whether to return the probabilities of all classes.")

    @property
    def kind(self) -> str:
        """The kind of the items."""
        (kind,) = self.model_fields_set & set(get_args(Kind))
        return kind

    @property
    def items(self) -> list[Any]:
        """The items."""
        items: list[Any] = getattr(self, self.kind)
        return items

    def rows(self, n_features: int | None) -> NDArray[np.float64]:
        """Return embeddings as an array; raise unless each has `n_features` numbers."""
        if any(len(item) != n_features for item in self.items):
            raise RequestError(422, "wrong_width", f"An embedding of this model has {n_features} numbers.")
        return np.array(self.items, np.float64)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set & set(get_args(Kind))) != 1:
            raise PydanticCustomError("one_kind", "Send one kind of items.")
        return self


def request_model(limits: Limits, widths: Collection[int]) -> type[PredictionRequest]:
    """Return the model of a body, for embeddings of these widths."""
    # fail_fast: a body of millions of wrong items yields one error, not millions.
    several: Any = Field(default_factory=list, min_length=1, max_length=limits.items, fail_fast=True)
    # The schema shows the widths of all models; `rows` checks against the requested one.
    bounds = {"minItems": min(widths), "maxItems": max(widths)} if widths else {}
    schema = WithJsonSchema({"type": "array", "items": {"type": "number"}, **bounds})
    row = Annotated[list[float], Field(min_length=1, fail_fast=True), schema]
    items: dict[str, Any] = {
        "embeddings": (list[row], several),
        "texts": (list[str], several),
        "images": (list[_Image], several),
    }
    return create_model("Request", __base__=PredictionRequest, **items)


def read_json(model: type[PredictionRequest], body: bytes, limits: Limits) -> PredictionRequest:
    """Return the request that a JSON body holds."""
    # The object, the list of items and each item open a bracket. They are counted before they are made, since millions
    # of empty ones would hold the interpreter for seconds.
    most = limits.items + 2
    if body.count(b"[") + body.count(b"{") > most:
        plain = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
        inside_text = np.logical_xor.accumulate(plain == ord('"'))
        opening = (plain == ord("[")) | (plain == ord("{"))
        if np.count_nonzero(opening & ~inside_text) > most:
            raise too_many_items(limits.items)
    return model.model_validate_json(body)


def too_many_items(most: int) -> RequestError:
    """Return the refusal of a request with more items."""
    return RequestError(422, "too_many_items", f"A request may have {most} items at most.")


Label = str | int | float | bool


class Probability(BaseModel):
    """A class and its probability, for classes that are equally frequent."""

    label: Label
    probability: float


class Nearest(BaseModel):
    """A released prototype: its class, its cosine with the item, and the public row that it is, if it is one."""

    label: Label
    similarity: float
    public_row: int | None
    public_id: str | None


class Prediction(BaseModel):
    """The prediction for one item. If the item cannot be used, the label is null, and `reason` says why."""

    label: Label | None = None
    top: list[Probability] = []
    nearest: list[Nearest] = []
    probabilities: list[float] | None = None
    reason: str | None = None


class Predictions(BaseModel):
    """The answer to a prediction: one entry per item, in their order."""

    model: str
    predictions: list[Prediction]


class ModelAnswer(BaseModel):
    """A model: what it takes, its classes, its guarantee and its card."""

    name: str
    estimator: str
    takes: list[str]
    features: int | None
    encoder: str | None
    classes: list[Label]
    descriptions: list[list[str]] | None
    summary: str
    in_short: list[list[str]]
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
