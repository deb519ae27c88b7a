"""What a budget buys, from public numbers alone: of accuracy, and of certainty about it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
