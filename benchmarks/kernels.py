"""Speed of the exact kernels against this machine's float32 matrix-product peak, in one run.

    python benchmarks/kernels.py [--public 60000] [--rounds 5] [--json FILE]

Peak and kernel are measured in turns, because shared machines drift; the figure is the median of the ratios. Rates
count the 2·n·m·d operations of the similarities only, so clipping, sums and the map to the lattice count as loss.
"""

import argparse
import json
import platform
import resource
import time
from pathlib import Path

import numpy as np

from dppl import ZCDP, MeanPrototypes
from dppl.lattice import PUBLIC_ROWS, Lattice, SimilarityClip, utilities

PEAK_SIZE = 4096


def timed(function):
    """Return wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def utilities_rates(n_public, rounds):
    """Ratio of the utilities' rate to the peak: the shape of banking77 against a public text pool."""
    rng = np.random.default_rng(0)
    sizes = np.linspace(35, 187, 77).astype(int)
    lattice = Lattice(384)
    private = [lattice.transform(rng.normal(size=(n, 384))) for n in sizes]
    public = rng.normal(size=(n_public, 384)).astype(np.float16)
    rows = lattice.transform(public)
    clip = SimilarityClip(int(0.05 * lattice.squared_norm), int(0.6 * lattice.squared_norm))
    square = rng.normal(size=(PEAK_SIZE, PEAK_SIZE)).astype(np.float32)
    out = np.empty_like(square)
    operations = 2.0 * sizes.sum() * n_public * 384
    runs = {
        "lattice rows in": lambda: utilities(private, lattice.blocks(rows, PUBLIC_ROWS), n_public, lattice, clip),
        "float16 embeddings in": lambda: utilities(
            private, lattice.blocks(public, PUBLIC_ROWS), n_public, lattice, clip
        ),
    }
    ratios = {name: [] for name in runs}
    peaks, rates = [], {name: [] for name in runs}
    np.matmul(square, square, out=out)
    for _ in range(rounds):
        for name, run in runs.items():
            before = 2.0 * PEAK_SIZE**3 / np.array(timed(lambda: np.matmul(square, square, out=out)))
            rate = operations / np.array(timed(run))
            after = 2.0 * PEAK_SIZE**3 / np.array(timed(lambda: np.matmul(square, square, out=out)))
            peak = (before + after) / 2
            peaks.append(peak)
            rates[name].append(rate)
            ratios[name].append(rate / peak)
    return {
        "peak GFLOP/s (wall, per CPU second)": (np.median(peaks, axis=0) / 1e9).round(1).tolist(),
        **{
            name: {
                "GFLOP/s (wall, per CPU second)": (np.median(rates[name], axis=0) / 1e9).round(1).tolist(),
                "share of peak (wall, per CPU second)": np.median(ratios[name], axis=0).round(3).tolist(),
            }
            for name in runs
        },
    }


def mean_fit():
    """CPU seconds and extra memory of a release on 50,000 x 1280 with 100 classes, system noise included."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 1280), dtype=np.float32)
    y = rng.integers(0, 100, len(X))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = timed(lambda: MeanPrototypes(ZCDP(0.5), classes=range(100)).fit(X, y))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"wall s": round(wall, 2), "CPU s": round(cpu, 2), "MB above the data": round((after - before) / 1024, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = {
        "machine": f"{platform.machine()}, numpy {np.__version__}",
        "MeanPrototypes.fit 50,000 x 1280, 100 classes": mean_fit(),
        f"utilities 10,000 x {options.public} x 384, 77 classes": utilities_rates(options.public, options.rounds),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
