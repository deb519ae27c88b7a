"""For research: comparison methods, ceilings without privacy, made-up data, and the experiments that use them.

Nothing outside this package imports it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
