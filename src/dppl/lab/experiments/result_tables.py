"""The tables of a report: means over seeds, sizes and times."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean, median, stdev

from dppl.kernel.privacy.budgets import rounded_up
from dppl.lab.experiments.figures import Line
from dppl.lab.experiments.frame import DataFrame, by, lines, ratios
from dppl.lab.experiments.names import nine_digits
from dppl.metrics import difference_error

_NONE = "–"
_MEANS = "Means over seeds, ± their standard deviation."
# A difference of mean accuracies that is too small to matter, whatever its error.
_ALIKE = 0.005
_BOLD = (
    "Bold: the best private method of a column, not counting tuned ones, and all that are within two standard errors "
    f"of the difference, or within {_ALIKE:g}."
)


def metric_tables(
    task: tuple[str, ...],
    rows: DataFrame,
    metric: str,
    title: str,
    *,
    bold: bool = True,
) -> Iterator[str]:
    """Give the means of a metric over seeds: a table for each imbalance ratio, a row for each method."""
    for group in ratios(rows).values():
        several = lines(group, metric, _label(group))
        if not several:
            continue
        if bold:
            leading = {
                (one.label, mu)
                for mu in _budgets(group)
                for one in _leading(several, mu)
            }
        else:
            leading = set()
        seeds = sorted(set(group["seed"]))
        listed = f"{seeds[0]} to {seeds[-1]}"
        if len(seeds) <= 3 or seeds != list(range(seeds[0], seeds[-1] + 1)):
            listed = ", ".join(map(str, seeds))
        # How many seeds most methods have; where that is a tie, the larger number.
        counts = Counter(max(map(len, one.values.values())) for one in several)
        usual = max(counts, key=lambda n: (counts[n], n))

        def text(
            one: Line,
            mu: float,
            leading: set[tuple[str, float]] = leading,
            usual: int = usual,
        ) -> str:
            values = one.values.get(mu if one.private else 0.0)
            if not values:
                return _NONE
            mean = f"{fmean(values):.3f}" + (
                f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            )
            if (one.label, mu) in leading:
                mean = f"**{mean}**"
            if len(values) == usual:
                return mean
            return f"{mean} ({len(values)})"

        note = f"{_MEANS} Seeds: {listed}; {usual} of them, or n where (n) stands."
        yield _by_budget(
            task, group, metric, title, f"{note} {_BOLD}" if bold else note, text
        )


def _leading(several: Sequence[Line], mu: float) -> Iterator[Line]:
    """Yield the best private line that is not tuned, and those that it is not clearly ahead of."""
    there = [
        one for one in several if one.private and not one.tuned and mu in one.values
    ]
    ranked = sorted(there, key=lambda one: -round(fmean(one.values[mu]), 3))
    for one in ranked:
        first = ranked[0].values[mu]
        values = one.values[mu]
        error = difference_error(first, values) or 0.0
        if round(fmean(first) - fmean(values), 3) <= max(_ALIKE, 2 * error):
            yield one


def costs(task: tuple[str, ...], rows: DataFrame, title: str) -> Iterator[str]:
    """Give the cost of all tasks, which no seed changes: a table for each imbalance ratio."""

    def text(one: Line, mu: float) -> str:
        if mu in one.values:
            return rounded_up(nine_digits(max(one.values[mu])), 4)
        return _NONE

    for group in ratios(rows).values():
        yield _by_budget(task, group, "total_mu", title, "Rounded up.", text)


def _by_budget(
    task: tuple[str, ...],
    group: DataFrame,
    metric: str,
    title: str,
    note: str,
    text: Callable[[Line, float], str],
) -> str:
    """Make a table with a row for each method and a column for each budget."""
    budgets = _budgets(group)
    name = _label(group)
    measured = group.dropna(subset=[metric])
    rows = []
    for one in lines(group, metric, name):
        same = measured[measured[name] == one.label]
        public = " or ".join(
            f"{n:,}" if n else "none" for n in sorted(set(same["n_public"]))
        )
        rows.append(
            (
                one.label,
                same["promise"].iloc[0],
                public,
                *(text(one, mu) for mu in budgets),
            )
        )
    # Too few records for an imbalance ratio leave another one.
    first = group.iloc[0]
    sizes = [size for size in first["sizes"] if size > 0]
    reached = max(sizes) / min(sizes)
    short = ""
    if reached < 0.9 * first["ratio"]:
        short = f" (reached: {reached:.3g})"
    full = f"{title}: {', '.join(task)}, {first['ratio_name']}{short}."
    return table(
        full, note, ("method", "guarantee", "public rows", *budgets.values()), rows
    )


def _label(rows: DataFrame) -> str:
    """Return the column of labels: with the names of public pools where there are several."""
    if len(set(rows["pool_name"]) - {""}) > 1:
        return "label_with_pool"
    return "label"


def _budgets(rows: DataFrame) -> dict[float, str]:
    """Return the names of the budgets by mu, ascending."""
    private = rows[rows["private"]]
    return {
        mu: " or ".join(dict.fromkeys(names))
        for mu, names in private.groupby("mu")["budget"]
    }


def sizes_and_times(rows: DataFrame) -> Iterator[str]:
    """Give the sizes of classes, and how long a fit takes."""
    tables: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] = [], []
    for task, several in by(rows, "dataset", "encoder"):
        for ratio, group in ratios(several).items():
            # Class sizes are from one seed: another one draws other rows in the same
            # numbers.
            each = group["sizes"].iloc[0]
            numbers = (
                len(each),
                sum(each),
                median(each),
                round(fmean(each), 1),
                min(each),
                max(each),
            )
            tables[0].append((*task, ratio, *(f"{number:g}" for number in numbers)))
        for name, group in by(several, "name"):
            seconds = [time(group, step) for step in ("tune", "fit", "predict")]
            tables[1].append(
                (task[0], name, *seconds, f"{group['memory'].median():.0f}")
            )
    yield table(
        "Records per class by imbalance ratio: median and mean (as DPPL-v1, table 1).",
        "Of the training subset of the first seed.",
        (
            "data set",
            "encoder",
            "class sizes",
            "classes",
            "records",
            "median",
            "mean",
            "smallest",
            "largest",
        ),
        tables[0],
    )
    yield table(
        "Seconds of one training and its evaluation (as DPPL-v1, table 2).",
        "Medians over all cells of a method, in a process with one BLAS thread; wall clock, and CPU in brackets. "
        "Memory is the largest resident size of the process so far, with data and libraries. Where processes "
        "share the machine, trust the CPU times.",
        ("data set", "method", "search", "fit", "predict", "peak memory (MiB)"),
        tables[1],
    )


def time(rows: DataFrame, step: str) -> str:
    """Return the medians of wall clock and CPU seconds of a step."""
    if f"{step}_wall" not in rows or rows[f"{step}_wall"].isna().all():
        return _NONE
    wall, cpu = (rows[f"{step}_{clock}"].median() for clock in ("wall", "cpu"))
    return f"{wall:.3g} ({cpu:.3g})"


def table(
    title: str, note: str, header: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """Return a table with its title."""
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in (header, ["---"] * len(header), *rows)
    ]
    return f"**{title}** {note}".strip() + "\n\n" + "\n".join(lines)
