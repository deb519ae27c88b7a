"""The part of a report that is about streams of tasks: figures over tasks, accuracies of each task, tables.

References
----------
DP-CL: Tobaben, Klasson, Li, Solin, Honkela, arXiv:2411.04680v2, table 1 and appendix D.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.lab.experiments.figures import Line, Part, Picture, deviations, draw, heat_maps, slug
from dppl.lab.experiments.frame import BALANCED, Frame, by, frame
from dppl.lab.experiments.names import pays_again
from dppl.lab.experiments.results import Result
from dppl.lab.experiments.tables import costs, metric_tables, table, time

_METRICS = {
    "average_accuracy": "Average accuracy after the last task",
    "forgetting": "Average forgetting after the last task",
    BALANCED: "Balanced test accuracy after the last task",
    "minority_accuracy": "Test accuracy on the smallest quarter of classes after the last task",
    "joint_accuracy": "Test accuracy of a model of all tasks at once, drawn with other noise",
    "below_joint": "Test accuracy lost to a model of all tasks at once, drawn with other noise",
}
# Average accuracy in percent, at the paper's smaller and larger budget and without privacy. None stands for
# a figure that is given as 0.00 ± 0.23, and the same method has 9 to 10 at the other budgets.
PUBLISHED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "cifar100-10x10": {
        "Naive": (9.35, None, 9.63),
        "Cosine classifier": (72.78, 78.93, 79.02),
        "PEFT ensemble": (78.81, 82.48, 82.60),
        "Full data": (85.1, 88.5, 88.4),
    },
    "imagenet-r-10x20": {
        "Naive": (1.81, 6.14, 3.28),
        "Cosine classifier": (13.04, 46.17, 56.30),
        "PEFT ensemble": (7.29, 47.97, 48.16),
        "Full data": (16.57, 52.16, 62.17),
    },
    "5-dataset": {
        "Naive": (15.93, 17.56, 13.15),
        "Cosine classifier": (58.54, 59.78, 59.87),
        "PEFT ensemble": (79.69, 87.83, 65.75),
    },
}


def stream_parts(done: list[Result]) -> Iterator[Part]:
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
        yield from _published(group)
        yield from _over_tasks(task, group)
        for metric, title in _METRICS.items():
            yield from metric_tables(task, group, metric, title, bold=False)
        private = group[group["notion"] != "none"]
        # What all tasks cost together, where that is more than the budget of one.
        if any(map(pays_again, private["cell"])):
            yield from costs(task, private, "Total mu of a record of the first task, over all published models")
    yield "## Time and storage"
    times = []
    for task, several in by(rows, "place"):
        for name, group in by(several, "name"):
            size = median(result["stream"]["model_bytes"] for result in group["result"]) / 1024
            seconds = [time(group, step) for step in ("fit", "predict", "joint")]
            times.append((", ".join(task), name, *seconds, f"{size:,.0f}"))
    yield table(
        "Seconds of a whole stream, and bytes of the model file after the last task.",
        "Medians over all cells of a method, in a process with one BLAS thread; wall clock, and CPU in brackets. Fit "
        "and predict are sums over tasks; all at once is a fit and its predictions.",
        ("stream", "method", "fit", "predict", "all at once", "model file (KiB)"),
        times,
    )


def _published(rows: Frame) -> Iterator[str]:
    recipe = rows["cell"].iloc[0]["stream"]["recipe"]
    if recipe is not None:
        yield table(
            f"Published average accuracy after the last task: {recipe}.",
            "From DP-CL (arXiv:2411.04680v2), in percent: ViT-B/16, pre-trained on ImageNet-21k, delta = 1e-5. Other "
            "encoders, noise and settings than those of the tables below. One figure of the paper, 0.00, is left out.",
            ("method", "smaller budget", "larger budget", "non-private"),
            [
                (name, *("–" if value is None else f"{value:.2f}" for value in values))
                for name, values in PUBLISHED[recipe].items()
            ],
        )


def _over_tasks(task: Any, rows: Frame) -> Iterator[Picture]:
    budgets = [(one["budget"].iloc[0], one) for _, one in rows.groupby("mu")]
    for metric, title in (("average_accuracy", "Average accuracy"), ("forgetting", "Average forgetting")):
        panels = [(budget, [_line(name, one, metric) for name, one in by(group, "label")]) for budget, group in budgets]
        yield Picture(
            f"{slug(metric)}-{slug(*task)}",
            f"{title} over tasks: {', '.join(task)}.",
            "Lines are means over seeds, bands one standard deviation on either side.",
            draw(panels, title.lower(), "tasks so far", summary=deviations),
        )
    # One map has room for one budget, the one in the middle.
    budget, group = budgets[(len(budgets) - 1) // 2]
    title = f"Accuracy on each task after each task, {budget}: {', '.join(task)}."
    maps = [(name, _matrix(one)) for name, one in by(group, "label")]
    yield Picture(f"tasks-{slug(*task)}", title, "Means over seeds.", heat_maps(maps))


def _line(label: str, rows: Frame, metric: str) -> Line:
    """Return the values of the seeds after each task."""
    seeds = [result["stream"][metric] for result in rows["result"]]
    return Line(label, dict(enumerate(zip(*seeds, strict=True), 1)), method=rows["method"].iloc[0])


def _matrix(rows: Frame) -> NDArray[np.float64]:
    """Return mean accuracies on task i after task t; NaN where i comes after t."""
    several = [result["stream"]["accuracies"] for result in rows["result"]]
    full = [[[*row, *[np.nan] * (len(matrix) - len(row))] for row in matrix] for matrix in several]
    return np.asarray(np.mean(full, axis=0))
