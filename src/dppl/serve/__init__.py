"""Models behind HTTP: predictions of embeddings, texts and images, and a page to try them."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.serve.limits import Limits
    from dppl.serve.models import open_model
    from dppl.serve.server import application, listen, serve

__all__ = ["Limits", "application", "listen", "open_model", "serve"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "application": "dppl.serve.server",
        "Limits": "dppl.serve.limits",
        "open_model": "dppl.serve.models",
        "listen": "dppl.serve.server",
        "serve": "dppl.serve.server",
    },
)
