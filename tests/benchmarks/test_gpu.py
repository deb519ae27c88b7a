"""The command that measures a GPU, on tensors of this machine: its integers, and faults that it must report."""

import json

import pytest

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
    monkeypatch.setattr(module, "BLOCK_ROWS", 64)
    monkeypatch.setattr(module, "PART_ROWS", 128)
    monkeypatch.setattr(module, "EXACT_ROWS", 40)
    return module


def test_all_bits_are_those_of_the_library(gpu, tmp_path):
    path = tmp_path / "gpu.json"
    assert tiny(gpu, path) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["bits are those of the CPU"] == dict.fromkeys(STEPS, True)
    assert list(found["seconds"]) == ["utilities", "class sums", "Gram matrix", "gradient", "selection", "whole fit"]


def off_by_one(function):
    def wrong(*arguments):
        result = function(*arguments)
        result[0, 0] += 1
        return result

    return wrong


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("device_utilities", "utilities"),
        ("device_sums", "class sums"),
        ("device_gram", "Gram matrix"),
        ("select", "whole fit"),
    ],
)
def test_one_wrong_number_is_reported(gpu, monkeypatch, tmp_path, name, step):
    monkeypatch.setattr(gpu, name, off_by_one(getattr(gpu, name)))
    path = tmp_path / "gpu.json"
    assert tiny(gpu, path) == 1
    assert json.loads(path.read_text(encoding="utf-8"))["bits are those of the CPU"][step] is False


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(gpu, capsys):
    with pytest.raises(SystemExit) as stopped:
        gpu.main([])
    assert stopped.value.code == 2
    assert "needs a GPU" in capsys.readouterr().err
