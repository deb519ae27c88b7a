"""Networks of Python code as encoders: what comes out is what their last linear layer would see."""

import numpy as np
import pytest
from PIL import Image

from dppl.encoders import load_encoder
from dppl.errors import ParameterError
from dppl.finetune.networks import load_network

CODE = """
from torch import nn

def body():
    return [nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]

def make():
    return nn.Sequential(*body(), nn.Linear(4, 7))

def headless():
    return nn.Sequential(*body())

class Elsewhere(nn.Module):
    def __init__(self):
        super().__init__()
        self.path = nn.Sequential(*body())
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        return self.first(self.second(self.path(x)))
"""


@pytest.fixture
def uri(torch, tmp_path, monkeypatch):
    """Return what names the network that a function of the code makes, with random weights."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(CODE)
    names = {}
    exec(CODE, names)

    def named(function):
        torch.manual_seed(0)
        save_file(names[function]().state_dict(), f"{function}.safetensors")
        return (
            f"python:net.py:{function}@{function}.safetensors?size=6&mean=0.5,0.5,0.5"
        )

    return named


@pytest.fixture
def pictures():
    rng = np.random.default_rng(0)
    return [
        Image.fromarray(rng.integers(0, 256, (9, 8, 3), dtype=np.uint8))
        for _ in range(5)
    ]


def test_an_embedding_is_what_the_last_linear_layer_would_see(torch, uri, pictures):
    encoder = load_encoder(uri("make"), batch_rows=2)
    network = load_network(uri("make"))
    with torch.inference_mode():
        inputs = torch.tensor(network.inputs(network.encode(pictures)))
        expected = network.module[:5](inputs).numpy()
    rows = encoder.encode(pictures)
    assert (encoder.dimension, rows.shape) == (4, (5, 4))
    assert rows == pytest.approx(expected, abs=1e-6)
    said = encoder.fingerprint
    assert (said.library, said.pooling, said.row_independent) == (
        "python",
        "the input of 5",
        True,
    )
    assert said.uri == "python:net.py:make@make.safetensors?size=6&mean=0.5,0.5,0.5"
    assert not said.same_function(network.fingerprint)  # which takes pixels


def test_a_network_without_a_linear_layer_is_taken_whole(uri, pictures):
    whole = load_encoder(uri("headless"), batch_rows=2)
    assert whole.fingerprint.pooling == "none"
    assert (
        whole.encode(pictures)
        == load_encoder(uri("make"), batch_rows=2).encode(pictures)
    ).all()


def test_a_last_layer_that_is_not_computed_last_is_refused(uri):
    with pytest.raises(
        ParameterError, match="'second', must be the last that it computes"
    ):
        load_encoder(uri("Elsewhere"))


def test_code_must_say_the_size_of_its_images(uri):
    with pytest.raises(ParameterError, match="must say how large its images are"):
        load_encoder(uri("make").partition("?")[0])
