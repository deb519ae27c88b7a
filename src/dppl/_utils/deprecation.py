"""How a public name ends: it warns in one minor version at least before it goes."""

import warnings


def warn_of_end(name: str, *, instead: str, version: str) -> None:
    """Warn whoever calls the caller that what it does has another name from `version` on."""
    warnings.warn(
        f"{name} ends with dppl {version}: use {instead}.", FutureWarning, stacklevel=3
    )
