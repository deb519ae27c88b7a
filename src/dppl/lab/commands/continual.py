"""`dppl continual`: compare classifiers of streams of tasks, and draw what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dppl.lab.commands.bench import Data, DryRun, Jobs, ReportFolder, report_to, run_cells
from dppl.lab.experiments.config import built_in_names, load_experiment

continual = typer.Typer(
    name="continual",
    help="Compare classifiers of streams of tasks; for research, on data that needs no protection.",
    no_args_is_help=True,
    add_completion=False,
)


@continual.command()
def run(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file, or one of: quick, continual, paper.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results, one JSON object per line. Default: CONFIG's name with .jsonl; for quick and paper "
            "continual-quick.jsonl and continual-paper.jsonl.",
        ),
    ] = None,
    data: Data = None,
    jobs: Jobs = None,
    dry_run: DryRun = False,
) -> None:
    r"""Run a grid of stream, method, budget, imbalance and seed.

    Each cell learns a whole stream, task after task, and tests the model after
    each task on the test rows of all tasks so far; the task of a test row is
    not told. Its result is on disk before the next counts as done. Run the same
    command again to continue after Ctrl-C or a crash. Every number is measured
    on test records, and no guarantee covers that.

    A configuration is that of `dppl bench run` with streams, whose methods are
    classes of dppl.continual:

      datasets:
        - sample
        - name: banking77                # in data: banking77/train_x.npy,
          encoder: MiniLM                # train_y.npy, test_x.npy, test_y.npy
          public: \[{name: text, file: public_text/x.npy, first: 20000}]
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

      dppl continual run quick
      dppl continual run continual --data embeddings --jobs 2
      dppl continual run mine.yaml --dry-run
    """
    built_in = f"continual-{config}" in built_in_names()
    experiment = load_experiment(f"continual-{config}" if built_in else config, data)
    run_cells(experiment, out, jobs, dry_run=dry_run, group="continual")


@continual.command()
def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Results file that `dppl continual run` wrote, whole or partial.")
    ],
    out: ReportFolder,
) -> None:
    """Draw the figures and tables of a results file.

    Writes report.md, report.html (one file with everything inside) and every
    figure as PNG and SVG: average accuracy and forgetting over tasks for each
    budget, accuracy of every task after every task, and tables with the
    accuracy of a model of all tasks at once, time and storage. Benchmarks of
    the literature have the published figures beside. Files of an earlier report
    in FOLDER are replaced; a FOLDER with other files is refused.

    For example:

      dppl continual report continual-quick.jsonl --out quick-report
    """
    report_to(results, out)
