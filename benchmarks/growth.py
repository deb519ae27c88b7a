"""How time grows with the numbers of records n, public rows m, coordinates d and classes C: exponents of power laws.

Each is fitted by least squares to logarithms of CPU seconds, with all other sizes as
they are in `BASE`.
"""

from functools import partial

import numpy as np

from dppl import GaussianDP, MeanPrototypes, PublicData, PublicPrototypes, PureDP
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.kernels import class_sums, gram_matrices
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.lattice.similarities import PUBLIC_ROWS, SimilarityClip, utilities
from dppl.kernel.lattice.stream import LatticeRows
from dppl.kernel.mechanisms import ExponentialMechanism
from dppl.kernel.mechanisms.randomness import randomness
from dppl.methods import LinearProbe
from measuring import entry, on_path, timed

ALIKE = {"n": 8_000, "d": 128, "C": 20}


def _records(n, d, C, **_):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d), dtype=np.float32), np.arange(n) % C


def _rows(n, d, C):
    X, codes = _records(n, d, C)
    lattice = Lattice(d)
    return lattice, lattice.transform(X), codes


def map_of_rows(n, d):
    X, _ = _records(n, d, 1)
    return partial(Lattice(d).transform, X)


def sums(n, d, C):
    lattice, rows, codes = _rows(n, d, C)
    return lambda: class_sums(lattice.blocks(rows), codes, C, d)


def gram(n, d, C):
    lattice, rows, codes = _rows(n, d, C)
    return lambda: gram_matrices(
        lattice.blocks(rows), np.zeros(len(codes), np.intp), 1, d
    )


def gradient(n, d, C):
    lattice, rows, codes = _rows(n, d, C)
    blocks = LatticeRows(lattice, rows)
    weights = np.random.default_rng(1).normal(size=(C, d))
    return lambda: SoftmaxGradient(lattice).sum(blocks, codes, weights)


def scores(n, m, d, C):
    lattice, rows, codes = _rows(n, d, C)
    private = [rows[codes == code] for code in range(C)]
    public = lattice.transform(
        np.random.default_rng(1).standard_normal((m, d), dtype=np.float32)
    )
    clip = SimilarityClip(0, int(0.6 * lattice.squared_norm))
    return lambda: utilities(
        private, lattice.blocks(public, PUBLIC_ROWS), m, lattice, clip
    )


def choice(m, C):
    given = np.random.default_rng(0).integers(0, 10**8, (C, m))
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=500_000)

    def run():
        parts = [mechanism.tally(given)]
        look = [(code, 0, given[code], np.arange(m)) for code in range(C)]
        mechanism.select_each(parts, lambda _: look, randomness(0))

    return run


def mean_fit(n, d, C):
    X, y = _records(n, d, C)
    return lambda: MeanPrototypes(GaussianDP(1.0), range(C)).fit(X, y)


def probe_fit(n, d, C):
    X, y = _records(n, d, C)
    return lambda: LinearProbe(GaussianDP(1.0), range(C), steps=3).fit(X, y)


def public_fit(n, m, d, C):
    X, y = _records(n, d, C)
    public = np.random.default_rng(1).standard_normal((m, d), dtype=np.float32)
    return lambda: PublicPrototypes(
        PureDP(1.0), range(C), public=PublicData(public)
    ).fit(X, y)


# What is run, at which sizes, and the exponents that the arithmetic alone would have.
KERNELS = {
    "map to the lattice": (map_of_rows, {"n": 8_000, "d": 128}, {"n": 1, "d": 1}),
    "class sums": (sums, ALIKE, {"n": 1, "d": 1, "C": 0}),
    "Gram matrix": (gram, {"n": 4_000, "d": 256, "C": 20}, {"n": 1, "d": 2, "C": 0}),
    "gradient": (gradient, ALIKE, {"n": 1, "d": 1, "C": 1}),
    "utilities": (
        scores,
        {"n": 2_000, "m": 2_000, "d": 128, "C": 20},
        {"n": 1, "m": 1, "d": 1, "C": 0},
    ),
    "selection": (choice, {"m": 50_000, "C": 20}, {"m": 1, "C": 1}),
    "MeanPrototypes.fit": (mean_fit, ALIKE, {"n": 1, "d": 1, "C": 0}),
    "LinearProbe.fit, 3 steps": (probe_fit, ALIKE, {"n": 1, "d": 1, "C": 1}),
    "PublicPrototypes.fit": (
        public_fit,
        {"n": 4_000, "m": 8_000, "d": 128, "C": 20},
        {"n": 1, "m": 1, "d": 1, "C": 0},
    ),
}


def exponent(sizes, seconds):
    """Return p of the power law ``seconds ~ sizes**p``."""
    return np.polyfit(np.log(sizes), np.log(seconds), 1)[0]


def least_seconds(runs, rounds):
    """Return the least CPU seconds of each call, all of them taken in turns."""
    return np.min(
        [[timed(run)[1] for run in runs] for _ in range(rounds + 1)][1:], axis=0
    )


def exponents(quick):
    """Fit all exponents; what is compared is by what a doubling multiplies the time."""
    factors, rounds = ((1, 2), 1) if quick else ((1, 2, 4, 8), 3)
    found = []
    for name, (make, base, expected) in KERNELS.items():
        for variable in base:
            sizes = [base[variable] * factor for factor in factors]
            runs = [
                on_path(make(**{**base, variable: size}), "float32") for size in sizes
            ]
            power = exponent(sizes, least_seconds(runs, rounds))
            at = ", ".join(
                f"{key} = {value}" for key, value in base.items() if key != variable
            )
            line = entry(
                f"growth of {name} with {variable}",
                2**power,
                "times the time for a doubling",
                "lower",
                f"{variable} = {sizes[0]} to {sizes[-1]}; {at}",
            )
            found.append(
                {
                    **line,
                    "exponent": float(power),
                    "of the arithmetic": expected[variable],
                }
            )
    return found
