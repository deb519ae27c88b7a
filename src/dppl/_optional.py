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
        raise MissingExtra(f"this needs {package}; install it {how_to_install(extra)}") from None


def how_to_install(extra: str) -> str:
    """Say how an extra is installed: from the source, since no package index has dppl."""
    return f"from the source folder of dppl: pip install -e '.[{extra}]'"
