"""Several institutions, one model: each answers a method's questions with its own noise, from its own ledger."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
