"""What an exported file says of the model: the guarantee in words and as JSON, and where it comes from."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dppl._version import __version__

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier


def statement(model: EmbeddingClassifier) -> dict[str, Any]:
    """Return what is known of a fitted model, JSON-ready. All of it stands in the model file, too."""
    guarantee = model.guarantee_
    return {
        "written_by": f"dppl {__version__}",
        "estimator": type(model).__name__,
        "encoder": model.encoder_,
        "classes": model.classes_.tolist(),
        "sharpness": float(model._sharpness()),
        "guarantee": guarantee.summary(),
        "fit_for_release": guarantee.fit_for_release,
        "statement": guarantee.to_dict(),
        "model_sha256": sha256(model.to_bytes()).hexdigest(),
    }
