"""An environment in which pages are pasted: python and dppl are those of the tests."""

import os
import shlex
import sys
from pathlib import Path

import pytest

# What must live as long as torch does: a torchvision that the tests repair.
BESIDE_TORCH = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from conftest import torchvision_beside_torch
library = torchvision_beside_torch()
"""
DPPL = f"{BESIDE_TORCH}sys.argv[0] = 'dppl'\nfrom dppl.cli.main import run\nrun()\n"


@pytest.fixture(scope="session")
def beside_torch():
    """Return the program to run before one that imports torch."""
    return BESIDE_TORCH


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Return the variables of the environment."""
    tools = tmp_path_factory.mktemp("bin")
    for name, code in (("python", None), ("dppl", DPPL)):
        command = shlex.join([sys.executable, *([] if code is None else ["-c", code])])
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    return os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
