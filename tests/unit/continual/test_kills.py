"""A stream whose process is killed again and again: no draw is unpaid, and its end is that of one that ran through."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import dppl
from dppl import Ledger
from dppl.continual import recover
from inside import tensors_of

KILLS = 20

# Forks a child for each attempt, so that everything is imported once. A child goes on
# where the files say it can, and writes down every draw before it is made.
STREAM = """
import json, os, random, signal, sys, time
import numpy as np
import dppl
from dppl.continual import ContinualPrototypes, recover
from dppl.kernel.mechanisms import RoundedGaussian
from dppl.kernel.privacy.ledger import LedgerEntry

rng = np.random.default_rng(0)
tasks = [(rng.normal(size=(20, 8)), rng.integers(3, size=20)) for _ in range(6)]
draw, charge = RoundedGaussian.release, dppl.Ledger.charge

def charge_once(self, guarantee, **options):  # the planted fault
    paid = [entry for entry in self.releases() if entry["partition"] == options["partition"]]
    return LedgerEntry("stream", paid[0]["number"]) if paid else charge(self, guarantee, **options)

def learn(kind, folder, dies_at):
    options = {} if kind == "independent" else {"noise": kind, "max_tasks": 6}
    state = None if kind == "independent" else f"{folder}/state"
    ledger = dppl.Ledger(f"{folder}/ledger.db", "stream")
    model_file = f"{folder}/model.safetensors"
    if state and os.path.exists(state):
        if os.path.exists(model_file):
            os.remove(model_file)
        recover(state, model_file)
    model = ContinualPrototypes(dppl.GaussianDP(0.5), range(3), random_state=5, **options)
    if os.path.exists(model_file):
        model = dppl.load(model_file).set_params(random_state=5)
    for number in range(getattr(model, "n_tasks_", 0), len(tasks)):
        def release(self, *arguments):
            with open(f"{folder}/draws", "a") as file:
                file.write(f"{number}\\n")
            drawn = draw(self, *arguments)
            if number == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return drawn
        RoundedGaussian.release = release
        model.partial_fit(*tasks[number], ledger=ledger, partition=f"task {number}", state=state)
        model.save(model_file, overwrite=True)

def attempt(kind, folder, delay=None, dies_at=None):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            learn(kind, folder, dies_at)
            code = 0
        finally:
            os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def begin(folder):
    os.mkdir(folder)
    dppl.Ledger(f"{folder}/ledger.db", "stream", budget=dppl.GaussianDP(100.0))

def kill(kind, n_kills):
    started = time.perf_counter()
    begin(f"{kind}-whole")
    assert attempt(kind, f"{kind}-whole") == 0
    duration = time.perf_counter() - started
    folders = [f"{kind}-after-draws"]
    begin(folders[0])
    codes = [attempt(kind, folders[0], dies_at=number) for number in range(len(tasks))]
    assert codes == [-signal.SIGKILL] * len(tasks)
    assert attempt(kind, folders[0]) == 0
    moments, kills = random.Random(1), len(codes)
    while kills < n_kills:
        folders.append(f"{kind}-killed-{len(folders)}")
        begin(folders[-1])
        longest = duration / 2
        while (code := attempt(kind, folders[-1], moments.uniform(0, longest))) == -signal.SIGKILL:
            kills += 1
            longest *= 1.05  # the machine may have become slower than a single task needs
        assert code == 0, code
    return [f"{kind}-whole", *folders]

killed = {kind: kill(kind, int(sys.argv[1])) for kind in ("independent", "toeplitz")}
dppl.Ledger.charge = charge_once
os.mkdir("once")
os.chdir("once")
kill("independent", 0)
print(json.dumps(killed))
"""


def unpaid(folder):
    """Return the tasks that were drawn more often than they were paid for."""
    draws = Counter((folder / "draws").read_text().split())
    charges = Counter(
        charge["partition"]
        for charge in Ledger(folder / "ledger.db", "stream").releases()
    )
    return [
        number for number, times in draws.items() if charges[f"task {number}"] < times
    ]


def released_in(folder):
    """Return what the model of a folder released, byte for byte; its statement names the entries of its ledger."""
    return tensors_of(dppl.load(folder / "model.safetensors"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_streams_that_are_killed_at_random_are_paid_for_and_end_as_if_they_had_not_been(
    tmp_path,
):
    # Forking with idle BLAS threads is what this test wants; from 3.12 on Python warns
    # of it.
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        STREAM,
        str(KILLS),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for whole, *killed in json.loads(done.stdout).values():
        for folder in killed:
            assert released_in(tmp_path / folder) == released_in(tmp_path / whole)
            assert unpaid(tmp_path / folder) == []
    # The negative control: tasks that are not charged again are noticed.
    assert unpaid(tmp_path / "once" / "independent-after-draws") == list("012345")


NAMED = """
import os, signal, sys
import numpy as np
import dppl
from dppl._utils import files
from dppl.continual import ContinualPrototypes
def die(folder):
    os.kill(os.getpid(), signal.SIGKILL)
model = ContinualPrototypes(dppl.GaussianDP(0.5), range(3), noise="toeplitz", max_tasks=2)
files._sync = die
model.partial_fit(np.eye(3), range(3), state=sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs hard links")
def test_a_stream_goes_on_whose_state_has_two_names(tmp_path):
    # Killed when the state had its name and had not yet lost the one it was written under.
    state, model_file = tmp_path / "state", tmp_path / "model.safetensors"
    subprocess.run([sys.executable, "-c", NAMED, str(state)], check=False)
    assert state.stat().st_nlink == 2
    recover(state, model_file)
    dppl.load(model_file).partial_fit(np.eye(3), range(3), state=state)
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors", "state"]
