"""The runner: processes, resuming after any end, failures that stop nothing."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from dppl.errors import InputError, ParameterError
from dppl.lab.experiments.results import ResultsFile, read_results
from dppl.lab.experiments.runner import run_experiment

SEEDS = {"methods": ["mean"], "seeds": 6}

# Runs a configuration and kills itself, without any warning, when three records are on
# disk.
DIES = """
    import os, signal, sys
    from dppl.lab.experiments.config import load_experiment
    from dppl.lab.experiments.runner import run_experiment

    written = []

    def finished(record):
        written.append(record)
        if len(written) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        run_experiment(load_experiment(sys.argv[1]), sys.argv[2], jobs=1, finished=finished)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


@pytest.mark.slow
def test_a_run_survives_sigkill_and_computes_nothing_twice(
    write_config, experiment, path, tmp_path
):
    """Its processes start as those of a user do."""
    script = tmp_path / "dies.py"
    script.write_text(textwrap.dedent(DIES))
    config = write_config(**SEEDS)
    killed = subprocess.run(
        [sys.executable, script, config, path],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    before = path.read_bytes()
    assert before.count(b"\n") == 3
    path.write_bytes(
        before + b'{"schema": 1, "k'
    )  # as if the machine had stopped while it wrote
    began = []
    summary = run_experiment(experiment(**SEEDS), path, jobs=1, finished=began.append)
    assert (summary.cells, summary.before, summary.done, summary.failed) == (6, 3, 3, 0)
    assert path.read_bytes().startswith(before)
    keys = [json.loads(line)["key"] for line in path.read_bytes().splitlines()]
    assert sorted(keys) == sorted(cell.key for cell in experiment(**SEEDS).cells)
    assert [record["key"] for record in began] == keys[3:]


def test_a_finished_experiment_starts_no_process(experiment, path, monkeypatch):
    loaded = experiment(seeds=1)
    with ResultsFile(path) as results:
        for cell in loaded.cells:
            results.append({"schema": 1, "key": cell.key, "status": "done"})
    monkeypatch.setattr("dppl.lab.experiments.runner.ProcessPoolExecutor", None)
    assert run_experiment(loaded, path).before == len(loaded.cells)


@pytest.mark.usefixtures("forked")
def test_a_failing_cell_stops_no_other_and_is_tried_again(experiment, path):
    around = dict(os.environ), signal.getsignal(signal.SIGINT)
    loaded = experiment(methods=[{"method": "mean", "lattice__pool": [1, 1000, 2]}])
    for runs in (1, 2):
        summary = run_experiment(loaded, path, jobs=1)
        assert (summary.done, summary.failed) == ((2, 1) if runs == 1 else (0, 1))
        assert path.read_bytes().count(b"\n") == 2 + runs
    (failed,) = [
        record for record in read_results(path) if record["status"] == "failed"
    ]
    assert failed["error"] == "ParameterError"
    assert (failed["config"], failed["data_folder"]) == (loaded.config, None)
    assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == around


@pytest.mark.usefixtures("forked")
def test_a_process_that_dies_costs_its_cell_only(experiment, path):
    killed = []

    def finished(record):
        if not killed:
            (worker,) = multiprocessing.active_children()
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(worker.pid)

    loaded = experiment(**SEEDS)
    summary = run_experiment(loaded, path, jobs=1, finished=finished)
    assert (summary.done, summary.failed) == (5, 1)
    (failed,) = [
        record for record in read_results(path) if record["status"] == "failed"
    ]
    assert failed["error"] == "WorkerDied"
    assert "was memory short?" in failed["message"]


@pytest.fixture
def interruptible():
    """Let Ctrl-C interrupt, as at a terminal: a shell starts jobs in the background with that signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible", "forked")
def test_an_interrupt_keeps_what_is_done_and_leaves_no_process(experiment, path):
    def finished(record):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment(**SEEDS), path, jobs=1, finished=finished)
    assert multiprocessing.active_children() == []
    with ResultsFile(path) as results:
        assert len(results.results) == len(results.done) == 1


def test_two_runners_cannot_share_a_file(experiment, path):
    with ResultsFile(path), pytest.raises(InputError, match="in use by another run"):
        run_experiment(experiment(), path, jobs=1)
    assert path.read_bytes() == b""


def test_jobs_are_counted_in_whole_processes(experiment, path):
    with pytest.raises(
        ParameterError, match="jobs must be an integer of at least 1; got 0"
    ):
        run_experiment(experiment(), path, jobs=0)
