"""Published embeddings are converted: every form, any spelling, and what cannot be placed is said."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dppl.errors import InputError, ParameterError
from dppl.lab.commands.bench import Bench
from dppl.lab.experiments import published
from dppl.lab.experiments.config import load_experiment
from dppl.lab.experiments.papers import FIGURES
from dppl.lab.experiments.published import convert


def rows_of(n, seed, width=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)).astype(np.float32), rng.integers(0, 4, n)


def table(X, y):
    return pa.table(
        {
            "idx": np.arange(len(X)),
            "embedding": pa.array(list(X), pa.list_(pa.float32())),
            "label": y,
        }
    )


@pytest.fixture
def downloaded(tmp_path, monkeypatch):
    """Lay out ViT-H/14 as archives, shards of Parquet, a stream of Arrow and plain arrays; blocks are of 7 rows."""
    monkeypatch.setattr(published, "_BLOCK", 7)
    root = tmp_path / "downloaded"
    folder = root / "ViT_H_14"
    for name in ("CIFAR10", "stl10", "cifar_100", "imagenet"):
        (folder / name).mkdir(parents=True)
    X, y = rows_of(40, 0)
    np.savez(folder / "CIFAR10" / "train.npz", embeddings=X, labels=y)
    np.save(folder / "CIFAR10" / "test_x.npy", X[:9])
    np.save(folder / "CIFAR10" / "test_y.npy", y[:9])
    for shard in range(2):
        part = slice(20 * shard, 20 * shard + 20)
        parquet.write_table(
            table(X[part], y[part]),
            folder / "stl10" / f"train-{shard:05}-of-00002.parquet",
        )
    whole = table(X, y)
    arrow = str(folder / "cifar_100" / "validation.arrow")
    with pa.OSFile(arrow, "wb") as file, pa.ipc.new_stream(file, whole.schema) as to:
        to.write_table(whole)
    np.save(folder / "imagenet" / "train.npy", X[::-1])
    np.save(folder / "imagenet" / "val.npy", X)
    np.save(root / "notes.npy", y)
    return root, X, y


def test_every_form_is_converted_bit_by_bit(downloaded, tmp_path):
    root, X, y = downloaded
    expected = {
        "cifar10/train_x": X,
        "cifar10/train_y": y,
        "cifar10/test_x": X[:9],
        "cifar10/test_y": y[:9],
        "stl10/train_x": X,
        "stl10/train_y": y,
        "cifar100/test_x": X,
        "cifar100/test_y": y,
        "imagenet/x": X[::-1],
    }
    written, left_out = convert(root, tmp_path / "data")
    assert sorted(written) == sorted(f"vit-h-14/{name}.npy" for name in expected)
    for name, array in expected.items():
        found = np.load(tmp_path / "data" / "vit-h-14" / f"{name}.npy")
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array, err_msg=name)
    assert left_out == ["ViT_H_14/imagenet/val.npy", "notes.npy"]


def test_a_figure_is_ready_after_the_conversion(downloaded, tmp_path, capsys):
    root, _, _ = downloaded
    data = tmp_path / "data"
    Bench(experiment="paper", convert=root, data=data).run()
    shown = capsys.readouterr()
    assert str(data / "vit-h-14/cifar10/train_x.npy") in shown.out
    assert "2 files left out" in shown.err
    assert FIGURES["dppl-v1:13"].sets == ("cifar10",)
    experiment = load_experiment("dppl-v1:13", data)
    assert {spec.name for spec in experiment.datasets.values()} == {"cifar10"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root, X: np.save(root / "ViT_H_14/CIFAR10/test_y.npy", np.arange(8)), "9 rows and 8 labels"),
        (lambda root, X: np.save(root / "ViT_H_14/CIFAR10/test_x2.npy", X.astype(np.float64)), "as float32; got"),
        (lambda root, X: np.savez(root / "ViT_H_14/CIFAR10/train.npz", a=X, b=X), "one array of rows"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(downloaded, tmp_path, change, words):
    root, X, _ = downloaded
    change(root, X)
    with pytest.raises(InputError, match=words):
        convert(root, tmp_path / "data")


def test_a_folder_of_something_else_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match="paths name an encoder"):
        convert(tmp_path, tmp_path / "data")
    with pytest.raises(ParameterError, match="--data FOLDER"):
        Bench(experiment="paper", convert=tmp_path).run()
    with pytest.raises(ParameterError, match="go with paper"):
        Bench(experiment="quick", convert=tmp_path).run()
