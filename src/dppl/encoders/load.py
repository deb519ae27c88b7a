"""From a URI to an encoder."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, urlencode

from dppl import _validate
from dppl.encoders.encoder import Encoder
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.presets import PRESETS
from dppl.errors import InputError, ParameterError

# The module of each scheme, and the function that loads.
_LOADERS = {
    "hf": ("dppl.encoders.transformers", "load"),
    "minilm": ("dppl.encoders.transformers", "load_minilm"),
    "onnx": ("dppl.encoders.onnx", "load"),
    "pixels": ("dppl.encoders.pixels", "load"),
    "python": ("dppl.encoders.python", "load"),
    "st": ("dppl.encoders.transformers", "load_sentences"),
    "timm": ("dppl.encoders.timm", "load"),
}
_NAMELESS = {"minilm", "pixels"}
_FORMS = (
    "timm:NAME[@CHECKPOINT], hf:NAME, st:NAME, onnx:FILE, python:MODULE:FUNCTION@WEIGHTS?size=N, minilm, pixels, "
    f"{', '.join(PRESETS)}"
)

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
Precision: TypeAlias = Literal["auto", "float32", "float16"]


def load_encoder(
    uri: str,
    *,
    device: Device = "auto",
    precision: Precision = "auto",
    batch_rows: int | None = None,
    predicting: bool = False,
) -> Encoder:
    """Load a frozen public encoder from this machine; nothing is downloaded.

    Parameters
    ----------
    uri : str
        ``timm:NAME[@CHECKPOINT]``, ``hf:NAME``, ``st:NAME``, ``onnx:FILE``, ``python:MODULE:FUNCTION@WEIGHTS?size=N``,
        ``minilm``, ``pixels`` or the name of one of `PRESETS`. NAME is a name on the Hugging Face hub whose files are
        in its cache, or a local path. Options follow as in ``hf:NAME?pooling=cls``; the module of each scheme says
        which. ``python:`` runs the code that it names, so never take such a URI from a file that others wrote.
    device : {"auto", "cpu", "cuda"}
        ``"auto"`` takes a GPU if torch finds one.
    precision : {"auto", "float32", "float16"}
        ``"auto"`` is float16 (with float32 where that would overflow) on a GPU and float32 on a CPU.
    batch_rows : int, default=None
        Rows of a batch, fixed for all that this encoder computes. By default the largest number, up to one that keeps
        the device busy, that fits into memory, found on synthetic rows.
    predicting : bool, default=False
        Whether it is for predictions alone and never for a fit: what an earlier load found on this machine then counts
        without another trial, which saves seconds.

    Returns
    -------
    Encoder
        Pickled, it is its URI, device, precision and `batch_rows`, and is loaded again on arrival.

    Raises
    ------
    ParameterError
        If a parameter breaks its rule, or the model has batch normalisation in training mode or otherwise mixes the
        rows of a batch, changes while it computes, or may get an input that it cannot take.
    InputError
        If the weights are not on this machine, or cannot be loaded.
    MissingExtra
        If a library is not installed.

    Notes
    -----
    **Privacy.** The encoder knows no private data: its shapes, batch sizes and checks come from synthetic rows. An
    embedding is a function of its image or text alone if ``fingerprint.row_independent``; see `dppl.encoders.fixed`.
    """
    _validate.one_of(get_args(Device), device=device)
    _validate.one_of(get_args(Precision), precision=precision)
    preset = PRESETS.get(uri)
    scheme, source = _parse(preset.uri if preset else uri)
    try:
        module, function = _LOADERS[scheme]
        network = getattr(importlib.import_module(module), function)(source, device, precision)
    except InputError as error:
        raise InputError(f"{error} {preset.weights}" if preset else str(error)) from None
    name = uri if preset else without_folders(uri)
    place, _, query = uri.partition("?")
    options = {**dict(parse_qsl(query, keep_blank_values=True)), **network.for_texts}
    texts = partial(load_encoder, f"{place}?{urlencode(options)}") if network.for_texts else None
    return FixedShapeEncoder(network, name, batch_rows, partial(load_encoder, uri), texts, predicting)


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a URI behind the scheme: a name or path, and options."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self, known: Collection[str]) -> None:
        """Refuse options that are not known."""
        for option in self.options:
            if option not in known:
                raise ParameterError(
                    f"{option!r} is not an option of this encoder; it has {', '.join(known) or 'none'}."
                )

    def choice(self, option: str, choices: Collection[str], default: str) -> str:
        """Return an option that must be one of `choices`."""
        value = self.options.get(option, default)
        _validate.one_of(choices, **{option: value})
        return value

    def number(self, option: str, default: int) -> int:
        """Return an option that must be a positive integer."""
        value = self.options.get(option)
        if value is None:
            return default
        if not value.isdecimal() or int(value) < 1:
            raise ParameterError(f"{option} must be an integer of at least 1; got {value!r}.")
        return int(value)


def _parse(uri: str) -> tuple[str, Source]:
    place, _, query = uri.partition("?")
    scheme, _, name = place.partition(":")
    if scheme not in _LOADERS or bool(name) == (scheme in _NAMELESS):
        raise ParameterError(f"an encoder is named by {_FORMS}; got {uri!r}.")
    return scheme, Source(name, dict(parse_qsl(query, keep_blank_values=True)))


def is_code(uri: str) -> bool:
    """Tell whether loading what a URI names runs code that the URI chooses."""
    return uri.startswith("python:")


def refuse_code(named: str) -> None:
    """Refuse to load by the URI in a file what runs code: which code runs is not for a file to say."""
    if is_code(named):
        raise InputError(
            "must name the network's code and weights, since a model file does not decide what code runs; this model "
            f"was fitted on {named!r}: give that, with the folders of your files.",
            parameter="encoder",
        )


def without_folders(uri: str) -> str:
    """Leave the folders of local paths out: where someone's files lie is no business of a published model."""
    place, mark, query = uri.partition("?")
    scheme, colon, name = place.partition(":")
    model, at, checkpoint = name.partition("@") if scheme == "timm" else (name, "", "")
    function = ""
    if is_code(uri):
        code, at, checkpoint = name.rpartition("@")
        model, separator, function = code.rpartition(":")
        function = f"{separator}{function}"
    if model and Path(model).exists():
        model = Path(model).resolve().name
    return f"{scheme}{colon}{model}{function}{at}{Path(checkpoint).name}{mark}{query}"
