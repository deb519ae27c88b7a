"""Speed of the exact kernels against this machine's peaks, in one run.

    python benchmarks/kernels.py [--public 20000] [--rounds 5] [--threads N] [--json FILE]

Products are held against a large float32 product, and the map to the lattice and the sums of classes against a copy of
their rows. Peak and kernel are measured in turns, because shared machines drift; a ratio is the median over rounds.
Rates count the operations of the products only, so clipping, softmax, sums and the map count as loss. Where torch is
installed, the int8 path is measured too; 1 is then still the peak of float32.
"""

import argparse
import json
import platform
import resource
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

from dppl import ZCDP, MeanPrototypes
from dppl.lattice import (
    PUBLIC_ROWS,
    Lattice,
    SimilarityClip,
    SoftmaxGradient,
    class_sums,
    gradient_blocks,
    int8,
    sum_blocks,
    utilities,
)

PEAK_SIZE = 4096


def timed(function):
    """Return wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return np.array([time.perf_counter() - wall, time.process_time() - cpu])


def measure(kernels, yardstick, rounds):
    """Return median seconds of each kernel, and its time over that of the yardstick just before and after it."""
    seconds, ratios = {name: [] for name in kernels}, {name: [] for name in kernels}
    timed(yardstick)
    for _ in range(rounds):
        before = timed(yardstick)
        for name, run in kernels.items():
            own, after = timed(run), timed(yardstick)
            seconds[name].append(own)
            ratios[name].append(2 * own / (before + after))
            before = after
    return {name: (np.median(seconds[name], axis=0), np.median(ratios[name], axis=0)) for name in kernels}


def on_paths(kernels):
    """Return kernels that are forced onto float32 and, where torch is installed, onto int8."""

    def forced(run, fast):
        def on_path():
            with mock.patch.object(int8, "int8_pays", return_value=fast):
                run()

        return on_path

    paths = {"float32": False, **({"int8": True} if find_spec("torch") else {})}
    return {
        f"{name}, {path}": (operations, forced(run, fast))
        for name, (operations, run) in kernels.items()
        for path, fast in paths.items()
    }


def products(n_public, rounds):
    """Return rates of utilities (banking77 against a public text pool) and of a step of softmax regression."""
    rng = np.random.default_rng(0)
    sizes = np.linspace(35, 187, 77).astype(int)
    lattice, wide = Lattice(384), Lattice(768)
    private = [lattice.transform(rng.normal(size=(n, 384))) for n in sizes]
    public = rng.normal(size=(n_public, 384)).astype(np.float16)
    clip = SimilarityClip(int(0.05 * lattice.squared_norm), int(0.6 * lattice.squared_norm))

    def scores(source):
        return lambda: utilities(private, lattice.blocks(source, PUBLIC_ROWS), n_public, lattice, clip)

    blocks = gradient_blocks(wide, rng.standard_normal((50_000, 768), dtype=np.float32))
    codes, weights = rng.integers(0, 100, 50_000), rng.normal(size=(100, 768))
    similarities = 2 * sizes.sum() * n_public * 384
    kernels = on_paths(
        {
            f"utilities 10,000 x {n_public} x 384, lattice rows in": (similarities, scores(lattice.transform(public))),
            f"utilities 10,000 x {n_public} x 384, float16 in": (similarities, scores(public)),
            "gradient 50,000 x 768 x 100": (
                4 * 50_000 * 768 * 100,
                lambda: SoftmaxGradient(wide).sum(blocks, codes, weights),
            ),
        }
    )
    square = rng.normal(size=(PEAK_SIZE, PEAK_SIZE)).astype(np.float32)
    out = np.empty_like(square)
    peak = {"float32 product": lambda: np.matmul(square, square, out=out)}
    measured = measure({**peak, **{name: run for name, (_, run) in kernels.items()}}, *peak.values(), rounds)
    work = {**dict.fromkeys(peak, 2 * PEAK_SIZE**3), **{name: operations for name, (operations, _) in kernels.items()}}
    return {
        name: {
            "s": seconds.round(3).tolist(),
            "GFLOP/s": (work[name] / seconds / 1e9).round(1).tolist(),
            "share of the float32 peak": (work[name] / (2 * PEAK_SIZE**3) / ratio).round(3).tolist(),
        }
        for name, (seconds, ratio) in measured.items()
    }


def passes(rounds):
    """Return the times of the map to the lattice and of class sums over that of a copy of the same float32 rows."""
    rng = np.random.default_rng(0)
    lattice, X = Lattice(768), rng.standard_normal((20_000, 768), dtype=np.float32)
    rows, codes, copy = lattice.transform(X), rng.integers(0, 100, len(X)), np.empty_like(X)
    kernels = {
        f"map of {dtype} 20,000 x 768": partial(lattice.transform, X.astype(dtype))
        for dtype in ("float16", "float32", "float64", "int8")
    }
    kernels["class sums 20,000 x 768"] = lambda: class_sums(sum_blocks(lattice, rows), codes, 100, 768)
    return {
        name: {"s": seconds.round(3).tolist(), "times a copy of float32": ratio.round(2).tolist()}
        for name, (seconds, ratio) in measure(kernels, lambda: np.copyto(copy, X), rounds).items()
    }


def mean_fit():
    """Seconds and extra memory of a release on 50,000 x 1280 with 100 classes, system noise included."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 1280), dtype=np.float32)
    y = rng.integers(0, 100, len(X))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = timed(lambda: MeanPrototypes(ZCDP(0.5), classes=range(100)).fit(X, y))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"s": seconds.round(2).tolist(), "MB above the data": round((after - before) / 1024, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="default: as many as BLAS would take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with threadpool_limits(options.threads):
        result = {
            "machine": f"{platform.machine()}, numpy {np.__version__}",
            "pairs are": "wall clock, CPU",
            "MeanPrototypes.fit 50,000 x 1280, 100 classes": mean_fit(),
            **passes(options.rounds),
        }
        if find_spec("torch"):
            result["int8 is chosen here"] = int8._exact_and_fast()
        result |= products(options.public, options.rounds)
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
