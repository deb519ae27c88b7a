"""What a model does and promises, for people: one dictionary of data, rendered as text, card and page."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
