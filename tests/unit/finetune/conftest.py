"""A small public network and labelled images, for tests of training."""

import numpy as np
import pytest

from dppl.finetune.gradients import PrivateRecords
from dppl.finetune.trainer import Recipe, Training

RECIPE = set(Recipe.__dataclass_fields__)


class Trainer:
    """Trains on records of five classes that are positions among the logits; others are left out."""

    def __init__(
        self,
        module,
        selection,
        budget,
        *,
        steps,
        sampling_rate=1.0,
        warmup_steps=0,
        **options,
    ):
        self.module = module
        self.selection = selection
        self.budget = budget
        self.steps = steps
        recipe = {name: options.pop(name) for name in RECIPE & set(options)}
        rate = recipe.setdefault("learning_rate", 0.1)
        recipe |= {
            "warmup_epochs": warmup_steps * sampling_rate,
            "epochs": steps * sampling_rate,
        }
        options["recipe"] = Recipe(**{"head_learning_rate": rate, **recipe})
        self.options = options | {"sampling_rate": sampling_rate}

    def plan(self, shape, *, integral=False):
        return Training(
            self.module,
            self.selection,
            self.budget,
            shape=shape,
            integral=integral,
            **self.options,
        )

    def fit(self, X, y, plan=None, **options):
        records = PrivateRecords(X, y, np.arange(5), "ignore")
        plan = (
            self.plan(records.shape, integral=records.integral)
            if plan is None
            else plan
        )
        self.module_, self.guarantee_ = plan.run(
            records, name="Training", meaning={}, **options
        )
        return self


def network(torch):
    """Return a network of two convolutions with group normalisation and activations in place, for 5 classes."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.GroupNorm(2, 8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 12, 3, stride=2, groups=2),
        nn.GroupNorm(3, 12),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )


def labelled_images():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 40)
    X = rng.normal(size=(40, 1, 6, 6)) + 1.5 * rng.normal(size=(3, 1, 6, 6))[y]
    return X.astype(np.float32), y


@pytest.fixture
def net(torch):
    return network(torch)


@pytest.fixture
def images():
    return labelled_images()
