"""Three processes with ledgers of both kinds and one coordinator, over Flower with TLS: the commands of the page."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dppl
from dppl import Ledger
from dppl.federation.protocol import Message
from federated import CLASSES, NAMES, tables
from unit.kernel.privacy.test_ledger_processes import has_postgresql, server

PAGE = Path(__file__).parents[3] / "docs" / "federation.md"
TOOLS = ("openssl", "ssh-keygen")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def commands(heading, port):
    """Return the commands below a heading of the page, for a free port."""
    block = re.search(
        rf"## {heading}\n.*?```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    return (
        block[1]
        .replace("127.0.0.1:9090", f"127.0.0.1:{port}")
        .replace("--port 9090", f"--port {port}")
    )


@contextlib.contextmanager
def running(processes):
    """Stop all processes at the end: institutions in their own time, and the SuperLink, the first of all, at once."""
    try:
        yield
    finally:
        for one in processes[1:]:
            one.terminate()
        for one in processes[1:]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(20)
        for one in processes:
            one.kill()
            one.wait()


def party_file(folder, name, port, ledger):
    (folder / f"{name}.toml").write_text(
        f"""
name = "{name}"
table = "{name}.npz"
classes = "classes.txt"
ledger = "{ledger}"
dataset = "wards"
state = "{name}-state"
at_most = 1000
mu = 0.6
superlink = "127.0.0.1:{port}"
root_certificates = "ca.crt"
key = "{name}.key"
"""
    )


@pytest.mark.slow
@pytest.mark.postgresql
def test_three_institutions_and_a_coordinator_with_the_commands_of_the_page(tmp_path):
    pytest.importorskip("flwr")
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    here = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "flower"),
    }
    environment |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    (tmp_path / "flower").mkdir()

    def run(command, **options):
        given = {
            "cwd": tmp_path,
            "env": environment,
            "text": True,
            "capture_output": True,
            "check": False,
        }
        done = subprocess.run(
            ["bash", "-ec", command], timeout=240, **(given | options)
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def start(command):
        path = tmp_path / f"log-{len(started)}"
        with path.open("wb") as log:
            started.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env=environment, stdout=log, stderr=log
                )
            )
        return path

    started = []
    port = free_port()
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(server()) if has_postgresql() else "north.db"
        stack.enter_context(running(started))
        run(commands("The certificates and keys", port))
        # What takes seconds to start is started first.
        start(["bash", "-ec", f"exec {commands('The SuperLink', port).strip()}"])
        (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
        for name, (X, y, _) in tables().items():
            np.savez(tmp_path / f"{name}.npz", x=X, y=y)
            ledger = url if name == "north" else f"{name}.db"
            party_file(tmp_path, name, port, ledger)
            Ledger(
                url if name == "north" else tmp_path / f"{name}.db",
                "wards",
                dppl.GaussianDP(1),
            )
        logs = {
            name: start(["dppl", "party", "serve", f"{name}.toml"]) for name in NAMES
        }
        (tmp_path / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "link"\n[superlink.link]\naddress = "127.0.0.1:{port}"\n'
            f'root-certificates = "{tmp_path / "ca.crt"}"\n'
        )
        (tmp_path / "federation.toml").write_text(
            f'superlink = "127.0.0.1:{port}"\nroot_certificates = "ca.crt"\nsecret = "secret"\n[parties]\n'
            + "".join(f'{name} = "{name}.key.pub"\n' for name in NAMES)
        )
        run(
            f"for i in $(seq 60); do curl -sk https://127.0.0.1:{port} > /dev/null && break; sleep 1; done"
        )
        run(commands("Who may answer", port))
        # Both sides are killed in the middle; the same commands go on from there.
        start(["bash", "-ec", f"exec {commands('The fit', port).strip()}"])
        state = tmp_path / "model.safetensors.fit"
        deadline = time.monotonic() + 180
        while len(list(state.glob("*.answer"))) < 5:
            assert time.monotonic() < deadline
            assert started[-1].poll() is None, (tmp_path / "log-4").read_text()
            time.sleep(0.2)
        for victim in (started[1 + NAMES.index("south")], started[-1]):
            victim.kill()
            victim.wait()
        assert not (tmp_path / "model.safetensors").exists()
        logs["south"] = start(["dppl", "party", "serve", "south.toml"])
        said = run(commands("The fit", port))
        assert (
            "Charged by each: north: wards, release 1; south: wards, release 1; west: wards, release 1."
            in said
        )
        for (
            name,
            log,
        ) in (
            logs.items()
        ):  # nothing was said of asks or records, nor that one could not be answered
            for line in log.read_text().splitlines():
                assert line.startswith(
                    (
                        f"{name} answers plans",
                        "dppl: the SuperLink",
                        "For more information",
                    )
                ), line
        model = dppl.load(tmp_path / "model.safetensors")
        assert model.guarantee_.parties == NAMES
        assert dppl.verify(tmp_path / "model.safetensors").holds
        accounts = {
            name: Ledger(url if name == "north" else tmp_path / f"{name}.db", "wards")
            for name in NAMES
        }
        for ledger in accounts.values():
            (paid,) = ledger.releases()
            assert paid["status"] == "released"
            assert paid["cost"]["mu"] <= 0.2368
        # The answers that were added up are those on the disks of the institutions.
        (plan,) = {
            path.name
            for name in NAMES
            for path in (tmp_path / f"{name}-state").iterdir()
        }
        for number in range(20):
            file = f"{number:05}.answer"
            read = [
                Message.parse((tmp_path / f"{name}-state" / plan / file).read_bytes())
                for name in NAMES
            ]
            total = Message.parse(
                (tmp_path / "model.safetensors.fit" / file).read_bytes()
            )
            assert (
                sum(one.tensors["answer"] for one in read) == total.tensors["answer"]
            ).all()
