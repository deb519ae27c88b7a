"""CPU time of the default method beside Opacus and scikit-learn; its time and memory on a large file.

    python benchmarks/default_method.py [--records 50000] [--features 768] [--classes
    100] [--repeats 1] python benchmarks/default_method.py --file-of-records 1000000
    [--features 384] [--classes 100]

The first fits SoftmaxPrototypes, whose noise is that of the operating system, by NumPy
and, where numba is installed, compiled; and beside it what others would do with the
same rows: a linear layer by Opacus with ghost clipping, over as many full-batch steps
as SoftmaxPrototypes takes gradients (with its loader, as its tutorials use it, and with
the rows handed in ready-made), and scikit-learn's logistic regression, which is not
private. Needs `pip install torch==2.13.0 opacus`.

The second writes rows in float16 to a file, and fits from the memory map: seconds, and
the largest resident memory beyond the process before, and beyond that process with
numba, which takes some memory once.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import probe  # isort: skip (it sets the number of threads, which NumPy reads once)

import numpy as np
from sklearn.linear_model import LogisticRegression

from dppl import GaussianDP, SoftmaxPrototypes
from dppl.kernel.lattice.stream import compiled_kernels
from dppl.methods.ascent import STEPS
from measuring import on_path

PATHS = {"SoftmaxPrototypes, NumPy": "float32"}
if find_spec("numba"):
    PATHS["SoftmaxPrototypes, numba"] = "compiled"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--features", type=int)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument(
        "--repeats", type=int, default=1, help="the fastest run of each counts"
    )
    parser.add_argument("--file-of-records", type=int)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    result = large_file(options) if options.file_of_records else beside_others(options)
    print(json.dumps(result, indent=2))


def fit(X, y, n_classes):
    """Fit the default method at a large budget, as more noise takes as long."""
    return SoftmaxPrototypes(GaussianDP(4.0), range(n_classes)).fit(X, y)


def beside_others(options):
    """Return CPU seconds and test accuracies of all."""
    rng = np.random.default_rng(0)
    n_classes = options.classes
    n_features = options.features or 768
    X, y, means = probe.mixture(options.records, n_features, n_classes, rng)
    X_test, y_test, _ = probe.mixture(20_000, n_features, n_classes, rng, means)

    def score(weights):
        return float(((X_test @ weights.T).argmax(axis=1) == y_test).mean())

    runs = {
        name: lambda X, y, path=path: on_path(
            lambda: fit(X, y, n_classes).score(X_test, y_test), path
        )()
        for name, path in PATHS.items()
    } | {
        "Opacus, its data loader": lambda X, y: score(
            probe.run_opacus(X, y, n_classes, STEPS, 1, loader=True)
        ),
        "Opacus, ready-made batch": lambda X, y: score(
            probe.run_opacus(X, y, n_classes, STEPS, 1, loader=False)
        ),
        "LogisticRegression, not private": lambda X, y: (
            LogisticRegression(C=10.0).fit(X, y).score(X_test, y_test)
        ),
    }
    for run in runs.values():
        run(X[:1000], y[:1000])  # imports and first calls
    seconds = dict.fromkeys(runs, np.inf)
    accuracy = {}
    for _ in range(options.repeats):
        for name, run in runs.items():
            accuracy[name], taken = probe.cpu_seconds(lambda run=run: run(X, y))
            seconds[name] = min(seconds[name], taken)
    return {
        "size": f"{options.records} x {n_features}, {n_classes} classes, {STEPS} gradients, {probe.THREADS} threads",
        "CPU seconds": {name: round(value, 2) for name, value in seconds.items()},
        "accuracy": {name: round(value, 4) for name, value in accuracy.items()},
        **{
            f"ratio to {ours}": {
                name: round(value / seconds[ours], 2) for name, value in seconds.items()
            }
            for ours in PATHS
        },
        "ratio wanted": "above 1",
    }


def large_file(options):
    """Return seconds and memory of a fit from a memory map."""
    n = options.file_of_records
    n_features = options.features or 384
    rng = np.random.default_rng(0)
    y = rng.integers(0, options.classes, n)
    means = rng.normal(size=(options.classes, n_features)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        X = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float16, shape=(n, n_features)
        )
        for start in range(0, n, 10_000):
            part = y[start : start + 10_000]
            X[start : start + 10_000] = means[part] + 3 * rng.standard_normal(
                (len(part), n_features), np.float32
            )
        X.flush()
        del X
        rows = np.load(path, mmap_mode="r")
        fit(np.asarray(rows[:1000]), y[:1000], options.classes)
        before = anonymous_mb()
        wall = time.perf_counter()
        cpu = time.process_time()
        compiled_kernels(rows.size)  # as the fit would
        with_numba = anonymous_mb()
        with peak(anonymous_mb) as highest:
            fit(rows, y, options.classes)
            wall = time.perf_counter() - wall
            cpu = time.process_time() - cpu
    return {
        "size": f"{n} x {n_features} float16 in a file, {options.classes} classes, {probe.THREADS} threads",
        "seconds": round(wall, 1),
        "CPU seconds": round(cpu, 1),
        "MB above the process before, without the mapped file": round(
            highest[0] - before
        ),
        "MB above the process with numba": round(highest[0] - with_numba),
        "MB of the lattice rows": round(n * n_features / 1e6),
    }


class peak:
    """Watch the largest value of a function, every 50 ms."""

    def __init__(self, value):
        self._value = value
        self.highest = [0.0]
        self._stop = threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self.highest

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(0.05):
            self.highest[0] = max(self.highest[0], self._value())


def anonymous_mb():
    """Return the resident memory that is not a mapped file (Linux)."""
    lines = dict(
        line.split(":") for line in Path("/proc/self/status").read_text().splitlines()
    )
    return int(lines["RssAnon"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
