"""What a request may ask for, and how one that asks for more is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dppl import _validate
from dppl.errors import ParameterError
from dppl.io.decoding import MOST_PIXELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may ask for, and how many may run at a time."""

    body_bytes: int = 1 << 24
    items: int = 256  # embeddings, texts or images in a request, and items in a batch of the encoder
    pixels: int = 40_000_000  # of an image, read from its header before it is decoded
    seconds: float = 30.0  # from the first byte of the body to the answer
    requests: int = 64  # predictions that may run or wait

    def __post_init__(self) -> None:
        for name in ("body_bytes", "items", "pixels", "requests"):
            _validate.positive_integer(**{name: getattr(self, name)})
        _validate.positive(seconds=self.seconds)
        if self.pixels > MOST_PIXELS:
            raise ParameterError(f"must be at most {MOST_PIXELS}; got {self.pixels}.", parameter="pixels")


class RequestError(Exception):
    """A refused request: a status, a word for programs, and a message that holds no part of the request."""

    def __init__(self, status: int, code: str, message: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers
