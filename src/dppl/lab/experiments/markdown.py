"""The report of an experiment: figures and tables of the DPPL papers, in Markdown.

Which figures appear depends on what the results hold: several pools, several encoders,
several K, and so on.

References
----------
DPPL-v1: Wahdany, Jagielski, Dziedzic, Boenisch, arXiv:2406.08039, figures 2 to 6, 8 to 11, 14 to 18, 20 to 27, tables 1
and 2.
DPPL-AAAI: the same authors, AAAI 2025, figures 2 to 7.
DP-CL: Tobaben, Klasson, Li, Solin, Honkela, arXiv:2411.04680v2, appendix D.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dppl._utils.files import write_atomically
from dppl._utils.types import Float
from dppl.errors import InputError
from dppl.lab.experiments import figures
from dppl.lab.experiments.compared_methods import ALL_METHODS
from dppl.lab.experiments.comparisons import class_sizes, comparisons, over_budgets
from dppl.lab.experiments.figures import (
    Line,
    MarkdownPart,
    Picture,
    deviations,
    draw,
    heat_maps,
    slug,
)
from dppl.lab.experiments.frame import (
    BALANCED,
    DataFrame,
    by,
    default_settings,
    frame,
    panels,
)
from dppl.lab.experiments.names import (
    AT_DELTA,
    TUNED,
    pays_again,
    place_of,
    series_name,
)
from dppl.lab.experiments.result_tables import (
    costs,
    metric_tables,
    sizes_and_times,
    table,
    time,
)
from dppl.lab.experiments.results import DONE, PACKED, Result, read_results

_TITLE = "Private classifiers compared"
_MARKDOWN = "report.md"
_EXPERIMENTS = (
    "**These are experiments.** Accuracies are measured on test records and by seeded runs; no guarantee covers the "
    "numbers themselves."
)
_REFERENCES = " “Not private” marks references without any guarantee."
_BUDGETS = (
    f"Budgets are placed by mu of Gaussian DP; the {AT_DELTA} of Gaussian noise is exact and rounded up. In ρ-zCDP "
    "mu = sqrt(2ρ), which is e on the x-axis of the DPPL papers' figures. An approximate budget stands at the mu "
    "of the Gaussian noise that it allows; a pure one allows none and stands at the sqrt(2ρ) that it implies."
)
_TUNED_NOTE = (
    f" Rows and dashed lines marked “{TUNED}” used hyper-parameters that were chosen by looking at private records; "
    "all others use defaults, which the guarantee covers."
)
_NOTIONS = (
    " DPPL-Public selects rows without Gaussian noise: within the same ρ its own mu is up to 1.26 times as large, and "
    "its own epsilon another. Methods with adjacency replace-one protect against another change of the data than those "
    "with add-remove; DPPL-Mean as published then takes class sizes as public."
)
_CALIBRATION = (
    "How far a stated probability is from the share of correct predictions: the expected calibration error "
    "of the largest probability, in 15 bins, with classes weighing alike. 0 is best. Methods without "
    "probabilities, and results of versions that did not measure it, have no row."
)
# Metrics of single fits: where the figure's file begins, its title and y-axis, and the
# title of the tables.
_BALANCED = (
    "accuracy",
    "Balanced test accuracy over the budget",
    figures.BALANCED_LABEL,
    "Balanced test accuracy",
)
_MINORITY = (
    "minority",
    "Test accuracy on the smallest quarter of the training classes",
    "test accuracy, smallest 25 % of classes",
    "Test accuracy on the smallest quarter of classes",
)
_METRICS = {BALANCED: _BALANCED, "minority_accuracy": _MINORITY}
_OF_STREAMS = {
    "average_accuracy": "Average accuracy after the last task",
    "forgetting": "Average forgetting after the last task",
    BALANCED: "Balanced test accuracy after the last task",
    "minority_accuracy": "Test accuracy on the smallest quarter of classes after the last task",
    "joint_accuracy": "Test accuracy of a model of all tasks at once, drawn with other noise",
    "below_joint": "Test accuracy lost to a model of all tasks at once, drawn with other noise",
}


def write_report(path: Path, folder: Path) -> list[Path]:
    """Write figures and ``report.md`` of a results file, whole or partial, to a folder that holds nothing else."""
    results = read_results(path)
    done, failed = (
        [one for one in results if (one["status"] == DONE) == is_done]
        for is_done in (True, False)
    )
    if not done:
        raise InputError(
            f"{path} holds no finished cell yet; run the experiment first."
        )
    named = {result["cell"]["method"] for result in results}
    unknown = sorted(name for name in named if name not in ALL_METHODS)
    if unknown:
        raise InputError(
            f"{path} holds results of methods that this version does not have: {', '.join(unknown)}."
        )
    # Stop before files of someone else are written over.
    earlier = folder / _MARKDOWN
    ours = earlier.is_file() and earlier.read_bytes().startswith(
        f"# {_TITLE}\n".encode()
    )
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise InputError(
            f"{folder} holds files and no earlier report; name an empty or a new folder with --out."
        )
    # Nothing is written before all parts are made: an error leaves an earlier report as
    # it is.
    parts = [
        *_head(path, folder, done, len(failed)),
        *_single_fits([result for result in done if "stream" not in result["cell"]]),
        *_streams([result for result in done if "stream" in result["cell"]]),
        *_failures(failed),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    blocks = list[str]()
    files = list[Path]()
    for part in parts:
        if isinstance(part, str):
            blocks.append(part)
            continue
        figures.save(part.figure, folder, part.stem)
        files += [folder / f"{part.stem}.png", folder / f"{part.stem}.svg"]
        blocks.append(f"![{part.title}]({part.stem}.png)")
        blocks.append(f"**{part.title}** {part.note} Also as `{part.stem}.svg`.")
    text = "\n\n".join(blocks) + "\n"
    write_atomically(earlier, text.encode("utf-8"), overwrite=True)
    return [*files, earlier]


def _head(
    path: Path, folder: Path, done: Sequence[Result], n_failed: int
) -> Iterator[MarkdownPart]:
    runs = {
        (r["config"], *(["--data", r["data_folder"]] if r["data_folder"] else [])): None
        for r in done
    }
    lines = str(path).removesuffix(
        PACKED
    )  # a run writes lines, even where they were packed later
    commands = [shlex.join(["dppl", "bench", *one, "--out", lines]) for one in runs]
    made = shlex.join(["dppl", "bench", str(path), "--out", str(folder)])
    digest = sha256(path.read_bytes()).hexdigest()[:16]
    n_tuned = sum(result["tuned"] for result in done)
    tuned = f", {n_tuned} of them {TUNED}" if n_tuned else ""
    single = any("stream" not in result["cell"] for result in done)
    reference = any(result["e"] is None for result in done)
    # Cells of one file may have been computed by several versions.
    versions = sorted(
        {
            ", ".join(f"{name} {version}" for name, version in r["software"].items())
            for r in done
        }
    )
    yield f"# {_TITLE}"
    yield f"Made by `{made}` from the results of {' and '.join(f'`{command}`' for command in commands)}."
    yield f"Results file `{path.name}`, sha256 {digest}: {len(done)} cells done{tuned}; {n_failed} failed."
    yield _EXPERIMENTS + _TUNED_NOTE * bool(n_tuned) + _REFERENCES * reference
    yield _BUDGETS + _NOTIONS * single
    yield f"Software: {'; '.join(versions)}."


def _single_fits(done: list[Result]) -> Iterator[MarkdownPart]:
    if not done:
        return
    rows = frame(done)
    for task, group in by(rows, "dataset", "encoder"):
        yield f"## {', '.join(task)}"
        yield from _accuracies(task, group)
    yield from comparisons(rows)
    yield "## Data and time"
    yield from class_sizes(rows)
    yield from sizes_and_times(rows)


def _accuracies(task: Any, rows: DataFrame) -> Iterator[MarkdownPart]:
    # Figures compare methods at one setting each; tables have all settings.
    main = default_settings(rows)
    for metric, (stem, title, y_label, heading) in _METRICS.items():
        several = panels(main, metric)
        if several:
            picture = over_budgets(
                f"{stem}-{slug(*task)}",
                f"{title}: {', '.join(task)}.",
                several,
                y_label,
            )
            more = metric == BALANCED and len(main) < len(rows)
            if more:
                note = f"{picture.note} Further settings have figures below."
                picture = replace(picture, note=note)
            yield picture
            yield from metric_tables(task, rows, metric, heading)
    calibration = list(
        metric_tables(task, rows, "calibration_error", "Calibration error", bold=False)
    )
    if calibration:
        yield f"### Calibration: {', '.join(task)}"
        yield _CALIBRATION
        yield from calibration


def _streams(done: list[Result]) -> Iterator[MarkdownPart]:
    """Show each stream, and what methods take in time and storage."""
    if not done:
        return
    rows = frame(done)
    yield (
        "Streams: the model after each task t is tested on the test rows of each task i so far, and no task is named "
        "at the test. Average accuracy is the mean of the accuracies a(t, i) over i ≤ t; forgetting is the mean over "
        "i < t of the largest earlier accuracy on task i minus a(t, i). A model of all tasks at once is the same "
        "method, with the same budget and other noise, on one task that holds all records; rules of accumulate differ "
        "there by their noise alone. Non-private is mu = 1e6, whose noise is below the rounding of rows."
    )
    # A chapter for each stream, in the order of the results.
    for task, group in by(rows, "place"):
        yield f"## {', '.join(task)}"
        yield from _over_tasks(task, group)
        for metric, title in _OF_STREAMS.items():
            yield from metric_tables(task, group, metric, title, bold=False)
        private = group[group["notion"] != "none"]
        # What all tasks cost together, where that is more than the budget of one.
        if any(map(pays_again, private["cell"])):
            yield from costs(
                task,
                private,
                "Total mu of a record of the first task, over all published models",
            )
    yield "## Time and storage"
    times = []
    for task, several in by(rows, "place"):
        for name, group in by(several, "name"):
            size = (
                median(result["stream"]["model_bytes"] for result in group["result"])
                / 1024
            )
            seconds = [time(group, step) for step in ("fit", "predict", "joint")]
            times.append((", ".join(task), name, *seconds, f"{size:,.0f}"))
    yield table(
        "Seconds of a whole stream, and bytes of the model file after the last task.",
        "Medians over all cells of a method, in a process with one BLAS thread; wall clock, and CPU in brackets. Fit "
        "and predict are sums over tasks; all at once is a fit and its predictions.",
        ("stream", "method", "fit", "predict", "all at once", "model file (KiB)"),
        times,
    )


def _over_tasks(task: Any, rows: DataFrame) -> Iterator[Picture]:
    budgets = [(one["budget"].iloc[0], one) for _, one in rows.groupby("mu")]
    for metric, title in (
        ("average_accuracy", "Average accuracy"),
        ("forgetting", "Average forgetting"),
    ):
        panels = [
            (budget, [_line(name, one, metric) for name, one in by(group, "label")])
            for budget, group in budgets
        ]
        yield Picture(
            f"{slug(metric)}-{slug(*task)}",
            f"{title} over tasks: {', '.join(task)}.",
            "Lines are means over seeds, bands one standard deviation on either side.",
            draw(panels, title.lower(), "tasks so far", summary=deviations),
        )
    alone = rows[rows["cell"].map(lambda cell: cell.get("alone", False))]
    if len(alone):
        panels = [
            (
                budget,
                [
                    line
                    for name, one in by(alone[alone["budget"] == budget], "label")
                    for line in _alone(name, one)
                ],
            )
            for budget in dict.fromkeys(name for name, _ in budgets)
        ]
        yield Picture(
            f"alone-{slug(*task)}",
            f"Accuracy on each task, of a model of that task alone and after the last task: {', '.join(task)}.",
            "Lines are means over seeds, bands one standard deviation on either side. Nothing tells either of them the "
            "task of a test row.",
            draw(panels, "test accuracy", "task", summary=deviations),
        )
    # One map has room for one budget, the one in the middle.
    budget, group = budgets[(len(budgets) - 1) // 2]
    title = f"Accuracy on each task after each task, {budget}: {', '.join(task)}."
    maps = [(name, _matrix(one)) for name, one in by(group, "label")]
    yield Picture(f"tasks-{slug(*task)}", title, "Means over seeds.", heat_maps(maps))


def _line(label: str, rows: DataFrame, metric: str) -> Line:
    """Return the values of the seeds after each task."""
    seeds = [result["stream"][metric] for result in rows["result"]]
    return Line(
        label,
        dict(enumerate(zip(*seeds, strict=True), 1)),
        method=rows["method"].iloc[0],
    )


def _alone(label: str, rows: DataFrame) -> Iterator[Line]:
    """Yield the accuracies on each task of its own model, and of the model after the last task."""
    streams = [result["stream"] for result in rows["result"]]
    for what, seeds in (
        ("each task alone", [one["alone"] for one in streams]),
        ("after the last task", [one["accuracies"][-1] for one in streams]),
    ):
        yield Line(
            f"{label}, {what}",
            dict(enumerate(zip(*seeds, strict=True), 1)),
            method=rows["method"].iloc[0],
        )


def _matrix(rows: DataFrame) -> Float:
    """Return mean accuracies on task i after task t; NaN where i comes after t."""
    several = [result["stream"]["accuracies"] for result in rows["result"]]
    full = [
        [[*row, *[np.nan] * (len(matrix) - len(row))] for row in matrix]
        for matrix in several
    ]
    return np.asarray(np.mean(full, axis=0))


def _failures(failed: Sequence[Result]) -> Iterator[MarkdownPart]:
    rows = []
    for result in failed:
        cell = result["cell"]
        message = " ".join(result["message"].split())
        rows.append(
            (
                series_name(cell),
                ", ".join(place_of(cell)),
                str(cell["seed"]),
                result["error"],
                message,
            )
        )
    if failed:
        yield "## Failed cells"
        title = "Cells that failed; the next run of the experiment tries them again."
        yield table(title, "", ("method", "setting", "seed", "error", "message"), rows)
