"""A tiny task on disk, and configurations that use it."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dppl.lab.experiments import figures, runner
from dppl.lab.experiments.config import Experiment, load_experiment

N_CLASSES = 4
DIM = 16


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the data set `blobs`, 4 classes of 40 records, and 60 public rows."""
    rng = np.random.default_rng(3)
    folder = tmp_path / "data" / "blobs"
    folder.mkdir(parents=True)
    centres = rng.standard_normal((N_CLASSES, DIM))
    for part, size in (("train", 40), ("test", 10)):
        labels = np.repeat(np.arange(N_CLASSES), size)
        np.save(folder / f"{part}_y.npy", labels)
        rows = centres[labels] + 0.5 * rng.standard_normal((len(labels), DIM))
        np.save(folder / f"{part}_x.npy", rows.astype(np.float32))
    public = centres[rng.integers(N_CLASSES, size=60)] + rng.standard_normal((60, DIM))
    np.save(folder / "public_x.npy", public.astype(np.float32))
    return folder.parent


@pytest.fixture
def write_config(tmp_path: Path, data: Path) -> Callable[..., Path]:
    """Write a configuration; what is not given is small and right."""

    def write(**changes: Any) -> Path:
        blobs = {
            "name": "blobs",
            "encoder": "none",
            "public": [{"name": "near", "file": "blobs/public_x.npy"}],
        }
        content = {
            "data": str(data),
            "datasets": [blobs],
            "methods": ["mean", "public"],
            "budgets": {"e": [1]},
            "ir": [1],
            "seeds": 1,
            **changes,
        }
        path = tmp_path / "mine.yaml"
        path.write_text(
            yaml.safe_dump(
                {key: value for key, value in content.items() if value is not None}
            )
        )
        return path

    return write


@pytest.fixture
def experiment(write_config: Callable[..., Path]) -> Callable[..., Experiment]:
    """Write a configuration and load it."""
    return lambda **changes: load_experiment(str(write_config(**changes)))


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes of a run from one that has imported everything: starting each anew takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["dppl.lab.experiments.runner", "dppl.methods", "dppl.continual.prototypes"]
    )
    monkeypatch.setattr(runner, "_SPAWN", context)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Draw the figures of these names alone, and leave empty files for all others: drawing takes most of a report."""
    names: set[str] = set()
    whole = figures.save

    def save(figure: Any, folder: Path, stem: str) -> None:
        if stem in names:
            whole(figure, folder, stem)
        else:
            for suffix in (".png", ".svg"):
                (folder / stem).with_name(stem + suffix).touch()

    monkeypatch.setattr(figures, "save", save)
    return names
