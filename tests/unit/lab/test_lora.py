"""Low-rank adapters: what they compute, what is trained, and that a record moves its task alone."""

from dataclasses import replace

import numpy as np
import pytest

from dppl import GaussianDP
from dppl.errors import ParameterError
from dppl.finetune import Recipe
from dppl.lab import LoraEnsemble, LoraFinetuner
from unit.lab.test_film_ensemble import CLASSES, RECIPE, replay

RANK = 2
OPTIONS = {"sampling_rate": 1.0, "recipe": RECIPE}


@pytest.fixture
def dense(torch):
    """Return a network with a linear layer before its head."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 5)
    ).eval()


@pytest.fixture
def task(images):
    X, y = images
    return X, np.array(CLASSES)[y]


def test_the_trained_network_is_the_public_one_with_a_product_added(torch, dense, task):
    X, y = task
    recipe = replace(RECIPE, learning_rate=0.5)
    model = LoraFinetuner(
        dense,
        GaussianDP(1.0),
        CLASSES,
        train=("head",),
        rank=RANK,
        sampling_rate=1.0,
        recipe=recipe,
        random_state=0,
    ).fit(X, y)
    assert list(model.selection_) == ["1.A.weight", "1.B.weight", "4.weight", "4.bias"]
    adapted = model.module_[1]
    assert adapted.A.weight.shape == (RANK, 36)
    assert adapted.B.weight.abs().min() > 0  # it began at zero
    merged = torch.nn.Sequential(*(part for part in dense[:-1]), model.module_[-1])
    with torch.no_grad():
        weight = merged[1].weight + adapted.B.weight @ adapted.A.weight
        rows = torch.from_numpy(X).flatten(1) @ weight.T + merged[1].bias
        expected = merged[2:](rows).numpy()
    assert np.allclose(model.decision_function(X), expected, atol=1e-5)


def test_adapters_alone_leave_the_public_network_as_it_is(torch, dense, task):
    X, _ = task
    module, selection = LoraFinetuner(
        dense, GaussianDP(1.0), CLASSES, train=("head",), rank=RANK
    )._selected(4)
    given = torch.from_numpy(X)
    assert torch.equal(module[:-1](given), dense[:-1](given))
    trained = sum(module.get_parameter(name).numel() for name in selection)
    assert trained == RANK * (36 + 12) + 12 * 4 + 4


@pytest.mark.parametrize("number", [0, 1])
def test_a_record_moves_its_task_alone_and_by_the_stated_cost(dense, task, number):
    X, y = task
    few = [(X[start : start + 4], y[start : start + 4]) for start in (0, 4, 8)]
    options = {**OPTIONS, "recipe": replace(RECIPE, block=1, clip=1e-3)}
    cost, stated = replay(
        dense,
        few,
        number,
        np.full((1, 6, 6), 2.0, np.float32),
        options=options,
        kind=LoraEnsemble,
        rank=RANK,
    )
    assert cost > 0.9 * stated


def test_a_network_without_dense_layers_has_nothing_to_adapt(net, task):
    model = LoraEnsemble(
        net, GaussianDP(1.0), CLASSES, options={"recipe": Recipe(batch_size=20.0)}
    )
    with pytest.raises(ParameterError, match="linear layers besides its head"):
        model.partial_fit(*task)
