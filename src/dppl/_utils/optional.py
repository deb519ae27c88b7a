"""Packages that come with an extra of dppl, imported where they are used and not before."""

import importlib
from typing import Any

from dppl.errors import MissingExtra


def optional(module: str, package: str, extra: str) -> Any:
    """Import a module, such as ``"PIL.Image"`` of the package ``"pillow"``, that an extra of dppl brings."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingExtra(
            f"this needs {package}; install it {how_to_install(extra)}"
        ) from None


def how_to_install(extra: str) -> str:
    """Say how an extra is installed: from the source, since no package index has dppl."""
    return f"from the source folder of dppl: pip install -e '.[{extra}]'"
