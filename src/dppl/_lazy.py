"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def lazy(
    package: str, homes: Mapping[str, str], packages: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    `homes` tells the module of each name.
    """
    here = vars(sys.modules[package])

    def get(name: str) -> object:
        if name in packages:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = here[name] = getattr(import_module(homes[name]), name)
        return found

    return get, lambda: sorted({*here, *homes, *packages})
