"""URLs of places: which paths are one, and how messages show them."""

import os
import re

# One slash is enough: `pathlib.Path` takes the other away. Two letters at least: C: is
# a drive. What precedes "::" is a URL that fsspec would open inside of another one.
URL = re.compile(
    r"(?P<outer>(?:.*::)?)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL
)
# What may be a name and a password: a colon before the first slash that no port
# follows.
_SECRET = re.compile(r"[^/]*:(?![0-9]+(/|$))")


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL, also if it went through `pathlib.Path`."""
    return URL.fullmatch(os.fspath(path)) is not None


def shown_as(path: str | os.PathLike[str]) -> str:
    """Return a path as messages show it: a URL without passwords, and of a local file only the path."""
    match = URL.fullmatch(os.fspath(path))
    if match is None:
        return os.fspath(path)
    scheme = match["scheme"].lower()
    rest = match["rest"]
    shown = rest.partition("?")[0]
    if scheme == "file":
        return f"/{shown}"
    # A password may hold slashes and "?".
    if _SECRET.match(rest):
        shown = (shown if "@" in shown else rest).rpartition("@")[2].partition("?")[0]
    else:
        shown = re.sub("^[^/]*@", "", shown)
    return f"{match['outer']}{scheme}://{shown}".rstrip("/")
