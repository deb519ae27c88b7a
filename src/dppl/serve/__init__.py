"""Models behind HTTP: predictions of embeddings, texts and images, and a page to try them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
