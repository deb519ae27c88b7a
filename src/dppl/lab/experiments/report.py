"""The report of an experiment: figures and tables of the DPPL papers, as Markdown and as one HTML file.

Which figures appear depends on what the results hold: several pools, several encoders, several K, and so on.

References
----------
DPPL-v1: Wahdany, Jagielski, Dziedzic, Boenisch, arXiv:2406.08039, figures 2 to 6, 8 to 11, 13 to 18, 20 to 27, tables 1
and 2.
DPPL-AAAI: the same authors, AAAI 2025, figures 2 to 7.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from dppl._files import write_atomically
from dppl.errors import InputError
from dppl.lab.experiments import figures
from dppl.lab.experiments.comparisons import class_sizes, comparisons
from dppl.lab.experiments.methods import ALL_METHODS
from dppl.lab.experiments.rendering import Heading, Part, Picture, Table, Text, slug, to_html, to_markdown
from dppl.lab.experiments.results import DONE, FAILED, Result, read_results
from dppl.lab.experiments.series import (
    AT_DELTA,
    BALANCED,
    TUNED,
    by_task,
    default_settings,
    encoder_name,
    grouped,
    panels_by_ratio,
    place_of,
    population_name,
    series_name,
    unit_of,
)
from dppl.lab.experiments.stream_report import stream_parts
from dppl.lab.experiments.tables import metric_tables, sizes_and_times, winners

__all__ = ["write_report"]

_TITLE, _MARKDOWN, _HTML = "Private classifiers compared", "report.md", "report.html"
_FURTHER = " Further settings have figures below."
_OF_TUNED = (
    f" Rows and dashed lines marked “{TUNED}” used hyper-parameters that were chosen by looking at private records; "
    "all others use defaults, which the guarantee covers."
)
_NOTIONS = (
    " DPPL-Public selects rows without Gaussian noise: within the same ρ its own mu is up to 1.26 times as large, and "
    "its own epsilon another. Methods with adjacency replace-one protect against another change of the data than those "
    "with add-remove; DPPL-Mean as published then takes class sizes as public."
)


def write_report(path: Path, folder: Path) -> list[Path]:
    """Write figures, ``report.md`` and ``report.html`` of a results file, whole or partial.

    A folder with other files than those of an earlier report is refused.

    Accuracies on test records are experiments: no guarantee covers them. What was tuned on private records is marked in
    every table and figure.
    """
    results = read_results(path)
    done = [result for result in results if result["status"] == DONE]
    if not done:
        raise InputError(f"{path} holds no finished cell yet; run the experiment first.")
    unknown = sorted({result["cell"]["method"] for result in results} - ALL_METHODS.keys())
    if unknown:
        raise InputError(f"{path} holds results of methods that this version does not have: {', '.join(unknown)}.")
    _refuse_foreign(folder)
    # Nothing is written before all parts are made: an error leaves an earlier report as it is.
    parts = [
        *_head(path, folder, results),
        *_single_fits([result for result in done if "stream" not in result["cell"]]),
        *stream_parts([result for result in done if "stream" in result["cell"]]),
        *_failures(results),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for part in parts:
        if isinstance(part, Picture):
            figures.save(part.figure, folder, part.stem)
            files += [folder / f"{part.stem}.png", folder / f"{part.stem}.svg"]
    for name, content in ((_MARKDOWN, to_markdown(parts)), (_HTML, to_html(parts, folder))):
        write_atomically(folder / name, content.encode("utf-8"), overwrite=True)
        files.append(folder / name)
    return files


def _refuse_foreign(folder: Path) -> None:
    """Stop before files of someone else are written over."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    earlier = folder / _MARKDOWN
    if not earlier.is_file() or not earlier.read_bytes().startswith(f"# {_TITLE}\n".encode()):
        raise InputError(f"{folder} holds files and no earlier report; name an empty or a new folder with --out.")


def _made_by(path: Path, folder: Path, results: Sequence[Result]) -> str:
    """Say which commands lead here."""
    commands = dict.fromkeys(
        shlex.join(["dppl", "bench", r["config"], *(["--data", data] if data else []), "--out", str(path)])
        for r in results
        for data in [r["data_folder"]]
    )
    made = shlex.join(["dppl", "bench", str(path), "--out", str(folder)])
    text = f"Made by `{made}` from the results of {' and '.join(f'`{command}`' for command in commands)}."
    # A file may hold cells of several configurations; those of other names than the file's are counted.
    cells = Counter(result["config"] for result in results)
    others = {config: n for config, n in cells.items() if Path(config).stem != path.stem}
    if len(cells) > 1 and others:
        named = ", ".join(f"`{config}` ({n})" for config, n in others.items())
        text += f" {sum(others.values())} of the {len(results)} cells are not of the configuration {path.stem}: "
        text += f"{named}."
    return text


def _group(results: Iterable[Result]) -> str:
    """Name the group of commands that results belong to."""
    return "continual" if all("stream" in result["cell"] for result in results) else "bench"


def _head(path: Path, folder: Path, results: Sequence[Result]) -> Iterator[Part]:
    done = [result for result in results if result["status"] == DONE]
    # Cells of one file may have been computed by several versions.
    versions = sorted({", ".join(f"{name} {version}" for name, version in r["software"].items()) for r in done})
    yield Heading(_TITLE, 1)
    yield Text(_made_by(path, folder, results))
    n_tuned = sum(result["tuned"] for result in done)
    yield Text(
        f"Results file `{path.name}`, sha256 {sha256(path.read_bytes()).hexdigest()[:16]}: {len(done)} cells done"
        + (f", {n_tuned} of them {TUNED}" if n_tuned else "")
        + f"; {len(results) - len(done)} failed."
    )
    yield Text(
        "**These are experiments.** Accuracies are measured on test records and by seeded runs; no guarantee covers "
        "the numbers themselves."
        + (_OF_TUNED if n_tuned else "")
        + (" “Not private” marks references without any guarantee." if any(r["e"] is None for r in done) else "")
    )
    yield Text(
        f"Budgets are placed by mu of Gaussian DP; the {AT_DELTA} of Gaussian noise is exact and rounded up. In ρ-zCDP "
        "mu = sqrt(2ρ), which is e on the x-axis of the DPPL papers' figures. An approximate budget stands at the mu "
        "of the Gaussian noise that it allows; a pure one allows none and stands at the sqrt(2ρ) that it implies."
        + (_NOTIONS if _group(results) == "bench" else "")
    )
    yield Text(f"Software: {'; '.join(versions)}.")


def _single_fits(done: list[Result]) -> Iterator[Part]:
    if done:
        yield from winners(done)
        for task, results in by_task(done).items():
            yield Heading(", ".join(task))
            yield from _accuracy(task, results)
            yield from metric_tables(task, results, "person_accuracy", "Test accuracy, each person counting once")
            yield from _minority_accuracy(task, results)
            yield from _calibration(task, results)
        yield from _units(done)
        yield from comparisons(done)
        yield Heading("Data and time")
        yield from class_sizes(done)
        yield from sizes_and_times(done)


def _units(done: list[Result]) -> Iterator[Part]:
    """Compare the promise to a record with that to a person, where one data set has both."""
    private = [result for result in default_settings(done) if result["e"] is not None and "persons" in result["cell"]]
    for task, results in grouped(private, lambda r: (population_name(r["cell"]), encoder_name(r["cell"]))).items():
        if len({unit_of(result) for result in results}) > 1:
            yield Heading(f"What a promise to persons costs: {', '.join(task)}")
            # The two are never in one table without a word about it.
            yield Text(
                "These are different promises: one to a record is far weaker where persons have several, and every row "
                "and line says which it is."
            )
            yield Picture(
                f"units-{slug(*task)}",
                f"Records or persons protected: {', '.join(task)}.",
                figures.BAND_NOTE,
                figures.budget_panels(panels_by_ratio(results), figures.BALANCED_LABEL),
            )
            yield from metric_tables(task, results, BALANCED, "Records or persons protected", bold=False)


def _accuracy(task: tuple[str, str], results: list[Result]) -> Iterator[Part]:
    main = default_settings(results)
    yield Picture(
        f"accuracy-{slug(*task)}",
        f"Balanced test accuracy over the budget: {', '.join(task)}.",
        figures.BAND_NOTE + (_FURTHER if len(main) < len(results) else ""),
        figures.budget_panels(panels_by_ratio(main), figures.BALANCED_LABEL),
    )
    yield from metric_tables(task, results, BALANCED, "Balanced test accuracy")


def _minority_accuracy(task: tuple[str, str], results: list[Result]) -> Iterator[Part]:
    panels = panels_by_ratio(default_settings(results), "minority_accuracy")
    if panels:
        yield Picture(
            f"minority-{slug(*task)}",
            f"Test accuracy on the smallest quarter of the training classes: {', '.join(task)}.",
            figures.BAND_NOTE,
            figures.budget_panels(panels, "test accuracy, smallest 25 % of classes"),
        )
        title = "Test accuracy on the smallest quarter of classes"
        yield from metric_tables(task, results, "minority_accuracy", title)


def _calibration(task: tuple[str, str], results: list[Result]) -> Iterator[Part]:
    tables = list(metric_tables(task, results, "calibration_error", "Calibration error", bold=False))
    if tables:
        yield Heading(f"Calibration: {', '.join(task)}", 3)
        yield Text(
            "How far a stated probability is from the share of correct predictions: the expected calibration error "
            "of the largest probability, in 15 bins, with classes weighing alike. 0 is best. Methods without "
            "probabilities, and results of versions that did not measure it, have no row."
        )
        yield from tables


def _failures(results: Iterable[Result]) -> Iterator[Part]:
    failed = [result for result in results if result["status"] == FAILED]
    if failed:
        yield Heading("Failed cells")
        yield Table(
            "Cells that failed; the next run of the experiment tries them again.",
            "",
            ("method", "setting", "seed", "error", "message"),
            [
                (
                    series_name(result),
                    ", ".join(place_of(result["cell"])),
                    str(result["cell"]["seed"]),
                    result["error"],
                    " ".join(result["message"].split()),
                )
                for result in failed
            ],
        )
