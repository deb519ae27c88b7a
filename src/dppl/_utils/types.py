"""Types of arrays that many signatures name."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Float: TypeAlias = NDArray[np.float64]
Float32: TypeAlias = NDArray[np.float32]
Flags: TypeAlias = NDArray[np.bool_]
