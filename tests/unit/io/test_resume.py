"""Work that is killed at any moment goes on and ends with the bytes of an uninterrupted run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dppl.errors import InputError
from dppl.io import open_source, read_table, write_table
from dppl.training import embed

from .conftest import TinyTexts, outcome

# Imports once, then does the work in a child for every moment, which kills itself at
# the n-th of the moments in which something is about to happen or has just happened.
SCRIPT = """
import importlib.util, os, signal, sys
import dppl.io.tables.shards

spec = importlib.util.spec_from_file_location("tiny", sys.argv[1])
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)
passed = 0

def step():
    global passed
    passed += 1
    if passed == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(owner, name):
    original = getattr(owner, name)

    def watched(*args, **kwargs):
        step()
        result = original(*args, **kwargs)
        step()
        return result

    setattr(owner, name, watched)

def work(folder):
    source = dppl.io.open_source(folder + "/t.jsonl", columns=dppl.io.Columns(id="id"))
    encoder = tiny.TinyTexts()
    dppl.training.embed(source, encoder, folder + "/table", shard_rows=6, workers=2)

watch(tiny.TinyTexts, "prepare")
watch(tiny.TinyTexts, "encode_prepared")
watch(dppl.io.tables.shards, "write_atomically")
watch(dppl.io.tables.shards.ShardedTable, "_add_to_report")
watch(os, "replace")
watch(os, "fsync")
for task in sys.argv[2:]:
    moment, folder = task.split(":", 1)
    moment = int(moment)
    child = os.fork()
    if child == 0:
        work(folder)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
N = 40
NEVER = 10**9
# Of about 250 moments; drawn anew by whoever changes the seed.
MOMENTS = sorted(
    np.random.default_rng(20).choice(np.arange(10, 200), 4, replace=False).tolist()
)


def make_source(folder):
    folder.mkdir()
    lines = [
        json.dumps(
            {"id": number % 35, "text": "" if number % 9 == 4 else f"text {number}"}
        )
        for number in range(N)
    ]
    (folder / "t.jsonl").write_text("\n".join(lines))
    return folder


def contents(folder):
    """Return the bytes of the report and of every file of the table, hidden ones too."""
    files = [folder / "table.report.jsonl", *(folder / "table").iterdir()]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.slow
def test_killed_and_resumed_ends_with_the_same_bytes(tmp_path):
    whole = make_source(tmp_path / "whole")
    killed = {moment: make_source(tmp_path / str(moment)) for moment in MOMENTS}
    tasks = [f"{NEVER}:{whole}"]
    for moment, folder in killed.items():
        # Killed, killed once more elsewhere, and then done to the end.
        tasks += [f"{moment}:{folder}", f"7:{folder}", f"{NEVER}:{folder}"]
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(Path(__file__).with_name("conftest.py")),
        *tasks,
    ]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert ended.returncode == 0, ended.stderr
    first, *others = ended.stdout.split()
    assert first == "0"
    assert others == [str(-signal.SIGKILL), str(-signal.SIGKILL), "0"] * len(MOMENTS)
    assert len(contents(whole)) == 9
    for folder in killed.values():
        assert contents(folder) == contents(whole)


def test_finished_windows_are_not_embedded_again(tmp_path):
    lines = tmp_path / "t.txt"
    lines.write_text("\n".join(f"text {number}" for number in range(N)))

    class Stopping(TinyTexts):
        def encode_prepared(self, batch, progress):
            if self.encoded >= 20:
                raise KeyboardInterrupt
            return super().encode_prepared(batch, progress)

    with pytest.raises(KeyboardInterrupt):
        embed(open_source(lines), Stopping(), tmp_path / "table", shard_rows=6)
    encoder = TinyTexts()
    found = outcome(
        embed(open_source(lines), encoder, tmp_path / "table", shard_rows=6)
    )
    assert encoder.encoded == N - 22  # three shards, and a window of the next
    assert found.ids == [str(number + 1) for number in range(N)]
    straight = outcome(
        embed(open_source(lines), TinyTexts(), tmp_path / "straight", shard_rows=6)
    )
    assert straight.bytes == found.bytes


def test_an_unfinished_table_is_no_table(tmp_path):
    """Or a fit would spend its budget on the part of the records that came first."""
    table = tmp_path / "table"
    table.mkdir()
    write_table(
        table / "part-000000.parquet", np.eye(3, dtype=np.float32), ["a", "b", "c"]
    )
    assert len(read_table(table)) == 3
    (table / "_manifest.json").write_text('{"finished": false}')
    with pytest.raises(
        InputError, match="is unfinished; run the same dppl embed again"
    ):
        read_table(table)
    (table / "_manifest.json").write_text('{"finished": true}')
    assert len(read_table(table)) == 3
