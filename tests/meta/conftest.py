"""An environment in which pages are pasted: python and dppl are those of the tests."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

STARTED = Path(__file__).with_name("started.py")


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Yield the variables of the environment, whose programs fork from one process (tests/meta/started.py)."""
    tools = tmp_path_factory.mktemp("bin")
    paths = [str(STARTED.parents[1]), *sys.path]
    with tempfile.TemporaryDirectory(
        prefix="dppl-"
    ) as folder:  # the path of a socket must be short
        address = f"{folder}/socket"
        for name in ("python", "dppl"):
            command = shlex.join(
                [sys.executable, "-ISE", str(STARTED), "ask", address, name]
            )
            (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (tools / name).chmod(0o755)
        with subprocess.Popen(
            [sys.executable, STARTED, "serve", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        ) as server:
            assert server.stdout.readline() == b"ready\n"
            yield os.environ | {
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "100",
            }
            server.terminate()
