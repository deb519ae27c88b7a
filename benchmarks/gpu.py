"""Seconds of DPPL-Public on a GPU, and whether its integers are those of the CPU. Needs a GPU that torch can use.

    python benchmarks/gpu.py [--private 50000] [--public 1281167] [--features 1280] [--classes 100] [--json FILE]

Rows are int8 lattice rows, made up on the device, where they stay. The goal is that of an H200: utilities under 0.5 s
and a whole fit under 1 s. Gradients are those of the library, which computes them on a tensor's device. It has no other
kernel for devices yet: those of utilities, sums and Gram matrices are here, by torch's int8 products, and tell what
could be reached. On a part of the public rows, and of the private ones for Gram matrices and gradients, everything is
computed again on the CPU by the library; exit code 1 if a single bit differs. `--device cpu` says only that this runs.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from dppl import PublicPrototypes, PureDP
from dppl.lattice import (
    PUBLIC_ROWS,
    Lattice,
    SimilarityClip,
    SoftmaxGradient,
    TensorRows,
    class_sums,
    gradient_blocks,
    sum_blocks,
    sums_and_grams,
    utilities,
)
from dppl.mechanisms import ExponentialMechanism, randomness

LOW, HIGH = 0.0, 0.5  # cosines, and a record counts as one of them plus 1
BLOCK_ROWS = 8192  # public rows: with 50,000 private ones, their products take 1.6 GB
PART_ROWS = 1 << 16
EXACT_ROWS = 2**17  # 127² times this stays below 2³¹


def product(left, right):
    """Return ``left @ right.T`` of int8 tensors as int32. CUDA wants more than 16 rows, and multiples of 8."""
    import torch

    n, m = len(left), len(right)
    wide, high, low = -left.shape[1] % 8, max(-n % 8, 24 - n), max(-m % 8, 24 - m)
    if wide or high:
        left = torch.nn.functional.pad(left, (0, wide, 0, high))
    if wide or low:
        right = torch.nn.functional.pad(right, (0, wide, 0, low))
    return torch._int_mm(left, right.T)[:n, :m]


def device_utilities(private, sizes, public, clip):
    """Return utilities, of shape (n_classes, m) and int64, of rows that are in the order of classes."""
    import torch

    out = torch.empty((len(sizes), len(public)), dtype=torch.int64, device=public.device)
    for start in range(0, len(public), BLOCK_ROWS):
        similarities = product(private, public[start : start + BLOCK_ROWS])
        similarities.clamp_(clip.low, clip.high)
        for code, few in enumerate(similarities.split(sizes)):
            out[code, start : start + BLOCK_ROWS] = few.sum(dim=0, dtype=torch.int64) - len(few) * clip.low
    return out


def device_sums(rows, codes, n_classes):
    """Return the sum of each class by a product with rows that tell the class; exact up to 2²⁴ records."""
    import torch

    member = (codes == torch.arange(n_classes, device=codes.device)[:, None]).to(torch.int8)
    return product(member, rows.T.contiguous())


def device_gram(rows):
    """Return the Gram matrix of rows, of shape (dim, dim) and int64."""
    parts = (part.T.contiguous() for part in rows.split(EXACT_ROWS))
    return sum(product(part, part).long() for part in parts)


def select(scores, mechanism):
    """Return the position of a selected row for each class; noise and the exact law are the CPU's."""
    starts = range(0, scores.shape[1], PART_ROWS)

    def part(number, codes=slice(None)):
        return scores[codes, starts[number] : starts[number] + PART_ROWS].cpu().numpy()

    def look(wanted):
        for number, codes in wanted.items():
            for code, few in zip(codes, part(number, list(codes)), strict=True):
                yield code, number, few, starts[number] + np.arange(len(few))

    return mechanism.select_each([mechanism.tally(part(number)) for number in range(len(starts))], look, randomness(0))


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


def measure(n, m, d, n_classes, device, part=2000, rounds=3):
    """Return seconds of every step, and which of them give the bits of the CPU."""
    import torch

    lattice = Lattice(d)
    clip = SimilarityClip(round(LOW * float(lattice.squared_norm)), round(HIGH * float(lattice.squared_norm)))
    mechanism = ExponentialMechanism.within(PureDP(1.0), clip.sensitivity)
    private, sizes, public = problem(n, m, d, n_classes, device)
    codes = np.repeat(np.arange(n_classes), sizes)
    on_device, weights = torch.asarray(codes, device=device), np.random.default_rng(0).normal(size=(n_classes, d))
    blocks, gradient = gradient_blocks(lattice, TensorRows(private)), SoftmaxGradient(lattice)
    seconds = {}

    def fit():
        return select(device_utilities(private, sizes, public, clip), mechanism)

    scores, seconds["utilities"] = best_seconds(lambda: device_utilities(private, sizes, public, clip), rounds, device)
    sums, seconds["class sums"] = best_seconds(lambda: device_sums(private, on_device, n_classes), rounds, device)
    _, seconds["Gram matrix"] = best_seconds(lambda: device_gram(private), rounds, device)
    _, seconds["gradient"] = best_seconds(lambda: gradient.sum(blocks, codes, weights), rounds, device)
    _, seconds["selection"] = best_seconds(lambda: select(scores, mechanism), rounds, device)
    _, seconds["whole fit"] = best_seconds(fit, rounds, device)

    host, few, other = private.cpu().numpy(), slice(0, n, max(1, n // part)), public[:part].cpu().numpy()
    some, few_codes = private[few].contiguous(), codes[few]
    ours = utilities(
        np.split(host, np.cumsum(sizes)[:-1]), lattice.blocks(other, PUBLIC_ROWS), len(other), lattice, clip
    )
    expected = PublicPrototypes(PureDP(1.0), range(n_classes), clip=(1 + LOW, 1 + HIGH), random_state=0)
    same = {
        "utilities": (scores[:, :part].cpu().numpy(), ours),
        "class sums": (sums.cpu().numpy(), class_sums(sum_blocks(lattice, host), codes, n_classes, d)),
        "Gram matrix": (
            device_gram(some).cpu().numpy(),
            sums_and_grams(sum_blocks(lattice, host[few]), few_codes, n_classes, d)[1][0],
        ),
        "gradient": (
            gradient.sum(gradient_blocks(lattice, TensorRows(some)), few_codes, weights),
            gradient.sum(gradient_blocks(lattice, host[few]), few_codes, weights),
        ),
        "whole fit": (
            select(device_utilities(private, sizes, public[:part], clip), mechanism),
            expected.fit(host, codes, X_public=other).public_indices_,
        ),
    }
    return {
        "seconds": {name: round(value, 5) for name, value in seconds.items()},
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
