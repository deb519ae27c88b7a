"""Models behind HTTP: predictions of embeddings, texts and images, and a page to try them."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.serve.limits import Limits
    from dppl.serve.models import Served, open_model
    from dppl.serve.server import application, listen, read_token, serve

__all__ = ["Limits", "Served", "application", "listen", "open_model", "read_token", "serve"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "application": "dppl.serve.server",
        "Limits": "dppl.serve.limits",
        "Served": "dppl.serve.models",
        "open_model": "dppl.serve.models",
        "listen": "dppl.serve.server",
        "read_token": "dppl.serve.server",
        "serve": "dppl.serve.server",
    },
)
