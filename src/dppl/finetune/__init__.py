"""Private training of weights of a public network: sparse fine-tuning. Needs torch."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
