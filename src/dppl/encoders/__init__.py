"""Frozen, public encoders of images and texts behind one protocol.

Nothing heavy is imported before `load_encoder` needs it. An embedding depends on its
image or text alone, to the last bit; `dppl.encoders.fixed` says how.
"""

from dppl.encoders.catalogue import PRESETS, list_encoders
from dppl.encoders.fixed import Encoder, Fingerprint
from dppl.encoders.load import load_encoder

__all__ = ["PRESETS", "Encoder", "Fingerprint", "list_encoders", "load_encoder"]
