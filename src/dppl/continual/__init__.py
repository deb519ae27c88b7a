"""Learning from a stream of tasks, each of which spends the budget on its records."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
