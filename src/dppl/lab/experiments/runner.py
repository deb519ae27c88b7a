"""Run the cells of an experiment in local processes, each finished one safe on disk."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from dppl import _validate
from dppl.lab.experiments.cells import failure, run_cell
from dppl.lab.experiments.config import Cell, Experiment
from dppl.lab.experiments.datasets import DatasetSpec
from dppl.lab.experiments.results import DONE, Result, ResultsFile

_Specs = Mapping[tuple[str, str], DatasetSpec]

_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run went."""

    cells: int  # all cells of the experiment
    before: int  # of those, done by earlier runs
    done: int  # done, failed: by this run
    failed: int


def run_experiment(
    experiment: Experiment,
    path: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    finished: Callable[[Result], None] = lambda result: None,
) -> Summary:
    """Compute the cells without a result, in `jobs` processes; `finished` gets each result when it is on disk."""
    jobs = max(1, (os.cpu_count() or 1) - 1) if jobs is None else jobs
    _validate.positive_integer(jobs=jobs)
    with ResultsFile(path) as results:
        # A cell is known by its key, whatever the configuration's name or order.
        already = results.done
        cells = [cell for cell in experiment.cells if cell.key not in already]
        done = 0
        for result in _compute(cells, experiment.datasets, jobs):
            result |= {"config": experiment.config, "data_folder": experiment.data}
            results.append(result)
            done += result["status"] == DONE
            finished(result)
    return Summary(len(experiment.cells), len(experiment.cells) - len(cells), done, len(cells) - done)


def _compute(cells: Sequence[Cell], datasets: _Specs, jobs: int) -> Iterator[Result]:
    """Yield results in the order in which they are finished."""
    queue = deque(cells)
    workers = [_Worker(datasets) for _ in range(min(jobs, len(queue)))]
    try:
        # Each worker has one cell at a time, so that a crash costs one cell.
        for worker in workers:
            worker.give(queue.popleft())
        while busy := {worker.connection: worker for worker in workers if worker.cell is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                result = worker.take()
                if queue:
                    worker.give(queue.popleft())
                yield result
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that computes one cell after the other, and ends when the pipe to this process is closed."""

    def __init__(self, datasets: _Specs) -> None:
        self._datasets = dict(datasets)
        self.cell: Cell | None = None
        self._start()

    def _start(self) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, self._datasets), daemon=True)
        # It ignores SIGINT, which the runner handles for all. Signals can be set in the main thread alone.
        in_main = threading.current_thread() is threading.main_thread()
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
        self._process.start()
        if in_main:
            signal.signal(signal.SIGINT, handler)
        theirs.close()

    def give(self, cell: Cell) -> None:
        self.cell = cell
        with suppress(BrokenPipeError):  # it died; `take` says so
            self.connection.send(cell)

    def take(self) -> Result:
        assert self.cell is not None
        try:
            result: Result = self.connection.recv()
        except (EOFError, OSError):
            self.stop()
            code = self._process.exitcode
            result = failure(self.cell, "WorkerDied", f"the process ended with code {code}; was memory short?")
            self._start()
        self.cell = None
        return result

    def stop(self) -> None:
        self.connection.close()
        if self.cell is not None:
            self._process.terminate()
        self._process.join()


def _serve(connection: Connection, datasets: _Specs) -> None:
    with suppress(EOFError, OSError):  # the runner is gone
        while True:
            connection.send(run_cell(connection.recv(), datasets))
