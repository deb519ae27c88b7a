"""JSON that comes from outside: of bounded length, depth and numbers, or a ValueError.

Whatever is read so can be walked, converted to floats and written again.
"""

import json
import math
import re
from decimal import Decimal
from typing import Any

# Bytes of one text, and values in it: what they take in memory and time.
MOST_BYTES = 2**24
MOST_PARTS = 2**20
_DEEPEST = 32
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_DIGITS = 19  # of an integer, which so is one of about 64 bits


def parse_json(text: str | bytes, most_bytes: int = MOST_BYTES) -> Any:
    """Return what such a text holds; a ValueError if it is no JSON, or more than any file of dppl."""
    if len(text) > most_bytes:
        raise ValueError(f"a text of JSON has more than {most_bytes} bytes")
    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if (
        n_parts(content) > MOST_PARTS
        and n_parts(_STRINGS.sub(b"", content)) > MOST_PARTS
    ):
        raise ValueError(f"a text of JSON has more than {MOST_PARTS} parts")
    try:
        value = json.loads(
            text,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_float,
            object_pairs_hook=_object,
        )
    except RecursionError:
        value = None
        too_deep = True
    else:
        too_deep = _is_deep(value)
    if too_deep:
        raise ValueError(f"a text of JSON has more than {_DEEPEST} levels")
    return value


def n_parts(content: bytes) -> int:
    """Return how many values a text holds at most, those within texts included."""
    return sum(map(content.count, (b"{", b"[", b",")))


def parse_any(text: str | bytes) -> Any:
    """Return what a text of JSON holds, of any size: of records, or written by a library; a ValueError if it is none.

    A number that only rounding makes whole is a `Decimal`, and no id.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    try:
        return _ANY.decode(text)
    except RecursionError:
        raise ValueError("a text of JSON has too many levels") from None


def _faithful(digits: str) -> float | Decimal:
    value = float(digits)
    rounded = value.is_integer() and Decimal(digits) != value
    return Decimal(digits) if rounded else value


_ANY = json.JSONDecoder(parse_float=_faithful)  # made once, as it takes time


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return value


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > _DIGITS:
        raise ValueError(f"an integer has more than {_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number is not finite")
    return value


def _is_deep(value: Any) -> bool:
    """Whether lists and objects are nested too deep."""
    level = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += [inner for inner in one.values() if _nests(inner)]
            elif isinstance(one, list):
                below += [inner for inner in one if _nests(inner)]
        if not below:
            return False
        level = below
    return True


def _nests(value: Any) -> bool:
    return isinstance(value, dict | list)
