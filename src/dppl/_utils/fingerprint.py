"""The name of an encoder: everything that decides what it computes. It is in tables and model files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dppl._utils.outside import parse_json
from dppl.errors import InputError


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that can change a bit of an embedding."""

    uri: str  # what the encoder was loaded by, without the folders of a local path
    library: str  # what computes it, for example ``"timm"``
    weights: str  # SHA-256 of the description of the model and of all its parameters
    preprocessing: str  # what happens to an image or a text before
    pooling: str  # how the outputs of the model become one row
    dtype: str  # of the arithmetic: ``"float32"`` or ``"float16"``
    device: str  # ``"cpu"`` or ``"cuda"``; machines of one kind may still differ by a rounding step
    batch: str  # the fixed shapes of the batches
    versions: str  # of the libraries
    # Whether the check on synthetic rows showed that each row has the same bits in any
    # place and company.
    row_independent: bool

    def text(self) -> str:
        """Return it as one line of JSON, the same for equal fingerprints."""
        return json.dumps(
            asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Read what `text` wrote."""
        try:
            values = parse_json(text)
        except ValueError:
            values = None
        expected = {
            field.name: bool if field.type == "bool" else str for field in fields(cls)
        }
        if (
            not isinstance(values, dict)
            or {name: type(value) for name, value in values.items()} != expected
        ):
            raise InputError("this is no fingerprint of an encoder.")
        return cls(**values)

    def function(self) -> Fingerprint:
        """Return what the encoder computes, up to rounding: all but its place, its machine and its versions."""
        where: Any = {
            "uri": "",
            "device": "",
            "batch": "",
            "versions": "",
            "row_independent": True,
        }
        return replace(self, **where)

    def same_function(self, other: Fingerprint) -> bool:
        """Return whether both encoders compute the same function, up to rounding."""
        return self.function() == other.function()


def in_short(name: str) -> str:
    """Return what a reader needs of the name of an encoder, as tables and model files hold it."""
    try:
        one = Fingerprint.parse(name)
    except InputError:
        return name
    return f"{one.uri} ({one.library}, pooling {one.pooling}, {one.dtype}, weights {one.weights[:12]})"


def same_encoder(first: str, second: str) -> bool:
    """Return whether two names stand for one function."""
    return function_of(first) == function_of(second)


def function_of(name: str) -> str:
    """Return what a name of an encoder says of its function; what is no fingerprint stands for itself."""
    try:
        return Fingerprint.parse(name).function().text()
    except InputError:
        return name
