"""Options that name several values: ``NAME=VALUE``, which may be repeated."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from typing import Any

from dppl._utils.validate import closest
from dppl.errors import ParameterError

_CONSTANTS = {"true": True, "false": False, "none": None}


def parse_pairs(
    given: Iterable[str],
    parameter: str,
    known: Collection[str] | None = None,
    *,
    literal: bool = True,
) -> dict[str, Any]:
    """Return what ``NAME=VALUE`` says, by name: texts, or numbers, tuples and texts as in Python, quoted or not."""
    values: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        if not text or not name.isidentifier():
            raise ParameterError(
                f"must be NAME=VALUE; got {one!r}.", parameter=parameter
            )
        if name in values:
            raise ParameterError(
                f"must name each value once; got {name} twice.", parameter=parameter
            )
        if known is not None and name not in known:
            near = closest(name, known)
            raise ParameterError(
                f"takes NAME=VALUE with {', '.join(known)}; got {name!r}.",
                parameter=parameter,
                suggestion=near and f"{near}={text}",
            )
        values[name] = text
        # Literals alone: nothing that is typed runs as code.
        if literal:
            try:
                if text in _CONSTANTS:
                    values[name] = _CONSTANTS[text]
                else:
                    values[name] = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                values[name] = tuple(text.split(",")) if "," in text else text
    return values
