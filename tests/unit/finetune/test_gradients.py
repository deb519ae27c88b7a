"""Gradients of single records: equal to backward passes, clipped over all weights together, exact and independent."""

import random

import numpy as np
import pytest

from dppl import GaussianDP
from dppl.errors import MissingExtra, ParameterError
from dppl.finetune import select_weights
from dppl.finetune.gradients import RADIUS, NetworkGradients
from dppl.kernel.queries import ADD_REMOVE, REPLACE_ONE
from unit.finetune.conftest import Trainer

BLOCK = 8


def gradients_of(module, selection, clip=1.0, shape=(1, 6, 6), block=BLOCK, **options):
    return NetworkGradients(
        module, selection, clip=clip, shape=shape, block=block, **options
    )


def backward(torch, module, selection, x, y):
    """Return the gradient at one record by a plain backward pass, as one row."""
    weights = [module.get_parameter(name).requires_grad_() for name in selection]
    output = module(x[None])
    loss = torch.nn.functional.cross_entropy(output, y[None])
    found = torch.autograd.grad(loss, weights)
    module.requires_grad_(False)
    parts = [
        part.flatten() if places is None else part.flatten()[torch.from_numpy(places)]
        for part, places in zip(found, selection.values(), strict=True)
    ]
    return torch.cat(parts)


def transformer(torch):
    """Return a classifier of token sequences with layer normalisation."""
    nn = torch.nn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 8)
            self.places = nn.Embedding(7, 8)
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(8, 4)

        def forward(self, tokens):
            places = self.places(torch.arange(7))  # the same for all records
            return self.head(self.encoder(self.embedding(tokens) + places).mean(1))

    torch.manual_seed(1)
    return Classifier()


def twice(torch):
    """Return a network that calls one layer two times."""
    nn = torch.nn

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Linear(6, 6)
            self.head = nn.Linear(36, 3)

        def forward(self, x):
            return self.head(self.shared(self.shared(x).tanh()).flatten(1))

    torch.manual_seed(2)
    return Twice()


@pytest.mark.parametrize(
    "train", [("head",), ("head", "norm"), ("conv",), ("head", "norm", "conv")]
)
def test_they_are_those_of_backward_passes(torch, net, train):
    selection = select_weights(net, train, sparsity=0.1)
    x = torch.randn(BLOCK, 1, 6, 6)
    y = torch.arange(BLOCK) % 5
    rows = gradients_of(net, selection).rows(x, y)
    for place in range(BLOCK):
        plain = backward(torch, net, selection, x[place], y[place])
        assert rows[place].shape == plain.shape
        assert torch.allclose(rows[place], plain, rtol=1e-4, atol=1e-6)


LAYERS = [
    # A layer, and how it is called: convolutions by windows and others, frozen
    # statistics, and none of them in a batch.
    lambda nn: nn.Conv2d(2, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    lambda nn: nn.Conv2d(2, 4, 1, stride=3),
    lambda nn: nn.Conv2d(2, 4, 3, padding="same"),
    lambda nn: nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
    lambda nn: nn.Conv2d(2, 4, 3, groups=2),
    lambda nn: nn.BatchNorm2d(2).eval(),
    lambda nn: nn.Linear(8, 3),
]


@pytest.mark.parametrize("number", range(len(LAYERS)))
@pytest.mark.parametrize("share", [None, 0.4])
def test_whatever_the_layer_and_however_many_of_its_weights(torch, number, share):
    nn = torch.nn
    generator = np.random.default_rng(number)
    torch.manual_seed(number)
    layer = LAYERS[number](nn)
    if isinstance(layer, nn.BatchNorm2d):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)

    class Several(nn.Module):
        """Call the layer once, or on two images of a record, which no rule for one image may take."""

        def __init__(self, images):
            super().__init__()
            self.layer = layer
            self.images = images
            self.head = nn.LazyLinear(3)

        def forward(self, x):
            return self.head(
                self.layer(x.expand(self.images, -1, -1, -1))
                .tanh()
                .flatten(1)
                .sum(0, keepdim=True)
            )

    for images in (1, 2):
        module = Several(images)
        module(torch.zeros(1, 2, 7, 8))
        selection = {}
        for name, weight in module.named_parameters():
            count = (
                weight.numel() if share is None else max(1, int(share * weight.numel()))
            )
            selection[name] = (
                None
                if share is None
                else np.sort(generator.permutation(weight.numel())[:count])
            )
        x = torch.randn(BLOCK, 2, 7, 8)
        y = torch.arange(BLOCK) % 3
        rows = gradients_of(module, selection, shape=(2, 7, 8)).rows(x, y)
        for place in range(BLOCK):
            plain = backward(torch, module, selection, x[place], y[place])
            assert torch.allclose(rows[place], plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [transformer, twice])
def test_also_of_layer_norms_embeddings_and_layers_that_are_called_twice(torch, kind):
    module = kind(torch)
    names = [
        name
        for name, _ in module.named_parameters()
        if "in_proj" not in name and "out_proj" not in name
    ]
    selection = dict.fromkeys(names)
    integral = kind is transformer
    x = torch.randint(0, 11, (BLOCK, 7)) if integral else torch.randn(BLOCK, 6, 6)
    y = torch.arange(BLOCK) % 3
    rows = gradients_of(
        module, selection, shape=tuple(x.shape[1:]), integral=integral
    ).rows(x, y)
    for place in range(BLOCK):
        plain = backward(torch, module, selection, x[place], y[place])
        assert torch.allclose(rows[place], plain, rtol=1e-4, atol=1e-6)


def test_bfloat16_rounds_gradients_and_changes_neither_reach_nor_refusals(
    torch, net, images
):
    X = images[0][:BLOCK]
    y = images[1][:BLOCK]
    selection = select_weights(net, sparsity=0.3)
    exact, rounded = (
        gradients_of(net, selection, clip=0.05, precision=precision)
        for precision in ("float32", "bfloat16")
    )
    for record in range(BLOCK):
        alone = (
            torch.tensor(X[record : record + 1]).expand(BLOCK, -1, -1, -1),
            torch.tensor(y[record]).expand(BLOCK),
        )
        plain, row = (
            one.rows(alone[0].to(one._dtype), alone[1])[0] for one in (exact, rounded)
        )
        assert row.dtype == torch.float32
        assert 1e-3 < (row - plain).norm() / plain.norm() < 0.05
    assert 0.99 * RADIUS**2 < largest_change(rounded, X, y) <= RADIUS**2
    head = odd(torch, lambda self, x: self.head(x) * (1 + self.head.weight.sum()))
    with pytest.raises(ParameterError, match="outside its layer"):
        gradients_of(head, {"head.weight": None}, shape=(4,), precision="bfloat16")


def test_clipping_is_over_all_trained_weights_together(torch, net):
    x = torch.randn(BLOCK, 1, 6, 6)
    y = torch.arange(BLOCK) % 5
    x[0] /= 1e4  # a gradient that is not clipped
    selection = select_weights(net, sparsity=0.5)
    gradients = gradients_of(net, selection, clip=2.6)
    rows = gradients.rows(x, y)
    whole = gradients.integers(x, y).double() * 2.6 / RADIUS
    norms = rows.norm(dim=1)
    assert norms.min() < 2.6 < norms.max()
    expected = rows * (2.6 / norms.clamp(min=2.6))[:, None]
    # Rows are made shorter by 2⁻¹⁰ and rounded to whole numbers.
    assert torch.allclose(whole.float(), expected * (1 - 2**-10), atol=2 * 2.6 / RADIUS)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 1.0, 1e10, 1e30])
def test_no_row_is_longer_than_the_radius(torch, net, factor, monkeypatch):
    """Whatever the floats: squares are summed as Python integers."""
    gradients = gradients_of(net, select_weights(net, sparsity=0.5))
    rows = torch.randn(BLOCK, 1053) * factor
    monkeypatch.setattr(NetworkGradients, "rows", lambda self, *_: rows)
    whole = gradients.integers(None, None)
    for row in whole.tolist():
        assert sum(value * value for value in row) <= RADIUS**2
    assert bool(whole.any()) == (
        1e-10 < factor < 1e20
    )  # squares that overflow make a zero row


def test_rows_that_rounding_made_too_long_are_zero(torch, net, monkeypatch):
    x = torch.randn(BLOCK, 1, 6, 6)
    y = torch.arange(BLOCK) % 5
    gradients = gradients_of(net, select_weights(net), clip=1e-3)
    assert gradients.integers(x, y).any(1).all()
    monkeypatch.setattr("dppl.finetune.gradients._SLACK", -1e-3)
    assert not gradients.integers(x, y).any()


def test_rows_that_are_not_finite_are_zero_and_touch_no_other(torch, net):
    gradients = gradients_of(net, select_weights(net))
    x = torch.randn(BLOCK, 1, 6, 6)
    y = torch.arange(BLOCK) % 5
    clean = gradients.integers(x, y)
    x[3], x[5, 0, 0, 0] = float("nan"), float("inf")
    whole = gradients.integers(x, y)
    others = [place for place in range(BLOCK) if place not in (3, 5)]
    assert (whole[others] == clean[others]).all()
    assert clean.any(1).all()
    assert not whole[[3, 5]].any()


# Replay: what one record changes in a sum.


def largest_change(gradients, X, y):
    """Return the square of the longest change of a sum when one record leaves, whatever place it has in its block."""
    whole = gradients.block_sum(X, y)
    changes = []
    for place in range(len(X)):
        rest = np.delete(np.arange(len(X)), place)
        change = whole - gradients.block_sum(X[rest], y[rest])
        changes.append(sum(int(value) ** 2 for value in change))
    return max(changes)


def test_in_blocks_of_one_each_record_is_computed_by_itself(net, images, monkeypatch):
    X = images[0][:BLOCK]
    y = images[1][:BLOCK]
    seen = []
    whole = NetworkGradients.rows

    def rows(self, x, *others):
        seen.append(len(x))
        return whole(self, x, *others)

    for block, independent in ((1, True), (BLOCK, False)):
        gradients = gradients_of(net, select_weights(net, sparsity=0.3), block=block)
        assert gradients.row_independent == independent
        monkeypatch.setattr(NetworkGradients, "rows", rows)
        for place in range(0, len(X), block):
            gradients.block_sum(X[place : place + block], y[place : place + block])
        monkeypatch.undo()
        assert set(seen) == {block}
        seen.clear()


def test_a_record_moves_a_sum_by_the_radius_at_most(net, images):
    X = images[0][:BLOCK]
    y = images[1][:BLOCK]
    gradients = gradients_of(net, select_weights(net, sparsity=0.3), clip=0.05)
    # All are clipped, so the longest change nearly is the radius.
    assert (
        0.99 * RADIUS**2
        < largest_change(gradients, X, y)
        <= RADIUS**2
        == gradients.squared_norm
    )


def test_they_are_accounted_under_add_remove_alone(net):
    gradients = gradients_of(net, select_weights(net, ("head",)))
    assert gradients.squared_sensitivity(ADD_REMOVE) == RADIUS**2
    assert (
        gradients.mechanism(GaussianDP(1.0), 1, ADD_REMOVE).squared_sensitivity
        == RADIUS**2
    )
    with pytest.raises(ParameterError, match="add-remove"):
        gradients.mechanism(GaussianDP(1.0), 1, REPLACE_ONE)


def per_layer(original, torch):
    """Plant clipping of each parameter by itself."""

    def integers(self, x, y):
        parts = self.rows(x, y).tensor_split(4, 1)
        scale = [
            RADIUS * 0.999 / part.norm(dim=1).clamp(min=self._clip)[:, None]
            for part in parts
        ]
        return torch.cat(
            [(part * s).trunc() for part, s in zip(parts, scale, strict=True)], 1
        )

    return integers


def after_coupling(original, torch):
    """Plant clipping after the mean of the block was taken off, by which records depend on each other."""

    def integers(self, x, y):
        rows = original(self, x, y)
        return rows - rows.sum(0) // 2

    return integers


def unclipped(original, torch):
    def integers(self, x, y):
        return (self.rows(x, y) * RADIUS / self._clip).trunc()

    return integers


@pytest.mark.parametrize("fault", [per_layer, after_coupling, unclipped])
def test_planted_faults_move_it_further(torch, net, images, fault, monkeypatch):
    X = images[0][:BLOCK]
    y = images[1][:BLOCK]
    gradients = gradients_of(net, select_weights(net, sparsity=0.3), clip=0.05)
    monkeypatch.setattr(
        NetworkGradients, "integers", fault(NetworkGradients.integers, torch)
    )
    assert largest_change(gradients, X, y) > 1.1 * RADIUS**2


def test_a_module_that_mixes_records_gets_each_alone(torch):
    """Under vmap it sees a batch of one, which is all that privacy asks."""

    class Centred(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + x.mean(0).sum()

    module = torch.nn.Sequential(Centred(4, 3))
    gradients = gradients_of(module, dict.fromkeys(["0.weight", "0.bias"]), shape=(4,))
    x = torch.randn(BLOCK, 4)
    y = torch.zeros(BLOCK, dtype=torch.int64)
    first = gradients.integers(x, y)
    x[1:] = 100.0
    assert (gradients.integers(x, y)[0] == first[0]).all()


# Refusals.


def trainer(module, names=("head.weight",)):
    return Trainer(module, dict.fromkeys(names), GaussianDP(1.0), steps=1, batch_size=4)


def headed(torch, *layers, width=4):
    return torch.nn.Sequential(*layers).append(
        torch.nn.Linear(width, 3)
    ), f"{len(layers)}.weight"


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda nn: nn.BatchNorm1d(4), "running statistics.*to_group_norm"),
        (
            lambda nn: nn.BatchNorm1d(4, track_running_stats=False).eval(),
            "statistics of the batch.*to_group_norm",
        ),
        (
            lambda nn: nn.InstanceNorm1d(4, track_running_stats=True),
            "running statistics",
        ),
        (lambda nn: nn.Dropout(0.1), "drops at random"),
    ],
)
def test_layers_by_which_records_touch_are_refused(torch, layer, message):
    module, head = headed(torch, layer(torch.nn))
    with pytest.raises(ParameterError, match=message):
        trainer(module, [head]).plan((4,))


def test_frozen_statistics_and_dropout_that_is_off_are_not(torch):
    nn = torch.nn
    module, head = headed(
        torch, nn.BatchNorm1d(4).eval(), nn.Dropout(0.1).eval(), nn.Dropout(0.0)
    )
    gradients = trainer(module, [head]).plan((4,)).gradients
    assert (gradients.size, gradients.n_outputs) == (12, 3)


def test_tied_weights_are_refused(torch):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    module[1].weight = module[0].weight
    with pytest.raises(ParameterError, match="share their weights"):
        trainer(module, ["0.weight"]).plan((4,))
    module[1].weight = torch.nn.Parameter(
        module[0].weight.data[:]
    )  # two parameters on the same memory
    with pytest.raises(ParameterError, match="share their weights"):
        trainer(module, ["1.weight"]).plan((4,))
    trainer(module, ["0.bias"]).plan((4,))


def odd(torch, forward, **buffers):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 3)
            for name, value in buffers.items():
                self.register_buffer(name, value)

        def forward(self, x):
            return forward(self, x)

    return Odd()


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            lambda self, x: self.head(x) * (1 + self.head.weight.sum()),
            "outside its layer",
        ),
        (lambda self, x: self.head(x) * 1.0 + 0 * self.head.weight.mean(), None),
        (lambda self, x: x[:, :3], "takes no part"),
        (lambda self, x: self.head(input=x), "must take one tensor"),
    ],
)
def test_weights_that_are_not_those_of_a_layer_call_are_refused(
    torch, forward, message
):
    module = odd(torch, forward)
    if message is None:
        assert trainer(module).plan((4,)).gradients.size == 12
        return
    with pytest.raises(ParameterError, match=message):
        trainer(module).plan((4,))


def test_a_network_that_remembers_or_draws_is_refused(torch):
    def remember(self, x):
        self.seen = self.seen + 1
        return self.head(x)

    with pytest.raises(ParameterError, match="remembers"):
        trainer(odd(torch, remember, seen=torch.zeros(()))).plan((4,))
    with pytest.raises(ParameterError, match="random"):
        trainer(
            odd(torch, lambda self, x: self.head(torch.nn.functional.dropout(x)))
        ).plan((4,))
    for draw in (random.random, np.random.rand):
        with pytest.raises(ParameterError, match="random"):
            trainer(
                odd(torch, lambda self, x, draw=draw: self.head(x) * (draw() + 1))
            ).plan((4,))


def test_without_torch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[torch\]'"):
        select_weights(object())
