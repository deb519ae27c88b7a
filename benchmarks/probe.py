"""CPU time of private linear probing: LinearProbe against Opacus with ghost clipping.

    python benchmarks/probe.py [--steps 5] [--batches 1] [--threads 1]

for 50,000 records of 768 features in 100 classes, or what --records, --features and
--classes say.

Both make the same steps on the same rows: softmax regression from zero weights,
gradients clipped to norm 1, Gaussian noise of the same width, momentum 0.9, the number
of records taken as public. With one batch every record takes part in every step; with B
batches each takes part with probability 1/B (Poisson sampling). Opacus is timed with
its loader, as its tutorials use it, and, for one batch, with the rows handed in
ready-made. It draws pseudo-random floating-point noise; LinearProbe is timed with a
seed, which is as fast and as unfit for release, and with the exact noise of the
operating system. Needs `pip install torch==2.13.0 opacus`.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from pathlib import Path

# BLAS reads it once, on import. Idle threads that wait actively cost CPU seconds too,
# so more threads make both slower.
THREADS = (
    int(sys.argv[sys.argv.index("--threads") + 1]) if "--threads" in sys.argv else 1
)
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(THREADS)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])

import numpy as np  # noqa: E402 (it reads the number of threads once)

from dppl import ZCDP, ApproxDP  # noqa: E402
from dppl.kernel.privacy.sampling import sampled_gaussian_multiplier  # noqa: E402
from dppl.methods import LinearProbe  # noqa: E402
from measuring import write_down  # noqa: E402

# So little noise that accuracies compare the arithmetic and not the draws.
FULL = ZCDP(200.0)
SAMPLED = ApproxDP(30.0, 1e-5, allow_weak=True)
STEP = 100.0  # for the gradient of the mean loss
MOMENTUM = 0.9
TARGET = 5.0
TOLERANCE = 0.005


def mixture(n, n_features, n_classes, rng, means=None):
    """Draw unit rows around class means, far enough apart to be learnt and close enough to be mistaken."""
    if means is None:
        means = rng.normal(size=(n_classes, n_features)).astype(np.float32)
    y = rng.integers(0, n_classes, n)
    X = 0.13 * means[y] + rng.standard_normal((n, n_features), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, y, means


def cpu_seconds(function):
    """Return the result of a call and the CPU seconds it took, of all threads."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def run_probe(X, y, n_classes, steps, n_batches, seed):
    """Fit and return the weights."""
    probe = LinearProbe(
        FULL if n_batches == 1 else SAMPLED,
        range(n_classes),
        steps=steps,
        learning_rate=STEP / n_classes,
        sampling_rate=1 / n_batches,
        batch_size=len(X) / n_batches,
        random_state=seed,
    )
    return probe.fit(X, y).coef_


def noise_multiplier(steps, n_batches):
    """Return the standard deviation of the noise in a step, in units of the clipping norm."""
    if n_batches == 1:
        return (steps / (2 * FULL.rho)) ** 0.5
    return sampled_gaussian_multiplier(
        SAMPLED.epsilon, SAMPLED.delta, 1 / n_batches, steps
    )


def run_opacus(X, y, n_classes, steps, n_batches, *, loader):
    """Train a linear layer and return its weights."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    layer = torch.nn.Linear(X.shape[1], n_classes, bias=False)
    torch.nn.init.zeros_(layer.weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer, optimizer, criterion, batches = PrivacyEngine().make_private(
            module=layer,
            optimizer=torch.optim.SGD(layer.parameters(), lr=STEP, momentum=MOMENTUM),
            criterion=torch.nn.CrossEntropyLoss(),
            data_loader=DataLoader(data, batch_size=len(X) // n_batches),
            noise_multiplier=noise_multiplier(steps, n_batches),
            max_grad_norm=1.0,
            poisson_sampling=n_batches > 1,
            grad_sample_mode="ghost",
        )
        for _ in range(steps // n_batches):
            for rows, labels in batches if loader else [data.tensors]:
                optimizer.zero_grad()
                criterion(layer(rows), labels).backward()
                optimizer.step()
    return next(layer.parameters()).detach().numpy()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--batches", type=int, default=1, help="steps must be a multiple of it"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.steps % options.batches:
        parser.error("--steps must be a multiple of --batches")
    try:
        import opacus
        import torch
    except ImportError:
        parser.exit(
            2, "this comparison needs Opacus: pip install torch==2.13.0 opacus\n"
        )
    rng = np.random.default_rng(0)
    X, y, means = mixture(options.records, options.features, options.classes, rng)
    X_test, y_test, _ = mixture(20_000, options.features, options.classes, rng, means)
    size = options.classes, options.steps, options.batches
    runs = {
        "Opacus, its data loader": lambda: run_opacus(X, y, *size, loader=True),
        "Opacus, ready-made batch": lambda: run_opacus(X, y, *size, loader=False),
        "LinearProbe, seeded noise": lambda: run_probe(X, y, *size, seed=0),
        "LinearProbe, system noise": lambda: run_probe(X, y, *size, seed=None),
    }
    if options.batches > 1:
        del runs["Opacus, ready-made batch"]
    # Imports, first calls and thread pools are paid here.
    run_opacus(X[:100], y[:100], *size, loader=True)
    run_probe(X[:100], y[:100], *size, seed=None)
    seconds = {}
    accuracy = {}
    for name, run in runs.items():
        weights, seconds[name] = cpu_seconds(run)
        accuracy[name] = float(((X_test @ weights.T).argmax(axis=1) == y_test).mean())
    ratios = {
        f"{theirs} / {ours}": round(seconds[theirs] / seconds[ours], 2)
        for theirs in runs
        for ours in runs
        if theirs.startswith("Opacus") and ours.startswith("LinearProbe")
    }
    result = {
        "machine": f"{platform.machine()}, numpy {np.__version__}, torch {torch.__version__}, "
        f"opacus {opacus.__version__}, {THREADS} threads",
        "size": f"{options.records} x {options.features}, {options.classes} classes, "
        f"{options.steps} steps, {options.batches} batches",
        "CPU seconds": {name: round(value, 2) for name, value in seconds.items()},
        "accuracy": {name: round(value, 4) for name, value in accuracy.items()},
        "accuracies agree within": round(
            max(accuracy.values()) - min(accuracy.values()), 4
        ),
        "agreement wanted": TOLERANCE,
        "ratios of CPU seconds": ratios,
        "ratio wanted": TARGET,
    }
    write_down(result, options.json)


if __name__ == "__main__":
    main()
