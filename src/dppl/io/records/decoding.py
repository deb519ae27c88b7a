"""From the bytes of one record to an image or a text. What is rejected depends on those bytes alone."""

from __future__ import annotations

import ctypes
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np

from dppl._utils.optional import optional
from dppl._utils.types import Array
from dppl.io.records.record import BadRecord, Payload
from dppl.reasons import SkipReason

MOST_BYTES = 1 << 28  # of an image file
MOST_TEXT_BYTES = 1 << 24
MOST_PIXELS = 89_478_485  # 256 MiB as RGB
# Formats that Pillow reads by itself: EPS, for one, would start another program on a
# private file.
_FORMATS = (
    "AVIF",
    "BMP",
    "GIF",
    "ICO",
    "JPEG",
    "JPEG2000",
    "MPO",
    "PNG",
    "PPM",
    "TIFF",
    "WEBP",
)
# Colours that Pillow turns into RGB of 8 bits; images of 16 bits have 8 once it has read
# them.
_COLOURS = {
    "1",
    "CMYK",
    "HSV",
    "L",
    "LA",
    "LAB",
    "P",
    "PA",
    "RGB",
    "RGBA",
    "RGBX",
    "RGBa",
    "YCbCr",
}
_INTEGERS = {"I", "I;16", "I;16B", "I;16L", "I;16N"}
# Tags of TIFF.
_BITS = 258
_WHITE_IS_ZERO = 262, 0
_SIGNED = 339, (2,)


class TooManyPixels(BadRecord):
    """An image that its header says to be too large to be decoded."""


def decode(payload: Payload, modality: str, most_pixels: int = MOST_PIXELS) -> Any:
    """Return the upright RGB image, of at most `most_pixels`, or the text or row that a record holds."""
    if modality == "image":
        if hasattr(payload, "convert"):
            return payload
        return _image(payload if isinstance(payload, bytes) else b"", most_pixels)
    if isinstance(payload, Mapping):
        _characters("".join(payload.values()))
        return payload
    return _text(payload)


def described(modality: str) -> str:
    """Name what decodes; it is in the table, because another version may decode another number."""
    if modality == "image":
        return f"Pillow {_pillow('PIL').__version__}, first frame, upright by EXIF, RGB, 8 bits by type"
    return "UTF-8"


class _Quiet:
    """While one thread is inside, none shows warnings or logs, which may quote a file; of huge images they raise."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._undo = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._silence()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._undo.close()

    def _silence(self) -> None:
        with ExitStack() as undo:
            undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            log = logging.getLogger("PIL")
            undo.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL + 1)
            if find_spec("PIL") is not None:
                warnings.simplefilter(
                    "error", _pillow("PIL.Image").DecompressionBombWarning
                )
                for set_handler in _tiff_handlers():
                    undo.callback(set_handler, set_handler(None))
            self._undo = undo.pop_all()


quiet = _Quiet()


@cache
def _tiff_handlers() -> list[Any]:
    """Return what chooses where Pillow's libtiff, if it has one, writes messages: by itself to the process's stderr."""
    library = ctypes.CDLL(_pillow("PIL._imaging").__file__)
    setters = [
        getattr(library, f"TIFFSet{kind}Handler", None) for kind in ("Error", "Warning")
    ]
    for setter in filter(None, setters):
        setter.argtypes = [ctypes.c_void_p]
        setter.restype = ctypes.c_void_p
    return [setter for setter in setters if setter is not None]


def _pillow(module: str) -> Any:
    return optional(module, "pillow", "images")


def _characters(payload: bytes | str) -> str:
    if len(payload) > MOST_TEXT_BYTES:
        raise BadRecord(SkipReason.LONG_TEXT, max_bytes=MOST_TEXT_BYTES)
    try:
        # Surrogates stand for bytes that were no UTF-8; encoding refuses them.
        return (payload if isinstance(payload, bytes) else payload.encode()).decode()
    except UnicodeError:
        raise BadRecord(SkipReason.NOT_UTF8) from None


def _text(payload: bytes | str) -> str:
    text = _characters(payload)
    # What many files that are no text begin with; tokenizers also treat it in their own
    # ways.
    if "\0" in text:
        raise BadRecord(SkipReason.NUL_CHARACTERS)
    if not text.strip():
        raise BadRecord(SkipReason.EMPTY)
    return text


def _image(content: bytes, most_pixels: int) -> Any:
    if not content:
        raise BadRecord(SkipReason.EMPTY)
    if len(content) > MOST_BYTES:
        raise BadRecord(SkipReason.LARGE_FILE, max_bytes=MOST_BYTES)
    pillow = _pillow("PIL.Image")
    try:
        with pillow.open(io.BytesIO(content), formats=_formats()) as image:
            # The header says so, before a pixel is decoded.
            if image.width * image.height > most_pixels:
                raise pillow.DecompressionBombError
            image.load()
            return upright_rgb(image)
    except BadRecord:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise TooManyPixels(
            SkipReason.TOO_MANY_PIXELS, max_pixels=most_pixels
        ) from None
    except _pillow("PIL").UnidentifiedImageError:
        raise BadRecord(SkipReason.UNKNOWN_FORMAT) from None
    except MemoryError:  # says nothing of the image
        raise
    except Exception:  # codecs raise whatever a damaged file leads them to
        raise BadRecord(SkipReason.DAMAGED_IMAGE) from None


@cache
def _formats() -> list[str]:
    pillow = _pillow("PIL.Image")
    pillow.init()
    # A TIFF file that is damaged would show where messages of libtiff cannot be
    # silenced.
    return [
        name
        for name in _FORMATS
        if name in pillow.OPEN and (name != "TIFF" or _tiff_handlers())
    ]


def upright_rgb(image: Any, opened: Any = None) -> Any:
    """Return an image of Pillow as RGB, turned as its EXIF data say; it may be changed.

    `opened` is what a copy was made of, for a copy has no tags.
    """
    tags = getattr(image if opened is None else opened, "tag_v2", {})
    with suppress(Exception):  # EXIF that cannot be read turns nothing
        _pillow("PIL.ImageOps").exif_transpose(image, in_place=True)
    if tags.get(_SIGNED[0]) == _SIGNED[1] and tags.get(_BITS) != (32,):
        raise BadRecord(SkipReason.SIGNED_NUMBERS)
    if image.mode == "La":  # cannot turn into RGB by itself
        image = image.convert("LA")
    if image.mode == "F" or image.mode in _INTEGERS:
        image = _pillow("PIL.Image").fromarray(_in_8_bits(image, tags))
    if image.mode not in _COLOURS:
        raise BadRecord(SkipReason.UNKNOWN_COLOURS)
    return image.convert("RGB")


def _in_8_bits(image: Any, tags: Mapping[int, Any]) -> Array:
    """Return levels of gray by the range of their type, which no pixel decides; Pillow would cut them off at 255.

    Integers of 32 bits hold 16, as Pillow and others write them, and floats lie from
    0 to 1. Numbers beyond are of another range, which no file says.
    """
    values = np.asarray(image)
    is_float = image.mode == "F"
    bits = 12 if tags.get(_BITS) == (12,) else 16
    top = 1 if is_float else (1 << bits) - 1
    # Not `values.min() < 0`: NaN is in no range.
    if not (values.min() >= 0 and values.max() <= top):
        raise BadRecord(SkipReason.NUMBERS_OUT_OF_RANGE, top=top)
    if tags.get(_WHITE_IS_ZERO[0]) == _WHITE_IS_ZERO[1]:
        values = top - values
    levels: Array
    if is_float:
        levels = np.rint(values * 255)
    else:
        levels = values >> (bits - 8)
    return levels.astype(np.uint8)
