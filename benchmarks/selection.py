"""CPU seconds and memory of a selection among public rows, apart from computing the utilities.

    python benchmarks/selection.py [--public 1281167] [--classes 100] [--size 1]
    [--repeats 3] [--json FILE]

Utilities come in blocks as the kernels yield them; a few of them stand for all, so that
neither they nor their making is measured. Memory is the peak above that, from tallies
to positions. Then a whole fit on few private rows, whose memory must not grow with the
public rows, which are read from a file block by block.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402 (it reads the number of threads once)

from dppl import PublicData, PublicPrototypes, PureDP  # noqa: E402
from dppl.kernel.lattice.similarities import PUBLIC_ROWS  # noqa: E402
from dppl.kernel.mechanisms import ExponentialMechanism, Tally  # noqa: E402
from dppl.kernel.mechanisms.randomness import randomness  # noqa: E402
from measuring import write_down  # noqa: E402

# Similarities in squared lattice steps, between clipping bounds, and the records of a
# class.
SENSITIVITY = 500_000
RECORDS = 500
PART_BLOCKS = 4
DIM = 64


def peak():
    """Return the largest memory of this process so far, in MB; getrusage would count that of the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def selection(n_public, n_classes, size):
    """Return CPU seconds and MB of one selection a class, the second look's own utilities left out."""
    mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=SENSITIVITY, size=size)
    rng = np.random.default_rng(0)
    mean = RECORDS * SENSITIVITY // 10
    spread = RECORDS * SENSITIVITY // 50
    stock = [
        np.rint(rng.normal(mean, spread, (n_classes, PUBLIC_ROWS))).astype(np.int64)
        for _ in range(16)
    ]
    starts = range(0, n_public, PUBLIC_ROWS)

    def block(number):
        return stock[number % len(stock)][:, : n_public - starts[number]]

    def look(wanted):
        for part, codes in wanted.items():
            for number in range(
                part * PART_BLOCKS, min((part + 1) * PART_BLOCKS, len(starts))
            ):
                few = block(number)
                for code in codes:
                    yield (
                        code,
                        part,
                        few[code],
                        starts[number] + np.arange(few.shape[1]),
                    )

    few = block(0)
    first_look = (
        (code, 0, few[code], np.arange(few.shape[1])) for code in range(n_classes)
    )
    mechanism.select_each(
        [mechanism.tally(few)], lambda wanted: first_look, randomness(0)
    )  # a warm-up
    before = peak()
    start = time.process_time()
    parts = [
        Tally.merged(
            mechanism.tally(block(number))
            for number in range(first, min(first + PART_BLOCKS, len(starts)))
        )
        for first in range(0, len(starts), PART_BLOCKS)
    ]
    mechanism.select_each(parts, look, randomness(0))
    return {
        "CPU s": round(time.process_time() - start, 2),
        "MB": round(peak() - before, 1),
        "parts": len(parts),
    }


def fit_memory(n_public, n_classes):
    """Return MB of a fit of 20 records a class above what a fit on few public rows takes, with all of them on disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "public.npy"
        public = np.lib.format.open_memmap(path, "w+", np.int8, (n_public, DIM))
        rng = np.random.default_rng(0)
        for start in range(0, n_public, 1 << 16):
            public[start : start + (1 << 16)] = rng.integers(
                -40, 41, (min(1 << 16, n_public - start), DIM)
            )
        public.flush()
        words = [
            sys.executable,
            __file__,
            "--fit",
            str(path),
            "--classes",
            str(n_classes),
        ]
        return float(
            subprocess.run(words, check=True, capture_output=True, text=True).stdout
        )


def fit(path, n_classes):
    """Print the memory of one fit, in a process of its own."""
    rng = np.random.default_rng(1)
    X = rng.integers(-40, 41, (20 * n_classes, DIM)).astype(np.int8)
    y = np.repeat(range(n_classes), 20)
    PublicPrototypes(
        PureDP(1.0), range(n_classes), random_state=0, public=PublicData(X[:50] // 2)
    ).fit(X, y)
    public = Mapped(path)
    before = peak()
    PublicPrototypes(
        PureDP(1.0), range(n_classes), random_state=0, public=PublicData(public)
    ).fit(X, y)
    print(round(peak() - before, 1))


class Mapped:
    """Rows of a file, read a block at a time, so that no page of it stays in memory."""

    def __init__(self, path):
        self._path = path
        self.shape = np.load(path, mmap_mode="r").shape

    def blocks(self, size):
        """Yield the rows in order."""
        for start in range(0, self.shape[0], size):
            yield np.array(np.load(self._path, mmap_mode="r")[start : start + size])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--public", type=int, default=1_281_167)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(options.fit, options.classes)
        return
    runs = [
        selection(options.public, options.classes, options.size)
        for _ in range(options.repeats)
    ]
    result = {
        f"selection of {options.size} of {options.public}, {options.classes} classes": {
            "CPU s": min(run["CPU s"] for run in runs),
            "MB above the inputs": runs[0]["MB"],
            "parts": runs[0]["parts"],
        },
        "MB of a fit above one on 50 public rows, by public rows": {
            n: fit_memory(n, options.classes)
            for n in (options.public // 4, options.public, 4 * options.public)
        },
    }
    write_down(result, options.json)


if __name__ == "__main__":
    main()
