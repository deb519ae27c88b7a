"""Parameters of estimators: fields of their classes, and documented once."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

from numpy.typing import ArrayLike

Kind = TypeVar("Kind", bound=type)

# The seed of public rotations, where nobody chose another. Any fixed number does.
ROTATION = 0
_HEADING = "Parameters\n----------\n"
_SECTIONS = re.compile(r"\n\n(?=\w+\n---)")
_ENTRY = re.compile(r"^(\w+) : .*(?:\n(?: .*)?)*", re.MULTILINE)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def parameters(kind: Kind) -> Kind:
    """Make the fields of a class its parameters, by keyword, and document those that it has of its bases."""
    dataclass(eq=False, repr=False, kw_only=True)(kind)
    if kind.__doc__ is None:  # python -OO
        return kind
    entries: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text, *sections = _SECTIONS.split(inspect.cleandoc(vars(one).get("__doc__") or ""))
        entries |= {
            entry[1]: entry[0].rstrip()
            for own in sections
            if own.startswith(_HEADING)
            for entry in _ENTRY.finditer(own)
        }
    # What is left is the docstring of the class itself.
    shown = "\n".join(entries[name] for name in inspect.signature(kind).parameters if name in entries)
    others = [section for section in sections if not section.startswith(_HEADING)]
    kind.__doc__ = "\n\n".join([text, _HEADING + shown, *others])
    return kind


@parameters
class MapParameters:
    """The parameters of the map from embeddings to integer rows, of methods that take them.

    Parameters
    ----------
    pool : int, default=1
        Kernel size of average pooling over neighbouring coordinates (the papers' k_pool).
    center : array-like of shape (n_features,) or "public", default=None
        Public mean that is subtracted from unit rows; ``"public"`` takes that of the public rows.
    rotation : int or "auto", default=None
        Seed of a public rotation, for encoders with a few huge coordinates; ``"auto"`` rotates if the public rows need
        it.
    """

    pool: int = 1
    center: ArrayLike | Literal["public"] | None = None
    rotation: int | Literal["auto"] | None = None
