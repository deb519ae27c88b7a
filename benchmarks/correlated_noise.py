"""Kinds of noise for a stream of tasks, for docs/continual.md.

    python benchmarks/correlated_noise.py accuracy DATA [SEEDS]
    python benchmarks/correlated_noise.py cost {independent,toeplitz}

The first prints test accuracy after the last task of banking77 streams in which every
class is in every task, with seeded noise. The second learns 1,000 tasks of 200 records,
384 features and 100 classes with the noise of the operating system, and prints CPU
seconds, the peak of memory and the sizes of the files.
"""

import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import get_args

import numpy as np

from continual import EPSILONS, read
from dppl import ApproxDP, GaussianDP
from dppl.continual import ContinualPrototypes
from dppl.continual.prototypes import Noise
from dppl.lab.task_streams import class_incremental, shuffled


def options_of(noise, n_tasks):
    return {} if noise == "independent" else {"noise": noise, "max_tasks": n_tasks}


def learned(data, tasks, budget, seed, noise, max_tasks):
    """Return the accuracy of a model of all tasks."""
    x, y, x_test, y_test = data
    model = ContinualPrototypes(
        budget,
        np.arange(y.max() + 1),
        random_state=1000 + seed,
        **options_of(noise, max_tasks),
    )
    with tempfile.TemporaryDirectory() as folder:
        state = {} if noise == "independent" else {"state": Path(folder) / "state"}
        for task in tasks:
            model.partial_fit(x[task.rows], y[task.rows], **state)
    return model.score(x_test, y_test)


def compare(title, data, make, n_tasks, max_tasks, seeds):
    y = data[1]
    for epsilon in EPSILONS:
        cells = []
        for noise in get_args(Noise):
            scores = [
                learned(
                    data,
                    make(y, np.arange(y.max() + 1), n_tasks, s),
                    ApproxDP(epsilon, 1e-5),
                    s,
                    noise,
                    max_tasks,
                )
                for s in range(seeds)
            ]
            cells.append(
                f"{noise} {np.mean(scores):.3f} ± {np.std(scores, ddof=1):.3f}"
            )
        print(f"{title}, epsilon {epsilon:g}: {'; '.join(cells)}", flush=True)


def cost(noise):
    rng = np.random.default_rng(0)
    classes = np.arange(100)
    model = ContinualPrototypes(GaussianDP(0.5), classes, **options_of(noise, 1000))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        state = {} if noise == "independent" else {"state": path}
        started = time.process_time()
        for _ in range(1000):
            X = rng.normal(size=(200, 384)).astype(np.float32)
            y = rng.integers(100, size=200)
            model.partial_fit(X, y, **state)
        seconds = time.process_time() - started
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        kept = path.stat().st_size if state else 0
    sizes = f"peak {largest / 1e6:.0f} MB, model {len(model.to_bytes()) / 1e6:.1f} MB, state {kept / 1e6:.1f} MB"
    print(f"{noise}: {seconds:.0f} CPU s, {sizes}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "cost":
        cost(sys.argv[2])
        sys.exit()
    banking = read(Path(sys.argv[2]) / "banking77")
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    compare("every class in 11 tasks", banking, shuffled, 11, 11, seeds)
    compare("every class in 77 tasks", banking, shuffled, 77, 77, seeds)
    compare(
        "every class in 77 tasks of at most 1,000", banking, shuffled, 77, 1000, seeds
    )
    compare("11 tasks of 7 classes", banking, class_incremental, 11, 11, seeds)
