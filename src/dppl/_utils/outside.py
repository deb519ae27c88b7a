"""JSON that comes from outside: of bounded length, depth and numbers, or a ValueError.

Whatever is read so can be walked, converted to floats and written again.
"""

import json
import math
import re
from decimal import Decimal
from itertools import accumulate
from typing import Any

# Bytes of one text, and values in it: what they take in memory and time.
MOST_BYTES = 2**24
MOST_PARTS = 2**20
_DEEPEST = 32
_DEEPEST_OTHER = 200  # of what others write
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_DIGITS = 19  # of an integer, which so is one of about 64 bits


def parse_json(text: str | bytes, most_bytes: int = MOST_BYTES) -> Any:
    """Return what such a text holds; a ValueError if it is no JSON, or more than any file of dppl."""
    if len(text) > most_bytes:
        raise ValueError(f"a text of JSON has more than {most_bytes} bytes")
    text = _flat(text, _DEEPEST)
    if n_parts(text) > MOST_PARTS and n_parts(_STRINGS.sub("", text)) > MOST_PARTS:
        raise ValueError(f"a text of JSON has more than {MOST_PARTS} parts")
    return json.loads(
        text,
        parse_int=_integer,
        parse_float=_float,
        parse_constant=_float,
        object_pairs_hook=_object,
    )


def n_parts(text: str) -> int:
    """Return how many values a text holds at most, those within texts included."""
    return sum(map(text.count, "{[,"))


def parse_any(text: str | bytes) -> Any:
    """Return what a text of JSON holds, of any size: of records, or written by a library; a ValueError if it is none.

    A number that only rounding makes whole is a `Decimal`, and no id.
    """
    return _ANY.decode(_flat(text, _DEEPEST_OTHER))


def _flat(text: str | bytes, deepest: int) -> str:
    """Return a text of JSON, or a ValueError if it is too deep.

    It is seen before the text is parsed: near the end of the stack, whatever else runs there fails, too.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if text.count("[") + text.count("{") > deepest:
        brackets = _BRACKETS.findall(_STRINGS.sub("", text))
        levels = accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
        if max(levels, default=0) > deepest:
            raise ValueError(f"a text of JSON has more than {deepest} levels")
    return text


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
