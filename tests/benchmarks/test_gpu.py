"""The command that measures a GPU, on tensors of this machine: its integers, and faults that it must report."""

import json

import pytest

from dppl.kernel import selection as public
from dppl.kernel.lattice import device, tensors

torch = pytest.importorskip("torch")
STEPS = ["utilities", "class sums", "Gram matrix", "gradient", "whole fit"]


def tiny(gpu, path=None):
    """Run with sizes that need padding, several blocks, and classes of unequal size."""
    sizes = {"private": 101, "public": 300, "features": 30, "classes": 4, "part": 150, "rounds": 1}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    return gpu.main([*words, "--device", "cpu", *([] if path is None else ["--json", str(path)])])


@pytest.fixture
def gpu(script, monkeypatch):
    module = script("gpu")
    monkeypatch.setattr(module, "DEVICE_ROWS", 64)
    monkeypatch.setattr(module, "SUM_ROWS", 40)
    monkeypatch.setattr(public, "DEVICE_ROWS", 64)
    monkeypatch.setattr(device, "_SIMILARITIES", 3000)
    monkeypatch.setattr(tensors, "_LEFT_TO_NUMPY", ("mps",))
    return module


def test_all_bits_are_those_of_the_library(gpu, tmp_path):
    path = tmp_path / "gpu.json"
    assert tiny(gpu, path) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["bits are those of the CPU"] == dict.fromkeys(STEPS, True)
    assert list(found["seconds"]) == STEPS


def one_wrong(function):
    def wrong(*arguments):
        result = function(*arguments)
        result[0, 0] += 10**9  # enough to select another row
        return result

    return wrong


@pytest.mark.parametrize(
    ("owner", "name", "steps"),
    [
        (device.DeviceScore, "__call__", {"utilities", "whole fit"}),
        (device, "sums_of_classes", {"class sums"}),
        (device, "gram", {"Gram matrix"}),
    ],
)
def test_one_wrong_number_is_reported(gpu, monkeypatch, tmp_path, owner, name, steps):
    monkeypatch.setattr(owner, name, one_wrong(getattr(owner, name)))
    path = tmp_path / "gpu.json"
    assert tiny(gpu, path) == 1
    found = json.loads(path.read_text(encoding="utf-8"))["bits are those of the CPU"]
    assert {step for step, same in found.items() if not same} == steps


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(gpu, capsys):
    with pytest.raises(SystemExit) as stopped:
        gpu.main([])
    assert stopped.value.code == 2
    assert "needs a GPU" in capsys.readouterr().err
