"""Figures of what results depend on beside method and budget; each needs results with several such settings.

References
----------
DPPL-v1: Wahdany, Jagielski, Dziedzic, Boenisch, arXiv:2406.08039.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from dppl.lab.experiments import figures
from dppl.lab.experiments.rendering import Heading, Part, Picture, slug
from dppl.lab.experiments.results import Result
from dppl.lab.experiments.series import (
    BALANCED,
    Panel,
    budget_name,
    by_notion,
    by_task,
    dataset_name,
    default_settings,
    encoder_name,
    examples_of,
    grouped,
    main_pool,
    n_prototypes,
    name_with_pool,
    panels_by_ratio,
    position,
    ratio_name,
    ratios,
    series,
    series_name,
)

__all__ = ["class_sizes", "comparisons"]

Task = tuple[str, str]


def comparisons(done: list[Result]) -> Iterator[Part]:
    """Compare settings of the data, of public rows and of single methods."""
    pictures = [*_datasets(done), *_encoders(done)]
    for draw in (_examples, _pools, _pool_sizes, _top_k, _coinpress):
        pictures += [picture for task, results in by_task(done).items() for picture in draw(task, results)]
    if pictures:
        yield Heading("What the results depend on")
        yield from pictures


def class_sizes(done: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figure 10: class sizes from the largest to the smallest."""
    for task, results in by_task(done).items():
        sizes = {ratio: group[0]["data"]["class_sizes"] for ratio, group in ratios(results).items()}
        if len(sizes) > 1:
            lines = {ratio_name(ratio): _numbered(sorted(sizes[ratio], reverse=True), 1) for ratio in sizes}
            yield Picture(
                f"class-sizes-{slug(*task)}",
                f"Training records of each class: {task[0]}.",
                "Classes from the largest to the smallest; the last quarter are the minority classes.",
                figures.lines([("", lines)], "class", "records", log_y=True),
            )


def _datasets(done: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figure 3: data sets side by side at the largest imbalance ratio that all have."""
    for encoder, results in grouped(done, lambda result: encoder_name(result["cell"])).items():
        tasks = by_task(results)
        shared = [ratio for ratio in ratios(results) if all(ratio in ratios(group) for group in tasks.values())]
        if len(tasks) > 1 and shared:
            panels = [(name, series(ratios(default_settings(group))[shared[-1]])) for (name, _), group in tasks.items()]
            title = f"Data sets at {ratio_name(shared[-1])}, {encoder}."
            yield _over_budgets(f"datasets-{slug(encoder)}", title, panels)


def _encoders(done: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figure 6."""
    for dataset, results in grouped(done, lambda result: dataset_name(result["cell"])).items():
        tasks = by_task(results)
        if len(tasks) > 1:
            for ratio in ratios(results):
                panels = [
                    (encoder, series(ratios(default_settings(group)).get(ratio, [])))
                    for (_, encoder), group in tasks.items()
                ]
                name = f"ir-{ratio}" if isinstance(ratio, str) else f"ir-{ratio:g}"
                title = f"Encoders: {dataset}, {ratio_name(ratio)}."
                yield _over_budgets(f"encoders-{slug(dataset, name)}", title, panels)


def _examples(task: Task, results: list[Result]) -> Iterator[Picture]:
    """Right and wrong examples beside the start from zero on the same private rows, at the outermost class sizes."""
    sources = grouped(results, lambda result: examples_of(result)["source"])
    for source, group in sources.items():
        if not any(examples_of(result)["wrong"] for result in group):
            continue
        # Without cells that leave the examples out, the start from zero is that of all private rows.
        if all(examples_of(result)["used"] for result in group):
            starts = {result["cell"]["method"] for result in group}
            group = [*(result for result in sources.get(None, []) if result["cell"]["method"] in starts), *group]
        panels = panels_by_ratio(main_pool(group))
        what = source if isinstance(source, str) else f"{source} examples a class"
        yield _over_budgets(
            f"examples-{slug(*task, str(source))}",
            f"Starts from {what}: {', '.join(task)}.",
            [panels[0], panels[-1]] if len(panels) > 1 else panels,
        )


def _pools(task: Task, results: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figure 8 (c): the same method with different public pools."""
    by_pool = grouped(_with_public_rows(results), _pool)
    largest = [result for group in by_pool.values() for result in main_pool(group)]
    by_method = grouped(largest, series_name).values()
    several = [result for group in by_method if len(grouped(group, _pool)) > 1 for result in group]
    if several:
        panels = [(ratio_name(ratio), series(group, name=name_with_pool)) for ratio, group in ratios(several).items()]
        yield _over_budgets(f"pools-{slug(*task)}", f"Public pools: {', '.join(task)}.", panels)


def _pool_sizes(task: Task, results: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figures 8 (d) and 11: accuracy over the number of public rows."""
    read = [result for result in _with_public_rows(results) if not result["tuned"]]
    for method, group in grouped(read, series_name).items():
        if len(grouped(group, _n_public)) > 1:
            panels = [
                (ratio_name(ratio), {budget: _means(several, _n_public) for budget, several in _by_budget(one).items()})
                for ratio, one in ratios(group).items()
            ]
            yield Picture(
                f"pool-size-{slug(*task, method)}",
                f"Number of public rows: {method}, {', '.join(task)}.",
                "Lines are means over seeds, each a budget.",
                figures.lines(panels, "public rows to select from", figures.BALANCED_LABEL, log_x=True),
            )


def _top_k(task: Task, results: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figures 9, 14 to 18."""
    methods = grouped((result for result in main_pool(results) if not result["tuned"]), lambda r: r["cell"]["method"])
    chosen = methods.get("public-topk", [])
    if len(grouped(chosen, n_prototypes)) < 2:
        return
    # One prototype a class is the method `public`; it is compared where all else is the same.
    settings = [_all_but_k(result) for result in chosen]
    ones = [result for result in methods.get("public", []) if _all_but_k(result) in settings]
    means = [result for result in methods.get("mean", []) if not result["cell"]["parameters"]]
    yield _over_budgets(
        f"top-k-{slug(*task)}",
        f"Several prototypes per class: {', '.join(task)}.",
        panels_by_ratio([*means, *ones, *chosen]),
    )
    # For every ratio and notion a line: the K with the best mean at each budget.
    ks = {
        ratio_name(ratio) + notion: {mu: _best_k(several) for mu, several in grouped(one, position).items()}
        for ratio, group in ratios([*ones, *chosen]).items()
        for notion, one in by_notion(group).items()
    }
    yield Picture(
        f"best-k-{slug(*task)}",
        f"The K with the best mean balanced test accuracy: {', '.join(task)}.",
        "K = 1 is DPPL-Public. Chosen by looking at test records, so no guarantee covers this choice.",
        figures.lines([("", ks)], None, "best K", log_y=True),
    )


def _coinpress(task: Task, results: list[Result]) -> Iterator[Picture]:
    """DPPL-v1 figure 13: radius of the ball and norm of the estimate over the steps, where results have them."""
    traced = ratios(result for result in results if result.get("coinpress"))
    if traced:
        # The largest classes: in small ones the estimates of most budgets run away. Older results hold no radii.
        ratio, group = next(iter(traced.items()))
        radii = ("radius of the ball after each step", _steps(group, "radius", 0))
        norms = ("norm of the estimate", _steps(group, "norm", 1))
        yield Picture(
            f"coinpress-{slug(*task)}",
            f"Steps of CoinPress: {', '.join(task)}.",
            f"Means over classes and seeds ({ratio_name(ratio)}), each line a budget.",
            figures.lines(
                [panel for panel in (radii, norms) if panel[1]], "step", "in units of the mechanism", log_y=True
            ),
        )


def _steps(results: list[Result], kind: str, first: int) -> dict[str, dict[float, float]]:
    """Return, by budget, the means over seeds of what CoinPress had after each step."""
    traces = {
        budget: [result["coinpress"][kind] for result in group if kind in result["coinpress"]]
        for budget, group in _by_budget(results).items()
    }
    return {
        name: _numbered(map(fmean, zip(*several, strict=True)), first) for name, several in traces.items() if several
    }


def _over_budgets(name: str, title: str, panels: Sequence[Panel]) -> Picture:
    return Picture(name, title, figures.BAND_NOTE, figures.budget_panels(panels, figures.BALANCED_LABEL))


def _numbered(values: Iterable[float], first: int) -> dict[float, float]:
    return {float(place): float(value) for place, value in enumerate(values, first)}


def _by_budget(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group by the budgets' names, in ascending order of position."""
    return {
        name + notion: several
        for notion, group in by_notion(results).items()
        for name, several in grouped(sorted(group, key=position), budget_name).items()
    }


def _with_public_rows(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result["cell"]["pool"] is not None]


def _pool(result: Result) -> str:
    return str(result["cell"]["pool"]["name"])


def _n_public(result: Result) -> float:
    return float(result["data"]["n_public"])


def _all_but_k(result: Result) -> Result:
    return {name: value for name, value in result["cell"]["parameters"].items() if name != "n_prototypes"}


def _best_k(results: list[Result]) -> float:
    means = _means(results, lambda result: float(n_prototypes(result) or 1))
    return max(means, key=lambda k: (means[k], -k))


def _means(results: Iterable[Result], key: Callable[[Result], float]) -> dict[float, float]:
    return {x: fmean(r["metrics"][BALANCED] for r in several) for x, several in grouped(results, key).items()}
