"""Networks by name: what they hold, what is refused, and that a name in a file runs no code."""

import pickle
import sys

import numpy as np
import pytest
from PIL import Image

from dppl import GaussianDP
from dppl.encoders.load import is_code
from dppl.errors import InputError, MissingExtra, ParameterError
from dppl.finetune import Recipe, SparseFinetuner
from dppl.finetune.networks import load_network

NETWORK = """
import torch

def make():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 7),
    )

def broken():
    raise RuntimeError("no network today")

def none():
    return 1
"""


@pytest.fixture
def code(torch, tmp_path, monkeypatch):
    """Return the URI of a network of Python code in a folder of its own."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "small_net.py").write_text(NETWORK)
    names = {}
    exec(NETWORK, names)
    torch.manual_seed(3)
    save_file(names["make"]().state_dict(), "nets/weights.safetensors")
    return (
        "python:nets/small_net.py:make@nets/weights.safetensors?size=5&mean=0.5,0.5,0.5"
    )


def test_a_network_of_code_has_the_weights_of_its_file_and_no_folder_in_its_name(
    torch, code
):
    from safetensors.torch import load_file

    found = load_network(code)
    weights = load_file("nets/weights.safetensors")
    assert all(
        (tensor == weights[name]).all()
        for name, tensor in found.module.state_dict().items()
    )
    assert (found.shape, found.dimension, found.head) == ((3, 5, 5), 75, "5")
    assert not found.module.training
    assert (
        found.fingerprint.uri
        == "python:small_net.py:make@weights.safetensors?size=5&mean=0.5,0.5,0.5"
    )
    image = Image.fromarray(np.full((9, 9, 3), 255, np.uint8))
    assert (
        found.inputs(found.encode([image])) == np.full((1, 3, 5, 5), 0.5, np.float32)
    ).all()


def test_a_module_that_python_can_import_is_the_same_network(
    code, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path / "nets")
    imported = load_network(code.replace("nets/small_net.py", "small_net"))
    assert imported.fingerprint.library == "python"
    assert (imported.module[0].weight == load_network(code).module[0].weight).all()


def test_a_pickle_holds_the_name_of_a_network_and_no_weights(code):
    """So a task loads it from the files of its machine."""
    network = load_network(code, device="cpu")
    content = pickle.dumps(network)
    assert len(content) < 300
    again = pickle.loads(content)
    assert again.fingerprint == network.fingerprint
    assert (again.module[0].weight == network.module[0].weight).all()


def test_other_weights_and_other_pixels_are_another_network(torch, code):
    from safetensors.torch import load_file, save_file

    one = load_network(code).fingerprint
    assert one.same_function(load_network(code.replace("nets/", "./nets/")).fingerprint)
    assert not one.same_function(
        load_network(code.replace("size=5", "size=6")).fingerprint
    )
    weights = load_file("nets/weights.safetensors")
    weights["0.bias"][0] += 1e-6
    save_file(weights, "nets/weights.safetensors")
    assert not one.same_function(load_network(code).fingerprint)


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("python:", "hf:", ParameterError, "network must be timm:NAME"),
        (
            "nets/small_net.py:make@",
            "",
            ParameterError,
            "python:MODULE:FUNCTION@WEIGHTS",
        ),
        ("size=5&", "", ParameterError, "how large its images are"),
        ("size=5", "size=0", ParameterError, "size must be"),
        ("mean", "colour", ParameterError, "'colour' is not an option"),
        (
            "weights.safe",
            "other.safe",
            InputError,
            "no file of weights nets/other.safetensors",
        ),
        (
            "@nets/weights.safetensors",
            "@nets/small_net.py",
            InputError,
            "does not hold the weights of the network",
        ),
        (":make", ":broken", InputError, "RuntimeError: no network today"),
        (":make", ":missing", InputError, "AttributeError"),
        (":make", ":none", InputError, "must return a torch.nn.Module"),
        ("small_net.py", "other.py", InputError, "FileNotFoundError"),
    ],
)
def test_what_is_no_network_is_refused(old, new, error, words, code):
    with pytest.raises(error, match=words):
        load_network(code.replace(old, new))


def test_weights_of_another_network_are_refused(torch, code):
    from safetensors.torch import save_file

    save_file({"0.weight": torch.zeros(4, 3, 3, 3)}, "nets/weights.safetensors")
    with pytest.raises(InputError, match="does not hold the weights of the network"):
        load_network(code)


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[torch\]'"):
        load_network("python:net.py:make@weights.safetensors?size=5")


def test_only_networks_of_code_count_as_code(code):
    assert is_code(code)
    assert not is_code("timm:resnet18")


@pytest.mark.usefixtures("torch")
def test_a_network_of_timm_gets_a_new_head(torch, tmp_path):
    timm = pytest.importorskip("timm")
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, pretrained=False, num_classes=9
    )
    path = tmp_path / "vit.pth"
    torch.save(model.state_dict(), path)
    found = load_network(f"timm:vit_tiny_patch16_224@{path}?size=32")
    assert found.fingerprint.uri == "timm:vit_tiny_patch16_224@vit.pth?size=32"
    assert (found.head, found.shape) == ("head", (3, 32, 32))
    state = found.module.state_dict()
    assert not state["head.weight"].any()
    assert all(
        (state[name] == tensor).all()
        for name, tensor in model.state_dict().items()
        if "head" not in name
    )
    again = load_network(f"timm:vit_tiny_patch16_224@{path}?size=32")
    assert again.fingerprint == found.fingerprint
    film = SparseFinetuner(
        found.module, GaussianDP(1e6), range(3), train=("head", "norm"), head=found.head, sampling_rate=1.0,
        recipe=Recipe(epochs=1, batch_size=4, block=4),
    )  # fmt: skip
    film.fit(np.random.default_rng(0).normal(size=(4, 3, 32, 32)), [0, 1, 2, 0])
    assert film.module_.head.weight.any()
