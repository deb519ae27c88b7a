"""Models behind HTTP: predictions of embeddings, texts and images, and a page to try them."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.serve.app import application
    from dppl.serve.limits import Limits
    from dppl.serve.models import Served, opened
    from dppl.serve.server import check_extra, listen, read_token, serve

__all__ = ["Limits", "Served", "application", "check_extra", "listen", "opened", "read_token", "serve"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "application": "dppl.serve.app",
        "Limits": "dppl.serve.limits",
        "Served": "dppl.serve.models",
        "opened": "dppl.serve.models",
        "check_extra": "dppl.serve.server",
        "listen": "dppl.serve.server",
        "read_token": "dppl.serve.server",
        "serve": "dppl.serve.server",
    },
)
