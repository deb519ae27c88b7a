"""How good a classifier is on private test records, with intervals that cover sampling and noise."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
