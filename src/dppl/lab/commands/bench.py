"""`dppl bench`: compare methods over budgets, data sets, class sizes and streams, and draw what came out."""

import sys
from itertools import count
from pathlib import Path

from dppl._utils.progress import progress
from dppl.cli._output import console, echo, note, printable
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError
from dppl.lab.experiments.cells import NATURAL, NO_NOISE, NON_PRIVATE
from dppl.lab.experiments.config import Experiment, figure_as_yaml, load_experiment
from dppl.lab.experiments.markdown import write_report
from dppl.lab.experiments.measure_cell import check_cells
from dppl.lab.experiments.names import place_of, pool_name, ratio_name, series_name
from dppl.lab.experiments.network_methods import weights_of_uri
from dppl.lab.experiments.papers import FIGURES
from dppl.lab.experiments.published import convert
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


@request()
class Bench:
    """Compare methods, or classifiers of streams of tasks; for research, on data that needs no protection.

    CONFIG is a grid of method, data set, public pool, budget, imbalance and
    seed, which docs/experiments.md describes. Each cell is one fit; its result is
    on disk before the next counts as done. Run the same command again to continue
    after Ctrl-C or a crash: what is done is never computed again, what failed is
    tried once more. Every number is measured on test records, and no guarantee
    covers that.

    RESULTS with --out FOLDER draws the figures and tables of a results file:
    report.md, and every figure as PNG and SVG. What was tuned on private records
    is marked. Files of an earlier report in FOLDER are replaced; a FOLDER with
    other files is refused.

    paper --list names the figures and tables of the papers; paper --figure NAME
    computes the cells of one and draws it, into a folder of its name, and with
    --show prints its configuration, to copy. paper --convert makes the folder that
    all of these read.

    RESULTS.jsonl with --out RESULTS.jsonl.xz packs the last result of every cell
    into a tenth of the space; the other way round unpacks them. Reports are
    drawn from either, and a run continues JSON lines only.

    For example:

      dppl bench quick
      dppl bench quick.jsonl --out quick-report
      dppl bench quick.jsonl --out quick.jsonl.xz
      dppl bench text --data embeddings --jobs 4 --out text.jsonl
      dppl bench continual-quick
      dppl bench mine.yaml --dry-run
      dppl bench paper --convert DOWNLOADED --data FOLDER
      dppl bench paper --figure dppl-v1:5 --data FOLDER
    """

    experiment: str = argument(
        "CONFIG|RESULTS",
        "YAML file, or one of: quick, clusters, text, images, assistant, examples, few, minority, few-shot, means, votes, "
        "luo, luo-digits, luo-few-shot, luo-few-shot-digits, paper; of streams of tasks continual, continual-quick, "
        "continual-paper, quarters. Or a results file, whole or partial, to draw or to pack.",
    )
    out: Path | None = option(
        "PATH",
        "Results, one JSON object per line, by default CONFIG's name with .jsonl; or the folder for the report of "
        "RESULTS, or a .jsonl or .jsonl.xz file to write them to.",
        None,
    )
    data: Path | None = option(
        "FOLDER", "Folder that holds the data sets. Default: the configuration's.", None
    )
    jobs: int | None = option(
        "N", "Processes. Default: one fewer than there are cores.", None, min=1
    )
    dry_run: bool = flag(
        "Check configuration, parameters and shapes; count what is left."
    )

    list: bool = flag(
        "List the figures and tables of the papers, with the cells that they need."
    )
    figure: str | None = option(
        "NAME", "A figure of --list, to compute and draw.", None
    )
    show: bool = flag("Print the configuration of --figure, and compute nothing.")
    convert: Path | None = option(
        "FOLDER",
        "Write the embeddings that the authors of DPPL publish, as downloaded into FOLDER, to the folder of --data.",
        None,
    )

    def run(self) -> None:
        """Run, count, draw or convert."""
        config = self.experiment
        if self.list or self.figure or self.show or self.convert:
            if config != "paper":
                raise ParameterError(
                    f"--list, --figure, --show and --convert go with paper; got {config}."
                )
            if self.convert:
                _convert(self.convert, self.data)
                return
            if self.list:
                for name, one in FIGURES.items():
                    echo(f"{name:<25}{one.title}: {one.needs}")
                return
            if self.figure not in FIGURES:
                got = "none" if self.figure is None else self.figure
                raise ParameterError(
                    f"--figure must be a name that dppl bench paper --list prints; got {got}."
                )
            config = self.figure
            if self.show:
                echo(figure_as_yaml(config), end="")
                return
        out = self.out
        if config.endswith(SUFFIXES):
            _report(Path(config), out)
            return
        if not self.dry_run:
            _pretrain(load_experiment(config, self.data, check=False))
        experiment = load_experiment(config, self.data)
        if out is None:
            results = Path(f"{experiment.name}.jsonl")
        else:
            results = out
        if results.is_dir() or not results.parent.is_dir() or results.suffix == PACKED:
            raise ParameterError(
                f"--out must name a file of JSON lines in an existing folder; got {results}."
            )
        # What would stop a cell shows now, and not after an hour.
        check_cells(experiment.cells, experiment.datasets)
        if results.exists():
            done = {r["key"] for r in read_results(results) if r["status"] == DONE}
        else:
            done = set()
        rest = sum(cell.key not in done for cell in experiment.cells)
        if self.dry_run:
            echo(
                f"{len(experiment.cells)} cells, {len(experiment.cells) - rest} done, {rest} left."
            )
            return
        numbers = count(1)

        def show(result: Result) -> None:
            echo(f"{next(numbers)}/{rest}  {result_line(result)}", err=True)

        try:
            summary = run_experiment(experiment, results, jobs=self.jobs, finished=show)
        except KeyboardInterrupt:
            note(
                f"Finished cells are safe in {results}; run the same command again to continue."
            )
            raise
        screen = console()
        screen.print(
            f"{summary.cells} cells: {summary.before} done before, {summary.done} now, {summary.failed} failed. "
            f"Results: {results}",
            soft_wrap=True,
        )
        if self.figure and summary.done + summary.before:
            _report(results, results.with_suffix(""))
        else:
            screen.print(
                f"Figures and tables: dppl bench {results} --out FOLDER", soft_wrap=True
            )
        # A script sees from the exit code that some cells have no number.
        if summary.failed:
            sys.exit(_CELLS_FAILED)


def _pretrain(experiment: Experiment) -> None:
    """Train networks in public that data sets say how to make, and that are not there."""
    for spec in experiment.datasets.values():
        if spec.pretrain is not None and not weights_of_uri(spec.network).exists():
            from dppl.lab.pretraining import pretrain  # here, because few need it

            with progress("training in public", spec.pretrain.epochs) as advance:
                pretrain(spec.network, spec.pretrain, advance)


def _convert(published: Path, folder: Path | None) -> None:
    """Write the published embeddings as the configuration reads them."""
    if folder is None:
        raise ParameterError("--data FOLDER is required, to convert embeddings to.")
    written, left_out = convert(published, folder)
    for name in written:
        echo(f"{folder / name}")
    if left_out:
        note(
            f"{len(left_out)} files left out, because their paths name no place; the first is {left_out[0]}."
        )


def _report(results: Path, out: Path | None) -> None:
    """Draw a results file into a folder, or write the results to a file of the other kind."""
    if out is None:
        raise ParameterError(f"--out FOLDER is required to draw {results}.")
    if out.suffix in SUFFIXES:
        several = read_results(results)
        write_results(several, out)
        text = f"{len(several)} cells in {out}"
    elif out.exists() and not out.is_dir():
        raise ParameterError(f"--out must name a folder; {out} is a file.")
    else:
        files = write_report(results, out)
        text = f"{len(files)} files, among them {out / 'report.md'}"
    console().print(text, soft_wrap=True)


def result_line(result: Result) -> str:
    """Name the cell and what it measured, so that no two cells of a run have the same line."""
    cell = result["cell"]
    budget = result["cell"]["budget"]
    pool = [pool_name(cell["pool"])] if cell["pool"] else []
    if cell["ir"] == NATURAL:
        ratio = [ratio_name(NATURAL)]
    else:
        ratio = []
    parts = [series_name(cell), *pool, ", ".join([*place_of(cell), *ratio])]
    if budget is not None:
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in budget.items())
        parts.append(NON_PRIVATE if budget == {"mu": NO_NOISE} else numbers)
    parts.append(f"seed {cell['seed']}")
    if result["status"] == FAILED:
        parts.append(f"FAILED {result['error']}: {' '.join(result['message'].split())}")
    else:
        accuracy = result["metrics"]["balanced_accuracy"]
        seconds = result["seconds"]["fit_wall"]
        parts.append(f"balanced accuracy {accuracy:.3f}, {seconds:.2g} s")
    return printable("  ".join(parts))
