"""The tables of a report: winners, means over seeds, sizes and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median, stdev

from dppl.kernel.privacy.budgets import rounded_up
from dppl.lab.experiments.rendering import Heading, Part, Table
from dppl.lab.experiments.results import Result
from dppl.lab.experiments.series import (
    BALANCED,
    Series,
    best,
    budget_name,
    budgets_note,
    by_task,
    examples_of,
    grouped,
    name_with_pool,
    pool_name,
    position,
    ratio_name,
    ratios,
    rounding_aside,
    series,
    series_name,
    setting_name,
)
from dppl.metrics import difference_error, is_ahead

__all__ = ["costs", "metric_tables", "sizes_and_times", "time", "winners"]

_NONE = "–"
_MEANS = "Means over seeds, ± their standard deviation."
# A difference of mean accuracies that is too small to matter, whatever its error.
_ALIKE = 0.005
_BOLD = (
    "Bold: the best private method of a column, not counting tuned ones, and all that are within two standard errors "
    f"of the difference, or within {_ALIKE:g}."
)


def winners(done: list[Result]) -> Iterator[Part]:
    """Name the best private method of each setting, wrong examples aside: one table for all data sets."""
    done = [result for result in done if examples_of(result)["wrong"] is None]
    # Columns are imbalance ratios; rows are data sets and budgets.
    names = list(ratios(done))
    budgets = [result["cell"]["budget"] for result in done]
    yield Heading("Winner per setting and budget")
    yield Table(
        "Best private method by mean balanced test accuracy.",
        f"Among methods under add-remove with nothing tuned on private records. {budgets_note(budgets)} A "
        "winner is named with its mean and, in brackets, how far the next one is behind, ± the standard error of that "
        "difference; none where it is below two standard errors, or known from one seed alone. Chosen by looking at "
        "test records, so no guarantee covers a choice by this table.",
        ("data set", "encoder", "budget", *map(ratio_name, names)),
        [
            (*task, budget, *(_winner(ratios(results).get(ratio, []), mu) for ratio in names))
            for task, results in by_task(done).items()
            for mu, budget in _budgets(results).items()
        ],
    )


def metric_tables(
    task: tuple[str, ...], results: list[Result], metric: str, title: str, *, bold: bool = True
) -> Iterator[Table]:
    """Give the means of a metric over seeds: a table for each imbalance ratio, a row for each method."""
    for group in ratios(results).values():
        several = _series(group, metric)
        if not several:
            continue
        # Bold in a column is whatever the best is not clearly ahead of.
        leading = {(label, mu) for mu in _budgets(group) for label in _leading(several, mu)} if bold else set()
        seeds = sorted({result["cell"]["seed"] for result in group})
        usual = _usual_seeds(several)
        note = f"{_MEANS} Seeds: {_listed(seeds)}; {usual} of them, or n where (n) stands."
        values = {
            (one.label, mu): _mean_sd(one.at(mu), usual, bold=(one.label, mu) in leading)
            for one in several
            for mu in _budgets(group)
        }
        yield _by_budget(task, group, several, title, (note, *([_BOLD] if bold else [])), values)


def _listed(seeds: list[int]) -> str:
    """Say which seeds they are, as a range where none is missing."""
    if len(seeds) > 3 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def costs(task: tuple[str, ...], results: list[Result], title: str) -> Iterator[Table]:
    """Give what all tasks cost together, which no seed changes: a table for each imbalance ratio."""
    for group in ratios(results).values():
        several = _series(group, "total_mu")
        values = {
            (one.label, mu): rounded_up(rounding_aside(max(one.at(mu))), 4) if one.at(mu) else _NONE
            for one in several
            for mu in _budgets(group)
        }
        yield _by_budget(task, group, several, title, ("Rounded up.",), values)


def _by_budget(
    task: tuple[str, ...],
    group: list[Result],
    several: list[Series],
    title: str,
    notes: Sequence[str],
    values: Mapping[tuple[str, float], str],
) -> Table:
    """Make a table with a row for each method and a column for each budget, from texts by label and mu."""
    budgets = _budgets(group)
    first, *more = notes
    return Table(
        f"{title}: {', '.join(task)}, {setting_name(group[0])}.",
        " ".join([first, budgets_note(result["cell"]["budget"] for result in group), *more]),
        ("method", "guarantee", "public rows", *budgets.values()),
        [
            (
                one.label,
                one.promise,
                " or ".join(f"{n:,}" if n else "none" for n in sorted(one.n_public)),
                *(values[one.label, mu] for mu in budgets),
            )
            for one in several
        ],
    )


def sizes_and_times(done: list[Result]) -> Iterator[Table]:
    """Give the sizes of classes, and what a fit takes."""
    # Class sizes are those of one seed: another one draws other rows in the same numbers.
    tasks = by_task(done)
    yield Table(
        "Records per class by imbalance ratio: median and mean (as DPPL-v1, table 1).",
        "Of the training subset of the first seed.",
        ("data set", "encoder", "class sizes", "classes", "records", "median", "mean", "smallest", "largest"),
        [
            (*task, ratio_name(ratio), *_sizes(group[0]["data"]["class_sizes"]))
            for task, results in tasks.items()
            for ratio, group in ratios(results).items()
        ],
    )
    yield Table(
        "Seconds of one training and its evaluation (as DPPL-v1, table 2).",
        "Medians over all cells of a method, in a process with one BLAS thread; wall clock, and CPU in brackets. "
        "Memory is the largest resident size of the process during a cell, with data and libraries. Where processes "
        "share the machine, trust the CPU times.",
        ("data set", "method", "search", "fit", "predict", "peak memory (MiB)"),
        [
            (dataset, name, *_times(group))
            for (dataset, _), results in tasks.items()
            for name, group in grouped(results, series_name).items()
        ],
    )


def _series(results: list[Result], metric: str = BALANCED) -> list[Series]:
    """Collect results into series, with the names of public pools where there are several."""
    pools = {pool_name(result["cell"]["pool"]) for result in results if result["cell"]["pool"]}
    return series(results, metric, name=name_with_pool if len(pools) > 1 else None)


def _budgets(results: Iterable[Result]) -> dict[float, str]:
    """Return the names of the budgets by their position, ascending."""
    groups = grouped((result for result in results if result["e"] is not None), position)
    return {mu: " or ".join(dict.fromkeys(map(budget_name, groups[mu]))) for mu in sorted(groups)}


def _winner(results: list[Result], mu: float) -> str:
    # Methods under replace-one make another promise, so they cannot win.
    ranked = best((one for one in _series(results) if one.adjacency == "add-remove"), mu)
    if not ranked:
        return _NONE
    (first, value), *others = ranked
    text = f"{first.label} {value:.3f}"
    if not others:
        return text
    second, next_value = others[0]
    error = difference_error(first.at(mu), second.at(mu))
    margin = f"+{value - next_value:.3f}" + ("" if error is None else f" ± {error:.3f}")
    if all(is_ahead(first.at(mu), other.at(mu)) for other, _ in others):
        return f"{text} ({margin})"
    return f"none: {text} ({margin} to {second.label})"


def _leading(several: Iterable[Series], mu: float) -> Iterator[str]:
    """Yield the labels of the best private methods."""
    ranked = [one for one, _ in best(several, mu)]
    for one in ranked:
        first, values = ranked[0].at(mu), one.at(mu)
        error = difference_error(first, values) or 0.0
        if round(fmean(first) - fmean(values), 3) <= max(_ALIKE, 2 * error):
            yield one.label


def _usual_seeds(several: Iterable[Series]) -> int:
    """Return how many seeds most methods have; where that is a tie, the larger number."""
    counts = Counter(max(map(len, one.values.values())) for one in several)
    return max(counts, key=lambda n: (counts[n], n))


def _mean_sd(values: list[float], usual: int, *, bold: bool) -> str:
    if not values:
        return _NONE
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    text = f"{fmean(values):.3f}{spread}"
    return (f"**{text}**" if bold else text) + ("" if len(values) == usual else f" ({len(values)})")


def _sizes(sizes: list[int]) -> list[str]:
    numbers = (len(sizes), sum(sizes), median(sizes), round(fmean(sizes), 1), min(sizes), max(sizes))
    return [f"{number:g}" for number in numbers]


def _times(results: list[Result]) -> list[str]:
    memory = median(result["peak_memory_mib"] for result in results)
    return [*(time(results, step) for step in ("tune", "fit", "predict")), f"{memory:.0f}"]


def time(results: list[Result], step: str) -> str:
    """Return the medians of wall clock and CPU seconds of a step."""
    seconds = [result["seconds"] for result in results if f"{step}_wall" in result["seconds"]]
    if not seconds:
        return _NONE
    wall, cpu = (median(one[f"{step}_{clock}"] for one in seconds) for clock in ("wall", "cpu"))
    return f"{wall:.3g} ({cpu:.3g})"
