"""Speed of the exact kernels against this machine's peaks, in one run.

    python benchmarks/kernels.py [--public 20000] [--records 50000] [--rounds 5]
    [--threads N] [--json FILE]

Products are held against a large float32 product, and the map to the lattice and the
sums of classes against a copy of their rows. Peak and kernel are measured in turns,
because shared machines drift; a ratio is the median over rounds. Rates count the
operations of the products only, so clipping, softmax, sums and the map count as loss.
Where numba is installed, the compiled path is measured too; 1 is then still the peak of
float32.
"""

import argparse
import platform
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.kernels import class_sums, gram_matrices
from dppl.kernel.lattice.residuals import SoftmaxGradient
from dppl.kernel.lattice.similarities import PUBLIC_ROWS, SimilarityClip, utilities
from dppl.kernel.lattice.stream import LatticeRows
from measuring import measure, on_path, write_down

PEAK_SIZE = 4096
PEAK_SHARE = "share of the float32 peak"
COPIES = "times a copy of float32"


def products(paths, n_public, n_records, rounds, peak_size=PEAK_SIZE):
    """Return rates of utilities (banking77 against a public text pool), a step of softmax regression and a Gram matrix.

    Utilities and gradients are forced onto each of `paths`. Of the Gram matrix, which
    has no compiled path and is symmetric, one triangle counts.
    """
    rng = np.random.default_rng(0)
    sizes = np.linspace(35, 187, 77).astype(int)
    lattice = Lattice(384)
    wide = Lattice(768)
    private = [lattice.transform(rng.normal(size=(n, 384))) for n in sizes]
    public = rng.normal(size=(n_public, 384)).astype(np.float16)
    clip = SimilarityClip(
        int(0.05 * lattice.squared_norm), int(0.6 * lattice.squared_norm)
    )

    def scores(source):
        return lambda: utilities(
            private, lattice.blocks(source, PUBLIC_ROWS), n_public, lattice, clip
        )

    blocks = list(
        LatticeRows(wide, rng.standard_normal((n_records, 768), dtype=np.float32))
    )
    codes = rng.integers(0, 100, n_records)
    weights = rng.normal(size=(100, 768))
    some = blocks[: max(1, len(blocks) // 4)]
    n_some = sum(map(len, some))
    similarities = 2 * sizes.sum() * n_public * 384
    kernels = {
        f"utilities {sizes.sum()} x {n_public} x 384, lattice rows in": (
            similarities,
            scores(lattice.transform(public)),
        ),
        f"utilities {sizes.sum()} x {n_public} x 384, float16 in": (
            similarities,
            scores(public),
        ),
        f"gradient {n_records} x 768 x 100": (
            4 * n_records * 768 * 100,
            lambda: SoftmaxGradient(wide).sum(blocks, codes, weights),
        ),
    }
    kernels = {
        f"{name}, {path}": (operations, on_path(run, path))
        for name, (operations, run) in kernels.items()
        for path in paths
    }
    if "float32" in paths:
        kernels[f"Gram matrix {n_some} x 768, float32"] = (
            n_some * 768**2,
            lambda: gram_matrices(some, np.zeros(n_some, np.intp), 1, 768),
        )
    square = rng.normal(size=(peak_size, peak_size)).astype(np.float32)
    out = np.empty_like(square)
    peak = {"float32 product": lambda: np.matmul(square, square, out=out)}
    measured = measure(
        {**peak, **{name: run for name, (_, run) in kernels.items()}},
        *peak.values(),
        rounds,
    )
    work = {
        **dict.fromkeys(peak, 2 * peak_size**3),
        **{name: operations for name, (operations, _) in kernels.items()},
    }
    return {
        name: {
            "s": seconds.round(3).tolist(),
            "GFLOP/s": (work[name] / seconds / 1e9).round(1).tolist(),
            PEAK_SHARE: (work[name] / (2 * peak_size**3) / ratio).round(3).tolist(),
        }
        for name, (seconds, ratio) in measured.items()
    }


def passes(n_records, rounds, width=768):
    """Return the times of the map to the lattice and of class sums over that of a copy of the same float32 rows."""
    rng = np.random.default_rng(0)
    lattice = Lattice(width)
    rotated = Lattice(width, rotation=0)
    X = rng.standard_normal((n_records, width), dtype=np.float32)
    rows = lattice.transform(X)
    codes = rng.integers(0, 100, len(X))
    copy = np.empty_like(X)
    maps = {
        f"map of {dtype}": partial(lattice.transform, X.astype(dtype))
        for dtype in ("float16", "float32", "float64")
    }
    maps["map and rotation of float32"] = partial(rotated.transform, X)
    kernels = {
        f"{name} {n_records} x {width}": on_path(run, "float32")
        for name, run in maps.items()
    }
    if find_spec("numba"):
        kernels |= {
            f"{name} {n_records} x {width}, compiled": on_path(run, "compiled")
            for name, run in maps.items()
        }
    kernels[f"map of int8 {n_records} x {width}"] = partial(
        lattice.transform, X.astype(np.int8)
    )
    kernels[f"class sums {n_records} x {width}"] = lambda: class_sums(
        lattice.blocks(rows), codes, 100, width
    )
    return {
        name: {
            "s": seconds.round(3).tolist(),
            "us a row": (seconds / n_records * 1e6).round(2).tolist(),
            COPIES: ratio.round(2).tolist(),
        }
        for name, (seconds, ratio) in measure(
            kernels, lambda: np.copyto(copy, X), rounds
        ).items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--public", type=int, default=20_000)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, help="default: as many as BLAS would take"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with threadpool_limits(options.threads):
        result = {
            "machine": f"{platform.machine()}, numpy {np.__version__}",
            "pairs are": "wall clock, CPU",
            **passes(options.records, options.rounds, 384),
            **passes(options.records, options.rounds, 768),
            **passes(options.records, options.rounds, 1280),
        }
        paths = ("float32", "compiled") if find_spec("numba") else ("float32",)
        result |= products(paths, options.public, options.records, options.rounds)
    write_down(result, options.json)


if __name__ == "__main__":
    main()
