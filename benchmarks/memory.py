"""Largest memory of a fit, its inputs included, over the size of the inputs. Rows are float32 in memory."""

import numpy as np

import probe
import selection
from dppl import (
    GaussianDP,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    PureDP,
    SoftmaxPrototypes,
)
from dppl.lab import LeastSquares
from dppl.methods import LinearProbe
from measuring import entry, extra_memory
from plain_numpy import numpy_means, numpy_probe, numpy_public

UNIT = "memory over that of the inputs"


def fits(n, d, n_classes, n_public):
    """Return calls that fit, each with the arrays that it reads."""
    rng = np.random.default_rng(0)
    X, y, _ = probe.mixture(n, d, n_classes, rng)
    public = rng.standard_normal((n_public, d), dtype=np.float32)
    some = X[: n // 5]
    few = y[: n // 5]
    classes = range(n_classes)
    budget = GaussianDP(1.0)
    selecting = PublicPrototypes(PureDP(1.0), classes, public=PublicData(public))

    def fit(estimator, *data):
        return lambda: estimator.fit(*data)

    return {
        "MeanPrototypes": (fit(MeanPrototypes(budget, classes), X, y), [X]),
        "SoftmaxPrototypes": (fit(SoftmaxPrototypes(budget, classes), X, y), [X]),
        "LinearProbe, 2 steps": (fit(LinearProbe(budget, classes, steps=2), X, y), [X]),
        "LeastSquares": (fit(LeastSquares(budget, classes), X, y), [X]),
        "PublicPrototypes": (fit(selecting, some, few), [some, public]),
        "means in NumPy": (lambda: numpy_means(X, y, n_classes, 1.0), [X]),
        "probe in NumPy, 2 steps": (lambda: numpy_probe(X, y, n_classes, 2, 1.0), [X]),
        "public prototypes in NumPy": (
            lambda: numpy_public(some, few, public, n_classes, 1.0),
            [some, public],
        ),
    }


def over_size(quick):
    """Measure every fit in this process, after a small one of its kind."""
    n, d, n_classes, n_public = (
        (4_000, 64, 10, 4_000) if quick else (50_000, 384, 50, 20_000)
    )
    small = fits(500, d, n_classes, 500)
    found = []
    for name, (run, arrays) in fits(n, d, n_classes, n_public).items():
        small[name][0]()
        size = sum(array.nbytes for array in arrays)
        shapes = " and ".join(" x ".join(map(str, array.shape)) for array in arrays)
        found.append(
            entry(
                f"memory of {name}",
                1 + extra_memory(run) / size,
                UNIT,
                "lower",
                f"{shapes} float32",
            )
        )
    return found


def from_file(quick):
    """Measure a fit whose public rows are read from a file."""
    n_public, n_classes = (20_000, 5) if quick else (400_000, 20)
    megabytes = selection.fit_memory(n_public, n_classes)
    size = n_public * selection.DIM / 2**20
    note = f"{n_public} x {selection.DIM} int8; {megabytes:.0f} MB above a fit on 50 public rows"
    return [
        entry(
            "memory of PublicPrototypes, public rows in a file",
            (size + megabytes) / size,
            UNIT,
            "lower",
            note,
        )
    ]


def opacus(quick):
    """Measure ghost clipping on the rows that `over_size` gives LinearProbe."""
    n, d, n_classes = (4_000, 64, 10) if quick else (50_000, 384, 50)
    X, y, _ = probe.mixture(n, d, n_classes, np.random.default_rng(0))
    probe.run_opacus(X[:500], y[:500], n_classes, 1, 1, loader=True)
    return [
        entry(
            f"memory of Opacus, 2 steps, {how}",
            1
            + extra_memory(
                lambda loader=loader: probe.run_opacus(
                    X, y, n_classes, 2, 1, loader=loader
                )
            )
            / X.nbytes,
            UNIT,
            "lower",
            f"{n} x {d} float32",
        )
        for how, loader in {"its data loader": True, "ready-made batch": False}.items()
    ]
