from importlib import import_module
from pathlib import Path

import pytest


@pytest.fixture
def script(monkeypatch):
    """Import a script of benchmarks/; those that set threads for their process are run, not imported."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    return import_module
