"""Figures of what results depend on besides method and budget; each needs results with several such settings.

References
----------
DPPL-v1: Wahdany, Jagielski, Dziedzic, Boenisch, arXiv:2406.08039.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from dppl.lab.experiments.compared_methods import label
from dppl.lab.experiments.figures import (
    BALANCED_LABEL,
    BAND_NOTE,
    Line,
    MarkdownPart,
    Panel,
    Picture,
    deviations,
    draw,
    scatter,
    slug,
)
from dppl.lab.experiments.frame import (
    BALANCED,
    DataFrame,
    by,
    default_settings,
    lines,
    main_pool,
    panels,
    ratios,
)


def comparisons(rows: DataFrame) -> Iterator[MarkdownPart]:
    """Compare settings of the data, of public rows and of single methods."""
    pictures = [*_datasets(rows), *_encoders(rows)]
    for compare in (
        _examples,
        _pools,
        _pool_sizes,
        _top_k,
        _mean_estimators,
        _sweeps,
        _in_plane,
        _coinpress,
        _noise,
        _trained,
    ):
        pictures += [
            picture
            for task, group in by(rows, "dataset", "encoder")
            for picture in compare(task, group)
        ]
    if pictures:
        yield "## What the results depend on"
        yield from pictures


def over_budgets(
    stem: str, title: str, several: Sequence[Panel], y_label: str = BALANCED_LABEL
) -> Picture:
    """Draw panels over the budget."""
    return Picture(stem, title, BAND_NOTE, draw(several, y_label))


def class_sizes(rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 10: class sizes from the largest to the smallest."""
    for task, group in by(rows, "dataset", "encoder"):
        sizes = {
            ratio: sorted(several["sizes"].iloc[0], reverse=True)
            for ratio, several in ratios(group).items()
        }
        if len(sizes) > 1:
            drawn = [_numbered(ratio, one, 1) for ratio, one in sizes.items()]
            yield Picture(
                f"class-sizes-{slug(*task)}",
                f"Training records of each class: {task[0]}.",
                "Classes from the largest to the smallest; the last quarter are the minority classes.",
                draw([("", drawn)], "records", "class", log_y=True),
            )


def _datasets(rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 3: data sets side by side at the largest imbalance ratio that all have."""
    for encoder, group in by(rows, "encoder"):
        tasks = [
            (name, default_settings(several)) for name, several in by(group, "dataset")
        ]
        shared = [
            ratio
            for ratio in ratios(group)
            if all(ratio in ratios(several) for _, several in tasks)
        ]
        if len(tasks) > 1 and shared:
            title = f"Data sets at {shared[-1]}, {encoder}."
            several = [(name, lines(ratios(one)[shared[-1]])) for name, one in tasks]
            yield over_budgets(f"datasets-{slug(encoder)}", title, several)


def _encoders(rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 6."""
    for dataset, group in by(rows, "dataset"):
        if group["encoder"].nunique() > 1:
            for ratio, one in ratios(group).items():
                if not one["ratio"].iloc[0]:
                    number = "natural"
                else:
                    number = f"{one['ratio'].iloc[0]:g}"
                several = [
                    (encoder, lines(default_settings(two)))
                    for encoder, two in by(one, "encoder")
                ]
                title = f"Encoders: {dataset}, {ratio}."
                yield over_budgets(
                    f"encoders-{slug(dataset, f'ir-{number}')}", title, several
                )


def _examples(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """Right and wrong examples and the start from zero on the same private rows, at the outermost class sizes."""
    for source, group in by(rows[rows["source"] != ""], "source"):
        if (group["wrong"] == "").all():
            continue
        # Without cells that skip the examples, the start from zero has all private
        # rows.
        chosen = rows["source"] == source
        if group["used"].all():
            chosen |= (rows["source"] == "") & rows["method"].isin(set(group["method"]))
        several = panels(main_pool(rows[chosen]))
        if source.isdecimal():
            what = f"{source} examples a class"
        else:
            what = source
        yield over_budgets(
            f"examples-{slug(*task, source)}",
            f"Starts from {what}: {', '.join(task)}.",
            [several[0], several[-1]] if len(several) > 1 else several,
        )


def _pools(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 8 (c): the same method with different public pools, each with the most rows that were read."""
    read = rows[rows["pool"] != ""]
    # Smaller draws of a pool are the next figure's.
    most = read[read["pool_rows"] == read.groupby("pool")["pool_rows"].transform("max")]
    several = most[most.groupby("label")["pool"].transform("nunique") > 1]
    if len(several):
        title = f"Public pools: {', '.join(task)}."
        yield over_budgets(
            f"pools-{slug(*task)}", title, panels(several, name="label_with_pool")
        )


def _pool_sizes(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figures 8 (d) and 11: accuracy over the number of public rows."""
    for method, group in by(rows[(rows["pool"] != "") & ~rows["tuned"]], "name"):
        if group["n_public"].nunique() > 1:
            group = group.sort_values("mu", kind="stable").assign(
                line=group["budget"] + group["mark"]
            )
            several = [
                (ratio, lines(one, name="line", x="n_public"))
                for ratio, one in ratios(group).items()
            ]
            yield Picture(
                f"pool-size-{slug(*task, method)}",
                f"Number of public rows: {method}, {', '.join(task)}.",
                "Lines are means over seeds with their standard deviation, each a budget.",
                draw(
                    several,
                    BALANCED_LABEL,
                    "public rows to select from",
                    summary=deviations,
                    log_x=True,
                ),
            )


def _top_k(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figures 9, 14 to 18."""
    rows = main_pool(rows)
    rows = rows[~rows["tuned"]]
    chosen = rows[rows["method"] == "public-topk"]
    if chosen["k"].nunique() < 2:
        return
    # One prototype a class is the method `public`; it is compared where all else is the
    # same.
    settings = [_all_but(cell, "n_prototypes") for cell in chosen["cell"]]
    same = rows["cell"].map(lambda cell: _all_but(cell, "n_prototypes") in settings)
    compared = rows[
        (rows["method"] == "public-topk") | ((rows["method"] == "public") & same)
    ]
    means = rows[
        (rows["method"] == "mean")
        & rows["cell"].map(lambda cell: not cell["parameters"])
    ]
    several = panels(rows.loc[means.index.union(compared.index)])
    yield over_budgets(
        f"top-k-{slug(*task)}",
        f"Several prototypes per class: {', '.join(task)}.",
        several,
    )
    # For every ratio and notion a line: the K with the best mean at each budget, and
    # the smallest of several.
    compared = compared.assign(k=compared["k"].clip(lower=1))
    means = (
        compared.groupby(["ratio", "ratio_name", "mark", "mu", "k"])[BALANCED]
        .mean()
        .reset_index()
    )
    best = means.loc[means.groupby(["ratio", "mark", "mu"])[BALANCED].idxmax()]
    drawn = [
        Line(
            f"{ratio}{mark}",
            {mu: [k] for mu, k in zip(one["mu"], one["k"], strict=True)},
        )
        for (ratio, mark), one in by(best, "ratio_name", "mark")
    ]
    yield Picture(
        f"best-k-{slug(*task)}",
        f"The K with the best mean balanced test accuracy: {', '.join(task)}.",
        "K = 1 is DPPL-Public. Chosen by looking at test records, so no guarantee covers this choice.",
        draw([("", drawn)], "best K", log_y=True),
    )


# A projection, and what it is compared with.
_SWEPT = ("mean", "projected", "projected-published")
# Sums, means, and the two estimators of means that the DPPL papers name.
_MEANS = ("mean", "mean-replace-one", "coinpress", "friendly-core")


def _mean_estimators(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-AAAI figure 10 (appendix): DPPL-Mean with several estimators of the means."""
    chosen = rows[rows["method"].isin(_MEANS) & ~rows["tuned"]]
    if {"coinpress", "friendly-core"} <= set(chosen["method"]):
        yield over_budgets(
            f"mean-estimators-{slug(*task)}",
            f"Estimators of means: {', '.join(task)}.",
            panels(chosen),
        )


def _sweeps(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 19: what all settings of a search reach, beside searches of other methods."""
    tuned = rows[rows["tuned"] & (rows["method"].isin(_SWEPT))]
    if tuned["method"].nunique() > 1:
        several = [
            (
                budget,
                [
                    _numbered(name, sorted(tried, reverse=True), 1)
                    for name, one in by(group, "label")
                    for tried in [
                        [v for r in one["result"] for v in r["search"]["tried"]]
                    ]
                ],
            )
            for budget, group in by(tuned.sort_values("mu", kind="stable"), "budget")
        ]
        yield Picture(
            f"sweep-{slug(*task)}",
            f"All settings that were searched: {', '.join(task)}.",
            "Balanced accuracy on held-out private records of each setting of all seeds, from the best; no guarantee "
            "covers the search.",
            draw(several, BALANCED_LABEL, "settings, from the best"),
        )


def _in_plane(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 12: true and private means, and the test rows, in two dimensions."""
    rows = rows[rows["result"].map(lambda result: "scatter" in result)]
    for name, group in by(rows.drop_duplicates(["label", "mu"]), "name"):
        group = group.sort_values("mu", kind="stable")
        yield Picture(
            f"scatter-{slug(*task, name)}",
            f"True and private means: {name}, {', '.join(task)}.",
            "On the first two principal axes of the true means. **The true means and the rows are not private**; "
            "they are shown because these data are public. Left: arrows lead from the true mean of each class to the "
            "private one, over training rows. Right: private means (crosses) and test rows, circles if classified "
            "correctly, triangles if not.",
            scatter(
                [
                    (one["budget"], one["result"]["scatter"])
                    for _, one in group.iterrows()
                ]
            ),
        )


def _with_layers(rows: DataFrame) -> DataFrame:
    """Return the rows that say what is trained of each layer, one for each method and budget."""
    rows = rows[rows["result"].map(lambda result: "layers" in result)]
    return rows.drop_duplicates(["label", "mu"]).sort_values("mu", kind="stable")


# What a network consists of, as in figure 3 of Luo et al.
_KINDS = {"conv": "convolutions", "norm": "normalisation", "head": "head"}


def _noise(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """Luo et al. (2021) figure 3: noise over gradient in each layer, and over all by the share of weights."""
    rows = _with_layers(rows)
    budgets = list(by(rows[rows["notion"] != "none"], "budget"))
    if not budgets:
        return
    # Layers have room for one budget, the one in the middle.
    budget, group = budgets[(len(budgets) - 1) // 2]
    ratio = "noise over gradient"
    yield Picture(
        f"noise-layers-{slug(*task)}",
        f"Noise over gradient in each layer, {budget}: {', '.join(task)}.",
        "Of the sum that a step expects, at the trained weights of the first seed. Layers count from the input. "
        "**Gradients are not private**; they are shown because these data are public.",
        draw(
            [(title, _layers(group, kind, _ratio)) for kind, title in _KINDS.items()],
            ratio,
            "layer",
            log_y=True,
        ),
    )
    panels = []
    for budget, group in budgets:
        by_share: dict[str, dict[float, list[float]]] = {}
        for _, row in group.iterrows():
            every = row["result"]["layers"]
            rest = _all_but(row["cell"], "sparsity")
            name = label(row["method"], rest)
            by_share.setdefault(name, {})[_share(*every)] = [_ratio(*every)]
        panels.append((budget, [Line(*one) for one in by_share.items()]))
    percent = "% of all weights that are trained"
    yield Picture(
        f"noise-share-{slug(*task)}",
        f"Noise over gradient by the share of weights: {', '.join(task)}.",
        "Over all trained weights together, as in the figure of layers.",
        draw(panels, ratio, percent, log_x=True, log_y=True),
    )


def _trained(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """Luo et al. (2021) figure 4: the share of each convolution that is trained."""
    rows = _with_layers(rows).drop_duplicates("name")
    drawn = _layers(rows[rows["method"] == "sparse"], "conv", _share)
    if drawn:
        yield Picture(
            f"trained-layers-{slug(*task)}",
            f"Share of each convolution that is trained: {', '.join(task)}.",
            "Layers count from the input, with those of normalisation, which are trained whole.",
            draw([("", drawn)], "% of a layer's weights", "layer"),
        )


def _layers(rows: DataFrame, kind: str, value: Callable[..., float]) -> list[Line]:
    """Return a value of each layer of a kind, by its number; layers in which nothing is trained have none."""
    found = []
    for name, result in zip(rows["name"], rows["result"], strict=True):
        values = {
            float(place): [value(one)]
            for place, one in enumerate(result["layers"], 1)
            if one["trained"] and one["kind"] == kind
        }
        found.append(Line(name, values))
    return [one for one in found if one.values]


def _ratio(*layers: Any) -> float:
    noise = math.hypot(*(one["noise"] for one in layers))
    gradient = math.hypot(*(one["gradient"] for one in layers))
    return noise / gradient if gradient else math.inf


def _share(*layers: Any) -> float:
    trained = sum(one["trained"] for one in layers)
    return float(100 * trained / sum(one["weights"] for one in layers))


def _coinpress(task: Any, rows: DataFrame) -> Iterator[Picture]:
    """DPPL-v1 figure 13: radius of the ball and norm of the estimate over the steps, where results have them."""
    rows = rows[rows["result"].map(lambda result: "coinpress" in result)]
    if not len(rows):
        return
    # The largest classes: in small ones the estimates of most budgets run away.
    ratio, group = next(iter(ratios(rows).items()))
    several = []
    for kind, title, first in (
        ("radius", "radius of the ball after each step", 0),
        ("norm", "norm of the estimate", 1),
    ):
        traces = group.assign(
            trace=[result["coinpress"].get(kind) for result in group["result"]]
        )
        traces = traces.dropna(subset=["trace"]).sort_values("mu", kind="stable")
        drawn = [
            _numbered(
                name + mark,
                [fmean(step) for step in zip(*one["trace"], strict=True)],
                first,
            )
            for (name, mark), one in by(traces, "budget", "mark")
        ]
        several += [(title, drawn)] if drawn else []
    yield Picture(
        f"coinpress-{slug(*task)}",
        f"Steps of CoinPress: {', '.join(task)}.",
        f"Means over classes and seeds ({ratio}), each line a budget.",
        draw(several, "in units of the mechanism", "step", log_y=True),
    )


def _numbered(label: str, values: Sequence[float], first: int) -> Line:
    return Line(label, {place: [value] for place, value in enumerate(values, first)})


def _all_but(cell: Any, left_out: str) -> dict[str, Any]:
    return {
        name: value for name, value in cell["parameters"].items() if name != left_out
    }
