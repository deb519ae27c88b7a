"""Integer embeddings and the exact kernels on them. Knows no privacy."""

from dppl.kernel.lattice.kernels import (
    PUBLIC_ROWS,
    SimilarityClip,
    class_sums,
    each_utilities,
    gram_matrices,
    sum_blocks,
    utilities,
    weighted_sum,
)
from dppl.kernel.lattice.lattice import Lattice, usable_rows
from dppl.kernel.lattice.residuals import (
    RESOLUTION,
    WEIGHT_STEPS,
    SoftmaxCurvature,
    SoftmaxGradient,
    gradient_blocks,
    longest_shortfall,
)
from dppl.kernel.lattice.stream import RowSource, RowTable, TensorRows, iter_blocks, take_rows

__all__ = [
    "PUBLIC_ROWS",
    "RESOLUTION",
    "WEIGHT_STEPS",
    "Lattice",
    "RowSource",
    "RowTable",
    "SimilarityClip",
    "SoftmaxCurvature",
    "SoftmaxGradient",
    "TensorRows",
    "class_sums",
    "each_utilities",
    "gradient_blocks",
    "gram_matrices",
    "iter_blocks",
    "longest_shortfall",
    "sum_blocks",
    "take_rows",
    "usable_rows",
    "utilities",
    "weighted_sum",
]
