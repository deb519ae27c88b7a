"""The report: every figure that results allow, marks for what was tuned, and no word that the results do not carry."""

import math
import re
import sys
from pathlib import Path

import pytest
from scipy.stats import norm

from dppl.errors import InputError, MissingExtra
from dppl.kernel.privacy import GaussianDP
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.lab.experiments import comparisons, figures
from dppl.lab.experiments.cells import Cell
from dppl.lab.experiments.compared_methods import METHODS
from dppl.lab.experiments.datasets import ExampleSpec, Pool
from dppl.lab.experiments.figures import line_styles, quartiles
from dppl.lab.experiments.frame import default_settings, frame, lines
from dppl.lab.experiments.markdown import write_report
from dppl.lab.experiments.names import (
    TUNED,
    budget_name,
    epsilon_name,
    paper_epsilon,
    position,
)
from dppl.lab.experiments.results import ResultsFile, read_results

COMMITTED = Path(__file__).parents[4] / "docs" / "results"
NEAR = Pool("near")
FAR = Pool("far")
SIZES = {
    1: [9] * 8,
    100.0: [100, 52, 27, 14, 7, 4, 2, 1],
    "natural": [9, 8, 7, 6, 5, 4, 3, 2],
}


def record(
    method="mean",
    accuracy=0.5,
    *,
    e=1.0,
    ir=1,
    seed=0,
    pool=None,
    trials=0,
    encoder="one",
    data="blobs",
    **more,
):
    """A finished cell whose metrics are made up."""
    private = method not in ("ncm", "lda", "logistic")
    budget = more.pop("budget", {"rho": e * e / 2}) if private else None
    spent = budget_from_dict(budget) if private else None
    start = more.pop("examples", None)
    cell = Cell(
        method,
        more.pop("parameters", {}),
        data,
        encoder,
        pool,
        budget,
        ir,
        seed,
        trials,
        start,
    )
    return {
        "schema": 1,
        "key": cell.key,
        "status": "done",
        "config": "mine",
        "data_folder": None,
        "cell": cell.to_dict(),
        "software": {"dppl": "0.1.0"},
        "e": paper_epsilon(spent) if private else None,
        "notion": spent.notion if private else "none",
        "adjacency": "add-remove" if private else None,
        "exact": True if private else None,
        "tuned": trials > 0,
        "data": {
            "n_public": None if pool is None else pool.rows or 500,
            "class_sizes": SIZES[ir],
        },
        "metrics": {
            "balanced_accuracy": accuracy,
            "minority_accuracy": None if ir == 1 else accuracy / 2,
        },
        "seconds": {
            "fit_wall": 0.25,
            "fit_cpu": 0.125,
            "predict_wall": 0.01,
            "predict_cpu": 0.01,
        },
        "peak_memory_mib": 100.0,
        **more,
    }


@pytest.fixture
def report(tmp_path, drawn):
    """Write records to a results file and report on them; return the folder and the Markdown."""

    def write(records):
        path = tmp_path / "r.jsonl"
        with ResultsFile(path) as results:
            for one in records:
                results.append(one)
        folder = tmp_path / "report"
        files = write_report(path, folder)
        assert sorted(files) == sorted(folder.iterdir())
        return folder, (folder / "report.md").read_text("utf-8")

    return write


def everything():
    """Two budgets of all that a report can show."""
    for e in (0.5, 2.0):
        accuracy = e / 4
        for ir in (1, 100.0):
            yield record("mean", accuracy, e=e, ir=ir)
            yield record(
                "mean",
                accuracy,
                e=e,
                ir=ir,
                trials=5,
                seconds={**record()["seconds"], "tune_wall": 1, "tune_cpu": 1},
            )
            yield record("public", accuracy, e=e, ir=ir, pool=NEAR)
            yield record("public", accuracy, e=e, ir=ir, pool=FAR)
            yield record("public", accuracy, e=e, ir=ir, pool=Pool("near", rows=50))
            yield record(
                "public-topk",
                accuracy,
                e=e,
                ir=ir,
                pool=NEAR,
                parameters={"n_prototypes": 2},
            )
            yield record(
                "public-topk",
                accuracy,
                e=e,
                ir=ir,
                pool=NEAR,
                parameters={"n_prototypes": 5},
            )
            steps = {"radius": [4.0, 3.0, 2.0, 1.0], "norm": [1.0, 1.1, 1.2]}
            plane = {
                kind: [[0, 1], [1, e]] for kind in ("true", "private", "train", "test")
            }
            plane |= {"train_codes": [0, 1], "right": [True, False]}
            more = {"coinpress": steps, "scatter": plane}
            yield record("coinpress", accuracy, e=e, ir=ir, **more)
            yield record("mean", accuracy, e=e, ir=ir, encoder="two")
            yield record("mean", accuracy, e=e, ir=ir, data="rings")
            yield record("ncm", 0.9, ir=ir)


@pytest.mark.slow
def test_every_figure_that_the_results_allow_is_drawn(report, drawn):
    drawn |= {f"{kind}-blobs-one" for kind in ("accuracy", "class-sizes", "best-k")} | {
        "scatter-blobs-one-dppl-mean-coinpress-v1"
    }
    folder, text = report(everything())
    stems = {
        *(
            f"{kind}-{task}"
            for kind in ("accuracy", "minority")
            for task in ("blobs-one", "blobs-two", "rings-one")
        ),
        *(f"class-sizes-{task}" for task in ("blobs-one", "blobs-two", "rings-one")),
        "datasets-one",
        "encoders-blobs-ir-1",
        "encoders-blobs-ir-100",
        "pools-blobs-one",
        "pool-size-blobs-one-dppl-public",
        "top-k-blobs-one",
        "best-k-blobs-one",
        "coinpress-blobs-one",
        "scatter-blobs-one-dppl-mean-coinpress-v1",
    }
    assert {path.name for path in folder.iterdir()} == {
        "report.md",
        *(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")),
    }
    assert set(re.findall(r"\]\(([^)]+)\.png\)", text)) == stems
    for stem in ("accuracy-blobs-one", "best-k-blobs-one"):
        figure = (folder / f"{stem}.svg").read_text("utf-8")
        assert all(
            f">{label}<" in figure
            for label in ("mu (Gaussian DP)", "(epsilon at delta = 1e-6)", "(4.887)")
        )
    assert "sqrt(2ρ)" in text
    plane = (folder / "scatter-blobs-one-dppl-mean-coinpress-v1.svg").read_text("utf-8")
    assert plane.count("not private, public data") == 2
    assert "**The true means and the rows are not private**" in text


@pytest.fixture
def compared(monkeypatch):
    """Panels of the figures that compare settings: label and values of each line, by title."""
    kept = []
    draw = comparisons.draw

    def spy(panels, *labels, **options):
        kept.append(
            {
                title: {one.label: one.values for one in several}
                for title, several in panels
            }
        )
        return draw(panels, *labels, **options)

    monkeypatch.setattr(comparisons, "draw", spy)
    return kept


def test_steps_of_coinpress_are_drawn_for_the_largest_classes_from_old_results_too(
    report, compared
):
    steps = {"radius": [4.0, 3.0, 1.0], "norm": [1.0, 1.2]}
    old = {"norm": [3.0, 1.2]}
    cells = [
        record("coinpress", 0.5, seed=s, ir=1, coinpress=traced)
        for s, traced in enumerate((steps, old))
    ]
    _, text = report(
        [
            *cells,
            record(
                "coinpress",
                0.5,
                ir=100.0,
                coinpress={"radius": [9.0] * 3, "norm": [9.0] * 2},
            ),
        ]
    )
    (panels,) = [panels for panels in compared if "norm of the estimate" in panels]
    radii = panels["radius of the ball after each step"]
    assert radii == {"mu 1 (epsilon 4.887)": {0: [4.0], 1: [3.0], 2: [1.0]}}
    assert panels["norm of the estimate"] == {
        "mu 1 (epsilon 4.887)": {1: [2.0], 2: [1.2]}
    }
    assert "Means over classes and seeds (IR = 1)" in text


def test_the_report_says_once_by_which_commands_it_was_made(report):
    new = record(e=2.0, config="my experiments/r.yaml", data_folder="data")
    folder, text = report(
        [
            record(config="r"),
            record(seed=1, config="r"),
            new,
            record(e=4.0, config="old"),
        ]
    )
    results = folder.parent / "r.jsonl"
    assert text.count("Made by") == 1
    assert text.index("Made by") < text.index("\n## ")
    for command in (
        f"`dppl bench {results} --out {folder}`",
        f"`dppl bench r --out {results}`",
        f"`dppl bench 'my experiments/r.yaml' --data data --out {results}`",
    ):
        assert text.count(command) == 1


def test_the_best_private_methods_are_bold_and_ties_too(report):
    accuracies = {
        "mean": 0.6,
        "public": 0.6049,
        "least-squares": 0.599,
        "newton": 0.9,
        "ncm": 0.95,
    }
    cells = [
        record(name, a, trials=5 if name == "newton" else 0)
        for name, a in accuracies.items()
    ]
    _, text = report(cells)
    cells = re.findall(
        r"\| (?:zCDP, add-remove, exact|none) \| none \| (.*) \|\n", text
    )
    assert cells == ["**0.600**", "**0.605**", "0.599", "0.900", "0.950"]
    assert "or within 0.005." in text


def test_tables_say_how_many_public_rows_were_read(report):
    _, text = report(
        [
            record("mean"),
            record("public", pool=NEAR),
            record("softmax", pool=Pool("near", rows=1500)),
            record("softmax", pool=Pool("near", 2000, without=("a", "b"))),
            record("softmax", data="rings"),
            record("softmax-alone"),
        ]
    )
    promise = "zCDP, add-remove, exact"
    assert "| method | guarantee | public rows | mu 1 (epsilon 4.887) |" in text
    assert f"| DPPL-Mean | {promise} | none |" in text
    assert f"| DPPL-Public, near | {promise} | 500 |" in text
    assert f"| Softmax prototypes, near, 1,500 rows | {promise} | 1,500 |" in text
    assert (
        f"| Softmax prototypes, near without a and b, 2,000 rows | {promise} | 500 |"
        in text
    )
    assert f"| Softmax prototypes (no public rows) | {promise} | none |" in text
    assert f"| Softmax prototypes, no public rows | {promise} | none |" in text


def starts(*several):
    return [
        record("softmax", e / 4, e=e, ir=ir, examples=start)
        for start in several
        for ir in (1, "natural", 100.0)
        for e in (0.5, 2.0)
    ]


@pytest.mark.slow
def test_starts_are_named_and_stand_in_order(report):
    cells = starts(
        *(ExampleSpec("names", wrong) for wrong in ("permuted", "half", None)),
        *(ExampleSpec(20), ExampleSpec(1), ExampleSpec(5, used=False), None),
    )
    _, text = report(cells)
    rows = re.findall(r"^\| (Softmax[^|]*) \| zCDP", text, re.MULTILINE)
    ends = [
        "",
        ", 5 rows a class left out",
        *(f", from {what}" for what in ("1 example a class", "20 examples a class")),
    ]
    ends += [
        f", from names{wrong}" for wrong in ("", ", half of them wrong", ", permuted")
    ]
    names = [f"Softmax prototypes{end} (no public rows)" for end in ends]
    assert rows[: len(names)] == names
    assert set(default_settings(frame(cells))["wrong"]) == {""}


@pytest.mark.slow
def test_wrong_examples_have_a_figure_beside_the_start_from_zero_on_the_same_rows(
    report, compared
):
    cells = starts(
        None,
        ExampleSpec(5, used=False),
        ExampleSpec("names"),
        ExampleSpec("names", "half"),
        ExampleSpec(5),
        ExampleSpec(1),
    )
    folder, text = report(
        [*cells, *starts(ExampleSpec(5, "permuted")), record("mean", ir=100.0)]
    )
    names, five = (
        next(panels for panels in compared if f"{wrong} " in str(panels))
        for wrong in ("wrong", "permuted")
    )
    kinds = (
        (names, ("", ", from names", ", from names, half of them wrong")),
        (
            five,
            (
                ", 5 rows a class left out",
                ", from 5 examples a class",
                ", from 5 examples a class, permuted",
            ),
        ),
    )
    for panels, ends in kinds:
        labels = [f"Softmax prototypes{end} (no public rows)" for end in ends]
        assert {title: list(several) for title, several in panels.items()} == {
            "natural class sizes": labels,
            "IR = 100": labels,
        }
    assert "**Starts from 5 examples a class: blobs, one.**" in text
    assert (folder / "examples-blobs-one-names.png").exists()


def test_examples_alone_are_a_dashed_line_and_a_column(report, drawn):
    cells = [
        record("softmax", e=1.0, examples=ExampleSpec(5)),
        record("softmax", 0.25, e=2.0, examples=ExampleSpec(5)),
    ]
    cells += [record("softmax", 0.125, budget={"mu": 0.0}, examples=ExampleSpec(5))]
    for cell in cells[:2]:
        cell["notion"] = "Gaussian DP"
    drawn.add("accuracy-blobs-one")
    folder, text = report(cells)
    assert "| mu 0 (epsilon 0) | mu 1 (epsilon 4.887) | mu 2 (epsilon 11) |" in text
    assert "| **0.125** | **0.500** | **0.250** |" in text
    figure = (folder / "accuracy-blobs-one.svg").read_text("utf-8")
    assert (
        ">Softmax prototypes, from 5 examples a class (no public rows), mu = 0<"
        in figure
    )


def test_pools_are_compared_only_where_one_method_read_several(report):
    folder, _ = report([record("public", pool=NEAR), record("softmax", pool=FAR)])
    assert not list(folder.glob("pools-*"))


def test_methods_that_there_are_not_are_refused(report):
    with pytest.raises(
        InputError,
        match="holds results of methods that this version does not have: discriminant",
    ):
        report([record("discriminant"), record("mean")])


def test_calibration_has_a_table_where_it_was_measured(report):
    def measured(method, error, **more):
        one = record(method, pool=NEAR, **more)
        return {**one, "metrics": {**one["metrics"], "calibration_error": error}}

    old = [
        record("linear-probe"),
        record("softmax", pool=NEAR, e=2.0),
        record("softmax", pool=NEAR, data="rings"),
    ]
    cells = [
        measured("softmax", error, seed=seed) for seed, error in enumerate((0.1, 0.3))
    ]
    _, text = report([*old, *cells, measured("mean", None)])
    assert text.count("### Calibration: blobs, one") == 1
    assert "### Calibration: rings" not in text
    table = text[text.index("**Calibration error: blobs, one, IR = 1.**") :].split(
        "\n\n"
    )
    assert "Bold" not in table[0]
    assert table[1].splitlines()[2:] == [
        "| Softmax prototypes | zCDP, add-remove, exact | 500 | 0.200 ± 0.141 | – |",
    ]


def test_tables_say_how_many_seeds_where_methods_have_different_ones(report):
    cells = [record("mean", seed=seed) for seed in range(2)] + [
        record("ncm", 0.9, seed=seed) for seed in range(2)
    ]
    _, text = report([*cells, *(record("softmax", seed=seed) for seed in range(3))])
    assert "Seeds: 0, 1, 2; 2 of them, or n where (n) stands." in text
    assert "| **0.500 ± 0.000** |" in text
    assert "| **0.500 ± 0.000** (3) |" in text


@pytest.mark.parametrize("mu", [0.05, 0.1, 0.25, 1.0, 8.0])
def test_the_epsilon_beside_mu_is_the_exact_one_rounded_up(mu):
    exact = GaussianDP(mu).to_approx(1e-6).epsilon
    scale = 10.0 ** (3 - math.floor(math.log10(exact)))
    shown = float(epsilon_name(mu))
    assert shown >= exact
    assert shown == pytest.approx(math.ceil(exact * scale) / scale, rel=1e-12)

    def delta(epsilon):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )

    assert delta(shown) <= 1e-6 < delta(0.999 * shown)


def test_an_epsilon_beyond_all_use_is_infinite():
    assert epsilon_name(64.0) == "2,352"
    assert epsilon_name(1e9) == "∞"


def test_budgets_are_named_by_mu_and_each_notion_keeps_its_own_numbers():
    pairs = [
        ({"mu": 0.5}, "mu 0.5 (epsilon 2.255)"),
        ({"rho": 0.125}, "mu 0.5 (epsilon 2.255)"),
        ({"rho": 0.25}, "mu 0.707107 (epsilon 3.308)"),
        ({"epsilon": 2.0, "delta": 1e-6}, "epsilon 2 at delta 1e-6 (mu 0.4484)"),
        ({"epsilon": 0.5}, "pure epsilon 0.5 (at mu 0.5)"),
    ]
    assert [budget_name(budget) for budget, _ in pairs] == [name for _, name in pairs]


def test_notions_with_one_position_share_a_column_and_no_row(report):
    cells = [
        record("public", 0.5, pool=NEAR, budget={name: 1.0 if name == "mu" else 0.5})
        for name in ("mu", "rho")
    ]
    cells += [
        record("public", 0.7, pool=NEAR, budget={"epsilon": 1.0}),
        record("ncm", 0.9),
    ]
    _, text = report(cells)
    assert (
        "| method | guarantee | public rows | mu 1 (epsilon 4.887) or pure epsilon 1 (at mu 1) |"
        in text
    )
    assert (
        "| DPPL-Public, Gaussian DP | Gaussian DP, add-remove, exact | 500 | 0.500 |"
        in text
    )
    assert "| DPPL-Public, zCDP | zCDP, add-remove, exact | 500 | 0.500 |" in text
    assert (
        "| DPPL-Public, pure DP | pure DP, add-remove, exact | 500 | **0.700** |"
        in text
    )
    assert "| Nearest class mean (not private) | none |" in text


def test_figures_of_several_notions_have_a_line_for_each(report, compared):
    steps = {"norm": [1.0, 2.0]}
    cells = [
        record("coinpress", budget=budget, coinpress=steps)
        for budget in ({"mu": 2.0}, {"rho": 2.0})
    ]
    cells += [
        record(
            "public-topk",
            accuracy,
            pool=Pool("near", rows=rows),
            budget=budget,
            parameters={"n_prototypes": k},
        )
        for budget, better in (({"mu": 2.0}, 2), ({"rho": 2.0}, 5))
        for k, rows in ((2, None), (5, None), (5, 50))
        for accuracy in [0.6 if k == better else 0.4]
    ]
    report(cells)
    labels = {"mu 2 (epsilon 11), Gaussian DP", "mu 2 (epsilon 11), zCDP"}
    found = [next(iter(panels.values())) for panels in compared]
    assert sum(set(values) == labels for values in found) == 2
    assert {"IR = 1, Gaussian DP": {2.0: [2]}, "IR = 1, zCDP": {2.0: [5]}} in found


@pytest.mark.parametrize("e", [0.01, 0.05, 0.1, 0.25, 0.7, 1.0, 3.0, 64.0])
def test_last_digits_do_not_set_results_of_the_same_noise_apart(e):
    budgets = [{"mu": e}, {"rho": e * e / 2}, {"mu": math.sqrt(2 * (e**2 / 2))}]
    assert set(map(position, budgets)) == {e}
    assert len(set(map(budget_name, budgets))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["images", "text"])
def test_committed_results_keep_their_positions(name):
    records = read_results(next(COMMITTED.glob(f"{name}.*")))
    private = [one for one in records if one["e"] is not None]
    assert len(private) > 100
    for one in private:
        assert position(one["cell"]["budget"]) == float(f"{one['e']:.9g}")
        assert budget_name(one["cell"]["budget"]).startswith(
            f"mu {one['e']:g} (epsilon "
        )


def test_titles_name_an_imbalance_ratio_that_was_not_reached(report):
    large = {"class_sizes": [100, 1], "n_public": None}
    small = {"class_sizes": [35, 1], "n_public": None}
    _, text = report(
        [
            record(ir=100.0, data="large") | {"data": large},
            record(ir=100.0, data="small") | {"data": small},
        ]
    )
    assert "Balanced test accuracy: large, one, IR = 100." in text
    assert "Balanced test accuracy: small, one, IR = 100 (reached: 35)." in text


def test_a_folder_with_files_of_someone_else_is_refused_and_an_earlier_report_replaced(
    report, tmp_path
):
    folder, text = report([record()])
    assert write_report(tmp_path / "r.jsonl", folder)
    assert (folder / "report.md").read_text("utf-8") == text
    (folder / "report.md").write_text("# My report\n")
    for other in (folder, tmp_path):
        with pytest.raises(InputError, match="holds files and no earlier report"):
            write_report(tmp_path / "r.jsonl", other)
    assert (folder / "report.md").read_text() == "# My report\n"
    assert not (tmp_path / "report.md").exists()


def test_what_was_tuned_is_marked_everywhere(report, drawn):
    drawn.add("accuracy-blobs-one")
    folder, text = report(
        [record(), record(trials=5), record(e=2), record(e=2, trials=5)]
    )
    rows = [line for line in text.splitlines() if line.startswith("| DPPL-Mean")]
    assert sorted(TUNED in row for row in rows) == [False, True]
    for content in (text, (folder / "accuracy-blobs-one.svg").read_text("utf-8")):
        assert f"DPPL-Mean ({TUNED})" in content
    styles = line_styles(lines(frame([record(), record(trials=5)])))
    plain = styles["DPPL-Mean"]
    tuned = styles[f"DPPL-Mean ({TUNED})"]
    assert tuned["color"] == plain["color"]
    assert tuned["linestyle"] not in (None, "-", plain.get("linestyle"))


def test_tables_hold_means_and_deviations_over_seeds_and_say_how_many(report):
    cells = [record(accuracy=a, seed=s) for s, a in enumerate((0.4, 0.5, 0.6))]
    cells += [record(accuracy=0.7, e=4.0), record("ncm", 0.9)]
    _, text = report(cells)
    assert (
        "| method | guarantee | public rows | mu 1 (epsilon 4.887) | mu 4 (epsilon 26.36) |"
        in text
    )
    assert (
        "| DPPL-Mean | zCDP, add-remove, exact | none | **0.500 ± 0.100** | **0.700** (1) |"
        in text
    )
    assert (
        "| Nearest class mean (not private) | none | none | 0.900 (1) | 0.900 (1) |"
        in text
    )
    assert "| blobs | DPPL-Mean | – | 0.25 (0.125) | 0.01 (0.01) | 100 |" in text


def test_sizes_of_classes_are_those_of_the_first_seed(report):
    _, text = report([record(ir=100.0)])
    assert "| blobs | one | IR = 100 | 8 | 207 | 10.5 | 25.9 | 1 | 100 |" in text


def test_a_partial_file_makes_a_report_and_failures_are_listed(report):
    failed = {
        **record(seed=7),
        "status": "failed",
        "error": "MemoryError",
        "message": "no | memory\n<b>",
    }
    _, text = report([record("public", pool=NEAR, ir="natural"), failed])
    assert "1 cells done; 1 failed." in text
    assert TUNED not in text
    assert (
        r"| DPPL-Mean | blobs, one, IR = 1 | 7 | MemoryError | no \| memory <b> |"
        in text
    )


def test_a_file_without_a_finished_cell_makes_none(report):
    with pytest.raises(InputError, match="holds no finished cell yet"):
        report([{**record(), "status": "failed", "error": "E", "message": ""}])


def test_figures_that_compare_methods_show_one_pool_and_one_k():
    kept = default_settings(frame(everything()))
    assert set(kept["pool_name"]) == {"", "near"}
    assert set(kept["k"]) == {0, 5}


def test_k_of_one_is_never_left_out():
    cells = [
        record("public-topk", pool=NEAR, parameters={"n_prototypes": k})
        for k in (1, 2, 5)
    ]
    assert default_settings(frame(cells))["k"].tolist() == [1, 5]


@pytest.mark.slow
def test_the_best_k_may_be_one_by_public_of_the_same_pool_and_parameters(
    report, compared
):
    cells = [
        record("public", 0.9, pool=NEAR, parameters={"lattice__pool": 2}),
        record("public", 0.9, pool=Pool("near", rows=9)),
    ]
    cells += [
        record("public-topk", k / 10, pool=NEAR, parameters={"n_prototypes": k})
        for k in (2, 5)
    ]
    report(
        [
            *cells,
            record("public", 0.4, pool=NEAR),
            record("public", 0.6, pool=NEAR, e=2.0),
        ]
    )
    assert {"": {"IR = 1": {1.0: [5], 2.0: [1]}}} in compared


PRIVATE = [name for name, method in METHODS.items() if method.private]


def test_methods_differ_by_colour_or_line_style_and_softmax_is_foremost():
    styles = line_styles(lines(frame([record(name) for name in PRIVATE])))
    looks = {(style["color"], str(style["linestyle"])) for style in styles.values()}
    assert len(looks) == len(styles) == len(PRIVATE)
    assert sum(style["linestyle"] == "solid" for style in styles.values()) == 12
    foremost = styles.pop("Softmax prototypes (no public rows)")
    assert foremost["color"] == "black"
    for style in styles.values():
        assert style["color"] != foremost["color"]
        assert style["linewidth"] < foremost["linewidth"]
        assert style.get("zorder", 2) < foremost["zorder"]


@pytest.mark.slow
@pytest.mark.parametrize("n_panels", [1, 3])
def test_legends_stay_inside_the_figure(n_panels):
    names = [*PRIVATE, "ncm", "lda", "logistic"]
    cells = [
        record(name, e=e, trials=t)
        for name in names
        for e in (1.0, 2.0)
        for t in (0, 5)
    ]
    figure = figures.draw(
        [(f"IR = {place}", lines(frame(cells))) for place in range(n_panels)],
        "accuracy",
    )
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    whole = figure.bbox
    assert whole.x0 + 5 < box.x0
    assert box.x1 < whole.x1 - 5


def test_no_two_lines_of_a_figure_look_alike():
    names = [
        "mean",
        "coinpress",
        "public",
        "softmax",
        "newton",
        "linear-probe",
        "global-adapt",
    ]
    cells = [record(name) for name in names]
    cells += [
        record("public-topk", parameters={"n_prototypes": k}) for k in range(1, 30)
    ]
    cells += [record(name, trials=3) for name in names] + [
        record("ncm"),
        record("lda"),
        record("logistic"),
    ]
    looks = [
        tuple(map(str, style.items()))
        for style in line_styles(lines(frame(cells))).values()
    ]
    assert len(looks) == len(set(looks)) == len(names) * 2 + 29 + 3


def test_lines_hold_the_values_of_all_seeds():
    (one,) = lines(
        frame(
            [
                record(accuracy=a, seed=s, budget={"mu": 2.0})
                for s, a in enumerate((0.0, 0.5, 1.0))
            ]
        )
    )
    assert one.values == {2.0: [0.0, 0.5, 1.0]}
    assert quartiles(one.values[2.0]) == (0.25, 0.5, 0.75)


def test_without_matplotlib_a_report_says_what_to_install(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"Matplotlib.*\.\[lab\]"):
        report([record()])
