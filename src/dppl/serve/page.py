"""The page at `/`: one file without network, and the policy that lets nothing else run in it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

__all__ = ["page"]


@cache
def page() -> tuple[str, str]:
    """Return the page, and its Content-Security-Policy: the hashes of its own style and program."""
    html = files("dppl.serve").joinpath("page.html").read_text(encoding="utf-8")
    style, script = (_hash(html, tag) for tag in ("style", "script"))
    policy = (
        f"default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; img-src 'self' blob: data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _hash(html: str, tag: str) -> str:
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
