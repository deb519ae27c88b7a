"""From a URI to an encoder."""

import importlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, overload
from urllib.parse import parse_qsl, urlencode

from dppl._utils import validate
from dppl.encoders import columns
from dppl.encoders.catalogue import PRESETS, reads
from dppl.encoders.fixed import Adapter, Encoder, FixedShapeEncoder
from dppl.encoders.windows import TextWindows
from dppl.errors import InputError, ParameterError

# The module of each scheme: `load` returns its adapter, and `windows`, if it is for
# texts, its tokenizer alone.
MODULES = {
    **dict.fromkeys(("hf", "minilm", "st"), "dppl.encoders.transformers"),
    **{scheme: f"dppl.encoders.{scheme}" for scheme in ("onnx", "python", "timm")},
    "pixels": "dppl.encoders.pixels",
}
NAMELESS = {"minilm", "pixels"}
_FORMS = (
    "columns:SCHEMA, timm:NAME[@CHECKPOINT], hf:NAME, st:NAME, onnx:FILE, "
    f"python:MODULE:FUNCTION@WEIGHTS?size=N, minilm, pixels or {', '.join(PRESETS)}"
)

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
EncoderPrecision: TypeAlias = Literal["auto", "float32", "float16"]


def load_encoder(
    uri: str,
    *,
    device: Device = "auto",
    precision: EncoderPrecision = "auto",
    batch_rows: int | None = None,
    trial: bool = True,
) -> Encoder:
    """Load a frozen public encoder from this machine; nothing is downloaded.

    Parameters
    ----------
    uri : str
        ``columns:SCHEMA``, ``timm:NAME[@CHECKPOINT]``, ``hf:NAME``, ``st:NAME``, ``onnx:FILE``,
        ``python:MODULE:FUNCTION@WEIGHTS?size=N``, ``minilm``, ``pixels`` or the name of
        one of `PRESETS`. NAME is a name on the Hugging Face hub whose files are in its
        cache, or a local path. Options follow as in ``hf:NAME?pooling=cls``; the module
        of each scheme says which. ``python:`` runs the code that it names, so never
        take such a URI from a file that others wrote.
    device : {"auto", "cpu", "cuda"}
        ``"auto"`` is what the environment variable ``DPPL_DEVICE`` says, or else takes
        a GPU if torch finds one.
    precision : {"auto", "float32", "float16"}
        ``"auto"`` is float16 (with float32 where that would overflow) on a GPU and
        float32 on a CPU.
    batch_rows : int, default=None
        Rows of a batch, fixed for all that this encoder computes. By default the
        largest number, up to one that keeps the device busy, that fits into memory,
        found on synthetic rows.
    trial : bool, default=True
        Whether to try on synthetic rows that no row changes another. This takes
        seconds, and predictions need it not. Without it the fingerprint says that rows
        are not independent.

    Returns
    -------
    Encoder
        Pickled, it is its URI, device, precision and `batch_rows`, and is loaded again
        on arrival.

    Raises
    ------
    ParameterError
        If a parameter breaks its rule, or the model has batch normalisation in training
        mode or otherwise mixes the rows of a batch, changes while it computes, or may
        get an input that it cannot take.
    InputError
        If the weights are not on this machine, or cannot be loaded.
    MissingExtra
        If a library is not installed.

    Notes
    -----
    **Privacy.** The encoder knows no private data: its shapes, batch sizes and checks
    come from synthetic rows. An embedding is a function of its image or text alone if
    ``fingerprint.row_independent``; see `dppl.encoders.fixed`.
    """
    if uri.startswith(columns.SCHEME):
        return columns.load(
            uri, partial(load_encoder, device=device, precision=precision, trial=trial)
        )
    adapter = load_adapter(uri, device, precision)
    text_loader = None
    if adapter.for_texts:
        place, _, query = uri.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True)) | dict(
            adapter.for_texts
        )
        text_loader = partial(load_encoder, f"{place}?{urlencode(options)}")
    encoder = FixedShapeEncoder(
        adapter, without_folders(uri), batch_rows, text_loader, trial=trial
    )
    same: dict[str, Any] = {
        "device": adapter.device,
        "precision": adapter.dtype,
        "batch_rows": encoder.batch_rows,
        "trial": trial,
    }
    encoder.loader = partial(load_encoder, uri, **same)
    return encoder


def chosen_device(device: Device) -> Device:
    """Return the device that was named, or for "auto" what this machine's ``DPPL_DEVICE`` says."""
    if device == "auto":
        device = os.environ.get("DPPL_DEVICE", "auto")  # type: ignore[assignment]
    validate.one_of(get_args(Device), device=device)
    return device


def load_adapter(
    uri: str, device: Device = "auto", precision: EncoderPrecision = "auto"
) -> Adapter:
    """Load the model of an encoder."""
    device = chosen_device(device)
    validate.one_of(get_args(EncoderPrecision), precision=precision)
    source = parse(uri, MODULES, _FORMS, "encoder")
    try:
        adapter: Adapter = importlib.import_module(MODULES[source.scheme]).load(
            source, device, precision
        )
    except InputError as error:
        where = ""
        if uri in PRESETS:
            where = f" {PRESETS[uri].weights}"
        raise InputError(f"{error}{where}") from None
    return adapter


def check_name(uri: str) -> None:
    """Refuse a URI that names no encoder, before anything is imported or read for it."""
    if not uri.startswith(columns.SCHEME):
        parse(uri, MODULES, _FORMS, "encoder")


def is_surely_another(first: str, second: str) -> bool:
    """Return whether URIs alone tell two encoders apart: those of a file or of a hub may lead to the same weights."""
    kinds = {uri.partition(":")[0] for uri in (first, second)}
    return len(kinds) > 1 and kinds <= {*PRESETS, "minilm", "pixels", "columns"}


def load_windows(uri: str) -> TextWindows:
    """Load the tokenizer of an encoder of texts, which says how long a text may be, and nothing else."""
    source = parse(uri, MODULES, _FORMS, "encoder")
    module = importlib.import_module(MODULES[source.scheme])
    found: TextWindows | None = (
        module.windows(source) if hasattr(module, "windows") else None
    )
    if found is None:
        raise ParameterError(
            f"must be an encoder of texts; {uri} is for images.", parameter="encoder"
        )
    return found


@dataclass(frozen=True, slots=True)
class EncoderUri:
    """A URI in parts: its scheme, a name or path, and options."""

    scheme: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self, known: Collection[str]) -> None:
        """Refuse unknown options."""
        if unknown := [option for option in self.options if option not in known]:
            raise ParameterError(
                f"{unknown[0]!r} is not an option of this encoder; it has {', '.join(known) or 'none'}."
            )

    @overload
    def number(self, option: str, default: int) -> int: ...

    @overload
    def number(self, option: str, default: None = None) -> int | None: ...

    def number(self, option: str, default: int | None = None) -> int | None:
        """Return an option that must be a positive integer."""
        if option not in self.options:
            return default
        value = self.options[option]
        if not value.isdecimal() or int(value) < 1:
            raise ParameterError(
                f"{option} must be an integer of at least 1; got {value!r}."
            )
        return int(value)


def parse(uri: str, schemes: Collection[str], forms: str, parameter: str) -> EncoderUri:
    """Split a URI, or the URI of a preset, that has one of some schemes; `forms` is what else is said."""
    place, _, query = (PRESETS[uri].uri if uri in PRESETS else uri).partition("?")
    scheme, _, name = place.partition(":")
    if scheme not in schemes or bool(name) == (scheme in NAMELESS):
        names = {name: name for name in NAMELESS} | {
            name: one.uri.partition(":")[0] for name, one in PRESETS.items()
        }
        meant = validate.closest(
            uri, [name for name, its_scheme in names.items() if its_scheme in schemes]
        )
        raise ParameterError(
            f"must be {forms}; got {uri!r}.", parameter=parameter, suggestion=meant
        )
    return EncoderUri(scheme, name, dict(parse_qsl(query, keep_blank_values=True)))


def names_of_columns(uri: str) -> tuple[str, ...] | None:
    """Return the columns that the schema of an encoder names, and None for another encoder."""
    if uri.endswith(".toml") and ":" not in uri:
        raise ParameterError(
            f"must be columns:{uri}, if that is a schema.", parameter="encoder"
        )
    if not uri.startswith(columns.SCHEME):
        return None
    return tuple(one.name for one in schema_of(uri))


def schema_of(uri: str) -> tuple[columns.Column, ...]:
    """Return the schema that the URI of an encoder names."""
    return columns.read_schema(columns.place_of(uri))


def languages(uri: str) -> str:
    """Say which languages the encoders of texts that a URI names are for; "" if that is not known."""
    if not uri.startswith(columns.SCHEME):
        return reads(uri)
    # Other columns have no encoder, and need no language.
    said = {reads(getattr(one, "encoder", "")) for one in schema_of(uri)}
    return "; ".join(sorted(said - {""}))


def is_code(uri: str) -> bool:
    """Return whether loading what a URI names runs code that the URI chooses."""
    return uri.startswith("python:")


def refuse_code(named: str) -> None:
    """Refuse to run the code that a URI in a file names: which code runs is not for a file to say."""
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
    function = ""
    at = ""
    checkpoint = ""
    if scheme == "timm":
        name, at, checkpoint = name.partition("@")
    elif is_code(uri):
        code, at, checkpoint = name.rpartition("@")
        name, separator, function = code.rpartition(":")
        function = f"{separator}{function}"
    if name and Path(name).exists():
        name = Path(name).resolve().name
    return f"{scheme}{colon}{name}{function}{at}{Path(checkpoint).name}{mark}{query}"
