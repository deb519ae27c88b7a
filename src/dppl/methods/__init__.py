"""The classifiers, one a file, and what they share: the way of a fit, the plan, and the model file."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
