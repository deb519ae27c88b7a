"""How far one record moves what was asked, by the code and the values of its statistic.

Queries take their sensitivity from this table, and their docstrings prove it. Whoever
reads a statement compares, so that no file states less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dppl.kernel.privacy.terms import Statistic, Term

# Largest entry of a lattice row.
LARGEST = 127
# Steps of a grid for numbers in [0, 1]: class weights, and what a record counts. Sums
# of 10¹¹ records fit into 64 bits.
STEPS = 2**16
# Steps of the grid of residuals per unit of the clipping norm. Coarser grids would lose
# the many small probabilities of other classes, which together are as large as the
# residuals of a class's own records.
RESOLUTION = 2**20
# Parts of a record that the records of a person share in a matrix. With more of them
# floats would decide too few of its many roundings.
PARTS = 2**8
# Length of the longest integer row of a network: a gradient of the clipping norm, in
# steps of rounding.
RADIUS = 2**22
# Weight of a task in its own row of correlated noise of the kind "toeplitz".
OWN_WEIGHT = 4096


def squared_row(dim: int) -> Fraction:
    """Return the square of the longest lattice row of this width."""
    return Fraction(LARGEST**2 * dim, 16)


def _row(of: Term[Statistic]) -> Fraction:
    return squared_row(of["dim"])


def _gradient(of: Term[Statistic]) -> Fraction:
    constant = of["constant"] if of.code is Statistic.WITH_CONSTANT else 0
    return RESOLUTION**2 * (_row(of.innermost) + constant**2)


def _labels(of: Term[Statistic], lists: int) -> Fraction:
    # To how many cells a record adds of which so many lists of labels count.
    return Fraction(min(lists * of["max_labels"], of["n_classes"]) * STEPS**2)


def _column(of: Term[Statistic]) -> float:
    # What the square of the longest column of a matrix of `factors.factor`, which takes
    # seconds to make, is at least: squares of binom(2k, k)/4ᵏ are 1/(πk) or more.
    return OWN_WEIGHT**2 * (1 + math.log(of["max_tasks"]) / math.pi)


# Square of the longest vector that a record adds, and by how much more it moves if a
# record is replaced than if one is added: 4 times in general, 2 where two records never
# add opposite vectors, and not at all where each adds 0 or 1.
_Entry = tuple[Callable[[Term[Statistic]], Fraction], int]
_TABLE: dict[Statistic, _Entry] = {
    **dict.fromkeys(
        (
            Statistic.NUMBER_OF_RECORDS,
            Statistic.LONG_GRADIENTS,
            Statistic.RIGHT_ANSWERS,
        ),
        (lambda of: Fraction(1), 1),
    ),
    **dict.fromkeys(
        (
            Statistic.CLASS_COUNTS,
            Statistic.TOTALS,
            Statistic.CLASS_OUTCOMES,
            Statistic.BAND_OUTCOMES,
            Statistic.FALSE_ALARMS,
            Statistic.CONFUSIONS,
            Statistic.CALIBRATION_SUMS,
            Statistic.RELIABILITY_BINS,
            Statistic.SCORE_HISTOGRAM,
            Statistic.WHOLE_LABEL_SETS,
            Statistic.SIGNED_HITS,
            Statistic.DISAGREEMENTS,
            Statistic.MOST_HITS,
        ),
        (lambda of: Fraction(STEPS**2), 4),
    ),
    **dict.fromkeys(
        (
            Statistic.CLIPPED_GRADIENTS,
            Statistic.CLIPPED_LABEL_GRADIENTS,
            Statistic.SCALED_GRADIENTS,
            Statistic.WITH_CONSTANT,
        ),
        (_gradient, 4),
    ),
    **dict.fromkeys(
        (Statistic.SHORTFALLS, Statistic.LABEL_SHORTFALLS),
        (lambda of: Fraction(RESOLUTION**2), 4),
    ),
    **dict.fromkeys(
        (Statistic.GRAM_MATRIX, Statistic.CLASS_GRAM_MATRICES),
        (lambda of: _row(of) ** 2, 2),
    ),
    Statistic.SECOND_MOMENT: (lambda of: (PARTS * _row(of)) ** 2, 2),
    Statistic.HITS_OF_EXAMPLES: (lambda of: Fraction(1), 2),
    Statistic.HITS_OF_LABELS: (lambda of: Fraction(1), 2),
    Statistic.RIGHT_ANSWERS_OF_CLASSES: (lambda of: Fraction(2), 2),
    Statistic.CLASS_MEANS: (lambda of: Fraction(1), 4),  # in radii
    Statistic.CLASS_SUMS: (_row, 4),
    Statistic.WEIGHTED_SUM: (lambda of: STEPS**2 * _row(of), 4),
    Statistic.CORRELATED_CLASS_SUMS: (lambda of: _row(of) * Fraction(_column(of)), 4),
    Statistic.HESSIANS: (
        lambda of: Fraction(4, 27) * RESOLUTION**2 * _row(of) ** 2,
        2,
    ),
    Statistic.LABEL_COUNTS: (lambda of: _labels(of, 1), 4),
    Statistic.LABEL_OUTCOMES: (lambda of: _labels(of, 2), 4),
    # Whatever the batch, no longer than one clipping norm, so any two are two apart.
    Statistic.EPISODE_GRADIENTS: (lambda of: Fraction((2 * RESOLUTION) ** 2), 1),
    Statistic.COUNTED_GRADIENTS: (
        lambda of: RESOLUTION**2 * _row(of) + of["weight"] ** 2,
        4,
    ),
    Statistic.NETWORK_GRADIENTS: (lambda of: Fraction(RADIUS**2), 4),
}


def squared_norm_of(statistic: Term[Statistic]) -> Fraction | None:
    """Return the square of the longest vector that a record adds, None where the statistic does not determine it.

    Of correlated noise of the kind "toeplitz" it may be up to 4 % more.
    """
    asked = _asked(statistic)
    return _TABLE[asked.code][0](asked) if asked.code in _TABLE else None


def replaced(statistic: Term[Statistic]) -> int:
    """Return by how much more the square of a sum can move if a record is replaced than if one is added."""
    asked = _asked(statistic)
    return _TABLE[asked.code][1] if asked.code in _TABLE else 4


def _asked(statistic: Term[Statistic]) -> Term[Statistic]:
    """Return what was asked, without when or of which rows; of a search, the score that decided."""
    if statistic.code is Statistic.BEST_CANDIDATE:
        balanced = statistic["scoring"] == "balanced"
        scores = (Statistic.RIGHT_ANSWERS, Statistic.RIGHT_ANSWERS_OF_CLASSES)
        return Term(scores[balanced])
    if statistic.code in _TABLE or "of" not in statistic.code.fields:
        return statistic
    return _asked(statistic["of"])
