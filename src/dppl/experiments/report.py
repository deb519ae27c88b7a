"""The report of an experiment: figures and tables of the DPPL papers, as Markdown and as one HTML file.

Which figures appear depends on what the results hold: several pools, several encoders, several K, and so on.

References
----------
DPPL-v1: Wahdany, Jagielski, Dziedzic, Boenisch, arXiv:2406.08039, figures 2 to 11, 13 to 18, 20 to 27, tables 1 and 2.
DPPL-AAAI: the same authors, AAAI 2025, figures 2 to 7.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean, median, stdev

from dppl._files import write_atomically
from dppl.errors import InputError
from dppl.experiments import figures
from dppl.experiments.config import NATURAL
from dppl.experiments.rendering import Heading, Part, Picture, Table, Text, to_html, to_markdown
from dppl.experiments.results import DONE, FAILED, Record, read_results
from dppl.experiments.series import (
    AT_DELTA,
    TUNED,
    Series,
    best,
    budget_name,
    by_notion,
    by_task,
    default_settings,
    grouped,
    main_pool,
    pool_name,
    position,
    ratio_name,
    ratios,
    series,
    setting_name,
)

__all__ = ["write_report"]

_BALANCED, _MINORITY, _CALIBRATION = "balanced_accuracy", "minority_accuracy", "calibration_error"
_BALANCED_LABEL, _MINORITY_LABEL = "balanced test accuracy", "test accuracy, smallest 25 % of classes"
_BAND = "Lines are medians over seeds, bands their quartiles."
_MEANS = "Means over seeds, ± their standard deviation."
_BUDGETS = f"Budgets: mu, and in brackets its {AT_DELTA}."
# Differences of mean accuracies that are no lead: in bold print, and among winners.
_ALIKE, _TIE = 0.005, 0.01
_BOLD = f"Bold: the best private method of a column, not counting tuned ones, and all within {_ALIKE:g} of it."
_TITLE, _MARKDOWN, _HTML = "Private classifiers compared", "report.md", "report.html"


def write_report(results: Path, folder: Path) -> list[Path]:
    """Write figures, ``report.md`` and ``report.html`` of a results file, whole or partial.

    Parameters
    ----------
    results : Path
    folder : Path
        Made if it does not exist. Files of an earlier report are replaced; a folder with other files is refused.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    InputError
        If the file cannot be read, no cell of it is done, or the folder holds files and no earlier report.
    MissingExtra
        If Matplotlib is not installed.

    Notes
    -----
    Accuracies on test records are experiments: no guarantee covers them. What was tuned on private records is marked in
    every table and figure.
    """
    records = read_results(results)
    done = [record for record in records if record["status"] == DONE]
    if not done:
        raise InputError(f"{results} holds no finished cell yet; run the experiment first.")
    _refuse_foreign(folder)
    parts = [
        *_head(results, folder, records),
        *_winners(done),
        *_tasks(done),
        *_comparisons(done),
        *_tables(done),
        *_failures(records),
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


def _made_by(results: Path, folder: Path, records: Sequence[Record]) -> str:
    """Say which commands lead here. Records of earlier versions hold the configuration's stem and no folder of data."""
    commands = dict.fromkeys(
        shlex.join(["dppl", "bench", "run", r["config"], *(["--data", data] if data else []), "--out", str(results)])
        for r in records
        for data in [r.get("data_folder")]
    )
    text = (
        f"Made by `{shlex.join(['dppl', 'bench', 'report', str(results), '--out', str(folder)])}` from the results of "
        f"{' and '.join(f'`{command}`' for command in commands)}."
    )
    cells = Counter(record["config"] for record in records)
    others = {config: n for config, n in cells.items() if Path(config).stem != results.stem}
    if len(cells) > 1 and others:
        named = ", ".join(f"`{config}` ({n})" for config, n in others.items())
        text += f" {sum(others.values())} of the {len(records)} cells are not of the configuration {results.stem}: "
        text += f"{named}."
    return text


def _head(results: Path, folder: Path, records: Sequence[Record]) -> Iterator[Part]:
    done = [record for record in records if record["status"] == DONE]
    versions = sorted({", ".join(f"{name} {version}" for name, version in r["software"].items()) for r in done})
    yield Heading(_TITLE, 1)
    yield Text(_made_by(results, folder, records))
    yield Text(
        f"Results file `{results.name}`, sha256 {sha256(results.read_bytes()).hexdigest()[:16]}: {len(done)} cells "
        f"done, {sum(record['tuned'] for record in done)} of them {TUNED}; {len(records) - len(done)} failed."
    )
    yield Text(
        "**These are experiments.** Accuracies are measured on test records and by seeded runs; no guarantee covers "
        f"the numbers themselves. Rows and dashed lines marked “{TUNED}” used hyper-parameters that were chosen by "
        "looking at private records; all others use defaults, which the guarantee covers. “Not private” marks "
        "references without any guarantee."
    )
    yield Text(
        f"Budgets are mu of Gaussian DP, in brackets the {AT_DELTA} of Gaussian noise, exact and rounded up. In ρ-zCDP "
        "mu = sqrt(2ρ), which is e on the x-axis of the DPPL papers' figures. An approximate budget stands at the mu "
        "of the Gaussian noise that it allows; a pure one allows none and stands at the sqrt(2ρ) that it implies. "
        "DPPL-Public selects rows without Gaussian noise: within the same ρ its own mu is up to 1.26 times as large, "
        "and its own epsilon another. Methods with adjacency replace-one protect against another change of the data "
        "than those with add-remove; DPPL-Mean as published then takes class sizes as public."
    )
    yield Text(f"Software: {'; '.join(versions)}.")


def _winners(done: list[Record]) -> Iterator[Part]:
    """Name the best private method of each setting: one table for all data sets."""
    names = list(ratios(done))
    yield Heading("Winner per setting and budget")
    yield Table(
        f"Best private method by mean {_BALANCED_LABEL}.",
        f"Among methods under add-remove with nothing tuned on private records. {_BUDGETS} After each name the mean, "
        f"in brackets the margin to the next one; a tie where it is below {_TIE:g}. Chosen by looking at test records, "
        "so no guarantee covers a choice by this table.",
        ("data set", "encoder", "budget", *map(ratio_name, names)),
        [
            (dataset, encoder, budget, *(_winner(ratios(records).get(ratio, []), mu) for ratio in names))
            for (dataset, encoder), records in by_task(done).items()
            for mu, budget in _budgets(records).items()
        ],
    )


def _winner(records: list[Record], mu: float) -> str:
    name = _label_with_pool if _has_pools(records) else None
    ranked = best((one for one in series(records, name=name) if one.adjacency == "add-remove"), mu)
    if not ranked:
        return "–"
    (first, value), *others = ranked
    text = f"{first.label} {value:.3f}"
    if not others:
        return text
    second, next_value = others[0]
    margin = round(value - next_value, 3)
    tie = f", tie with {second.label}" if margin < _TIE else ""
    return f"{text} (+{margin:.3f}{tie})"


def _budgets(records: Iterable[Record]) -> dict[float, str]:
    """Return the names of the budgets by their position, ascending."""
    groups = grouped((record for record in records if record["e"] is not None), position)
    return {mu: " or ".join(dict.fromkeys(map(budget_name, groups[mu]))) for mu in sorted(groups)}


def _by_budget(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group by the budgets' names, in ascending order of position."""
    return {
        name + notion: several
        for notion, group in by_notion(records).items()
        for name, several in grouped(sorted(group, key=position), budget_name).items()
    }


def _tasks(done: list[Record]) -> Iterator[Part]:
    for (dataset, encoder), records in by_task(done).items():
        stem = _stem(dataset, encoder)
        main = default_settings(records)
        yield Heading(f"{dataset}, {encoder}")
        yield Picture(
            f"accuracy-{stem}",
            f"Balanced test accuracy over the budget: {dataset}, {encoder}.",
            _BAND + _main_note(records, main),
            figures.budget_panels(_by_ratio(main, _BALANCED), _BALANCED_LABEL),
        )
        yield from _metric_tables(records, dataset, encoder, _BALANCED, "Balanced test accuracy")
        if any(one for _, one in _by_ratio(main, _MINORITY)):
            yield Picture(
                f"minority-{stem}",
                f"Test accuracy on the smallest quarter of the training classes: {dataset}, {encoder}.",
                _BAND,
                figures.budget_panels(_by_ratio(main, _MINORITY), _MINORITY_LABEL),
            )
            yield from _metric_tables(
                records, dataset, encoder, _MINORITY, "Test accuracy on the smallest quarter of classes"
            )
        if any(one for _, one in _by_ratio(records, _CALIBRATION)):
            yield Heading(f"Calibration: {dataset}, {encoder}", 3)
            yield Text(
                "How far a stated probability is from the share of correct predictions: the expected calibration error "
                "of the largest probability, in 15 bins, with classes weighing alike. 0 is best. Methods without "
                "probabilities, and results of versions that did not measure it, have no row."
            )
            yield from _metric_tables(records, dataset, encoder, _CALIBRATION, "Calibration error", bold=False)


def _comparisons(done: list[Record]) -> Iterator[Part]:
    parts = [
        part
        for make in (_datasets, _encoders, _projection, _pools, _pool_sizes, _top_k, _coinpress)
        for part in make(done)
    ]
    if parts:
        yield Heading("What the results depend on")
        yield from parts


def _datasets(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figure 3: data sets side by side at the largest imbalance ratio that all have."""
    for encoder, records in grouped(done, lambda record: record["cell"]["encoder"]).items():
        tasks = by_task(records)
        shared = set.intersection(*(set(ratios(group)) for group in tasks.values()))
        if len(tasks) > 1 and shared:
            ratio = max(shared, key=lambda one: 0 if one == NATURAL else float(one))
            panels = [(name, series(ratios(default_settings(group))[ratio])) for (name, _), group in tasks.items()]
            yield Picture(
                f"datasets-{_stem(encoder)}",
                f"Data sets at {ratio_name(ratio)}, {encoder}.",
                _BAND,
                figures.budget_panels(panels, _BALANCED_LABEL),
            )


def _encoders(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figure 6."""
    for dataset, records in grouped(done, lambda record: record["cell"]["dataset"]).items():
        tasks = by_task(records)
        if len(tasks) > 1:
            for ratio in ratios(records):
                panels = [
                    (encoder, series(ratios(default_settings(group)).get(ratio, [])))
                    for (_, encoder), group in tasks.items()
                ]
                yield Picture(
                    f"encoders-{_stem(dataset, _ratio_stem(ratio))}",
                    f"Encoders: {dataset}, {ratio_name(ratio)}.",
                    _BAND,
                    figures.budget_panels(panels, _BALANCED_LABEL),
                )


def _projection(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figure 7: methods with and without a trained projection, where results have both."""
    for (dataset, encoder), records in by_task(done).items():
        ways = grouped(records, lambda record: bool(record["cell"]["parameters"].get("projection")))
        if len(ways) > 1:
            methods = {record["cell"]["method"] for record in ways[True]}
            both = [record for record in records if record["cell"]["method"] in methods]
            yield Picture(
                f"projection-{_stem(dataset, encoder)}",
                f"With and without a projection: {dataset}, {encoder}.",
                _BAND,
                figures.budget_panels(_by_ratio(both, _BALANCED), _BALANCED_LABEL),
            )


def _pools(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figure 8 (c): the same method with different public pools."""
    for (dataset, encoder), records in by_task(done).items():
        read = [record for record in records if record["cell"]["pool"] is not None]
        if len({record["cell"]["pool"]["name"] for record in read}) > 1:
            methods = grouped(_largest_of_each_pool(read), lambda record: series([record])[0].label).values()
            several = [
                record
                for group in methods
                if len({one["cell"]["pool"]["name"] for one in group}) > 1
                for record in group
            ]
            panels = [
                (ratio_name(ratio), series(group, name=_label_with_pool)) for ratio, group in ratios(several).items()
            ]
            yield Picture(
                f"pools-{_stem(dataset, encoder)}",
                f"Public pools: {dataset}, {encoder}.",
                _BAND,
                figures.budget_panels(panels, _BALANCED_LABEL),
            )


def _pool_sizes(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figures 8 (d) and 11: accuracy over the number of public rows."""
    for (dataset, encoder), records in by_task(done).items():
        read = [record for record in records if record["cell"]["pool"] is not None and not record["tuned"]]
        for method, group in grouped(read, lambda record: series([record])[0].label).items():
            if len({record["data"]["n_public"] for record in group}) < 2:
                continue
            panels = [
                (
                    ratio_name(ratio),
                    {
                        name: _mean_by(several, lambda record: float(record["data"]["n_public"]))
                        for name, several in _by_budget(one).items()
                    },
                )
                for ratio, one in ratios(group).items()
            ]
            yield Picture(
                f"pool-size-{_stem(dataset, encoder, method)}",
                f"Number of public rows: {method}, {dataset}, {encoder}.",
                "Lines are means over seeds, each a budget.",
                figures.lines(panels, "public rows to select from", _BALANCED_LABEL, log_x=True),
            )


def _top_k(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figures 9, 14 to 18."""
    for (dataset, encoder), records in by_task(done).items():
        main = [record for record in main_pool(records) if not record["tuned"]]
        chosen = [record for record in main if record["cell"]["method"] == "public-topk"]
        if len({_k(record) for record in chosen}) < 2:
            continue
        settings = [_all_but_k(record) for record in chosen]
        ones = [r for r in main if r["cell"]["method"] == "public" and _all_but_k(r) in settings]
        means = [r for r in main if r["cell"]["method"] == "mean" and not r["cell"]["parameters"]]
        shown = [*means, *ones, *chosen]
        yield Picture(
            f"top-k-{_stem(dataset, encoder)}",
            f"Several prototypes per class: {dataset}, {encoder}.",
            _BAND,
            figures.budget_panels(_by_ratio(shown, _BALANCED), _BALANCED_LABEL),
        )
        ks = {
            ratio_name(ratio) + notion: {mu: _best_k(several) for mu, several in grouped(one, position).items()}
            for ratio, group in ratios([*ones, *chosen]).items()
            for notion, one in by_notion(group).items()
        }
        yield Picture(
            f"best-k-{_stem(dataset, encoder)}",
            f"The K with the best mean balanced test accuracy: {dataset}, {encoder}.",
            "K = 1 is DPPL-Public. Chosen by looking at test records, so no guarantee covers this choice.",
            figures.lines([("", ks)], None, "best K", log_y=True),
        )


def _coinpress(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figure 13: radius of the ball and norm of the estimate over the steps, where results have them."""
    for (dataset, encoder), records in by_task(done).items():
        traced = ratios(record for record in records if record.get("coinpress"))
        if not traced:
            continue
        # The largest classes: in small ones the estimates of most budgets run away. Older results hold no radii.
        ratio, records = next(iter(traced.items()))
        kinds = {"radius": "radius of the ball after each step", "norm": "norm of the estimate"}
        panels = []
        for kind, title in kinds.items():
            values: dict[str, dict[float, float]] = {}
            for name, group in _by_budget(records).items():
                steps = [record["coinpress"][kind] for record in group if kind in record["coinpress"]]
                if steps:
                    means = enumerate((fmean(step) for step in zip(*steps, strict=True)), start=int(kind == "norm"))
                    values[name] = {float(step): mean for step, mean in means}
            if values:
                panels.append((title, values))
        if panels:
            yield Picture(
                f"coinpress-{_stem(dataset, encoder)}",
                f"Steps of CoinPress: {dataset}, {encoder}.",
                f"Means over classes and seeds ({ratio_name(ratio)}), each line a budget.",
                figures.lines(panels, "step", "in units of the mechanism", log_y=True),
            )


def _tables(done: list[Record]) -> Iterator[Part]:
    yield Heading("Data and time")
    yield from _class_sizes(done)
    yield Table(
        "Records per class by imbalance ratio: median and mean (as DPPL-v1, table 1).",
        "Of the training subset of the first seed.",
        ("data set", "encoder", "class sizes", "classes", "records", "median", "mean", "smallest", "largest"),
        [
            _size_row(dataset, encoder, ratio, group[0]["data"]["class_sizes"])
            for (dataset, encoder), records in by_task(done).items()
            for ratio, group in ratios(records).items()
        ],
    )
    yield Table(
        "Seconds of one training and its evaluation (as DPPL-v1, table 2).",
        "Medians over all cells of a method, in a process with one BLAS thread; wall clock, and CPU in brackets. "
        "Memory is the largest resident size of the process during a cell, with data and libraries. Where processes "
        "share the machine, trust the CPU times.",
        ("data set", "method", "search", "fit", "predict", "peak memory (MiB)"),
        [row for (dataset, _), records in by_task(done).items() for row in _time_rows(dataset, records)],
    )


def _class_sizes(done: list[Record]) -> Iterator[Part]:
    """DPPL-v1 figure 10: class sizes from the largest to the smallest."""
    for (dataset, encoder), records in by_task(done).items():
        groups = ratios(records)
        if len(groups) > 1:
            values = {
                ratio_name(ratio): {
                    float(place + 1): float(size)
                    for place, size in enumerate(sorted(group[0]["data"]["class_sizes"], reverse=True))
                }
                for ratio, group in groups.items()
            }
            yield Picture(
                f"class-sizes-{_stem(dataset, encoder)}",
                f"Training records of each class: {dataset}.",
                "Classes from the largest to the smallest; the last quarter are the minority classes.",
                figures.lines([("", values)], "class", "records", log_y=True),
            )


def _failures(records: Iterable[Record]) -> Iterator[Part]:
    failed = [record for record in records if record["status"] == FAILED]
    if failed:
        yield Heading("Failed cells")
        yield Table(
            "Cells that failed; the next run of the experiment tries them again.",
            "",
            ("method", "data set", "IR", "seed", "error", "message"),
            [
                (
                    record["cell"]["method"],
                    record["cell"]["dataset"],
                    str(record["cell"]["ir"]),
                    str(record["cell"]["seed"]),
                    record["error"],
                    " ".join(record["message"].split()),
                )
                for record in failed
            ],
        )


def _metric_tables(
    records: list[Record], dataset: str, encoder: str, metric: str, title: str, *, bold: bool = True
) -> Iterator[Part]:
    for group in ratios(records).values():
        budgets = _budgets(group)
        several = series(group, metric, name=_label_with_pool if _has_pools(group) else None)
        leading = {(label, mu) for mu in budgets for label in _leading(several, mu)} if bold else ()
        rows = [
            (
                one.label,
                one.promise,
                " or ".join(f"{n:,}" if n else "none" for n in sorted(one.n_public)),
                *(
                    _mean_sd(one.values.get(mu, []) if one.private else one.reference, (one.label, mu) in leading)
                    for mu in budgets
                ),
            )
            for one in several
        ]
        if rows:
            seeds = sorted({record["cell"]["seed"] for record in group})
            usual = _usual_seeds(several)
            note = f"{_MEANS} Seeds: {', '.join(map(str, seeds))}; {usual} of them, or n where (n) stands. {_BUDGETS}"
            yield Table(
                f"{title}: {dataset}, {encoder}, {setting_name(group[0])}.",
                f"{note} {_BOLD}" if bold else note,
                ("method", "guarantee", "public rows", *budgets.values()),
                [[cell.removesuffix(f" ({usual})") for cell in row] for row in rows],
            )


def _usual_seeds(several: Iterable[Series]) -> int:
    """Return how many seeds most methods have; where that is a tie, the larger number."""
    counts = Counter(max(map(len, one.values.values())) for one in several)
    return max(counts, key=lambda n: (counts[n], n))


def _mean_sd(values: list[float], bold: bool) -> str:
    if not values:
        return "–"
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    text = f"{fmean(values):.3f}{spread}"
    return f"{f'**{text}**' if bold else text} ({len(values)})"


def _leading(several: Iterable[Series], mu: float) -> list[str]:
    """Return the labels of the best private methods."""
    ranked = best(several, mu)
    return [one.label for one, value in ranked if round(ranked[0][1] - value, 3) <= _ALIKE]


def _by_ratio(records: list[Record], metric: str) -> list[figures.Panel]:
    panels = [(ratio_name(ratio), series(group, metric)) for ratio, group in ratios(records).items()]
    return [panel for panel in panels if panel[1]]


def _main_note(records: list[Record], main: list[Record]) -> str:
    return " Further public pools, their sizes and further K have figures below." if len(main) < len(records) else ""


def _has_pools(records: Iterable[Record]) -> bool:
    return len({pool_name(record["cell"]["pool"]) for record in records if record["cell"]["pool"]}) > 1


def _label_with_pool(record: Record) -> str:
    # The label of a single record has marks for tuning already, which `series` will add.
    label = series([{**record, "tuned": False, "e": record["e"] or 1.0}])[0].label
    pool = record["cell"]["pool"]
    return label if pool is None else f"{label}, {pool_name(pool)}"


def _largest_of_each_pool(records: list[Record]) -> list[Record]:
    kept = []
    for group in grouped(records, lambda record: record["cell"]["pool"]["name"]).values():
        sizes = [record["cell"]["pool"]["rows"] for record in group]
        largest = None if None in sizes else max(sizes)
        kept += [record for record in group if record["cell"]["pool"]["rows"] == largest]
    return kept


def _k(record: Record) -> int:
    return int(record["cell"]["parameters"].get("n_prototypes", 1))


def _all_but_k(record: Record) -> Record:
    return {name: value for name, value in record["cell"]["parameters"].items() if name != "n_prototypes"}


def _best_k(records: list[Record]) -> float:
    means = _mean_by(records, lambda record: float(_k(record)))
    return max(means, key=lambda k: (means[k], -k))


def _mean_by(records: Iterable[Record], key: Callable[[Record], float]) -> dict[float, float]:
    groups = grouped(records, key)
    return {x: fmean(record["metrics"][_BALANCED] for record in groups[x]) for x in groups}


def _size_row(dataset: str, encoder: str, ratio: float | str, sizes: list[int]) -> tuple[str, ...]:
    figures_of_it = (len(sizes), sum(sizes), median(sizes), round(fmean(sizes), 1), min(sizes), max(sizes))
    return (dataset, encoder, ratio_name(ratio), *(f"{value:g}" for value in figures_of_it))


def _time_rows(dataset: str, records: list[Record]) -> Iterator[tuple[str, ...]]:
    for name, group in grouped(records, lambda record: series([record])[0].label).items():
        times = [
            f"{median(walls):.3g} ({median(r['seconds'][f'{step}_cpu'] for r in group):.3g})"
            if (walls := [r["seconds"][f"{step}_wall"] for r in group if f"{step}_wall" in r["seconds"]])
            else "–"
            for step in ("tune", "fit", "predict")
        ]
        yield dataset, name, *times, f"{median(r['peak_memory_mib'] for r in group):.0f}"


def _stem(*names: str) -> str:
    """Make part of a file name."""
    text = "-".join(names).lower()
    return "-".join("".join(char if char.isalnum() else " " for char in text).split())


def _ratio_stem(ratio: float | str) -> str:
    return f"ir-{ratio}" if isinstance(ratio, str) else f"ir-{ratio:g}"
