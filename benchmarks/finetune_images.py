"""When private training of weights beats a classifier on features, on real images, for docs/finetune.md. Needs torch.

    python benchmarks/finetune_images.py run FOLDER RESULTS [--plan
    table|records|tricks|digits] [--variant NAME ...] python
    benchmarks/finetune_images.py table RESULTS

FOLDER holds `net.py`, whose `make()` returns a network for images of 32 x 32 with batch
normalisation and the last layer `linear`; `resnet20_cifar10.safetensors`, its public
weights; and `images.npz` with `train_x` and `test_x` (n, 32, 32, 3) of uint8, `train_y`
and `test_y`. RESULTS is a file of JSON lines. Cells that it has are not computed again,
so a run goes on where it stopped.

A cell is one variant, epsilon, number of records and seed. `features` is
`SoftmaxPrototypes` on the frozen features. All others take three steps. The head starts
as `SoftmaxPrototypes` at a tenth of the budget (of squares of mu). Weights are trained
together with the head, at half of it. In the end `SoftmaxPrototypes` is fitted on the
features of the trained network, at the rest. All three are composed exactly, and noise
is seeded, so nothing here is private.

Epochs, batches and learning rates follow from the number of records and the noise by a
rule that was found on scikit-learn's digits, which are public (plan digits). A cell may
change them, as in `--cell '{"variant": "FiLM", "epsilon": 8, "n": 2000, "seed": 0,
"epochs": 6}'`. `halves` composes as a user can: the training takes half of epsilon and
delta, and both fits of `SoftmaxPrototypes` the other half. `standardised` keeps the
mean and the deviation of every filter as they are. `correlated` takes records in a
fixed order in place of samples, and later steps take back a part of the noise: so many
bands of "toeplitz" in `dppl.kernel.queries.factors`.

Gradients of single records are computed in bfloat16.
"""

import argparse
import json
import time
import warnings
from copy import deepcopy
from functools import cache
from importlib import util
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from dp_accounting import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    pld,
)
from safetensors.torch import load_file
from scipy.linalg import toeplitz
from scipy.optimize import brentq
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from dppl import ApproxDP, GaussianDP, SoftmaxPrototypes
from dppl.errors import WeakBudgetWarning
from dppl.finetune import Recipe, SparseFinetuner, select_weights, trainer
from dppl.finetune.gradients import RADIUS, NetworkGradients
from dppl.finetune.weights import sizes_of
from dppl.kernel.mechanisms import gaussian

DELTA = 1e-5
SEEDS = (0, 1, 2)
SIZES = (1000, 2000, 4000, 8000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, np.inf)
START = 0.1
END = 0.4
EPOCHS = 3
RATE = 1 / 16
CLIP = 1.0
BLOCK = 64
MEAN, STD = (
    np.float32(values) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
)
# parts, share of the convolutions, which of them
VARIANTS = {
    "head": (("head",), 1.0, "largest"),
    "FiLM": (("head", "norm"), 1.0, "largest"),
    **{
        f"sparse {100 * s:g} %": (("head", "norm", "conv"), s, "largest")
        for s in (0.01, 0.02, 0.05, 0.1)
    },
    **{
        f"sparse {100 * s:g} %, random": (("head", "norm", "conv"), s, "random")
        for s in (0.01, 0.02, 0.05, 0.1)
    },
    "all": (("head", "norm", "conv"), 1.0, "largest"),
}
# Learning rates while the noise of a step is below a hundredth of the batch; above they
# fall with its inverse.
HEAD_RATE = 2.0
NORM_RATE = 0.5
CONV_RATE = 0.15
LEAST = 100


class Unit(nn.Module):
    """Rows of length 1 about a released centre, of length 1 again: what `SoftmaxPrototypes` scores."""

    def __init__(self, center):
        super().__init__()
        self.register_buffer("center", torch.as_tensor(center, dtype=torch.float32))

    def forward(self, x):
        """Return the rows."""
        return functional.normalize(functional.normalize(x, dim=1) - self.center, dim=1)


def headed(body, model, n_classes):
    """Return the body with a linear layer on unit features that starts as the model, or from zero."""
    width = body.linear.in_features
    linear = nn.Linear(width, n_classes).requires_grad_(False)
    center = np.zeros(width)
    linear.weight.zero_(), linear.bias.zero_()
    if model is not None:
        center = model.lattice_.center
        (
            linear.weight.copy_(torch.as_tensor(model.coef_)),
            linear.bias.copy_(torch.as_tensor(model.intercept_)),
        )
    network = deepcopy(body)
    network.linear = nn.Sequential(Unit(center), linear)
    return network


class Started(SparseFinetuner):
    """Keeps the network's head, and may choose convolutions at random, or take names."""

    _trains_head = True

    def _selected(self, n_classes):
        module = deepcopy(self.module)
        if isinstance(self.train, set):
            names = {f"linear.1.{own}" for own in ("weight", "bias")} | self.train
            return module, {
                name: None for name, _ in module.named_parameters() if name in names
            }
        selection = select_weights(module, self.train, sparsity=self.sparsity)
        if self.mask == "random":
            names = list(select_weights(module, ("conv",), sparsity=1.0))
            sizes = [module.get_parameter(name).numel() for name in names]
            rng = np.random.default_rng(self.random_state)
            ends = np.cumsum([0, *sizes])
            taken = np.sort(
                rng.choice(ends[-1], round(self.sparsity * ends[-1]), replace=False)
            )
            for name, start, stop in zip(names, ends, ends[1:], strict=False):
                selection.pop(name, None)
                if len(places := taken[(taken >= start) & (taken < stop)] - start):
                    selection[name] = places
        return module, {
            name: selection[name]
            for name, _ in module.named_parameters()
            if name in selection
        }


class Standardised(nn.Conv2d):
    """A convolution whose filters keep the means and deviations that they had in public."""

    def __init__(self, given):
        shape = (
            given.in_channels,
            given.out_channels,
            given.kernel_size,
            given.stride,
            given.padding,
        )
        super().__init__(*shape, bias=False)
        self.weight = nn.Parameter(given.weight.detach().clone(), requires_grad=False)
        mean, deviation, _ = self.parts()
        self.register_buffer("mean", mean), self.register_buffer("deviation", deviation)

    def parts(self):
        """Return means, deviations, and filters of mean 0 and deviation 1."""
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        deviation = self.weight.std((1, 2, 3), keepdim=True, correction=0)
        return mean, deviation, (self.weight - mean) / deviation

    def forward(self, x):
        """Return the images, filtered."""
        return self._conv_forward(x, self.mean + self.deviation * self.parts()[2], None)


def standardised(module):
    """Return the network with standardised convolutions, which computes the same."""
    for name, child in module.named_children():
        setattr(
            module,
            name,
            Standardised(child)
            if isinstance(child, nn.Conv2d)
            else standardised(child),
        )
    return module


class OrderedGradients(NetworkGradients):
    """Sums over batches in a fixed order, with correlated noise."""

    step = 0

    def answer(self, mechanism, records, source, *, weights):
        """Return the sum at these weights over the next batch."""
        if not self.step:
            plain = np.random.default_rng(self.seed).normal(
                0, RADIUS * self.deviation, (len(self.matrix), self.size)
            )
            self.noise = np.rint(np.linalg.solve(self.matrix, plain)).astype(np.int64)
        now = (
            np.arange(len(records.codes)) % self.n_batches == self.step % self.n_batches
        )
        self.step += 1
        return (
            self.exact_sum(records, weights=weights, taken=now)
            + self.noise[self.step - 1]
        )


def correlation(bands, steps, n_batches):
    """Return the matrix, the norm of what a record adds to its rows, and how much the noise of prefix sums shrinks."""
    column = np.cumprod([1, *(1 - 1 / (2 * np.arange(1, steps)))]) * (
        np.arange(steps) < bands
    )
    matrix = toeplitz(column, np.zeros(steps))
    # A record takes part once in `n_batches` steps; no entry is negative, so the most
    # that it adds is in one direction.
    reach = np.linalg.norm(matrix[:, ::n_batches].sum(1))
    sums = np.tri(steps)
    return (
        matrix,
        reach,
        np.linalg.norm(np.linalg.solve(matrix.T, sums.T)) / np.linalg.norm(sums),
    )


@cache
def noise_multiplier(budget, rate, steps, mu):
    """Return the noise of the steps that, after Gaussian releases of cost mu, makes all of it cost the budget."""
    before = [GaussianDpEvent(1 / mu)] if mu else []

    def excess(noise):
        step = (
            GaussianDpEvent(noise)
            if rate == 1
            else PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        )
        account = pld.PLDAccountant(
            value_discretization_interval=1e-3 * min(1, budget.epsilon)
        )
        for event in (*before, SelfComposedDpEvent(step, steps)):
            account.compose(event)
        return account.get_epsilon(budget.delta) - budget.epsilon

    high = 2 * steps**0.5 / budget.gaussian_allowance().mu
    low = high / 2
    while excess(low) <= 0:
        high = low
        low = low / 2
    return brentq(excess, low, high, rtol=5e-3) * 1.005


def load(folder):
    """Return the public body, and images and labels for training and for tests."""
    spec = util.spec_from_file_location("net", folder / "net.py")
    code = util.module_from_spec(spec)
    spec.loader.exec_module(code)
    body = code.make().eval().requires_grad_(False)
    body.load_state_dict(load_file(folder / "resnet20_cifar10.safetensors"))
    with np.load(folder / "images.npz") as file:
        images = [
            prepared(file[name] / np.float32(255)) for name in ("train_x", "test_x")
        ]
        return body, (images[0], file["train_y"], images[1], file["test_y"])


def prepared(pixels):
    return ((pixels - MEAN) / STD).transpose(0, 3, 1, 2).astype(np.float32)


def digits():
    """Return scikit-learn's digits as colour images of 32 x 32, for training and for tests."""
    found = load_digits()
    grey = functional.interpolate(
        torch.as_tensor(found.images[:, None] / 16), (32, 32), mode="bilinear"
    )
    images = prepared(grey.permute(0, 2, 3, 1).expand(-1, -1, -1, 3).numpy())
    order = np.random.default_rng(0).permutation(len(images))
    train = order[:1400]
    test = order[1400:]
    return images[train], found.target[train], images[test], found.target[test]


def in_batches(module, x):
    with torch.no_grad():
        return np.concatenate(
            [
                module(channels_last(one)).numpy()
                for one in torch.as_tensor(x).split(250)
            ]
        )


def channels_last(x):
    return x.to(memory_format=torch.channels_last) if x.ndim == 4 else x


def features_of(body, x):
    network = deepcopy(body)
    network.linear = nn.Identity()
    return in_batches(network, x)


def cell(body, data, features, settings):
    """Return what was found: accuracies on test images, trained weights, noise, and seconds."""
    x, y, x_test, y_test = data
    variant, epsilon, n, seed = (
        settings[name] for name in ("variant", "epsilon", "n", "seed")
    )
    halves = settings.get("halves", 0)
    start = settings.get("start", 2 * START if halves else START)
    end = settings.get("end", 2 * END if halves else END)
    epochs = settings.get("epochs", EPOCHS)
    rate = settings.get("rate", RATE)
    taken = np.random.default_rng(seed).permutation(len(y))[:n]
    classes = np.unique(y)
    spent = (
        ApproxDP(epsilon / 2, DELTA / 2)
        if halves
        else ApproxDP(min(epsilon, 1e3), DELTA, allow_weak=True)
    )
    mu = 100.0 if np.isinf(epsilon) else spent.gaussian_allowance().mu
    begun = time.process_time()
    mu_start = mu if variant == "features" else mu * start**0.5
    model = None
    if start:
        model = SoftmaxPrototypes(GaussianDP(mu_start), classes, random_state=seed).fit(
            features[0][taken], y[taken]
        )
    found = {} if model is None else {"features": model.score(features[1], y_test)}
    if variant == "features":
        return {
            "accuracy": found["features"],
            "size": model.coef_.size,
            "seconds": time.process_time() - begun,
        }
    steps = round(epochs / rate)
    before = 0.0 if halves else mu * (start + end) ** 0.5
    noise = (
        noise_multiplier(spent, rate, steps, before) if np.isfinite(epsilon) else 1e-6
    )
    gradients = NetworkGradients
    shrinks = 1.0
    if bands := settings.get("correlated"):
        matrix, reach, shrinks = correlation(bands, steps, round(1 / rate))
        noise = reach / (mu * (1 - start - end) ** 0.5)
        ordered = {
            "matrix": matrix,
            "deviation": noise,
            "n_batches": round(1 / rate),
            "seed": seed,
        }
        gradients = type("Gradients", (OrderedGradients,), ordered)
    train, sparsity, mask = VARIANTS[variant]
    scale = settings.get("scale", 1.0) * min(1.0, rate * n / (LEAST * noise * shrinks))
    recipe = Recipe(
        epochs=epochs,
        batch_size=rate * n,
        clip=CLIP,
        learning_rate=scale
        * settings.get("learning_rate", CONV_RATE if "conv" in train else NORM_RATE),
        head_learning_rate=scale * HEAD_RATE,
        warmup_epochs=rate,
        keep_filters="standardised" not in settings,
        block=BLOCK,
        precision="bfloat16",
    )
    network = headed(
        standardised(deepcopy(body)) if settings.get("standardised") else body,
        model,
        len(classes),
    )
    if variant == "head":  # the body is frozen, so that its features do
        network, (x, x_test) = network.linear, features
    estimator = Started(
        network,
        GaussianDP(steps**0.5 / noise)
        if rate == 1
        else ApproxDP(1.0, DELTA),  # whose noise is replaced
        classes,
        train=train,
        sparsity=sparsity,
        sampling_rate=rate,
        recipe=recipe,
        random_state=seed,
    )
    estimator.mask = mask
    fast = patch.object(trainer, "NetworkGradients", gradients)
    with (
        fast,
        patch.object(gaussian, "sampled_gaussian_multiplier", return_value=noise),
    ):
        estimator.fit(x[taken], y[taken])
    found["trained"] = float(
        (in_batches(estimator.module_, x_test).argmax(1) == y_test).mean()
    )
    found["accuracy"] = found["trained"]
    if end:  # the default method on features of the trained body
        seen = [
            one[rows]
            if variant == "head"
            else features_of(estimator.module_, one[rows])
            for one, rows in ((x, taken), (x_test, ...))
        ]
        last = SoftmaxPrototypes(
            GaussianDP(mu * end**0.5), classes, random_state=seed + 1000
        )
        found["accuracy"] = last.fit(seen[0], y[taken]).score(seen[1], y_test)
    size = sum(sizes_of(estimator.module_, estimator.selection_))
    return found | {
        "size": size,
        "noise": noise * shrinks,
        "seconds": time.process_time() - begun,
    }


def planned(plan):
    """Return cells in the order of their worth."""
    if plan == "digits":
        found = [
            ("FiLM", e, {"scale": scale})
            for e in (2.0, 8.0)
            for scale in (0.3, 1.0, 3.0)
        ]
        return [
            {"variant": v, "epsilon": e, "n": 1400, "seed": 0, **more}
            for v, e, more in found
        ]
    if plan == "tricks":
        changes = [
            {"start": 0},
            {"end": 0},
            {"rate": 0.125},
            {"rate": 0.25},
            {"rate": 1.0, "epochs": 12},
            {"epochs": 6},
            {"correlated": 16},
            {"correlated": 48},
            {"halves": 1},
        ]
        changes = [("FiLM", one) for one in changes] + [
            ("all", {}),
            ("all", {"standardised": 1}),
        ]
        return [
            {"variant": v, "epsilon": 8.0, "n": 2000, "seed": s, **one}
            for s in (0, 1)
            for v, one in changes
        ]
    if plan == "records":
        cells = [("features", e, n, s) for n in SIZES for e in EPSILONS for s in SEEDS]
        cells += [
            (v, e, n, s)
            for s in SEEDS
            for n in SIZES
            for v in ("FiLM", "all")
            for e in (8.0, 1.0)
        ]
    else:
        cells = [
            (v, e, 8000, s)
            for v in ("features", "head")
            for e in EPSILONS
            for s in SEEDS
        ]
        cells += [
            (v, e, 8000, s)
            for s in SEEDS
            for e in (8.0, 1.0, np.inf, 2.0, 0.5, 4.0)
            for v in VARIANTS
        ]
    return [
        dict(zip(("variant", "epsilon", "n", "seed"), one, strict=True))
        for one in cells
    ]


def run(options):
    """Compute the cells that the results do not have."""
    torch.set_num_threads(1)
    body, data = load(options.folder)
    if public := options.plan == "digits":
        data = digits()
    features = [features_of(body, data[place]) for place in (0, 2)]
    cells = [json.loads(one) for one in options.cell] or planned(options.plan)
    for settings in cells:
        if options.variant and settings["variant"] not in options.variant:
            continue
        settings = settings | {"data": "digits" if public else "images"}
        if settings in [one["settings"] for one in read(options.results)]:
            continue
        found = cell(body, data, features, settings)
        with options.results.open("a") as file:
            print(json.dumps({"settings": settings, **found}), file=file)
        print(settings, found, flush=True)


def read(path):
    return (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


def table(path, n=8000):
    """Print accuracy by variant and epsilon, and by number of records."""
    cells = {}
    for one in read(path):
        settings = dict(one["settings"])
        if settings.pop("data") == "images":
            del settings["seed"]
            size = settings.pop("n")
            variant = settings.pop("variant")
            epsilon = settings.pop("epsilon")
            name = ", ".join(
                [
                    variant,
                    *(f"{key} {value:g}" for key, value in sorted(settings.items())),
                ]
            )
            cells.setdefault((name, epsilon, size), []).append(one)
    names = list(dict.fromkeys(name for name, _, _ in cells))

    def shown(*key):
        scores = [one["accuracy"] for one in cells.get(key, [])]
        error = (
            f" ± {np.std(scores, ddof=1) / len(scores) ** 0.5:.3f}"
            if len(scores) > 1
            else ""
        )
        return f"{np.mean(scores):.3f}{error}" if scores else ""

    def row(first, rest):
        print("| " + " | ".join([first, *rest]) + " |")

    row("trained", [f"epsilon {e:g}" for e in EPSILONS])
    row("---", ["---"] * len(EPSILONS))
    for name in names:
        row(name, [shown(name, e, n) for e in EPSILONS])
    print()
    columns = [
        (e, size)
        for e in EPSILONS
        for size in SIZES
        if any((name, e, size) in cells for name in names[1:])
    ]
    row("trained", [f"epsilon {e:g}, n = {size:,}" for e, size in columns])
    row("---", ["---"] * len(columns))
    for name in names:
        row(name, [shown(name, e, size) for e, size in columns])
    print()
    for name in names:
        some = [
            one
            for key, found in cells.items()
            if key[0] == name and key[2] == n
            for one in found
        ]
        if some:
            row(
                name,
                [
                    f"{some[0]['size']:,}",
                    f"{np.median([one['seconds'] for one in some]):.0f} s",
                ],
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=["run", "table"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument(
        "--plan", choices=["table", "records", "tricks", "digits"], default="table"
    )
    parser.add_argument("--variant", nargs="*")
    parser.add_argument("--cell", nargs="*", default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore", WeakBudgetWarning)
    *options.folder, options.results = options.paths
    if options.do == "table":
        table(options.results)
    else:
        options.folder = options.folder[0]
        run(options)


if __name__ == "__main__":
    main()
