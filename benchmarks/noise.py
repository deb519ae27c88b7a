"""CPU time of system noise against seeded noise: bare, and in fits.

    python benchmarks/noise.py [--records 50000] [--features 768] [--classes 100]
    [--steps 10] [--repeats 3]

Seeded noise is NumPy's: pseudo-random floats, as fast as noise comes and unfit for
release. System noise is the exactly rounded Gaussian from bits of the operating system.
Each pair is timed in alternation, and the fastest run counts.
"""

import argparse
import json
import os
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402 (it reads the number of threads once)

from dppl import GaussianDP, SoftmaxPrototypes  # noqa: E402
from dppl.kernel.mechanisms.randomness import randomness  # noqa: E402
from dppl.methods import LinearProbe  # noqa: E402

# From narrow noise on counts to that on gradients, whose grid is fine.
WIDTHS = (1.0, 1e3, 1e6, 6e9, 1e12)
WANTED = 1.05


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("records", 50_000),
        ("features", 768),
        ("classes", 100),
        ("steps", 10),
        ("repeats", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((options.records, options.features), dtype=np.float32)
    y = rng.integers(0, options.classes, options.records)
    classes = range(options.classes)
    shape = options.classes, options.features
    bare = {
        f"{width:g}": seconds(
            options.repeats,
            lambda seed, width=width: randomness(seed).rounded_gaussian(width, shape),
        )
        for width in WIDTHS
    }
    fits = {
        "LinearProbe": seconds(
            options.repeats,
            lambda seed: LinearProbe(
                GaussianDP(4.0), classes, steps=options.steps, random_state=seed
            ).fit(X, y),
        ),
        "SoftmaxPrototypes": seconds(
            options.repeats,
            lambda seed: SoftmaxPrototypes(
                GaussianDP(4.0), classes, random_state=seed
            ).fit(X, y),
        ),
    }
    result = {
        "size": f"{options.records} x {options.features}, {options.classes} classes, {options.steps} probe steps",
        "nanoseconds a value, system and seeded, by width": {
            width: [round(1e9 * value / np.prod(shape), 1) for value in pair]
            for width, pair in bare.items()
        },
        "CPU seconds of a fit, system and seeded": {
            name: [round(value, 2) for value in pair] for name, pair in fits.items()
        },
        "ratio": {
            name: round(system / seeded, 3) for name, (system, seeded) in fits.items()
        },
        "ratio wanted": WANTED,
    }
    print(json.dumps(result, indent=2))


def seconds(repeats, run):
    """Return the least CPU seconds with system and with seeded noise."""
    best = [np.inf, np.inf]
    for repeat in range(repeats + 1):
        for side, seed in enumerate((None, 0)):
            start = time.process_time()
            run(seed)
            if repeat:  # the first pays for imports
                best[side] = min(best[side], time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
