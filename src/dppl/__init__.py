"""Differentially private classifiers on frozen, publicly pre-trained encoders."""

from pkgutil import iter_modules

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
# A star brings classes and functions: `dppl.io` would hide the standard library's.
__all__ = sorted({*__all__} - {module.name for module in iter_modules(__path__)})
