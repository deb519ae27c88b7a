"""Integer embeddings and the exact kernels on them. Knows no privacy."""

from dppl.lattice.device import DEVICE_ROWS, lattice_blocks
from dppl.lattice.gram import SoftmaxCurvature, sums_and_grams
from dppl.lattice.kernels import (
    PUBLIC_ROWS,
    SimilarityClip,
    class_sums,
    each_utilities,
    sum_blocks,
    utilities,
    weighted_sum,
)
from dppl.lattice.lattice import Lattice, usable_rows
from dppl.lattice.residuals import RESOLUTION, WEIGHT_STEPS, SoftmaxGradient, gradient_blocks, longest_shortfall
from dppl.lattice.stream import RowSource, RowTable, iter_blocks, take_rows
from dppl.lattice.tensors import TensorRows

__all__ = [
    "DEVICE_ROWS",
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
    "iter_blocks",
    "lattice_blocks",
    "longest_shortfall",
    "sum_blocks",
    "sums_and_grams",
    "take_rows",
    "usable_rows",
    "utilities",
    "weighted_sum",
]
