"""What a prediction request may hold, as pydantic models. Limits are those of the service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model, model_validator
from pydantic_core import PydanticCustomError, from_json
from python_multipart import create_form_parser

from dppl.serve.limits import Limits, RequestError

__all__ = ["FIELDS", "PredictionRequest", "read", "read_json", "request_models", "too_many_items"]

Kind = Literal["embeddings", "texts", "images"]
FIELDS = (*get_args(Kind), "model", "top", "nearest", "probabilities")


def _whole(value: Any) -> Any:
    """JSON has one kind of number, so 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Count = Annotated[int, Field(ge=0), BeforeValidator(_whole)]


class PredictionRequest(BaseModel):
    """Items of one kind, and what to answer for each. `request_models` adds the items."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    model: str | None = Field(None, max_length=1000, description="Which model, where several are served.")
    top: _Count = Field(5, description="Number of likeliest classes to return.")
    nearest: _Count = Field(3, description="Number of nearest prototypes to return.")
    probabilities: bool = Field(False, description="Whether to return the probabilities of all classes.")

    @property
    def kind(self) -> Kind:
        """The kind of the items."""
        (kind,) = self._kinds()
        return kind

    @property
    def items(self) -> list[Any]:
        """The items as a list, also where one came by itself."""
        value = getattr(self, self.kind)
        return [value] if isinstance(value, str) or isinstance(value[0], float) else value

    def rows(self, n_features: int | None) -> NDArray[np.float64]:
        """Return embeddings as an array; raise unless each has `n_features` numbers."""
        if any(len(item) != n_features for item in self.items):
            raise RequestError(422, "wrong_width", f"An embedding of this model has {n_features} numbers.")
        return np.array(self.items, np.float64)

    def _kinds(self) -> list[Kind]:
        return [kind for kind in get_args(Kind) if kind in self.model_fields_set]

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self._kinds()) != 1:
            raise PydanticCustomError("one_kind", "Send one kind of items.")
        return self


def request_models(limits: Limits, widths: Collection[int]) -> tuple[type[PredictionRequest], type[PredictionRequest]]:
    """Return the models of a JSON body and of a form, for embeddings of these widths."""
    # fail_fast: a body of millions of wrong items yields one error, not millions.
    several = Field(min_length=1, max_length=limits.items, fail_fast=True)
    # The schema shows the widths of all models; `rows` checks that of the one that is asked.
    bounds = {"minItems": min(widths), "maxItems": max(widths)} if widths else {}
    schema = WithJsonSchema({"type": "array", "items": {"type": "number"}, **bounds})
    row = Annotated[list[float], Field(min_length=1, fail_fast=True), schema]
    absent: Any = Field(default_factory=list, union_mode="left_to_right")
    either = ConfigDict(json_schema_extra={"oneOf": [{"required": ["embeddings"]}, {"required": ["texts"]}]})

    class JsonRequest(PredictionRequest):
        model_config = either

    json_request = create_model(
        "JsonRequest",
        __base__=JsonRequest,
        embeddings=(Annotated[list[row], several] | row, absent),
        texts=(Annotated[list[str], several] | str, absent),
    )
    form_request = create_model(
        "FormRequest", __base__=PredictionRequest, images=(Annotated[list[bytes], several], Field())
    )
    return json_request, form_request


def read(
    content_type: str,
    body: bytes,
    json_request: type[PredictionRequest],
    form_request: type[PredictionRequest],
    limits: Limits,
) -> PredictionRequest:
    """Return the request that a body holds; see `request_models` for what it may be."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        return read_json(json_request, body, limits)
    if kind == "multipart/form-data":
        return form_request.model_validate(_fields_of_form(content_type, body, limits))
    raise RequestError(415, "other_type", "Send application/json, or multipart/form-data with images.")


def read_json(model: type[PredictionRequest], body: bytes, limits: Limits) -> PredictionRequest:
    """Return the request that a JSON body holds."""
    if _opens_more_than(limits.items + 2, body):  # the object, the list of items and theirs
        raise too_many_items(limits.items)
    return model.model_validate_json(body)


def _opens_more_than(most: int, body: bytes) -> bool:
    """Count lists and objects before they are made: millions of empty ones would hold the interpreter for seconds."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    plain = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    within_text = np.logical_xor.accumulate(plain == ord('"'))
    opening = (plain == ord("[")) | (plain == ord("{"))
    return bool(np.count_nonzero(opening & ~within_text) > most)


def _fields_of_form(content_type: str, body: bytes, limits: Limits) -> dict[str, Any]:
    """Return the fields of a form as JSON would hold them; no part of it touches the disk."""
    fields: dict[str, list[Any]] = defaultdict(list)

    def add(part: Any) -> None:
        name = (part.field_name or b"").decode("utf-8", "replace")
        if hasattr(part, "file_object"):
            part.file_object.seek(0)
            value = part.file_object.read()
        else:
            value = (part.value or b"").decode("utf-8", "replace")
            if name != "model":  # numbers and truth values are written as in JSON
                with suppress(ValueError):
                    value = from_json(value)
        fields[name].append(value)
        if len(fields[name]) > limits.items:  # the many others are not made
            raise too_many_items(limits.items)

    whole = {"MAX_MEMORY_FILE_SIZE": len(body) + 1, "MAX_BODY_SIZE": len(body) + 1}
    try:
        parser = create_form_parser({"Content-Type": content_type.encode()}, add, add, config=whole)
        parser.write(body)
        parser.finalize()
    except ValueError:  # the parser's own errors are such
        raise RequestError(400, "not_a_form", "The body is not a form of several parts.") from None
    return {name: parts if name == "images" or len(parts) > 1 else parts[0] for name, parts in fields.items()}


def too_many_items(most: int) -> RequestError:
    """Return the refusal of a request with more items."""
    return RequestError(422, "too_many_items", f"A request may have {most} items at most.")
