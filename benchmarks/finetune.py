"""Sparse fine-tuning on images, for docs/finetune.md. Needs torch; `speed` also needs opacus.

    python benchmarks/finetune.py accuracy [PROCESSES]
    python benchmarks/finetune.py few-shot [PROCESSES]
    python benchmarks/finetune.py film [PROCESSES]
    python benchmarks/finetune.py speed

accuracy: a small ResNet with group normalisation is trained on scikit-learn's digits 0 to 4 (public), and fine-tuned on
5 to 9 (private). Prints mean accuracy and standard deviation of three seeds, trained weights and seconds a fit. Noise
is seeded, so nothing here is private.

few-shot: the five classes with 5, 20 and 50 records each (public numbers), as CD-FSL draws them: mean accuracy of 60
trials and its 95 % interval. 200 full batches at a noise multiplier of 15, which is what the paper used there.

film: streams of tasks, for docs/continual.md. Half of the digits 0 to 4 are public and train the network; of all others
two thirds are learned and one third tests. Mean accuracy after the last task and standard deviation of three seeds, of
FiLM for each task and of classifiers of streams on the features of the same network.

speed: seconds and peak memory of the gradients of 64 records of a ResNet-18 at 32 x 32, each in a process of its own.
"""

import resource
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from dppl import ApproxDP, GaussianDP, SoftmaxPrototypes
from dppl.continual import ContinualDiscriminant, ContinualEnsemble
from dppl.finetune import Recipe, SparseFinetuner, select_weights
from dppl.finetune.gradients import NetworkGradients
from dppl.kernel.mechanisms import gaussian
from dppl.lab import FilmEnsemble
from dppl.lab.streams import class_incremental, shuffled

DELTA, SEEDS, EPSILONS = 1e-5, (0, 1, 2), (0.5, 1.0, 1.5, np.inf)
TRAIN = 600  # a public number
RATE, EPOCHS = 0.1, 50
EPOCHS_FILM, EPSILONS_FILM, METHODS_FILM = 10, (1.0, 8.0), ("FiLM", "ensemble", "discriminant")
EPOCHS_FEW, NOISE_FEW = 200, 15.0
ALL = ("head", "norm", "conv")
VARIANTS = ("head", "head + norm (FiLM)", "head + conv", "all", "all, random mask", "full", "features, default method")
SPEEDS = ("plain", "sparse", "full", "opacus")
RECORDS, REPEATS = 64, 3


class Block(nn.Module):
    """Two convolutions with group normalisation beside a short way."""

    def __init__(self, wide, out, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(wide, out, 3, stride, 1, bias=False),
            nn.GroupNorm(8, out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.GroupNorm(8, out),
        )
        same = stride == 1 and wide == out
        short = nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), nn.GroupNorm(8, out))
        self.short = nn.Identity() if same else short

    def forward(self, x):
        """Return the activations behind the block."""
        return torch.relu(self.path(x) + self.short(x))


def resnet(channels, widths, blocks, n_classes):
    layers = [nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False), nn.GroupNorm(8, widths[0]), nn.ReLU()]
    wide = widths[0]
    for stage, out in enumerate(widths):
        for place in range(blocks):
            layers.append(Block(wide, out, 2 if stage and not place else 1))
            wide = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, n_classes))


def images(first, last):
    digits = load_digits()
    rows = (digits.target >= first) & (digits.target <= last)
    return (digits.images[rows][:, None] / 16).astype(np.float32), digits.target[rows] - first


@cache
def pretrained(share=1):
    """Train on the public digits (or every so many of them), moved by up to a pixel, without privacy."""
    torch.manual_seed(0)
    net = resnet(1, (16, 32, 64), 1, 5)
    x, y = (torch.from_numpy(part[::share]) for part in images(0, 4))
    epochs, batch = 60, 64
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            shift = torch.randint(-1, 2, (2,)).tolist()
            loss = nn.functional.cross_entropy(net(x[rows].roll(shift, (2, 3))), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return net.requires_grad_(False).eval()


class RandomMask(SparseFinetuner):
    """As many weights of convolutions, chosen at random."""

    def _selected(self, n_classes):
        module, selection = super()._selected(n_classes)
        names = list(select_weights(module, ("conv",), sparsity=1.0))
        sizes = [module.get_parameter(name).numel() for name in names]
        rng = np.random.default_rng(self.random_state)
        taken = np.sort(rng.choice(sum(sizes), round(self.sparsity * sum(sizes)), replace=False))
        starts = np.cumsum([0, *sizes])
        for name, start, stop in zip(names, starts, starts[1:], strict=False):
            selection.pop(name, None)
            if len(places := taken[(taken >= start) & (taken < stop)] - start):
                selection[name] = places
        return module, selection


def estimator(variant, epsilon, seed):
    kind = RandomMask if "random" in variant else SparseFinetuner
    options = {"sparsity": 1.0} if variant == "full" else {}
    train = {"head": ("head",), "head + norm (FiLM)": ("head", "norm"), "head + conv": ("head", "conv")}.get(
        variant, ALL
    )
    return kind(
        pretrained(),
        ApproxDP(min(epsilon, 10.0), DELTA),
        range(5),
        train=train,
        sampling_rate=RATE,
        recipe=Recipe(epochs=EPOCHS, batch_size=RATE * TRAIN, block=84),
        random_state=seed,
        **options,
    )


def cell(task):
    variant, epsilon, seed = task
    torch.set_num_threads(1)
    x, y = images(5, 9)
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[:TRAIN], order[TRAIN:]
    start = time.perf_counter()
    if "features" in variant:
        with torch.no_grad():
            features = pretrained()[:-1](torch.from_numpy(x)).numpy()
        model = SoftmaxPrototypes(ApproxDP(min(epsilon, 1e4), DELTA), range(5), random_state=seed)
        model.fit(features[train], y[train])
        return model.score(features[test], y[test]), model.prototypes_.size, time.perf_counter() - start
    model = estimator(variant, epsilon, seed)
    if np.isinf(epsilon):  # no noise; clipping stays
        with patch.object(gaussian, "sampled_gaussian_multiplier", return_value=1e-6):
            model.fit(x[train], y[train])
    else:
        model.fit(x[train], y[train])
    size = sum(model.module.get_parameter(n).numel() if p is None else len(p) for n, p in model.selection_.items())
    return model.score(x[test], y[test]), size, time.perf_counter() - start


def trial(task):
    variant, shots, seed = task
    torch.set_num_threads(1)
    x, y = images(5, 9)
    order = np.random.default_rng(seed).permutation(len(x))
    train = np.concatenate([order[y[order] == label][:shots] for label in range(5)])
    test = np.setdiff1d(order, train)
    model = SparseFinetuner(
        pretrained(),
        GaussianDP(EPOCHS_FEW**0.5 / NOISE_FEW),
        range(5),
        train=("head",) if variant == "head" else ALL,
        sampling_rate=1.0,
        recipe=Recipe(epochs=EPOCHS_FEW, batch_size=5 * shots, block=min(5 * shots, 128)),
        random_state=seed,
    )
    return model.fit(x[train], y[train]).score(x[test], y[test])


def few_shot(processes):
    budget = GaussianDP(EPOCHS_FEW**0.5 / NOISE_FEW)
    print(f"epsilon {budget.to_approx(DELTA).epsilon:.3g} at delta {DELTA:g}", flush=True)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for variant in ("head", "all"):
            for shots in (5, 20, 50):
                found = list(pool.map(trial, [(variant, shots, seed) for seed in range(60)]))
                half = 1.96 * np.std(found, ddof=1) / len(found) ** 0.5
                print(f"| {variant} | {shots} | {np.mean(found):.3f} ± {half:.3f} |", flush=True)


@cache
def looks():
    """Return the private digits, and 20 classes: the digits 5 to 9 as they are, negative, turned, and in noise."""
    (x, y), (others, z) = images(0, 4), images(5, 9)
    rng = np.random.default_rng(0)
    forms = [others, 1 - others, np.rot90(others, axes=(2, 3)), others + rng.normal(0, 0.3, others.shape)]
    digits = np.concatenate([x[1::2], others]), np.concatenate([y[1::2], z + 5])
    return digits, (np.concatenate(forms).astype(np.float32), np.concatenate([z + 5 * n for n in range(4)]))


def cut(stream, y, seed):
    if "data sets" in stream:
        return [np.flatnonzero(y // 5 == n) for n in range(4)]
    cutter = class_incremental if "of 2" in stream else shuffled
    return [task.rows for task in cutter(y, range(10), 5, seed)]


def stream_cell(task):
    """Return accuracies after the last task by either rule for scores, and seconds to learn and to classify 1,000."""
    stream, method, epsilon, seed = task
    torch.set_num_threads(1)
    x, y = looks()["data sets" in stream]
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[len(x) // 3 :], order[: len(x) // 3]
    budget, classes = ApproxDP(epsilon, DELTA), np.unique(y)
    tasks = cut(stream, y[train], seed)
    start = time.perf_counter()
    if method == "FiLM":
        recipe = Recipe(epochs=EPOCHS_FILM, batch_size=len(train) // len(tasks), block=100)
        options = {"sampling_rate": 1.0, "recipe": recipe}
        model = FilmEnsemble(pretrained(2), budget, classes, options=options, random_state=seed)
    else:
        with torch.no_grad():
            x = pretrained(2)[:-1](torch.from_numpy(x)).numpy()
        model = (ContinualEnsemble if method == "ensemble" else ContinualDiscriminant)(
            budget, classes, random_state=seed
        )
    for rows in tasks:
        model.partial_fit(x[train][rows], y[train][rows])
    learned = time.perf_counter()
    score = model.score(x[test], y[test])
    classified = (time.perf_counter() - learned) / len(test) * 1000
    largest = score if method == "discriminant" else model.set_params(scores="largest").score(x[test], y[test])
    return score, largest, learned - start, classified


def film(processes):
    streams = ("digits, 5 tasks of 2 classes", "digits, every class in 5 tasks", "4 data sets of 5 classes")
    tasks = [(st, m, e, s) for st in streams for m in METHODS_FILM for e in EPSILONS_FILM for s in SEEDS]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        found = dict(zip(tasks, pool.map(stream_cell, tasks), strict=True))
    print("| stream | epsilon | FiLM | FiLM, largest | ensemble | ensemble, largest | discriminant |")
    print("| --- " * 7 + "|")
    for stream in streams:
        for epsilon in EPSILONS_FILM:
            cells = [[found[stream, m, epsilon, seed][rule] for seed in SEEDS] for m in METHODS_FILM for rule in (0, 1)]
            numbers = " | ".join(f"{np.mean(row):.3f} ± {np.std(row):.3f}" for row in cells[:-1])
            print(f"| {stream} | {epsilon:g} | {numbers} |")
        for method in METHODS_FILM:
            times = np.mean([found[task][2:] for task in tasks if task[:2] == (stream, method)], axis=0)
            print(f"{method}: {times[0]:.1f} s to learn, {times[1]:.3f} s for 1,000 images")


def accuracy(processes):
    tasks = [(v, e, s) for v in VARIANTS for e in EPSILONS for s in SEEDS]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        found = dict(zip(tasks, pool.map(cell, tasks), strict=True))
    print("| trained | weights | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " | seconds a fit |")
    print("| --- " * (len(EPSILONS) + 3) + "|")
    for variant in VARIANTS:
        cells = [[found[variant, e, s] for s in SEEDS] for e in EPSILONS]
        numbers = " | ".join(f"{np.mean([c[0] for c in row]):.3f} ± {np.std([c[0] for c in row]):.3f}" for row in cells)
        seconds = np.mean([c[2] for row in cells for c in row])
        print(f"| {variant} | {cells[0][0][1]:,} | {numbers} | {seconds:.0f} |")


def one_speed(kind):
    """Print the seconds and the growth of the peak in memory of the gradients of some records."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    net = resnet(3, (64, 128, 256, 512), 2, 10)
    x, y = torch.randn(RECORDS, 3, 32, 32), torch.zeros(RECORDS, dtype=torch.int64)
    if kind in ("sparse", "full"):
        selection = select_weights(net, sparsity=0.01 if kind == "sparse" else 1.0)
        with patch.object(NetworkGradients, "_try", lambda self, *_: self._see_layers(x[0])):
            gradients = NetworkGradients(net, selection, clip=1.0, shape=(3, 32, 32), block=32)

        def run():
            for part in range(0, RECORDS, 32):
                gradients.block_sum(x[part : part + 32].numpy(), y[part : part + 32].numpy())
    elif kind == "opacus":
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        net = GradSampleModule(net)
        optimiser = DPOptimizer(
            torch.optim.SGD(net.parameters(), 1e-9),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=RECORDS,
        )

        def run():
            for part in range(0, RECORDS, 32):
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(net(x[part : part + 32]), y[part : part + 32], reduction="sum")
                loss.backward()
                optimiser.signal_skip_step(do_skip=part + 32 < RECORDS)
                optimiser.step()
    else:

        def run():
            for part in range(0, RECORDS, 32):
                nn.functional.cross_entropy(net(x[part : part + 32]), y[part : part + 32]).backward()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    print(kind, min(times), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def speed():
    for kind in SPEEDS:
        command = [sys.executable, "-W", "ignore", __file__, "one", kind]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        name, seconds, memory = found.stdout.split()
        print(f"{name}: {float(seconds):.2f} s, {float(memory):.0f} MB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "accuracy":
        accuracy(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    elif sys.argv[1] == "few-shot":
        few_shot(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    elif sys.argv[1] == "film":
        film(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    elif sys.argv[1] == "one":
        one_speed(sys.argv[2])
    else:
        speed()
