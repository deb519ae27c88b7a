"""Run the cells of an experiment in local processes, each finished one safe on disk."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dppl._utils import validate
from dppl.lab.experiments.cells import Cell
from dppl.lab.experiments.config import Experiment
from dppl.lab.experiments.datasets import DatasetSpec
from dppl.lab.experiments.image_sets import write
from dppl.lab.experiments.measure_cell import failure, run_cell
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
    if jobs is None:
        jobs = max(1, (os.cpu_count() or 1) - 1)
    validate.positive_integer(jobs=jobs)
    with ResultsFile(path) as results:
        # A cell is known by its key, whatever the configuration's name or order.
        already = results.done
        cells = [cell for cell in experiment.cells if cell.key not in already]
        done = 0
        with TemporaryDirectory() as folder:
            # Images are embedded once, and not in each process.
            keys = dict.fromkeys((cell.dataset, cell.encoder) for cell in cells)
            datasets = {
                key: write(experiment.datasets[key], Path(folder) / str(place))
                for place, key in enumerate(keys)
            }
            for result in _compute(cells, datasets, jobs):
                result |= {"config": experiment.config, "data_folder": experiment.data}
                results.append(result)
                done += result["status"] == DONE
                finished(result)
    return Summary(
        len(experiment.cells),
        len(experiment.cells) - len(cells),
        done,
        len(cells) - done,
    )


def _compute(cells: Sequence[Cell], datasets: _Specs, jobs: int) -> Iterator[Result]:
    """Yield results in the order in which they are finished."""
    waiting = deque(cells)
    while waiting:
        running: dict[Future[Result], Cell] = {}
        with ProcessPoolExecutor(
            min(jobs, len(waiting)), _SPAWN, _end_with_parent
        ) as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        future = pool.submit(run_cell, waiting[0], datasets)
                        running[future] = waiting.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield future.result()
                        del running[future]
            except BrokenProcessPool:
                # One that dies costs the cells that are being computed; another pool
                # goes on with the others.
                for cell in running.values():
                    yield failure(
                        cell,
                        "WorkerDied",
                        "a process of the run ended; was memory short?",
                    )


def _end_with_parent() -> None:
    """Let Ctrl-C end this process as well, and end it where the runner has died."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None  # a pool started this

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
