"""Sparse fine-tuning on images, for docs/finetune.md. Needs torch; `speed` also needs opacus.

    python benchmarks/finetune.py film [PROCESSES]
    python benchmarks/finetune.py speed [FOLDER]
    python benchmarks/finetune.py speed vit

film: streams of tasks, for docs/continual.md. Half of the digits 0 to 4 are public and
train the network; of all others two thirds are learned and one third tests. Mean
accuracy after the last task and standard deviation of three seeds, of FiLM for each
task and of classifiers of streams on the features of the same network.

speed: CPU seconds of the gradients of 64 records of a ResNet-20 at 32 x 32, and how far
the peak in memory grows after those of one record, on one thread and each in a separate
process; in brackets the ratio to Opacus, which needs to be installed. `speed FOLDER`
takes net.py and resnet20_cifar10.safetensors of a folder, and without it the network
has random weights. It also prints what bfloat16 changes in gradients. `speed vit` takes
8 records of 224 x 224 and a ViT-B/16 with random weights, of which head and norm are
trained. It needs timm.
"""

import resource
import runpy
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

from dppl import ApproxDP
from dppl.continual import ContinualDiscriminant, ContinualEnsemble
from dppl.finetune import Recipe, select_weights
from dppl.finetune.gradients import NetworkGradients
from dppl.lab import FilmEnsemble
from dppl.lab.task_streams import class_incremental, shuffled

DELTA = 1e-5
SEEDS = (0, 1, 2)
EPOCHS_FILM = 10
EPSILONS_FILM = (1.0, 8.0)
METHODS_FILM = ("FiLM", "ensemble", "discriminant")
ALL = ("head", "norm", "conv")
# What is trained, and the share of convolutions.
PARTS_OF = {
    "head": (("head",), 1.0),
    "FiLM": (("head", "norm"), 1.0),
    "sparse": (ALL, 0.01),
    "all": (ALL, 1.0),
}
HALF = ", bfloat16"
SPEEDS = (
    "plain",
    *PARTS_OF,
    *(kind + HALF for kind in PARTS_OF),
    "opacus",
    "opacus, ghost",
)
RECORDS = 64
REPEATS = 3
ROUNDS = 2


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
        short = nn.Sequential(
            nn.Conv2d(wide, out, 1, stride, bias=False), nn.GroupNorm(8, out)
        )
        self.short = nn.Identity() if same else short

    def forward(self, x):
        """Return the activations behind the block."""
        return torch.relu(self.path(x) + self.short(x))


def resnet(channels, widths, blocks, n_classes):
    layers = [
        nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False),
        nn.GroupNorm(8, widths[0]),
        nn.ReLU(),
    ]
    wide = widths[0]
    for stage, out in enumerate(widths):
        for place in range(blocks):
            layers.append(Block(wide, out, 2 if stage and not place else 1))
            wide = out
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, n_classes)
    )


def images(first, last):
    digits = load_digits()
    rows = (digits.target >= first) & (digits.target <= last)
    return (digits.images[rows][:, None] / 16).astype(np.float32), digits.target[
        rows
    ] - first


@cache
def pretrained(share=1):
    """Train on the public digits (or every so many of them), moved by up to a pixel, without privacy."""
    torch.manual_seed(0)
    net = resnet(1, (16, 32, 64), 1, 5)
    x, y = (torch.from_numpy(part[::share]) for part in images(0, 4))
    epochs = 60
    batch = 64
    optimiser = torch.optim.SGD(
        net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            shift = torch.randint(-1, 2, (2,)).tolist()
            loss = nn.functional.cross_entropy(
                net(x[rows].roll(shift, (2, 3))), y[rows]
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return net.requires_grad_(False).eval()


@cache
def looks():
    """Return the private digits, and 20 classes: the digits 5 to 9 as they are, negative, turned, and in noise."""
    (x, y), (others, z) = images(0, 4), images(5, 9)
    rng = np.random.default_rng(0)
    forms = [
        others,
        1 - others,
        np.rot90(others, axes=(2, 3)),
        others + rng.normal(0, 0.3, others.shape),
    ]
    digits = np.concatenate([x[1::2], others]), np.concatenate([y[1::2], z + 5])
    return digits, (
        np.concatenate(forms).astype(np.float32),
        np.concatenate([z + 5 * n for n in range(4)]),
    )


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
    train = order[len(x) // 3 :]
    test = order[: len(x) // 3]
    budget = ApproxDP(epsilon, DELTA)
    classes = np.unique(y)
    tasks = cut(stream, y[train], seed)
    start = time.perf_counter()
    if method == "FiLM":
        recipe = Recipe(
            epochs=EPOCHS_FILM, batch_size=len(train) // len(tasks), block=100
        )
        options = {"sampling_rate": 1.0, "recipe": recipe}
        model = FilmEnsemble(
            pretrained(2), budget, classes, options=options, random_state=seed
        )
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
    largest = (
        score
        if method == "discriminant"
        else model.set_params(scores="largest").score(x[test], y[test])
    )
    return score, largest, learned - start, classified


def film(processes):
    streams = (
        "digits, 5 tasks of 2 classes",
        "digits, every class in 5 tasks",
        "4 data sets of 5 classes",
    )
    tasks = [
        (st, m, e, s)
        for st in streams
        for m in METHODS_FILM
        for e in EPSILONS_FILM
        for s in SEEDS
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        found = dict(zip(tasks, pool.map(stream_cell, tasks), strict=True))
    print(
        "| stream | epsilon | FiLM | FiLM, largest | ensemble | ensemble, largest | discriminant |"
    )
    print("| --- " * 7 + "|")
    for stream in streams:
        for epsilon in EPSILONS_FILM:
            cells = [
                [found[stream, m, epsilon, seed][rule] for seed in SEEDS]
                for m in METHODS_FILM
                for rule in (0, 1)
            ]
            numbers = " | ".join(
                f"{np.mean(row):.3f} ± {np.std(row):.3f}" for row in cells[:-1]
            )
            print(f"| {stream} | {epsilon:g} | {numbers} |")
        for method in METHODS_FILM:
            times = np.mean(
                [found[task][2:] for task in tasks if task[:2] == (stream, method)],
                axis=0,
            )
            print(
                f"{method}: {times[0]:.1f} s to learn, {times[1]:.3f} s for 1,000 images"
            )


class Narrow(nn.Module):
    """A block of ResNet-20 with option A: where a stage begins, the short way is cut and filled up with zeros."""

    def __init__(self, wide, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(wide, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.stride = stride
        self.more = (out - wide) // 2

    def forward(self, x):
        """Return the activations behind the block."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more))
        return torch.relu(x + y)


def network_of(folder):
    """Return a network for 20 classes, with statistics frozen, and images: a ViT-B/16, or ResNet-20 (He et al. 2015).

    ResNet-20 (section 4.2) is that of a folder, or random.
    """
    torch.manual_seed(0)
    if folder == "vit":
        import timm

        return timm.create_model("vit_base_patch16_224", num_classes=20).requires_grad_(
            False
        ).eval(), images_of(8, 224)
    return resnet20(folder), images_of(RECORDS, 32)


def images_of(n, side):
    return torch.randn(n, 3, side, side), torch.arange(n) % 20


def resnet20(folder):
    if folder is None:
        sizes = (
            [(16, 16, 1)] * 3
            + [(16, 32, 2)]
            + [(32, 32, 1)] * 2
            + [(32, 64, 2)]
            + [(64, 64, 1)] * 2
        )
        net = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(Narrow(*size) for size in sizes),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 20)),
        )
        return net.requires_grad_(False).eval()
    from safetensors.torch import load_file

    net = runpy.run_path(f"{folder}/net.py")["make"]()
    net.load_state_dict(load_file(f"{folder}/resnet20_cifar10.safetensors"))
    net.linear = nn.Linear(64, 20)
    return net.requires_grad_(False).eval()


def one_speed(kind, block, folder=None):
    """Print the CPU seconds and the growth of the peak in memory of the gradients of some records."""
    torch.set_num_threads(1)
    net, (x, y) = network_of(folder)
    first = [slice(0, 1)]
    blocks = [slice(start, start + block) for start in range(0, len(x), block)]
    if (trained := kind.removesuffix(HALF)) in PARTS_OF:
        train, sparsity = PARTS_OF[trained]
        precision = "bfloat16" if kind.endswith(HALF) else "float32"
        selection = select_weights(net, train, sparsity=sparsity)
        options = {"clip": 1.0, "shape": x.shape[1:], "precision": precision}
        with patch.object(NetworkGradients, "_try"):
            gradients = {
                size: NetworkGradients(net, selection, block=size, **options)
                for size in (1, block)
            }

        def run(parts):
            for part in parts:
                gradients[part.stop - part.start].block_sum(
                    x[part].numpy(), y[part].numpy()
                )
    else:
        # Opacus takes no scale and shift of frozen statistics: of ResNet-20 it trains
        # convolutions and the head.
        kinds = (nn.LayerNorm,) if folder == "vit" else (nn.Conv2d, nn.Linear)
        trained = [layer for layer in net.modules() if isinstance(layer, kinds)] + [
            *net.modules()
        ][-1:]
        for layer in trained:
            layer.requires_grad_(True).train()
        net.training = True
        run = {
            "plain": plain_steps,
            "opacus": opacus_steps,
            "opacus, ghost": ghost_steps,
        }[kind](net, x, y)

    run(first)  # what is loaded once counts for none
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        run(blocks)
        times.append(time.process_time() - start)
    print(
        min(times), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    )


def plain_steps(net, x, y):
    def run(parts):
        for part in parts:
            nn.functional.cross_entropy(net(x[part]), y[part]).backward()

    return run


def opacus_steps(net, x, y):
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    net = GradSampleModule(net, strict=False)
    sgd = torch.optim.SGD(net.parameters(), 1e-9)
    optimiser = DPOptimizer(
        sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(x)
    )

    def run(parts):
        for part in parts:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            optimiser.signal_skip_step(do_skip=part.stop < len(x))
            optimiser.step()

    return run


def ghost_steps(net, x, y):
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import (
        DPOptimizerFastGradientClipping,
    )
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    net = GradSampleModuleFastGradientClipping(
        net, strict=False, max_grad_norm=1.0, use_ghost_clipping=True
    )
    sgd = torch.optim.SGD(net.parameters(), 1e-9)
    optimiser = DPOptimizerFastGradientClipping(
        sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(x)
    )
    loss = DPLossFastGradientClipping(net, optimiser, nn.CrossEntropyLoss())

    def run(parts):
        for part in parts:
            optimiser.zero_grad()
            loss(net(x[part]), y[part]).backward()
            optimiser.signal_skip_step(do_skip=part.stop < len(x))
            optimiser.step()

    return run


def speed(folder):
    is_vit = folder == ["vit"]
    for block in (8,) if is_vit else (32, 64):
        found = {
            kind: []
            for kind in SPEEDS
            if not is_vit or kind.removesuffix(HALF) not in ("head", "sparse", "all")
        }
        for _ in range(
            ROUNDS
        ):  # one after the other, so that a busy machine slows all alike
            for kind in found:
                command = [
                    sys.executable,
                    "-W",
                    "ignore",
                    __file__,
                    "one",
                    kind,
                    str(block),
                    *folder,
                ]
                output = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True
                ).stdout
                found[kind].append([float(number) for number in output.split()])
        seconds, memory = np.min(found["opacus"], axis=0)
        for kind, runs in found.items():
            best, least = np.min(runs, axis=0)
            print(
                f"{block} a block, {kind}: {best:.3f} s ({best / seconds:.2f}), {least:.0f} MB ({least / memory:.2f})"
            )
    if not is_vit:
        rounding(*folder)


def rounding(folder=None):
    """Print how far gradients in bfloat16 are off, of their length: on average of a record, and of a clipped sum."""
    net, (x, y) = network_of(folder)
    for kind, (train, sparsity) in PARTS_OF.items():
        selection = select_weights(net, train, sparsity=sparsity)
        found = []
        for precision in (torch.float32, torch.bfloat16):
            options = {
                "block": RECORDS,
                "precision": str(precision).removeprefix("torch."),
            }
            gradients = NetworkGradients(
                net, selection, clip=1.0, shape=(3, 32, 32), **options
            )
            rows = gradients.rows(x.to(precision), y)
            clipped = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
            found.append((rows, clipped.sum(0, keepdim=True)))
        errors = [
            ((b - a).norm(dim=1) / a.norm(dim=1)).mean()
            for a, b in zip(*found, strict=True)
        ]
        print(
            f"{kind}, bfloat16: a record off by {errors[0]:.3f}, a sum by {errors[1]:.3f}"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "film":
        film(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    elif sys.argv[1] == "one":
        one_speed(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    else:
        speed(sys.argv[2:])
