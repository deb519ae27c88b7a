"""Seconds of DPPL-Public on a GPU, and whether its integers are those of the CPU. Needs a GPU that torch can use.

    python benchmarks/gpu.py [--private 50000] [--public 1281167] [--features 1280] [--classes 100] [--json FILE]

Rows are int8 lattice rows, made up on the device, where they stay; all kernels are those of the library. The goal is
that of an H200: utilities under 0.5 s and a whole fit under 1 s. On a part of the public rows, and of the private ones
for Gram matrices and gradients, everything is computed again by NumPy; exit code 1 if a single bit differs.
`--device cpu` says only that this runs.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from dppl import PublicData, PublicPrototypes, PureDP
from dppl.kernel.lattice import (
    DEVICE_ROWS,
    Lattice,
    SimilarityClip,
    SoftmaxGradient,
    TensorRows,
    class_sums,
    each_utilities,
    gradient_blocks,
    iter_blocks,
    sums_and_grams,
    utilities,
)

LOW, HIGH = 0.0, 0.5  # cosines, and a record counts as one of them plus 1
SUM_ROWS = 4096


def problem(n, m, d, n_classes, device):
    """Return lattice rows on a device, private ones in the order of classes, and the number of each class."""
    import torch

    generator = torch.Generator(device).manual_seed(0)

    def rows(count):
        return torch.randint(-40, 41, (count, d), dtype=torch.int8, device=device, generator=generator)

    sizes = [len(part) for part in np.array_split(np.arange(n), n_classes)]
    return rows(n), sizes, rows(m)


def best_seconds(run, rounds, device):
    """Return what a call gives and the least of its wall-clock times, all work of the device done."""
    import torch

    found = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        result = run()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return result, min(found[1:])


def blocks_of(rows, size=SUM_ROWS):
    """Return blocks of an array, or of a tensor on its device."""
    return iter_blocks(rows, size) if isinstance(rows, np.ndarray) else rows.split(size)


def measure(n, m, d, n_classes, device, part=2000, rounds=3):
    """Return seconds of every step, and which of them give the bits of NumPy."""
    lattice = Lattice(d)
    clip = SimilarityClip(round(LOW * float(lattice.squared_norm)), round(HIGH * float(lattice.squared_norm)))
    gradient, weights = SoftmaxGradient(lattice), np.random.default_rng(0).normal(size=(n_classes, d))
    private, sizes, public = problem(n, m, d, n_classes, device)
    codes = np.repeat(np.arange(n_classes), sizes)
    kept = gradient_blocks(lattice, TensorRows(private))

    def scores():
        """Bring the utilities of all blocks to the processor, where a fit makes tallies of them."""
        blocks = blocks_of(public, DEVICE_ROWS)
        each_utilities(private, sizes, blocks, m, lattice, clip, lambda start, block, few: None)

    def some_scores(rows, others):
        ends = np.cumsum(sizes)
        by_class = [rows[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        return utilities(by_class, blocks_of(others), len(others), lattice, clip)

    def fit(rows, others):
        model = PublicPrototypes(PureDP(1.0), range(n_classes), clip=(1 + LOW, 1 + HIGH), random_state=0)
        return model.set_params(public=PublicData(others)).fit(rows, codes).public_indices_

    steps = {
        "utilities": scores,
        "class sums": lambda: class_sums(blocks_of(private), codes, n_classes, d),
        "Gram matrix": lambda: sums_and_grams(blocks_of(private), codes, n_classes, d),
        "gradient": lambda: gradient.sum(kept, codes, weights),
        "whole fit": lambda: fit(TensorRows(private), TensorRows(public)),
    }
    found = {name: best_seconds(run, rounds, device) for name, run in steps.items()}

    few, host = slice(0, n, max(1, n // part)), private.cpu().numpy()
    some, others, few_codes = private[few].contiguous(), public[:part], codes[few]
    same = {
        "utilities": [some_scores(*rows) for rows in ((private, others), (host, others.cpu().numpy()))],
        "class sums": [found["class sums"][0], class_sums(blocks_of(host), codes, n_classes, d)],
        "Gram matrix": [sums_and_grams(blocks_of(rows), few_codes, n_classes, d)[1] for rows in (some, host[few])],
        "gradient": [gradient.sum(blocks_of(rows), few_codes, weights) for rows in (some, host[few])],
        "whole fit": [fit(TensorRows(private), TensorRows(others)), fit(host, others.cpu().numpy())],
    }
    return {
        "seconds": {name: round(seconds, 5) for name, (_, seconds) in found.items()},
        "bits are those of the CPU": {name: bool(np.array_equal(*pair)) for name, pair in same.items()},
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"private": 50_000, "public": 1_281_167, "features": 1280, "classes": 100}
    for name, default in {**sizes, "part": 2000, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    try:
        import torch
    except ImportError:
        parser.exit(2, "this measures a GPU through torch, which is not installed\n")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.exit(2, "this needs a GPU that torch can use, and there is none: its speed is not measured\n")
    result = {
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device,
        "torch": torch.__version__,
        **{name: getattr(options, name) for name in sizes},
        **measure(*(getattr(options, name) for name in sizes), options.device, options.part, options.rounds),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return int(not all(result["bits are those of the CPU"].values()))


if __name__ == "__main__":
    sys.exit(main())
