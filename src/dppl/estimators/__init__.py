"""What every classifier here is: the way a fit runs, how records are read, and the model file."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
