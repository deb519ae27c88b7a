"""Models behind HTTP: predictions of embeddings, texts and images, and a page to try them."""

from dppl.serve.app import application
from dppl.serve.limits import Limits
from dppl.serve.models import Served, opened
from dppl.serve.server import check_extra, listen, read_token, serve

__all__ = ["Limits", "Served", "application", "check_extra", "listen", "opened", "read_token", "serve"]
