"""The report of an experiment: figures and tables of the DPPL papers, in Markdown.

Which figures appear depends on what the results hold: several pools, several encoders, several K, and so on.

References
----------
DPPL-v1: Wahdany, Jagielski, Dziedzic, Boenisch, arXiv:2406.08039, figures 2 to 6, 8 to 11, 13 to 18, 20 to 27, tables 1
and 2.
DPPL-AAAI: the same authors, AAAI 2025, figures 2 to 7.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from dppl._files import write_atomically
from dppl.errors import InputError
from dppl.lab.experiments import figures
from dppl.lab.experiments.comparisons import class_sizes, comparisons, over_budgets
from dppl.lab.experiments.figures import Part, slug
from dppl.lab.experiments.frame import BALANCED, Frame, by, default_settings, frame, panels
from dppl.lab.experiments.methods import ALL_METHODS
from dppl.lab.experiments.names import AT_DELTA, TUNED, place_of, series_name
from dppl.lab.experiments.results import DONE, PACKED, Result, read_results
from dppl.lab.experiments.stream_report import stream_parts
from dppl.lab.experiments.tables import metric_tables, sizes_and_times, table

_TITLE, _MARKDOWN = "Private classifiers compared", "report.md"
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
# Metrics of single fits: where the figure's file begins, its title and y-axis, and the title of the tables.
_BALANCED = "accuracy", "Balanced test accuracy over the budget", figures.BALANCED_LABEL, "Balanced test accuracy"
_MINORITY = (
    "minority",
    "Test accuracy on the smallest quarter of the training classes",
    "test accuracy, smallest 25 % of classes",
    "Test accuracy on the smallest quarter of classes",
)
_METRICS = {BALANCED: _BALANCED, "minority_accuracy": _MINORITY}


def write_report(path: Path, folder: Path) -> list[Path]:
    """Write figures and ``report.md`` of a results file, whole or partial, to a folder that holds nothing else."""
    results = read_results(path)
    done, failed = ([one for one in results if (one["status"] == DONE) == is_done] for is_done in (True, False))
    if not done:
        raise InputError(f"{path} holds no finished cell yet; run the experiment first.")
    unknown = sorted({result["cell"]["method"] for result in results} - ALL_METHODS.keys())
    if unknown:
        raise InputError(f"{path} holds results of methods that this version does not have: {', '.join(unknown)}.")
    # Stop before files of someone else are written over.
    earlier = folder / _MARKDOWN
    ours = earlier.is_file() and earlier.read_bytes().startswith(f"# {_TITLE}\n".encode())
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise InputError(f"{folder} holds files and no earlier report; name an empty or a new folder with --out.")
    # Nothing is written before all parts are made: an error leaves an earlier report as it is.
    parts = [
        *_head(path, folder, done, len(failed)),
        *_single_fits([result for result in done if "stream" not in result["cell"]]),
        *stream_parts([result for result in done if "stream" in result["cell"]]),
        *_failures(failed),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    blocks, files = list[str](), list[Path]()
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


def _head(path: Path, folder: Path, done: Sequence[Result], n_failed: int) -> Iterator[Part]:
    runs = {(r["config"], *(["--data", r["data_folder"]] if r["data_folder"] else [])): None for r in done}
    lines = str(path).removesuffix(PACKED)  # a run writes lines, even where they were packed later
    commands = [shlex.join(["dppl", "bench", *one, "--out", lines]) for one in runs]
    made = shlex.join(["dppl", "bench", str(path), "--out", str(folder)])
    digest, n_tuned = sha256(path.read_bytes()).hexdigest()[:16], sum(result["tuned"] for result in done)
    tuned = f", {n_tuned} of them {TUNED}" if n_tuned else ""
    single = any("stream" not in result["cell"] for result in done)
    reference = any(result["e"] is None for result in done)
    # Cells of one file may have been computed by several versions.
    versions = sorted({", ".join(f"{name} {version}" for name, version in r["software"].items()) for r in done})
    yield f"# {_TITLE}"
    yield f"Made by `{made}` from the results of {' and '.join(f'`{command}`' for command in commands)}."
    yield f"Results file `{path.name}`, sha256 {digest}: {len(done)} cells done{tuned}; {n_failed} failed."
    yield _EXPERIMENTS + _TUNED_NOTE * bool(n_tuned) + _REFERENCES * reference
    yield _BUDGETS + _NOTIONS * single
    yield f"Software: {'; '.join(versions)}."


def _single_fits(done: list[Result]) -> Iterator[Part]:
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


def _accuracies(task: Any, rows: Frame) -> Iterator[Part]:
    # Figures compare methods at one setting each; tables have all settings.
    main = default_settings(rows)
    for metric, (stem, title, y_label, heading) in _METRICS.items():
        several = panels(main, metric)
        if several:
            picture = over_budgets(f"{stem}-{slug(*task)}", f"{title}: {', '.join(task)}.", several, y_label)
            more = metric == BALANCED and len(main) < len(rows)
            yield replace(picture, note=f"{picture.note} Further settings have figures below.") if more else picture
            yield from metric_tables(task, rows, metric, heading)
    calibration = list(metric_tables(task, rows, "calibration_error", "Calibration error", bold=False))
    if calibration:
        yield f"### Calibration: {', '.join(task)}"
        yield _CALIBRATION
        yield from calibration


def _failures(failed: Sequence[Result]) -> Iterator[Part]:
    rows = []
    for result in failed:
        cell, message = result["cell"], " ".join(result["message"].split())
        rows.append((series_name(cell), ", ".join(place_of(cell)), str(cell["seed"]), result["error"], message))
    if failed:
        yield "## Failed cells"
        title = "Cells that failed; the next run of the experiment tries them again."
        yield table(title, "", ("method", "setting", "seed", "error", "message"), rows)
