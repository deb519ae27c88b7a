"""Institutions and coordinators that are killed at any call: one charge, and one answer to a question, for ever."""

import json
import os
import subprocess
import sys
from collections import defaultdict

import pytest

from dppl import Ledger
from dppl.federation.protocol import Message
from federated import NAMES

KILLS = int(os.environ.get("DPPL_KILLS", "15"))  # of each side

# Forks a child for each attempt, so that everything is imported once. A child dies at a
# random call of its Python code, and notes each answer before it leaves.
KILLED = """
import hashlib, json, os, random, signal, sys
from pathlib import Path
import dppl
from dppl import GaussianDP
from dppl.errors import EngineError
from dppl.federation import Federation, InProcess, journal
from dppl.federation.protocol import Message
from dppl.methods import LinearProbe
from federated import CLASSES, NAMES, party, parties

moments = random.Random(0)
calls, dies_at = 0, None

def die(*_):
    global calls
    calls += 1
    if calls == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

def log(folder, name, content, reply):
    asked = Message.parse(content)
    if asked.kind == "ask" and Message.parse(reply).kind == "answer":
        line = f"{name} {asked.fields['number']} {hashlib.sha256(reply).hexdigest()}\\n"
        with open(folder / "left", "a") as file:
            file.write(line)

class Logged(InProcess):
    def exchange(self, messages):
        came = super().exchange(messages)
        for name, reply in came.items():
            log(self.folder, name, messages[name], reply)
        return came

def lived(work):
    '''Work in a process that may be killed, and return whether it was not.'''
    global calls
    child = os.fork()
    if child == 0:
        code = 1
        try:
            calls = 0
            sys.setprofile(die)
            work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code == 0

class Forked(InProcess):
    '''Each message is read by a fresh process of the institution, and every second of these is killed.'''

    longest, kills = 1, 0

    def exchange(self, messages):
        global dies_at
        came = {}
        for name, content in messages.items():
            place = self.folder / "reply"
            place.unlink(missing_ok=True)
            dies_at = moments.randrange(1, Forked.longest + 1) if moments.random() < 0.5 else None

            def reply():
                with party(self.folder, name) as one:
                    answer = one(content)
                    log(self.folder, name, content, answer)
                    Path(place).write_bytes(answer)
                sys.setprofile(None)
                (self.folder / "calls").write_text(str(calls))

            if lived(reply):
                Forked.longest = max(Forked.longest, int((self.folder / "calls").read_text()))
                came[name] = place.read_bytes()
            else:
                Forked.kills += 1
        return came

def fit(way, folder, **options):
    way.folder = folder
    model = LinearProbe(GaussianDP(0.5), CLASSES, steps=3, unknown_labels="ignore")
    return model.fit(Federation(way, **options))

def kill_parties(folder):
    folder.mkdir()
    fit(Forked(dict.fromkeys(NAMES)), folder, tries=60)

def rehearsed(folder):
    global calls
    folder.mkdir()
    calls = 0
    sys.setprofile(die)
    with parties(folder) as opened:
        fit(Logged(opened), folder)
    sys.setprofile(None)
    return calls

here = Path.cwd()
length = rehearsed(here / "rehearsal")
folders = []
while Forked.kills < int(sys.argv[1]):
    folders.append(f"parties-{len(folders)}")
    kill_parties(here / folders[-1])
n_all = 0
while n_all < int(sys.argv[1]):
    # Each attempt dies at a random call, the last does not.
    folder = here / f"all-{len(folders)}"
    folders.append(folder.name)
    folder.mkdir()

    def fit_all():
        with parties(folder) as opened:
            fit(Logged(opened), folder, state=folder / "fit")

    while True:
        dies_at = moments.randrange(1, length + 1) if moments.random() < 0.9 else None
        if lived(fit_all):
            break
        n_all += 1
# The control: answers that leave before they are on the disk.
write = journal.Journal.write
journal.Journal.write = lambda self, name, content: None if isinstance(name, int) else write(self, name, content)
dppl.Ledger.begin_step = lambda *_, **__: None
folder = here / "control"
folder.mkdir()
for _ in range(2):
    with parties(folder) as opened:
        fit(Logged(opened), folder, state=folder / "fit")
print(json.dumps({"folders": folders, "kills": [Forked.kills, n_all]}))
"""


def left(folder):
    """Return the answers that left, by institution and number of the ask."""
    answers = defaultdict(set)
    for line in (folder / "left").read_text().splitlines():
        name, number, digest = line.split()
        answers[name, int(number)].add(digest)
    return answers


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_one_charge_and_one_answer_whenever_either_side_is_killed(tmp_path):
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        KILLED,
        str(KILLS),
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            os.path.abspath(one) for one in ["tests", *sys.path]
        )
    }
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert min(told["kills"]) >= KILLS
    for folder in told["folders"]:
        answers = left(tmp_path / folder)
        assert {number for _, number in answers} == {0, 1, 2, 3}
        assert all(len(digests) == 1 for digests in answers.values()), folder
        for name in NAMES:
            (paid,) = Ledger(tmp_path / folder / f"{name}.db", "wards").releases()
            assert paid["cost"]["mu"] <= 0.5
    # What was added up is what each of them has on its disk.
    for folder in (one for one in told["folders"] if one.startswith("all")):
        (plan,) = {
            path.name
            for name in NAMES
            for path in (tmp_path / folder / f"{name}-state").iterdir()
        }
        for number in range(4):
            read = [
                Message.parse(
                    (
                        tmp_path
                        / folder
                        / f"{name}-state"
                        / plan
                        / f"{number:05}.answer"
                    ).read_bytes()
                )
                for name in NAMES
            ]
            total = Message.parse(
                (tmp_path / folder / "fit" / f"{number:05}.answer").read_bytes()
            )
            assert (
                sum(one.tensors["answer"] for one in read) == total.tensors["answer"]
            ).all()
    assert any(len(digests) > 1 for digests in left(tmp_path / "control").values())
