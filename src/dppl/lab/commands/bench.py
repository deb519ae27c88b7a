"""`dppl bench`: compare methods over budgets, data sets, class sizes and streams, and draw what came out."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import typer

from dppl.cli._output import console, note, printable
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError
from dppl.lab.experiments.cells import check_cells
from dppl.lab.experiments.config import NO_NOISE, NON_PRIVATE, Cell, Experiment, load_experiment
from dppl.lab.experiments.names import place_of, pool_name, ratio_name, series_name
from dppl.lab.experiments.report import write_report
from dppl.lab.experiments.results import (
    DONE,
    FAILED,
    PACKED,
    SUFFIXES,
    Result,
    read_results,
    write_results,
)
from dppl.lab.experiments.runner import run_experiment

_CELLS_FAILED = 6
# Seconds between two lines that say how much time is left.
_EVERY = 10.0


@request()
class Bench:
    """What `dppl bench` is asked."""

    experiment: str = argument(
        "CONFIG|RESULTS",
        "YAML file, or one of: quick, text, images, assistant, examples, few, paper; of streams of tasks continual, "
        "continual-quick, continual-paper. Or a results file, whole or partial, to draw or to pack.",
    )
    out: Path | None = option(
        "PATH",
        "Results, one JSON object per line, by default CONFIG's name with .jsonl; or the folder for the report of "
        "RESULTS, or a .parquet or .jsonl file to write them to.",
        None,
    )
    data: Path | None = option("FOLDER", "Folder that holds the data sets. Default: the configuration's.", None)
    jobs: int | None = option("N", "Processes. Default: one fewer than there are cores.", None, min=1)
    dry_run: bool = flag("Check configuration, parameters and shapes; count what is left.")


def bench(request: Bench) -> None:
    r"""Compare methods, or classifiers of streams of tasks; for research, on data that needs no protection.

    CONFIG is a grid of method, data set, public pool, budget, imbalance and
    seed. Each cell is one fit; its result is on disk before the next counts as
    done. Run the same command again to continue after Ctrl-C or a crash: what is
    done is never computed again, what failed is tried once more. Every number is
    measured on test records, and no guarantee covers that.

    RESULTS with --out FOLDER draws the figures and tables of a results file:
    report.md, report.html (one file with everything inside) and every figure as
    PNG and SVG. What was tuned on private records is marked. Files of an earlier
    report in FOLDER are replaced; a FOLDER with other files is refused.

    RESULTS.jsonl with --out RESULTS.parquet packs the last result of every cell
    into a tenth of the space; the other way round unpacks them. Reports are
    drawn from either, and a run continues JSON lines only.

    A configuration is YAML:

      datasets:
        - sample
        - name: banking77                # in data: banking77/train_x.npy,
          encoder: MiniLM                # train_y.npy, test_x.npy, test_y.npy
          public: \[{name: text, file: public_text/x.npy, first: 20000}]
      methods: \[mean, {method: public-topk, n_prototypes: \[1, 5], tune: 20}]
      budgets: {mu: \[0.25, 1, 8]}        # Gaussian DP
      ir: \[natural, 1, 100]              # largest class over smallest
      seeds: 3
      data: ../embeddings

    Budgets may also be {e: ...}, {rho: ...}, {epsilon: ..., delta: 1e-6},
    {epsilon: ...}, or a list of those. e is sqrt(2 rho) in zCDP, as in the DPPL
    papers: as much Gaussian noise as at the same mu, but selections of public
    rows differ. A method with budgets: or seeds: of its own has only those. A
    list as a parameter's value means each of its entries. Of a public pool,
    first takes the first rows, and rows draws some at random (a list: pools of
    several sizes). With lines: FILE, text with a line for each row, and
    without: \[LINE], rows with such a line are left out before first counts.
    softmax reads public rows where a data set names some, and softmax-alone
    does not.

    examples: N starts a method from N rows of each class, which are taken out
    of the private ones, and examples: names from those of a data set with
    files: {names: FILE}, in which row c describes class c. wrong: permuted
    gives the rows of every class to another one, and wrong: half those of half
    of the classes. left_out: N takes the same rows out and does not use them.
    mu: 0 reads no private record, which leaves the examples alone.

    classes: {alone: \[1, 3], groups: 2} makes tasks of few classes of a data set
    in place of its own: one of its classes against the rest, three and the rest,
    and half of them against the others. Which, the seed draws. ir is that of the
    new classes, and the rest stays large.

    tune: N adds a cell beside the untuned one, with hyper-parameters searched
    in N trials on private records. No guarantee covers that choice, and all
    tables and figures say so.

    With streams, each cell learns a whole stream, task after task, and tests
    the model after each task on the test rows of all tasks so far; methods are
    classes of dppl.continual, and the task of a test row is not named:

      streams:
        - {of: banking77, kind: class-incremental, tasks: 11, told: \[false, true]}
        - {of: banking77, kind: shuffled, tasks: \[11, 77]}
        - {of: banking77, kind: blurry, tasks: 11, elsewhere: 0.3}
        - {of: \[banking77, sample], kind: data-sets}
        - cifar100-10x10                 # or imagenet-r-10x20, 5-dataset
      methods:
        - {method: ContinualPrototypes, accumulate: \[weighted, sum]}
      budgets: \[{epsilon: \[1, 8], delta: 1.0e-5}, non-private]
      seeds: 5
      data: ../embeddings

    Of your own data, rows (x) are a float array with a row for each record, and
    labels (y) an array with a label for each; public is a list of files of rows
    by the same encoder, without labels. ContinualDiscriminant reads public rows
    where a data set names some, and ContinualDiscriminant-alone does not.

    class-incremental gives each task classes of its own, in a random order;
    shuffled spreads all classes over all tasks; blurry gives each task classes
    of its own, and lets a share of the rows go anywhere; data-sets makes each
    data set a task, with zeros added to rows of a narrower encoder. told: true
    names the classes of each task to the method, as public knowledge. A method
    whose tasks overlap spends the budget on each of them, and with in_all: true
    on all of them together.

    Benchmarks of the literature go by their names, and read folders of
    embeddings in data: cifar100; imagenet-r, with x.npy and y.npy, of which a
    random fifth is the test set (as of any data set with whole: true); mnist,
    svhn, notmnist, fashion-mnist and cifar10. A budget of non-private is mu =
    1e6.

    For example:

      dppl bench quick
      dppl bench quick.jsonl --out quick-report
      dppl bench quick.jsonl --out quick.parquet
      dppl bench text --data embeddings --jobs 4 --out text.jsonl
      dppl bench continual-quick
      dppl bench mine.yaml --dry-run
    """
    config, out = request.experiment, request.out
    if config.endswith(SUFFIXES):
        _report(Path(config), out)
        return
    _run(load_experiment(config, request.data), out, request.jobs, dry_run=request.dry_run)


def _run(experiment: Experiment, out: Path | None, jobs: int | None, *, dry_run: bool) -> None:
    """Run an experiment, or count what is left of it."""
    results = Path(f"{experiment.name}.jsonl") if out is None else out
    if results.is_dir() or not results.parent.is_dir() or results.suffix == PACKED:
        raise ParameterError(f"--out must name a file of JSON lines in an existing folder; got {results}.")
    # What would stop a cell is found now, and not after an hour.
    check_cells(experiment.cells, experiment.datasets)
    if dry_run:
        done = {r["key"] for r in read_results(results) if r["status"] == DONE} if results.exists() else set()
        left = sum(cell.key not in done for cell in experiment.cells)
        typer.echo(f"{len(experiment.cells)} cells, {len(experiment.cells) - left} done, {left} left.")
        return
    view = _View()
    try:
        summary = run_experiment(experiment, results, jobs=jobs, started=view.started, finished=view.finished)
    except KeyboardInterrupt:
        note(f"{view.count} cells of this run are safe in {results}; run the same command again to continue.")
        raise
    screen = console()
    screen.print(
        f"{summary.cells} cells: {summary.before} done before, {summary.done} now, {summary.failed} failed. "
        f"Results: {results}",
        soft_wrap=True,
    )
    screen.print(f"Figures and tables: dppl bench {results} --out FOLDER", soft_wrap=True)
    # A script sees from the exit code that some cells have no number.
    if summary.failed:
        raise typer.Exit(_CELLS_FAILED)


def _report(results: Path, out: Path | None) -> None:
    """Write the report of a results file to a folder, or the results to a file of the other kind."""
    if out is None:
        raise ParameterError(f"--out FOLDER is required to draw {results}.")
    if out.suffix in SUFFIXES:
        several = read_results(results)
        write_results(several, out)
        console().print(f"{len(several)} cells in {out}", soft_wrap=True)
        return
    if out.exists() and not out.is_dir():
        raise ParameterError(f"--out must name a folder; {out} is a file.")
    files = write_report(results, out)
    screen = console()
    screen.print(f"{len(files)} files, among them {out / 'report.html'} and {out / 'report.md'}", soft_wrap=True)


class _View:
    """Tells how a run goes: a line for each cell, and now and then how much time is left."""

    def __init__(self) -> None:
        self.count = 0

    def started(self, cells: list[Cell]) -> None:
        self.total = len(cells)
        # What all cells of a run share is in no line: encoders and pools only where a data set has several.
        tasks = {(cell.dataset, cell.encoder) for cell in cells}
        read = {(cell.dataset, cell.encoder, cell.pool) for cell in cells if cell.pool is not None}
        self._encoders = len(tasks) > len({dataset for dataset, _ in tasks})
        self._pools = len(read) > len({place[:2] for place in read})
        self._start = self._told = time.monotonic()

    def finished(self, result: Result) -> None:
        self.count += 1
        typer.echo(f"{self.count}/{self.total}  {self._line(result)}", err=True)
        now = time.monotonic()
        if now - self._told >= _EVERY and self.count < self.total:
            self._told = now
            rate = self.count / (now - self._start)
            left = timedelta(seconds=round((self.total - self.count) / rate))
            share = 100 * self.count // self.total
            typer.echo(f"{share} % of {self.total} cells, {rate:.3g}/s, about {left} left", err=True)

    def _line(self, result: Result) -> str:
        """Say which cell it was and what came out, so that no two cells of a run have the same line."""
        cell = result["cell"]
        parts = [series_name(cell)]
        if self._pools and cell["pool"]:
            parts.append(pool_name(cell["pool"]))
        # Data set, then what was done to it: stream, class sizes, budget, seed.
        dataset, encoder, *setting = place_of(cell)
        parts += [f"{dataset}, {encoder}" if self._encoders else dataset, ", ".join(setting) or ratio_name(cell["ir"])]
        if cell["budget"] == {"mu": NO_NOISE}:
            parts.append(NON_PRIVATE)
        elif cell["budget"] is not None:
            parts.append(", ".join(f"{name} {value:.3g}" for name, value in cell["budget"].items()))
        parts.append(f"seed {cell['seed']}")
        if result["status"] == FAILED:
            parts.append(f"FAILED {result['error']}: {' '.join(result['message'].split())}")
        else:
            seconds = result["seconds"]["fit_wall"]
            parts.append(f"balanced accuracy {result['metrics']['balanced_accuracy']:.3f}, {seconds:.2g} s")
        return printable("  ".join(parts))
