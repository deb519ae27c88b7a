"""A small task on disk, and the two ways to run the command: in this process, and as a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dppl
from command_line import invoke
from dppl.io import write_table
from dppl.kernel.privacy import budgets
from unit.lab.experiments.conftest import drawn, forked

__all__ = ["drawn", "forked"]

CLASSES = ("cat", "dog", "gnu")


@pytest.fixture
def notes_on_budgets() -> None:
    """Ask for the notes on weak budgets, as a user gets them."""


@pytest.fixture(autouse=True)
def few_notes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the note on budgets up to epsilon 10: most tests fit with such, and are not about the note."""
    if "notes_on_budgets" not in request.fixturenames:
        monkeypatch.setattr(budgets, "STRONG_AND_WEAK", (1.0, 10.0))


@pytest.fixture(autouse=True)
def no_note_on_progress(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave out the note that no file gets progress, which one test is about."""
    if "note_on_progress" not in request.fixturenames:
        monkeypatch.setattr("dppl.cli.embed.SILENCE", "")


@pytest.fixture
def note_on_progress() -> None:
    """Ask for the note, as a user gets it."""


@pytest.fixture
def cli() -> Callable[..., SimpleNamespace]:
    """Run `dppl` in this process.

    Of an option that a test names once more than the command line that it varies, the
    last value counts.
    """

    def typed(
        *arguments: object, as_typed: bool = False, **env: str
    ) -> SimpleNamespace:
        given = [str(argument) for argument in arguments]
        if not as_typed:
            given = last_of_each(given)
        return invoke(given, env={"COLUMNS": "100", **env})

    return typed


def last_of_each(given: list[str]) -> list[str]:
    """Drop an option and its value where the same option follows, or for ``--options`` the same name."""
    kept: dict[tuple[str, ...], list[str]] = {}
    place = 0
    while place < len(given):
        name, *value = given[place : place + 2]
        has_value = (
            name.startswith("--") and bool(value) and not value[0].startswith("--")
        )
        # A ledger is named with its data set, and both files of a split.
        values = (
            2
            if name == "--ledger" or (name == "--out" and given[0] == "split")
            else int(has_value)
        )
        key = (
            (name, value[0].partition("=")[0])
            if name in ("--options", "--read", "--results", "--limits")
            else (name,)
        )
        if not name.startswith("--"):
            key = (name, str(place))
        kept.pop(key, None)
        kept[key] = given[place : place + 1 + values]
        place += 1 + values
    return [part for parts in kept.values() for part in parts]


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m dppl` as a user does."""

    def invoke(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dppl", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False
        )

    return invoke


@pytest.fixture
def task(tmp_path: Path) -> SimpleNamespace:
    """Files of a task with three classes of different size, and what is in them."""
    rng = np.random.default_rng(7)
    y = np.repeat(CLASSES, (20, 12, 5))
    centres = 3 * rng.standard_normal((3, 8))
    X = (
        centres[np.repeat(range(3), (20, 12, 5))] + rng.standard_normal((37, 8))
    ).astype(np.float32)
    X_public = rng.standard_normal((50, 8)).astype(np.float32)
    write_table(tmp_path / "train.npz", X, y)
    write_table(tmp_path / "public.npz", X_public)
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    return SimpleNamespace(
        X=X,
        y=y,
        X_public=X_public,
        folder=tmp_path,
        table=tmp_path / "train.npz",
        public=tmp_path / "public.npz",
        classes=tmp_path / "classes.txt",
        out=tmp_path / "out.safetensors",
    )


@pytest.fixture
def model(task: SimpleNamespace) -> Path:
    """A model file fitted on the task with hardly any noise."""
    path: Path = task.folder / "model.safetensors"
    dppl.MeanPrototypes(dppl.ZCDP(1e4), classes=CLASSES, random_state=0).fit(
        task.X, task.y
    ).save(path)
    return path


@pytest.fixture
def error_line() -> Callable[[SimpleNamespace], str]:
    """Return the one line that a failed command printed on stderr, without its head."""
    head = "dppl: error: "

    def only_line(result: SimpleNamespace) -> str:
        assert result.stdout == ""
        assert result.stderr.startswith(head)
        assert result.stderr.count("\n") == 1
        assert result.stderr.endswith("\n")
        return result.stderr.removeprefix(head).strip()

    return only_line
