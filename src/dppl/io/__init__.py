"""Tables of embeddings, and raw images and texts that become them: sources of records, decoding, and shards."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
