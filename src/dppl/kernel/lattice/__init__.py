"""Integer embeddings and the exact kernels on them. Knows no privacy."""

from dppl.kernel.lattice.lattice import Lattice, usable_rows
from dppl.kernel.lattice.stream import RowSource, TensorRows, iter_blocks, take_rows

__all__ = [
    "Lattice",
    "RowSource",
    "TensorRows",
    "iter_blocks",
    "take_rows",
    "usable_rows",
]
