"""``pixels``: an image encoder of nothing but pixels, for the sample and for tests.

Grey values of a 16 x 16 thumbnail and colours of a 4 x 4 one, moved to be around 0: 304 numbers. Pillow only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.encoders.images import ImageNetwork
from dppl.encoders.load import Source


def load(source: Source, device: str, precision: str) -> ImageNetwork:
    """Return the encoder; it computes on the CPU in float32 whatever is asked for."""
    source.check(())
    return ImageNetwork(
        library="pillow",
        weights="none",
        preprocessing="grey box 16 x 16, RGB box 4 x 4, value / 255 - 0.5",
        pooling="none",
        versions=f"pillow {optional('PIL', 'pillow', 'images').__version__}",
        prepare=_thumbnails,
        compute=lambda arrays: arrays["pixel_values"],
        batch_rows=64,
    )


def _thumbnails(image: Any) -> NDArray[np.float32]:
    box = optional("PIL.Image", "pillow", "images").Resampling.BOX
    parts = (image.convert("L").resize((16, 16), box), image.resize((4, 4), box))
    pixels = np.concatenate([np.asarray(part, np.float32).reshape(-1) for part in parts])
    return np.asarray(pixels / 255 - 0.5, np.float32)
