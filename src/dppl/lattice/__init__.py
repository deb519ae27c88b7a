"""Integer embeddings and the exact kernels on them. Knows no privacy."""

from dppl.lattice.kernels import PUBLIC_ROWS, SimilarityClip, class_sums, sum_blocks, utilities
from dppl.lattice.lattice import Lattice
from dppl.lattice.stream import RowSource, RowTable, iter_blocks, take_rows

__all__ = [
    "PUBLIC_ROWS",
    "Lattice",
    "RowSource",
    "RowTable",
    "SimilarityClip",
    "class_sums",
    "iter_blocks",
    "sum_blocks",
    "take_rows",
    "utilities",
]
