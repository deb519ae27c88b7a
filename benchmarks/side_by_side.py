"""What people would use instead, on the same rows and at the same budget: accuracy, CPU seconds and memory.

    python benchmarks/side_by_side.py run FILE [--who dppl ...] [--data digits ...]
    [--python OTHER_PYTHON]
    python benchmarks/side_by_side.py show FILE

The data come with dppl and scikit-learn, or are made up. A line of FILE is a fit; a
peer that is there is not run again on the same data. Each peer has a process of its own
for each data set, with one thread. Its first fit, at epsilon 1, gives the seconds, with
noise calibration and without imports, and the largest memory of the process so far. The
fits after it, of other splits and budgets, are for the accuracy alone.

Each peer needs its own packages: `pip install torch==2.13.0 opacus jax-privacy
interpret-core`, and diffprivlib an environment of its own, with `scikit-learn<1.8`,
whose Python is `--python`. A peer that cannot be imported is named with its error.
Methods of rows get the same rows, of a table those by its schema; DP-EBM gets the
columns, with the same public bounds. Guarantees differ: all are of one record added or
removed at delta = 1e-6, but diffprivlib's, which is pure; noise is exact in dppl alone.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

DELTA = 1e-6
EPSILONS = (1.0, 8.0)
STEPS = 40
# Of full batches. The best is shown, chosen by accuracy on the test rows, which favours
# those who have to choose: it costs no budget here.
RATES = (1.0, 4.0)
BOUNDS = {
    "radius": (5, 30),
    "texture": (5, 40),
    "perimeter": (30, 200),
    "area": (100, 2600),
    "smoothness": (0.0, 0.2),
    "compactness": (0.0, 0.4),
    "concavity": (0.0, 0.5),
    "concave points": (0.0, 0.25),
    "symmetry": (0.1, 0.4),
    "fractal dimension": (0.0, 0.1),
}


def sample_rows(seed):
    """Return the digits of dppl's sample, behind its encoder; their split is fixed."""
    from dppl.io import load_sample

    sample = load_sample()
    return {
        "X": sample.X,
        "y": sample.y,
        "X_test": sample.X_test,
        "y_test": sample.y_test,
    }


def table_rows(seed):
    """Return ten columns of scikit-learn's table of breast tumours, and its rows by a schema of their bounds."""
    from sklearn.datasets import load_breast_cancer

    from dppl.encoders.load import load_encoder
    from dppl.training.items import embed_items

    tumours = load_breast_cancer()
    columns = tumours.data[:, : len(BOUNDS)]
    with TemporaryDirectory() as folder:
        schema = Path(folder) / "schema.toml"
        lines = [f'"{name}" = {list(bounds)}\n' for name, bounds in BOUNDS.items()]
        schema.write_text("".join(lines), encoding="utf-8")
        encoder = load_encoder(f"columns:{schema}")
    records = [dict(zip(BOUNDS, map(str, row), strict=True)) for row in columns]
    rows = np.asarray(embed_items(encoder, records, "records"))
    return split(seed, tumours.target, X=rows, columns=columns)


def made_up_rows(seed):
    """Return many rows around class means."""
    from probe import mixture

    rng = np.random.default_rng(seed)
    X, y, means = mixture(5_000, 384, 20, rng)
    X_test, y_test, _ = mixture(5_000, 384, 20, rng, means)
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}


def split(seed, y, **arrays):
    """Return three of four records to train on, and the others to test."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [len(y) * 3 // 4])
    arrays["y"] = y
    return {name: array[train] for name, array in arrays.items()} | {
        f"{name}_test": array[test] for name, array in arrays.items()
    }


# What makes them, and the number of splits or of draws.
DATA = {
    "digits": (sample_rows, 3),
    "table": (table_rows, 3),
    "made-up": (made_up_rows, 1),
}

# Of these the table shows seconds and memory: the one that all peers take, and the largest.
TIMED = ("table", "made-up")


def unit(rows):
    """Return rows of length 1, each by its own values, since gradients and data are clipped by length."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12)


# A peer takes the parts of a data set and a budget, imports what it needs, and returns
# what fits, which in turn returns the labels of the test rows.


def dppl(part, epsilon, rate):
    """Fit the default."""
    from dppl import ApproxDP, SoftmaxPrototypes

    def fit():
        classes = range(part["y"].max() + 1)
        model = SoftmaxPrototypes(ApproxDP(epsilon, DELTA), classes=classes)
        return model.fit(part["X"], part["y"]).predict(part["X_test"])

    return fit


def opacus_loader(part, epsilon, rate):
    """Train as Opacus' MNIST example does: its loader, batch, epochs, rate and clipping."""
    return opacus(part, epsilon, batch=64, epochs=10, rate=0.1)


def opacus_batch(part, epsilon, rate):
    """Train on one ready batch of all records, with momentum and ghost clipping."""
    n = len(part["y"])
    settings = {"momentum": 0.9, "mode": "ghost", "ready": True}
    return opacus(part, epsilon, batch=n, epochs=STEPS, rate=rate, **settings)


def opacus(
    part, epsilon, *, batch, epochs, rate, momentum=0.0, mode="hooks", ready=False
):
    """Train a linear layer."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    def fit():
        rows = torch.from_numpy(unit(part["X"]))
        data = TensorDataset(rows, torch.from_numpy(part["y"]))
        layer = torch.nn.Linear(rows.shape[1], int(part["y"].max()) + 1)
        torch.nn.init.zeros_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), lr=rate, momentum=momentum)
        layer, optimizer, *criterion, loader = (
            PrivacyEngine().make_private_with_epsilon(
                module=layer,
                optimizer=optimizer,
                data_loader=DataLoader(data, batch_size=batch),
                target_epsilon=epsilon,
                target_delta=DELTA,
                epochs=epochs,
                max_grad_norm=1.0,
                grad_sample_mode=mode,
            )
        )
        loss = criterion[0] if criterion else torch.nn.CrossEntropyLoss()
        for _ in range(epochs):
            for x, y in [data.tensors] if ready else loader:
                optimizer.zero_grad()
                loss(layer(x), y).backward()
                optimizer.step()
        with torch.no_grad():
            return layer(torch.from_numpy(unit(part["X_test"]))).argmax(1).numpy()

    return fit


@cache
def jax_plan(epsilon, n):
    """Return its plan, whose calibration takes seconds, of the same budget and number of records once."""
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

    return BandMFExecutionPlanConfig.default(
        num_bands=1,
        iterations=STEPS,
        epsilon=epsilon,
        delta=DELTA,
        sampling_prob=1.0,
        l2_clip_norm=1.0,
        normalize_by=n,
    ).plan


def jax_privacy(part, epsilon, rate):
    """Train on batches of all records by the plan that its documentation calls standard DP-SGD."""
    import jax
    import jax.numpy as jnp
    import optax

    def loss(weights, x, y):
        logits = x @ weights["slope"] + weights["offset"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def fit():
        x = jnp.asarray(unit(part["X"]))
        y = jnp.asarray(part["y"])
        n_classes = int(part["y"].max()) + 1
        plan = jax_plan(epsilon, len(y))
        gradient = plan.clipped_grad(loss, batch_argnums=(1, 2))
        optimizer = optax.sgd(rate, momentum=0.9)
        noise = plan.noise_addition_transform

        @jax.jit
        def step(weights, state):
            noisy, noise_state = noise.update(gradient(weights, x, y), state[0])
            updates, momentum = optimizer.update(noisy, state[1])
            return optax.apply_updates(weights, updates), (noise_state, momentum)

        weights = {
            "slope": jnp.zeros((x.shape[1], n_classes)),
            "offset": jnp.zeros(n_classes),
        }
        state = noise.init(weights), optimizer.init(weights)
        for _ in range(STEPS):
            weights, state = step(weights, state)
        logits = unit(part["X_test"]) @ weights["slope"] + weights["offset"]
        return np.asarray(logits).argmax(axis=1)

    return fit


def dp_ebm(part, epsilon, rate):
    """Fit DP-EBM's defaults to the columns, with public types and bounds."""
    from interpret.privacy import DPExplainableBoostingClassifier

    def fit():
        low, high = np.array([*BOUNDS.values()], float).T
        model = DPExplainableBoostingClassifier(
            feature_types=["continuous"] * len(BOUNDS),
            privacy_bounds=dict(enumerate(zip(low, high, strict=True))),
            epsilon=epsilon,
            delta=DELTA,
            n_jobs=1,
        )
        model.fit(part["columns"].clip(low, high), part["y"])
        return model.predict(part["columns_test"].clip(low, high))

    return fit


def diffprivlib(part, epsilon, rate):
    """Fit its logistic regression."""
    from diffprivlib.models import LogisticRegression

    def fit():
        model = LogisticRegression(epsilon=epsilon, data_norm=1.0)
        return model.fit(unit(part["X"]), part["y"]).predict(unit(part["X_test"]))

    return fit


def scikit_learn(part, epsilon, rate):
    """Fit logistic regression without privacy."""
    from sklearn.linear_model import LogisticRegression

    def fit():
        model = LogisticRegression(max_iter=1000)
        return model.fit(part["X"], part["y"]).predict(part["X_test"])

    return fit


# What it is called, what fits, the packages whose versions matter, and learning rates.
WHO = {
    "dppl": ("default", dppl, ("dppl", "numpy"), ()),
    "opacus-loader": (
        "its MNIST example's loader and settings",
        opacus_loader,
        ("opacus", "torch"),
        (),
    ),
    "opacus-batch": (
        f"{STEPS} full batches, best rate of {len(RATES)}",
        opacus_batch,
        ("opacus", "torch"),
        RATES,
    ),
    "jax-privacy": (
        f"{STEPS} full batches, best rate of {len(RATES)}",
        jax_privacy,
        ("jax-privacy", "jax"),
        RATES,
    ),
    "dp-ebm": ("DP-EBM, defaults", dp_ebm, ("interpret-core",), ()),
    "diffprivlib": (
        "LogisticRegression, pure",
        diffprivlib,
        ("diffprivlib", "scikit-learn"),
        (),
    ),
    "scikit-learn": (
        "LogisticRegression, **no privacy**",
        scikit_learn,
        ("scikit-learn",),
        (),
    ),
}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("file", type=Path)
    run.add_argument("--who", nargs="+", choices=WHO, default=[*WHO])
    run.add_argument("--data", nargs="+", choices=DATA, default=[*DATA])
    run.add_argument("--python", default=sys.executable, help="of the peer")
    commands.add_parser("show").add_argument("file", type=Path)
    # What a process of its own does.
    fit = commands.add_parser("fit")
    fit.add_argument("who")
    fit.add_argument("parts", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    if options.command == "show":
        print("\n".join(table(read_fits(options.file))))
    elif options.command == "fit":
        print(json.dumps(fits(options.who, options.parts)))
    else:
        run_fits(options)


def run_fits(options):
    """Append what is missing, in one process after the other."""
    done = set()
    if options.file.exists():
        done = {key(fit) for fit in read_fits(options.file) if "error" not in fit}
    with TemporaryDirectory() as folder:
        for data in options.data:
            make, n_seeds = DATA[data]
            parts = [f"{folder}/{data}-{seed}.npz" for seed in range(n_seeds)]
            for seed, path in enumerate(parts):
                np.savez(path, **make(seed))
            for who in options.who:
                cell = {"data": data, "who": who}
                # DP-EBM takes columns, and two classes.
                if key(cell) in done or (who == "dp-ebm" and data != "table"):
                    continue
                cell["load"] = round(os.getloadavg()[0], 1)
                versions, found = apart(options.python, who, parts)
                cell["versions"] = versions
                lines = [json.dumps(cell | fit) + "\n" for fit in found]
                with options.file.open("a", encoding="utf-8") as file:
                    file.writelines(lines)


def apart(python, who, parts):
    """Return the versions of a peer, and what a process of its own measured or why it failed."""
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [python, __file__, "fit", who, *parts],
        env={**os.environ, **dict.fromkeys(threads, "1")},
        capture_output=True,
        text=True,
    )
    versions, *found = done.stdout.splitlines() or [""]
    if done.returncode:
        *_, error = ["killed", *done.stderr.strip().splitlines()]
        return versions, [{"error": error.partition(" (")[0]}]  # without its path
    return versions, json.loads(found[-1])


def fits(who, paths):
    """Print versions, and measure here: the first fit in full, and the accuracy of all."""
    warnings.simplefilter("ignore")
    _, prepare, packages, rates = WHO[who]
    print(", ".join(f"{name} {metadata.version(name)}" for name in packages))
    found = []
    # Without privacy one budget stands for all.
    epsilons = EPSILONS[:1] if who == "scikit-learn" else EPSILONS
    for epsilon, path, rate in product(epsilons, paths, rates or [None]):
        with np.load(path) as file:
            part = dict(file)
        run = prepare(part, epsilon, rate)
        imported = time.process_time()
        predicted = run()
        fit = {
            "epsilon": epsilon,
            "part": Path(path).stem,
            "rate": rate,
            "accuracy": round(float((predicted == part["y_test"]).mean()), 4),
        }
        if not found:
            fit["seconds"] = round(time.process_time() - imported, 3)
            fit["all seconds"] = round(time.process_time(), 2)
            fit["megabytes"] = round(largest_memory() / 1e6)
        found.append(fit)
    return found


def largest_memory():
    """Return the bytes that this process has held at most; Linux only."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def key(fit):
    return fit["data"], fit["who"]


def read_fits(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(fits):
    """Yield a row for each peer, and a line for each that did not run."""
    yield row("", *DATA, "CPU s", "with imports", "MB")
    yield row(*["---"] * (4 + len(DATA)))
    for who, (what, *_) in WHO.items():
        own = [fit for fit in fits if fit["who"] == who and "error" not in fit]
        if own:
            first = {fit["data"]: fit for fit in own if "seconds" in fit}
            yield row(
                f"{own[0]['versions']}: {what}",
                *(accuracies(own, data) for data in DATA),
                *(
                    " / ".join(
                        f"{first[data][name]:.3g}" for data in TIMED if data in first
                    )
                    for name in ("seconds", "all seconds", "megabytes")
                ),
            )
    failed = [fit for fit in fits if "error" in fit]
    if failed:
        yield ""
    yield from dict.fromkeys(f"{fit['versions']}: `{fit['error']}`" for fit in failed)


def accuracies(fits, data):
    """Return the mean at each budget, with the best rate."""
    cells = []
    for epsilon in EPSILONS:
        by_rate = {}
        for fit in fits:
            if (fit["data"], fit["epsilon"]) == (data, epsilon):
                by_rate.setdefault(fit["rate"], []).append(fit["accuracy"])
        if by_rate:
            cells.append(f"{max(map(np.mean, by_rate.values())):.2f}")
    return " / ".join(cells)


def row(*cells):
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
