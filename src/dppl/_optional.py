"""Packages that come with an extra of dppl, imported where they are used and not before."""

from __future__ import annotations

import importlib
from typing import Any

from dppl.errors import MissingExtra


def optional(module: str, package: str, extra: str) -> Any:
    """Import a module that an extra brings.

    Parameters
    ----------
    module : str
        What is imported, for example ``"PIL.Image"``.
    package : str
        Its name in the package index, for example ``"pillow"``.
    extra : str
        The extra of dppl that installs it, for example ``"vision"``.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingExtra(f"this needs {package}; install it with: pip install 'dppl[{extra}]'") from None
