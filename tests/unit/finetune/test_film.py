"""FiLM: scale and shift of the normalisation layers of a transformer, and its head."""

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP
from dppl.finetune import Recipe, SparseFinetuner, select_weights
from dppl.finetune.gradients import NetworkGradients
from unit.finetune.conftest import Trainer


@pytest.fixture
def vit(torch):
    """Return a vision transformer of two blocks for images of 1 x 8 x 8 pixels, with layer normalisation."""
    nn = torch.nn
    functional = torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm(12)
            self.norm2 = nn.LayerNorm(12)
            self.qkv = nn.Linear(12, 36)
            self.proj = nn.Linear(12, 12)
            self.mlp = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))

        def forward(self, x):
            n, tokens, _ = x.shape
            q, k, v = (
                self.qkv(self.norm1(x))
                .reshape(n, tokens, 3, 3, 4)
                .permute(2, 0, 3, 1, 4)
            )
            attended = (
                functional.scaled_dot_product_attention(q, k, v)
                .transpose(1, 2)
                .reshape(n, tokens, 12)
            )
            x = x + self.proj(attended)
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(1, 12, 4, stride=4)
            self.token = nn.Parameter(torch.randn(1, 1, 12))
            self.places = nn.Parameter(torch.randn(1, 5, 12))
            self.blocks = nn.Sequential(Block(), Block())
            self.norm = nn.LayerNorm(12)
            self.head = nn.Linear(12, 6)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.norm(self.blocks(x))[:, 0])

    torch.manual_seed(5)
    return ViT().eval()


@pytest.fixture
def bars():
    """Return images with a vertical, a horizontal or no bar."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = 0.3 * rng.normal(size=(60, 1, 8, 8))
    X[y == 0, :, :, 2:4] += 2
    X[y == 1, :, 4:6, :] += 2
    return X.astype(np.float32), np.array(["vertical", "horizontal", "none"])[y]


CLASSES = ["horizontal", "none", "vertical"]
NORMS = {f"{layer}.{own}" for layer in ("norm", "blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2")
         for own in ("weight", "bias")}  # fmt: skip


def film(module, budget, **options):
    recipe = Recipe(
        **{"epochs": 60, "batch_size": 60, "block": 30, "learning_rate": 0.1, **options}
    )
    return SparseFinetuner(
        module,
        budget,
        CLASSES,
        train=("head", "norm"),
        sampling_rate=1.0,
        recipe=recipe,
    )


def test_it_trains_the_normalisation_layers_and_the_head_and_nothing_else(
    torch, vit, bars
):
    model = film(vit, GaussianDP(1e6)).fit(*bars)
    assert set(model.selection_) == NORMS | {"head.weight", "head.bias"}
    before = vit.state_dict()
    after = model.module_.state_dict()
    changed = {
        name
        for name in before
        if name.startswith("head") or not torch.equal(before[name], after[name])
    }
    assert changed == set(model.selection_)
    assert (model.predict(bars[0]) == bars[1]).mean() > 0.9
    assert "sum of clipped gradients (159 trained weights)" in str(model.guarantee_)


def test_a_task_is_stored_in_its_norms_and_head(vit, bars, tmp_path):
    path = tmp_path / "task.safetensors"
    film(vit, GaussianDP(1.0), epochs=2).fit(*bars).save(path)
    assert path.stat().st_size < 4 * 159 + 4000  # and the statement
    again = SparseFinetuner.load(path, vit)
    assert again.module_.blocks[0].qkv.weight is not vit.blocks[0].qkv.weight
    assert (again.module_.blocks[0].qkv.weight == vit.blocks[0].qkv.weight).all()


def test_gradients_of_norms_are_those_of_single_backward_passes(torch, vit):
    vit.requires_grad_(False)
    selection = select_weights(vit, ("head", "norm"))
    gradients = NetworkGradients(vit, selection, clip=1.0, shape=(1, 8, 8), block=4)
    x = torch.randn(4, 1, 8, 8)
    y = torch.tensor([0, 1, 2, 5])
    parts = gradients.rows(x, y).split(
        [vit.get_parameter(name).numel() for name in selection], 1
    )
    for name in selection:
        vit.get_parameter(name).requires_grad_(True)
    for place in range(4):
        vit.zero_grad()
        torch.nn.functional.cross_entropy(
            vit(x[place][None]), y[place][None]
        ).backward()
        for part, name in zip(parts, selection, strict=True):
            assert torch.allclose(
                part[place],
                vit.get_parameter(name).grad.flatten(),
                rtol=1e-4,
                atol=1e-6,
            )


def test_one_record_moves_the_sum_by_at_most_the_clipping_norm(vit, bars):
    X, y = bars
    selection = select_weights(vit, ("head", "norm"))
    trainer = Trainer(
        vit,
        selection,
        ApproxDP(1.0, 1e-5),
        steps=1,
        batch_size=60,
        sampling_rate=0.5,
        clip=1e-3,
    )
    gradients = trainer.plan((1, 8, 8)).gradients
    X[7] *= 100
    codes = np.searchsorted(CLASSES, y)
    whole = gradients.block_sum(X[:30], codes[:30])
    without = gradients.block_sum(np.delete(X[:30], 7, 0), np.delete(codes[:30], 7))
    moved = np.sum((whole - without).astype(object) ** 2)
    assert 0.99 * gradients.squared_norm < moved <= gradients.squared_norm


def test_it_takes_a_network_of_transformers(torch, bars):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=24, image_size=8, patch_size=4,
        num_channels=1, num_labels=6,
    )  # fmt: skip
    torch.manual_seed(0)
    network = transformers.ViTForImageClassification(config).eval()
    model = film(network, GaussianDP(1e6), epochs=3).fit(*bars)
    before = network.state_dict()
    after = model.module_.state_dict()
    changed = {
        name
        for name in before
        if "classifier" in name or not torch.equal(before[name], after[name])
    }
    assert changed == set(model.selection_)
    assert {name for name in changed if "classifier" not in name} == {
        name for name in before if "norm" in name
    }
