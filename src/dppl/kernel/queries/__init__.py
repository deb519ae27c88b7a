"""What may be asked of private records, one family of queries a file, each with its proofs."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
