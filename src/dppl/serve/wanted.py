"""What a request asks for, read from its body. No message quotes a part of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.serve.limits import Limits, Refused

__all__ = ["Wanted", "request_schema", "wanted_of_form", "wanted_of_json"]

_TOP, _NEAREST = 5, 3
_OPTIONS = ("model", "top", "nearest", "probabilities")
_LONGEST = 1000  # characters of the name of a model, or of an option in a form


@dataclass(frozen=True, slots=True)
class Wanted:
    """Items of one kind, and what to tell of each."""

    kind: str
    items: list[Any]  # of lists of numbers, str or bytes
    model: str | None = None
    top: int = _TOP  # top, nearest: how many classes and prototypes to tell
    nearest: int = _NEAREST
    probabilities: bool = False  # whether to tell those of all classes

    def rows(self, n_features: int | None) -> NDArray[np.float64]:
        """Return embeddings as an array; refuse those of another width."""
        if any(len(item) != n_features for item in self.items):
            raise Refused(422, "wrong_width", f"An embedding of this model has {n_features} numbers.")
        try:
            return np.array(self.items, np.float64)
        except OverflowError:
            raise Refused(422, "not_finite", "An embedding holds a number that is too large.") from None


def wanted_of_json(body: bytes, limits: Limits) -> Wanted:
    """Read a JSON object."""
    if _opens_more_than(limits.items + 2, body):  # the object, the list of items and theirs
        raise _too_many(limits)
    try:
        content = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Refused(400, "not_json", "The body is not JSON in UTF-8.") from None
    if not isinstance(content, dict):
        raise _invalid("The body must be a JSON object.")
    given = [kind for kind in ("embeddings", "texts") if kind in content]
    if len(given) != 1 or not set(content) <= {*given, *_OPTIONS}:
        raise _invalid(f"Give either embeddings or texts, and besides only {', '.join(_OPTIONS)}.")
    (kind,) = given
    items = _many(content[kind], kind)
    _check_number(len(items), limits)
    good = _is_row if kind == "embeddings" else _is_text
    if not all(map(good, items)):
        raise _invalid(f"{kind} must be {_ONE[kind]}, or a list of such.")
    return Wanted(kind, items, **_options(content))


def _opens_more_than(most: int, body: bytes) -> bool:
    """Tell whether there are more lists and objects, before they are made: millions of empty ones take seconds."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    plain = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    within_text = np.logical_xor.accumulate(plain == ord('"'))
    opening = (plain == ord("[")) | (plain == ord("{"))
    return bool(np.count_nonzero(opening & ~within_text) > most)


_ONE = {"embeddings": "a list of numbers", "texts": "a text"}


def _refuse_constant(_: str) -> None:
    raise ValueError


def _many(value: Any, kind: str) -> list[Any]:
    """Return a list of items; one may come without it."""
    if not isinstance(value, list):
        return [value]
    alone = kind == "embeddings" and bool(value) and not isinstance(value[0], list)
    return [value] if alone else value


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) in (int, float) for number in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def wanted_of_form(content_type: str, body: bytes, limits: Limits) -> Wanted:
    """Read a form of several parts, whose `images` are files; no part of it touches the disk."""
    multipart = optional("python_multipart", "python-multipart", "serve")
    images: list[bytes] = []
    fields: dict[str, str] = {}

    def on_file(file: Any) -> None:
        if file.field_name != b"images":
            raise _invalid("Give files as images.")
        if len(images) == limits.items:
            raise _too_many(limits)
        file.file_object.seek(0)
        images.append(file.file_object.read())

    def on_field(field: Any) -> None:
        name, value = ((part or b"").decode("utf-8", "replace") for part in (field.field_name, field.value))
        if name not in _OPTIONS or name in fields or len(value) > _LONGEST:
            raise _invalid(f"Give files as images, and besides only {', '.join(_OPTIONS)}, each once and short.")
        fields[name] = value

    config = {"MAX_MEMORY_FILE_SIZE": len(body) + 1, "MAX_BODY_SIZE": len(body) + 1}
    try:
        parser = multipart.create_form_parser({"Content-Type": content_type}, on_field, on_file, config=config)
        parser.write(body)
        parser.finalize()
    except ValueError:  # of which its own errors are
        raise Refused(400, "not_a_form", "The body is not a form of several parts.") from None
    _check_number(len(images), limits)
    return Wanted("images", images, **_options(_parsed(fields)))


def _parsed(fields: dict[str, str]) -> dict[str, Any]:
    """Read the options of a form, which are texts, as JSON has them."""
    words = {"true": True, "false": False}
    found: dict[str, Any] = {}
    for name, value in fields.items():
        plain = value.isascii() and value.isdigit() and len(value) < 10
        found[name] = value if name == "model" else words.get(value, int(value) if plain else value)
    return found


def _options(content: dict[str, Any]) -> dict[str, Any]:
    found = {name: content[name] for name in _OPTIONS if name in content}
    if "model" in found and not (isinstance(found["model"], str) and len(found["model"]) <= _LONGEST):
        raise _invalid("model must be the name of a model.")
    for name in ("top", "nearest"):
        if name in found:
            value = found[name]
            if isinstance(value, float) and value.is_integer():  # which JSON does not tell apart
                value = int(value)
            if type(value) is not int or value < 0:
                raise _invalid(f"{name} must be a whole number, 0 or more.")
            found[name] = min(value, 1 << 31)
    if not isinstance(found.get("probabilities", False), bool):
        raise _invalid("probabilities must be true or false.")
    return found


def _check_number(count: int, limits: Limits) -> None:
    if not count:
        raise _invalid("Give at least one item.")
    if count > limits.items:
        raise _too_many(limits)


def _too_many(limits: Limits) -> Refused:
    return Refused(422, "too_many_items", f"A request may have {limits.items} items at most.")


def _invalid(message: str) -> Refused:
    return Refused(422, "invalid", message)


def request_schema(limits: Limits, widths: set[int]) -> dict[str, Any]:
    """Return the bodies of a prediction, as OpenAPI describes them, for embeddings of these widths."""
    options = {
        "model": {"type": "string", "description": "Which model, where several are served."},
        "top": {"type": "integer", "minimum": 0, "default": _TOP, "description": "Likeliest classes to tell."},
        "nearest": {"type": "integer", "minimum": 0, "default": _NEAREST, "description": "Prototypes to tell."},
        "probabilities": {"type": "boolean", "default": False, "description": "Tell those of all classes."},
    }
    width = {"minItems": min(widths), "maxItems": max(widths)} if widths else {}
    row = {"type": "array", "items": {"type": "number"}, **width}
    text = {"type": "string"}
    kinds = {"embeddings": row, "texts": text} if widths else {"texts": text}
    several = {"minItems": 1, "maxItems": limits.items}
    bodies = [
        {
            "type": "object",
            "properties": {kind: {"anyOf": [one, {"type": "array", "items": one, **several}]}, **options},
            "required": [kind],
            "additionalProperties": False,
        }
        for kind, one in kinds.items()
    ]
    image = {"type": "string", "format": "binary"}
    form = {
        "type": "object",
        "properties": {"images": {"type": "array", "items": image, **several}, **options},
        "required": ["images"],
        "additionalProperties": False,
    }
    return {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": bodies}},
            "multipart/form-data": {"schema": form, "encoding": {"images": {"contentType": "image/*"}}},
        },
    }
