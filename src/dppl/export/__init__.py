"""Released models in the formats of others: ONNX, PyTorch, and a folder for a model hub.

An export is computed from what was released, and so costs nothing. It holds the
guarantee of the model.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
