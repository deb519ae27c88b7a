"""Models behind HTTP: predictions of embeddings, texts and images, and a page to try them."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.serve.models import open_model
    from dppl.serve.server import Limits, application, listen, serve

__all__ = ["Limits", "application", "listen", "open_model", "serve"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(["Limits", "application", "listen", "serve"], "dppl.serve.server"),
        "open_model": "dppl.serve.models",
    },
)
